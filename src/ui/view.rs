//! What the screen needs beyond the conversations: what lies on top, where one reads, caches; and the drawing of it all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Draft, Event, NoticeKind, PaneId, SessionId, State};
use crate::engine::telemetry::{Snapshot, StepSample};
use crate::ui::aloud::Aloud;
use crate::ui::dashboard::history::StepHistory;
use crate::ui::dashboard::{self, Figures};
use crate::ui::input::Reaction;
use crate::ui::keymap::{Action, Scope};
use crate::ui::keys::Keymap;
use crate::ui::loading::LoadMeter;
use crate::ui::looks::Looks;
use crate::ui::mouse::{Marked, Places};
use crate::ui::overlay::Overlay;
use crate::ui::overlay::help::{self, Help};
use crate::ui::overlay::models::Going;
use crate::ui::overlay::select;
use crate::ui::reading::highlight::Highlights;
use crate::ui::reading::reader::Ask;
use crate::ui::reading::transcript::Transcript;
use crate::ui::session::Look;
use crate::ui::styles::Styles;
use crate::ui::writing::attach::Attached;
use crate::ui::writing::burst::Burst;
use crate::ui::writing::complete::{Menu, Offer};
use crate::ui::writing::composer::ComposerView;
use crate::ui::writing::undo::Undo;
use crate::ui::writing::vim::Vim;
use crate::ui::{cells, chrome, layout, paint, pane};

/// Rows of the engine's screen that what is told may cover.
const DASHBOARD_ROWS: u16 = 2;

/// How long a second press of ^C leaves the program.
pub const ARMED: Duration = Duration::from_secs(1);

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// The conversations.
    Chat,
    /// The engine.
    Dashboard,
}

/// What is kept for a pane.
#[derive(Debug, Clone, Default)]
pub struct PaneView {
    /// The conversation that it is of, once that was drawn.
    session: Option<SessionId>,
    /// Its conversation in rows.
    pub transcript: Transcript,
    /// The prompt that was brought back: how far back it is, and the draft that it took the place of.
    pub recall: Option<(usize, Draft)>,
    /// The column that vertical motion keeps to.
    pub goal: Option<usize>,
    /// What the draft was before.
    pub undo: Undo,
}

/// Everything that the screen shows beyond the conversations.
#[derive(Debug)]
pub struct View {
    /// How it looks.
    pub styles: Styles,
    /// What is switched while the program runs.
    pub looks: Looks,
    /// What lay where on the last screen.
    pub places: Places,
    /// Text that is marked.
    pub marked: Option<Marked>,
    /// Vim's keys.
    pub vim: Vim,
    /// What was told to a screen reader.
    pub aloud: Aloud,
    /// Which key asks for what.
    pub keymap: Keymap,
    /// Whether the bell rings when something was refused.
    pub bell: bool,
    /// Whether it rings when an answer has ended.
    pub bell_when_done: bool,
    /// Whether thoughts that have ended are shown in full, in panes where nothing else was asked for.
    thoughts: bool,
    /// What fills the screen.
    pub screen: Screen,
    /// The help, while it lies on top.
    pub help: Option<Help>,
    /// What lies on top of the screen, below the help.
    pub overlay: Option<Overlay>,
    /// What the word at the caret can become.
    pub menu: Menu,
    /// The files that the draft mentions.
    pub attached: Attached,
    /// Whether single keys scroll, search and copy instead of being typed.
    pub reading: bool,
    /// The line that is being written in place of the draft.
    pub ask: Option<Ask>,
    /// Colors of code.
    pub highlights: Highlights,
    /// What is kept for each pane.
    pub panes: BTreeMap<PaneId, PaneView>,
    /// The composer.
    pub composer: ComposerView,
    /// Keys of late, to tell a paste.
    pub burst: Burst,
    /// Characters typed that the draft doesn't hold yet.
    pub typed: String,
    /// The folder of the person's presets.
    pub presets: PathBuf,
    /// The settings file.
    pub config_file: PathBuf,
    /// What it begins with where there is none.
    pub config_template: String,
    /// Until when another ^C leaves.
    pub armed: Option<Duration>,
    /// When the last key came.
    pub(super) pressed: Duration,
    /// The figures that are held still.
    pub frozen: Option<Figures>,
    /// The last screen's size.
    pub size: (u16, u16),
    /// What is going on with the engine and its models.
    pub going: Going,
    /// What was last told by what lies on top.
    word: Option<(NoticeKind, String)>,
    /// A model that was chosen while something lay on top: what comes of answers that stream is still to be asked.
    pub(super) chosen: Option<String>,
    pub(super) history: StepHistory,
    meter: LoadMeter,
    log_file: String,
}

impl PaneView {
    /// A pane in which nothing was read yet.
    fn new(thoughts: bool) -> Self {
        let mut view = Self::default();
        view.transcript.show_thoughts(thoughts);
        view
    }
}

impl View {
    /// A view of conversations from their end. `log_file` is named where something failed.
    pub fn new(styles: Styles, log_file: impl Into<String>) -> Self {
        Self {
            styles,
            looks: Looks::new(styles),
            places: Places::default(),
            marked: None,
            vim: Vim::default(),
            aloud: Aloud::default(),
            keymap: Keymap::default(),
            bell: true,
            bell_when_done: false,
            thoughts: false,
            screen: Screen::Chat,
            help: None,
            overlay: None,
            menu: Menu::default(),
            attached: Attached::default(),
            reading: false,
            ask: None,
            highlights: Highlights::default(),
            panes: BTreeMap::new(),
            composer: ComposerView::default(),
            burst: Burst::default(),
            typed: String::new(),
            presets: PathBuf::new(),
            config_file: PathBuf::new(),
            config_template: String::new(),
            armed: None,
            pressed: Duration::ZERO,
            frozen: None,
            size: (80, 24),
            going: Going::default(),
            word: None,
            chosen: None,
            history: StepHistory::default(),
            meter: LoadMeter::default(),
            log_file: log_file.into(),
        }
    }

    /// Looks and listens as the settings say.
    pub fn take_look(&mut self, look: Look) {
        let same = look.styles.lays_out_as(&self.styles) && look.wide == cells::is_wide();
        let redraws = !same || look.thoughts != self.thoughts;
        for pane in self.panes.values_mut().filter(|_| redraws) {
            pane.transcript.show_thoughts(look.thoughts);
        }
        cells::set_wide(look.wide);
        self.composer.forget();
        self.looks.take(&look);
        self.show_theme(None);
        self.keymap = look.keymap;
        (self.bell, self.bell_when_done) = (look.bell, look.bell_when_done);
        self.thoughts = look.thoughts;
    }

    /// Takes the engine's state as it is at `now`.
    pub fn take_snapshot(&mut self, snapshot: &Snapshot, now: Duration) {
        self.meter.take(snapshot, now);
    }

    /// Takes step records, oldest first.
    pub fn take_samples(&mut self, samples: &[StepSample]) {
        self.history.extend(samples);
    }

    /// The steps that are known.
    pub fn history(&self) -> &StepHistory {
        &self.history
    }

    /// Where keys are looked up.
    pub fn scope(&self) -> Scope {
        match self.screen {
            Screen::Chat if self.reading && self.ask.is_none() => Scope::Reading,
            Screen::Chat => Scope::Chat,
            Screen::Dashboard => Scope::Dashboard,
        }
    }

    /// Whose keys the last row shows: what lies on top takes all others, and most of it names its own.
    fn scope_shown(&self) -> Option<Scope> {
        match &self.overlay {
            _ if self.help.is_some() => None,
            None => Some(self.scope()),
            Some(Overlay::Sessions(_)) => Some(Scope::Sessions),
            Some(Overlay::Models(_)) => Some(Scope::Models),
            Some(Overlay::Settings(_)) => Some(Scope::Settings),
            Some(Overlay::Presets(_)) => Some(Scope::Presets),
            Some(_) => None,
        }
    }

    /// What is kept for a pane.
    pub fn pane(&mut self, id: PaneId) -> &mut PaneView {
        let thoughts = self.thoughts;
        self.panes.entry(id).or_insert_with(|| PaneView::new(thoughts))
    }

    /// Holds the engine's figures still, or lets them go on.
    pub fn toggle_freeze(&mut self, state: &State) {
        self.frozen = match self.frozen {
            Some(_) => None,
            None => Some(Figures {
                snapshot: state.snapshot().clone(),
                history: self.history.clone(),
            }),
        };
    }

    /// Has what is kept for a pane go where its conversation goes.
    fn follow_panes(&mut self, state: &State) {
        let mut before = std::mem::take(&mut self.panes);
        for (id, pane) in state.panes() {
            let its = before.iter().find(|(_, view)| view.session == Some(pane.session));
            let from = its.map(|(from, _)| *from).or_else(|| {
                let new = before.get(id).is_some_and(|view| view.session.is_none());
                new.then_some(*id)
            });
            let view = from.and_then(|from| before.remove(&from));
            let mut view = view.unwrap_or_else(|| PaneView::new(self.thoughts));
            view.session = Some(pane.session);
            self.panes.insert(*id, view);
        }
    }

    /// Draws everything into `buffer` and gives the cell of the cursor, if one is to be shown. Any size will do.
    pub fn draw(&mut self, buffer: &mut Buffer, state: &State) -> Option<Position> {
        let area = buffer.area;
        if self.size != (area.width, area.height) {
            // Rows are others now.
            self.marked = None;
        }
        self.size = (area.width, area.height);
        self.follow_panes(state);
        self.places = Places::default();
        if area.is_empty() {
            return None;
        }
        buffer.set_style(area, self.styles.base());
        if !layout::fits(area) {
            self.draw_too_small(buffer, area);
            return None;
        }
        let cursor = match self.screen {
            Screen::Chat => self.draw_chat(buffer, area, state),
            Screen::Dashboard => {
                self.draw_dashboard(buffer, area, state);
                None
            }
        };
        let cursor = match self.overlay {
            Some(_) => self.draw_on_top(buffer, area, state),
            None => cursor,
        };
        match &mut self.help {
            Some(help) => help::draw(buffer, area, help, &self.keymap, &self.styles),
            None => cursor,
        }
    }

    fn draw_too_small(&self, buffer: &mut Buffer, area: Rect) {
        let (width, height) = layout::LEAST;
        let text = format!(
            "{}x{} is too small: {width}x{height} is needed",
            area.width, area.height
        );
        for (y, row) in crate::ui::wrap::wrap_line(&text, usize::from(area.width))
            .into_iter()
            .enumerate()
        {
            paint::text(
                buffer,
                paint::row(area, y as u16),
                0,
                &text[row],
                self.styles.strong(),
            );
        }
    }

    /// What another press of a key would do.
    pub(super) fn hint(&self) -> Option<String> {
        let key = self.keymap.written(Action::Interrupt).unwrap_or("^C");
        self.armed.map(|_| format!("Press {key} once more to quit"))
    }

    fn draw_chat(&mut self, buffer: &mut Buffer, area: Rect, state: &State) -> Option<Position> {
        let styles = self.styles;
        let ids: Vec<PaneId> = state.panes().keys().copied().collect();
        let focus = ids.iter().position(|id| *id == state.focused()).unwrap_or(0);
        // The composer is as wide as the panes; with the dashboard at the side, that is known only from a first look.
        let first = layout::regions(area, ids.len(), focus, state.zoomed(), 1);
        let width = ComposerView::text_width(usize::from(first.composer.width));
        let rows = self
            .composer
            .layout(&state.focused_pane().draft, width)
            .1
            .height();
        let regions = layout::regions(area, ids.len(), focus, state.zoomed(), rows);
        if let Some(row) = regions.header {
            let shown = |id: &PaneId| regions.panes.iter().any(|(index, _)| ids[*index] == *id);
            let unread = state
                .panes()
                .iter()
                .filter(|(id, pane)| pane.unread && !shown(id));
            chrome::header(
                buffer,
                row,
                (state, &self.going),
                (ids.len() - regions.panes.len(), unread.count()),
                &self.keymap,
                &styles,
            );
        }
        for (index, rect) in &regions.panes {
            let id = ids[*index];
            let Some(content) = state.pane(id) else { continue };
            let view = self
                .panes
                .entry(id)
                .or_insert_with(|| PaneView::new(self.thoughts));
            let cx = pane::Context {
                state,
                styles: &styles,
                keymap: &self.keymap,
                meter: &self.meter,
                going: &self.going,
                log_file: &self.log_file,
            };
            let room = pane::draw(
                buffer,
                *rect,
                id,
                content,
                &mut view.transcript,
                &mut self.highlights,
                &cx,
            );
            self.places.panes.push((id, room));
        }
        self.draw_marked(buffer);
        self.places.composer = regions.composer;
        let cx = self.figures(state);
        if let Some(rect) = regions.side {
            dashboard::side(buffer, rect, &cx);
        }
        if let Some(rect) = regions.strip {
            dashboard::strip(buffer, rect, &cx);
        }
        if let Some(row) = regions.footer {
            if let Some(ask) = &self.ask {
                paint::text(buffer, row, 1, ask.asked.keys(), styles.quiet());
            } else {
                let transcript = self.panes.get(&state.focused()).map(|view| &view.transcript);
                let searching = transcript.is_some_and(|transcript| transcript.search().is_some());
                let keys = (self.scope_shown(), searching, &self.keymap);
                // What is told covers the engine's rows, as far as nothing lies on top of them.
                let above = regions.strip.map_or(0, |strip| strip.height);
                let above = match self.overlay {
                    Some(_) => above.min(select::rows_below(area).saturating_sub(1)),
                    None => above,
                };
                let on_top = self.keys_on_top().filter(|_| self.help.is_none());
                let told = (self.hint(), on_top.filter(|_| area.width < chrome::WITH_HELP));
                chrome::footer(buffer, (row, above), state, keys, told, &styles);
            }
        }
        let mode = self.looks.vim.now().then(|| self.vim.shown());
        let cursor = self.composer.draw(
            buffer,
            regions.composer,
            state,
            (self.attached.seen(), mode.as_deref()),
            &self.keymap,
            &styles,
        );
        let offers = self.offers(&state.focused_pane().draft);
        if !offers.is_empty() {
            self.menu.draw(buffer, regions.composer, &offers, &styles);
        }
        if self.reading || self.ask.is_some() {
            return self.draw_reading(buffer, regions.composer, state);
        }
        cursor
    }

    /// What has to be done before a frame: what waited for its turn, and what has to be found out for what is shown.
    pub fn wants(&mut self, state: &State) -> Vec<Reaction> {
        let mut out = self.go_on_choosing(state);
        out.extend(self.sees(state));
        // What a window tells is in the list of messages, too.
        let word = self.overlay.as_ref().and_then(Overlay::word);
        if word != self.word {
            self.word.clone_from(&word);
            out.extend(word.map(|(kind, text)| Reaction::Chat(Event::Told { kind, text })));
        }
        if self.writes() {
            let jobs = self.attached.wants(&state.focused_pane().draft, &self.presets);
            out.extend(jobs.into_iter().map(Reaction::Work));
        }
        out
    }

    /// The panes of the last screen in which something ended that was not seen yet.
    fn sees(&self, state: &State) -> Option<Reaction> {
        let covered = self.overlay.is_some() || self.help.is_some() || *self.looks.screen_reader.now();
        let unread = |id: &PaneId| state.pane(*id).is_some_and(|pane| pane.unread);
        let shown = self.places.panes.iter().map(|(id, _)| *id);
        let seen: Vec<PaneId> = shown.filter(|id| !covered && unread(id)).collect();
        (!seen.is_empty()).then_some(Reaction::Chat(Event::Seen(seen)))
    }

    /// What the word at the draft's caret can become, where that is shown.
    pub(super) fn offers(&mut self, draft: &Draft) -> Vec<Offer> {
        if self.writes() {
            self.menu.offers(draft, &self.attached)
        } else {
            Vec::new()
        }
    }

    fn draw_dashboard(&self, buffer: &mut Buffer, area: Rect, state: &State) {
        let body = Rect {
            height: area.height - 1,
            ..area
        };
        dashboard::full(buffer, body, &self.figures(state));
        let foot = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        let keys = (self.scope_shown(), false, &self.keymap);
        chrome::footer(
            buffer,
            (foot, DASHBOARD_ROWS),
            state,
            keys,
            (
                self.hint(),
                self.keys_on_top().filter(|_| area.width < chrome::WITH_HELP),
            ),
            &self.styles,
        );
    }

    fn figures<'a>(&'a self, state: &'a State) -> dashboard::Context<'a> {
        let (snapshot, history) = match &self.frozen {
            Some(figures) => (&figures.snapshot, &figures.history),
            None => (state.snapshot(), &self.history),
        };
        dashboard::Context {
            snapshot,
            history,
            state,
            styles: &self.styles,
            frozen: self.frozen.is_some(),
        }
    }

    /// Columns of the composer's rows on the last screen.
    pub fn composer_width(&self) -> usize {
        let area = Rect::new(0, 0, self.size.0, self.size.1);
        let composer = layout::regions(area, 1, 0, false, 1).composer;
        ComposerView::text_width(usize::from(composer.width))
    }
}

/// The whole screen as text, a line a row, for reports and tests.
pub fn to_text(buffer: &Buffer) -> String {
    let mut out = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut line = String::new();
        let mut x = buffer.area.left();
        while x < buffer.area.right() {
            let symbol = buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
            line.push_str(symbol);
            x += cells::width(symbol).max(1) as u16;
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
