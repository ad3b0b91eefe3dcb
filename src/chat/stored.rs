//! Stored conversations that no pane shows, or that are to be shown: opened, renamed, deleted.

use jiff::Timestamp;

use super::branch::{read_only, too_many};
use super::event::{Effect, NoticeKind, Way};
use super::handle::entitle;
use super::pane::{Access, Pane, Settings};
use super::record::{Kind, Marks};
use super::replay::Conversation;
use super::state::State;
use super::turn::{begin_log, log_draft, one_line, write};
use super::writer::{Ask, Write};
use super::{PaneId, SessionId};

impl State {
    /// Shows a stored conversation.
    pub(super) fn open_stored(&mut self, at: Timestamp, session: SessionId, out: &mut Vec<Effect>) {
        if let Some(pane) = self.pane_with(session) {
            self.focus(pane);
            return self.look_again(out);
        }
        if self.panes.len() >= usize::from(PaneId::MAX) && !self.is_free() {
            return self.refuse(at, too_many(), out);
        }
        if let Some(place) = self.closed.iter().position(|(_, pane)| pane.session == session) {
            let (_, pane) = self.closed.remove(place);
            if self.is_free() {
                self.panes.remove(&self.focused);
            }
            self.add_pane_at(at, self.focused, pane, out);
            return self.look_again(out);
        }
        out.push(Effect::Write(Write::Ask(Ask::Open(session))));
    }

    /// Asks for the focused pane's conversation once more, where another process had it: that may have ended.
    pub(super) fn look_again(&self, out: &mut Vec<Effect>) {
        let pane = self.focused_pane();
        if pane.access == Access::Elsewhere {
            out.push(Effect::Write(Write::Ask(Ask::Open(pane.session))));
        }
    }

    /// Shows what another process wrote since to a conversation that could only be read here, and goes on with it where
    /// nobody else has it any more. What was written in its composer here is kept.
    pub(super) fn take_again(
        &mut self,
        at: Timestamp,
        id: PaneId,
        conversation: Conversation,
        access: Access,
        out: &mut Vec<Effect>,
    ) {
        let Some(before) = self.panes.get(&id) else { return };
        let mut pane = Pane::restore(conversation, access);
        if before.draft != before.log.draft {
            pane.draft.put_back(before.draft.clone());
        }
        (pane.receives, pane.unread, pane.opener) = (before.receives, before.unread, before.opener);
        let (knocked, refusal) = (before.knocked, read_only(id, &pane));
        let blank = pane.draft.is_blank();
        log_draft(&mut pane, at, &self.snapshot.info.model, out);
        self.panes.insert(id, pane);
        match refusal {
            Some(why) if knocked => self.refuse(at, why, out),
            Some(_) => {}
            None => {
                let text = format!("pane {id} is open here alone now, and takes prompts again");
                match blank {
                    true => self.notify(at, NoticeKind::Info, text),
                    false => self.notify_way(at, NoticeKind::Info, text, Way::Send),
                }
            }
        }
    }

    /// Gives a stored conversation another title.
    pub(super) fn rename_stored(
        &mut self,
        at: Timestamp,
        session: SessionId,
        title: &str,
        out: &mut Vec<Effect>,
    ) {
        let panes = self.panes.values_mut();
        let closed = self.closed.iter_mut().map(|(_, pane)| pane);
        if let Some(pane) = panes.chain(closed).find(|pane| pane.session == session) {
            if let Some(why) = pane.access.refusal("give it another title there") {
                return self.refuse(at, why, out);
            }
            return entitle(pane, at, title, &self.snapshot.info.model, out);
        }
        let title = one_line(title);
        if !title.is_empty() {
            out.push(Effect::Write(Write::Ask(Ask::Rename { session, at, title })));
        }
    }

    /// Deletes a stored conversation.
    pub(super) fn remove_stored(&mut self, at: Timestamp, session: SessionId, out: &mut Vec<Effect>) {
        if let Some(pane) = self.pane_with(session) {
            let why = format!("it is open in pane {pane}: close that first");
            return self.refuse(at, why, out);
        }
        self.closed.retain(|(_, pane)| pane.session != session);
        out.push(Effect::Write(Write::Ask(Ask::Remove { session, at })));
    }

    /// Has a stored conversation listed otherwise.
    pub(super) fn mark_stored(
        &mut self,
        at: Timestamp,
        session: SessionId,
        marks: Marks,
        out: &mut Vec<Effect>,
    ) {
        let panes = self.panes.values_mut();
        let closed = self.closed.iter_mut().map(|(_, pane)| pane);
        let Some(pane) = panes.chain(closed).find(|pane| pane.session == session) else {
            return out.push(Effect::Write(Write::Ask(Ask::Mark { session, at, marks })));
        };
        if let Some(why) = pane.access.refusal("pin or archive it there") {
            return self.refuse(at, why, out);
        }
        pane.marks = marks;
        let mut records = Vec::new();
        begin_log(pane, at, &self.snapshot.info.model, &mut records);
        records.push(pane.record(at, pane.log.head, Kind::Marks { marks }));
        write(pane, records, out);
    }
}

impl State {
    /// Whether nothing has begun in the focused pane.
    pub(super) fn is_free(&self) -> bool {
        self.focused_pane().is_untouched(&self.defaults)
    }
}

impl Pane {
    /// Whether it is as it was made: nothing was said, written or set.
    fn is_untouched(&self, defaults: &Settings) -> bool {
        let begun = self.log.next > 0 || !self.turns.is_empty() || self.queued.is_some();
        !begun && self.draft.is_blank() && self.settings == *defaults
    }
}
