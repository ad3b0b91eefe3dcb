//! Editing of a draft: pure, by grapheme. The draft itself belongs to the conversation; this computes the next one.

use std::ops::Range;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use super::keymap::Motion;
use super::{cells, wrap};

/// A draft's text and caret, as they are edited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Editor {
    text: String,
    caret: usize,
}

impl Editor {
    /// The text with the caret at a byte offset; past the end or inside a grapheme, it moves back.
    pub fn new(text: impl Into<String>, caret: usize) -> Self {
        let text: String = text.into();
        let mut caret = text.floor_char_boundary(caret);
        if !is_boundary(&text, caret) {
            caret = previous(&text, caret);
        }
        Self { text, caret }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caret, a byte offset between two graphemes.
    pub fn caret(&self) -> usize {
        self.caret
    }

    /// Gives text and caret away.
    pub fn into_parts(self) -> (String, usize) {
        (self.text, self.caret)
    }

    /// Puts text at the caret, which goes behind it. Line ends of any kind become `\n`; other control characters but
    /// the tab are left out.
    pub fn insert(&mut self, text: &str) {
        let clean = clean(text);
        self.text.insert_str(self.caret, &clean);
        self.caret += clean.len();
        // What was put in may have joined what stands behind it (a mark, half a flag).
        if !is_boundary(&self.text, self.caret) {
            self.caret = next(&self.text, self.caret);
        }
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
                Motion::LineEnd => next(&self.text, self.caret),
                Motion::LineStart => previous(&self.text, self.caret),
                _ => target,
            };
        }
        let (start, end) = (target.min(self.caret), target.max(self.caret));
        self.text.replace_range(start..end, "");
        self.caret = start;
        if !is_boundary(&self.text, self.caret) {
            self.caret = previous(&self.text, self.caret);
        }
    }

    fn target(&self, motion: Motion) -> usize {
        match motion {
            Motion::Left => previous(&self.text, self.caret),
            Motion::Right => next(&self.text, self.caret),
            Motion::WordLeft => {
                let mut words = self.text[..self.caret].unicode_word_indices();
                words.next_back().map_or(0, |(at, _)| at)
            }
            Motion::WordRight => {
                let mut words = self.text[self.caret..].unicode_word_indices();
                words
                    .next()
                    .map_or(self.text.len(), |(at, word)| self.caret + at + word.len())
            }
            Motion::LineStart => self.text[..self.caret].rfind('\n').map_or(0, |at| at + 1),
            Motion::LineEnd => self.text[self.caret..]
                .find('\n')
                .map_or(self.text.len(), |at| self.caret + at),
            Motion::Up | Motion::Down => self.caret,
        }
    }

    fn go_row(&mut self, motion: Motion, width: usize, goal: &mut Option<usize>) -> bool {
        let layout = Layout::new(&self.text, width);
        let (row, column) = layout.place(&self.text, self.caret);
        let column = *goal.get_or_insert(column);
        let to = match motion {
            Motion::Up => row.checked_sub(1),
            _ => (row + 1 < layout.rows.len()).then_some(row + 1),
        };
        let Some(to) = to else { return false };
        self.caret = layout.position(&self.text, to, column);
        true
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

fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true)
        .is_boundary(text, 0)
        .unwrap_or(true)
}

fn previous(text: &str, at: usize) -> usize {
    GraphemeCursor::new(at, text.len(), true)
        .prev_boundary(text, 0)
        .ok()
        .flatten()
        .unwrap_or(0)
}

fn next(text: &str, at: usize) -> usize {
    GraphemeCursor::new(at, text.len(), true)
        .next_boundary(text, 0)
        .ok()
        .flatten()
        .unwrap_or(text.len())
}
