//! The transitions: what an event changes, and what is to be done.

use jiff::Timestamp;

use super::event::{Effect, Event, Notice, NoticeKind};
use super::pane::{Access, Draft, Pane, Phase, Settings, Stats, Status, Turn, end_of, ended};
use super::record::{End, Kind, Record, VERSION};
use super::replay::Conversation;
use super::state::{EngineStatus, State};
use super::writer::{Report, Write};
use super::{PaneId, SessionId, TurnId};
use crate::engine::{self, RequestId};

/// The most notices that are kept.
const MAX_NOTICES: usize = 16;
/// The most characters of a title made from a prompt.
const TITLE_CHARS: usize = 60;

/// How a running turn ends.
struct Ending {
    end: End,
    stop_reason: Option<String>,
    message: Option<String>,
    stats: Option<Stats>,
    /// The last of the answer.
    text: String,
}

impl Ending {
    fn new(end: End, message: Option<String>) -> Self {
        Self {
            end,
            stop_reason: None,
            message,
            stats: None,
            text: String::new(),
        }
    }
}

impl State {
    /// Takes an event at a time and says what is to be done, in order. Total: every event is allowed in every state.
    /// Once the program is ending, nothing has an effect any more.
    pub fn handle(&mut self, at: Timestamp, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.quitting {
            return effects;
        }
        let out = &mut effects;
        let streams = matches!(event, Event::Engine { .. } | Event::Snapshot(_) | Event::Tick);
        match event {
            Event::Draft { text, cursor } => self.set_draft(at, Draft::new(text, cursor), out),
            Event::ClearDraft => self.clear_draft(at, out),
            Event::Submit => self.submit(at, out),
            Event::Stop => self.stop(at, out),
            Event::Focus(pane) => self.focus(pane),
            Event::NextPane => self.step_focus(1),
            Event::PrevPane => self.step_focus(self.panes.len().saturating_sub(1)),
            Event::NewPane { session } => {
                self.add_pane(at, Pane::new(session, self.defaults.clone()), out);
            }
            Event::Open { conversation, access } => self.open(at, *conversation, access, out),
            Event::ClosePane => self.close_pane(at, out),
            Event::ToggleBroadcast => self.broadcast = !self.broadcast,
            Event::ToggleZoom => self.zoomed = !self.zoomed,
            Event::Rename { title } => self.rename(at, &title, out),
            Event::Configure(settings) => self.configure(at, settings, out),
            Event::DismissNotices => self.notices.clear(),
            Event::Quit => self.quit(at, out),
            Event::Tick => {
                let life = jiff::SignedDuration::try_from(Notice::LIFETIME).unwrap_or_default();
                self.notices.retain(|notice| at.duration_since(notice.at) < life);
            }
            Event::Submitted { turn, request } => self.submitted(at, turn, request, out),
            Event::SubmitFailed { turn, error } => {
                self.named();
                let pane = self.submitting(turn);
                if let Some(id) = pane {
                    self.finish(at, id, Ending::new(End::Rejected, Some(error.to_string())), out);
                }
            }
            Event::Engine { request, event } => self.engine_event(at, request, event, out),
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
            Event::Writer(report) => self.writer_report(at, report),
        }
        if !streams {
            self.save_layout(out);
        }
        if self.quitting {
            out.push(Effect::Quit);
        }
        effects
    }

    fn ids(&self, wanted: impl Fn(&Pane) -> bool) -> Vec<PaneId> {
        self.panes
            .iter()
            .filter(|(_, pane)| wanted(pane))
            .map(|(id, _)| *id)
            .collect()
    }

    fn notify(&mut self, at: Timestamp, kind: NoticeKind, text: String) {
        self.notices.retain(|notice| notice.text != text);
        self.notices.push(Notice { kind, text, at });
        if self.notices.len() > MAX_NOTICES {
            self.notices.remove(0);
        }
    }

    fn refuse(&mut self, at: Timestamp, text: String, out: &mut Vec<Effect>) {
        self.notify(at, NoticeKind::Warning, text);
        out.push(Effect::Bell);
    }

    /// Asks for the layout to be kept, where it changed. One in which nothing has begun must not replace the last one.
    fn save_layout(&mut self, out: &mut Vec<Effect>) {
        let begun = self.panes.values().any(|pane| pane.log.next > 0);
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
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            if !pane.draft.is_blank() {
                pane.cleared = Some(pane.draft.text().to_owned());
            }
        }
        self.set_draft(at, Draft::default(), out);
    }

    fn submit(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        let focused = self.focused_pane();
        if focused.draft.is_blank() {
            return;
        }
        let text = focused.draft.text().to_owned();
        if let EngineStatus::Failed(why) = &self.engine {
            let text = format!("nothing was sent, as the engine doesn't run: {why}");
            return self.refuse(at, text, out);
        }
        let wanted = |id: PaneId| self.broadcast || id == self.focused;
        let targets: Vec<PaneId> = self.ids(|pane| pane.access == Access::Write);
        let targets: Vec<PaneId> = targets.into_iter().filter(|id| wanted(*id)).collect();
        if targets.is_empty() {
            let text = format!(
                "pane {} is open in another process and can only be read here",
                self.focused
            );
            return self.refuse(at, text, out);
        }
        let full: Vec<String> = targets
            .iter()
            .filter(|id| self.pane(**id).is_some_and(|pane| pane.queued.is_some()))
            .map(PaneId::to_string)
            .collect();
        if !full.is_empty() {
            let text = format!(
                "nothing was sent: in pane {} a prompt waits already",
                full.join(", ")
            );
            return self.refuse(at, text, out);
        }
        let ready = self.engine == EngineStatus::Ready;
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            pane.draft = Draft::default();
        }
        for id in targets {
            let busy = self.pane(id).is_some_and(|pane| pane.running().is_some());
            if ready && !busy {
                self.start_turn(at, id, text.clone(), out);
            } else if let Some(pane) = self.panes.get_mut(&id) {
                pane.queued = Some(text.clone());
                log_draft(pane, at, &self.snapshot.info.model, out);
            }
        }
        // A read-only pane that broadcasts, or one whose prompt went elsewhere, still has to forget its draft.
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
    }

    /// Sends a prompt in a pane that is free.
    fn start_turn(&mut self, at: Timestamp, id: PaneId, prompt: String, out: &mut Vec<Effect>) {
        let turn = TurnId(self.next_turn);
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        self.next_turn += 1;
        self.unnamed += 1;
        let mut records = Vec::new();
        begin_log(pane, at, &self.snapshot.info.model, &mut records);
        if pane.title.is_empty() {
            pane.title = title_from(&prompt);
            let kind = Kind::Title {
                title: pane.title.clone(),
            };
            records.push(pane.record(at, pane.log.head, kind));
        }
        let user = Kind::User {
            text: prompt.clone(),
            turn: pane.turns.len() + 1,
        };
        let record = pane.record(at, pane.log.head, user);
        let name = record.id;
        pane.log.head = Some(name);
        records.push(record);
        let status = Status::Submitting {
            turn,
            stopping: false,
        };
        pane.turns.push(Turn {
            record: name,
            at,
            prompt,
            answer: String::new(),
            status,
        });
        // After the prompt, so that a torn log holds the text twice rather than not at all.
        records.extend(pane.draft_record(at));
        let request = pane.make_request();
        write(pane, records, out);
        out.push(Effect::Submit {
            pane: id,
            turn,
            request,
        });
    }

    /// Sends the prompt that waits in a pane, if it can be sent.
    fn start_queued(&mut self, at: Timestamp, id: PaneId, out: &mut Vec<Effect>) {
        let ready = self.engine == EngineStatus::Ready;
        let Some(pane) = self
            .panes
            .get_mut(&id)
            .filter(|pane| ready && pane.running().is_none())
        else {
            return;
        };
        if let Some(prompt) = pane.queued.take() {
            self.start_turn(at, id, prompt, out);
        }
    }

    fn stop(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        let id = self.focused;
        let lost = matches!(self.engine, EngineStatus::Failed(_));
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        if let Some(queued) = pane.queued.take() {
            pane.draft.put_back(&queued);
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
        match pane.turns.last_mut().map(|turn| &mut turn.status) {
            Some(Status::Submitting { stopping, .. }) => *stopping = true,
            Some(Status::Streaming {
                request, stopping, ..
            }) if !*stopping => {
                *stopping = true;
                out.push(Effect::Cancel(*request));
            }
            _ => {}
        }
        // An engine that is gone may not say that the request ended.
        if lost && pane.running().is_some() {
            self.finish(at, id, Ending::new(End::Cancelled, None), out);
        }
    }

    fn focus(&mut self, id: PaneId) {
        if let Some(pane) = self.panes.get_mut(&id) {
            pane.unread = false;
            self.focused = id;
        }
    }

    fn step_focus(&mut self, by: usize) {
        let ids: Vec<PaneId> = self.panes.keys().copied().collect();
        let here = ids.iter().position(|id| *id == self.focused).unwrap_or(0);
        if let Some(id) = ids.get((here + by) % ids.len().max(1)) {
            self.focus(*id);
        }
    }

    fn add_pane(&mut self, at: Timestamp, pane: Pane, out: &mut Vec<Effect>) {
        if let Some(open) = self.pane_with(pane.session) {
            return self.focus(open);
        }
        match PaneId::all().find(|id| !self.panes.contains_key(id)) {
            Some(id) => {
                self.panes.insert(id, pane);
                self.focus(id);
            }
            None => self.refuse(
                at,
                format!("there are {} panes already: close one first", PaneId::MAX),
                out,
            ),
        }
    }

    fn pane_with(&self, session: SessionId) -> Option<PaneId> {
        self.panes
            .iter()
            .find(|(_, pane)| pane.session == session)
            .map(|(id, _)| *id)
    }

    fn open(&mut self, at: Timestamp, mut conversation: Conversation, access: Access, out: &mut Vec<Effect>) {
        let notes = std::mem::take(&mut conversation.notes);
        self.add_pane(at, Pane::restore(conversation, access), out);
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
        if pane.access == Access::Write && pane.log.next > 0 {
            out.push(Effect::Write(Write::Release(pane.session)));
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

    /// Ends what runs in a pane that goes, and brings its log up to date.
    fn settle(&mut self, at: Timestamp, id: PaneId, out: &mut Vec<Effect>) {
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        if let Some(queued) = pane.queued.take() {
            pane.draft.put_back(&queued);
        }
        let running = pane.running().is_some();
        if let Some(Status::Streaming {
            request,
            stopping: false,
            ..
        }) = pane.turns.last().map(|t| &t.status)
        {
            out.push(Effect::Cancel(*request));
        }
        if running {
            self.finish(at, id, Ending::new(End::Cancelled, None), out);
        } else {
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
    }

    fn rename(&mut self, at: Timestamp, title: &str, out: &mut Vec<Effect>) {
        let title = one_line(title);
        let Some(pane) = self.panes.get_mut(&self.focused).filter(|_| !title.is_empty()) else {
            return;
        };
        let mut records = Vec::new();
        begin_log(pane, at, &self.snapshot.info.model, &mut records);
        pane.title = title.clone();
        records.push(pane.record(at, pane.log.head, Kind::Title { title }));
        write(pane, records, out);
    }

    fn configure(&mut self, at: Timestamp, settings: Settings, out: &mut Vec<Effect>) {
        if let Err(bad) = settings.sampling.check() {
            return self.refuse(at, bad.to_string(), out);
        }
        if settings.max_tokens == 0 {
            return self.refuse(at, "max_tokens is 0, but must be at least 1".into(), out);
        }
        let Some(pane) = self.panes.get_mut(&self.focused) else {
            return;
        };
        pane.settings = settings.clone();
        // A log that has not begun says it in its first record.
        if pane.log.next > 0 {
            let record = pane.record(at, pane.log.head, Kind::Settings { settings });
            write(pane, vec![record], out);
        }
    }

    /// One submission fewer waits for its name.
    fn named(&mut self) {
        self.unnamed = self.unnamed.saturating_sub(1);
        if self.unnamed == 0 {
            self.early.clear();
        }
    }

    fn submitting(&self, wanted: TurnId) -> Option<PaneId> {
        let is = |pane: &Pane| matches!(pane.running().map(|t| &t.status), Some(Status::Submitting { turn, .. }) if *turn == wanted);
        self.panes.iter().find(|(_, pane)| is(pane)).map(|(id, _)| *id)
    }

    fn submitted(&mut self, at: Timestamp, turn: TurnId, request: RequestId, out: &mut Vec<Effect>) {
        let (mine, others) = std::mem::take(&mut self.early)
            .into_iter()
            .partition(|(of, _)| *of == request);
        self.early = others;
        self.named();
        if let Some(turn) = self
            .submitting(turn)
            .and_then(|id| self.panes.get_mut(&id))
            .and_then(|pane| pane.turns.last_mut())
        {
            let stopping = matches!(turn.status, Status::Submitting { stopping: true, .. });
            turn.status = Status::Streaming {
                request,
                phase: Phase::Queued,
                stopping,
            };
            if stopping {
                out.push(Effect::Cancel(request));
            }
        } else if self.pane_of(request).is_none() {
            // Its pane was closed in the meantime.
            out.push(Effect::Cancel(request));
        }
        let mine: Vec<(RequestId, engine::Event)> = mine;
        for (request, event) in mine {
            if self.pane_of(request).is_some() {
                self.engine_event(at, request, event, out);
            }
        }
    }

    fn engine_event(&mut self, at: Timestamp, id: RequestId, event: engine::Event, out: &mut Vec<Effect>) {
        let Some(place) = self.pane_of(id) else {
            if self.unnamed > 0 {
                self.early.push((id, event));
            }
            return;
        };
        let Some(pane) = self.panes.get_mut(&place) else {
            return;
        };
        let Some(turn) = pane.turns.last_mut() else { return };
        let Status::Streaming { phase, .. } = &mut turn.status else {
            return;
        };
        match event {
            engine::Event::Admitted {
                prompt_tokens,
                cached_tokens,
            } => {
                *phase = Phase::Prefill {
                    done: cached_tokens,
                    total: prompt_tokens,
                };
            }
            engine::Event::Prefill { done, total } => *phase = Phase::Prefill { done, total },
            engine::Event::Token { text, .. } => {
                *phase = Phase::Decode;
                if !text.is_empty() {
                    turn.answer.push_str(&text);
                    let parent = turn.record;
                    let record = pane.record(at, Some(parent), Kind::Delta { text });
                    write(pane, vec![record], out);
                }
            }
            engine::Event::Finish(finish) => {
                let stats = Some(Stats::from(&finish));
                let (end, stop_reason) = end_of(finish.reason, finish.stop_reason);
                let ending = Ending {
                    end,
                    stop_reason,
                    message: finish.message,
                    stats,
                    text: finish.text,
                };
                self.finish(at, place, ending, out);
            }
        }
    }

    /// Ends a pane's running turn, and starts what waits there.
    fn finish(&mut self, at: Timestamp, id: PaneId, ending: Ending, out: &mut Vec<Effect>) {
        let Ending {
            end,
            stop_reason,
            message,
            stats,
            text,
        } = ending;
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        let Some(mut turn) = pane.turns.pop() else { return };
        if !turn.is_running() {
            pane.turns.push(turn);
            return;
        }
        let mut records = Vec::new();
        if !text.is_empty() {
            turn.answer.push_str(&text);
            records.push(pane.record(at, Some(turn.record), Kind::Delta { text }));
        }
        turn.status = ended(end, message.clone(), stats);
        let (number, title) = (pane.turns.len() + 1, pane.title.clone());
        let kind = Kind::Finish {
            reason: end,
            stop_reason,
            message,
            stats,
            turn: number,
            title,
        };
        let record = pane.record(at, Some(turn.record), kind);
        pane.log.head = Some(record.id);
        records.push(record);
        if !turn.in_history() {
            if let Some(queued) = pane.queued.take() {
                pane.draft.put_back(&queued);
            }
            pane.draft.put_back(&turn.prompt);
        }
        records.extend(pane.draft_record(at));
        let failure = match &turn.status {
            Status::Failed { message, .. } => Some(format!("pane {id}: {message}")),
            _ => None,
        };
        pane.turns.push(turn);
        pane.unread = id != self.focused;
        write(pane, records, out);
        if let Some(failure) = failure {
            self.notify(at, NoticeKind::Error, failure);
        }
        self.start_queued(at, id, out);
    }

    /// Takes the engine's status. A failed engine stays failed: a program has one.
    fn set_engine(&mut self, at: Timestamp, status: EngineStatus, out: &mut Vec<Effect>) {
        if matches!(self.engine, EngineStatus::Failed(_)) || self.engine == status {
            return;
        }
        self.engine = status;
        match self.engine.clone() {
            EngineStatus::Loading { .. } => {}
            EngineStatus::Ready => {
                for id in self.ids(|pane| pane.queued.is_some()) {
                    self.start_queued(at, id, out);
                }
            }
            EngineStatus::Failed(why) => {
                for pane in self.panes.values_mut() {
                    if let Some(queued) = pane.queued.take() {
                        pane.draft.put_back(&queued);
                        log_draft(pane, at, &self.snapshot.info.model, out);
                    }
                }
                self.notify(at, NoticeKind::Error, format!("the engine failed: {why}"));
            }
        }
    }

    fn writer_report(&mut self, at: Timestamp, report: Report) {
        match report {
            Report::Failing { message } => {
                if self.unsaved.as_ref() != Some(&message) {
                    let text = format!("conversations can't be saved and will be tried again: {message}");
                    self.notify(at, NoticeKind::Error, text);
                }
                self.unsaved = Some(message);
            }
            Report::Recovered => {
                self.unsaved = None;
                self.notify(at, NoticeKind::Info, "conversations are saved again".into());
            }
        }
    }
}

/// Asks for records to be kept. Another process's log is never written.
fn write(pane: &Pane, records: Vec<Record>, out: &mut Vec<Effect>) {
    if pane.access == Access::Write && !records.is_empty() {
        out.push(Effect::Write(Write::Records {
            session: pane.session,
            records,
        }));
    }
}

/// The log's first record, where there is none yet.
fn begin_log(pane: &mut Pane, at: Timestamp, model: &str, records: &mut Vec<Record>) {
    if pane.log.next == 0 {
        let (session, settings) = (pane.session, pane.settings.clone());
        let kind = Kind::Session {
            version: VERSION,
            session,
            model: model.to_owned(),
            settings,
        };
        let record = pane.record(at, None, kind);
        pane.log.head = Some(record.id);
        records.push(record);
    }
}

/// Asks for a pane's draft to be kept, where the log doesn't know it.
fn log_draft(pane: &mut Pane, at: Timestamp, model: &str, out: &mut Vec<Effect>) {
    if pane.log.draft == pane.draft && pane.log.queued == pane.queued {
        return;
    }
    let mut records = Vec::new();
    begin_log(pane, at, model, &mut records);
    records.extend(pane.draft_record(at));
    write(pane, records, out);
}

/// A text on one line, without control characters.
fn one_line(text: &str) -> String {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A title from a prompt: the beginning of its first line that says something.
fn title_from(prompt: &str) -> String {
    let line = prompt
        .lines()
        .map(one_line)
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    if line.chars().count() <= TITLE_CHARS {
        return line;
    }
    let mut short: String = line.chars().take(TITLE_CHARS - 1).collect();
    short.push('…');
    short
}
