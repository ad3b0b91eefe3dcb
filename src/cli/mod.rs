//! One file per subcommand; the only place, with `main`, that sees every room.

pub mod chat;
pub mod models;

use std::process::ExitCode;

/// Runs the program on the process's arguments and gives its exit code: 0 ok, 1 failed, 2 usage, 130 interrupted.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
