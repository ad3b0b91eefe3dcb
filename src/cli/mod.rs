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
pub mod themes;
pub mod version;
mod watch;
pub mod workload;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory, Parser, Subcommand};

use self::args::{EngineArgs, ModelArg};
use self::chat::ChatArgs;
use self::library::Library;
use self::outcome::{code_of, tell, usage};
use self::settings::Applied;
use crate::config::paths::Paths;
use crate::nn::Cuda;

/// Several conversations side by side on one batching engine.
///
/// Without a command it opens the terminal. Where input is piped in, it answers like `run`.
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

    /// Runs on a scripted engine: `fake:SCRIPT`
    #[arg(long = "engine", value_name = "fake:SCRIPT", hide = true)]
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
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let matches = match command().try_get_matches_from(&arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are answers; a closed pipe behind them is nobody's failure.
            let _closed = error.print();
            return if error.use_stderr() {
                outcome::Outcome::Usage.into()
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    match dispatch(&arguments, &matches) {
        Ok(code) => code,
        Err(error) => {
            let (code, told) = code_of(&error);
            if told {
                tracing::error!(error = format!("{error:#}"), "failed");
                tell(format_args!("{error:#}"));
            }
            code
        }
    }
}

fn dispatch(arguments: &[OsString], matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths = Paths::for_user()?;
    Cuda::set_up(&paths.cache.join("cuda"));
    log::start(&paths.log_file());
    let mut applied = Applied::read(arguments, matches, &paths)?;
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
