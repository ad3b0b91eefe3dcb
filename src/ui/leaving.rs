//! The keys that clear, stop and leave, each step of which is told.

use crate::chat::{Draft, Event, State};
use crate::ui::input::Reaction;
use crate::ui::keymap::Action;
use crate::ui::overlay::stoppable;
use crate::ui::view::{ARMED, Screen, View};
use crate::ui::writing::composer;
use crate::ui::writing::undo::Change;

impl View {
    /// The ladder of ^C: the draft goes, else the answer stops, else the program ends on the second press.
    pub(super) fn interrupt(&mut self, state: &State, out: &mut Vec<Reaction>) {
        let now = self.pressed;
        let pane = state.focused_pane();
        let chat = self.screen == Screen::Chat;
        if self.armed.is_some_and(|until| now < until) {
            self.armed = None;
            self.leave(state, out);
        } else if chat && !composer::is_empty(&pane.draft) {
            out.extend(self.stay(state));
            let view = self.pane(state.focused());
            view.undo.note(&pane.draft, &Draft::default(), Change::Other);
            out.push(Reaction::Chat(Event::ClearDraft));
        } else if chat && (pane.queued.is_some() || stoppable(pane)) {
            out.push(Reaction::Chat(Event::Stop));
        } else {
            // What was told before doesn't come back when this was.
            out.push(Reaction::Chat(Event::DismissNotices));
            self.armed = Some(now + ARMED);
        }
    }

    /// Says why the key that leaves doesn't while there is a draft, and what can be done about that.
    pub(super) fn stays_for_a_draft(&self, way: Action, does: &str) -> Reaction {
        let (leaves, way) = (self.keymap.way(Action::LeaveOrDelete), self.keymap.way(way));
        Reaction::Tell(format!("{leaves} quits once the draft is empty: {way} {does}"))
    }
}
