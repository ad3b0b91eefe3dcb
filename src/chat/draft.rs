//! What is being written: the composer's content, and which prompt it takes the place of.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::record::RecordId;

/// A composer's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    pub(super) text: String,
    pub(super) cursor: usize,
    pub(super) pastes: Vec<Range<usize>>,
}

impl Draft {
    /// A draft with the caret at a byte offset; past the end or inside a character, it moves back.
    pub fn new(text: impl Into<String>, cursor: usize) -> Self {
        let text = text.into();
        let cursor = text.floor_char_boundary(cursor);
        let pastes = Vec::new();
        Self { text, cursor, pastes }
    }

    /// A draft with the caret at its end.
    pub fn at_end(text: impl Into<String>) -> Self {
        Self::new(text, usize::MAX)
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caret: a byte offset on a character's boundary.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// The same with large pastes in it, by their bytes, which a view may show as a word each. Those that can't be are
    /// left out, and the caret goes behind the one in which it would stand.
    pub fn with_pastes(mut self, pastes: impl IntoIterator<Item = Range<usize>>) -> Self {
        self.pastes.clear();
        for paste in pastes {
            let free = self.pastes.last().is_none_or(|last| last.end <= paste.start);
            if free && !paste.is_empty() && self.text.get(paste.clone()).is_some() {
                self.pastes.push(paste);
            }
        }
        let around = |paste: &&Range<usize>| paste.start < self.cursor && self.cursor < paste.end;
        self.cursor = self
            .pastes
            .iter()
            .find(around)
            .map_or(self.cursor, |paste| paste.end);
        self
    }

    /// Large pastes in the text, by their bytes, in order.
    pub fn pastes(&self) -> &[Range<usize>] {
        &self.pastes
    }

    /// Whether there is nothing to send.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Puts a text before what is there; a text that is there already isn't doubled.
    pub fn put_back(&mut self, text: &str) {
        if self.text == text || text.is_empty() {
            return;
        }
        if self.is_blank() {
            *self = Self::at_end(text);
        } else {
            let more = text.len() + 1;
            self.cursor += more;
            for paste in &mut self.pastes {
                *paste = paste.start + more..paste.end + more;
            }
            self.text = format!("{text}\n{}", self.text);
        }
    }
}

/// A prompt that is being edited: its text is in the draft, and sending that makes a sibling of its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The turn, by its prompt's record; it is on the shown branch.
    pub turn: RecordId,
    /// The draft that was there before, and comes back afterwards.
    #[serde(default)]
    pub stashed: String,
}
