//! Answers to the same prompt side by side: one is chosen and kept, the other panes go back to where they were.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::{Compared, Event, Pane, PaneId, RecordId, Sampling, State, Status, Turn};
use crate::ui::cells;
use crate::ui::keymap::{Action, Motion};
use crate::ui::keys::Keymap;
use crate::ui::overlay::picker::Step;
use crate::ui::paint::{self, piece, plain};
use crate::ui::pane::{one_line, took};
use crate::ui::reading::highlight::Highlights;
use crate::ui::reading::transcript::{Note, Transcript};
use crate::ui::styles::Styles;

/// Columns of an answer at least.
const LEAST: u16 = 32;

/// From so many columns on, the last row says what becomes of the other answers.
const ROOMY: u16 = 72;

/// An answer in its column.
#[derive(Debug)]
struct Column {
    place: PaneId,
    record: RecordId,
    title: String,
    /// Whether its pane has not gone on since.
    last: bool,
    /// A pane that shows this turn alone.
    shown: Pane,
    transcript: Transcript,
}

/// An answer for who hears the comparison.
pub(in crate::ui) struct Heard<'a> {
    /// Which it is, from 1.
    pub number: usize,
    /// Of how many.
    pub of: usize,
    /// Its pane.
    pub pane: PaneId,
    /// The pane's title, after which version it is where there are several.
    pub title: &'a str,
    /// It, after its prompt.
    pub turn: &'a Turn,
    /// How it was sampled.
    pub how: String,
    /// Whether it is the selected one.
    pub selected: bool,
}

/// The comparison, while it lies on top.
#[derive(Debug, Default)]
pub struct Compare {
    columns: Vec<Column>,
    selected: usize,
    /// The first column that is shown.
    first: usize,
}

impl Compare {
    /// The answers to the focused pane's last prompt; why there is nothing to compare.
    pub(in crate::ui) fn new(state: &State, keymap: &Keymap) -> Result<Self, String> {
        let mut compare = Self::default();
        compare.follow(state);
        let (several, again) = (keymap.way(Action::Broadcast), keymap.way(Action::Regenerate));
        match compare.columns.len() {
            0 => {
                return Err(format!(
                    "there is no answer here yet: {several} sends a prompt to several panes, whose answers can be compared"
                ));
            }
            1 => {
                return Err(format!(
                    "no other answer to this pane's last prompt is open: {again} has it answered once more, {several} sends \
                     the next one to several panes"
                ));
            }
            _ => {}
        }
        let shown = state.focused_pane().turns.last().map(|turn| turn.record);
        let is_shown = |column: &Column| column.place == state.focused() && Some(column.record) == shown;
        compare.selected = compare.columns.iter().position(is_shown).unwrap_or(0);
        Ok(compare)
    }

    /// Takes the answers as they are now.
    pub(in crate::ui) fn follow(&mut self, state: &State) {
        let mut before = std::mem::take(&mut self.columns);
        for compared in state.comparison().answers {
            let same =
                |column: &Column| column.place == compared.pane && column.record == compared.turn.record;
            let transcript = match before.iter().position(same) {
                Some(at) => before.swap_remove(at).transcript,
                None => {
                    // An answer is read from its beginning.
                    let mut new = Transcript::default();
                    new.scroll(Action::Top);
                    new
                }
            };
            self.columns.push(Column::new(compared, transcript));
        }
        self.selected = self.selected.min(self.columns.len().saturating_sub(1));
    }

    /// Takes a key.
    pub(in crate::ui) fn key(&mut self, _: &KeyEvent, action: Option<Action>, state: &State) -> Vec<Step> {
        self.follow(state);
        let last = self.columns.len().saturating_sub(1);
        let scroll = match action {
            Some(Action::Stop | Action::Interrupt | Action::Compare) => return vec![Step::Close],
            Some(Action::Send) => return self.keep(),
            Some(Action::Move(Motion::Left) | Action::PreviousPane) => {
                self.selected = self.selected.checked_sub(1).unwrap_or(last);
                return Vec::new();
            }
            Some(Action::Move(Motion::Right) | Action::NextPane) => {
                self.selected = if self.selected >= last {
                    0
                } else {
                    self.selected + 1
                };
                return Vec::new();
            }
            Some(Action::Move(Motion::Up)) => Action::LineUp,
            Some(Action::Move(Motion::Down)) => Action::LineDown,
            Some(Action::Move(Motion::LineStart)) => Action::Top,
            Some(Action::Move(Motion::LineEnd)) => Action::Bottom,
            Some(action) => action,
            None => return Vec::new(),
        };
        if let Some(column) = self.columns.get_mut(self.selected) {
            column.transcript.scroll(scroll);
        }
        Vec::new()
    }

    /// Keeps what is selected.
    fn keep(&self) -> Vec<Step> {
        let Some(kept) = self.columns.get(self.selected) else {
            return vec![Step::Close];
        };
        // Who has gone on stays there.
        let asked = self.columns.iter().filter(|column| column.last);
        let mut others: Vec<PaneId> = asked.map(|column| column.place).collect();
        others.retain(|place| *place != kept.place);
        others.dedup();
        let (pane, turn) = (kept.place, kept.record);
        vec![Step::Close, Step::Tell(Event::Keep { pane, turn, others })]
    }

    /// The answers, in order.
    pub(in crate::ui) fn heard(&self) -> impl Iterator<Item = Heard<'_>> {
        let of = self.columns.len();
        let columns = self.columns.iter().enumerate();
        columns.filter_map(move |(at, column)| {
            let turn = column.shown.turns.last()?;
            Some(Heard {
                number: at + 1,
                of,
                pane: column.place,
                title: &column.title,
                turn,
                how: sampled(turn, &column.shown.settings.sampling),
                selected: at == self.selected,
            })
        })
    }

    /// What it is, and the keys that count here, in a line.
    pub(in crate::ui) fn keys(&self, keymap: &Keymap) -> String {
        let (left, right) = (Action::Move(Motion::Left), Action::Move(Motion::Right));
        let key = |action: Action| keymap.written(action).unwrap_or("-");
        format!(
            "{} answers; {} and {} select, {} keeps one, {} closes",
            self.columns.len(),
            key(left),
            key(right),
            key(Action::Send),
            key(Action::Stop)
        )
    }

    /// Draws the comparison over the whole screen.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        highlights: &mut Highlights,
        keymap: &Keymap,
        styles: &Styles,
    ) {
        paint::clear(buffer, area, styles);
        let count = self.columns.len().max(1);
        let room = usize::from(area.width / LEAST).clamp(1, count);
        self.first = self
            .first
            .min(self.selected)
            .max((self.selected + 1).saturating_sub(room))
            .min(count - room);
        let body = Rect {
            height: area.height.saturating_sub(1),
            ..area
        };
        for (at, column) in self.columns.iter_mut().enumerate().skip(self.first).take(room) {
            let place = (at - self.first) as u16;
            let each = body.width / room as u16;
            let rect = Rect {
                x: body.x + place * each,
                width: if usize::from(place) + 1 == room {
                    body.width - place * each
                } else {
                    each
                },
                ..body
            };
            column.draw(buffer, rect, at == self.selected, highlights, styles);
        }
        let key = |action: Action| keymap.written(action).unwrap_or("-").to_owned();
        let (left, right) = (Action::Move(Motion::Left), Action::Move(Motion::Right));
        let (keeps, place) = match area.width {
            ..ROOMY => (" keeps", format!(" {}/{count}", self.selected + 1)),
            _ => (
                " keeps it, the others go back",
                format!(" {} of {count}", self.selected + 1),
            ),
        };
        let foot = [
            vec![
                piece(format!(" {}", key(Action::Send)), styles.key()),
                plain(keeps),
            ],
            vec![
                piece(format!("{} {}", key(left), key(right)), styles.key()),
                plain(place),
            ],
            vec![piece(key(Action::Stop), styles.key()), plain(" closes")],
            vec![piece(
                "once it is closed, /export-comparison FILE writes it",
                styles.quiet(),
            )],
        ];
        let row = paint::row(area, area.height.saturating_sub(1));
        paint::groups(buffer, row, 2, &foot);
    }
}

/// How an answer was sampled.
fn sampled(turn: &Turn, sampling: &Sampling) -> String {
    match (turn.seed, sampling.is_greedy()) {
        (Some(seed), _) => format!("temperature {}, seed {seed}", sampling.temperature),
        (None, true) => "greedy".into(),
        (None, false) => format!("temperature {}", sampling.temperature),
    }
}

impl Column {
    fn new(compared: Compared, transcript: Transcript) -> Self {
        let (version, of) = compared.version;
        let title = one_line(&compared.title);
        let mut shown = Pane::new(compared.session, compared.settings);
        let record = compared.turn.record;
        shown.turns.push(compared.turn);
        Self {
            place: compared.pane,
            record,
            last: compared.last,
            title: match of {
                ..=1 => title,
                of => format!("{version}/{of} {title}"),
            },
            shown,
            transcript,
        }
    }

    fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        selected: bool,
        highlights: &mut Highlights,
        styles: &Styles,
    ) {
        let room = usize::from(area.width).saturating_sub(4);
        // As the pane that has the focus is marked.
        let mark = if selected { "*" } else { "" };
        let title = format!("{}{mark} {}", self.place, self.title);
        let title = cells::shorten(&title, room, styles.cut());
        let style = if selected { styles.strong() } else { styles.quiet() };
        let title = [piece(format!(" {title} "), style)];
        let inner = paint::boxed(buffer, area, &title, styles, selected);
        let sampling = self.shown.settings.sampling;
        let notes = |turn: &Turn| {
            let note = |text: String| Note {
                text,
                style: styles.quiet(),
            };
            let how = sampled(turn, &sampling);
            let ended = match &turn.status {
                Status::Submitting { .. } | Status::Streaming { .. } => Some("answering".into()),
                Status::Done { truncated, stats } => {
                    took(stats, if truncated.is_some() { "length" } else { "stop" })
                }
                Status::Stopped { stats } => stats.as_ref().and_then(|stats| took(stats, "stopped")),
                Status::Failed { message, .. } => Some(format!("failed: {}", one_line(message))),
            };
            ended.into_iter().chain([how]).map(note).collect()
        };
        let size = (usize::from(inner.width), usize::from(inner.height));
        self.transcript.sync(&self.shown, size, notes, Vec::new(), styles);
        self.transcript.draw(buffer, inner, highlights, styles);
    }
}
