//! Exit codes, and errors that carry one.

use std::process::ExitCode;

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

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Failed => 1,
            Outcome::Usage => 2,
            Outcome::Interrupted => 130,
        })
    }
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

/// The code for an error, and whether anything is to be said: a closed pipe ends the program quietly.
pub fn code_of(error: &anyhow::Error) -> (ExitCode, bool) {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return (ExitCode::SUCCESS, false);
    }
    match error.downcast_ref::<Fault>() {
        Some(fault) => (fault.outcome.into(), true),
        None => (Outcome::Failed.into(), true),
    }
}
