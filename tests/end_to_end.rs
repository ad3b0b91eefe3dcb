//! The real program with the real model: in a pseudo-terminal, and in a pipe.
#![cfg(unix)]

#[path = "end_to_end/going_on.rs"]
mod going_on;
#[cfg(target_os = "linux")]
#[path = "end_to_end/memory.rs"]
mod memory;
#[allow(dead_code, reason = "what other tests of the program want, too")]
#[path = "cli/program.rs"]
mod program;
#[allow(
    dead_code,
    reason = "the harness serves the tests on the scripted engine, too"
)]
#[path = "terminal/screen.rs"]
mod screen;
mod support;

use std::io::Write;
use std::process::{Command, Stdio};

use screen::Start;

/// The numbers of `hit … (SERVED of ASKED tokens)` on the dashboard.
fn served(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.contains("│hit") || line.contains("hit "))?;
    let (_, after) = line.split_once('(')?;
    after.split_whitespace().next()?.parse().ok()
}

#[test]
fn two_panes_talk_to_the_real_model_on_one_engine() {
    let model = support::default_model();
    let mut screen = Start::model(&model)
        .argument("--max-tokens")
        .argument("6000")
        .open();
    screen.wait_for("ready");
    screen.send("\x1bOR"); // F3: to all panes
    screen.wait_for("to all 2 panes");
    screen.send("What is the capital of France?\r");
    screen.wait("both panes answer", |text| text.matches("Paris").count() >= 2);
    screen.wait("both rows have left", |text| text.contains("0 run"));
    // Answers so long that they can't be over before the screen has been looked at.
    screen.send("Tell me a very long story about the sea.\r");
    screen.wait("both rows decode in one batch", |text| {
        text.contains("2 run") && text.matches("decode").count() >= 2
    });
    screen.send("\x1bOR");
    screen.wait_for("F3 broadcast");
    screen.send("\x1b"); // stops the focused pane's row
    screen.wait_for("stopped");
    screen.wait("the other follow-up decodes alone", |text| {
        text.contains("1 run") && text.contains("decode")
    });
    screen.send("\x1bOQ"); // F2: the engine
    screen.wait("the follow-up was served from the prompt cache", |text| {
        served(text).is_some_and(|tokens| tokens > 0)
    });
    screen.resize(120, 40);
    screen.wait("the dashboard fills the new size", |text| {
        text.lines().any(|line| line.chars().count() > 100)
    });
    screen.send("\x1b");
    screen.wait_for("1 run");
    screen.send("\t"); // to the pane that still answers
    screen.send("\x1b"); // stops the row
    screen.wait("both follow-ups are stopped", |text| {
        text.matches("stopped").count() >= 2
    });
    screen.wait("its row has left", |text| text.contains("0 run"));
    screen.quit();
    screen.assert_restored();
}

#[test]
fn a_piped_question_is_answered_on_standard_output() {
    let model = support::default_model();
    let home = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(env!("CARGO_BIN_EXE_mlx-chat"))
        .args(["-m", &model.display().to_string(), "--max-tokens", "40"])
        .env("XDG_STATE_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = program.stdin.take().expect("a pipe");
    input
        .write_all(b"What is the capital of France?\n")
        .expect("it listens");
    drop(input);
    let output = program.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{:?}", output.status);
    assert!(text.contains("Paris"), "{text:?}");
    assert!(
        !text.contains('\x1b'),
        "a pipe gets no escape sequences: {text:?}"
    );
}
