//! One message per failure: what was wrong, with which value, what to do.

use std::fmt;

/// Why the build can't go on, written for the person who has to act on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

/// What every step of the build gives.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The message folded into one line: cargo's `cargo::error=` takes no more.
    pub fn one_line(&self) -> String {
        let mut line = String::with_capacity(self.0.len());
        for part in self.0.lines().map(str::trim).filter(|p| !p.is_empty()) {
            if !line.is_empty() {
                line.push_str(" | ");
            }
            line.push_str(part);
        }
        line
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A message about a file operation, with the disk named when it is full.
pub fn io_failure(doing: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
    let advice = match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "; the disk is full: free some space, or set MLX_CHAT_CACHE_DIR to a folder on a larger disk"
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            "; set MLX_CHAT_CACHE_DIR to a folder that you may write to"
        }
        _ => "",
    };
    Failure::new(format!("could not {doing} {}: {error}{advice}", path.display()))
}
