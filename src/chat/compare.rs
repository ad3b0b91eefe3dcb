//! Several panes at once: which of them take part, which would answer alike, and which answer is kept.

use jiff::Timestamp;

use super::answer::Turn;
use super::branch::{BUSY, go_back, read_only, show};
use super::event::{Effect, NoticeKind, Topic};
use super::pane::{Access, Pane, Settings};
use super::record::RecordId;
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
    /// Whether the pane has not gone on since.
    pub last: bool,
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
    /// same, or that were told the same up to there and have gone on since; by pane.
    pub fn comparison(&self) -> Comparison {
        let focused = self.focused_pane();
        let Some(last) = focused.turns.last() else {
            return Comparison::default();
        };
        let answers = self
            .panes
            .iter()
            .flat_map(|(id, pane)| compared(*id, pane, focused));
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
                () if pane.access != Access::Write => (read_only(*place, pane).unwrap_or_default(), None),
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
        if pane.turns.iter().all(|shown| shown.record != turn) {
            let before = |place: usize| super::tree::before(&pane.turns, place);
            let place =
                (0..pane.turns.len()).find(|place| pane.tree.followers(before(*place)).contains(&turn));
            let Some(place) = place else { return };
            let records = vec![show(pane, at, place, turn)];
            write(pane, records, out);
        }
        for other in &others {
            let Some(pane) = self.panes.get_mut(other) else {
                continue;
            };
            let Some(last) = pane.turns.len().checked_sub(1) else {
                continue;
            };
            let records = vec![go_back(pane, at, last)];
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

/// Where a pane was told the last prompt of another one: last, or after the same prompts.
fn told_the_same(pane: &Pane, other: &Pane) -> Option<usize> {
    let same = |(one, another): (&Turn, &Turn)| one.prompt == another.prompt;
    let (last, theirs) = (
        pane.turns.len().checked_sub(1)?,
        other.turns.len().checked_sub(1)?,
    );
    if same((pane.turns.last()?, other.turns.last()?)) {
        return Some(last);
    }
    let alike = pane.turns.iter().zip(&other.turns).all(same);
    (last > theirs && alike).then_some(theirs)
}

/// A pane's answers to another one's last prompt, in the order of their making.
fn compared(id: PaneId, pane: &Pane, other: &Pane) -> Vec<Compared> {
    let told = told_the_same(pane, other).and_then(|at| Some((at, pane.turns.get(at)?)));
    let Some((at, shown)) = told else {
        return Vec::new();
    };
    let last = at + 1 == pane.turns.len();
    let of = |record: &RecordId| {
        if *record == shown.record {
            Some(shown)
        } else {
            let aside = pane.tree.aside_turn(*record);
            aside.filter(|turn| turn.prompt == shown.prompt)
        }
    };
    let before = super::tree::before(&pane.turns, at);
    let turns: Vec<&Turn> = pane.tree.followers(before).iter().filter_map(of).collect();
    let count = turns.len();
    let make = |(at, turn): (usize, &Turn)| Compared {
        pane: id,
        session: pane.session,
        title: pane.title.clone(),
        settings: pane.settings.clone(),
        version: (at + 1, count),
        last,
        turn: turn.clone(),
    };
    turns.into_iter().enumerate().map(make).collect()
}
