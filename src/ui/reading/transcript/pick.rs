//! What a pointer points at: text to mark and to take along, headlines that do something.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

use super::{INDENT, Transcript};
use crate::ui::cells;
use crate::ui::reading::markdown::Drawn;

/// A cell of the conversation's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The row, from the conversation's first.
    pub row: usize,
    /// The column, from the pane's first.
    pub column: usize,
}

/// A row that does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A thought's headline.
    Thought,
    /// The line above a block of code, by its number from 1.
    Code(usize),
}

/// A row's text, as it is taken along.
struct Taken<'a> {
    text: Cow<'a, str>,
    /// Columns before it.
    indent: usize,
    /// Bytes of it that are marks of lists and quotes.
    margin: usize,
    joins: Option<bool>,
    drawn: Option<Drawn>,
    /// Whether it says how an answer ended.
    note: bool,
}

impl Transcript {
    /// Whether a row is the headline of a thought, or the one above a block of code.
    fn is_head(&self, row: usize) -> bool {
        self.target(row).is_some()
    }

    /// What a row does when it is clicked.
    pub fn target(&self, row: usize) -> Option<Target> {
        let place = self.ends.partition_point(|end| *end <= row);
        let block = self.blocks.get(place)?;
        let at = (row - self.start(place)).checked_sub(block.lead + block.prompt.len() + block.gap)?;
        let (index, part, at) = block.part_at(at)?;
        if part.is_thought_head(at) {
            return Some(Target::Thought);
        }
        let before = place.checked_sub(1).and_then(|before| self.codes.get(before));
        let numbered = before.copied().unwrap_or(0) + block.code_before(index);
        part.code_head(at)
            .map(|number| Target::Code(numbered + number + 1))
    }

    fn taken(&self, row: usize) -> Option<Taken<'_>> {
        let place = self.ends.partition_point(|end| *end <= row);
        let start = self.start(place);
        let plain = |text: &'_ str| Taken {
            text: Cow::Owned(text.to_owned()),
            indent: 0,
            margin: 0,
            joins: None,
            drawn: None,
            note: true,
        };
        let Some(block) = self.blocks.get(place) else {
            let lead = usize::from(!self.blocks.is_empty());
            return (row - start)
                .checked_sub(lead)
                .and_then(|at| Some(plain(&self.tail.get(at)?.text)));
        };
        let at = (row - start).checked_sub(block.lead)?;
        let indent = if at < block.prompt.len() { INDENT } else { 0 };
        if let Some(readable) = block.readable(row - start) {
            return Some(Taken {
                text: readable.text.into(),
                indent,
                margin: readable.margin,
                joins: readable.joins,
                drawn: readable.drawn,
                note: false,
            });
        }
        let at = (at - block.prompt.len()).checked_sub(block.gap)?;
        let note = at.checked_sub(block.answer_rows())?;
        Some(plain(&block.notes.get(note)?.text))
    }

    /// The text from one cell to another, both included: what was wrapped is one line again, a table has the lines of
    /// Markdown, and nothing comes along that only the screen needs; how an answer ended, only where nothing else is meant.
    pub fn text_between(&self, from: Point, to: Point) -> String {
        let mut out = String::new();
        let rows = from.row..=to.row.min(self.rows().saturating_sub(1));
        let said = |row| self.taken(row).is_some_and(|taken| !taken.note);
        let notes = !rows.clone().any(said);
        for row in rows {
            let taken = self.taken(row);
            let only_seen = |taken: &Taken<'_>| taken.drawn == Some(Drawn::End) || taken.note && !notes;
            if taken.as_ref().is_some_and(only_seen) || self.is_head(row) {
                continue;
            }
            let joins = taken
                .as_ref()
                .and_then(|taken| taken.joins)
                .filter(|_| row > from.row);
            match joins {
                Some(space) => {
                    out.truncate(out.trim_end_matches(' ').len());
                    out.push_str(if space { " " } else { "" });
                }
                None if row > from.row => {
                    out.truncate(out.trim_end_matches(' ').len());
                    out.push('\n');
                }
                None => {}
            }
            let Some(Taken {
                text,
                indent,
                margin,
                joins: goes_on,
                drawn,
                note: _,
            }) = taken
            else {
                continue;
            };
            let first = if row == from.row {
                from.column.saturating_sub(indent)
            } else {
                0
            };
            let last = match row == to.row {
                true => to.column.checked_sub(indent),
                false => Some(usize::MAX),
            };
            let Some(last) = last else { continue };
            let mut column = 0;
            for (at, grapheme) in text.grapheme_indices(true) {
                let width = cells::grapheme_width(grapheme);
                let inside = column + width > first && column <= last;
                column += width;
                match inside {
                    true if at < margin && goes_on.is_some() => {}
                    true if at < margin && matches!(grapheme, "│" | "|") => out.push('>'),
                    true => out.push_str(written(grapheme, drawn)),
                    false => {}
                }
            }
        }
        out.truncate(out.trim_end_matches([' ', '\n']).len());
        out
    }
}

/// A character of a row as Markdown writes it, where it is drawn.
fn written(grapheme: &str, drawn: Option<Drawn>) -> &str {
    match (drawn, grapheme) {
        (Some(Drawn::Cells | Drawn::Head), "│") | (Some(Drawn::Head), "┼" | "+") => "|",
        (Some(Drawn::Head | Drawn::Break), "─") => "-",
        _ => grapheme,
    }
}
