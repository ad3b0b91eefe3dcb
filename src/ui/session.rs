//! From the terminal as it was to the terminal as it was: takes it, runs the loop, keeps what is to be kept.

use std::future::Future;
use std::io::{self, Write as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use crossterm::event::{Event as TerminalEvent, EventStream};
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::chat::{Ask, EngineStatus, State, Store, Write, WriterThread};
use crate::engine::Engine;
use crate::ui::app::{App, Clock, Input, Outcome, Signal, Wires};
use crate::ui::canvas::Canvas;
use crate::ui::host::Host;
use crate::ui::keys::Keymap;
use crate::ui::models::Models;
use crate::ui::mouse::MouseMode;
use crate::ui::reading::clipboard::Way;
use crate::ui::styles::Styles;
use crate::ui::styles::theme::{Background, TERMINAL, Themes};
use crate::ui::terminal::{self, Guard, Tty};
use crate::ui::view::View;
use crate::ui::worker;
use crate::ui::writing::external_editor::{self, Outside};

/// How the interface looks and listens: what may change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// Colors and characters.
    pub styles: Styles,
    /// Which key asks for what.
    pub keymap: Keymap,
    /// Whether the bell rings when something was refused.
    pub bell: bool,
    /// Whether it rings when an answer has ended.
    pub bell_when_done: bool,
    /// Whether thoughts that have ended are shown in full.
    pub thoughts: bool,
    /// The themes that there are.
    pub themes: Themes,
    /// The theme's name.
    pub theme: String,
    /// What the environment says that text stands on.
    pub background: Option<Background>,
    /// What the mouse does.
    pub mouse: MouseMode,
    /// Whether what the mouse selects is copied at once.
    pub copy_on_select: bool,
    /// Whether lines are written for a screen reader.
    pub screen_reader: bool,
    /// Whether drafts are edited by vim's keys.
    pub vim: bool,
    /// Whether characters of ambiguous width take two cells.
    pub wide: bool,
    /// Settings of `[interface]` that something else than the file decides, by their keys: a variable or a flag.
    pub decided: Vec<(&'static str, String)>,
}

impl Look {
    /// How it looks where nothing else is asked for.
    pub fn new(styles: Styles, keymap: Keymap) -> Self {
        Self {
            styles,
            keymap,
            bell: true,
            bell_when_done: false,
            thoughts: false,
            themes: Themes::default(),
            theme: TERMINAL.to_owned(),
            background: None,
            mouse: MouseMode::Off,
            copy_on_select: true,
            screen_reader: false,
            vim: false,
            wide: false,
            decided: Vec::new(),
        }
    }
}

/// What came of settings that were read anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// How it is to look from now on; none: as it does.
    pub look: Option<Look>,
    /// What is wrong with them, and doesn't count.
    pub wrong: Vec<String>,
}

/// How the interface is shown.
#[derive(Debug)]
pub struct Settings {
    /// How it looks at first.
    pub look: Look,
    /// What comes of settings that are read anew.
    pub reloads: mpsc::UnboundedReceiver<Reload>,
    /// Where everything goes that isn't the screen.
    pub log_file: PathBuf,
    /// The folder of the person's presets.
    pub presets: PathBuf,
    /// The settings file.
    pub config_file: PathBuf,
    /// What it begins with where there is none.
    pub config_template: String,
    /// How many panes there are to be at least.
    pub panes: usize,
    /// The first model, by its name.
    pub model: String,
}

/// How the interface ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The person left.
    Quit,
    /// A signal, by its number, ended it.
    Signal(i32),
}

/// What there is at the end.
pub struct Ended {
    /// How it ended.
    pub exit: Exit,
    /// The engine that was there, which nobody has closed.
    pub engine: Option<Arc<dyn Engine>>,
    /// Whether it could be used.
    pub status: EngineStatus,
    /// The model that answered last, by its name.
    pub model: Option<String>,
    /// Whether there is something on disk to resume.
    pub stored: bool,
    /// The model that was being downloaded.
    pub downloading: Option<String>,
}

/// Shows conversations, with a model that is opened meanwhile, until the person leaves. Standard input and output must be
/// a terminal, which is as it was afterwards, whatever happened. Conversations are on disk when this returns; an error says
/// what went wrong.
pub fn run(models: Arc<dyn Models>, state: State, store: Store, settings: Settings) -> anyhow::Result<Ended> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("can't start the interface's event loop")?;
    let (reports, incoming) = mpsc::unbounded_channel();
    let reader = store.reader();
    let writer = WriterThread::start(store, move |report| {
        // Nobody listens at the very end; `finish` tells then.
        let _ = reports.send(report);
    });
    let writer = Arc::new(writer.context("can't start the thread that keeps conversations")?);
    // From now on, what others write to is followed.
    for session in state.followed() {
        writer.send(Write::Ask(Ask::Open(session)));
    }
    if let Some(folder) = settings.log_file.parent() {
        // A log that can't be written is no reason not to start.
        let _ = std::fs::create_dir_all(folder);
    }
    let guard = Guard::enter(&settings.log_file).context("can't set up the terminal")?;
    let keep = writer.clone();
    let wires = |signals| Wires {
        signals,
        reports: incoming,
        write: Box::new(move |write| keep.send(write)),
    };
    let Settings {
        look,
        reloads,
        presets,
        config_file,
        config_template,
        log_file,
        panes,
        model,
    } = settings;
    let mut view = View::new(look.styles, log_file.display().to_string());
    view.take_look(look);
    view.presets = presets;
    view.config_file = config_file;
    view.config_template = config_template;
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let wires = wires(signals()?);
            let host = Host::of(Arc::clone(&models));
            let mut app = App::new(state, view, host, Clock::new(Timestamp::now), wires);
            app.begin(model);
            app.open_panes(panes);
            app.follow_settings(reloads);
            let (done, told) = mpsc::unbounded_channel();
            let jobs = worker::start(reader, models, done)?;
            // A worker that is gone has panicked, which is told at the end.
            app.work_with(Box::new(move |job| drop(jobs.send(job))), told);
            let folder = log_file.parent().map(Path::to_path_buf).unwrap_or_default();
            app.copy_by(Way::here());
            if let Err(error) = app.color_code() {
                tracing::warn!("code has no colors: there can't be another thread: {error}");
            }
            let exit = drive(&mut app, &guard, &folder).await?;
            Ok::<_, io::Error>(Left::of(exit, app))
        })
    }));
    let background = guard.background_panic();
    drop(guard);
    drop(runtime);
    if let Some(panic) = background {
        // Where standard error is closed, nobody is told.
        let _nobody_reads = writeln!(
            io::stderr(),
            "mlx-chat: {panic}\nmlx-chat: more is in {}",
            log_file.display()
        );
    }
    let saved = match Arc::into_inner(writer) {
        Some(writer) => writer.finish(),
        None => Ok(()),
    };
    let left = match ran {
        Ok(ran) => ran.context("the terminal can't be used any more")?,
        Err(_) => {
            return Err(anyhow!(
                "the interface broke down; what was written so far is kept"
            ));
        }
    };
    saved?;
    Ok(left.end())
}

/// How a person left, while the engine before may still be closing.
struct Left {
    exit: Exit,
    host: Host,
    status: EngineStatus,
    model: Option<String>,
    stored: bool,
    downloading: Option<String>,
}

impl Left {
    fn of(exit: Exit, mut app: App) -> Self {
        let model = app.view().going.current.clone();
        let (state, host) = app.end();
        Self {
            exit,
            downloading: host.fetches().map(str::to_owned),
            host,
            status: state.engine().clone(),
            model,
            stored: state.is_stored(),
        }
    }

    fn end(self) -> Ended {
        Ended {
            exit: self.exit,
            engine: self.host.end(),
            status: self.status,
            model: self.model,
            stored: self.stored,
            downloading: self.downloading,
        }
    }
}

/// How long a stop may take to stop this program; where no shell could wake it, it never does.
const STOP_TAKES: Duration = Duration::from_millis(300);

/// No keys: for a program in the background.
struct NoInput;

impl Input for NoInput {
    fn next(&mut self) -> impl Future<Output = Option<io::Result<TerminalEvent>>> {
        std::future::pending()
    }
}

/// Runs the loop, through all stays in the background and in the person's editor, for which drafts are kept in `folder`.
async fn drive(app: &mut App, guard: &Guard, folder: &Path) -> io::Result<Exit> {
    let mut canvas = Canvas::new(guard.tty())?;
    // Not every terminal has a second, empty screen.
    app.repaint();
    loop {
        let mut keys = EventStream::new();
        let outcome = app.run(Some(&mut canvas), &mut keys).await?;
        // Nothing may read keys while the terminal is the shell's.
        drop(keys);
        match outcome {
            Outcome::Quit => return Ok(Exit::Quit),
            Outcome::Signal(number) => return Ok(Exit::Signal(number)),
            Outcome::Continued => guard.suspend(),
            Outcome::Suspend => {
                guard.suspend();
                terminal::stop()?;
                // Another thread may take the signal, a moment later: only then is the terminal the shell's.
                let mut silence = NoInput;
                let stopped = app.run::<Tty, _>(None, &mut silence);
                match tokio::time::timeout(STOP_TAKES, stopped).await {
                    Ok(Ok(Outcome::Signal(number))) => return Ok(Exit::Signal(number)),
                    Ok(Ok(Outcome::Quit)) => return Ok(Exit::Quit),
                    Ok(Err(error)) => return Err(error),
                    Ok(Ok(Outcome::Suspend | Outcome::Continued | Outcome::Edit | Outcome::EditConfig))
                    | Err(_) => {}
                }
            }
            edits @ (Outcome::Edit | Outcome::EditConfig) => {
                guard.suspend();
                let file = (edits == Outcome::EditConfig)
                    .then(|| (app.view().config_file.clone(), app.view().config_template.clone()));
                let exit = edit_outside(app, folder, file).await?;
                app.leave_interrupts(false);
                if let Some(exit) = exit {
                    return Ok(exit);
                }
            }
        }
        while !terminal::is_foreground() {
            let mut silence = NoInput;
            let outcome = tokio::select! {
                outcome = app.run::<Tty, _>(None, &mut silence) => outcome?,
                // A shell that brings a running job to the front tells it nothing.
                () = brought_to_the_front() => break,
            };
            match outcome {
                Outcome::Signal(number) => return Ok(Exit::Signal(number)),
                Outcome::Quit => return Ok(Exit::Quit),
                Outcome::Suspend | Outcome::Continued | Outcome::Edit | Outcome::EditConfig => {}
            }
        }
        guard.resume()?;
        app.repaint();
    }
}

/// Lends the terminal to the person's editor with the draft, or with a file of the person's and what that begins with, while the loop goes on without a screen; how the program
/// ends, if it is to end meanwhile.
async fn edit_outside(
    app: &mut App,
    folder: &Path,
    file: Option<(PathBuf, String)>,
) -> io::Result<Option<Exit>> {
    let command = external_editor::command(|name| std::env::var(name).ok());
    let take = |app: &mut App, edited: Result<String, String>| match file {
        None => app.take_edited(edited),
        Some(_) => app.take_edited_config(edited.map(drop)),
    };
    let outside = match &file {
        None => Outside::start(&command, folder, app.draft()),
        Some((file, begins)) => Outside::open(&command, file, begins),
    };
    let mut outside = match outside {
        Ok(outside) => outside,
        Err(why) => {
            take(app, Err(why));
            return Ok(None);
        }
    };
    app.leave_interrupts(true);
    loop {
        let mut silence = NoInput;
        let outcome = tokio::select! {
            edited = outside.text() => {
                take(app, edited);
                return Ok(None);
            }
            outcome = app.run::<Tty, _>(None, &mut silence) => outcome?,
        };
        match outcome {
            Outcome::Signal(number) => return Ok(Some(Exit::Signal(number))),
            Outcome::Quit => return Ok(Some(Exit::Quit)),
            // The editor may have gone to the background with this program, and come back.
            Outcome::Suspend | Outcome::Continued | Outcome::Edit | Outcome::EditConfig => {}
        }
    }
}

/// Waits until the terminal listens to this program. Only a program in the background ever looks.
async fn brought_to_the_front() {
    let mut looks = tokio::time::interval(Duration::from_millis(250));
    while !terminal::is_foreground() {
        looks.tick().await;
    }
}

/// Gathers the signals that concern the interface.
fn signals() -> io::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let ends = [
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        // These would end the program, too, and leave the terminal as it is.
        SignalKind::alarm(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
    ];
    let kinds = ends.map(|kind| (kind, Signal::End(kind.as_raw_value())));
    let continued = SignalKind::from_raw(rustix::process::Signal::CONT.as_raw());
    for (kind, meaning) in kinds.into_iter().chain([(continued, Signal::Continued)]) {
        let (mut stream, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(meaning).is_err() {
                    break;
                }
            }
        });
    }
    Ok(receiver)
}
