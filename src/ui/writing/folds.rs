//! Large pastes in a draft, each shown as a word: `[Pasted 2 114 lines]`. The draft holds their text all the same.

use std::ops::Range;

use crate::ui::format::grouped;

/// A paste of more characters is folded.
const CHARACTERS: usize = 1000;
/// A paste of more lines is folded.
const LINES: usize = 10;

/// Whether a paste is shown as a word.
pub fn is_large(text: &str) -> bool {
    text.chars().nth(CHARACTERS).is_some() || text.lines().nth(LINES).is_some()
}

/// The word that stands for a paste.
pub fn label(text: &str) -> String {
    match text.lines().count() {
        0 | 1 => format!("[Pasted {} characters]", grouped(text.chars().count())),
        lines => format!("[Pasted {} lines]", grouped(lines)),
    }
}

/// A draft as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    text: String,
    /// Each paste: its bytes in the draft, and those of the word that stands for it.
    words: Vec<(Range<usize>, Range<usize>)>,
}

impl Folded {
    /// Folds these pastes of a text, which follow each other.
    pub fn new(text: &str, pastes: &[Range<usize>]) -> Self {
        let mut folded = Self::default();
        let mut done = 0;
        for paste in pastes {
            folded
                .text
                .push_str(text.get(done..paste.start).unwrap_or_default());
            let start = folded.text.len();
            folded
                .text
                .push_str(&label(text.get(paste.clone()).unwrap_or_default()));
            folded.words.push((paste.clone(), start..folded.text.len()));
            done = paste.end;
        }
        folded.text.push_str(text.get(done..).unwrap_or_default());
        folded
    }

    /// What is shown.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The words that stand for pastes, by their bytes in what is shown.
    pub fn words(&self) -> impl Iterator<Item = Range<usize>> {
        self.words.iter().map(|(_, shown)| shown.clone())
    }

    /// Where a position of the draft is shown; one within a paste at its word's end.
    pub fn shown(&self, position: usize) -> usize {
        match self.words.iter().rev().find(|(paste, _)| paste.start < position) {
            Some((paste, word)) => word.end + position.saturating_sub(paste.end),
            None => position,
        }
    }

    /// The draft's position for one that is shown; one within a word at the nearer end of its paste.
    pub fn position(&self, shown: usize) -> usize {
        match self.words.iter().rev().find(|(_, word)| word.start < shown) {
            Some((paste, word)) if shown < word.end => {
                let nearer = shown - word.start < word.end - shown;
                if nearer { paste.start } else { paste.end }
            }
            Some((paste, word)) => paste.end + (shown - word.end),
            None => shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pastes_are_large_by_characters_or_by_lines() {
        assert!(!is_large(&"x".repeat(1000)) && is_large(&"é".repeat(1001)));
        assert!(!is_large(&"a\n".repeat(10)) && is_large(&"a\n".repeat(11)));
        assert_eq!(label(&"a\n".repeat(2114)), "[Pasted 2 114 lines]");
        assert_eq!(label(&"é".repeat(1530)), "[Pasted 1 530 characters]");
    }

    #[test]
    fn positions_are_found_in_both_directions() {
        let text = "ab<1\n2\n3>cd<4\n5>";
        let folded = Folded::new(text, &[2..9, 11..16]);
        assert_eq!(folded.text(), "ab[Pasted 3 lines]cd[Pasted 2 lines]");
        for position in [0, 1, 2, 9, 10, 11, 16] {
            assert_eq!(folded.position(folded.shown(position)), position, "{position}");
        }
        assert_eq!(folded.shown(9), 18);
        assert_eq!(folded.position(3), 2, "near the word's beginning");
        assert_eq!(folded.position(17), 9, "near its end");
        assert_eq!(folded.words().collect::<Vec<_>>(), [2..18, 20..36]);
        assert_eq!(Folded::new("abc", &[]).text(), "abc");
    }
}
