//! `mlx-chat` without a subcommand: opens the terminal.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args, ValueEnum};

use anyhow::{Context, anyhow};

use super::args::{AnswerArgs, parse_switch};
use super::library::Library;
use super::open;
use super::outcome::{Outcome, leave_at_once, tell};
use super::settings::Applied;
use super::watch;
use crate::chat::store::Before;
use crate::chat::{self, EngineStatus, Origins, PaneId, Parameter, SessionId, Source, State, Store, Topic};
use crate::config::paths::Paths;
use crate::config::{self, Entry, Origin};
use crate::engine::telemetry::EngineState;
use crate::sampling::Sampling;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::models::Models;
use crate::ui::mouse::MouseMode;
use crate::ui::styles::theme::{self, Background, Themes};
use crate::ui::styles::{ColorMode, Styles};
use crate::ui::{self, Exit, Look};

/// What the terminal can be told on the command line.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    /// How many panes to open, 1 to 9; with --resume, at least so many [default: 2, or those of last time with --resume]
    #[arg(long, value_name = "N", value_parser = parse_panes, allow_negative_numbers = true)]
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

fn parse_panes(text: &str) -> Result<u8, String> {
    let count = text
        .parse()
        .ok()
        .filter(|count| (1..=PaneId::MAX).contains(count));
    count.ok_or_else(|| format!("expected a whole number from 1 to {}", PaneId::MAX))
}

/// How the interface looks and listens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Interface")]
pub struct LookArgs {
    /// Draw with ASCII characters alone
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub ascii: bool,
    /// Which colors to use; auto: what the variables NO_COLOR, COLORTERM and TERM ask for
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
    /// Colors: dark, light, contrast, contrast-light, auto (dark or light, as the terminal is), one of yours, or terminal
    #[arg(long, value_name = "NAME", default_value = theme::TERMINAL)]
    pub theme: String,
    /// What the mouse does: wheel (it scrolls), full (it clicks, selects and copies, too), off (it is the terminal's)
    #[arg(long, value_name = "MODE", default_value = "off")]
    pub mouse: MouseArg,
    /// Whether what the mouse selects is copied at once
    #[arg(long, value_name = "ON|OFF", default_value = "on", value_parser = parse_switch, action = ArgAction::Set)]
    pub copy_on_select: bool,
    /// Write lines for a screen reader instead of a screen
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub screen_reader: bool,
    /// Edit drafts by vim's keys
    #[arg(long, value_name = "ON|OFF", num_args = 0..=1, require_equals = true, default_missing_value = "on", default_value = "off", value_parser = parse_switch, action = ArgAction::Set)]
    pub vim: bool,
    /// Cells of characters whose width is ambiguous: narrow (one), wide (two, as some CJK terminals have it)
    #[arg(long, value_name = "WIDTH", default_value = "narrow")]
    pub ambiguous_width: WidthArg,
}

/// What the mouse does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MouseArg {
    /// It is the terminal's.
    Off,
    /// Its wheel scrolls.
    Wheel,
    /// It clicks, selects and copies, too.
    Full,
}

/// Cells of characters whose width is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WidthArg {
    /// One.
    Narrow,
    /// Two.
    Wide,
}

/// Which colors to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// What the environment asks for.
    Auto,
    /// All that a terminal can show.
    Truecolor,
    /// 256.
    #[value(name = "256")]
    Indexed,
    /// The terminal's own sixteen.
    #[value(name = "16")]
    Sixteen,
    /// None.
    None,
}

impl LookArgs {
    /// How the interface looks with these keys and themes.
    pub fn look(&self, keymap: Keymap, themes: Themes) -> Look {
        let color = match self.color {
            _ if self.no_color => Some(ColorMode::Off),
            ColorArg::None => Some(ColorMode::Off),
            ColorArg::Truecolor => Some(ColorMode::True),
            ColorArg::Indexed => Some(ColorMode::Indexed),
            ColorArg::Sixteen => Some(ColorMode::Sixteen),
            ColorArg::Auto => None,
        };
        let var = |name: &str| std::env::var(name).ok();
        let wide = self.ambiguous_width == WidthArg::Wide;
        // Lines and marks of our own are of ambiguous width: none of them may move what stands beside it.
        let styles = Styles::from_env(var, self.ascii || wide, color);
        Look {
            bell: self.bell,
            bell_when_done: self.bell_when_done,
            thoughts: self.thoughts,
            themes,
            theme: self.theme.clone(),
            background: var("COLORFGBG").and_then(|value| Background::from_variable(&value)),
            mouse: match self.mouse {
                MouseArg::Off => MouseMode::Off,
                MouseArg::Wheel => MouseMode::Wheel,
                MouseArg::Full => MouseMode::Full,
            },
            copy_on_select: self.copy_on_select,
            screen_reader: self.screen_reader,
            vim: self.vim,
            wide,
            ..Look::new(styles, keymap)
        }
    }
}

impl Applied {
    /// How the interface looks, and what decides that whatever its file says.
    pub fn look(&self) -> Look {
        let interface = |entry: &Entry| {
            let by = match &entry.origin {
                Origin::Variable(_) | Origin::Flag(_) => entry.origin.to_string(),
                Origin::Default | Origin::File(..) => return None,
            };
            Some((entry.setting.key.strip_prefix("interface.")?, by))
        };
        Look {
            decided: self.config.entries.iter().filter_map(interface).collect(),
            ..self.cli.chat.look.look(self.keymap.clone(), self.themes.clone())
        }
    }
}

/// Panes that are opened where nothing is said.
const PANES: u8 = 2;

impl ChatArgs {
    /// How requests of new conversations are made.
    fn settings(&self, sampling: Sampling) -> chat::Settings {
        chat::Settings {
            system: self.answer.system.clone(),
            max_tokens: self.answer.max_tokens,
            thinking: self.answer.thinking,
            sampling,
            ..chat::Settings::default()
        }
    }
}

/// Opens the terminal, in which the first model is opened, downloading it where it isn't here. Standard input and
/// output must be a terminal. Gives 0 when the person left an engine that ran, 128 + n after signal n; that the engine had
/// failed is an error. What is wrong with the settings is told on the screen, where they are read anew when their file changes.
pub fn run(applied: Applied, library: Arc<Library>, paths: &Paths) -> anyhow::Result<ExitCode> {
    let args = &applied.cli.chat;
    let (model, sampling) = library.first()?;
    let mut store = Store::open(paths);
    let before = store.claim_layout();
    let last = store.load_layout().ok().flatten();
    let mut state =
        open(args, args.settings(sampling), &mut store).with_origins(origins(&applied, sampling, paths));
    state.note(Some(Topic::Settings), applied.notes(paths));
    state.note(None, unheeded(&applied, &state));
    state.note(None, too_few(args, &applied.keymap, &state));
    if let Some(layout) = last.filter(|_| before == Before::Crashed && !args.resume) {
        state.spare_last_layout();
        state.note(None, [crashed(layout.panes.len(), &applied.keymap)]);
    }
    if before == Before::Runs {
        state.note(None, [beside(&applied.keymap)]);
    }
    let lists = applied.keymap.way(Action::Sessions);
    let least = usize::from(args.panes.unwrap_or(1));
    let shown = ui::Settings {
        look: applied.look(),
        reloads: watch::settings(paths).context("can't start the thread that watches the settings")?,
        log_file: paths.log_file(),
        presets: paths.presets(),
        config_file: paths.config_file(),
        config_template: config::template(),
        panes: least,
        model,
    };
    let ended = ui::run(Arc::clone(&library) as Arc<dyn Models>, state, store, shown)?;
    let code = match (ended.exit, &ended.status) {
        (Exit::Signal(number), _) => Ok(u8::try_from(128 + number).unwrap_or(1)),
        (Exit::Quit, EngineStatus::Failed(why)) => Err(anyhow!("the engine failed: {why}")),
        (Exit::Quit, _) => Ok(0),
    };
    let again = ended.stored.then(|| {
        let model = ended
            .model
            .as_deref()
            .map_or(String::new(), |model| library.words(model));
        match before {
            Before::Runs => format!("the conversations are kept: {lists} in mlx-chat lists them"),
            _ => format!("the conversations are kept: mlx-chat {model}--resume opens them again"),
        }
    });
    let say_goodbye = || {
        if let Some(name) = &ended.downloading {
            tell(format_args!(
                "the download of {name} was stopped; what came is kept, and the next one goes on from there"
            ));
        }
        if let Some(again) = &again {
            tell(format_args!("{again}"));
        }
    };
    if let Some(engine) = &ended.engine {
        // Everything is on disk, and nobody waits any more for what is only being loaded.
        if matches!(engine.snapshots().borrow().state, EngineState::Loading { .. }) {
            say_goodbye();
            leave_at_once(code.unwrap_or_else(|error| {
                tell(format_args!("{error:#}"));
                Outcome::Failed.code()
            }));
        }
        open::close(&**engine);
    }
    say_goodbye();
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
            false if own => Origins::MAKERS.to_owned(),
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
    let count = if flags.len() == 1 { "counts" } else { "count" };
    (!flags.is_empty()).then(|| {
        format!(
            "{} {count} for new panes: resumed ones keep their own settings{change}",
            flags.join(", ")
        )
    })
}

/// That resumed panes stay open, where fewer were asked for.
fn too_few(args: &ChatArgs, keymap: &Keymap, state: &State) -> Option<String> {
    let (open, wanted) = (state.panes().len(), usize::from(args.panes?));
    let close = keymap.way(Action::ClosePane);
    (args.resume && wanted < open).then(|| {
        format!("--panes {wanted} closes none of the {open} panes of last time: {close} closes the one that you are in")
    })
}

/// What a crash left.
fn crashed(panes: usize, keymap: &Keymap) -> String {
    let panes = match panes {
        1 => "the pane".to_owned(),
        panes => format!("the {panes} panes"),
    };
    let lists = keymap.way(Action::Sessions);
    format!(
        "mlx-chat broke off last time: started with --resume, it opens {panes} of then, drafts included; {lists} lists all \
         conversations"
    )
}

/// That another process keeps the panes.
fn beside(keymap: &Keymap) -> String {
    let lists = keymap.way(Action::Sessions);
    format!(
        "mlx-chat runs in another process, too: --resume opens the panes of that one; what is said here is kept, and {lists} \
         lists it"
    )
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
    state.note(None, notes);
    state
}
