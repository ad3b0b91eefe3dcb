//! The terminal's state while the interface is up, and its restoration on every way out.
//!
//! While up: raw mode, the alternate screen, marked pastes, keys told apart where the terminal can. The screen is
//! written through a descriptor of our own; what anything else writes to standard output or error goes to the log file.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use crossterm::event::{
    DisableBracketedPaste, EnableBracketedPaste, KeyboardEnhancementFlags, PopKeyboardEnhancementFlags,
    PushKeyboardEnhancementFlags,
};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{self, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, execute, queue};

use crate::ui::canvas::Target;
use crate::ui::mouse;

/// What the guard and the panic hook share.
#[derive(Debug)]
struct Shared {
    tty: File,
    /// Where standard output and error went before; none for one that isn't the terminal.
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    log: Option<File>,
    up: AtomicBool,
    /// Whether the terminal's first screen is used, of lines that stay.
    lines: AtomicBool,
    owner: ThreadId,
    /// The first panic of another thread.
    background: Mutex<Option<String>>,
}

impl Shared {
    fn enter(&self) -> io::Result<()> {
        terminal::enable_raw_mode()?;
        self.up.store(true, Ordering::SeqCst);
        let mut tty = &self.tty;
        // A terminal that can't tell keys apart ignores the flags; asking it first would wait for an answer that many
        // never give. The flags belong to the alternate screen, so they go up after it and down before it.
        if !self.lines.load(Ordering::SeqCst) {
            execute!(tty, EnterAlternateScreen)?;
        }
        execute!(
            tty,
            EnableBracketedPaste,
            PushKeyboardEnhancementFlags(KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES),
            cursor::Hide
        )?;
        if let Some(log) = &self.log {
            rustix::stdio::dup2_stdout(log)?;
            if self.stderr.is_some() {
                rustix::stdio::dup2_stderr(log)?;
            }
        }
        Ok(())
    }

    /// Undoes [`Shared::enter`], once. Errors are passed over: there may be no terminal any more, and every step counts.
    fn leave(&self) {
        if !self.up.swap(false, Ordering::SeqCst) {
            return;
        }
        // In one piece: nothing may come between, and the program may be gone right after.
        let mut bytes = Vec::new();
        bytes.extend_from_slice(mouse::OFF);
        let lines = self.lines.load(Ordering::SeqCst);
        if !lines {
            let _ = queue!(bytes, EndSynchronizedUpdate);
        }
        let _ = queue!(
            bytes,
            PopKeyboardEnhancementFlags,
            DisableBracketedPaste,
            SetAttribute(Attribute::Reset),
            cursor::Show,
            // Where there is no second screen, what follows goes below the last frame.
            cursor::MoveTo(0, u16::MAX - 1),
            Print("\r\n"),
        );
        if !lines {
            let _ = queue!(bytes, LeaveAlternateScreen);
        }
        let _ = (&self.tty).write_all(&bytes);
        let _ = terminal::disable_raw_mode();
        if self.log.is_some() {
            let _ = rustix::stdio::dup2_stdout(&self.stdout);
            if let Some(stderr) = &self.stderr {
                let _ = rustix::stdio::dup2_stderr(stderr);
            }
        }
    }
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send>;

/// Holds the terminal; gives it back when dropped, and when this thread panics.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
}

impl Guard {
    /// Takes the terminal that is standard input and output. What others write goes to the end of `log_file`; if that
    /// can't be opened, to nowhere.
    pub fn enter(log_file: &Path) -> io::Result<Self> {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        let stderr = io::stderr();
        let stderr = if stderr.is_terminal() {
            Some(stderr.as_fd().try_clone_to_owned()?)
        } else {
            None
        };
        let append = |path: &Path| OpenOptions::new().create(true).append(true).open(path);
        let log = append(log_file).or_else(|_| append(Path::new("/dev/null"))).ok();
        let shared = Arc::new(Shared {
            tty: File::from(stdout.try_clone()?),
            stdout,
            stderr,
            log,
            up: AtomicBool::new(false),
            lines: AtomicBool::new(false),
            owner: std::thread::current().id(),
            background: Mutex::new(None),
        });
        // The styles know NO_COLOR; here it would take away what a flag asks for, and bold with it.
        crossterm::style::force_color_output(true);
        let guard = Self {
            shared: shared.clone(),
        };
        let before: Hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if crate::text::panics::is_caught() {
                return;
            }
            if std::thread::current().id() == shared.owner {
                shared.leave();
            } else if shared.up.load(Ordering::SeqCst) {
                let thread = std::thread::current();
                let text = format!(
                    "the thread {:?} panicked: {info}",
                    thread.name().unwrap_or("unnamed")
                );
                tracing::error!("{text}");
                shared
                    .background
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(text);
            }
            before(info);
        }));
        guard.shared.enter()?;
        Ok(guard)
    }

    /// Gives the terminal back until [`Guard::resume`].
    pub fn suspend(&self) {
        self.shared.leave();
    }

    /// Takes the terminal again.
    pub fn resume(&self) -> io::Result<()> {
        self.shared.enter()
    }

    /// Where the screen is written.
    pub fn tty(&self) -> Tty {
        Tty(self.shared.clone())
    }

    /// The first panic of another thread since the terminal was taken, in words.
    pub fn background_panic(&self) -> Option<String> {
        self.shared
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

/// Where frames go: the terminal, while it is ours.
#[derive(Debug)]
pub struct Tty(Arc<Shared>);

impl Target for Tty {
    fn size(&self) -> io::Result<(u16, u16)> {
        let size = rustix::termios::tcgetwinsize(&self.0.tty)?;
        Ok((size.ws_col, size.ws_row))
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.0.up.load(Ordering::SeqCst) {
            (&self.0.tty).write_all(frame)
        } else {
            Ok(())
        }
    }

    fn show_lines(&mut self, lines: bool) -> io::Result<()> {
        if self.0.lines.swap(lines, Ordering::SeqCst) == lines || !self.0.up.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        // Each screen has keyboard flags of its own.
        queue!(bytes, PopKeyboardEnhancementFlags)?;
        if lines {
            queue!(bytes, EndSynchronizedUpdate, LeaveAlternateScreen)?;
        } else {
            queue!(bytes, EnterAlternateScreen)?;
        }
        let flags = KeyboardEnhancementFlags::DISAMBIGUATE_ESCAPE_CODES;
        queue!(bytes, PushKeyboardEnhancementFlags(flags))?;
        (&self.0.tty).write_all(&bytes)
    }
}

/// Stops this program's processes as ^Z does, and comes back when they go on. Where no shell could wake them, that is
/// at once.
pub fn stop() -> io::Result<()> {
    Ok(rustix::process::kill_current_process_group(
        rustix::process::Signal::TSTP,
    )?)
}

/// Whether the terminal listens to this program, and not to the shell or another job.
pub fn is_foreground() -> bool {
    // Without an answer there is nobody to disturb.
    rustix::termios::tcgetpgrp(io::stdin()).map_or(true, |group| group == rustix::process::getpgrp())
}
