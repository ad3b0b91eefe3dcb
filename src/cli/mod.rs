//! One file per subcommand; the only place, with `main`, that sees every room.

pub mod args;
pub mod bench;
pub mod chat;
pub mod completions;
pub mod config;
pub mod describe;
pub mod doctor;
pub mod known;
mod kv_config;
pub mod library;
mod log;
pub mod man;
pub mod models;
pub mod open;
pub mod outcome;
mod recommended;
pub mod replay;
pub mod run;
pub mod sessions;
pub mod settings;
mod status_line;
mod stderr;
pub mod themes;
pub mod version;
mod watch;
pub mod workload;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgMatches, CommandFactory, Parser, Subcommand};

use self::args::{EngineArgs, ModelArg};
use self::chat::ChatArgs;
use self::library::Library;
use self::outcome::{Outcome, Stdout, code_of, tell, usage};
use self::settings::Applied;
use crate::config::paths::Paths;
use crate::near::nearest;
use crate::nn::Cuda;

/// Chats with language models on this machine: several conversations side by side, which one engine answers at once.
///
/// Without a command it opens the chat in the terminal, where F1 tells the keys; where input is piped in, it answers that, as
/// `run` does. Flags may stand before a command or behind it.
#[derive(Debug, Parser)]
#[command(name = "mlx-chat", args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    model: ModelArg,

    #[command(flatten)]
    chat: ChatArgs,

    #[command(flatten)]
    engine: EngineArgs,

    /// Answers by a scripted engine, without a model: `fake:SCRIPT`, a TOML file; an empty one echoes prompts
    #[arg(long = "engine", value_name = "fake:SCRIPT")]
    scripted: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Replay(Box<replay::ReplayArgs>),
    Bench(Box<bench::BenchArgs>),
    /// Lists, fetches, describes and removes models
    Models(models::ModelsArgs),
    /// Lists, shows, searches, exports, imports and removes conversations
    Sessions(sessions::SessionsArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// The command line with all that it takes; `config` takes every flag that a setting has.
fn command() -> clap::Command {
    let command = Cli::command().version(version::LINE);
    let flags: Vec<clap::Arg> = settings::flags(&command).cloned().collect();
    command.mut_subcommand("config", |config| config.args(flags))
}

/// Runs the program on the process's arguments and gives its exit code: 0 ok, 1 failed, 2 usage, 130 interrupted.
pub fn main() -> ExitCode {
    let (arguments, matches) = match parsed(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = without_far_tips(error);
            let printed = error.print();
            if error.use_stderr() {
                return Outcome::Usage.into();
            }
            // Help and version are answers.
            let printed = printed.and_then(|()| std::io::stdout().flush());
            return ended(
                printed
                    .map(|()| ExitCode::SUCCESS)
                    .map_err(|error| Stdout::failed(error).into()),
            );
        }
    };
    ended(dispatch(&arguments, &matches))
}

/// The exit code, once what went wrong was told.
fn ended(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        let (code, told) = code_of(&error);
        if told {
            tracing::error!(error = format!("{error:#}"), "failed");
            tell(format_args!("{error:#}"));
        }
        code
    })
}

/// The arguments and what they say. Flags that stand before a subcommand are moved behind its name, where it takes them.
fn parsed(arguments: Vec<OsString>) -> Result<(Vec<OsString>, ArgMatches), clap::Error> {
    let error = match command().try_get_matches_from(&arguments) {
        Ok(matches) => return Ok((arguments, matches)),
        Err(error) => error,
    };
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return Err(error);
    };
    // The name is the first such word before which all flags have what they need.
    let is_name = |at: &usize| {
        let (before, word) = (&arguments[..*at], &arguments[*at]);
        *word == **name && command().try_get_matches_from(before).is_ok()
    };
    let Some(at) = (1..arguments.len()).find(is_name) else {
        return Err(error);
    };
    let mut moved = arguments;
    moved[1..=at].rotate_right(1);
    let matches = command().try_get_matches_from(&moved)?;
    Ok((moved, matches))
}

/// The same without a flag as a tip that is far from what was typed.
fn without_far_tips(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.trim_start_matches('-').to_owned()),
        _ => None,
    };
    let typed = text(ContextKind::InvalidArg).zip(text(ContextKind::SuggestedArg));
    if typed.is_some_and(|(typed, tip)| nearest(&typed, [tip.as_str()]).is_none()) {
        error.remove(ContextKind::SuggestedArg);
        // It is of that flag.
        error.remove(ContextKind::Usage);
    }
    error
}

fn dispatch(arguments: &[OsString], matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths = Paths::for_user()?;
    Cuda::set_up(&paths.cache.join("cuda"));
    log::start(&paths.log_file());
    let mut applied = Applied::read(arguments, matches, &paths)?;
    if applied.keeps_prompts() {
        applied.make_folder(&paths);
    }
    let opens = applied.cli.command.is_none() && std::io::stdin().is_terminal();
    if applied.counts() && !opens {
        applied.warn();
    }
    match applied.cli.command.take() {
        Some(Command::Run(args)) => run::run(&args, &paths),
        Some(Command::Replay(args)) => replay::run(&args, &paths),
        Some(Command::Bench(args)) => bench::run(&args, &paths),
        Some(Command::Models(args)) => {
            models::run(args, &paths, crate::hub::Settings::default(), &describe::describe)
        }
        Some(Command::Sessions(args)) => sessions::run(&args, &paths),
        Some(Command::Doctor(args)) => doctor::run(&args, &paths),
        Some(Command::Config(args)) => config::run(&args, &applied, &paths),
        Some(Command::Completions(args)) => completions::run(&args),
        Some(Command::Man(_)) => man::run(),
        None => terminal(applied, &paths),
    }
}

/// The terminal; or, where input is piped in, an answer to it.
fn terminal(applied: Applied, paths: &Paths) -> anyhow::Result<ExitCode> {
    if !std::io::stdin().is_terminal() {
        let cli = applied.cli;
        let args = run::RunArgs {
            model: cli.model,
            answer: cli.chat.answer,
            engine: cli.engine,
            file: Vec::new(),
            stats: false,
            json: false,
            scripted: cli.scripted,
            prompt: None,
        };
        return run::run(&args, paths);
    }
    if !std::io::stdout().is_terminal() {
        return Err(usage(
            "standard output is no terminal: `mlx-chat run PROMPT` answers there, and `mlx-chat` alone opens the terminal",
        )
        .into());
    }
    let library = Library::new(&applied.cli, paths)?;
    chat::run(applied, Arc::new(library), paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(line: &str) -> Result<String, clap::Error> {
        let words = line.split(' ').map(OsString::from).collect();
        let (arguments, _) = parsed(words)?;
        Ok(arguments.join(&OsString::from(" ")).into_string().unwrap())
    }

    #[test]
    fn flags_before_a_subcommand_are_its_own() {
        for (line, right) in [
            ("mlx-chat -m run run hi", "mlx-chat run -m run hi"),
            (
                "mlx-chat -m f --max-batch 2 --seed 3 run --stats run",
                "mlx-chat run -m f --max-batch 2 --seed 3 --stats run",
            ),
            ("mlx-chat --offline models list", "mlx-chat models --offline list"),
            ("mlx-chat run -m f hi", "mlx-chat run -m f hi"),
            ("mlx-chat -m f", "mlx-chat -m f"),
        ] {
            assert_eq!(moved(line).unwrap(), right);
        }
    }

    #[test]
    fn a_flag_that_a_subcommand_does_not_take_is_told_with_the_way_to_call_that() {
        for (line, flag, usage) in [
            ("mlx-chat -m f models list", "'-m'", "Usage: mlx-chat models"),
            ("mlx-chat --panes 2 run hi", "'--panes'", "Usage: mlx-chat run"),
        ] {
            let told = moved(line).unwrap_err().to_string();
            assert!(told.contains(flag) && told.contains(usage), "{told}");
        }
    }
}
