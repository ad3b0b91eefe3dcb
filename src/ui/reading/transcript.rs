//! What was said in a pane, in rows: wrapped once, kept, and painted only where it is seen.
//!
//! A frame costs the visible rows and the end of the last answer, however long the conversation is. The place that
//! is read is kept as a position in the text, so that neither new text nor another width moves it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::chat::{Pane, RecordId, SessionId, Status, Turn};
use crate::ui::keymap::Action;
use crate::ui::reading::answer::{self, Part, Readable, Shape};
use crate::ui::reading::highlight::Highlights;
use crate::ui::reading::markdown::Code;
use crate::ui::styles::Styles;
use crate::ui::wrap::{self, Wrapped, wrap_line};
use crate::ui::{cells, paint};

mod pick;
mod search;
mod selection;

pub use pick::{Point, Target};
use search::Search;
pub use selection::Message;

/// Columns before a prompt's text.
const INDENT: usize = 2;

/// A line of the interface's own within a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// What it says; sanitized already.
    pub text: String,
    /// How it looks.
    pub style: Style,
}

/// A turn in rows: a blank one before all but the first, the prompt, a blank one, the answer, notes.
#[derive(Debug, Clone)]
struct Block {
    record: RecordId,
    lead: usize,
    /// Which of its siblings it is, and of how many; it stands in the row before the prompt.
    siblings: Option<(usize, usize)>,
    prompt: Wrapped,
    gap: usize,
    answer: Vec<Part>,
    notes: Vec<Note>,
    /// How long the answer was, and where the turn was.
    seen: (usize, Status),
}

impl Block {
    fn new(turn: &Turn, first: bool, (place, of): (usize, usize), width: usize) -> Self {
        let siblings = (of > 1).then_some((place, of));
        let prompt = Wrapped::new(turn.prompt.trim_end(), width.saturating_sub(INDENT));
        Self {
            record: turn.record,
            lead: usize::from(!first || siblings.is_some()),
            siblings,
            prompt,
            gap: 0,
            answer: Vec::new(),
            notes: Vec::new(),
            seen: (turn.answer.len(), turn.status.clone()),
        }
    }

    /// Whether the turn is as it was when it was last looked at.
    fn is_of(&self, turn: &Turn) -> bool {
        self.seen.0 == turn.answer.len() && self.seen.1 == turn.status
    }

    fn answer_rows(&self) -> usize {
        self.answer.iter().map(Part::rows).sum()
    }

    fn rows(&self) -> usize {
        self.lead + self.prompt.len() + self.gap + self.answer_rows() + self.notes.len()
    }

    /// The part of the answer that a row of it belongs to, and which of the part's rows it is.
    fn part_at(&self, row: usize) -> Option<(usize, &Part, usize)> {
        let mut start = 0;
        for (index, part) in self.answer.iter().enumerate() {
            if row < start + part.rows() {
                return Some((index, part, row - start));
            }
            start += part.rows();
        }
        None
    }

    /// The row of the answer that holds a place of one of its parts.
    fn answer_row(&self, part: usize, place: Option<wrap::Place>) -> usize {
        let before: usize = self.answer.iter().take(part).map(Part::rows).sum();
        before + self.answer.get(part).map_or(0, |part| part.row_of(place))
    }

    /// What can be searched in a row.
    fn readable(&self, row: usize) -> Option<Readable<'_>> {
        let at = row.checked_sub(self.lead)?;
        if let Some((_, text)) = self.prompt.row(at) {
            let joins = self.prompt.joins(at);
            return Some(Readable {
                text,
                margin: 0,
                joins,
                drawn: None,
            });
        }
        let (_, part, at) = self.part_at((at - self.prompt.len()).checked_sub(self.gap)?)?;
        part.readable(at)
    }

    /// How many blocks of code come before a part of the answer.
    fn code_before(&self, part: usize) -> usize {
        self.answer.iter().take(part).map(Part::code_len).sum()
    }
}

/// Notes cut into lines of a width.
fn fold(notes: Vec<Note>, width: usize) -> Vec<Note> {
    let fits = |note: &Note| cells::width(&note.text) <= width;
    if notes.iter().all(fits) {
        return notes;
    }
    let lines = notes.iter().flat_map(|note| {
        let rows = wrap_line(&note.text, width);
        rows.into_iter().map(|row| Note {
            text: note.text[row].to_owned(),
            style: note.style,
        })
    });
    lines.collect()
}

/// A place in the text, whatever the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    block: usize,
    spot: Spot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Lead,
    Prompt(wrap::Place),
    Gap,
    /// A part of the answer, and where in its text; nowhere for its headline.
    Answer(usize, Option<wrap::Place>),
    Note(usize),
}

/// What a pane shows of its conversation.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    session: Option<SessionId>,
    shape: Shape,
    height: usize,
    blocks: Vec<Block>,
    /// For each block, the row behind it.
    ends: Vec<usize>,
    /// For each block, how many blocks of code there are up to its end.
    codes: Vec<usize>,
    /// Blocks of turns that have ended: they don't change any more.
    settled: usize,
    /// Lines under the last turn.
    tail: Vec<Note>,
    streaming: bool,
    /// The first row that is read, and the last one there was then; nothing while the end is followed.
    reading: Option<(Place, Place)>,
    search: Option<Search>,
    selected: Option<Message>,
}

impl Transcript {
    /// Takes the conversation as it is now, for a room of `width` by `height`. `notes` gives the lines under a turn,
    /// `tail` is what stands under the last one.
    pub fn sync(
        &mut self,
        pane: &Pane,
        (width, height): (usize, usize),
        notes: impl Fn(&Turn) -> Vec<Note>,
        tail: Vec<Note>,
        styles: &Styles,
    ) {
        let width = width.max(1);
        let turns = &pane.turns;
        if self.session != Some(pane.session) {
            *self = Self {
                session: Some(pane.session),
                shape: self.shape,
                ..Self::default()
            };
        }
        // Another width makes other rows of what was seen already.
        let another = self.shape.width != width;
        let all_seen = another && self.new_rows() == 0;
        if another {
            self.forget();
        }
        // Another branch may be shown than before. Siblings only get more by one that is shown then.
        let known = self.blocks.iter().zip(turns);
        let same = known
            .take_while(|(block, turn)| block.record == turn.record)
            .count();
        self.blocks.truncate(same);
        // An answer that had ended goes on.
        let last = self.settled.min(self.blocks.len()).checked_sub(1);
        let last = last.and_then(|at| Some((at, self.blocks.get(at)?, turns.get(at)?)));
        if let Some((at, _, _)) = last.filter(|(_, block, turn)| !block.is_of(turn)) {
            self.blocks.truncate(at);
        }
        self.settled = self.settled.min(self.blocks.len());
        if let Some(search) = &mut self.search {
            search.hits.truncate(self.settled);
        }
        (self.shape.width, self.height) = (width, height);
        for (at, turn) in turns.iter().enumerate().skip(self.settled) {
            if at == self.blocks.len() {
                let siblings = pane.tree.siblings(turns, at);
                self.blocks.push(Block::new(turn, at == 0, siblings, width));
            }
            let block = &mut self.blocks[at];
            answer::update(&mut block.answer, turn, self.shape, styles);
            block.notes = fold(notes(turn), width);
            block.seen = (turn.answer.len(), turn.status.clone());
            block.gap = usize::from(!block.answer.is_empty() || !block.notes.is_empty());
        }
        self.ends.truncate(self.settled);
        self.codes.truncate(self.settled);
        let mut end = self.ends.last().copied().unwrap_or(0);
        let mut code = self.codes.last().copied().unwrap_or(0);
        for block in &self.blocks[self.ends.len()..] {
            end += block.rows();
            self.ends.push(end);
            code += block.code_before(block.answer.len());
            self.codes.push(code);
        }
        self.look();
        self.settled = turns
            .iter()
            .skip(self.settled)
            .take_while(|turn| !turn.is_running())
            .count()
            + self.settled;
        self.streaming = turns.last().is_some_and(Turn::is_running);
        self.tail = fold(tail, width);
        if let Some((top, _)) = self.reading.filter(|_| all_seen) {
            self.reading = Some((top, self.place_of(self.rows().saturating_sub(1))));
        }
        // What was found is held, even on the last page.
        if self.top() >= self.last_top() && self.search.is_none() {
            self.reading = None;
        }
        self.see();
    }

    /// Rows in all.
    pub fn rows(&self) -> usize {
        let lead = usize::from(!self.blocks.is_empty() && !self.tail.is_empty());
        self.ends.last().copied().unwrap_or(0) + lead + self.tail.len()
    }

    /// The first row that is shown.
    pub fn top(&self) -> usize {
        match self.reading {
            Some((top, _)) => self.row_of(top).min(self.last_top()),
            None => self.last_top(),
        }
    }

    /// Whether new text is followed.
    pub fn follows(&self) -> bool {
        self.reading.is_none()
    }

    /// Shows thoughts that have ended in full, or a line of each again.
    pub fn toggle_thoughts(&mut self) {
        self.show_thoughts(!self.shape.unfolded);
    }

    /// Shows thoughts that have ended in full, or a line of each; all rows are made anew.
    pub fn show_thoughts(&mut self, unfolded: bool) {
        self.shape.unfolded = unfolded;
        self.forget();
    }

    /// Whether thoughts that have ended are shown in full.
    pub fn shows_thoughts(&self) -> bool {
        self.shape.unfolded
    }

    /// Shows answers as they were written, or as Markdown again.
    pub fn toggle_raw(&mut self) {
        self.shape.raw = !self.shape.raw;
        self.forget();
    }

    /// Whether answers are shown as they were written.
    pub fn is_raw(&self) -> bool {
        self.shape.raw
    }

    /// Has all rows made anew.
    fn forget(&mut self) {
        self.blocks.clear();
        self.ends.clear();
        self.codes.clear();
        self.settled = 0;
        if let Some(search) = &mut self.search {
            search.hits.clear();
        }
    }

    /// Has a row be seen; what is seen already doesn't move.
    fn reveal(&mut self, row: usize) {
        let top = self.top();
        let seen = (top..top + self.height).contains(&row);
        let to = if seen {
            top
        } else {
            row.saturating_sub(self.height / 3)
        };
        self.pin(to.min(self.last_top()));
    }

    /// A block of code by its number, from 1.
    pub fn code(&self, number: usize) -> Option<&Code> {
        let block = self.codes.partition_point(|end| *end < number);
        let before = block.checked_sub(1).map_or(0, |before| self.codes[before]);
        let answer = &self.blocks.get(block)?.answer;
        answer
            .iter()
            .flat_map(Part::code)
            .nth(number.checked_sub(before + 1)?)
    }

    /// How many blocks of code there are.
    pub fn code_len(&self) -> usize {
        self.codes.last().copied().unwrap_or(0)
    }

    /// Goes to the end and follows it.
    pub fn follow(&mut self) {
        self.reading = None;
    }

    /// Rows that came below what was there when the end was left.
    pub fn new_rows(&self) -> usize {
        match self.reading {
            Some((_, seen)) => (self.rows().saturating_sub(1)).saturating_sub(self.row_of(seen)),
            None => 0,
        }
    }

    /// Scrolls as an action asks; other actions do nothing.
    pub fn scroll(&mut self, action: Action) {
        let page = self.height.saturating_sub(2).max(1);
        let top = self.top();
        let to = match action {
            Action::PageUp => top.saturating_sub(page),
            Action::PageDown => top.saturating_add(page),
            Action::LineUp => top.saturating_sub(1),
            Action::LineDown => top.saturating_add(1),
            Action::Top => 0,
            Action::Bottom => usize::MAX,
            _ => return,
        };
        self.go(to);
    }

    /// Has a row be the first that is shown, or follows the end if that is seen then.
    fn go(&mut self, to: usize) {
        if to >= self.last_top() {
            self.reading = None;
            return;
        }
        self.pin(to);
    }

    /// Has a row be the first that is shown, whatever comes below.
    fn pin(&mut self, to: usize) {
        let seen = self
            .reading
            .map_or_else(|| self.place_of(self.rows().saturating_sub(1)), |(_, seen)| seen);
        self.reading = Some((self.place_of(to), seen));
        self.see();
    }

    /// What is on the screen has been seen.
    fn see(&mut self) {
        let bottom = (self.top() + self.height).min(self.rows()).saturating_sub(1);
        if let Some((top, _)) = self.reading.filter(|(_, seen)| self.row_of(*seen) < bottom) {
            self.reading = Some((top, self.place_of(bottom)));
        }
    }

    fn last_top(&self) -> usize {
        self.rows().saturating_sub(self.height)
    }

    fn start(&self, block: usize) -> usize {
        block
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0)
    }

    fn row_of(&self, place: Place) -> usize {
        let start = self.start(place.block.min(self.blocks.len()));
        let Some(block) = self.blocks.get(place.block) else {
            return match place.spot {
                Spot::Note(index) => start + index,
                _ => start,
            };
        };
        let prompt = start + block.lead;
        let answer = prompt + block.prompt.len() + block.gap;
        match place.spot {
            Spot::Lead => start,
            Spot::Prompt(place) => prompt + block.prompt.row_of(place),
            Spot::Gap => prompt + block.prompt.len(),
            Spot::Answer(part, place) => answer + block.answer_row(part, place),
            Spot::Note(index) => {
                answer + block.answer_rows() + index.min(block.notes.len().saturating_sub(1))
            }
        }
    }

    fn place_of(&self, row: usize) -> Place {
        let block = self.ends.partition_point(|end| *end <= row);
        let at = row - self.start(block).min(row);
        let Some(content) = self.blocks.get(block) else {
            return Place {
                block,
                spot: Spot::Note(at),
            };
        };
        let answer = content.lead + content.prompt.len() + content.gap;
        let spot = if at < content.lead {
            Spot::Lead
        } else if at < content.lead + content.prompt.len() {
            Spot::Prompt(content.prompt.place_of(at - content.lead))
        } else if at < answer {
            Spot::Gap
        } else {
            match content.part_at(at - answer) {
                Some((index, part, row)) => Spot::Answer(index, part.place_of(row)),
                None => Spot::Note(at - answer - content.answer_rows()),
            }
        };
        Place { block, spot }
    }

    /// Paints the rows that are seen.
    pub fn draw(&self, buffer: &mut Buffer, area: Rect, highlights: &mut Highlights, styles: &Styles) {
        let top = self.top();
        for y in 0..area.height {
            let (row, at) = (paint::row(area, y), top + usize::from(y));
            self.draw_row(buffer, row, at, highlights, styles);
            self.mark_hits(buffer, row, at, styles);
        }
        let new = self.new_rows();
        if new > 0 && area.height > 0 {
            let lines = if new == 1 { "line" } else { "lines" };
            let text = format!(" {new} new {lines} {} End ", styles.pick("↓", "v"));
            let width = cells::width(&text).min(usize::from(area.width)) as u16;
            paint::text(
                buffer,
                paint::row(area, area.height - 1),
                area.width - width,
                &text,
                styles.chip(),
            );
        }
    }

    fn draw_row(
        &self,
        buffer: &mut Buffer,
        row: Rect,
        at: usize,
        highlights: &mut Highlights,
        styles: &Styles,
    ) {
        let place = self.ends.partition_point(|end| *end <= at);
        let index = at - self.start(place).min(at);
        let Some(block) = self.blocks.get(place) else {
            let lead = usize::from(!self.blocks.is_empty());
            if let Some(note) = index.checked_sub(lead).and_then(|index| self.tail.get(index)) {
                paint::text(buffer, row, 0, &note.text, note.style);
            }
            return;
        };
        let Some(index) = index.checked_sub(block.lead) else {
            if let Some((place, of)) = block.siblings {
                let (left, right) = (styles.pick("‹", "<"), styles.pick("›", ">"));
                let text = format!("{left}{place}/{of}{right}");
                paint::text(buffer, row, 0, &text, styles.quiet());
            }
            return;
        };
        if let Some((_, text)) = block.prompt.row(index) {
            let mark = if index == 0 {
                styles.pick("› ", "> ")
            } else {
                "  "
            };
            let column = paint::text(buffer, row, 0, mark, styles.user());
            paint::text(buffer, row, column, text, styles.user());
            return;
        }
        let Some(index) = (index - block.prompt.len()).checked_sub(block.gap) else {
            return;
        };
        if let Some((number, part, at)) = block.part_at(index) {
            let before = place.checked_sub(1).and_then(|before| self.codes.get(before));
            let numbered = before.copied().unwrap_or(0) + block.code_before(number);
            let behind = part.draw(buffer, row, at, numbered, highlights, styles);
            let last = place + 1 == self.blocks.len() && index + 1 == block.answer_rows();
            if let Some(column) = behind.filter(|_| last && self.streaming) {
                paint::text(buffer, row, column, styles.pick("▍", "_"), styles.quiet());
            }
        } else if let Some(note) = block.notes.get(index - block.answer_rows()) {
            paint::text(buffer, row, 0, &note.text, note.style);
        }
    }
}
