//! The loop: keys, the engine's events and state, the writer's reports go in; frames come out.
//!
//! One thread, nothing shared: what happens becomes an event of the conversations, their effects are carried out here,
//! and at most one frame follows, 30 a second at most, at once after a key, none where nothing changed.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::time::Duration;

use crossterm::event::Event as TerminalEvent;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::chat::{Effect, Event, NoticeKind, Report, SessionId, State, Write as Record};
use crate::engine::telemetry::StepSample;
use crate::engine::{self, RequestId};
use crate::ui::canvas::{Canvas, Target};
use crate::ui::change::Change;
use crate::ui::host::{Heard, Host};
use crate::ui::input::Reaction;
use crate::ui::reading::clipboard::{self, Through, Way};
use crate::ui::reading::highlight::{Found, Highlights};
use crate::ui::session::Reload;
use crate::ui::view::View;
use crate::ui::worker::{self, Done, Job};

/// The time between two frames that no key asked for.
pub const FRAME: Duration = Duration::from_millis(34);
/// The signals that a terminal's keys send to all programs in front: SIGINT and SIGQUIT.
const INTERRUPTS: [i32; 2] = [2, 3];
/// The most events of the engine that are taken before keys and frames get their turn again.
const BATCH: usize = 256;

/// Where keys, pastes and resizes come from.
pub trait Input {
    /// The next one; none when the terminal is gone. May be dropped and asked again.
    fn next(&mut self) -> impl Future<Output = Option<io::Result<TerminalEvent>>>;
}

impl Input for crossterm::event::EventStream {
    async fn next(&mut self) -> Option<io::Result<TerminalEvent>> {
        futures_util::StreamExt::next(self).await
    }
}

/// What the system tells the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// To end: the signal's number.
    End(i32),
    /// It runs again after it was stopped.
    Continued,
}

/// Why the loop gave the control back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The person left.
    Quit,
    /// A signal, by its number, ended the program.
    Signal(i32),
    /// The person wants the shell for a while.
    Suspend,
    /// The person wants the draft in another program: [`App::draft`], [`App::take_edited`].
    Edit,
    /// The person wants the settings file there: [`View::config_file`], [`App::take_edited_config`].
    EditConfig,
    /// The program runs again after it was stopped.
    Continued,
}

/// Time, as the loop reads it: tests bring their own.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    wall: fn() -> Timestamp,
}

impl Clock {
    /// A clock that starts now and tells the time of day by `wall`.
    pub fn new(wall: fn() -> Timestamp) -> Self {
        Self {
            start: Instant::now(),
            wall,
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

/// The program's state while the interface runs.
pub struct App {
    pub(super) state: State,
    pub(super) view: View,
    /// The engine, and how another one comes.
    pub(super) host: Host,
    /// A change of the model that is going on.
    pub(super) change: Option<Change>,
    /// The most bytes of the prompt cache that were seen to be on their way to disk.
    pub(super) pending: u64,
    clock: Clock,
    signals: mpsc::UnboundedReceiver<Signal>,
    reports: mpsc::UnboundedReceiver<Report>,
    /// None where settings are not read anew.
    reloads: Option<mpsc::UnboundedReceiver<Reload>>,
    write: Box<dyn FnMut(Record)>,
    /// None where nobody works beside the loop.
    worker: Option<Worker>,
    samples: Vec<StepSample>,
    last_frame: Option<Instant>,
    pub(super) dirty: bool,
    urgent: bool,
    repaint: bool,
    bell: bool,
    quit: bool,
    /// What the person wants the terminal for.
    wanted: Option<Outcome>,
    deaf: bool,
    /// How text is copied.
    clipboard: Way,
    /// What is written to the terminal with the next frame and isn't shown.
    outgoing: Vec<u8>,
    /// What came of copies.
    copies: (mpsc::UnboundedSender<String>, mpsc::UnboundedReceiver<String>),
    /// Colors that were found for code; none where nobody looks for them.
    found: Option<mpsc::UnboundedReceiver<Found>>,
}

/// Who does what would make the loop wait.
struct Worker {
    jobs: Box<dyn FnMut(Job)>,
    done: mpsc::UnboundedReceiver<Done>,
}

/// What the loop is connected to besides the engine.
pub struct Wires {
    /// What the system says.
    pub signals: mpsc::UnboundedReceiver<Signal>,
    /// What the writer says.
    pub reports: mpsc::UnboundedReceiver<Report>,
    /// Takes what is to be kept.
    pub write: Box<dyn FnMut(Record)>,
}

impl App {
    /// Conversations on an engine, or on one that comes with the first model: [`App::begin`].
    pub fn new(state: State, view: View, host: impl Into<Host>, clock: Clock, wires: Wires) -> Self {
        Self {
            state,
            view,
            host: host.into(),
            change: None,
            pending: 0,
            clock,
            signals: wires.signals,
            reports: wires.reports,
            reloads: None,
            write: wires.write,
            worker: None,
            samples: Vec::new(),
            last_frame: None,
            dirty: true,
            urgent: true,
            repaint: false,
            bell: false,
            quit: false,
            wanted: None,
            deaf: false,
            clipboard: Way {
                terminal: Some(Through::Nothing),
                program: None,
            },
            outgoing: Vec::new(),
            copies: mpsc::unbounded_channel(),
            found: None,
        }
    }

    /// The conversations.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The conversations and the engine's place at the end.
    pub(super) fn end(self) -> (State, Host) {
        (self.state, self.host)
    }

    /// The time since the loop's start.
    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// What the screen shows beyond them.
    pub fn view(&mut self) -> &mut View {
        &mut self.view
    }

    /// Opens panes until there are `count` of them; the focus stays where it is.
    pub fn open_panes(&mut self, count: usize) {
        let (focus, missing) = (
            self.state.focused(),
            count.saturating_sub(self.state.panes().len()),
        );
        for _ in 0..missing {
            self.apply(Event::NewPane {
                session: SessionId::fresh(),
            });
        }
        self.apply(Event::Focus(focus));
    }

    /// Takes settings that are read anew while the loop runs.
    pub fn follow_settings(&mut self, reloads: mpsc::UnboundedReceiver<Reload>) {
        self.reloads = Some(reloads);
    }

    /// Has what takes time done beside the loop: `jobs` takes it, `done` tells what came of it.
    pub fn work_with(&mut self, jobs: Box<dyn FnMut(Job)>, done: mpsc::UnboundedReceiver<Done>) {
        self.worker = Some(Worker { jobs, done });
    }

    /// The focused pane's draft, to be edited elsewhere.
    pub fn draft(&self) -> &str {
        self.state.focused_pane().draft.text()
    }

    /// Takes the draft as it came back, or why it didn't.
    pub fn take_edited(&mut self, edited: Result<String, String>) {
        let reactions = self.view.take_edited(edited, &self.state);
        self.react(reactions);
    }

    /// Tells what came of the settings file in another program.
    pub fn take_edited_config(&mut self, edited: Result<(), String>) {
        let shown = worker::shown(&self.view.config_file);
        let (kind, text) = match edited {
            Ok(()) => (
                NoticeKind::Info,
                format!("{shown}: looks and keys count as they are saved, the rest from the next start on"),
            ),
            Err(why) => (NoticeKind::Error, format!("{why}; the settings are in {shown}")),
        };
        self.apply(Event::Notice { kind, text });
    }

    /// Whether ^C and its like are for another program for a while.
    pub fn leave_interrupts(&mut self, to_others: bool) {
        self.deaf = to_others;
    }

    /// Copies text this way, instead of by OSC 52 alone.
    pub fn copy_by(&mut self, way: Way) {
        self.clipboard = way;
    }

    /// Colors code, by a thread that reads it.
    ///
    /// # Errors
    ///
    /// If there can't be another thread.
    pub fn color_code(&mut self) -> io::Result<()> {
        let (sender, found) = mpsc::unbounded_channel();
        self.view.highlights = Highlights::start(move |found| sender.send(found).is_ok())?;
        self.found = Some(found);
        Ok(())
    }

    /// Has the whole screen painted at the next frame.
    pub fn repaint(&mut self) {
        self.repaint = true;
        self.dirty = true;
        self.urgent = true;
    }

    /// Runs until something wants the control. Without a canvas, nothing is drawn and no key is read.
    pub async fn run<T: Target, I: Input>(
        &mut self,
        mut canvas: Option<&mut Canvas<T>>,
        input: &mut I,
    ) -> io::Result<Outcome> {
        loop {
            self.advance();
            if self.quit {
                return Ok(Outcome::Quit);
            }
            if let Some(wanted) = self.wanted.take() {
                return Ok(wanted);
            }
            let frame = self.frame_at().filter(|_| canvas.is_some());
            let timer = self.timer_at();
            let far = || Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                biased;
                Some(signal) = self.signals.recv() => match signal {
                    Signal::End(number) if self.deaf && INTERRUPTS.contains(&number) => {}
                    Signal::End(number) => {
                        self.apply(Event::Quit);
                        return Ok(Outcome::Signal(number));
                    }
                    Signal::Continued => return Ok(Outcome::Continued),
                },
                event = input.next(), if canvas.is_some() => {
                    let Some(event) = event.transpose()? else {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone"));
                    };
                    self.on_terminal(&event);
                }
                () = sleep_until(frame.unwrap_or_else(far)), if frame.is_some() => {
                    if let Some(canvas) = canvas.as_deref_mut() {
                        self.draw(canvas)?;
                    }
                }
                heard = self.host.next() => match heard {
                    Heard::Report(report) => self.on_report(report),
                    Heard::Event(request, event) => self.on_engine(request, event),
                    Heard::Snapshot(snapshot) => self.on_snapshot(snapshot),
                },
                Some(report) = self.reports.recv() => self.on_writer(report),
                Some(done) = finished(&mut self.worker), if self.worker.is_some() => self.on_done(done),
                Some(text) = self.copies.1.recv() => self.tell(text),
                found = heard(&mut self.found), if self.found.is_some() => self.on_colors(found),
                reload = heard(&mut self.reloads), if self.reloads.is_some() => self.on_reload(reload),
                () = sleep_until(timer.unwrap_or_else(far)), if timer.is_some() => self.on_timer(),
            }
        }
    }

    fn frame_at(&self) -> Option<Instant> {
        let now = Instant::now();
        match self.last_frame {
            _ if !self.dirty => None,
            Some(last) if !self.urgent => Some(last + FRAME),
            _ => Some(now),
        }
    }

    /// The next moment at which something changes by time alone.
    fn timer_at(&self) -> Option<Instant> {
        let at = |since_start: Duration| self.clock.start + since_start;
        let left = self.state.notices().iter().map(|n| n.left((self.clock.wall)()));
        let notice = left
            .min()
            .map(|left| Instant::now() + left + Duration::from_millis(1));
        [self.view.burst.due().map(at), self.view.armed.map(at), notice]
            .into_iter()
            .flatten()
            .min()
    }

    fn on_timer(&mut self) {
        let now = self.clock.now();
        if self.view.burst.due().is_some_and(|due| due <= now) {
            let reactions = self.view.settle(&self.state);
            self.react(reactions);
            self.urgent = true;
        }
        if self.view.armed.is_some_and(|until| until <= now) {
            self.view.armed = None;
        }
        if !self.state.notices().is_empty() {
            self.apply(Event::Tick);
        }
        self.dirty = true;
    }

    /// Takes a key, a paste or a resize.
    fn on_terminal(&mut self, event: &TerminalEvent) {
        let (now, began) = (self.clock.now(), Instant::now());
        (self.dirty, self.urgent) = (true, true);
        match event {
            TerminalEvent::Key(key) => {
                for key in self.view.pressed(key) {
                    let reactions = self.view.before(&key, &self.state);
                    self.react(reactions);
                    let reactions = self.view.key(&key, &self.state, now);
                    self.react(reactions);
                }
                self.view.burst.spent(began.elapsed());
            }
            TerminalEvent::Paste(text) => {
                let reactions = self.view.settle(&self.state);
                self.react(reactions);
                let reactions = self.view.paste(text, &self.state);
                self.react(reactions);
            }
            TerminalEvent::Resize(..) => {}
            TerminalEvent::Mouse(event) => {
                let reactions = self.view.settle(&self.state);
                self.react(reactions);
                let reactions = self.view.mouse(event, &self.state);
                self.react(reactions);
            }
            TerminalEvent::FocusGained | TerminalEvent::FocusLost => {}
        }
    }

    pub(super) fn react(&mut self, reactions: Vec<Reaction>) {
        for reaction in reactions {
            match reaction {
                Reaction::Chat(event) => self.apply(event),
                Reaction::NewConversation => self.apply(Event::NewConversation {
                    session: SessionId::fresh(),
                }),
                Reaction::NewPane => self.apply(Event::NewPane {
                    session: SessionId::fresh(),
                }),
                Reaction::NewPrivatePane => self.apply(Event::NewPrivatePane {
                    session: SessionId::fresh(),
                }),
                Reaction::ForkPane(at) => self.apply(Event::ForkPane {
                    at,
                    session: SessionId::fresh(),
                }),
                Reaction::Repaint => self.repaint(),
                // A command may be carried out only once a burst of keys is over.
                Reaction::Suspend => self.wanted = Some(Outcome::Suspend),
                Reaction::EditOutside => self.wanted = Some(Outcome::Edit),
                Reaction::EditConfig => self.wanted = Some(Outcome::EditConfig),
                Reaction::Work(job) => {
                    if let Some(worker) = &mut self.worker {
                        (worker.jobs)(job);
                    }
                }
                Reaction::Copy { what, text } => self.copy(what, text),
                Reaction::Tell(text) => self.tell(text),
                Reaction::Model(wish) => self.wish(wish),
            }
        }
    }

    pub(super) fn tell(&mut self, text: String) {
        let kind = NoticeKind::Info;
        self.apply(Event::Notice { kind, text });
    }

    /// Puts a text on the clipboard; what comes of it is told, by a program once it has ended.
    fn copy(&mut self, what: String, text: String) {
        let way = self.clipboard;
        self.outgoing.extend(way.bytes(&text).unwrap_or_default());
        let tell = self.copies.0.clone();
        let told = move || {
            let outcome = way.program.map(|program| clipboard::hand_to(program, &text));
            // Nobody listens at the very end.
            let _ = tell.send(way.told(&what, text.len(), outcome));
        };
        if way.program.is_none() {
            return told();
        }
        let started = std::thread::Builder::new().name("clipboard".into()).spawn(told);
        if let Err(error) = started {
            let text = format!("the clipboard's program can't be waited for: {error}");
            self.tell(text);
        }
    }

    fn on_engine(&mut self, request: RequestId, event: engine::Event) {
        let mut next = Some((request, event));
        for _ in 0..BATCH {
            let Some((request, event)) = next else { break };
            let ends = matches!(event, engine::Event::Finish(_)) && self.state.pane_of(request).is_some();
            self.bell |= ends && self.view.bell_when_done;
            self.apply(Event::Engine { request, event });
            next = self.host.next_event();
        }
    }

    fn on_done(&mut self, done: Done) {
        let reactions = self.view.take_done(done, &self.state);
        self.react(reactions);
        (self.dirty, self.urgent) = (true, true);
    }

    fn on_writer(&mut self, report: Report) {
        // What a list shows as done was not.
        let refused = matches!(report, Report::Refused { .. });
        self.apply(Event::Writer(report));
        if refused {
            let again = self.view.list_again();
            self.react(again);
        }
    }

    fn on_reload(&mut self, reload: Option<Reload>) {
        match reload {
            Some(Reload { look, wrong }) => {
                if let Some(look) = look {
                    self.view.take_look(look);
                }
                self.apply(Event::SettingsRead { wrong });
            }
            None => self.reloads = None,
        }
        self.dirty = true;
    }

    fn on_colors(&mut self, found: Option<Found>) {
        match found {
            Some(found) => {
                self.view.highlights.take(found);
                self.dirty = true;
            }
            None => self.found = None,
        }
    }

    /// Tells the conversations, and carries out what follows.
    pub(super) fn apply(&mut self, event: Event) {
        self.dirty = true;
        let mut effects: VecDeque<Effect> = self.state.handle((self.clock.wall)(), event).into();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Submit { pane, turn, request } => {
                    self.view.pane(pane).transcript.follow();
                    let event = match self.host.submit(request) {
                        Ok(request) => Event::Submitted { turn, request },
                        Err(error) => Event::SubmitFailed { turn, error },
                    };
                    effects.extend(self.state.handle((self.clock.wall)(), event));
                }
                Effect::Cancel(request) => self.host.cancel(request),
                Effect::Write(record) => (self.write)(record),
                Effect::Bell => self.bell |= self.view.bell,
                Effect::Quit => self.quit = true,
            }
        }
    }

    fn draw<T: Target>(&mut self, canvas: &mut Canvas<T>) -> io::Result<()> {
        let began = Instant::now();
        let typed = self.view.flush_typed(&self.state);
        self.react(typed);
        let wanted = self.view.wants(&self.state);
        self.react(wanted);
        self.samples.clear();
        self.host.drain_samples(&mut self.samples);
        self.view.take_samples(&self.samples);
        let repaint = std::mem::take(&mut self.repaint);
        let size = canvas.target().size()?;
        let (turned, lines) = self.view.lines(&self.state, size, repaint);
        if let Some(turned) = turned {
            canvas.target_mut().show_lines(turned)?;
        }
        if lines.is_none() && (repaint || turned.is_some()) {
            canvas.forget()?;
        }
        self.outgoing.extend(self.view.looks.bytes(repaint));
        // Before what tells of it.
        let outgoing = std::mem::take(&mut self.outgoing);
        if !outgoing.is_empty() {
            canvas.send(&outgoing)?;
        }
        match lines {
            Some(lines) => canvas.send(&lines)?,
            None => canvas.draw(|buffer| self.view.draw(buffer, &self.state))?,
        }
        if std::mem::take(&mut self.bell) {
            canvas.send(b"\x07")?;
        }
        self.view.burst.spent(began.elapsed());
        self.last_frame = Some(Instant::now());
        (self.dirty, self.urgent) = (false, false);
        Ok(())
    }
}

/// What the worker has done; for ever none without one.
async fn finished(worker: &mut Option<Worker>) -> Option<Done> {
    match worker {
        Some(worker) => worker.done.recv().await,
        None => None,
    }
}

/// What is heard next; none when nobody tells any more.
async fn heard<T>(from: &mut Option<mpsc::UnboundedReceiver<T>>) -> Option<T> {
    from.as_mut()?.recv().await
}
