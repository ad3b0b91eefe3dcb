//! What a draft was before: to take changes back, and to make them again.

use crate::chat::Draft;

/// The most drafts that are kept.
const MOST: usize = 500;
/// The most bytes of drafts that are kept.
const BYTES: usize = 8 << 20;

/// What a change is. Changes of one kind that follow each other are taken back together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Characters were typed; whether a word begins with them.
    Typing {
        /// Whether a word begins.
        word: bool,
    },
    /// Something was deleted.
    Deleting,
    /// Something else: each by itself.
    Other,
}

/// Drafts of before, and those that were taken back.
#[derive(Debug, Clone, Default)]
pub struct Undo {
    back: Vec<Draft>,
    forth: Vec<Draft>,
    /// The last change, with the length and the caret that it led to.
    last: Option<(Change, usize, usize)>,
    /// How many drafts there were before what is to be taken back as one.
    begun: Option<usize>,
}

impl Undo {
    /// Notes a change from one draft to the next. A mere motion of the caret ends what is taken back together.
    pub fn note(&mut self, before: &Draft, after: &Draft, change: Change) {
        if before.text() == after.text() {
            self.last = None;
            return;
        }
        let goes_on = match (self.last, change) {
            (_, Change::Other | Change::Typing { word: true }) | (None, _) => false,
            (Some((last, length, caret)), change) => {
                std::mem::discriminant(&last) == std::mem::discriminant(&change)
                    && (length, caret) == (before.text().len(), before.cursor())
            }
        };
        self.last = Some((change, after.text().len(), after.cursor()));
        self.forth.clear();
        if !goes_on {
            self.back.push(before.clone());
            let mut bytes: usize = self.back.iter().map(|draft| draft.text().len()).sum();
            while self.back.len() > 1 && (self.back.len() > MOST || bytes > BYTES) {
                bytes -= self.back.remove(0).text().len();
            }
        }
    }

    /// How many changes can be taken back.
    pub fn depth(&self) -> usize {
        self.back.len()
    }

    /// What comes after the first `depth` changes is taken back as one, up to [`Undo::join`].
    pub fn begin(&mut self, depth: usize) {
        self.begun = Some(depth);
    }

    /// Ends what is taken back as one.
    pub fn join(&mut self) {
        if let Some(depth) = self.begun.take() {
            self.back.truncate(depth + 1);
            self.last = None;
        }
    }

    /// The draft before the last change; `now` can be had again.
    pub fn undo(&mut self, now: &Draft) -> Option<Draft> {
        let before = self.back.pop()?;
        self.last = None;
        self.forth.push(now.clone());
        Some(before)
    }

    /// The draft after the change that was taken back last.
    pub fn redo(&mut self, now: &Draft) -> Option<Draft> {
        let after = self.forth.pop()?;
        self.last = None;
        self.back.push(now.clone());
        Some(after)
    }

    /// Forgets all: the draft is another one now.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(undo: &mut Undo, draft: &mut Draft, text: &str) {
        for c in text.chars() {
            let before = draft.clone();
            let word = c != ' ' && draft.text().ends_with(' ');
            *draft = Draft::at_end(format!("{}{c}", draft.text()));
            undo.note(&before, draft, Change::Typing { word });
        }
    }

    #[test]
    fn typing_is_taken_back_by_words_and_made_again() {
        let (mut undo, mut draft) = (Undo::default(), Draft::default());
        typed(&mut undo, &mut draft, "one two three");
        let mut seen = Vec::new();
        while let Some(before) = undo.undo(&draft) {
            draft = before;
            seen.push(draft.text().to_owned());
        }
        assert_eq!(seen, ["one two ", "one ", ""]);
        while let Some(after) = undo.redo(&draft) {
            draft = after;
        }
        assert_eq!(draft.text(), "one two three");
    }

    #[test]
    fn a_motion_or_another_kind_of_change_begins_anew() {
        let mut undo = Undo::default();
        let drafts = ["", "a", "ab", "a", "ac"].map(Draft::at_end);
        undo.note(&drafts[0], &drafts[1], Change::Typing { word: false });
        undo.note(&drafts[1], &drafts[1], Change::Other);
        undo.note(&drafts[1], &drafts[2], Change::Typing { word: false });
        undo.note(&drafts[2], &drafts[3], Change::Deleting);
        undo.note(&drafts[3], &drafts[4], Change::Typing { word: false });
        for expected in ["a", "ab", "a", ""] {
            let before = undo.undo(&drafts[4]).unwrap();
            assert_eq!(before.text(), expected);
        }
        assert_eq!(undo.undo(&drafts[0]), None);
    }

    #[test]
    fn a_new_change_ends_what_could_be_made_again() {
        let (mut undo, mut draft) = (Undo::default(), Draft::default());
        typed(&mut undo, &mut draft, "one");
        draft = undo.undo(&draft).unwrap();
        typed(&mut undo, &mut draft, "two");
        assert_eq!(undo.redo(&draft), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut undo = Undo::default();
        for n in 0..2 * MOST {
            let (before, after) = (Draft::at_end(n.to_string()), Draft::at_end((n + 1).to_string()));
            undo.note(&before, &after, Change::Other);
        }
        assert_eq!(undo.back.len(), MOST);
        let large = Draft::at_end("x".repeat(BYTES));
        for _ in 0..3 {
            undo.note(&large, &Draft::default(), Change::Other);
        }
        assert_eq!(undo.back.len(), 1);
    }
}
