//! A block of code: its lines as they are shown, and its text as it was written.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::ui::sanitize::sanitize;
use crate::ui::wrap::show;

/// A block of code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Code {
    /// The word behind the fence; empty where there is none.
    pub language: String,
    /// What stands between the fences, byte for byte, without the marks of lists and quotes around it.
    pub source: String,
    /// Its lines as they are shown, each ended by a line end.
    pub shown: String,
    /// For each line its place in `shown`, and what identifies it with all lines before it.
    lines: Vec<(Range<usize>, u64)>,
}

impl Code {
    /// Code in a language, as the word behind the fence has it.
    pub(super) fn new(info: &str) -> Self {
        let language = info
            .split([' ', ',', '\t', '{'])
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        Self {
            language: sanitize(language).into_owned(),
            ..Self::default()
        }
    }

    /// Appends a line without its end; gives its number.
    pub(super) fn push_line(&mut self, line: &str) -> usize {
        let start = self.shown.len();
        self.shown.push_str(&show(line));
        let end = self.shown.len();
        self.shown.push('\n');
        let key = chain(self.context(self.lines.len()), &self.shown[start..end]);
        self.lines.push((start..end, key));
        self.lines.len() - 1
    }

    /// A line as it is shown.
    pub fn line(&self, number: usize) -> &str {
        let line = self.lines.get(number).map_or(0..0, |(line, _)| line.clone());
        &self.shown[line]
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// What identifies a line's language and all lines before it.
    pub fn context(&self, number: usize) -> u64 {
        match number.checked_sub(1).and_then(|before| self.lines.get(before)) {
            Some((_, key)) => *key,
            None => beginning(&self.language),
        }
    }
}

/// What identifies the beginning of a block in a language.
fn beginning(language: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    language.to_ascii_lowercase().hash(&mut hasher);
    hasher.finish()
}

/// What identifies a line after what came before it.
pub fn chain(context: u64, line: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (context, line).hash(&mut hasher);
    hasher.finish()
}
