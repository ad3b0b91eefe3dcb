//! The branches of a conversation: turns that follow the same one are siblings, and one of them is shown.
//!
//! A turn is a prompt with its answer. Answering once more and editing a prompt both make a sibling of the turn that was
//! there; that one, and what followed it, is put aside and can be shown again.

use std::collections::BTreeMap;

use super::answer::Turn;
use super::record::RecordId;

/// How a conversation's turns follow each other, and those that the shown branch leaves out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// The turns that follow one, or begin the conversation, in the order of their making.
    followers: BTreeMap<Option<RecordId>, Vec<RecordId>>,
    /// Which of them was shown last.
    shown: BTreeMap<Option<RecordId>, RecordId>,
    /// The turns that aren't on the shown branch.
    aside: BTreeMap<RecordId, Turn>,
}

impl Tree {
    /// A new turn follows `before`, and is shown there.
    pub(super) fn add(&mut self, before: Option<RecordId>, turn: RecordId) {
        self.followers.entry(before).or_default().push(turn);
        self.show(before, turn);
    }

    /// Of the turns that follow `before`, this one is shown.
    pub(super) fn show(&mut self, before: Option<RecordId>, turn: RecordId) {
        self.shown.insert(before, turn);
    }

    /// Keeps a turn that isn't shown any more.
    pub(super) fn put_aside(&mut self, turn: Turn) {
        self.aside.insert(turn.record, turn);
    }

    /// Takes back a turn and what was shown below it, to be shown again.
    pub(super) fn take_branch(&mut self, from: RecordId) -> Vec<Turn> {
        let mut branch = Vec::new();
        let mut next = Some(from);
        while let Some(turn) = next.and_then(|record| self.aside.remove(&record)) {
            next = self.shown.get(&Some(turn.record)).copied();
            branch.push(turn);
        }
        branch
    }

    /// The turns that follow `before`, or begin the conversation, in the order of their making.
    pub fn followers(&self, before: Option<RecordId>) -> &[RecordId] {
        self.followers.get(&before).map_or(&[], Vec::as_slice)
    }

    /// Of the turns that follow `before` and were put aside, the one that was shown last.
    pub fn shown_after(&self, before: Option<RecordId>) -> Option<RecordId> {
        let shown = self.shown.get(&before).copied();
        shown.filter(|record| self.aside.contains_key(record))
    }

    /// A turn that isn't on the shown branch.
    pub fn aside_turn(&self, record: RecordId) -> Option<&Turn> {
        self.aside.get(&record)
    }

    /// The turns that aren't on the shown branch, oldest first.
    pub fn aside(&self) -> impl Iterator<Item = &Turn> {
        self.aside.values()
    }

    /// Which of its siblings a turn of the shown branch is, from 1, and how many there are; `(1, 1)` for one without.
    pub fn siblings(&self, turns: &[Turn], at: usize) -> (usize, usize) {
        let all = self.followers(before(turns, at));
        let place = turns
            .get(at)
            .and_then(|turn| all.iter().position(|record| *record == turn.record));
        (place.unwrap_or(0) + 1, all.len().max(1))
    }

    /// Every turn, those of the shown branch included, each with the one that it follows; a turn comes after that one.
    pub fn walk<'a>(&'a self, turns: &'a [Turn]) -> Vec<(Option<RecordId>, &'a Turn)> {
        let shown: BTreeMap<RecordId, &Turn> = turns.iter().map(|turn| (turn.record, turn)).collect();
        let mut found = Vec::new();
        let mut waiting = vec![None];
        while let Some(before) = waiting.pop() {
            for record in self.followers(before) {
                if let Some(turn) = self.aside.get(record).or_else(|| shown.get(record).copied()) {
                    found.push((before, turn));
                    waiting.push(Some(*record));
                }
            }
        }
        found
    }
}

/// The turn that one of the shown branch follows.
pub(super) fn before(turns: &[Turn], at: usize) -> Option<RecordId> {
    at.checked_sub(1)
        .and_then(|before| turns.get(before))
        .map(|turn| turn.record)
}
