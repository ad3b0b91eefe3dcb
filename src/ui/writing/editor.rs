//! Editing of a draft: pure, by grapheme. The draft itself belongs to the conversation; this computes the next one.

use std::ops::Range;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use crate::chat::Draft;
use crate::ui::keymap::Motion;
use crate::ui::writing::folds::{self, Folded};
use crate::ui::{cells, wrap};

/// A draft's text and caret, as they are edited. A large paste is one character for every motion and deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Editor {
    text: String,
    caret: usize,
    /// In order, none within another; the caret is in none.
    pastes: Vec<Range<usize>>,
}

impl Editor {
    /// The text with the caret at a byte offset; past the end or inside a grapheme, it moves back.
    pub fn new(text: impl Into<String>, caret: usize) -> Self {
        Self::of(&Draft::new(text, caret))
    }

    /// The editor of a draft.
    pub fn of(draft: &Draft) -> Self {
        let mut editor = Self {
            text: draft.text().to_owned(),
            caret: draft.cursor(),
            pastes: draft.pastes().to_vec(),
        };
        if !editor.is_boundary(editor.caret) {
            editor.caret = editor.previous(editor.caret);
        }
        editor
    }

    /// Gives the draft away.
    pub fn into_draft(self) -> Draft {
        Draft::new(self.text, self.caret).with_pastes(self.pastes)
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caret, a byte offset between two graphemes.
    pub fn caret(&self) -> usize {
        self.caret
    }

    /// Puts text at the caret, which goes behind it. Line ends of any kind become `\n`; other control characters but
    /// the tab are left out.
    pub fn insert(&mut self, text: &str) {
        let clean = clean(text);
        self.text.insert_str(self.caret, &clean);
        for paste in self.pastes.iter_mut().filter(|paste| paste.start >= self.caret) {
            *paste = paste.start + clean.len()..paste.end + clean.len();
        }
        self.caret += clean.len();
        // What was put in may have joined what stands behind it (a mark, half a flag).
        if !self.is_boundary(self.caret) {
            self.caret = self.next(self.caret);
        }
    }

    /// Puts pasted text at the caret; a large one stays together.
    pub fn insert_paste(&mut self, text: &str) {
        let clean = clean(text);
        if !folds::is_large(&clean) {
            return self.insert(&clean);
        }
        let start = self.caret;
        self.text.insert_str(start, &clean);
        for paste in self.pastes.iter_mut().filter(|paste| paste.start >= start) {
            *paste = paste.start + clean.len()..paste.end + clean.len();
        }
        self.caret += clean.len();
        let place = self.pastes.partition_point(|paste| paste.start < start);
        self.pastes.insert(place, start..self.caret);
    }

    /// Has these bytes before the caret stay together, if they are as much as a large paste and hold no part of a paste
    /// alone: they came at once.
    pub fn gather(&mut self, bytes: usize) {
        let Some(start) = self.caret.checked_sub(bytes) else {
            return;
        };
        let cuts = |paste: &Range<usize>| paste.start < start && start < paste.end;
        let whole = self.text.is_char_boundary(start) && !self.pastes.iter().any(cuts);
        if !whole || !folds::is_large(&self.text[start..self.caret]) {
            return;
        }
        self.pastes
            .retain(|paste| paste.end <= start || paste.start >= self.caret);
        let place = self.pastes.partition_point(|paste| paste.start < start);
        self.pastes.insert(place, start..self.caret);
    }

    /// Puts text in the place of these bytes, which hold no part of a paste alone; the caret goes behind it.
    pub fn replace(&mut self, bytes: Range<usize>, text: &str) {
        self.remove(bytes.start, bytes.end);
        self.insert(text);
    }

    /// Puts the caret between two characters.
    pub(super) fn place(&mut self, at: usize) {
        self.caret = at.min(self.text.len());
        if !self.is_boundary(self.caret) {
            self.caret = self.previous(self.caret);
        }
    }

    /// Takes these bytes out, which hold no part of a paste alone; the caret stands where they were.
    pub(super) fn take_out(&mut self, bytes: Range<usize>) {
        self.remove(bytes.start, bytes.end);
        self.place(self.caret);
    }

    /// Moves the caret. `width` is that of the rows; vertical motion keeps to the column of `goal`, and says whether
    /// there was a row to go to.
    pub fn go(&mut self, motion: Motion, width: usize, goal: &mut Option<usize>) -> bool {
        match motion {
            Motion::Up | Motion::Down => self.go_row(motion, width, goal),
            _ => {
                *goal = None;
                self.caret = self.target(motion);
                true
            }
        }
    }

    /// Deletes from the caret up to where a motion would take it. At a line's very end (or beginning), deleting to it
    /// takes the line end itself.
    pub fn delete(&mut self, motion: Motion) {
        let mut target = self.target(motion);
        if target == self.caret {
            target = match motion {
                Motion::LineEnd => self.next(self.caret),
                Motion::LineStart => self.previous(self.caret),
                _ => target,
            };
        }
        self.remove(target.min(self.caret), target.max(self.caret));
        if !self.is_boundary(self.caret) {
            self.caret = self.previous(self.caret);
        }
    }

    fn remove(&mut self, start: usize, end: usize) {
        self.text.replace_range(start..end, "");
        self.pastes
            .retain(|paste| paste.end <= start || paste.start >= end);
        for paste in self.pastes.iter_mut().filter(|paste| paste.start >= end) {
            *paste = paste.start - (end - start)..paste.end - (end - start);
        }
        self.caret = start;
    }

    fn target(&self, motion: Motion) -> usize {
        self.reach(self.caret, motion)
    }

    /// Where a motion from a place goes. Words may begin and end within a character (a letter that is written as part of
    /// what follows it): the caret goes on to its edge then.
    pub(super) fn reach(&self, caret: usize, motion: Motion) -> usize {
        let at = self.aim(caret, motion);
        match motion {
            _ if self.is_boundary(at) => at,
            Motion::WordRight => self.next(at),
            _ => self.previous(at),
        }
    }

    fn aim(&self, caret: usize, motion: Motion) -> usize {
        let here = self.stretch(caret);
        match motion {
            Motion::Left => self.previous(caret),
            Motion::Right => self.next(caret),
            Motion::WordLeft if self.paste_before(caret).is_some() => self.previous(caret),
            Motion::WordLeft => {
                let mut words = self.text[here.start..caret].unicode_word_indices();
                words.next_back().map_or(here.start, |(at, _)| here.start + at)
            }
            Motion::WordRight if self.paste_behind(caret).is_some() => self.next(caret),
            Motion::WordRight => {
                let mut words = self.text[caret..here.end].unicode_word_indices();
                words
                    .next()
                    .map_or(here.end, |(at, word)| caret + at + word.len())
            }
            Motion::LineStart => {
                let mut at = caret;
                loop {
                    let start = self.stretch(at).start;
                    if let Some(line) = self.text[start..at].rfind('\n') {
                        return start + line + 1;
                    }
                    match self.paste_before(start) {
                        Some(paste) => at = paste.start,
                        None => return start,
                    }
                }
            }
            Motion::LineEnd => {
                let mut at = caret;
                loop {
                    let end = self.stretch(at).end;
                    if let Some(line) = self.text[at..end].find('\n') {
                        return at + line;
                    }
                    match self.paste_behind(end) {
                        Some(paste) => at = paste.end,
                        None => return end,
                    }
                }
            }
            Motion::Up | Motion::Down => caret,
        }
    }

    fn go_row(&mut self, motion: Motion, width: usize, goal: &mut Option<usize>) -> bool {
        let folded = Folded::new(&self.text, &self.pastes);
        let layout = Layout::new(folded.text(), width);
        let (row, column) = layout.place(folded.text(), folded.shown(self.caret));
        let column = *goal.get_or_insert(column);
        let to = match motion {
            Motion::Up => row.checked_sub(1),
            _ => (row + 1 < layout.rows.len()).then_some(row + 1),
        };
        let Some(to) = to else { return false };
        // A row may begin within a character.
        let at = folded.position(layout.position(folded.text(), to, column));
        self.caret = match motion {
            _ if self.is_boundary(at) => at,
            Motion::Down => self.next(at),
            _ => self.previous(at),
        };
        true
    }

    fn paste_before(&self, at: usize) -> Option<&Range<usize>> {
        self.pastes.iter().find(|paste| paste.end == at)
    }

    fn paste_behind(&self, at: usize) -> Option<&Range<usize>> {
        self.pastes.iter().find(|paste| paste.start == at)
    }

    /// What lies between the pastes around a position.
    fn stretch(&self, at: usize) -> Range<usize> {
        let before = self.pastes.iter().rev().find(|paste| paste.end <= at);
        let behind = self.pastes.iter().find(|paste| paste.start >= at);
        before.map_or(0, |paste| paste.end)..behind.map_or(self.text.len(), |paste| paste.start)
    }

    fn is_boundary(&self, at: usize) -> bool {
        let here = self.stretch(at);
        let text = &self.text[here.clone()];
        GraphemeCursor::new(at - here.start, text.len(), true)
            .is_boundary(text, 0)
            .unwrap_or(true)
    }

    /// The place of the character before.
    pub(super) fn previous(&self, at: usize) -> usize {
        if let Some(paste) = self.paste_before(at) {
            return paste.start;
        }
        let here = self.stretch(at);
        let text = &self.text[here.clone()];
        let before = GraphemeCursor::new(at - here.start, text.len(), true).prev_boundary(text, 0);
        here.start + before.ok().flatten().unwrap_or(0)
    }

    /// The place behind a character.
    pub(super) fn next(&self, at: usize) -> usize {
        if let Some(paste) = self.paste_behind(at) {
            return paste.end;
        }
        let here = self.stretch(at);
        let text = &self.text[here.clone()];
        let behind = GraphemeCursor::new(at - here.start, text.len(), true).next_boundary(text, 0);
        here.start + behind.ok().flatten().unwrap_or(text.len())
    }
}

/// A draft in rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    rows: Vec<Range<usize>>,
    width: usize,
}

impl Layout {
    /// Wraps a draft to rows of `width` cells; the caret may stand one cell behind a full row.
    pub fn new(text: &str, width: usize) -> Self {
        let width = width.max(1);
        let mut rows = Vec::new();
        let mut start = 0;
        for line in text.split('\n') {
            rows.extend(
                wrap::wrap_line(line, width)
                    .into_iter()
                    .map(|row| start + row.start..start + row.end),
            );
            start += line.len() + 1;
        }
        Self { rows, width }
    }

    /// How many rows there are; at least one.
    pub fn height(&self) -> usize {
        self.rows.len()
    }

    /// A row's bytes.
    pub fn row(&self, index: usize) -> Option<Range<usize>> {
        self.rows.get(index).cloned()
    }

    /// The row and column of a position.
    pub fn place(&self, text: &str, position: usize) -> (usize, usize) {
        let row = self
            .rows
            .partition_point(|row| row.start <= position)
            .saturating_sub(1);
        let start = self.rows.get(row).map_or(0, |row| row.start);
        (
            row,
            cells::width(&text[start..position.max(start)]).min(self.width),
        )
    }

    /// The position in a row that is nearest to a column from the left.
    pub fn position(&self, text: &str, row: usize, column: usize) -> usize {
        let Some(range) = self.row(row) else {
            return text.len();
        };
        let mut used = 0;
        for (at, grapheme) in text[range.clone()].grapheme_indices(true) {
            used += cells::grapheme_width(grapheme);
            if used > column {
                return range.start + at;
            }
        }
        range.end
    }
}

/// Text that may stand in a draft.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars()
        .filter(|&c| matches!(c, '\n' | '\t') || !c.is_control())
        .collect()
}
