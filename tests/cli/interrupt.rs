//! Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command};

use serde_json::json;

use super::model::{ids_only, with_tokenizer};
use super::program::{Program, finish, text};

/// Waits for the first bytes of output, interrupts, and reads what still comes.
fn interrupt(child: &mut Child, wait: impl Fn(&mut BufReader<ChildStdout>) -> String) -> String {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut text = wait(&mut reader);
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    text += &String::from_utf8_lossy(&rest);
    text
}

fn first_line(reader: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

#[test]
fn an_interrupted_replay_has_printed_what_there_was_and_exits_130() {
    let program = Program::new();
    let line = |id: u8| json!({"id": id, "prompt": [1], "max_tokens": 2000, "ignore_eos": true}).to_string();
    let workload = program.file("w.jsonl", (0..40).map(|id| line(id) + "\n").collect::<String>());
    let args = [
        "replay",
        &workload,
        "-m",
        &ids_only(),
        "--json",
        "--max-batch",
        "2",
    ];
    let mut child = program.command(&args).spawn().unwrap();
    let text = interrupt(&mut child, first_line);
    let output = finish(child);
    assert_eq!(output.code, 130, "{output:?}");
    assert_eq!(output.stderr, "mlx-chat: interrupted\n");
    assert!(text.starts_with("{\"event\":\"token\""));
    assert!(!text.contains("\"summary\""), "it was not interrupted, but ended");
}

#[test]
fn an_interrupted_run_keeps_the_partial_answer_and_exits_130() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let args = ["run", "-m", &model, "--max-tokens", "2000", "--json", "Hi"];
    let mut child = program.command(&args).spawn().unwrap();
    let text = interrupt(&mut child, first_line);
    let output = finish(child);
    assert_eq!((output.code, output.stderr.as_str()), (130, ""), "{output:?}");
    assert!(text.contains("\"reason\":\"cancelled\""), "{text}");
}

#[test]
fn an_interrupted_load_ends_at_once_and_exits_130() {
    let program = Program::new();
    let workload = program.file("w.jsonl", "{\"id\": 1, \"prompt\": [1]}");
    for command in [&["run", "hi"][..], &["replay", &workload], &["bench"]] {
        let model = endless(&program, command[0]);
        let args = [command, &["-m", &model]].concat();
        let child = program.command(&args).spawn().unwrap();
        // The other end is opened by who loads the model, and never sees an end.
        let pipe = Path::new(&model).join("tokenizer.json");
        let _open = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
        let sent = Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let output = finish(child);
        assert_eq!(output.code, 130, "{command:?}: {output:?}");
        assert_eq!(
            (output.stdout.as_str(), output.stderr.as_str()),
            ("", "mlx-chat: interrupted\n")
        );
    }
}

/// A model that never ends to load: its tokenizer is a pipe.
fn endless(program: &Program, name: &str) -> String {
    let folder = program.path(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    let made = Command::new("mkfifo").arg(folder.join("tokenizer.json")).status();
    assert!(made.unwrap().success());
    text(&folder)
}
