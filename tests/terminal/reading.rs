//! How answers are read: thoughts, raw text, places that stay, marks, wide characters, with the real program.

use crate::screen::Start;

#[test]
fn thoughts_are_a_line_until_they_are_unfolded() {
    let mut screen = Start::script("reader").open();
    screen.wait_for("ready");
    screen.send("ponder it\r");
    screen.wait("thoughts are folded", |text| {
        text.contains("The answer is here.") && !text.contains("then that.")
    });
    screen.send("\x14"); // ^T
    screen.wait_for("then that.");
    screen.send("\x14");
    screen.wait("they are folded again", |text| !text.contains("then that."));
    screen.quit();
}

#[test]
fn an_answer_is_shown_as_it_was_written_and_copied_whole() {
    let names = ["TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY"];
    let start = names
        .iter()
        .fold(Start::script("reader"), |start, name| start.environment(name, ""));
    let mut screen = start.open();
    screen.wait_for("ready");
    screen.send("ponder it\r");
    screen.wait_for("The answer is here.");
    screen.wait_for("stop, ");
    screen.send("\x1br"); // Alt-r
    screen.wait_for("The **answer** is here.");
    screen.send("\x1br");
    screen.wait("it is Markdown again", |text| !text.contains("**answer**"));
    screen.send("\x1bv"); // Alt-v
    screen.wait_for("y copies");
    screen.send("Y");
    screen.wait_for_bytes("\x1b]52;c;VGhlICoqYW5zd2VyKiogaXMgaGVyZS4="); // The **answer** is here.
    screen.send("i");
    screen.quit();
}

#[test]
fn what_is_read_stays_in_its_place_while_text_arrives() {
    let mut screen = Start::script("reader").argument("--panes").argument("1").open();
    screen.wait_for("ready");
    screen.send("lines\r");
    screen.wait_for("stop, ");
    screen.send("endless\r");
    screen.wait_for("on and on");
    screen.send("\x1b[5~\x1b[5~\x1b[5~\x1b[5~"); // PgUp
    let place = |text: &str| -> Vec<String> { text.lines().skip(2).take(14).map(str::to_owned).collect() };
    screen.wait("nothing of the new text is in sight", |text| {
        text.contains("a line of many") && !text.contains("on and on")
    });
    let before = place(&screen.text());
    // More text comes: the title's count of tokens goes up, what is read stays.
    let first = screen.text().lines().nth(1).unwrap_or_default().to_owned();
    screen.wait("text arrives", |text| {
        text.lines().nth(1).is_some_and(|title| title != first)
    });
    assert_eq!(place(&screen.text()), before);
    screen.send("\x1b[1;5F"); // ^End
    screen.wait_for("on and on");
    screen.send("\x1b");
    screen.wait_for("stopped");
    screen.quit();
}

#[test]
fn an_answer_that_ended_elsewhere_is_marked_and_rings() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/mlx-chat");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "[interface]\nbell_when_done = true\n").unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1b[18~"); // F7: one pane alone
    screen.send("remember me\r\t"); // Tab: another pane
    screen.wait_for("to 2");
    screen.wait_for("+1 pane •1 new");
    screen.wait_for_bytes("\x07");
    screen.send("\x1b1"); // Alt-1
    screen.wait("seen, it has none", |text| {
        text.contains("to 1 remember me") && !text.contains("1 new")
    });
    screen.quit();
}

#[test]
fn wide_and_joined_characters_are_shown_and_written_whole() {
    let mut screen = Start::script("reader").open();
    screen.wait_for("ready");
    screen.send("wide\r");
    screen.wait_for("end");
    screen.wait("characters are whole", |text| {
        text.contains("日本語 and ") && text.contains("e\u{301} end")
    });
    screen.send("日本\x1b[D語"); // Left
    screen.wait_for("│日語本");
    screen.send("\x7f\x7f"); // Backspace
    screen.wait("the second is left", |text| {
        text.contains("│本 ") && !text.contains("日語")
    });
    screen.send("\x03");
    screen.quit();
}
