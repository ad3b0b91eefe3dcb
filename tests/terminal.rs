//! The real program in a pseudo-terminal, on a scripted engine, as a person would see and leave it.
#![cfg(unix)]

#[path = "terminal/conversations.rs"]
mod conversations;
#[path = "terminal/downloads.rs"]
mod downloads;
#[allow(dead_code, reason = "what other tests of the hub want, too")]
#[path = "hub/hub_server.rs"]
mod hub_server;
#[path = "terminal/looks.rs"]
mod looks;
#[allow(dead_code, reason = "what other tests of the program want, too")]
#[path = "cli/model.rs"]
mod model;
#[path = "terminal/models.rs"]
mod models;
#[path = "terminal/panes.rs"]
mod panes;
#[allow(dead_code, reason = "what other tests of the program want, too")]
#[path = "cli/program.rs"]
mod program;
#[path = "terminal/reading.rs"]
mod reading;
#[path = "terminal/recording.rs"]
mod recording;
#[path = "terminal/screen.rs"]
mod screen;
#[path = "terminal/trouble.rs"]
mod trouble;
#[allow(dead_code, reason = "what other tests of the hub want, too")]
#[path = "hub/world.rs"]
mod world;
#[path = "terminal/writing.rs"]
mod writing;

use std::time::Duration;

use screen::Start;

#[test]
fn two_panes_answer_at_the_same_time() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("F1 help");
    screen.send("\x1bOR"); // F3
    screen.wait_for("to all 2 panes");
    screen.send("tell me a long story\r");
    screen.wait("both panes stream", |text| text.matches("decode").count() >= 2);
    screen.wait("both panes show text", |text| {
        text.lines().any(|line| line.matches("word").count() >= 2)
    });
    screen.quit();
}

#[test]
fn an_answer_is_stopped_by_escape_and_its_text_kept() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.send("\x1b");
    screen.wait_for("stopped");
    assert!(screen.text().contains("on and on"));
    screen.wait("the batch is empty", |text| text.contains("0 run"));
    screen.quit();
}

#[test]
fn the_dashboard_shows_the_engine_and_goes_again() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.send("\x1bOQ"); // F2
    screen.wait_for("step phases");
    screen.wait("a row decodes", |text| {
        text.contains("1 endless") && text.contains("decode")
    });
    screen.wait("steps have times", |text| {
        text.contains("p50") && !text.contains("p50 -")
    });
    screen.send("\x1b");
    screen.wait_for("to 1 endless please");
    screen.quit();
}

#[test]
fn resizing_redraws_the_screen_at_its_new_size() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.resize(120, 40);
    screen.wait("the composer is as wide as the screen", |text| {
        text.lines()
            .any(|line| line.starts_with('└') && line.chars().count() == 120)
    });
    screen.resize(30, 8);
    screen.wait_for("too small");
    screen.resize(80, 24);
    screen.wait_for("F1 help");
    screen.quit();
}

#[test]
fn a_marked_paste_is_one_draft_and_sends_nothing() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("\x1b[200~first line\nsecond line\n\x1b[201~");
    screen.wait_for("second line");
    assert!(screen.text().contains("│first line"));
    screen.quit();
}

#[test]
fn the_terminal_is_as_it_was_after_quitting() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    assert!(screen.modes().alternate && screen.modes().paste);
    assert!(screen.bytes_contain("\x1b[>1u"));
    screen.quit();
    screen.assert_restored();
}

#[test]
fn control_d_on_an_empty_draft_quits() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("\x04");
    assert_eq!(screen.exit_code(), 0);
    screen.assert_restored();
}

#[test]
fn the_terminal_is_as_it_was_after_a_signal() {
    for (name, number) in [("TERM", 15), ("HUP", 1), ("INT", 2)] {
        let mut screen = Start::script("calm").open();
        screen.wait_for("ready");
        screen.signal(name);
        assert_eq!(screen.exit_code(), 128 + number, "after SIG{name}");
        screen.assert_restored();
    }
}

#[test]
fn a_panic_of_the_engine_is_told_on_the_screen_and_after_it() {
    let mut screen = Start::script("panics").open();
    screen.wait_for("ready");
    screen.send("go\r");
    screen.wait_for("The engine failed");
    screen.leave();
    assert_eq!(screen.exit_code(), 1);
    screen.assert_restored();
    assert!(
        screen.whole_output().contains("index out of bounds"),
        "{}",
        screen.whole_output()
    );
}

#[test]
fn the_terminal_is_as_it_was_after_a_panic_of_the_interface() {
    let mut screen = Start::this_test("panics_with_the_terminal").open();
    screen.exit_code();
    screen.assert_restored();
    let output = screen.whole_output();
    let (before, after) = output.split_once("\x1b[?1049l").unwrap();
    assert!(
        before.contains("\x1b[?1049h") && after.contains("a drawing went wrong"),
        "{output}"
    );
    assert!(
        !output.contains("to the log"),
        "what others print isn't on the screen"
    );
}

#[test]
#[ignore = "run in a pseudo-terminal by the test above"]
fn panics_with_the_terminal() {
    let log = std::env::temp_dir().join(format!("mlx-chat-panic-{}.log", std::process::id()));
    let guard = mlx_chat::ui::terminal::Guard::enter(&log).unwrap();
    // Unlike `println!`, which tests may capture, this goes to the descriptor.
    std::io::Write::write_all(&mut std::io::stdout(), b"to the log\n").unwrap();
    std::io::Write::write_all(&mut std::io::stderr(), b"to the log\n").unwrap();
    let logged = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(logged, "to the log\nto the log\n");
    let _guard = guard;
    panic!("a drawing went wrong");
}

#[test]
fn a_failed_load_is_told_and_the_draft_is_kept() {
    let mut screen = Start::script("broken").open();
    screen.wait_for("reading weights");
    screen.send("my prompt\r");
    screen.wait_for("the file is damaged");
    screen.wait_for("│my prompt");
    screen.send("\x03");
    screen.wait("the draft is cleared", |text| !text.contains("│my prompt"));
    screen.leave();
    assert_eq!(screen.exit_code(), 1);
    screen.assert_restored();
}

#[test]
fn a_model_that_is_being_loaded_is_not_waited_for_by_who_leaves() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), "{}").unwrap();
    // Nobody ever writes to it: the load never ends.
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("tokenizer.json"))
        .status();
    assert!(made.unwrap().success());
    let mut screen = Start::model(folder.path()).open();
    screen.wait_for("loading");
    screen.quit();
    screen.assert_restored();
    let mut screen = Start::model(folder.path()).open();
    screen.wait_for("loading");
    screen.signal("INT");
    assert_eq!(screen.exit_code(), 130);
    screen.assert_restored();
}

#[test]
fn prompts_sent_while_loading_are_answered_afterwards() {
    let mut screen = Start::script("slow_load").open();
    screen.wait_for("reading weights");
    screen.send("early bird\r");
    screen.wait_for("waits: early bird");
    screen.wait_for("worm");
    screen.quit();
}

#[test]
fn conversations_are_there_again_with_resume() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("remember me\r");
    screen.wait_for("I do");
    screen.send("a draft");
    screen.wait_for("│a draft");
    screen.signal("TERM");
    screen.exit_code();
    let mut screen = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .open();
    screen.wait_for("› remember me");
    screen.wait_for("I do");
    screen.wait_for("│a draft");
    screen.send("\x03");
    screen.quit();
}

/// Whether some session's log holds this text.
fn logged(home: &std::path::Path, text: &str) -> bool {
    let sessions = home.join("state/mlx-chat/sessions");
    let logs = std::fs::read_dir(sessions).into_iter().flatten().flatten();
    logs.filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .any(|log| log.contains(text))
}

#[test]
fn what_was_said_a_second_before_kill_9_is_there_again() {
    let home = tempfile::tempdir().unwrap();
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("ready");
    screen.send("endless please\r");
    screen.wait_for("on and on");
    screen.wait("the streaming answer reaches the log by itself", |_| {
        logged(home.path(), "on and on")
    });
    screen.signal("KILL");
    screen.exit_code();
    let mut screen = Start::script("calm")
        .home(home.path())
        .argument("--resume")
        .open();
    screen.wait_for("› endless please");
    screen.wait_for("on and on");
    screen.quit();
}

#[test]
fn no_color_and_ascii_are_held_on_the_wire() {
    let start = Start::script("calm")
        .environment("NO_COLOR", "1")
        .environment("LC_ALL", "C");
    let mut screen = start.open();
    screen.wait_for("ready");
    screen.send("\x1bOQ");
    screen.wait_for("step phases");
    screen.quit();
    let bytes = screen.whole_output();
    assert!(bytes.is_ascii());
    for color in 30..=37 {
        assert!(
            !bytes.contains(&format!("\x1b[{color}m")) && !bytes.contains(&format!(";5;{}m", color - 30))
        );
    }
}

#[test]
fn keys_change_as_soon_as_the_settings_are_saved_and_a_mistake_is_told() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/mlx-chat");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.toml");
    let mut screen = Start::script("calm").home(home.path()).open();
    screen.wait_for("F2 engine");
    std::fs::write(&file, "[keys]\ndashboard = ['f12']\n").unwrap();
    screen.wait_for("F12 engine");
    // A mistake doesn't count; what is right beside it does.
    std::fs::write(&file, "[keys]\ndashbord = ['f6']\ndashboard = ['f11']\n").unwrap();
    screen.wait_for("there is no such setting");
    screen.send("\x1b[23~"); // F11
    screen.wait_for("step phases");
    screen.quit();
}

#[test]
fn suspending_gives_the_shell_a_sane_terminal_and_comes_back() {
    let Some(mut screen) = Start::script("calm").in_a_shell() else {
        return;
    };
    screen.wait_for("ready");
    screen.send("kept text");
    screen.wait_for("│kept text");
    screen.send("\x1a");
    screen.wait_for_the_shell("kept text");
    screen.send("echo al''ive\r");
    screen.wait_for("alive");
    screen.send("fg\r");
    screen.wait_for("│kept text");
    screen.send("\x03");
    screen.wait("the draft is cleared", |text| !text.contains("│kept text"));
    screen.send("\x04");
    screen.wait("the shell is back", |text| {
        text.contains("shell$") && !text.contains("to 1")
    });
    screen.send("exit\r");
    screen.exit_code();
}

#[test]
fn a_job_that_ran_in_the_background_comes_to_the_front_again() {
    let Some(mut screen) = Start::script("calm").in_a_shell() else {
        return;
    };
    screen.wait_for("ready");
    screen.send("kept text");
    screen.wait_for("│kept text");
    screen.send("\x1a");
    screen.wait("the shell's screen is back", |text| {
        text.contains("shell$") && !text.contains("kept text")
    });
    // The program runs on behind the shell, which tells it nothing when it brings it back.
    screen.send("bg\r");
    screen.send("echo al''ive\r");
    screen.wait_for("alive");
    screen.send("fg\r");
    screen.wait_for("│kept text");
    screen.send("\x03");
    screen.wait("the draft is cleared", |text| !text.contains("│kept text"));
    screen.send("\x04");
    screen.wait("the shell is back", |text| {
        text.contains("shell$") && !text.contains("to 1")
    });
    screen.send("exit\r");
    screen.exit_code();
}

#[test]
fn an_idle_program_writes_nothing() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.settle();
    let before = screen.whole_output().len();
    // Not a wait for something to happen, but for nothing to: the one place where time has to pass.
    screen.observe(Duration::from_millis(700));
    assert_eq!(screen.whole_output().len(), before);
    screen.quit();
}

/// Without what tells of other terminals around the test's.
fn plain_surroundings(start: Start) -> Start {
    let names = [
        "TMUX",
        "STY",
        "SSH_TTY",
        "SSH_CONNECTION",
        "SSH_CLIENT",
        "DISPLAY",
        "WAYLAND_DISPLAY",
    ];
    names
        .into_iter()
        .fold(start, |start, name| start.environment(name, ""))
}

#[test]
fn a_block_of_code_is_copied_by_the_terminals_own_sequence() {
    let mut screen = plain_surroundings(Start::script("calm")).open();
    screen.wait_for("ready");
    screen.send("some code\r");
    screen.wait_for("needle.");
    screen.send("\x1by"); // Alt-y
    screen.wait_for("copy code 1 to 1");
    screen.send("1");
    if cfg!(not(target_os = "macos")) {
        screen.wait_for("code 1: 6 bytes sent to the terminal's clipboard by OSC 52");
    }
    screen.wait_for_bytes("\x1b]52;c;bHMgLWwK\x1b\\");
    screen.quit();
    screen.assert_restored();
}

#[test]
fn within_tmux_a_copy_is_sent_to_it_and_marked_to_be_handed_on() {
    let start = plain_surroundings(Start::script("calm")).environment("TMUX", "/tmp/tmux-0/default,1,0");
    let mut screen = start.open();
    screen.wait_for("ready");
    screen.send("some code\r");
    screen.wait_for("needle.");
    screen.send("\x1by1"); // Alt-y
    screen.wait_for_bytes("\x1b]52;c;bHMgLWwK\x1b\\\x1bPtmux;\x1b\x1b]52;c;bHMgLWwK\x07\x1b\\");
    screen.quit();
}

#[test]
fn a_search_finds_counts_and_ends() {
    let mut screen = Start::script("calm").open();
    screen.wait_for("ready");
    screen.send("some code\r");
    screen.wait_for("needle.");
    screen.send("\x06"); // ^F
    screen.wait_for("search in 1 some code");
    screen.send("LOOK");
    screen.wait_for("not found");
    screen.send("\x7f\x7f\x7f\x7fls");
    screen.wait_for("search: 1 of 1");
    screen.send("\r");
    screen.wait_for("reads 1 some code: ls 1 of 1");
    screen.send("\x1b");
    screen.wait_for("y copies, / searches");
    screen.send("i");
    screen.wait_for("to 1 some code");
    screen.quit();
}

#[test]
fn code_gets_its_colors_by_itself() {
    let mut screen = Start::script("calm").environment("NO_COLOR", "").open();
    screen.wait_for("ready");
    screen.send("some code\r");
    screen.wait_for("needle.");
    // `ls` is a command's name, which is blue.
    screen.wait_for_bytes("\x1b[38;5;4;49mls");
    screen.quit();
}
