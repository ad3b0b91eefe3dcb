//! Runs the binary in folders that are thrown away after.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The binary with folders of its own.
pub struct Program {
    folder: TempDir,
}

/// What a run came to.
#[derive(Debug)]
pub struct Output {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A path in the thrown-away folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in the thrown-away folder; gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        text(&path)
    }

    /// The program with arguments, its folders and nothing else of this process's environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mlx-chat"));
        command.args(args).env_clear().env("HOME", self.path("home"));
        for name in ["DATA", "STATE", "CACHE", "CONFIG"] {
            command.env(format!("XDG_{name}_HOME"), self.path(&name.to_lowercase()));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end with nothing on standard input.
    pub fn run(&self, args: &[&str]) -> Output {
        finish(self.command(args).spawn().unwrap())
    }

    /// Runs it to its end with `input` on standard input.
    pub fn run_with(&self, args: &[&str], input: impl AsRef<[u8]>) -> Output {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A program that ends before it has read everything closes the pipe.
        let _closed = child.stdin.take().unwrap().write_all(input.as_ref());
        finish(child)
    }

    /// Replays lines of JSON through a file; `flags` come behind. Asserts exit 0.
    pub fn replay(&self, model: &str, lines: &[Value], flags: &[&str]) -> Replayed {
        let workload: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let path = self.file("workload.jsonl", workload);
        let args = [&["replay", &path, "-m", model, "--json"], flags].concat();
        let output = self.run(&args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        Replayed(output.json())
    }
}

impl Output {
    /// Standard output as lines of JSON.
    pub fn json(&self) -> Vec<Value> {
        let lines = self.stdout.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    /// Asserts a failure that says each of `said` in one message, without a panic.
    pub fn fails(&self, code: i32, said: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for text in said {
            assert!(self.stderr.contains(text), "{text:?} is not in {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.stderr.contains("backtrace"), "{}", self.stderr);
    }
}

/// The events of a replay.
pub struct Replayed(pub Vec<Value>);

impl Replayed {
    pub fn events<'a>(&'a self, event: &'a str, id: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.0
            .iter()
            .filter(move |line| line["event"] == event && line["id"] == *id)
    }

    /// The tokens of a request.
    pub fn tokens(&self, id: impl Into<Value>) -> Vec<u64> {
        let id = id.into();
        self.events("token", &id)
            .map(|line| line["token"].as_u64().unwrap())
            .collect()
    }

    /// The text of a request, with what was held back.
    pub fn text(&self, id: impl Into<Value>) -> String {
        let id = id.into();
        let tokens = self.events("token", &id);
        let mut text: String = tokens.map(|line| line["text"].as_str().unwrap()).collect();
        text += self.finish(id)["text"].as_str().unwrap_or_default();
        text
    }

    /// The one end of a request.
    pub fn finish(&self, id: impl Into<Value>) -> &Value {
        &self.0[self.place("finish", id)]
    }

    /// Where the one `event` of a request stands among all lines.
    pub fn place(&self, event: &str, id: impl Into<Value>) -> usize {
        let id = id.into();
        let is = |line: &Value| line["event"] == event && line["id"] == id;
        self.0
            .iter()
            .position(is)
            .unwrap_or_else(|| panic!("no {event} of {id}: {:?}", self.0))
    }

    /// The last line.
    pub fn summary(&self) -> &Value {
        let last = self.0.last().unwrap();
        assert_eq!(last["event"], "summary");
        last
    }
}

/// Waits for the end of a program and takes its output; both pipes are read at once.
pub fn finish(mut child: Child) -> Output {
    let stdout = child.stdout.take();
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stdout) = stdout {
            stdout.read_to_end(&mut bytes).unwrap();
        }
        bytes
    });
    let mut errors = Vec::new();
    stderr.read_to_end(&mut errors).unwrap();
    let stdout = reader.join().unwrap();
    let status = child.wait().unwrap();
    Output {
        code: status.code().unwrap_or(-1),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(errors).unwrap(),
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
