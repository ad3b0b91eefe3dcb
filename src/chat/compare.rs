//! Several panes at once: which of them take part, which would answer alike, and which answer is kept.

use jiff::Timestamp;

use super::answer::Turn;
use super::branch::{BUSY, branch_off, read_only, show};
use super::event::{Effect, NoticeKind, Topic};
use super::pane::{Access, Pane, Settings};
use super::record::{Kind, RecordId};
use super::state::State;
use super::turn::write;
use super::{PaneId, SessionId};
use crate::text::message::Message;

/// An answer beside others to the same prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The pane that it is in.
    pub pane: PaneId,
    /// That pane's conversation.
    pub session: SessionId,
    /// Its title.
    pub title: String,
    /// How it was asked for, as far as the pane still has that.
    pub settings: Settings,
    /// Which of the answers in its pane it is, from 1, and of how many.
    pub version: (usize, usize),
    /// The prompt with the answer.
    pub turn: Turn,
}

/// Answers to the same prompt.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// The prompt.
    pub prompt: String,
    /// The model that is loaded.
    pub model: String,
    /// Its answers: the focused pane's versions first, then those of other panes, in order.
    pub answers: Vec<Compared>,
}

impl State {
    /// The answers to the focused pane's last prompt: its versions there, and those of other panes whose last prompt is the
    /// same; by pane.
    pub fn comparison(&self) -> Comparison {
        let Some(last) = self.focused_pane().turns.last() else {
            return Comparison::default();
        };
        let answers = self
            .panes
            .iter()
            .flat_map(|(id, pane)| compared(*id, pane, &last.prompt));
        Comparison {
            prompt: last.prompt.clone(),
            model: self.snapshot.info.model.clone(),
            answers: answers.collect(),
        }
    }

    /// Groups of panes that would answer the next prompt alike: what they were told is the same, how they choose tokens
    /// too, and nothing is drawn at random, or from the same seed.
    pub fn alike(&self) -> Vec<Vec<PaneId>> {
        let mut groups: Vec<(Vec<Message>, Vec<PaneId>)> = Vec::new();
        for id in self.targets() {
            let Some(pane) = self.pane(id) else { continue };
            let sampling = pane.settings.sampling;
            if !sampling.is_greedy() && sampling.seed.is_none() {
                continue;
            }
            let same = |(_, ids): &(Vec<Message>, Vec<PaneId>)| {
                let first = ids.first().and_then(|id| self.pane(*id));
                first.is_some_and(|first| chooses_alike(&first.settings, &pane.settings))
            };
            let messages = pane.messages();
            match groups.iter_mut().find(|group| same(group) && group.0 == messages) {
                Some((_, ids)) => ids.push(id),
                None => groups.push((messages, vec![id])),
            }
        }
        let groups = groups.into_iter().map(|(_, ids)| ids);
        groups.filter(|ids| ids.len() > 1).collect()
    }

    /// Says which panes would answer alike, while a prompt would go to several; once, until these are others.
    pub(super) fn tell_alike(&mut self, at: Timestamp) {
        let groups = if self.broadcast { self.alike() } else { Vec::new() };
        if self.told_alike == groups {
            return;
        }
        self.told_alike.clone_from(&groups);
        for ids in groups {
            let which = if ids.len() == self.panes.len() {
                "all panes".to_owned()
            } else {
                let ids: Vec<String> = ids.iter().map(PaneId::to_string).collect();
                format!("panes {}", ids.join(", "))
            };
            let text = format!(
                "{which} will answer alike: same settings, nothing drawn at random; give one a temperature or a preset"
            );
            self.notify(at, NoticeKind::Info, text);
        }
    }

    /// Has the focused pane take part in broadcasts, or no more.
    pub(super) fn toggle_receives(&mut self, at: Timestamp) {
        let id = self.focused;
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        pane.receives = !pane.receives;
        let text = if pane.receives {
            format!("pane {id} takes part when a prompt goes to several panes")
        } else {
            format!("pane {id} takes no part when a prompt goes to several panes")
        };
        self.notify(at, NoticeKind::Info, text);
        self.tell_alike(at);
    }

    /// Keeps an answer: it is shown, and the other panes go back to where they were before their last prompts.
    pub(super) fn keep(
        &mut self,
        at: Timestamp,
        id: PaneId,
        turn: RecordId,
        others: &[PaneId],
        out: &mut Vec<Effect>,
    ) {
        let others: Vec<PaneId> = others.iter().copied().filter(|other| *other != id).collect();
        for place in others.iter().chain([&id]) {
            let Some(pane) = self.pane(*place) else { return };
            let why = match () {
                () if pane.access == Access::ReadOnly => (read_only(*place), None),
                () if pane.running().is_some() => {
                    (format!("pane {place}: {BUSY}"), Some(Topic::Answer(*place)))
                }
                () if pane.edit.is_some() => {
                    let why =
                        format!("pane {place}: a prompt is being edited: send it, or give it up, first");
                    (why, None)
                }
                () => continue,
            };
            return self.refuse_while(at, why, out);
        }
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        let last = pane.turns.len().saturating_sub(1);
        if pane.turns.last().is_none_or(|shown| shown.record != turn) {
            if pane.tree.aside_turn(turn).is_none() {
                return;
            }
            let records = vec![show(pane, at, last, turn)];
            write(pane, records, out);
        }
        for other in &others {
            let Some(pane) = self.panes.get_mut(other) else {
                continue;
            };
            let Some(last) = pane.turns.len().checked_sub(1) else {
                continue;
            };
            branch_off(pane, last);
            let head = Kind::Head { turn: last };
            let records = vec![pane.record(at, pane.log.head, head)];
            write(pane, records, out);
        }
        self.focus(id);
        if !others.is_empty() {
            let text = format!("the answer of pane {id} is kept; the others are put aside as branches there");
            self.notify(at, NoticeKind::Info, text);
        }
    }
}

/// Whether two panes choose tokens alike.
fn chooses_alike(one: &Settings, other: &Settings) -> bool {
    let mut like = other.clone();
    if one.sampling.is_greedy() && other.sampling.is_greedy() {
        like.sampling = one.sampling;
    }
    *one == like
}

/// A pane's answers to a prompt that it was told last, in the order of their making.
fn compared(id: PaneId, pane: &Pane, prompt: &str) -> Vec<Compared> {
    let Some(last) = pane.turns.last().filter(|turn| turn.prompt == prompt) else {
        return Vec::new();
    };
    let before = super::tree::before(&pane.turns, pane.turns.len().saturating_sub(1));
    let of = |record: &RecordId| {
        if *record == last.record {
            Some(last)
        } else {
            pane.tree.aside_turn(*record).filter(|turn| turn.prompt == prompt)
        }
    };
    let turns: Vec<&Turn> = pane.tree.followers(before).iter().filter_map(of).collect();
    let count = turns.len();
    let make = |(at, turn): (usize, &Turn)| Compared {
        pane: id,
        session: pane.session,
        title: pane.title.clone(),
        settings: pane.settings.clone(),
        version: (at + 1, count),
        turn: turn.clone(),
    };
    turns.into_iter().enumerate().map(make).collect()
}
