//! Stored conversations that no pane shows, or that are to be shown: opened, renamed, deleted.

use jiff::Timestamp;

use super::branch::too_many;
use super::event::Effect;
use super::handle::entitle;
use super::pane::{Access, Pane, Settings};
use super::record::{Kind, Marks};
use super::state::State;
use super::turn::{begin_log, one_line, write};
use super::writer::{Ask, Write};
use super::{PaneId, SessionId};

impl State {
    /// Shows a stored conversation.
    pub(super) fn open_stored(&mut self, at: Timestamp, session: SessionId, out: &mut Vec<Effect>) {
        if let Some(pane) = self.pane_with(session) {
            return self.focus(pane);
        }
        if self.panes.len() >= usize::from(PaneId::MAX) && !self.is_free() {
            return self.refuse(at, too_many(), out);
        }
        if let Some(place) = self.closed.iter().position(|(_, pane)| pane.session == session) {
            let (_, pane) = self.closed.remove(place);
            if self.is_free() {
                self.panes.remove(&self.focused);
            }
            return self.add_pane_at(at, self.focused, pane, out);
        }
        out.push(Effect::Write(Write::Ask(Ask::Open(session))));
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
            if pane.access == Access::ReadOnly {
                let why = "it is open in another process: give it another title there";
                return self.refuse(at, why.into(), out);
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
        if pane.access == Access::ReadOnly {
            let why = "it is open in another process: pin or archive it there";
            return self.refuse(at, why.into(), out);
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
