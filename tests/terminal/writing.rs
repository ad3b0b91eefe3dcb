//! Palette, slash commands, picker, files and the person's own editor, with the real program.

use crate::screen::Start;

#[test]
fn the_palette_finds_an_action_and_runs_it() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("^P menu");
    screen.send("\x10"); // ^P
    screen.wait_for(" commands ");
    screen.send("newpane");
    screen.wait_for("> newpane");
    screen.send("\r");
    screen.wait_for("+1 pane");
    assert!(!screen.text().contains(" commands "));
    screen.send("\x10");
    screen.wait_for(" commands ");
    screen.send("\x1b");
    screen.wait("the palette is closed", |text| !text.contains(" commands "));
    screen.quit();
}

#[test]
fn what_comes_at_once_is_read_to_its_end() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    // More than is read from a terminal at a time, as a paste without brackets has it.
    screen.send(&format!("{}the end", "word ".repeat(1000)));
    screen.wait("all of it is there", |text| {
        text.contains("[Pasted 5 007 characters]") || text.contains("the end")
    });
    screen.quit();
}

#[test]
fn slash_commands_set_what_applies_in_a_pane() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("/temp");
    screen.wait_for("/temperature N");
    screen.send("\t0.5");
    screen.wait_for("│/temperature 0.5");
    screen.send("\r");
    screen.wait_for("pane 1: temperature 0.5, from the next prompt on");
    screen.send("/temperature\r");
    screen.wait("the setting is told", |text| {
        let told = |line: &str| line.contains("pane 1: temperature 0.5") && !line.contains("next prompt");
        text.lines().any(told)
    });
    screen.send("/nonsense\r");
    screen.wait_for("there is no command /nonsense");
    assert!(screen.text().contains("│/nonsense"), "the draft is kept");
    screen.send("\x03");
    screen.send("//remember me\r");
    screen.wait_for("I do remember you.");
    assert!(screen.text().contains("› /remember me"));
    screen.quit();
}

/// A home in which a conversation is stored.
fn with_a_conversation() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("remember the pearl\r");
    screen.wait_for("I do remember you.");
    screen.quit();
    home
}

#[test]
fn a_stored_conversation_is_picked_and_goes_on() {
    let home = with_a_conversation();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    assert!(!screen.text().contains("pearl"));
    screen.send("\x1bo"); // Alt-o
    screen.wait_for("1 of 1");
    screen.send("\t");
    screen.wait_for("text>");
    screen.send("you do");
    screen.wait_for("1 hit");
    screen.send("\r");
    screen.wait_for("› remember the pearl");
    screen.send("remember more\r");
    screen.wait("it goes on", |text| {
        text.matches("I do remember you.").count() == 2
    });
    screen.send("\x1bo");
    screen.wait_for("pane 1");
    screen.send("\x18"); // ^X
    screen.wait_for("close that first");
    screen.send("\x1b");
    screen.quit();
}

#[test]
fn a_conversation_that_is_deleted_in_the_picker_is_gone() {
    let home = with_a_conversation();
    let sessions = home.path().join("state/mlx-chat/sessions");
    let count = || std::fs::read_dir(&sessions).unwrap().count();
    assert_eq!(count(), 1);
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("\x1bo");
    screen.wait_for("1 of 1");
    screen.send("\x18");
    screen.wait_for("1 deleted when this closes");
    screen.send("\x1b");
    screen.wait("the picker is closed", |text| !text.contains("deleted when"));
    screen.quit();
    assert_eq!(count(), 0);
}

#[test]
fn a_large_paste_is_one_word_and_a_file_goes_along() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("notes.txt"), "remember this\n").unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    let paste = "some line\n".repeat(20);
    screen.send(&format!("\x1b[200~{paste}\x1b[201~"));
    screen.wait_for("[Pasted 20 lines]");
    screen.send("\x7f");
    screen.wait("it goes as one", |text| !text.contains("Pasted"));
    screen.send("see @no");
    screen.wait_for("│ notes.txt");
    screen.send("\t");
    screen.wait_for("+ notes.txt 14B, 1 line");
    screen.send("\r");
    screen.wait_for("I do remember you.");
    assert!(screen.text().contains("remember this"), "{}", screen.text());
    screen.quit();
}

/// An editor that takes a line from the terminal.
const LINE: &str = "f() { echo EDITOR HERE; read line; printf '%s' \"$line\" > \"$1\"; }; f";

#[test]
fn the_persons_editor_has_the_terminal_and_gives_it_back() {
    let mut screen = Start::script("calm").environment("VISUAL", LINE).open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.send("a draft");
    screen.wait_for("│a draft");
    for (before, text) in ["typed there", "and again"].into_iter().enumerate() {
        screen.send("\x1bg"); // Alt-g
        // What it wrote the last time is still there.
        screen.wait("the editor is there", |text| {
            text.matches("EDITOR HERE").count() == before + 1
        });
        let modes = screen.modes();
        assert!(!modes.alternate && !modes.paste && !modes.hidden, "{modes:?}");
        screen.send(&format!("{text}\r"));
        screen.wait_for(&format!("│{text}"));
        assert!(screen.modes().alternate);
        // Each key counts from here on.
        screen.send("!?");
        screen.wait_for(&format!("│{text}!?"));
    }
    assert!(screen.text().contains("decode"), "the answer went on");
    screen.leave();
    screen.assert_restored();
}

#[test]
fn an_editor_that_is_interrupted_or_fails_leaves_the_draft() {
    let mut screen = Start::script("calm").environment("VISUAL", LINE).open();
    screen.wait_for("ready");
    screen.send("a draft");
    screen.wait_for("│a draft");
    screen.send("\x1bg");
    screen.wait_for("EDITOR HERE");
    screen.send("\x03"); // it is the editor's, and not the program's
    screen.wait_for("the draft is as it was");
    assert!(screen.text().contains("│a draft"));
    screen.quit();
    let mut screen = Start::script("calm").environment("VISUAL", "exit 3;").open();
    screen.wait_for("ready");
    screen.send("a draft");
    screen.wait_for("│a draft");
    screen.send("\x1bg");
    screen.wait_for("ended with 3");
    screen.send("!");
    screen.wait_for("│a draft!");
    screen.quit();
    screen.assert_restored();
}

#[test]
fn a_signal_ends_the_program_while_the_editor_has_the_terminal() {
    let mut screen = Start::script("calm").environment("VISUAL", LINE).open();
    screen.wait_for("ready");
    screen.send("\x1bg");
    screen.wait_for("EDITOR HERE");
    screen.signal("TERM");
    assert_eq!(screen.exit_code(), 128 + 15);
    screen.assert_restored();
}

#[test]
fn leaving_while_an_answer_streams_asks_once() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.send("\x04");
    screen.wait_for("An answer still streams.");
    screen.send("n");
    screen.wait("the question is gone", |text| !text.contains("still streams"));
    screen.send("\x04");
    screen.wait_for("An answer still streams.");
    screen.send("y");
    assert_eq!(screen.exit_code(), 0);
    screen.assert_restored();
}

#[test]
fn a_draft_that_was_changed_is_taken_back() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("one two");
    screen.wait_for("│one two");
    screen.send("\x17"); // ^W
    screen.wait("a word is gone", |text| !text.contains("│one two"));
    screen.send("\x1f"); // ^_
    screen.wait_for("│one two");
    screen.quit();
}

#[test]
fn the_settings_file_is_edited_in_the_persons_editor_and_counts_when_it_is_saved() {
    let home = tempfile::tempdir().unwrap();
    let editor = "f() { printf '[keys]\\nzoom = [\"f12\"]\\n' > \"$1\"; }; f";
    let start = Start::script("calm")
        .home(home.path())
        .environment("VISUAL", editor);
    let mut screen = start.open();
    screen.wait_for("ready");
    screen.send("/config\r");
    screen.wait("what came of it is told", |text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").contains("looks and keys count as they are saved")
    });
    let file = home.path().join("config/mlx-chat/config.toml");
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "[keys]\nzoom = [\"f12\"]\n"
    );
    screen.quit();
}

#[test]
fn an_editor_that_is_not_there_is_told_with_what_names_one() {
    let mut screen = Start::script("calm")
        .environment("VISUAL", "mlx-chat-no-such-editor")
        .open();
    screen.wait_for("ready");
    screen.send("\x1bg"); // Alt-g
    screen.wait_for("there is no program \"mlx-chat-no-such");
    screen.wait_for("set $VISUAL or $EDITOR");
    screen.quit();
}
