//! A program in a pseudo-terminal, and the screen that its output makes. Tests wait for what the screen shows.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

/// Longer than anything takes on a busy machine; only a test that fails waits for so long.
const PATIENCE: Duration = Duration::from_secs(240);

/// How a program is started.
pub struct Start {
    words: Vec<String>,
    size: (u16, u16),
    home: Option<PathBuf>,
    environment: Vec<(String, String)>,
}

impl Start {
    /// On a script from the fixtures.
    pub fn script(name: &str) -> Self {
        Self::scripts(&[name])
    }

    /// On the first of several scripts, which can be changed for one of the others.
    pub fn scripts(names: &[&str]) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/fake");
        let script = |name: &&str| fixtures.join(format!("{name}.toml")).display().to_string();
        let scripts: Vec<String> = names.iter().map(script).collect();
        Self::words(vec![
            env!("CARGO_BIN_EXE_mlx-chat").into(),
            "--engine".into(),
            format!("fake:{}", scripts.join(",")),
        ])
    }

    /// On what the program takes by itself.
    pub fn default_model() -> Self {
        Self::words(vec![env!("CARGO_BIN_EXE_mlx-chat").into()])
    }

    /// On a model.
    pub fn model(path: &Path) -> Self {
        Self::words(vec![
            env!("CARGO_BIN_EXE_mlx-chat").into(),
            "-m".into(),
            path.display().to_string(),
        ])
    }

    /// One of this file's own tests, which wants a terminal.
    pub fn this_test(name: &str) -> Self {
        let program = std::env::current_exe().unwrap().display().to_string();
        Self::words(vec![program, "--ignored".into(), "--exact".into(), name.into()])
    }

    fn words(words: Vec<String>) -> Self {
        Self {
            words,
            size: (80, 24),
            home: None,
            environment: Vec::new(),
        }
    }

    /// With a home that outlives the program.
    pub fn home(mut self, home: &Path) -> Self {
        self.home = Some(home.to_owned());
        self
    }

    pub fn argument(mut self, argument: &str) -> Self {
        self.words.push(argument.into());
        self
    }

    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// On a screen of another size than 80 × 24.
    pub fn size(mut self, cols: u16, rows: u16) -> Self {
        self.size = (cols, rows);
        self
    }

    /// With files that can grow to so many KiB, and no further until [`Screen::give_room`]; a write beyond that fails as it
    /// does on a full disk.
    #[cfg(target_os = "linux")]
    pub fn limited(mut self, kib: u32) -> Self {
        let limit = format!("trap '' XFSZ; ulimit -S -f {kib}; exec \"$0\" \"$@\"");
        let bash = ["/bin/bash".to_owned(), "-c".to_owned(), limit];
        self.words = bash.into_iter().chain(self.words).collect();
        self
    }

    /// Starts the program.
    pub fn open(self) -> Screen {
        let mut command = CommandBuilder::new(&self.words[0]);
        command.args(&self.words[1..]);
        self.spawn(command)
    }

    /// Starts the program from an interactive shell with job control; none where there is no bash.
    pub fn in_a_shell(self) -> Option<Screen> {
        let bash = ["/bin/bash", "/usr/bin/bash"]
            .into_iter()
            .find(|path| Path::new(path).exists())?;
        let line: Vec<String> = self.words.iter().map(|word| format!("'{word}'")).collect();
        let mut command = CommandBuilder::new(bash);
        command.args(["--norc", "--noprofile", "-i"]);
        command.env("PS1", "shell$ ");
        let mut screen = self.spawn(command);
        screen.wait_for("shell$");
        screen.send(&format!("{}\r", line.join(" ")));
        Some(screen)
    }

    fn spawn(self, mut command: CommandBuilder) -> Screen {
        let temporary = self.home.is_none().then(|| tempfile::tempdir().unwrap());
        let home = self
            .home
            .clone()
            .unwrap_or_else(|| temporary.as_ref().unwrap().path().to_owned());
        for name in ["CONFIG", "DATA", "STATE", "CACHE"] {
            command.env(format!("XDG_{name}_HOME"), home.join(name.to_lowercase()));
        }
        command.env("HOME", &home);
        command.env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8");
        command.env_remove("NO_COLOR");
        command.cwd(&home);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        let (cols, rows) = self.size;
        let size = PtySize {
            rows,
            cols,
            pixel_width: 0,
            pixel_height: 0,
        };
        let pair = native_pty_system().openpty(size).unwrap();
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let seen = Arc::new((Mutex::new(Seen::new(cols, rows)), Condvar::new()));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let its = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                let count = reader.read(&mut buffer).unwrap_or(0);
                let mut seen = its.0.lock().unwrap();
                match count {
                    0 => seen.over = true,
                    count => seen.take(&buffer[..count]),
                }
                its.1.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Screen {
            master: pair.master,
            child,
            writer,
            seen,
            _home: temporary,
        }
    }
}

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    over: bool,
}

impl Seen {
    fn new(cols: u16, rows: u16) -> Self {
        let parser = vt100::Parser::new(rows.try_into().unwrap(), cols.try_into().unwrap(), 0);
        Self {
            parser,
            bytes: Vec::new(),
            over: false,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.parser.process(bytes);
        self.bytes.extend_from_slice(bytes);
    }
}

/// What a program has switched in the terminal.
#[derive(Debug, PartialEq)]
pub struct Modes {
    pub alternate: bool,
    pub paste: bool,
    pub hidden: bool,
    pub mouse: bool,
}

impl Modes {
    fn of(screen: &vt100::Screen) -> Self {
        Self {
            alternate: screen.alternate_screen(),
            paste: screen.bracketed_paste(),
            hidden: screen.hide_cursor(),
            mouse: screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None,
        }
    }
}

/// A running program and its screen.
pub struct Screen {
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    writer: Box<dyn Write + Send>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    _home: Option<tempfile::TempDir>,
}

impl Screen {
    /// What the screen shows.
    pub fn text(&self) -> String {
        self.seen.0.lock().unwrap().parser.screen().contents()
    }

    /// All that was ever written.
    pub fn whole_output(&self) -> String {
        String::from_utf8_lossy(&self.seen.0.lock().unwrap().bytes).into_owned()
    }

    pub fn bytes_contain(&self, text: &str) -> bool {
        self.whole_output().contains(text)
    }

    pub fn modes(&self) -> Modes {
        Modes::of(self.seen.0.lock().unwrap().parser.screen())
    }

    /// Waits until a shell's screen is back, without a text of ours, and in the modes that it had.
    pub fn wait_for_the_shell(&self, gone: &str) {
        self.wait_until("the shell's screen is back", |seen| {
            let screen = seen.parser.screen();
            let (text, modes) = (screen.contents(), Modes::of(screen));
            let ours = modes.alternate || modes.paste || modes.hidden || text.contains(gone);
            text.contains("shell$") && !ours
        });
    }

    /// Waits until the screen shows what is wanted.
    pub fn wait(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        self.wait_until(what, |seen| wanted(&seen.parser.screen().contents()));
    }

    /// Waits until these bytes were written.
    pub fn wait_for_bytes(&self, bytes: &str) {
        let wanted = bytes.as_bytes();
        let written = |seen: &Seen| seen.bytes.windows(wanted.len()).any(|window| window == wanted);
        self.wait_until(&format!("{bytes:?} is written"), written);
    }

    fn wait_until(&self, what: &str, wanted: impl Fn(&Seen) -> bool) {
        let until = Instant::now() + PATIENCE;
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            let text = seen.parser.screen().contents();
            if wanted(&seen) {
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !seen.over,
                "the program ended while waiting until {what}:\n{text}"
            );
            assert!(!left.is_zero(), "waited in vain until {what}:\n{text}");
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Waits until the screen shows a text.
    pub fn wait_for(&self, text: &str) {
        self.wait(&format!("{text:?} is shown"), |screen| screen.contains(text));
    }

    /// Waits until nothing was written for a moment.
    pub fn settle(&self) {
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            let before = seen.bytes.len();
            seen = self
                .seen
                .1
                .wait_timeout(seen, Duration::from_millis(300))
                .unwrap()
                .0;
            if seen.bytes.len() == before {
                return;
            }
        }
    }

    /// Watches for a while.
    pub fn observe(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut seen = self.seen.0.lock().unwrap();
        while let Some(left) = until
            .checked_duration_since(Instant::now())
            .filter(|left| !left.is_zero())
        {
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Writes keys.
    pub fn send(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    pub fn resize(&mut self, cols: u16, rows: u16) {
        {
            let mut seen = self.seen.0.lock().unwrap();
            seen.parser
                .screen_mut()
                .set_size(rows.try_into().unwrap(), cols.try_into().unwrap());
        }
        self.master
            .resize(PtySize {
                rows,
                cols,
                pixel_width: 0,
                pixel_height: 0,
            })
            .unwrap();
    }

    pub fn signal(&self, name: &str) {
        let process = self.child.process_id().unwrap().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &process])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Lets files grow again.
    #[cfg(target_os = "linux")]
    pub fn give_room(&self) {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let process = self.child.process_id().unwrap();
        let pid = Pid::from_raw(i32::try_from(process).unwrap());
        let none = Rlimit {
            current: None,
            maximum: None,
        };
        prlimit(pid, Resource::Fsize, none).unwrap();
    }

    /// Leaves as a person does, and all was well.
    pub fn quit(&mut self) {
        self.leave();
        assert_eq!(self.exit_code(), 0);
    }

    /// Leaves as a person does, whatever runs: presses ^C until the program ends.
    pub fn leave(&mut self) {
        let until = Instant::now() + PATIENCE;
        let seen = self.seen.clone();
        while !seen.0.lock().unwrap().over {
            assert!(
                Instant::now() < until,
                "the program doesn't end:\n{}",
                self.text()
            );
            // The program may end at this very moment.
            let _ = self.writer.write_all(b"\x03").and_then(|()| self.writer.flush());
            let guard = seen.0.lock().unwrap();
            let count = guard.bytes.len();
            // Until it answers, or for as long as a frame may take.
            let wait = |seen: &mut Seen| !seen.over && seen.bytes.len() == count;
            let _ = seen
                .1
                .wait_timeout_while(guard, Duration::from_millis(200), wait)
                .unwrap();
        }
    }

    /// Waits for the program's end, and for all of its output.
    pub fn exit_code(&mut self) -> u32 {
        let until = Instant::now() + PATIENCE;
        {
            let mut seen = self.seen.0.lock().unwrap();
            while !seen.over {
                let left = until.saturating_duration_since(Instant::now());
                assert!(
                    !left.is_zero(),
                    "the program doesn't end:\n{}",
                    seen.parser.screen().contents()
                );
                seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
            }
        }
        self.child.wait().unwrap().exit_code()
    }

    /// The terminal has to be as it was: no mode left on, no flag left pushed.
    pub fn assert_restored(&self) {
        let clean = Modes {
            alternate: false,
            paste: false,
            hidden: false,
            mouse: false,
        };
        assert_eq!(self.modes(), clean);
        let output = self.whole_output();
        let count = |text: &str| output.matches(text).count();
        assert_eq!(
            count("\x1b[>1u"),
            count("\x1b[<1u"),
            "keyboard flags are popped as often as pushed"
        );
        // Whenever the terminal is given back, one is closed to be sure.
        assert_eq!(
            count("\x1b[?2026h") + count("\x1b[?1049l"),
            count("\x1b[?2026l"),
            "updates are closed"
        );
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}
