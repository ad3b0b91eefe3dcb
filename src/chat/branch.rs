//! Branches and copies: answers once more, edited prompts, siblings, forks.

use jiff::Timestamp;

use super::answer::{AnswerTokens, Stats, Status, Turn};
use super::draft::{Draft, Edit, Said};
use super::event::{Effect, ForkAt, NoticeKind, Topic, Way};
use super::handle::Why;
use super::hold::recommend;
use super::new_log::NewLog;
use super::pane::{Access, Before, Pane, Running};
use super::record::{Kind, Record, RecordId};
use super::replay::replay;
use super::room::FULL;
use super::state::{EngineStatus, State};
use super::tree::before;
use super::turn::{log_draft, name_model, write};
use super::{PaneId, SessionId, TurnId};
use crate::engine::Begun;
use crate::text::spans::Spanned;

impl State {
    /// Answers the focused pane's last prompt once more, beside the answer that is there.
    pub(super) fn regenerate(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if let Err(why) = self.may_branch() {
            return self.refuse_while(at, why, out);
        }
        let id = self.focused;
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        if pane.edit.is_some() {
            let why = "a prompt is being edited here: send it, or give it up, first";
            return self.refuse(at, why.into(), out);
        }
        let Some(last) = pane.turns.len().checked_sub(1) else {
            return self.refuse(at, "there is no answer yet to give once more".into(), out);
        };
        let Some(turn) = pane.turns.get(last) else { return };
        let (prompt, draft) = (turn.said(), turn.draft());
        // A greedy answer to the same conversation is the same, unless the pane was changed since.
        let greedy = |turn: &Turn| turn.seed.is_none() && matches!(turn.status, Status::Done { .. });
        let same = pane.settings.sampling.is_greedy() && greedy(turn);
        // One that was refused is in the draft again, and goes from there.
        if !turn.in_history() && pane.draft.text() == draft.text() {
            pane.draft = Draft::default();
        }
        branch_off(pane, last);
        self.start_turn(at, id, prompt, out);
        if same {
            let text = format!(
                "nothing is drawn at random in pane {id}: with the same settings it answers the same once more"
            );
            self.notify_way(at, NoticeKind::Info, text, Way::Temperature);
        }
    }

    /// Sends a prompt as a sibling of the turn that is being edited.
    pub(super) fn send_edit(&mut self, at: Timestamp, turn: usize, said: Said, out: &mut Vec<Effect>) {
        if let Err(why) = self.may_branch() {
            return self.refuse_while(at, why, out);
        }
        let id = self.focused;
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        let Some(edit) = pane.edit.take() else { return };
        pane.draft = edit.stash();
        branch_off(pane, turn);
        self.start_turn(at, id, said, out);
    }

    /// Takes the last prompt into the draft, to be edited; again, the one before it.
    pub(super) fn edit_prompt(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        let id = self.focused;
        let Some(pane) = self.panes.get(&id) else { return };
        if pane.running().is_some() {
            return self.refuse_while(at, busy(id), out);
        }
        let why = if let Some(why) = read_only(id, pane) {
            Some(why)
        } else if pane.edited().is_some() && !edits_nothing(pane) {
            Some("this prompt was changed: send it, or give it up, before you edit another one".into())
        } else if pane.edited() == Some(0) {
            Some("this is the first prompt".into())
        } else if pane.turns.is_empty() {
            Some("there is no prompt yet to edit".into())
        } else {
            None
        };
        if let Some(why) = why {
            return self.refuse(at, why, out);
        }
        let turn = pane.edited().unwrap_or(pane.turns.len()).saturating_sub(1);
        if let Some(pane) = self.panes.get_mut(&id) {
            edit(pane, turn);
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
    }

    /// Puts the draft back that was there before a prompt was edited, and keeps what was changed in the history; whether
    /// one was edited.
    pub(super) fn give_up_edit(&mut self, at: Timestamp, out: &mut Vec<Effect>) -> bool {
        let Some(pane) = self.panes.get_mut(&self.focused) else {
            return false;
        };
        let unchanged = edits_nothing(pane) || pane.draft.is_blank();
        let Some(edit) = pane.edit.take() else {
            return false;
        };
        let draft = std::mem::replace(&mut pane.draft, edit.stash());
        if !unchanged {
            pane.give_up(draft);
        }
        log_draft(pane, at, &self.snapshot.info.model, out);
        true
    }

    /// Shows the next or the previous sibling of the prompt that is being edited, else of the last one that has some.
    pub(super) fn walk(&mut self, at: Timestamp, forward: bool, out: &mut Vec<Effect>) {
        let Some(pane) = self.panes.get_mut(&self.focused) else {
            return;
        };
        if pane.running().is_some() {
            return self.refuse_while(at, busy(self.focused), out);
        }
        let edited = pane.edited();
        if edited.is_some() && !edits_nothing(pane) {
            let why = "this prompt was changed: send it, or give it up, before you look at others";
            return self.refuse(at, why.into(), out);
        }
        // What was put aside at the end, where another pane's answer was kept, comes first.
        let end = pane.turns.len();
        if edited.is_none()
            && let Some(aside) = pane.tree.shown_after(before(&pane.turns, end))
        {
            pane.went_back = Some(before(&pane.turns, end));
            let records = vec![show(pane, at, end, aside)];
            return write(pane, records, out);
        }
        let has_siblings = |turn: &usize| pane.tree.siblings(&pane.turns, *turn).1 > 1;
        let place = match edited {
            Some(turn) => Some(turn).filter(has_siblings),
            None => (0..pane.turns.len()).rev().find(has_siblings),
        };
        let back = pane.back_to().filter(|_| edited.is_none());
        // There, that nothing follows is one of the versions: the one before the first.
        if let Some(end) = back.filter(|back| place.is_none_or(|place| place <= *back)) {
            let (here, of) = pane.tree.siblings(&pane.turns, end);
            if here == if forward { of } else { 1 } {
                let records = vec![go_back(pane, at, end)];
                return write(pane, records, out);
            }
        }
        let Some(turn) = place else {
            let text = "there is no other version here".to_owned();
            self.notify_way(at, NoticeKind::Warning, text, Way::Another);
            return out.push(Effect::Bell);
        };
        let (here, of) = pane.tree.siblings(&pane.turns, turn);
        let next = if forward { here % of } else { (here + of - 2) % of };
        let above = before(&pane.turns, turn);
        let Some(sibling) = pane.tree.followers(above).get(next).copied() else {
            return;
        };
        let mut records = vec![show(pane, at, turn, sibling)];
        if edited.is_some() {
            edit(pane, turn);
        }
        records.extend(pane.draft_record(at));
        write(pane, records, out);
    }

    /// Has the focused pane's last answer, which was cut off, go on where it ended.
    pub(super) fn go_on(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if let Err(why) = self.may_branch() {
            return self.refuse_while(at, why, out);
        }
        if let Some(limit) = self.full(self.focused_pane()) {
            let text = format!("{FULL}: {limit}");
            self.notify_way(at, NoticeKind::Warning, text, Way::Full);
            return out.push(Effect::Bell);
        }
        let (id, number) = (self.focused, TurnId(self.next_turn));
        let model = self.snapshot.info.model.clone();
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        let Some(turn) = pane.turns.last_mut().filter(|turn| turn.can_go_on()) else {
            let why = "there is no answer here that was cut off";
            return self.refuse(at, why.into(), out);
        };
        let known = turn.tokens.model == model && !turn.tokens.ids.is_empty();
        let (tokens, mut cut) = (turn.tokens.clone(), Spanned::default());
        if known {
            let keep = turn.answer.len().saturating_sub(turn.tokens.held);
            cut = turn.answer.split_off(keep);
        } else {
            turn.tokens = AnswerTokens::default();
        }
        turn.tokens.held = 0;
        let begun = Begun {
            tokens: turn.tokens.ids.clone(),
            text: turn.answer.as_str().to_owned(),
        };
        let stats = match &turn.status {
            Status::Done { stats, .. } => *stats,
            Status::Stopped { stats } => stats.unwrap_or_default(),
            _ => Stats::default(),
        };
        let submitting = Status::Submitting {
            turn: number,
            stopping: false,
        };
        let status = std::mem::replace(&mut turn.status, submitting);
        let (parent, keep) = (turn.record, turn.answer.len());
        pane.run = Running {
            before: Some(Before {
                status,
                stats,
                cut,
                tokens,
            }),
            ..Running::default()
        };
        let mut records: Vec<Record> = name_model(pane, at, &model).into_iter().collect();
        records.push(pane.record(at, Some(parent), Kind::Continue { keep }));
        let request = pane.make_request(Some(begun));
        write(pane, records, out);
        self.next_turn += 1;
        self.unnamed += 1;
        out.push(Effect::Submit {
            pane: id,
            turn: number,
            request,
        });
    }

    /// Copies the focused pane's shown branch, up to somewhere, into a new pane.
    pub(super) fn fork(&mut self, at: Timestamp, session: SessionId, end: ForkAt, out: &mut Vec<Effect>) {
        let pane = self.focused_pane();
        if pane.turns.is_empty() {
            return self.refuse(at, "there is nothing to fork yet".into(), out);
        }
        if self.panes.len() >= usize::from(PaneId::MAX) {
            return self.refuse(at, too_many(), out);
        }
        let (model, settings) = (pane.model_named(&self.snapshot.info.model), pane.settings.clone());
        let (sources, private, receives) = (pane.sources.clone(), pane.private, pane.receives);
        let place = |wanted: RecordId| pane.turns.iter().position(|turn| turn.record == wanted);
        let (count, draft) = match end {
            ForkAt::End => (None, None),
            ForkAt::After(turn) => (place(turn).map(|turn| turn + 1), None),
            ForkAt::Before(turn) => (place(turn), place(turn).map(|turn| pane.turns[turn].draft())),
        };
        let count = count.unwrap_or(pane.turns.len());
        let mut log = NewLog::begin(at, session, model, settings, &pane.title);
        let mut last = None;
        for (index, turn) in pane.turns[..count].iter().enumerate() {
            last = Some(log.turn(last, turn, index + 1));
        }
        let records = log.into_records();
        let mut copy = Pane::restore(replay(session, records.iter().cloned()), Access::Write);
        (copy.sources, copy.private, copy.receives) = (sources, private, receives);
        write(&copy, records, out);
        if let Some(draft) = draft {
            copy.draft = draft;
            log_draft(&mut copy, at, &self.snapshot.info.model, out);
        }
        self.open_new(at, copy, out);
    }

    /// Reopens the pane that was closed last.
    pub(super) fn reopen(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if self.closed.is_empty() {
            return self.refuse(at, "there is no closed pane to reopen".into(), out);
        }
        if self.panes.len() >= usize::from(PaneId::MAX) {
            return self.refuse(at, too_many(), out);
        }
        if let Some((id, mut pane)) = self.closed.pop() {
            recommend(&mut pane, at, &self.defaults, out);
            match self.panes.entry(id) {
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(pane);
                    self.focus(id);
                }
                std::collections::btree_map::Entry::Occupied(_) => self.add_pane(at, pane, out),
            }
            self.look_again(out);
        }
    }

    /// Swaps the focused pane with its neighbour, around the ends.
    pub(super) fn move_pane(&mut self, by: usize) {
        let here = self.focused;
        let Some(other) = self.neighbour(by).filter(|other| *other != here) else {
            return;
        };
        if let (Some(mine), Some(its)) = (self.panes.remove(&here), self.panes.remove(&other)) {
            self.panes.insert(other, mine);
            self.panes.insert(here, its);
            self.focus(other);
        }
    }

    /// Whether the focused pane can send another version of a prompt now.
    fn may_branch(&self) -> Result<(), Why> {
        let pane = self.focused_pane();
        let engine = |text: String| Err((text, Some(Topic::Engine)));
        match &self.engine {
            _ if pane.access != Access::Write => {
                Err((read_only(self.focused, pane).unwrap_or_default(), None))
            }
            _ if pane.running().is_some() => Err(busy(self.focused)),
            EngineStatus::Failed(why) => {
                engine(format!("nothing was sent, as the engine doesn't run: {why}"))
            }
            EngineStatus::Loading { .. } => {
                engine("the model is still being loaded: try again when it is there".into())
            }
            EngineStatus::Ready if self.held => {
                engine("the model is being changed: try again when that is done".into())
            }
            EngineStatus::Ready => Ok(()),
        }
    }
}

/// Why nothing is changed in a pane under an answer.
fn busy(id: PaneId) -> Why {
    (BUSY.to_owned(), Some(Topic::Answer(id)))
}

/// Why nothing is changed under an answer.
pub(super) const BUSY: &str = "an answer runs here: stop it, or wait for its end, first";

/// Why a pane takes no prompt, where it can only be read.
pub(super) fn read_only(id: PaneId, pane: &Pane) -> Option<String> {
    match &pane.access {
        Access::Write => None,
        Access::Elsewhere => Some(format!(
            "pane {id} is open in another process and can only be read here"
        )),
        Access::Unwritable(why) => Some(format!("pane {id} can only be read here: {why}")),
    }
}

pub(super) fn too_many() -> String {
    format!("there are {} panes already: close one first", PaneId::MAX)
}

/// Puts the shown branch aside from a turn on; what is sent next follows the one before.
pub(super) fn branch_off(pane: &mut Pane, turn: usize) {
    let above = before(&pane.turns, turn);
    for turn in pane.turns.split_off(turn.min(pane.turns.len())) {
        pane.tree.put_aside(turn);
    }
    pane.log.head = Some(above.unwrap_or(RecordId::BEGINNING));
}

/// Puts the shown branch aside from a turn on, and shows that nothing follows the one before. Gives the record of it.
pub(super) fn go_back(pane: &mut Pane, at: Timestamp, turn: usize) -> Record {
    branch_off(pane, turn);
    pane.went_back = Some(before(&pane.turns, turn));
    pane.record(at, pane.log.head, Kind::Head { turn })
}

/// Shows a branch from a turn on: `sibling` and what was shown below it. Gives the record of it.
pub(super) fn show(pane: &mut Pane, at: Timestamp, turn: usize, sibling: RecordId) -> Record {
    let above = before(&pane.turns, turn);
    branch_off(pane, turn);
    pane.tree.show(above, sibling);
    let branch = pane.tree.take_branch(sibling);
    pane.turns.extend(branch);
    pane.log.head = pane.turns.last().map(|turn| turn.record);
    let head = Kind::Head {
        turn: pane.turns.len(),
    };
    pane.record(at, pane.log.head, head)
}

/// Takes a turn's prompt into the draft; what was there before any edit is kept.
fn edit(pane: &mut Pane, turn: usize) {
    let Some(turn) = pane.turns.get(turn) else {
        return;
    };
    let (record, prompt) = (turn.record, turn.draft());
    let draft = std::mem::replace(&mut pane.draft, prompt);
    let stashed = pane.edit.take().map_or(draft, Edit::stash);
    pane.edit = Some(Edit::new(record, stashed));
}

/// Whether the draft still is the prompt that is being edited.
fn edits_nothing(pane: &Pane) -> bool {
    let turn = pane.edited().and_then(|turn| pane.turns.get(turn));
    turn.is_some_and(|turn| turn.draft().text() == pane.draft.text())
}
