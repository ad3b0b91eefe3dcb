//! The transitions: what an event changes, and what is to be done.

use jiff::Timestamp;

use super::branch::too_many;
use super::configure::switches_thinking;
use super::event::{Effect, Event, Notice, NoticeKind, Topic, Way};
use super::pane::{Access, Pane};
use super::record::{End, Kind};
use super::replay::Conversation;
use super::state::{EngineStatus, State};
use super::turn::{Ending, begin_log, log_draft, one_line, write};
use super::writer::{Ask, Report, Write};
use super::{PaneId, SessionId};

/// The most notices that are shown.
const MAX_NOTICES: usize = 16;

/// Why something is refused, and what that is about.
pub(super) type Why = (String, Option<Topic>);

impl State {
    /// Takes an event at a time and says what is to be done, in order. Total: every event is allowed in every state.
    /// Once the program is ending, nothing has an effect any more.
    pub fn handle(&mut self, at: Timestamp, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.quitting {
            return effects;
        }
        // Those from before the first event.
        let told = self.notices.iter_mut().chain(&mut self.told);
        for notice in told.filter(|notice| notice.at == Timestamp::MIN) {
            notice.at = at;
        }
        if event.goes_on() {
            self.notices
                .retain(|notice| !notice.answers && !notice.was_seen(at));
            self.notices.iter_mut().for_each(|notice| notice.passed = true);
        }
        self.answering =
            event.goes_on() || matches!(event, Event::Notice { .. } | Event::RemoveStored { .. });
        let out = &mut effects;
        let streams = matches!(event, Event::Engine { .. } | Event::Snapshot(_) | Event::Tick);
        match event {
            Event::Draft(draft) => self.set_draft(at, draft, out),
            Event::ClearDraft => self.clear_draft(at, out),
            Event::GiveUp(draft) => {
                if let Some(pane) = self.panes.get_mut(&self.focused) {
                    pane.give_up(draft);
                }
            }
            Event::Submit => self.submit(at, None, out),
            Event::SubmitText { text } => self.submit(at, Some(text), out),
            Event::Stop => self.stop(at, out),
            Event::Focus(pane) => self.go_to(at, pane, out),
            Event::Seen(panes) => {
                for id in panes {
                    if let Some(pane) = self.panes.get_mut(&id) {
                        pane.unread = false;
                    }
                }
            }
            Event::NextPane => self.step_focus(at, 1, out),
            Event::PrevPane => self.step_focus(at, self.panes.len().saturating_sub(1), out),
            Event::NewConversation { session } => self.renew(at, session, out),
            Event::NewPane { session } => self.open_new(at, Pane::new(session, self.defaults.clone()), out),
            Event::NewPrivatePane { session } => {
                self.open_new(at, Pane::private(session, self.defaults.clone()), out);
            }
            Event::OpenStored { session } => self.open_stored(at, session, out),
            Event::RenameStored { session, title } => self.rename_stored(at, session, &title, out),
            Event::MarkStored { session, marks } => self.mark_stored(at, session, marks, out),
            Event::RestoreRemoved => out.push(Effect::Write(Write::Ask(Ask::Restore))),
            Event::RemoveStored { session } => self.remove_stored(at, session, out),
            Event::ClosePane => self.close_pane(at, out),
            Event::ReopenPane => self.reopen(at, out),
            Event::MovePane { forward: true } => self.move_pane(1),
            Event::MovePane { forward: false } => self.move_pane(self.panes.len().saturating_sub(1)),
            Event::ForkPane { session, at: end } => self.fork(at, session, end, out),
            Event::Regenerate => self.regenerate(at, out),
            Event::EditPrompt => self.edit_prompt(at, out),
            Event::Sibling { forward } => self.walk(at, forward, out),
            Event::ToggleBroadcast => {
                self.broadcast = !self.broadcast;
                self.tell_alike(at);
            }
            Event::ToggleReceives => self.toggle_receives(at),
            Event::Continue => self.go_on(at, out),
            Event::Keep { pane, turn, others } => self.keep(at, pane, turn, &others, out),
            Event::ToggleZoom => self.zoomed = !self.zoomed,
            Event::Rename { title } => self.rename(at, &title, out),
            Event::Configure(settings) => {
                let mut sources = self.focused_pane().sources.clone();
                sources.note(&self.focused_pane().settings, &settings, &self.defaults);
                let _ = self.configure(at, settings, sources, out);
            }
            Event::ConfigureAs { settings, sources } => {
                let _ = self.configure(at, settings, sources, out);
            }
            Event::Preset(preset) => {
                let (settings, sources) = preset.settings(&self.defaults);
                if self.configure(at, settings, sources, out) {
                    let text = format!("pane {} is as preset {:?} has it", self.focused, preset.name);
                    self.notify(at, NoticeKind::Info, text);
                }
            }
            Event::Notice { kind, text } => match kind {
                NoticeKind::Info => self.notify(at, kind, text),
                NoticeKind::Warning | NoticeKind::Error => {
                    self.notify(at, kind, text);
                    out.push(Effect::Bell);
                }
            },
            Event::Told { kind, text } => self.keep_told(Notice {
                kind,
                text,
                at,
                about: None,
                answers: false,
                passed: true,
                way: None,
            }),
            Event::Progress { text } => self.tell(at, NoticeKind::Info, text, Some(Topic::Progress)),
            Event::Outcome { kind, text } => {
                self.drop_progress();
                self.notify(at, kind, text);
                if kind != NoticeKind::Info {
                    out.push(Effect::Bell);
                }
            }
            Event::DismissNotices => self.notices.clear(),
            Event::Acted => {}
            Event::SettingsRead { wrong } => {
                self.is_over(Topic::Settings);
                for text in wrong {
                    self.tell(at, NoticeKind::Warning, text, Some(Topic::Settings));
                }
            }
            Event::Quit => self.quit(at, out),
            Event::Tick => self.notices.retain(|notice| !notice.left(at).is_zero()),
            Event::Submitted { turn, request } => self.submitted(at, turn, request, out),
            Event::SubmitFailed { turn, error } => {
                self.named();
                let pane = self.submitting(turn);
                if let Some(id) = pane {
                    self.finish(at, id, Ending::new(End::Rejected, Some(error.to_string())), out);
                }
            }
            Event::Engine { request, event } => self.engine_event(at, request, event, out),
            Event::Hold => self.held = true,
            Event::Release => self.release(at, out),
            Event::StopAll => self.stop_all(out),
            Event::NewEngine { recommended } => self.new_engine(at, &recommended, out),
            Event::Snapshot(snapshot) => {
                let status = Self::status_of(&snapshot);
                self.snapshot = snapshot;
                self.set_engine(at, status, out);
            }
            Event::EngineFailed { message } => {
                self.unnamed = 0;
                self.early.clear();
                self.set_engine(at, EngineStatus::Failed(message.clone()), out);
                let running: Vec<PaneId> = self.ids(|pane| pane.running().is_some());
                for id in running {
                    self.finish(at, id, Ending::new(End::Error, Some(message.clone())), out);
                }
            }
            Event::Writer(report) => self.writer_report(at, report, out),
        }
        if !streams {
            self.save_layout(out);
        }
        if self.quitting {
            out.push(Effect::Quit);
        }
        effects
    }

    pub(super) fn ids(&self, wanted: impl Fn(&Pane) -> bool) -> Vec<PaneId> {
        self.panes
            .iter()
            .filter(|(_, pane)| wanted(pane))
            .map(|(id, _)| *id)
            .collect()
    }

    pub(super) fn notify(&mut self, at: Timestamp, kind: NoticeKind, text: String) {
        self.tell(at, kind, text, None);
    }

    /// Tells something that one can do something about.
    pub(super) fn notify_way(&mut self, at: Timestamp, kind: NoticeKind, text: String, way: Way) {
        let way = Some(way);
        self.push_notice(Notice {
            kind,
            text,
            at,
            about: None,
            answers: self.answering,
            passed: false,
            way,
        });
    }

    /// Tells something, which goes once what it is about is over.
    pub(super) fn tell(&mut self, at: Timestamp, kind: NoticeKind, text: String, about: Option<Topic>) {
        self.push_notice(Notice {
            kind,
            text,
            at,
            about,
            answers: self.answering,
            passed: false,
            way: None,
        });
    }

    fn push_notice(&mut self, notice: Notice) {
        let (at, text, about) = (notice.at, &notice.text, notice.about);
        if about == Some(Topic::Progress) {
            self.drop_progress();
        }
        let same =
            |shown: &Notice| shown.text == *text || about.is_some_and(Topic::is_one) && shown.about == about;
        self.notices
            .retain(|notice| !notice.was_seen(at) && !same(notice));
        self.keep_told(notice.clone());
        self.notices.push(notice);
        if self.notices.len() > MAX_NOTICES {
            self.notices.remove(0);
        }
    }

    /// Keeps what was told, to be read again; what is told twice in a row once.
    fn keep_told(&mut self, notice: Notice) {
        self.told.pop_back_if(|told| told.text == notice.text);
        self.told.push_back(notice);
        if self.told.len() > Notice::KEPT {
            self.told.pop_front();
        }
    }

    /// How far something was goes, from what is kept, too: the last word of it is enough.
    fn drop_progress(&mut self) {
        self.is_over(Topic::Progress);
        self.told.pop_back_if(|told| told.about == Some(Topic::Progress));
    }

    /// What was told of something that is over goes.
    pub(super) fn is_over(&mut self, topic: Topic) {
        self.notices.retain(|notice| notice.about != Some(topic));
    }

    pub(super) fn refuse(&mut self, at: Timestamp, text: String, out: &mut Vec<Effect>) {
        self.refuse_while(at, (text, None), out);
    }

    /// Refuses something, for a reason that may be over some time.
    pub(super) fn refuse_while(&mut self, at: Timestamp, (text, about): Why, out: &mut Vec<Effect>) {
        self.tell(at, NoticeKind::Warning, text, about);
        out.push(Effect::Bell);
    }

    /// Asks for the layout to be kept, where it changed. One in which nothing has begun must not replace the last one.
    fn save_layout(&mut self, out: &mut Vec<Effect>) {
        let spares = self.spares_layout;
        let begins = |pane: &Pane| match spares {
            true => !pane.turns.is_empty(),
            false => pane.log.next > 0,
        };
        let begun = self.panes.values().any(|pane| !pane.private && begins(pane));
        let layout = self.layout();
        if begun && self.saved_layout.as_ref() != Some(&layout) {
            self.spares_layout = false;
            self.saved_layout = Some(layout.clone());
            out.push(Effect::Write(Write::Layout(layout)));
        }
    }

    pub(super) fn focus(&mut self, id: PaneId) {
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.unread = false;
            self.focused = id;
        }
    }

    /// Has a pane in focus that a person chose.
    fn go_to(&mut self, at: Timestamp, id: PaneId, out: &mut Vec<Effect>) {
        let from = self.focused;
        self.focus(id);
        self.take_draft_along(at, from, out);
        self.look_again(out);
    }

    fn step_focus(&mut self, at: Timestamp, by: usize, out: &mut Vec<Effect>) {
        if let Some(id) = self.neighbour(by) {
            self.go_to(at, id, out);
        }
    }

    /// The pane so many places behind the focused one, around the end.
    pub(super) fn neighbour(&self, by: usize) -> Option<PaneId> {
        let ids: Vec<PaneId> = self.panes.keys().copied().collect();
        let here = ids.iter().position(|id| *id == self.focused).unwrap_or(0);
        ids.get((here + by) % ids.len().max(1)).copied()
    }

    /// Opens a pane from the focused one.
    pub(super) fn open_new(&mut self, at: Timestamp, mut pane: Pane, out: &mut Vec<Effect>) {
        pane.opener = Some(self.focused_pane().session);
        self.add_pane(at, pane, out);
    }

    pub(super) fn add_pane(&mut self, at: Timestamp, pane: Pane, out: &mut Vec<Effect>) {
        self.add_pane_at(at, PaneId::FIRST, pane, out);
    }

    /// Adds a pane under a number where that is free, else under the lowest free one.
    pub(super) fn add_pane_at(&mut self, at: Timestamp, id: PaneId, pane: Pane, out: &mut Vec<Effect>) {
        if let Some(open) = self.pane_with(pane.session) {
            return self.focus(open);
        }
        // One that was closed here knows more than its log may do yet.
        let closed = self
            .closed
            .iter()
            .position(|(_, was)| was.session == pane.session);
        let pane = closed.map_or(pane, |at| self.closed.remove(at).1);
        let wanted = std::iter::once(id).chain(PaneId::all());
        match wanted.into_iter().find(|id| !self.panes.contains_key(id)) {
            Some(id) => {
                self.panes.insert(id, pane);
                self.focus(id);
            }
            None => self.refuse(at, too_many(), out),
        }
    }

    /// The pane that shows a conversation.
    pub fn pane_with(&self, session: SessionId) -> Option<PaneId> {
        self.panes
            .iter()
            .find(|(_, pane)| pane.session == session)
            .map(|(id, _)| *id)
    }

    fn open(&mut self, at: Timestamp, mut conversation: Conversation, access: Access, out: &mut Vec<Effect>) {
        let shown = self.pane_with(conversation.session);
        if let Some(id) = shown.filter(|id| self.panes[id].access == Access::Elsewhere) {
            return self.take_again(at, id, conversation, access, out);
        }
        let notes = std::mem::take(&mut conversation.notes);
        let untouched = self.is_free() && self.pane_with(conversation.session).is_none();
        if untouched {
            self.panes.remove(&self.focused);
        }
        self.add_pane_at(at, self.focused, Pane::restore(conversation, access), out);
        for note in notes {
            self.notify(at, NoticeKind::Warning, note);
        }
    }

    fn close_pane(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if self.panes.len() <= 1 {
            return self.refuse(at, "the last pane doesn't close: quit instead".into(), out);
        }
        let id = self.focused;
        self.settle(at, id, out);
        let Some(pane) = self.panes.remove(&id) else {
            return;
        };
        let opener = pane.opener.and_then(|opener| self.pane_with(opener));
        self.put_closed(id, pane, out);
        let next = self
            .panes
            .range(id..)
            .next()
            .or_else(|| self.panes.iter().next_back());
        if let Some(next) = opener.or_else(|| next.map(|(id, _)| *id)) {
            self.focus(next);
        }
    }

    /// Keeps a pane that goes, to be reopened.
    fn put_closed(&mut self, id: PaneId, pane: Pane, out: &mut Vec<Effect>) {
        self.closed.push((id, pane));
        if self.closed.len() > usize::from(PaneId::MAX) {
            let (_, oldest) = self.closed.remove(0);
            if matches!(oldest.access, Access::Write | Access::Elsewhere) {
                out.push(Effect::Write(Write::Release(oldest.session)));
            }
        }
    }

    /// Begins a new conversation in the focused pane, made as the one before, which can be reopened.
    fn renew(&mut self, at: Timestamp, session: SessionId, out: &mut Vec<Effect>) {
        let id = self.focused;
        let before = self.focused_pane();
        if before.turns.is_empty() && before.tree.aside().next().is_none() && before.draft.is_blank() {
            return self.refuse(at, format!("the conversation in pane {id} is new already"), out);
        }
        let stopped = before.running().is_some();
        self.settle(at, id, out);
        let Some(before) = self.panes.remove(&id) else {
            return;
        };
        let settings = before.settings.clone();
        let mut pane = match before.private {
            true => Pane::private(session, settings),
            false => Pane::new(session, settings),
        };
        (pane.sources, pane.receives) = (before.sources.clone(), before.receives);
        self.put_closed(id, before, out);
        self.panes.insert(id, pane);
        let stopped = if stopped { ", its answer stopped" } else { "" };
        let text = format!("a new conversation in pane {id}; the one before is kept{stopped}");
        self.notify_way(at, NoticeKind::Info, text, Way::Reopen);
    }

    fn quit(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        for id in self.ids(|_| true) {
            self.settle(at, id, out);
        }
        self.quitting = true;
    }

    fn rename(&mut self, at: Timestamp, title: &str, out: &mut Vec<Effect>) {
        if let Some(why) = self.focused_pane().access.refusal("give it another title there") {
            return self.refuse(at, why, out);
        }
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            entitle(pane, at, title, &self.snapshot.info.model, out);
        }
    }

    /// Takes the engine's status. A failed engine stays failed, until another one is on its way.
    fn set_engine(&mut self, at: Timestamp, status: EngineStatus, out: &mut Vec<Effect>) {
        let stays = matches!(self.engine, EngineStatus::Failed(_)) && !self.held;
        if stays || self.engine == status {
            return;
        }
        if std::mem::discriminant(&self.engine) != std::mem::discriminant(&status) {
            self.is_over(Topic::Engine);
        }
        self.engine = status;
        match self.engine.clone() {
            EngineStatus::Loading { .. } => {}
            EngineStatus::Ready => {
                self.tell_switchless(at, &self.ids(switches_thinking));
                self.start_all_queued(at, out);
            }
            EngineStatus::Failed(why) => {
                let mut back = String::new();
                for (id, pane) in &mut self.panes {
                    if let Some(queued) = pane.queued.take() {
                        back.push_str(&format!("; pane {id}: {}", pane.give_back(queued.draft())));
                        log_draft(pane, at, &self.snapshot.info.model, out);
                    }
                }
                let text = format!("the engine failed: {why}{back}");
                self.tell(at, NoticeKind::Error, text, Some(Topic::Engine));
            }
        }
    }

    fn writer_report(&mut self, at: Timestamp, report: Report, out: &mut Vec<Effect>) {
        match report {
            Report::Opened { conversation, access } => self.open(at, *conversation, access, out),
            Report::Followed { conversation, access } => {
                let shown = self.pane_with(conversation.session);
                if let Some(id) = shown.filter(|id| self.panes[id].access == Access::Elsewhere) {
                    self.take_again(at, id, *conversation, access, out);
                }
            }
            Report::Restored { title } => {
                let text = format!("{} is there again", super::turn::quoted(&title));
                self.is_over(Topic::Removed);
                self.notify(at, NoticeKind::Info, text);
            }
            Report::Removed { title } => {
                let text = format!("{} is deleted", super::turn::quoted(&title));
                self.push_notice(Notice {
                    kind: NoticeKind::Info,
                    text,
                    at,
                    about: Some(Topic::Removed),
                    answers: self.answering,
                    passed: false,
                    way: Some(Way::BringBack),
                });
            }
            Report::Refused { message } => {
                self.notify(at, NoticeKind::Error, message);
                out.push(Effect::Bell);
            }
            Report::Failing { message } => {
                if self.unsaved.as_ref() != Some(&message) {
                    let text = format!("conversations can't be saved now: {message}");
                    self.tell(at, NoticeKind::Error, text, Some(Topic::Saving));
                }
                self.unsaved = Some(message);
            }
            Report::Recovered => {
                self.unsaved = None;
                let text = "conversations are saved again".into();
                self.tell(at, NoticeKind::Info, text, Some(Topic::Saving));
            }
        }
    }
}

/// Gives a pane's conversation a title.
pub(super) fn entitle(pane: &mut Pane, at: Timestamp, title: &str, model: &str, out: &mut Vec<Effect>) {
    let title = one_line(title);
    if title.is_empty() {
        return;
    }
    let mut records = Vec::new();
    begin_log(pane, at, model, &mut records);
    pane.title = title.clone();
    records.push(pane.record(at, pane.log.head, Kind::Title { title }));
    write(pane, records, out);
}
