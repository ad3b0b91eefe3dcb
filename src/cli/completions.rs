//! `completions`: what a shell needs to complete the command line.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use clap_complete::{Shell, generate};

use super::outcome::Stdout;

/// Prints a script that completes the command line in a shell
///
/// For bash, for example: `mlx-chat completions bash > ~/.local/share/bash-completion/completions/mlx-chat`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    // The generator knows no errors: a closed pipe is met here.
    let mut script = Vec::new();
    generate(args.shell, &mut super::command(), "mlx-chat", &mut script);
    let mut script = String::from_utf8(script)?;
    if args.shell == Shell::Bash {
        // The generator takes the hyphen for that of a command below another, in one of two places.
        script = script.replace("mlx__subcmd__chat", "mlx__chat");
    }
    Stdout::lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
