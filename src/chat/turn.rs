//! A turn's life: sent, named by the engine, streaming, ended.

use jiff::Timestamp;

use super::answer::{Phase, Refused, Stats, Status, Turn, end_of, ended};
use super::branch::read_only;
use super::draft::{Draft, Said};
use super::event::{Effect, NoticeKind, Topic, Way};
use super::new_log::tokens_of;
use super::pane::{Access, Before, Pane, Running};
use super::record::{End, Kind, Record, RecordId, VERSION};
use super::state::{EngineStatus, State};
use super::writer::Write;
use super::{PaneId, TurnId};
use crate::engine::{self, RequestId};
use crate::text::sanitize::without_sequences;
use crate::text::spans::Spanned;

/// The most characters of a title made from a prompt.
const TITLE_CHARS: usize = 60;

/// How a running turn ends.
pub(super) struct Ending {
    end: End,
    stop_reason: Option<String>,
    message: Option<String>,
    stats: Option<Stats>,
    /// The last of the answer.
    text: Spanned,
}

impl Ending {
    pub(super) fn new(end: End, message: Option<String>) -> Self {
        Self {
            end,
            stop_reason: None,
            message,
            stats: None,
            text: Spanned::default(),
        }
    }
}

impl State {
    /// Sends the focused pane's draft, or a text in its place.
    pub(super) fn submit(&mut self, at: Timestamp, text: Option<String>, out: &mut Vec<Effect>) {
        // Another process that had it may have ended: what it wrote comes first, then the prompt is sent by another press.
        if !self.broadcast && self.focused_pane().access == Access::Elsewhere {
            if let Some(pane) = self.panes.get_mut(&self.focused) {
                pane.knocked = true;
            }
            return self.look_again(out);
        }
        let focused = self.focused_pane();
        if focused.draft.is_blank() {
            return;
        }
        let said = Said::of(&focused.draft, text);
        if let Some(turn) = focused.edited() {
            return self.send_edit(at, turn, said, out);
        }
        if let EngineStatus::Failed(why) = &self.engine {
            let text = format!("nothing was sent, as the engine doesn't run: {why}");
            return self.refuse_while(at, (text, Some(Topic::Engine)), out);
        }
        let targets = self.targets();
        if targets.is_empty() {
            let why = if self.broadcast && self.ids(|pane| pane.receives).is_empty() {
                "nothing was sent: no pane takes part in what goes to several".into()
            } else {
                let focused = |id: &PaneId| *id == self.focused;
                let meant = |(id, pane): &(&PaneId, &Pane)| {
                    if self.broadcast {
                        pane.receives
                    } else {
                        focused(id)
                    }
                };
                let mut meant = self.panes.iter().filter(meant);
                let why = meant.find_map(|(id, pane)| read_only(*id, pane));
                why.unwrap_or_default()
            };
            return self.refuse(at, why, out);
        }
        self.tell_alike(at);
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
        let ready = self.takes_prompts();
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            pane.draft = Draft::default();
        }
        for id in targets {
            let busy = self.pane(id).is_some_and(|pane| pane.running().is_some());
            if ready && !busy {
                self.start_turn(at, id, said.clone(), out);
            } else if let Some(pane) = self.panes.get_mut(&id) {
                pane.queued = Some(said.clone());
                log_draft(pane, at, &self.snapshot.info.model, out);
            }
        }
        // A read-only pane that broadcasts, or one whose prompt went elsewhere, still has to forget its draft.
        if let Some(pane) = self.panes.get_mut(&self.focused) {
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
    }

    /// Sends a prompt in a pane that is free.
    pub(super) fn start_turn(&mut self, at: Timestamp, id: PaneId, prompt: Said, out: &mut Vec<Effect>) {
        let turn = TurnId(self.next_turn);
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        self.next_turn += 1;
        self.unnamed += 1;
        let mut records = Vec::new();
        begin_log(pane, at, &self.snapshot.info.model, &mut records);
        records.extend(name_model(pane, at, &self.snapshot.info.model));
        if pane.title.is_empty() {
            pane.title = title_from(&prompt.text);
            let kind = Kind::Title {
                title: pane.title.clone(),
            };
            records.push(pane.record(at, pane.log.head, kind));
        }
        let name = RecordId(pane.log.next);
        let seed = pane.seed_for(name, at);
        let user = Kind::User {
            text: prompt.text.clone(),
            typed: prompt.typed.clone(),
            turn: pane.turns.len() + 1,
            seed,
        };
        let record = pane.record(at, pane.log.head, user);
        pane.log.head = Some(name);
        pane.tree.add(pane.turns.last().map(|turn| turn.record), name);
        pane.went_back = None;
        records.push(record);
        let status = Status::Submitting {
            turn,
            stopping: false,
        };
        let mut sent = Turn::new(name, at, prompt, status);
        sent.seed = seed;
        sent.tokens.model.clone_from(&self.snapshot.info.model);
        pane.turns.push(sent);
        // After the prompt, so that a torn log holds the text twice rather than not at all.
        records.extend(pane.draft_record(at));
        pane.run = Running::default();
        let request = pane.make_request(None);
        write(pane, records, out);
        out.push(Effect::Submit {
            pane: id,
            turn,
            request,
        });
    }

    /// Sends the prompt that waits in a pane, if it can be sent.
    pub(super) fn start_queued(&mut self, at: Timestamp, id: PaneId, out: &mut Vec<Effect>) {
        let ready = self.takes_prompts();
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

    pub(super) fn stop(&mut self, at: Timestamp, out: &mut Vec<Effect>) {
        let id = self.focused;
        if self.give_up_edit(at, out) {
            return;
        }
        let lost = matches!(self.engine, EngineStatus::Failed(_));
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        if let Some(queued) = pane.queued.take() {
            pane.give_back(queued.draft());
            log_draft(pane, at, &self.snapshot.info.model, out);
        }
        pane.stop(out);
        // An engine that is gone may not say that the request ended.
        if lost && pane.running().is_some() {
            self.finish(at, id, Ending::new(End::Cancelled, None), out);
        }
    }

    /// Ends what runs in a pane that goes, and brings its log up to date.
    pub(super) fn settle(&mut self, at: Timestamp, id: PaneId, out: &mut Vec<Effect>) {
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        if let Some(queued) = pane.queued.take() {
            pane.give_back(queued.draft());
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

    /// One submission fewer waits for its name.
    pub(super) fn named(&mut self) {
        self.unnamed = self.unnamed.saturating_sub(1);
        if self.unnamed == 0 {
            self.early.clear();
        }
    }

    pub(super) fn submitting(&self, wanted: TurnId) -> Option<PaneId> {
        let is = |pane: &Pane| matches!(pane.running().map(|t| &t.status), Some(Status::Submitting { turn, .. }) if *turn == wanted);
        self.panes.iter().find(|(_, pane)| is(pane)).map(|(id, _)| *id)
    }

    pub(super) fn submitted(
        &mut self,
        at: Timestamp,
        turn: TurnId,
        request: RequestId,
        out: &mut Vec<Effect>,
    ) {
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

    pub(super) fn engine_event(
        &mut self,
        at: Timestamp,
        id: RequestId,
        event: engine::Event,
        out: &mut Vec<Effect>,
    ) {
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
            engine::Event::Note(note) => {
                if pane.noted.as_ref() != Some(&note) {
                    pane.noted = Some(note.clone());
                    self.notify(at, NoticeKind::Warning, format!("pane {place}: {note}"));
                }
            }
            engine::Event::Admitted {
                prompt_tokens,
                cached_tokens,
            } => {
                pane.run.admitted = Some((prompt_tokens, cached_tokens));
                *phase = Phase::Prefill {
                    done: cached_tokens,
                    total: prompt_tokens,
                };
            }
            engine::Event::Prefill { done, total } => *phase = Phase::Prefill { done, total },
            engine::Event::Token { text, token, .. } => {
                *phase = Phase::Decode;
                let parent = turn.record;
                if !turn.tokens.model.is_empty() {
                    turn.tokens.ids.push(token);
                }
                pane.run.delivered += 1;
                let before = pane.run.heard.replace(at).unwrap_or(at);
                let elapsed = at.duration_since(before).as_millis();
                turn.take(&text, u64::try_from(elapsed).unwrap_or(0));
                let records = pane.deltas(at, parent, &text);
                write(pane, records, out);
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
    pub(super) fn finish(&mut self, at: Timestamp, id: PaneId, ending: Ending, out: &mut Vec<Effect>) {
        let Ending {
            end,
            mut stop_reason,
            message,
            stats,
            text,
        } = ending;
        // The engine has its own spelling of names.
        let message = message.map(|message| message.replace("max_tokens", "max-tokens"));
        let tokens = stats
            .filter(|_| end == End::Rejected)
            .map(|stats| stats.prompt_tokens);
        let too_long = self.pane(id).and_then(|pane| self.why_too_long(pane, tokens?));
        let is_full = matches!(too_long, Some((_, Refused::Full)));
        let message = match too_long {
            Some((why, refused)) => {
                stop_reason = refused.stop_reason();
                Some(why)
            }
            None => message,
        };
        let Some(pane) = self.panes.get_mut(&id) else {
            return;
        };
        let Some(mut turn) = pane.turns.pop() else { return };
        if !turn.is_running() {
            pane.turns.push(turn);
            return;
        }
        let run = std::mem::take(&mut pane.run);
        // Who leaves doesn't wait for the engine's figures.
        let counted = run.admitted.map(|(prompt_tokens, cached_tokens)| Stats {
            prompt_tokens,
            cached_tokens,
            generated_tokens: run.delivered,
            ..Stats::default()
        });
        let stats = stats.or(counted.filter(|_| end == End::Cancelled));
        let stats = match (&run.before, stats) {
            (Some(before), Some(then)) => Some(before.stats.followed_by(then)),
            (Some(before), None) => Some(before.stats),
            (None, stats) => stats,
        };
        // An answer that could not go on is as it was.
        let as_before = run.before.filter(|_| end == End::Rejected);
        let refused = message.clone().filter(|_| as_before.is_some());
        let (end, message) = match &as_before {
            Some(Before {
                status: Status::Done { truncated, .. },
                ..
            }) => (End::Length, truncated.clone()),
            Some(_) => (End::Cancelled, None),
            None => (end, message),
        };
        let stop_reason = stop_reason.filter(|_| as_before.is_none());
        let mut records = Vec::new();
        if let Some(before) = as_before {
            if !before.cut.is_empty() {
                turn.answer.append(&before.cut);
                records.extend(pane.deltas(at, turn.record, &before.cut));
            }
            turn.tokens = before.tokens;
        }
        if !text.is_empty() {
            turn.tokens.held = text.len();
            turn.answer.append(&text);
            records.extend(pane.deltas(at, turn.record, &text));
        }
        turn.status = ended(end, stop_reason.as_deref(), message.clone(), stats);
        let tokens = tokens_of(&turn);
        // Only an answer that can go on needs them.
        turn.tokens = tokens.clone().unwrap_or_default();
        let (number, title) = (pane.turns.len() + 1, pane.title.clone());
        let kind = Kind::Finish {
            reason: end,
            stop_reason,
            message,
            stats,
            thoughts: turn.thoughts.clone(),
            turn: number,
            title,
            tokens,
            marks: pane.marks,
        };
        let record = pane.record(at, Some(turn.record), kind);
        pane.log.head = Some(record.id);
        records.push(record);
        let mut back = None;
        if !turn.in_history() {
            if let Some(queued) = pane.queued.take() {
                pane.give_back(queued.draft());
            }
            back = Some(pane.give_back(turn.draft()));
        }
        records.extend(pane.draft_record(at));
        let failure = match &turn.status {
            Status::Failed { message, .. } => {
                let back = back.map_or(String::new(), |back| format!("; {back}"));
                Some(format!("pane {id}: {message}{back}"))
            }
            _ => refused.map(|why| format!("pane {id}: the answer can't go on: {why}")),
        };
        pane.turns.push(turn);
        pane.unread = id != self.focused;
        write(pane, records, out);
        self.is_over(Topic::Answer(id));
        match failure {
            Some(failure) if is_full => self.notify_way(at, NoticeKind::Error, failure, Way::Full),
            Some(failure) => self.notify(at, NoticeKind::Error, failure),
            None => {}
        }
        self.start_queued(at, id, out);
    }
}

/// Asks for records to be kept. Another process's log is never written, and nothing is kept of a private pane.
pub(super) fn write(pane: &Pane, records: Vec<Record>, out: &mut Vec<Effect>) {
    if pane.access == Access::Write && !pane.private && !records.is_empty() {
        out.push(Effect::Write(Write::Records {
            session: pane.session,
            records,
        }));
    }
}

/// The log's first record, where there is none yet.
pub(super) fn begin_log(pane: &mut Pane, at: Timestamp, model: &str, records: &mut Vec<Record>) {
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
        model.clone_into(&mut pane.log.model);
        records.push(record);
    }
}

/// A record of the model that is to answer, where the log doesn't name it: a log may begin while there is none, and
/// another model may take its place.
pub(super) fn name_model(pane: &mut Pane, at: Timestamp, model: &str) -> Option<Record> {
    if model.is_empty() || pane.log.model == model {
        return None;
    }
    model.clone_into(&mut pane.log.model);
    let model = model.to_owned();
    Some(pane.record(at, pane.log.head, Kind::Model { model }))
}

/// Asks for a pane's draft to be kept, where the log doesn't know it.
pub(super) fn log_draft(pane: &mut Pane, at: Timestamp, model: &str, out: &mut Vec<Effect>) {
    if pane.is_logged() || pane.access != Access::Write {
        return;
    }
    let mut records = Vec::new();
    begin_log(pane, at, model, &mut records);
    records.extend(pane.draft_record(at));
    write(pane, records, out);
}

/// A text on one line, without control characters and what a terminal would take as theirs.
pub(super) fn one_line(text: &str) -> String {
    let spaced: String = without_sequences(text)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A title from a prompt: the beginning of its first line that says something.
pub(super) fn title_from(prompt: &str) -> String {
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

/// A title as it is told.
pub(super) fn quoted(title: &str) -> String {
    if title.is_empty() {
        "a conversation without a title".into()
    } else {
        format!("{title:?}")
    }
}
