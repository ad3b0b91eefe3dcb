//! One file per subcommand; the only place, with `main`, that sees every room.

pub mod chat;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use crate::config::paths::Paths;
use crate::engine::fake::Fake;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    chat: chat::ChatArgs,
    /// Run on a scripted engine
    #[arg(long, hide = true, value_name = "fake:SCRIPT")]
    engine: String,
}

/// Runs the program on the process's arguments and gives its exit code: 0 ok, 1 failed, 2 usage, 130 interrupted.
pub fn main() -> ExitCode {
    open(&Cli::parse()).unwrap_or_else(|error| {
        eprintln!("mlx-chat: {error:#}");
        ExitCode::FAILURE
    })
}

fn open(cli: &Cli) -> anyhow::Result<ExitCode> {
    let script = cli.engine.strip_prefix("fake:").unwrap_or_default();
    let engine = Arc::new(Fake::from_file(Path::new(script))?);
    chat::run(&cli.chat, engine, &Paths::for_user()?)
}
