//! The message that is selected, to be copied.

use std::ops::Range;

use super::Transcript;
use crate::chat::{RecordId, Turn};

/// A message: the prompt of a turn, or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The turn.
    pub turn: RecordId,
    /// Whether it is the answer.
    pub answer: bool,
}

impl Message {
    /// Its turn, and what it is called among these turns: `answer 2 of 4`.
    pub fn among(self, turns: &[Turn]) -> Option<(&Turn, String)> {
        let at = turns.iter().position(|turn| turn.record == self.turn)?;
        let what = if self.answer { "answer" } else { "prompt" };
        Some((turns.get(at)?, format!("{what} {} of {}", at + 1, turns.len())))
    }
}

impl Transcript {
    /// Selects the message before the one that is selected, or the one after it; at first, the last one.
    pub fn select(&mut self, forward: bool) {
        let messages: Vec<Message> = self.messages().map(|(message, _)| message).collect();
        let at = self
            .selected
            .and_then(|selected| messages.iter().position(|message| *message == selected));
        let last = messages.len().saturating_sub(1);
        let to = match at {
            Some(at) if forward => (at + 1).min(last),
            Some(at) => at.saturating_sub(1),
            None => last,
        };
        self.selected = messages.get(to).copied();
        if let Some(rows) = self.selected_rows() {
            self.reveal(rows.start);
        }
    }

    /// Selects nothing.
    pub fn deselect(&mut self) {
        self.selected = None;
    }

    /// The message that is selected.
    pub fn selected(&self) -> Option<Message> {
        self.selected
    }

    /// The rows of the message that is selected.
    pub fn selected_rows(&self) -> Option<Range<usize>> {
        let selected = self.selected?;
        self.messages()
            .find(|(message, _)| *message == selected)
            .map(|(_, rows)| rows)
    }

    fn messages(&self) -> impl Iterator<Item = (Message, Range<usize>)> {
        self.blocks.iter().enumerate().flat_map(|(at, block)| {
            let prompt = self.start(at) + block.lead;
            let answer = prompt + block.prompt.len() + block.gap;
            let message = |answer| Message {
                turn: block.record,
                answer,
            };
            let answers = answer..answer + block.answer_rows();
            let answered = (!answers.is_empty()).then_some((message(true), answers));
            std::iter::once((message(false), prompt..prompt + block.prompt.len())).chain(answered)
        })
    }
}
