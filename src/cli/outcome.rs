//! Exit codes, and errors that carry one.

use std::fmt::Display;
use std::io::{self, StdoutLock, Write};
use std::process::ExitCode;

use super::stderr::say;
use crate::hub::HubError;
use crate::text::sanitize::for_terminal;

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Something failed.
    Failed,
    /// It was called wrongly.
    Usage,
    /// It was interrupted.
    Interrupted,
}

impl Outcome {
    /// Its exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// Ends the process now, without waiting for any thread: a model that is being loaded can't be told to stop. Nothing may
/// be left to write.
pub fn leave_at_once(code: u8) -> ! {
    signal_hook::low_level::exit(i32::from(code))
}

/// An error that ends the program with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Which code.
    pub outcome: Outcome,
    /// What to tell.
    pub message: String,
}

/// A usage error.
pub fn usage(message: impl Into<String>) -> Fault {
    Fault {
        outcome: Outcome::Usage,
        message: message.into(),
    }
}

/// Ctrl-C.
pub fn interrupted() -> Fault {
    Fault {
        outcome: Outcome::Interrupted,
        message: "interrupted".into(),
    }
}

/// Standard output, whose errors say that it is.
pub struct Stdout(StdoutLock<'static>);

impl Stdout {
    /// Standard output, for this thread alone.
    pub fn lock() -> Self {
        Self(io::stdout().lock())
    }

    /// An error of standard output that says so.
    pub fn failed(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("can't write to standard output: {error}"))
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(Self::failed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(Self::failed)
    }
}

/// Tells something on standard error; what it quotes may come from a file.
pub fn tell(message: impl Display) {
    say!("mlx-chat: {}", for_terminal(&message.to_string()));
}

/// The code for an error, and whether anything is to be said: a closed pipe ends the program quietly.
pub fn code_of(error: &anyhow::Error) -> (ExitCode, bool) {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return (ExitCode::SUCCESS, false);
    }
    let outcome = match (error.downcast_ref::<Fault>(), error.downcast_ref::<HubError>()) {
        (Some(fault), _) => fault.outcome,
        (None, Some(HubError::Interrupted { .. })) => Outcome::Interrupted,
        (None, _) => Outcome::Failed,
    };
    (outcome.into(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_that_was_interrupted_exits_as_anything_else_that_was() {
        let stopped = HubError::Interrupted {
            name: "tiny".into(),
            kept: 0,
        };
        let (code, told) = code_of(&stopped.into());
        assert_eq!(code, ExitCode::from(130));
        assert!(told);
    }
}
