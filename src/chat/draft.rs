//! What is being written: the composer's content, and which prompt it takes the place of.

use std::ops::Range;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::PaneId;
use super::event::Effect;
use super::pane::{Access, Pane};
use super::record::RecordId;
use super::state::State;
use super::turn::log_draft;

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

    /// Puts another draft before what is there, a blank line between them; one that is there already isn't doubled. Whether
    /// something else was there.
    pub fn put_back(&mut self, before: Self) -> bool {
        if self.text == before.text || before.text.is_empty() {
            return false;
        }
        if self.is_blank() {
            *self = Self::at_end(before.text).with_pastes(before.pastes);
            return false;
        }
        let more = before.text.len() + APART.len();
        self.cursor += more;
        let moved = self
            .pastes
            .iter()
            .map(|paste| paste.start + more..paste.end + more);
        self.pastes = before.pastes.into_iter().chain(moved).collect();
        self.text = format!("{}{APART}{}", before.text, self.text);
        true
    }
}

/// What stands between two drafts in one.
const APART: &str = "\n\n";

/// A prompt that is sent, or waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What the model is told.
    pub text: String,
    /// How it was typed, where that is something else.
    pub typed: Option<Typed>,
}

impl Said {
    /// What a draft stands for: itself, or a text in its place.
    pub fn of(draft: &Draft, text: Option<String>) -> Self {
        let own = draft.text();
        let other = text.as_ref().is_some_and(|text| text != own);
        let typed = Typed {
            text: other.then(|| own.to_owned()),
            pastes: draft.pastes().to_vec(),
        };
        Self {
            text: text.unwrap_or_else(|| own.to_owned()),
            typed: Some(typed).filter(|typed| *typed != Typed::default()),
        }
    }

    /// The draft that it was, with the caret at its end.
    pub fn draft(&self) -> Draft {
        Typed::draft(self.typed.as_ref(), &self.text)
    }
}

impl From<String> for Said {
    fn from(text: String) -> Self {
        Self { text, typed: None }
    }
}

/// How a prompt was typed: files are mentioned there, and not held, and large pastes stay together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Typed {
    /// The draft; none where it was sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Large pastes in it, by their bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pastes: Vec<Range<usize>>,
}

impl Typed {
    /// The draft that became a prompt.
    pub(super) fn draft(typed: Option<&Self>, sent: &str) -> Draft {
        let text = typed.and_then(|typed| typed.text.as_deref()).unwrap_or(sent);
        let pastes = typed.map_or(&[][..], |typed| &typed.pastes);
        Draft::at_end(text).with_pastes(pastes.iter().cloned())
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
    /// Large pastes in that, by their bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stashed_pastes: Vec<Range<usize>>,
}

impl Edit {
    /// An edit of a turn, in the place of a draft.
    pub(super) fn new(turn: RecordId, stashed: Draft) -> Self {
        Self {
            turn,
            stashed: stashed.text,
            stashed_pastes: stashed.pastes,
        }
    }

    /// The draft that comes back, with the caret at its end.
    pub(super) fn stash(self) -> Draft {
        Draft::at_end(self.stashed).with_pastes(self.stashed_pastes)
    }
}

impl State {
    pub(super) fn set_draft(&mut self, at: Timestamp, draft: Draft, out: &mut Vec<Effect>) {
        let (id, model) = (self.focused, self.snapshot.info.model.clone());
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.draft = draft;
            log_draft(pane, at, &model, out);
        }
    }

    pub(super) fn clear_draft(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if self.give_up_edit(at, out) {
            return;
        }
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            pane.give_up(pane.draft.clone());
        }
        self.set_draft(at, Draft::default(), out);
    }

    /// What is written for several panes goes along with the focus to another of them that has no draft of its own.
    pub(super) fn take_draft_along(&mut self, at: Timestamp, from: PaneId, out: &mut Vec<Effect>) {
        let to = self.focused;
        let takes_part =
            |pane: &&Pane| pane.receives && pane.access == Access::Write && pane.edited().is_none();
        let [source, target] = [from, to].map(|id| self.panes.get(&id).filter(takes_part));
        let goes = source.is_some_and(|pane| !pane.draft.is_blank())
            && target.is_some_and(|pane| pane.draft.is_blank() && pane.queued.is_none());
        if !self.broadcast || from == to || !goes {
            return;
        }
        let model = self.snapshot.info.model.clone();
        let mut draft = Draft::default();
        for id in [from, to] {
            if let Some(pane) = self.panes.get_mut(&id) {
                std::mem::swap(&mut pane.draft, &mut draft);
                log_draft(pane, at, &model, out);
            }
        }
    }
}
