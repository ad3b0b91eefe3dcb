//! A state with a hand-driven clock, and words for what happens to it.

use jiff::Timestamp;
use mlx_chat::chat::{
    Draft, Effect, Event, ForkAt, Kind, PaneId, Record, SessionId, Settings, State, Turn, TurnId, Write,
};
use mlx_chat::engine::telemetry::{EngineInfo, EngineState, Snapshot};
use mlx_chat::engine::{self, Finish, FinishReason, Prompt, Request, RequestId, StopReason, SubmitError};
use mlx_chat::text::message::{Message, Role};
use mlx_chat::text::spans::{Span, Spanned};

pub fn session(n: u128) -> SessionId {
    SessionId::from_bits(n)
}

pub fn pane(n: u8) -> PaneId {
    PaneId::new(n).unwrap()
}

/// The focused pane's conversation, copied whole.
pub fn fork(n: u128) -> Event {
    Event::ForkPane {
        session: session(n),
        at: ForkAt::End,
    }
}

pub fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap()
}

pub fn snapshot(state: EngineState) -> Event {
    Event::Snapshot(std::sync::Arc::new(Snapshot {
        state,
        ..Snapshot::loading("")
    }))
}

/// The engine is ready, with a model of this name.
pub fn ready_as(model: &str) -> Event {
    Event::Snapshot(std::sync::Arc::new(Snapshot {
        state: EngineState::Ready,
        info: EngineInfo {
            model: model.into(),
            ..EngineInfo::default()
        },
        ..Snapshot::loading("")
    }))
}

pub fn finish(reason: FinishReason) -> Finish {
    Finish {
        reason,
        stop_reason: (reason == FinishReason::Stop).then_some(StopReason::Eos),
        message: matches!(reason, FinishReason::Rejected | FinishReason::Error)
            .then(|| "too long".to_owned()),
        text: Spanned::default(),
        prompt_tokens: 10,
        cached_tokens: 4,
        generated_tokens: 3,
        queued_ms: 0.5,
        prefill_ms: 1.25,
        decode_ms: 2.0,
        ttft_ms: Some(1.75),
    }
}

/// A piece of an answer.
pub fn piece(text: &str) -> Kind {
    Kind::Delta {
        text: text.into(),
        span: Span::Answer,
        marker: false,
    }
}

pub fn token(text: &str) -> engine::Event {
    engine::Event::Token {
        index: 0,
        token: 7,
        text: text.into(),
        logprob: None,
    }
}

/// A token whose parts are given.
pub fn spanned(parts: &[(Span, bool, &str)]) -> engine::Event {
    let mut text = Spanned::default();
    for (span, marker, part) in parts {
        text.push(*span, *marker, part);
    }
    engine::Event::Token {
        index: 0,
        token: 7,
        text,
        logprob: None,
    }
}

pub struct Rig {
    pub state: State,
    pub ms: i64,
    next_request: u64,
}

impl Rig {
    /// Panes 1 to `panes` with sessions 1 to `panes`, and a loading engine.
    pub fn loading(panes: u128) -> Self {
        let more: Vec<SessionId> = (2..=panes).map(session).collect();
        Self {
            state: State::new(Settings::default(), session(1), &more),
            ms: 0,
            next_request: 100,
        }
    }

    pub fn ready(panes: u128) -> Self {
        let mut rig = Self::loading(panes);
        rig.event(snapshot(EngineState::Ready));
        rig
    }

    pub fn event(&mut self, event: Event) -> Vec<Effect> {
        self.ms += 10;
        self.state.handle(at(self.ms), event)
    }

    pub fn draft(&mut self, text: &str) -> Vec<Effect> {
        self.event(Event::Draft(Draft::at_end(text)))
    }

    /// Types and submits.
    pub fn send(&mut self, text: &str) -> Vec<Effect> {
        let mut effects = self.draft(text);
        effects.extend(self.event(Event::Submit));
        effects
    }

    /// The engine takes what was submitted.
    pub fn accept(&mut self, effects: &[Effect]) -> Vec<RequestId> {
        let mut requests = Vec::new();
        for (_, turn, _) in submissions(effects) {
            let request = RequestId(self.next_request);
            self.next_request += 1;
            self.event(Event::Submitted { turn, request });
            requests.push(request);
        }
        requests
    }

    /// Types, submits, and has the engine take it.
    pub fn ask(&mut self, text: &str) -> RequestId {
        let effects = self.send(text);
        self.accept(&effects)[0]
    }

    pub fn refuse(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let error = SubmitError::QueueFull { limit: 64 };
        submissions(effects)
            .into_iter()
            .flat_map(|(_, turn, _)| {
                self.event(Event::SubmitFailed {
                    turn,
                    error: error.clone(),
                })
            })
            .collect()
    }

    pub fn engine(&mut self, request: RequestId, event: engine::Event) -> Vec<Effect> {
        self.event(Event::Engine { request, event })
    }

    pub fn token(&mut self, request: RequestId, text: &str) -> Vec<Effect> {
        self.engine(request, token(text))
    }

    pub fn finish(&mut self, request: RequestId, reason: FinishReason) -> Vec<Effect> {
        self.engine(request, engine::Event::Finish(finish(reason)))
    }

    /// The answer to a request: these tokens, and its end. What is to be done for all of it.
    pub fn answer(&mut self, request: RequestId, tokens: &[&str], end: Finish) -> Vec<Effect> {
        let mut effects = Vec::new();
        for text in tokens {
            effects.extend(self.token(request, text));
        }
        effects.extend(self.engine(request, engine::Event::Finish(end)));
        effects
    }

    /// The engine takes what was submitted, and answers each with the same. What is to be done for all of it, first `sent`.
    pub fn answered(&mut self, sent: Vec<Effect>, tokens: &[&str], reason: FinishReason) -> Vec<Effect> {
        let requests = self.accept(&sent);
        let mut effects = sent;
        for request in requests {
            effects.extend(self.answer(request, tokens, finish(reason)));
        }
        effects
    }

    /// What is told at present.
    pub fn told(&self) -> Vec<&str> {
        let notices = self.state.notices().iter();
        notices.map(|notice| notice.text.as_str()).collect()
    }

    pub fn last_turn(&self, n: u8) -> &Turn {
        self.state.pane(pane(n)).unwrap().turns.last().unwrap()
    }

    pub fn draft_of(&self, n: u8) -> &str {
        self.state.pane(pane(n)).unwrap().draft.text()
    }
}

pub fn submissions(effects: &[Effect]) -> Vec<(PaneId, TurnId, Request)> {
    let submit = |effect: &Effect| match effect {
        Effect::Submit { pane, turn, request } => Some((*pane, *turn, request.clone())),
        _ => None,
    };
    effects.iter().filter_map(submit).collect()
}

pub fn records(effects: &[Effect], of: SessionId) -> Vec<Record> {
    let kept = |effect: &Effect| match effect {
        Effect::Write(Write::Records { session, records }) if *session == of => Some(records.clone()),
        _ => None,
    };
    effects.iter().filter_map(kept).flatten().collect()
}

pub fn message(role: Role, content: &str) -> Message {
    Message::new(role, content)
}

pub fn messages(effects: &[Effect]) -> Vec<Message> {
    match &submissions(effects)[0].2.prompt {
        Prompt::Messages(messages) => messages.clone(),
        other => panic!("not messages: {other:?}"),
    }
}
