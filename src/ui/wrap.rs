//! The one wrapping of text into rows: heights are counted and rows are painted from what it gives.
//!
//! Words go whole to the next row where they don't fit; a word wider than a row is cut by grapheme; characters of two
//! cells may stand apart. Spaces at a break are not painted. Appending text re-wraps from the last row but
//! one on: what is new may join the last character and so the word that the last row begins with, but no more.

use std::borrow::Cow;
use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::ui::cells;
use crate::ui::sanitize::sanitize;

/// What a row belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// Running text.
    Text,
    /// The line that opens or closes a code fence.
    Fence,
    /// A line inside a code fence.
    Code,
}

/// One row: a piece of the shown text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Where it begins in the shown text.
    pub start: usize,
    /// Where it ends; spaces at the break are left out.
    pub end: usize,
    /// What it belongs to.
    pub kind: RowKind,
    /// Whether it begins a line of the source.
    pub first: bool,
}

/// A row's place in a text, whatever the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where the row begins.
    pub at: usize,
    /// Which of the rows that begin there it is, from 0: empty ones take no text.
    pub nth: usize,
}

impl Row {
    /// Its bytes in the shown text.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// A paragraph of the source: what is left when text is split at line ends.
#[derive(Debug, Clone, Copy)]
struct Paragraph {
    source: usize,
    shown: usize,
    row: usize,
    in_fence: bool,
}

/// Text wrapped to a width; grows cheaply when text is appended.
#[derive(Debug, Clone)]
pub struct Wrapped {
    width: usize,
    shown: String,
    rows: Vec<Row>,
    source_len: usize,
    last: Paragraph,
}

impl Wrapped {
    /// Wraps `source` to `width` cells (at least 1).
    pub fn new(source: &str, width: usize) -> Self {
        let mut wrapped = Self {
            width: width.max(1),
            shown: String::new(),
            rows: Vec::new(),
            source_len: 0,
            last: Paragraph {
                source: 0,
                shown: 0,
                row: 0,
                in_fence: false,
            },
        };
        wrapped.wrap_from(source, wrapped.last);
        wrapped
    }

    /// The width it was wrapped to.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Bytes of the source that are wrapped.
    pub fn source_len(&self) -> usize {
        self.source_len
    }

    /// How many rows there are; empty text has one.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no row; never so after `new`.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A row's kind and text, if there is such a row.
    pub fn row(&self, index: usize) -> Option<(RowKind, &str)> {
        let row = self.rows.get(index)?;
        Some((row.kind, &self.shown[row.range()]))
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = (RowKind, &str)> {
        self.rows.iter().map(|row| (row.kind, &self.shown[row.range()]))
    }

    /// Whether a row goes on with the line of the row before, and then whether a space stood between.
    pub fn joins(&self, index: usize) -> Option<bool> {
        let row = self.rows.get(index).filter(|row| !row.first)?;
        let before = index.checked_sub(1).and_then(|before| self.rows.get(before))?;
        Some(row.start > before.end)
    }

    fn row_start(&self, index: usize) -> usize {
        self.rows.get(index).map_or(self.shown.len(), |row| row.start)
    }

    /// A row's place in the shown text: stays the same while text is appended.
    pub fn place_of(&self, index: usize) -> Place {
        let at = self.row_start(index);
        let first = self.rows.partition_point(|row| row.start < at);
        Place {
            at,
            nth: index.saturating_sub(first),
        }
    }

    /// The row of a place.
    pub fn row_of(&self, place: Place) -> usize {
        let first = self.rows.partition_point(|row| row.start < place.at);
        let last = self
            .rows
            .partition_point(|row| row.start <= place.at)
            .saturating_sub(1);
        (first + place.nth).min(last)
    }

    /// Takes a source that begins with the text wrapped so far; only the last row, and what is new, is wrapped.
    pub fn append(&mut self, source: &str) {
        let Some(new) = source.get(self.source_len..).filter(|new| !new.is_empty()) else {
            return;
        };
        let last = self.last;
        let (piece, more) = match new.split_once('\n') {
            Some((piece, _)) => (piece, Some(self.source_len + piece.len() + 1)),
            None => (new, None),
        };
        // A tab needs its column, and a CR that ended the text may turn out to belong to a line end.
        if piece.contains('\t') || source[..self.source_len].ends_with('\r') {
            let line = &source[last.source..self.source_len + piece.len()];
            self.shown.truncate(last.shown);
            self.shown.push_str(&show(line));
            self.rows.truncate(last.row);
            let kind = self.kind(last);
            self.wrap_rows(last.shown, kind, true);
        } else {
            let kept = self.rows.len().saturating_sub(2).max(last.row);
            let resume = self.rows.get(kept).map_or(last.shown, |row| row.start);
            self.rows.truncate(kept);
            self.shown.push_str(&show(piece));
            let kind = self.kind(last);
            if self.rows.get(last.row).is_some_and(|row| row.kind != kind) {
                self.rows[last.row..].iter_mut().for_each(|row| row.kind = kind);
            }
            self.wrap_rows(resume, kind, kept == last.row);
        }
        self.source_len = source.len();
        if let Some(next) = more {
            let in_fence = self.fence_after(last);
            let next = Paragraph {
                source: next,
                shown: self.shown.len(),
                row: self.rows.len(),
                in_fence,
            };
            self.wrap_from(source, next);
        }
    }

    fn wrap_from(&mut self, source: &str, mut paragraph: Paragraph) {
        loop {
            let rest = &source[paragraph.source..];
            let line = rest.split('\n').next().unwrap_or_default();
            self.last = paragraph;
            self.shown.push_str(&show(line));
            let kind = self.kind(paragraph);
            self.wrap_rows(paragraph.shown, kind, true);
            let in_fence = self.fence_after(paragraph);
            let next = paragraph.source + line.len() + 1;
            if next > source.len() {
                break;
            }
            paragraph = Paragraph {
                source: next,
                shown: self.shown.len(),
                row: self.rows.len(),
                in_fence,
            };
        }
        self.source_len = source.len();
    }

    fn is_fence(&self, paragraph: Paragraph) -> bool {
        let line = self.shown[paragraph.shown..].trim_start();
        line.starts_with("```") || line.starts_with("~~~")
    }

    fn kind(&self, paragraph: Paragraph) -> RowKind {
        if self.is_fence(paragraph) {
            RowKind::Fence
        } else if paragraph.in_fence {
            RowKind::Code
        } else {
            RowKind::Text
        }
    }

    fn fence_after(&self, paragraph: Paragraph) -> bool {
        paragraph.in_fence ^ self.is_fence(paragraph)
    }

    /// Wraps the shown text from `from`, the beginning of a row, to its end; `first`: and of a line.
    fn wrap_rows(&mut self, from: usize, kind: RowKind, first: bool) {
        for (at, range) in wrap_line(&self.shown[from..], self.width).into_iter().enumerate() {
            self.rows.push(Row {
                start: from + range.start,
                end: from + range.end,
                kind,
                first: first && at == 0,
            });
        }
    }
}

/// A line as it is shown: without control characters, tabs as spaces.
pub(in crate::ui) fn show(line: &str) -> Cow<'_, str> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if !line.contains('\t') {
        return sanitize(line);
    }
    let mut out = String::with_capacity(line.len() + cells::TAB);
    let mut column = 0;
    for (at, piece) in line.split('\t').enumerate() {
        if at > 0 {
            let fill = cells::TAB - column % cells::TAB;
            out.extend(std::iter::repeat_n(' ', fill));
            column += fill;
        }
        let clean = sanitize(piece);
        column += cells::width(&clean);
        out.push_str(&clean);
    }
    Cow::Owned(out)
}

/// Wraps one line without line ends into the byte ranges of its rows; at least one.
pub fn wrap_line(line: &str, width: usize) -> Vec<Range<usize>> {
    let width = width.max(1);
    if line.len() <= width && line.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return std::iter::once(0..line.len()).collect();
    }
    let mut rows = Vec::new();
    // The row so far: its start, the end of its last word, its width up to `at`.
    let mut start = 0;
    let mut painted = 0;
    let mut used = 0;
    // Whether spaces were left out behind it.
    let mut full = false;
    // The word so far: where it began and its width.
    let mut word = 0;
    let mut word_width = 0;
    for (at, grapheme) in line.grapheme_indices(true) {
        let cell = cells::grapheme_width(grapheme);
        let space = grapheme == " ";
        if space {
            if used < width {
                used += 1;
                // Leading and trailing spaces are painted as far as they fit.
                painted = at + 1;
            } else {
                full = true;
            }
            word = at + 1;
            word_width = 0;
            continue;
        }
        if cell > 1 {
            // A wide character is a word of its own.
            word = at;
            word_width = 0;
        }
        if (full || used + cell > width) && at > start {
            full = false;
            if word > start && (word_width + cell <= width || at == word) {
                // The word goes to the next row.
                rows.push(start..trimmed_end(line, start, word.min(painted)));
                start = word;
                used = word_width;
            } else {
                // The word is wider than a row: it is cut here.
                rows.push(start..at);
                start = at;
                word = at;
                word_width = 0;
                used = 0;
            }
        }
        used += cell;
        word_width += cell;
        painted = at + grapheme.len();
        if cell > 1 {
            word = painted;
            word_width = 0;
        }
    }
    rows.push(start..painted.max(start));
    rows
}

/// Where a row ends once the spaces before its break are left out.
fn trimmed_end(line: &str, start: usize, end: usize) -> usize {
    start + line[start..end.max(start)].trim_end_matches(' ').len()
}
