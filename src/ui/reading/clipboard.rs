//! The clipboard: where copied text goes, and how that is told. OSC 52 asks the terminal, which may be on another
//! machine, and doesn't answer; a program is used only where the screen is this machine's.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Bytes of text that are sent by OSC 52 at most: terminals take 100,000 characters, and a fourth is lost to base64.
pub const LIMIT: usize = 74_994;

/// Characters of base64 between two marks of GNU screen, which takes no long ones.
const SCREEN_PIECE: usize = 76;

/// What stands between this program and the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// Nothing.
    Nothing,
    /// tmux, which hands on what is marked for it.
    Tmux,
    /// GNU screen, which hands on what is marked, in short pieces.
    Screen,
}

/// A program that takes the clipboard's text on its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
}

/// Programs that put text on a clipboard, each with the variable that tells that its screen is there.
const PROGRAMS: [(Program, &str); 3] = [
    (
        Program {
            name: "wl-copy",
            arguments: &[],
        },
        "WAYLAND_DISPLAY",
    ),
    (
        Program {
            name: "xclip",
            arguments: &["-selection", "clipboard"],
        },
        "DISPLAY",
    ),
    (
        Program {
            name: "xsel",
            arguments: &["--clipboard", "--input"],
        },
        "DISPLAY",
    ),
];

/// How text is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// Whether the terminal is asked by OSC 52, and through what.
    pub terminal: Option<Through>,
    /// Which program is asked.
    pub program: Option<Program>,
}

impl Way {
    /// The way in these surroundings: variables of the environment, programs that there are, and whether this is macOS.
    /// Over ssh the terminal alone is asked, as a program would fill the clipboard of the wrong machine. Where both can
    /// be, both are: a tmux that was started here may be looked at from elsewhere.
    pub fn of(var: impl Fn(&str) -> Option<String>, has: impl Fn(&str) -> bool, macos: bool) -> Self {
        let set = |name: &str| var(name).is_some_and(|value| !value.is_empty());
        let term = var("TERM").unwrap_or_default();
        let through = if set("TMUX") {
            Through::Tmux
        } else if set("STY") {
            Through::Screen
        } else {
            Through::Nothing
        };
        let remote = ["SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT"].into_iter().any(set);
        let mac = Program {
            name: "pbcopy",
            arguments: &[],
        };
        let program = if remote {
            None
        } else if macos {
            has(mac.name).then_some(mac)
        } else {
            let there = |(program, screen): &&(Program, &str)| set(screen) && has(program.name);
            PROGRAMS.iter().find(there).map(|(program, _)| *program)
        };
        // The consoles of Linux and of nothing at all have no clipboard, and may show what they don't know.
        let answers = !matches!(term.as_str(), "linux" | "dumb" | "");
        Self {
            terminal: answers.then_some(through),
            program,
        }
    }

    /// The way in this process's surroundings.
    pub fn here() -> Self {
        let has = |name: &str| {
            let folders = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
        };
        let var = |name: &str| std::env::var(name).ok();
        Self::of(var, has, cfg!(target_os = "macos"))
    }

    /// What is to be written to the terminal for a text.
    pub fn bytes(&self, text: &str) -> Option<Vec<u8>> {
        let through = self.terminal.filter(|_| text.len() <= LIMIT)?;
        Some(osc52(text, through))
    }

    /// What is told of `what` once it was copied; `program` is what came of the program, where one was asked.
    pub fn told(&self, what: &str, bytes: usize, program: Option<Result<(), String>>) -> String {
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        let sent = self.terminal.is_some() && bytes <= LIMIT;
        let by = self.program.map_or("", |program| program.name);
        match program {
            Some(Ok(())) => format!("{what}: {bytes} {unit} copied with {by}"),
            failed => {
                let failed = match failed {
                    Some(Err(why)) => format!("; {by} failed: {why}"),
                    _ => String::new(),
                };
                if sent {
                    format!("{what}: {bytes} {unit} sent to the terminal's clipboard by OSC 52{failed}")
                } else if self.terminal.is_some() {
                    format!("{what} was not copied: {bytes} bytes, and OSC 52 takes {LIMIT} at most{failed}")
                } else {
                    let why = "this terminal has no clipboard, and no program for one was found";
                    let why = if failed.is_empty() { why } else { &failed[2..] };
                    format!("{what} was not copied: {why}")
                }
            }
        }
    }
}

/// Has a program take a text; waits for its end, so that this is for a thread of its own.
///
/// # Errors
///
/// In words, if the program can't be run, doesn't take the text, or says that it failed.
pub fn hand_to(program: Program, text: &str) -> Result<(), String> {
    let run = || -> io::Result<std::process::ExitStatus> {
        // What it starts to hold the text goes on after it, and must not hold our descriptors.
        let mut child = Command::new(program.name)
            .args(program.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let taken = child
            .stdin
            .take()
            .map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
        let status = child.wait()?;
        taken.map(|()| status)
    };
    match run() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// The sequence that puts a text on the terminal's clipboard.
fn osc52(text: &str, through: Through) -> Vec<u8> {
    let code = base64(text.as_bytes());
    let bytes = match through {
        Through::Nothing => format!("\x1b]52;c;{code}\x1b\\"),
        // It takes the one where `set-clipboard` is on, hands on the other where `allow-passthrough` is.
        Through::Tmux => format!("\x1b]52;c;{code}\x1b\\\x1bPtmux;\x1b\x1b]52;c;{code}\x07\x1b\\"),
        Through::Screen => {
            let whole = format!("\x1b]52;c;{code}\x07");
            let pieces = whole.as_bytes().chunks(SCREEN_PIECE);
            return pieces
                .flat_map(|piece| [b"\x1bP".as_slice(), piece, b"\x1b\\"].concat())
                .collect();
        }
    };
    bytes.into_bytes()
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at > three.len() { '=' } else { char::from(letter) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(set: &[(&str, &str)], programs: &[&str], macos: bool) -> Way {
        let var = |name: &str| {
            set.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Way::of(var, |name| programs.contains(&name), macos)
    }

    const TERM: (&str, &str) = ("TERM", "xterm-256color");
    const ALL: [&str; 4] = ["pbcopy", "wl-copy", "xclip", "xsel"];

    fn program(way: Way) -> Option<&'static str> {
        way.program.map(|program| program.name)
    }

    #[test]
    fn a_program_is_used_where_the_screen_is_this_machines() {
        assert_eq!(program(way(&[TERM], &ALL, true)), Some("pbcopy"));
        assert_eq!(
            program(way(&[TERM, ("WAYLAND_DISPLAY", "w")], &ALL, false)),
            Some("wl-copy")
        );
        assert_eq!(
            program(way(&[TERM, ("DISPLAY", ":0")], &ALL, false)),
            Some("xclip")
        );
        assert_eq!(
            program(way(&[TERM, ("DISPLAY", ":0")], &["xsel"], false)),
            Some("xsel")
        );
        assert_eq!(program(way(&[TERM, ("DISPLAY", "")], &ALL, false)), None);
        assert_eq!(program(way(&[TERM, ("DISPLAY", ":0")], &[], false)), None);
        assert_eq!(program(way(&[TERM], &ALL, false)), None);
    }

    #[test]
    fn over_ssh_the_terminal_alone_is_asked() {
        for name in ["SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT"] {
            let way = way(&[TERM, (name, "x"), ("DISPLAY", ":0")], &ALL, true);
            assert_eq!((way.terminal, way.program), (Some(Through::Nothing), None));
        }
    }

    #[test]
    fn tmux_and_screen_are_told_to_hand_it_on() {
        assert_eq!(
            way(&[TERM, ("TMUX", "/tmp/x")], &[], false).terminal,
            Some(Through::Tmux)
        );
        assert_eq!(
            way(&[TERM, ("STY", "1.x")], &[], false).terminal,
            Some(Through::Screen)
        );
        let local = way(&[TERM, ("TMUX", "x"), ("DISPLAY", ":0")], &ALL, false);
        assert_eq!(
            (local.terminal, program(local)),
            (Some(Through::Tmux), Some("xclip"))
        );
    }

    #[test]
    fn a_console_without_a_clipboard_is_not_asked() {
        for term in ["linux", "dumb"] {
            assert_eq!(way(&[("TERM", term)], &[], false), Way::default());
        }
        let none = Way::default();
        assert_eq!(none.bytes("x"), None);
        let told = none.told("the answer", 1, None);
        assert!(
            told.contains("not copied") && told.contains("no program"),
            "{told}"
        );
    }

    #[test]
    fn the_sequences_are_those_of_the_terminals() {
        assert_eq!(osc52("hi", Through::Nothing), b"\x1b]52;c;aGk=\x1b\\");
        assert_eq!(
            osc52("hi", Through::Tmux),
            b"\x1b]52;c;aGk=\x1b\\\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\"
        );
        assert_eq!(osc52("hi", Through::Screen), b"\x1bP\x1b]52;c;aGk=\x07\x1b\\");
        let long = osc52(&"x".repeat(300), Through::Screen);
        let text = String::from_utf8(long).unwrap();
        let pieces: Vec<&str> = text.split("\x1b\\").filter(|piece| !piece.is_empty()).collect();
        assert!(
            pieces.len() > 5
                && pieces
                    .iter()
                    .all(|piece| piece.starts_with("\x1bP") && piece.len() <= 78)
        );
    }

    #[test]
    fn base64_is_as_the_standard_has_it() {
        let pairs = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
            ("é\n", "w6kK"),
        ];
        for (text, code) in pairs {
            assert_eq!(base64(text.as_bytes()), code, "{text:?}");
        }
    }

    #[test]
    fn what_is_too_long_is_not_sent_and_that_is_told() {
        let way = way(&[TERM], &[], false);
        let (fits, long) = ("x".repeat(LIMIT), "x".repeat(LIMIT + 1));
        assert!(way.bytes(&fits).is_some_and(|bytes| bytes.len() < 100_010));
        assert_eq!(way.bytes(&long), None);
        let told = way.told("code 1", long.len(), None);
        assert!(
            told.contains("not copied") && told.contains("74995") && told.contains("74994"),
            "{told}"
        );
    }

    #[test]
    fn nothing_is_called_copied_that_was_only_sent() {
        let sent = way(&[TERM], &[], false);
        assert_eq!(
            sent.told("code 1", 1, None),
            "code 1: 1 byte sent to the terminal's clipboard by OSC 52"
        );
        let both = way(&[TERM, ("DISPLAY", ":0")], &ALL, false);
        assert_eq!(
            both.told("code 1", 2, Some(Ok(()))),
            "code 1: 2 bytes copied with xclip"
        );
        let failed = both.told("code 1", 2, Some(Err("no display".into())));
        assert!(
            failed.contains("sent to") && failed.ends_with("xclip failed: no display"),
            "{failed}"
        );
        let long = both.told("code 1", LIMIT + 1, Some(Err("no display".into())));
        assert!(
            long.contains("not copied") && long.ends_with("xclip failed: no display"),
            "{long}"
        );
    }

    #[test]
    fn a_program_gets_the_text_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("taken");
        let path: &'static str = Box::leak(file.display().to_string().into_boxed_str());
        let arguments: &'static [&'static str] = Box::leak(vec![path].into_boxed_slice());
        assert_eq!(
            hand_to(
                Program {
                    name: "tee",
                    arguments
                },
                "a\tb\n"
            ),
            Ok(())
        );
        assert_eq!(std::fs::read_to_string(file).unwrap(), "a\tb\n");
        let name = "false";
        assert!(hand_to(Program { name, arguments: &[] }, "x").is_err());
        let name = "there is no such program";
        assert!(hand_to(Program { name, arguments: &[] }, "x").is_err());
    }
}
