//! What goes wrong around the program: each is told on the screen, and nothing is lost.

use std::path::Path;

use mlx_chat::chat::Store;

use crate::logged;
use crate::model::with_tokenizer;
use crate::program::Program;
use crate::screen::{Screen, Start};

fn store(home: &Path) -> Store {
    Store::at(&home.join("state/mlx-chat"))
}

/// The answer of the one conversation's last turn.
fn last_answer(home: &Path) -> String {
    let store = store(home);
    let sessions = store.list().unwrap().sessions;
    assert_eq!(sessions.len(), 1);
    let conversation = store.load(sessions[0].session).unwrap();
    conversation.turns.last().unwrap().answer.as_str().to_owned()
}

/// One pane on a script, with a conversation in it.
fn talking(home: &Path) -> Screen {
    let mut screen = Start::script("calm").home(home).argument("--panes=1").open();
    screen.wait_for("ready");
    screen.send("remember me\r");
    screen.wait_for("I do remember you.");
    screen.wait_for("stop, ");
    screen
}

#[test]
fn what_another_process_has_open_is_read_here_and_gets_no_prompt() {
    let home = tempfile::tempdir().unwrap();
    let mut first = talking(home.path());
    let mut second = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .open();
    second.wait_for("› remember me");
    second.wait_for("Open in another process:");
    second.send("and me?\r");
    second.wait_for("can only be read here");
    // Nothing of it is in the way of the first one.
    first.send("remember me, too\r");
    first.wait("both are answered", |text| text.matches("stop, ").count() == 2);
    // What is said there is shown here by itself, and so is that it has ended there.
    second.wait_for("› remember me, too");
    first.quit();
    let conversation = store(home.path()).list().unwrap().sessions.remove(0);
    assert_eq!(conversation.turns, 2);
    second.wait_for("takes prompts again");
    second.send("\r");
    second.wait_for("› and me?");
    second.quit();
    assert_eq!(store(home.path()).list().unwrap().sessions.remove(0).turns, 3);
    let mut third = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .open();
    third.wait_for("› and me?");
    third.send("now?\r");
    third.wait_for("› now?");
    third.quit();
}

#[test]
fn a_second_process_and_a_crash_leave_the_first_ones_panes_to_resume() {
    let home = tempfile::tempdir().unwrap();
    let wide = || Start::script("calm").home(home.path()).size(160, 30);
    let start = |argument: &str| wide().argument(argument).open();
    let mut first = start("--panes=3");
    first.wait_for("ready");
    first.send("remember me\r");
    first.wait_for("stop, ");
    first.send("an unsent thought");
    // Nothing is drawn when the draft reaches the log.
    let began = std::time::Instant::now();
    while !logged(home.path(), "an unsent thought") {
        assert!(
            began.elapsed().as_secs() < 60,
            "the draft reaches the log by itself"
        );
        std::thread::yield_now();
    }
    let mut second = start("--panes=1");
    second.wait_for("mlx-chat runs in another process, too");
    second.send("remember the second\r");
    second.wait_for("stop, ");
    first.signal("KILL");
    first.exit_code();
    second.quit();
    // Who starts anew is told what can come back, and a draft alone doesn't take its place.
    let mut third = start("--panes=1");
    third.wait_for("mlx-chat broke off last time: started with --resume, it opens the 3 panes");
    third.send("a new draft");
    third.wait_for("│a new draft");
    third.quit();
    let mut fourth = wide().argument("--resume").argument("--panes=1").open();
    fourth.wait_for("› remember me");
    fourth.wait_for("│an unsent thought");
    fourth.wait_for("--panes 1 closes none of the 3 panes of last time: F8 closes");
    fourth.quit();
    // That one ended as it should.
    let mut fifth = start("--panes=1");
    fifth.wait_for("ready");
    fifth.send("remember me\r");
    fifth.wait_for("stop, ");
    assert!(!fifth.bytes_contain("broke off"));
    fifth.quit();
}

/// A pane whose answer has ended, and whose log could not grow by more than the beginning.
#[cfg(target_os = "linux")]
fn on_a_full_disk(home: &Path) -> Screen {
    let mut screen = Start::script("calm")
        .home(home)
        .argument("--panes=1")
        .limited(4)
        .open();
    screen.wait_for("ready");
    screen.send("a long story\r");
    screen.wait_for("NOT SAVED");
    screen.wait_for("length, ");
    screen
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_what_waited_is_written_when_there_is_room() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = on_a_full_disk(home.path());
    // Who leaves now is asked, and told why.
    screen.send("\x04");
    screen.wait_for("Not all could be saved");
    screen.send("n");
    screen.give_room();
    screen.wait("it is saved", |text| !text.contains("NOT SAVED"));
    screen.quit();
    // Four tokens each, up to the limit of 1,024.
    let whole = "word after word ".repeat(256);
    assert_eq!(last_answer(home.path()).trim_end(), whole.trim_end());
}

#[cfg(target_os = "linux")]
#[test]
fn who_leaves_a_full_disk_all_the_same_is_told_what_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = on_a_full_disk(home.path());
    screen.send("\x04");
    screen.wait_for("Not all could be saved");
    screen.send("y");
    assert_eq!(screen.exit_code(), 1);
    screen.assert_restored();
    let output = screen.whole_output();
    let (_, after) = output.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("File too large"), "{after}");
    // What fitted is there: the log has whole lines.
    let kept = last_answer(home.path());
    assert!(
        !kept.is_empty() && "word after word ".repeat(400).starts_with(&kept),
        "{kept}"
    );
}

#[test]
fn a_log_that_is_deleted_while_it_is_open_is_written_anew() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = talking(home.path());
    std::fs::remove_dir_all(home.path().join("state/mlx-chat/sessions")).unwrap();
    screen.send("still there?\r");
    screen.wait("it goes on", |text| text.matches("stop, ").count() == 2);
    screen.quit();
    let mut again = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .open();
    again.wait("all of it is there", |text| {
        text.contains("› remember me") && text.contains("› still there?")
    });
    again.quit();
}

#[test]
fn a_log_whose_place_another_file_has_taken_is_told_of() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = talking(home.path());
    let sessions = home.path().join("state/mlx-chat/sessions");
    let log = std::fs::read_dir(&sessions)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    std::fs::remove_file(&log).unwrap();
    std::fs::write(&log, "mine\n").unwrap();
    screen.send("still there?\r");
    screen.wait_for("NOT SAVED");
    screen.wait("it goes on", |text| text.matches("stop, ").count() == 2);
    let copy = home.path().join("copy.md");
    screen.send(&format!("/export {}\r", copy.display()));
    screen.wait_for("written to");
    let copied = std::fs::read_to_string(&copy).unwrap();
    assert!(
        copied.contains("remember me") && copied.contains("still there?"),
        "{copied}"
    );
    screen.send("\x04");
    screen.wait_for("Not all could be saved");
    screen.send("y");
    assert_eq!(screen.exit_code(), 1);
    screen.assert_restored();
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "mine\n");
}

#[test]
fn without_the_settings_folder_what_is_the_default_counts_again() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/mlx-chat");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), "[keys]\ndashboard = ['f12']\n").unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("F12 engine");
    std::fs::remove_dir_all(&folder).unwrap();
    screen.wait_for("F2 engine");
    screen.send("remember me\r");
    screen.wait_for("I do");
    // A preset makes the folder anew.
    screen.send("/save-preset mine\r");
    screen.wait_for("mine");
    screen.quit();
}

#[test]
fn the_smallest_screen_says_what_is_needed_and_a_larger_one_shows_all() {
    for (cols, rows) in [(1, 1), (2, 30), (200, 1)] {
        let mut screen = Start::script("calm").size(cols, rows).open();
        screen.wait_for_bytes("\x1b[?1049h");
        screen.send("kept");
        screen.settle();
        screen.resize(80, 24);
        screen.wait_for("│kept");
        screen.send("\x03");
        screen.wait("the draft is cleared", |text| !text.contains("│kept"));
        screen.resize(cols, rows);
        screen.quit();
        screen.assert_restored();
    }
}

/// A model whose tokenizer comes when the test says so: until then, the weights are not opened.
fn waiting_model(program: &Program) -> (std::path::PathBuf, Vec<u8>) {
    let folder = std::path::PathBuf::from(with_tokenizer(program));
    let tokenizer = folder.join("tokenizer.json");
    let text = std::fs::read(&tokenizer).unwrap();
    std::fs::remove_file(&tokenizer).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&tokenizer).status();
    assert!(made.unwrap().success());
    (folder, text)
}

#[test]
fn a_model_that_vanishes_or_is_cut_while_it_loads_is_told_of_and_the_draft_is_kept() {
    type Damage = fn(&Path);
    let cases: [(Damage, &str); 2] = [
        (|weights| std::fs::remove_file(weights).unwrap(), "safetensors"),
        (
            |weights| {
                let file = std::fs::File::options().write(true).open(weights).unwrap();
                file.set_len(5000).unwrap();
            },
            "fetch it again",
        ),
    ];
    for (damage, said) in cases {
        let program = Program::new();
        let (folder, tokenizer) = waiting_model(&program);
        let mut screen = Start::model(&folder).argument("--panes=1").open();
        screen.wait_for("loading");
        screen.send("kept");
        screen.wait_for("│kept");
        damage(&folder.join("model.safetensors"));
        std::fs::write(folder.join("tokenizer.json"), tokenizer).unwrap();
        screen.wait_for("The engine failed");
        screen.wait("the reason is told", |text| {
            text.split_whitespace()
                .collect::<String>()
                .contains(&said.replace(' ', ""))
        });
        screen.wait_for("Alt-m chooses a model");
        assert!(screen.text().contains("│kept"));
        screen.send("\x03");
        screen.wait("the draft is cleared", |text| !text.contains("│kept"));
        screen.leave();
        assert_eq!(screen.exit_code(), 1);
        screen.assert_restored();
    }
}
