//! A whole log written at once, for a conversation that is copied or comes from elsewhere.

use jiff::Timestamp;

use super::SessionId;
use super::answer::{AnswerTokens, Status, Turn};
use super::pane::Settings;
use super::record::{End, Kind, Marks, Record, RecordId, VERSION};
use crate::text::spans::Run;

/// The records of a log in the making.
#[derive(Debug)]
pub struct NewLog {
    records: Vec<Record>,
    title: String,
}

impl NewLog {
    /// A log that has begun, with a title unless that is empty.
    pub fn begin(at: Timestamp, session: SessionId, model: &str, settings: Settings, title: &str) -> Self {
        let mut log = Self {
            records: Vec::new(),
            title: title.to_owned(),
        };
        let kind = Kind::Session {
            version: VERSION,
            session,
            model: model.to_owned(),
            settings,
        };
        let beginning = log.push(at, None, kind);
        if !title.is_empty() {
            let title = title.to_owned();
            log.push(at, Some(beginning), Kind::Title { title });
        }
        log
    }

    fn push(&mut self, at: Timestamp, parent: Option<RecordId>, kind: Kind) -> RecordId {
        let id = RecordId(self.records.len() as u64);
        self.records.push(Record { id, parent, at, kind });
        id
    }

    /// Adds a turn that follows `before`, or begins the conversation, as its `number`th turn from 1; gives its name in
    /// this log. One that runs is added as it would be had it been stopped.
    pub fn turn(&mut self, before: Option<RecordId>, turn: &Turn, number: usize) -> RecordId {
        let user = Kind::User {
            text: turn.prompt.clone(),
            typed: turn.typed.clone(),
            turn: number,
            seed: turn.seed,
        };
        let name = self.push(turn.at, Some(before.unwrap_or(RecordId::BEGINNING)), user);
        for Run { text, span, marker } in turn.answer.runs() {
            let text = text.to_owned();
            self.push(turn.at, Some(name), Kind::Delta { text, span, marker });
        }
        let mut stop_reason = None;
        let (reason, message, stats) = match &turn.status {
            Status::Submitting { .. } | Status::Streaming { .. } => (End::Cancelled, None, None),
            Status::Done {
                truncated: None,
                stats,
            } => (End::Stop, None, Some(*stats)),
            Status::Done { truncated, stats } => (End::Length, truncated.clone(), Some(*stats)),
            Status::Stopped { stats } => (End::Cancelled, None, *stats),
            Status::Failed {
                message,
                refused: Some(refused),
            } => {
                stop_reason = refused.stop_reason();
                (End::Rejected, Some(message.clone()), None)
            }
            Status::Failed { message, .. } => (End::Error, Some(message.clone()), None),
        };
        let kind = Kind::Finish {
            reason,
            stop_reason,
            message,
            stats,
            thoughts: turn.thoughts.clone(),
            turn: number,
            title: self.title.clone(),
            tokens: tokens_of(turn),
            marks: Marks::default(),
        };
        self.push(turn.at, Some(name), kind);
        name
    }

    /// The branch down to this turn, its `number`th, is the one to show.
    pub fn head(&mut self, at: Timestamp, turn: RecordId, number: usize) {
        self.push(at, Some(turn), Kind::Head { turn: number });
    }

    /// The records, to be appended to a log that doesn't exist yet.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}

/// The tokens of an answer that can go on, for its end.
pub(super) fn tokens_of(turn: &Turn) -> Option<AnswerTokens> {
    let known = !turn.tokens.model.is_empty() && !turn.tokens.ids.is_empty();
    (known && (turn.can_go_on() || turn.is_running())).then(|| turn.tokens.clone())
}
