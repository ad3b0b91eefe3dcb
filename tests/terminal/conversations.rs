//! Panes and what is said in them: branches, titles, texts found, files written, with the real program.

use std::path::Path;

use crate::screen::{Screen, Start};

/// Sends a prompt to the focused pane, and waits for its whole answer, which ends so.
fn answered(screen: &mut Screen, prompt: &str, end: &str) {
    screen.send(&format!("{prompt}\r"));
    screen.wait(&format!("{prompt:?} is answered"), |text| {
        text.contains(&format!("› {prompt}")) && text.contains(end) && text.contains("stop, ")
    });
}

#[test]
fn nine_panes_are_opened_and_a_tenth_is_refused() {
    let mut screen = Start::script("calm")
        .argument("--panes")
        .argument("1")
        .size(200, 50)
        .open();
    screen.wait_for("ready");
    for count in 2..=9 {
        screen.send("\x1bOS"); // F4
        screen.wait_for(&format!("to {count}"));
    }
    screen.send("\x1bOS");
    screen.wait_for("there are 9 panes already: close one first");
    screen.send("\x1b5"); // Alt-5
    screen.wait_for("to 5");
    screen.quit();
}

#[test]
fn panes_are_moved_zoomed_closed_and_brought_back() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    answered(&mut screen, "remember one", "I do remember you.");
    screen.send("\x1b[1;4C"); // Alt-Shift-Right
    screen.wait("it is the second now", |text| {
        text.contains("┌ 1 ") && text.contains("2 remember one") && text.contains("to 2 remember one")
    });
    screen.send("\x1b[18~"); // F7
    screen.wait("it is alone", |text| {
        !text.contains("┌ 1 ") && text.contains("2 remember one")
    });
    screen.send("\x1b[18~");
    screen.wait_for("┌ 1 ");
    screen.send("half a dra\x1b[19~"); // F8
    screen.wait("it is closed", |text| !text.contains("2 remember one"));
    screen.send("\x1bu"); // Alt-u
    screen.wait("it is there again with its draft", |text| {
        text.contains("2 remember one") && text.contains("I do remember you.") && text.contains("│half a dra")
    });
    screen.send("\x03");
    screen.quit();
}

#[test]
fn an_edited_prompt_a_retry_and_a_fork_lose_nothing() {
    let mut screen = Start::script("calm").size(160, 24).open();
    screen.wait_for("ready");
    answered(&mut screen, "remember me", "I do remember you.");
    screen.send("\x1be"); // Alt-e
    screen.wait_for("│remember me");
    screen.send("\x15some code\r"); // ^U
    screen.wait("the edited prompt is answered", |text| {
        text.contains("› some code") && text.contains("needle.") && !text.contains("› remember me")
    });
    screen.send("\x1b[1;3A"); // Alt-Up
    screen.wait("the branch before", |text| {
        text.contains("› remember me") && text.contains("I do remember you.") && !text.contains("needle.")
    });
    screen.send("\x1b[15~"); // F5
    screen.wait("another answer to the same prompt", |text| {
        text.contains("‹3/3›") && text.contains("I do remember you.") && text.contains("stop, ")
    });
    screen.send("\x1b[17~"); // F6
    screen.wait("the branch is in two panes", |text| {
        text.matches("› remember me").count() == 2 && text.matches("I do remember you.").count() == 2
    });
    screen.quit();
}

#[test]
fn prompts_come_back_with_up() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    answered(&mut screen, "remember one", "I do remember you.");
    screen.send("unsent\x1b[A"); // Up
    screen.wait_for("│remember one");
    screen.send("\x1b[B"); // Down
    screen.wait_for("│unsent");
    screen.send("\x03");
    screen.quit();
}

#[test]
fn a_conversation_is_renamed_archived_and_found_by_its_text() {
    let home = tempfile::tempdir().unwrap();
    let start = || Start::script("calm").home(home.path());
    let mut screen = start().open();
    screen.wait_for("ready");
    answered(&mut screen, "some code", "needle.");
    screen.send("\x1bo"); // Alt-o
    screen.wait("it is listed", |text| {
        text.lines()
            .any(|line| line.contains("some code") && line.contains("1 turn"))
    });
    screen.send("\x12"); // ^R
    screen.wait_for("new title");
    screen.send("\x15Shells\r"); // ^U
    screen.wait("it has another title", |text| {
        text.lines()
            .any(|line| line.contains("Shells") && line.contains("1 turn"))
    });
    screen.send("\t"); // Tab: texts
    screen.wait_for("text>");
    screen.send("needl");
    screen.wait("its text is found", |text| {
        text.lines()
            .any(|line| line.contains("Shells") && line.contains("needle"))
    });
    screen.send("\x1bh"); // Alt-h
    screen.send("\x1b");
    screen.wait("the list is closed", |text| !text.contains("text>"));
    screen.quit();
    let mut screen = start().open();
    screen.wait_for("ready");
    screen.send("\x1bo");
    screen.wait_for("conversations");
    screen.wait("an archived one is not listed", |text| {
        text.contains("title>") && !text.contains("Shells")
    });
    screen.send("\x1bl"); // Alt-l
    screen.wait_for("Shells");
    screen.send("\r");
    screen.wait("it is open", |text| {
        text.contains("› some code") && text.contains("needle.")
    });
    screen.quit();
}

/// Asks for a file by a command, and gives what is in it.
fn written(screen: &mut Screen, command: &str, folder: &Path, name: &str) -> String {
    screen.send(&format!("/{command} {name}\r"));
    screen.wait(&format!("{name} is written"), |text| {
        text.lines().last().is_some_and(|line| line.contains(name)) && folder.join(name).is_file()
    });
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_pane_and_a_comparison_are_exported_in_every_format() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1bOR"); // F3
    screen.wait_for("to all 2 panes");
    screen.send("some code\r");
    screen.wait("both have answered", |text| text.matches("stop, ").count() == 2);
    screen.send("\x1bOR");
    screen.wait_for("F3 broadcast");
    let folder = home.path();
    let markdown = written(&mut screen, "export", folder, "one.md");
    assert!(
        markdown.contains("some code") && markdown.contains("```sh\nls -l\n```"),
        "{markdown}"
    );
    let html = written(&mut screen, "export", folder, "one.html");
    assert!(
        html.contains("<pre") && html.contains("<strong>here</strong>"),
        "{html}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&written(&mut screen, "export", folder, "one.json")).unwrap();
    assert!(json.to_string().contains("That was the needle."), "{json}");
    for name in ["both.md", "both.html", "both.json"] {
        let both = written(&mut screen, "export-comparison", folder, name);
        assert_eq!(both.matches("That was the needle.").count(), 2, "{name}: {both}");
    }
    screen.quit();
}

#[test]
fn a_file_of_chatgpt_is_imported_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let node = |id: &str, parent: Option<&str>, children: &[&str], role: &str, text: &str| {
        let message = serde_json::json!({ "author": { "role": role }, "content": { "parts": [text] } });
        (
            id.to_owned(),
            serde_json::json!({ "message": message, "parent": parent, "children": children }),
        )
    };
    let mapping: serde_json::Map<String, serde_json::Value> = [
        node("a", None, &["b"], "user", "Which bird is it?"),
        node("b", Some("a"), &[], "assistant", "A wren."),
    ]
    .into_iter()
    .collect();
    let file = serde_json::json!([{ "title": "Birds", "mapping": mapping, "current_node": "b" }]);
    std::fs::write(home.path().join("conversations.json"), file.to_string()).unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("/import conversations.json\r");
    screen.wait_for("imported 1 conversation");
    screen.send("\x1bo"); // Alt-o
    screen.wait_for("Birds");
    screen.send("\r");
    screen.wait("it is open", |text| {
        text.contains("› Which bird is it?") && text.contains("A wren.")
    });
    screen.send("remember it\r");
    screen.wait_for("I do remember you.");
    screen.quit();
}
