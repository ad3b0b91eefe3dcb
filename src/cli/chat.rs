//! `mlx-chat` without a subcommand: opens the terminal.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args, ValueEnum};

use anyhow::{Context, anyhow};

use super::args::{AnswerArgs, parse_switch};
use super::open;
use super::outcome::{Outcome, leave_at_once, tell};
use super::settings::Applied;
use super::watch;
use crate::chat::{self, Origins, PaneId, Parameter, SessionId, Source, State, Store};
use crate::config::Origin;
use crate::config::paths::Paths;
use crate::engine::Engine;
use crate::engine::telemetry::EngineState;
use crate::sampling::Sampling;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::styles::{ColorMode, Styles};
use crate::ui::{self, Exit, Look};

/// What the terminal can be told on the command line.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// How many panes to open, 1 to 9 [default: 2, or those of last time with --resume]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(PaneId::MAX)))]
    pub panes: Option<u8>,
    /// Open the panes and conversations of last time
    #[arg(long)]
    pub resume: bool,
    /// How the interface looks.
    #[command(flatten)]
    pub look: LookArgs,
    /// How answers are made.
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// How the interface looks and listens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Interface")]
pub struct LookArgs {
    /// Draw with ASCII characters alone
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub ascii: bool,
    /// Which colors to use; auto: what the variables NO_COLOR and TERM ask for
    #[arg(long, value_name = "COLORS", default_value = "auto")]
    pub color: ColorArg,
    /// Use no color: short for `--color none`
    #[arg(long, conflicts_with = "color")]
    pub no_color: bool,
    /// Whether the terminal's bell rings when something was refused
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = parse_switch, action = ArgAction::Set)]
    pub bell: bool,
    /// Whether it rings, too, when an answer has ended
    #[arg(long, value_name = "ON|OFF", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub bell_when_done: bool,
    /// Whether thoughts that have ended are shown in full at first, instead of a line of each
    #[arg(long, value_name = "ON|OFF", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub thoughts: bool,
}

/// Which colors to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// What the environment asks for.
    Auto,
    /// The terminal's own sixteen.
    #[value(name = "16")]
    Sixteen,
    /// None.
    None,
}

impl LookArgs {
    /// How the interface looks with these keys.
    pub fn look(&self, keymap: Keymap) -> Look {
        let color = match self.color {
            _ if self.no_color => Some(ColorMode::Off),
            ColorArg::None => Some(ColorMode::Off),
            ColorArg::Sixteen => Some(ColorMode::Sixteen),
            ColorArg::Auto => None,
        };
        Look {
            styles: Styles::from_env(|name| std::env::var(name).ok(), self.ascii, color),
            keymap,
            bell: self.bell,
            bell_when_done: self.bell_when_done,
            thoughts: self.thoughts,
        }
    }
}

/// Panes that are opened where nothing is said.
const PANES: u8 = 2;

impl ChatArgs {
    /// How requests of new conversations are made.
    fn settings(&self, recommended: Sampling) -> anyhow::Result<chat::Settings> {
        let sampling = self.answer.sampling(recommended)?;
        Ok(chat::Settings {
            system: self.answer.system.clone(),
            max_tokens: self.answer.max_tokens,
            thinking: self.answer.thinking,
            sampling,
            ..chat::Settings::default()
        })
    }
}

/// Opens the terminal on an engine, which may still be loading, and closes the engine at the end. The model's makers
/// recommend a way of sampling. Standard input and
/// output must be a terminal. Gives 0 when the person left an engine that ran, 128 + n after signal n; that the engine had
/// failed is an error. What is wrong with the settings is told on the screen, where they are read anew when their file changes.
pub fn run(
    applied: Applied,
    engine: Arc<dyn Engine>,
    recommended: Sampling,
    paths: &Paths,
) -> anyhow::Result<ExitCode> {
    let args = &applied.cli.chat;
    let settings = args.settings(recommended)?;
    let mut store = Store::open(paths);
    let mut state = open(args, settings, &mut store).with_origins(origins(&applied, recommended, paths));
    state.note(applied.notes(paths));
    state.note(unheeded(&applied, &state));
    let least = usize::from(args.panes.unwrap_or(1));
    let shown = ui::Settings {
        look: args.look.look(applied.keymap.clone()),
        reloads: watch::settings(paths).context("can't start the thread that watches the settings")?,
        log_file: paths.log_file(),
        presets: paths.presets(),
        panes: least,
    };
    let ran = ui::run(engine.clone(), state, store, shown);
    let state = engine.snapshots().borrow().state.clone();
    let code = ran.and_then(|exit| match (exit, &state) {
        (Exit::Signal(number), _) => Ok(u8::try_from(128 + number).unwrap_or(1)),
        (Exit::Quit, EngineState::Failed(why)) => Err(anyhow!("the engine failed: {why}")),
        (Exit::Quit, _) => Ok(0),
    });
    // Everything is on disk, and nobody waits any more for what is only being loaded.
    if matches!(state, EngineState::Loading { .. }) {
        leave_at_once(code.unwrap_or_else(|error| {
            tell(format_args!("{error:#}"));
            Outcome::Failed.code()
        }));
    }
    open::close(&*engine);
    code.map(ExitCode::from)
}

/// The settings of answers, with their keys among all settings.
const ANSWERS: [(Parameter, &str); 8] = [
    (Parameter::System, "system"),
    (Parameter::Thinking, "thinking"),
    (Parameter::Temperature, "sampling.temperature"),
    (Parameter::TopP, "sampling.top_p"),
    (Parameter::TopK, "sampling.top_k"),
    (Parameter::MinP, "sampling.min_p"),
    (Parameter::Seed, "sampling.seed"),
    (Parameter::MaxTokens, "sampling.max_tokens"),
];

/// Where the settings of new panes come from.
fn origins(applied: &Applied, recommended: Sampling, paths: &Paths) -> Origins {
    let folder = format!("{}/", paths.config.display());
    let recommended = chat::Settings {
        sampling: recommended,
        ..chat::Settings::default()
    };
    let origin = |(parameter, key): (Parameter, &str)| {
        let entry = applied.config.entry(key)?;
        let said = entry.said().is_some() || matches!(entry.origin, Origin::Flag(_));
        let own = parameter.value(&recommended) != parameter.value(&chat::Settings::default());
        let text = match said {
            true => entry.origin.to_string().replace(&folder, ""),
            false if own => "the model's makers".to_owned(),
            false => return None,
        };
        Some((parameter, text))
    };
    Origins::new(ANSWERS.into_iter().filter_map(origin))
}

/// Flags that resumed panes don't heed, since each keeps the settings that its conversation had.
fn unheeded(applied: &Applied, state: &State) -> Option<String> {
    let resumed: Vec<&chat::Pane> = state
        .panes()
        .values()
        .filter(|pane| *pane.sources.of(Parameter::System) == Source::Stored)
        .collect();
    let differs = |parameter: Parameter| {
        let wanted = parameter.value(state.defaults());
        resumed
            .iter()
            .any(|pane| parameter.value(&pane.settings) != wanted)
    };
    let flag = |(parameter, key): (Parameter, &str)| match &applied.config.entry(key)?.origin {
        Origin::Flag(flag) if differs(parameter) => Some(format!("--{flag}")),
        _ => None,
    };
    let flags: Vec<String> = ANSWERS.into_iter().filter_map(flag).collect();
    let key = applied.keymap.written(Action::Settings);
    let change = key.map_or(String::new(), |key| format!("; {key} changes them"));
    (!flags.is_empty()).then(|| {
        format!(
            "{} counts for new panes: resumed ones keep their own settings{change}",
            flags.join(", ")
        )
    })
}

/// The conversations to begin with.
fn open(args: &ChatArgs, settings: chat::Settings, store: &mut Store) -> State {
    let new = |settings| {
        let more: Vec<SessionId> = (1..args.panes.unwrap_or(PANES))
            .map(|_| SessionId::fresh())
            .collect();
        State::new(settings, SessionId::fresh(), &more)
    };
    if !args.resume {
        return new(settings);
    }
    let (mut state, notes) = match store.restore() {
        Ok(Some(restored)) => {
            let fallback = SessionId::fresh();
            let state = State::resume(settings, &restored.layout, restored.conversations, fallback);
            (state, restored.notes)
        }
        Ok(None) => (new(settings), vec!["there is nothing to resume yet".into()]),
        Err(error) => (new(settings), vec![error.to_string()]),
    };
    state.note(notes);
    state
}
