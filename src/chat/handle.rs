//! The transitions: what an event changes, and what is to be done.

use jiff::Timestamp;

use super::branch::too_many;
use super::draft::Draft;
use super::event::{Effect, Event, Notice, NoticeKind, Topic};
use super::pane::{Access, Pane, Settings};
use super::parameter::{Sources, check};
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
            Event::Submit => self.submit(at, None, out),
            Event::SubmitText { text } => self.submit(at, Some(text), out),
            Event::Stop => self.stop(at, out),
            Event::Focus(pane) => self.focus(pane),
            Event::NextPane => self.step_focus(1),
            Event::PrevPane => self.step_focus(self.panes.len().saturating_sub(1)),
            Event::NewPane { session } => {
                self.add_pane(at, Pane::new(session, self.defaults.clone()), out);
            }
            Event::NewPrivatePane { session } => {
                self.add_pane(at, Pane::private(session, self.defaults.clone()), out);
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
            Event::ForkPane { session } => self.fork(at, session, out),
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
            Event::Progress { text } => self.tell(at, NoticeKind::Info, text, Some(Topic::Progress)),
            Event::Outcome { kind, text } => {
                self.is_over(Topic::Progress);
                if self
                    .told
                    .back()
                    .is_some_and(|told| told.about == Some(Topic::Progress))
                {
                    self.told.pop_back();
                }
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

    /// Tells something, which goes once what it is about is over.
    pub(super) fn tell(&mut self, at: Timestamp, kind: NoticeKind, text: String, about: Option<Topic>) {
        let same = |notice: &Notice| {
            notice.text == text || about.is_some_and(Topic::is_one) && notice.about == about
        };
        self.notices
            .retain(|notice| !notice.was_seen(at) && !same(notice));
        // Of what goes on, the last word is enough; what came of things stays.
        let again = |told: &Notice| {
            told.text == text || about == Some(Topic::Progress) && told.about == Some(Topic::Progress)
        };
        if self.told.back().is_some_and(again) {
            self.told.pop_back();
        }
        let notice = Notice {
            kind,
            text,
            at,
            about,
            answers: self.answering,
            passed: false,
        };
        self.told.push_back(notice.clone());
        self.notices.push(notice);
        if self.notices.len() > MAX_NOTICES {
            self.notices.remove(0);
        }
        if self.told.len() > Notice::KEPT {
            self.told.pop_front();
        }
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
        let begun = self.panes.values().any(|pane| !pane.private && pane.log.next > 0);
        let layout = self.layout();
        if begun && self.saved_layout.as_ref() != Some(&layout) {
            self.saved_layout = Some(layout.clone());
            out.push(Effect::Write(Write::Layout(layout)));
        }
    }

    fn set_draft(&mut self, at: Timestamp, draft: Draft, out: &mut Vec<Effect>) {
        let (id, model) = (self.focused, self.snapshot.info.model.clone());
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.draft = draft;
            log_draft(pane, at, &model, out);
        }
    }

    fn clear_draft(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        if self.give_up_edit(at, out) {
            return;
        }
        if let Some(pane) = self.panes.get_mut(&self.focused)
            && !pane.draft.is_blank()
        {
            pane.cleared = Some(pane.draft.text().to_owned());
        }
        self.set_draft(at, Draft::default(), out);
    }

    pub(super) fn focus(&mut self, id: PaneId) {
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.unread = false;
            self.focused = id;
        }
    }

    fn step_focus(&mut self, by: usize) {
        if let Some(id) = self.neighbour(by) {
            self.focus(id);
        }
    }

    /// The pane so many places behind the focused one, around the end.
    pub(super) fn neighbour(&self, by: usize) -> Option<PaneId> {
        let ids: Vec<PaneId> = self.panes.keys().copied().collect();
        let here = ids.iter().position(|id| *id == self.focused).unwrap_or(0);
        ids.get((here + by) % ids.len().max(1)).copied()
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
        self.closed.push((id, pane));
        if self.closed.len() > usize::from(PaneId::MAX) {
            let (_, oldest) = self.closed.remove(0);
            if oldest.access == Access::Write {
                out.push(Effect::Write(Write::Release(oldest.session)));
            }
        }
        let next = self
            .panes
            .range(id..)
            .next()
            .or_else(|| self.panes.iter().next_back());
        if let Some(next) = next.map(|(id, _)| *id) {
            self.focus(next);
        }
    }

    fn quit(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        for id in self.ids(|_| true) {
            self.settle(at, id, out);
        }
        self.quitting = true;
    }

    fn rename(&mut self, at: Timestamp, title: &str, out: &mut Vec<Effect>) {
        if self.focused_pane().access == Access::ReadOnly {
            let why = "it is open in another process: give it another title there";
            return self.refuse(at, why.into(), out);
        }
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            entitle(pane, at, title, &self.snapshot.info.model, out);
        }
    }

    /// Whether the focused pane's settings are these now.
    fn configure(
        &mut self,
        at: Timestamp,
        settings: Settings,
        sources: Sources,
        out: &mut Vec<Effect>,
    ) -> bool {
        let why = if self.focused_pane().access == Access::ReadOnly {
            Some("it is open in another process: change its settings there".to_owned())
        } else if settings.max_tokens == Some(0) {
            Some("max-tokens is 0, but must be at least 1".to_owned())
        } else {
            check(&settings.sampling).err()
        };
        if let Some(why) = why {
            self.refuse(at, why, out);
            return false;
        }
        let Some(pane) = self.panes.get_mut(&self.focused) else {
            return false;
        };
        let thinks = settings
            .thinking
            .filter(|_| pane.settings.thinking != settings.thinking);
        pane.settings = settings.clone();
        pane.sources = sources;
        let mut records = Vec::new();
        // A log that has not begun says it in its first record.
        if pane.log.next > 0 {
            records.push(pane.record(at, pane.log.head, Kind::Settings { settings }));
        } else {
            begin_log(pane, at, &self.snapshot.info.model, &mut records);
        }
        write(pane, records, out);
        if thinks.is_some() && self.engine == EngineStatus::Ready && !self.snapshot.info.thinking_switch {
            let text = "thinking: this model's chat template has no switch for it, so nothing changes";
            self.notify(at, NoticeKind::Warning, text.into());
        }
        true
    }

    /// Why the focused pane should not get these settings, where that is known: what a person means by them can't be had.
    pub fn objection(&self, settings: &Settings) -> Option<String> {
        let context = self.snapshot.info.context_length;
        let most = settings
            .max_tokens
            .filter(|most| context > 0 && *most >= context)?;
        (self.focused_pane().settings.max_tokens != Some(most)).then(|| {
            format!(
                "max-tokens is {most}, but this model has room for {context} tokens, prompt and answer together; auto: \
                 as there is room"
            )
        })
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
            EngineStatus::Ready => self.start_all_queued(at, out),
            EngineStatus::Failed(why) => {
                for pane in self.panes.values_mut() {
                    if let Some(queued) = pane.queued.take() {
                        pane.give_back(&queued);
                        log_draft(pane, at, &self.snapshot.info.model, out);
                    }
                }
                let text = format!("the engine failed: {why}");
                self.tell(at, NoticeKind::Error, text, Some(Topic::Engine));
            }
        }
    }

    fn writer_report(&mut self, at: Timestamp, report: Report, out: &mut Vec<Effect>) {
        match report {
            Report::Opened { conversation, access } => self.open(at, *conversation, access, out),
            Report::Restored { title } => {
                let text = format!("{} is there again", super::turn::quoted(&title));
                self.is_over(Topic::Removed);
                self.notify(at, NoticeKind::Info, text);
            }
            Report::Removed { title } => {
                let text = format!(
                    "{} is deleted, and can be brought back",
                    super::turn::quoted(&title)
                );
                self.tell(at, NoticeKind::Info, text, Some(Topic::Removed));
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
