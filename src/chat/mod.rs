//! Conversations without a screen: a pure `handle(Event) -> Vec<Effect>`, their log, store and export.
//!
//! # How it is driven
//! A [`State`] holds everything that a screen shows of conversations. The application loop owns it, and alone does I/O:
//! ```text
//! key, engine event, snapshot, writer's report ──► Event ──► State::handle(at, event) ──► Vec<Effect> ──► do them, in order
//! ```
//! [`State::handle`] reads no clock and draws no random number: the caller gives the time and new [`SessionId`]s.
//!
//! | effect | what the loop does |
//! |---|---|
//! | [`Effect::Submit`] | `engine.submit(request, consumer)`; then [`Event::Submitted`] or [`Event::SubmitFailed`] with the same [`TurnId`] |
//! | [`Effect::Cancel`] | `engine.cancel(id)` |
//! | [`Effect::Write`] | hands the [`Write`] to the [`WriterThread`] |
//! | [`Effect::Bell`] | something was refused; the notice says what |
//! | [`Effect::Quit`] | ends the loop, then [`WriterThread::finish`] |
//!
//! The engine's `(RequestId, engine::Event)` become [`Event::Engine`]; those that overtake their [`Event::Submitted`]
//! are kept until it comes, and those of requests that nobody shows any more are ignored.
//!
//! # Rules
//! - Panes are numbered 1 to 9; there is always at least one, and the focus is always on one of them.
//! - A pane's composer text lives here ([`Pane::draft`]): the editor computes the next text and cursor and reports them
//!   by [`Event::Draft`]. [`Event::Submit`] sends the focused pane's draft; while broadcast is on, to every pane that takes part
//!   ([`Pane::receives`]). Those that would answer alike are told.
//! - A pane runs one request at a time. A prompt for a pane that still answers, or while the model loads, waits in
//!   [`Pane::queued`] (one per pane) and is sent when the pane is free. If a pane's place is taken, the whole submit
//!   is refused with a notice and the draft stays.
//! - [`Event::Stop`] cancels the focused pane's request and keeps the partial answer; a queued prompt returns to the draft.
//! - A prompt that was refused (the queue is full, rejected, or failed without a word of answer) stays in the transcript
//!   with the reason, returns to the draft, and isn't part of what the model sees next.
//! - A conversation is a [`Tree`]: [`Event::Regenerate`] answers the last prompt once more, and sending an edited prompt
//!   ([`Event::EditPrompt`]) asks it another way, each as a sibling of the turn that was there. [`Event::Sibling`] walks
//!   between them, and the log keeps which branch was shown. While an answer runs these are refused with a notice: it
//!   is stopped, or awaited, first. A prompt that is edited goes to its own pane alone, never to all.
//! - An answer that was cut off goes on by [`Event::Continue`] as the same message: its tokens ([`Turn::tokens`]) go along.
//! - [`Event::Keep`] keeps one of several answers to the same prompt; the other panes go back, and theirs become branches.
//! - A private pane ([`Pane::private`]) behaves like any other, but nothing of it is written, nor its requests cached.
//! - [`Event::ForkPane`] copies the shown branch, or its beginning, into a conversation of its own; an answer that runs,
//!   as far as it is.
//! - A stored conversation opens in a new pane ([`Event::OpenStored`]), or in the focused one where nothing has begun.
//! - Another engine can take the place of the one before ([`Event::NewEngine`]). Until then [`Event::Hold`] keeps prompts
//!   waiting; answers that run are awaited, or stopped ([`Event::StopAll`]).
//! - A closed pane can be reopened ([`Event::ReopenPane`]), the last nine of them; their logs stay locked until then.
//! - Text of the model is kept raw; a view must sanitize what it shows.
//! - Everything that would be lost is written: messages at once, answers and drafts within half a second ([`writer`]).

mod answer;
mod branch;
mod compare;
mod configure;
mod draft;
mod event;
mod export;
mod handle;
mod hold;
mod import;
mod layout;
mod new_log;
mod pane;
mod parameter;
mod preset;
mod quotes;
mod record;
mod replay;
mod room;
mod state;
pub mod store;
mod stored;
mod tree;
mod turn;
pub mod writer;

pub use answer::{AnswerTokens, Phase, Refused, Stats, Status, Thought, Turn};
pub use compare::{Compared, Comparison};
pub use draft::{Draft, Edit, Said, Typed};
pub use event::{Effect, Event, ForkAt, Notice, NoticeKind, Topic, Way};
pub use export::{ExportFormat, to_markdown};
pub use import::{ImportError, Imported, import};
pub use layout::{Layout, LayoutPane};
pub use new_log::NewLog;
pub use pane::{Access, Pane, Settings};
pub use parameter::{Origins, Parameter, Source, Sources};
pub use preset::{Preset, own_presets, read_presets, write_preset};
pub use quotes::unquote;
pub use record::{End, Kind, Marks, Record, RecordId};
pub use replay::{Conversation, replay};
pub use room::Limit;
pub use state::{EngineStatus, State};
pub use store::{Restored, Store, StoreError, Taken};
pub use tree::Tree;
pub use writer::{Ask, Report, Unsaved, Write, WriterThread};

pub use crate::sampling::Sampling;

use serde::{Deserialize, Serialize};

/// A pane's number, 1 to 9: what Alt-1 to Alt-9 select.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct PaneId(u8);

impl PaneId {
    /// The first pane.
    pub const FIRST: Self = Self(1);
    /// The most panes that there can be.
    pub const MAX: u8 = 9;

    /// The pane with this number, if there can be one.
    pub fn new(number: u8) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// Its number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// Every pane that there can be, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::MAX).map(Self)
    }
}

impl std::fmt::Display for PaneId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl TryFrom<u8> for PaneId {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        Self::new(number).ok_or_else(|| format!("pane {number} can't be: panes are numbered 1 to 9"))
    }
}

impl From<PaneId> for u8 {
    fn from(pane: PaneId) -> u8 {
        pane.0
    }
}

/// Names a conversation: the stem of its file, and the engine's `Request::session`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(uuid::Uuid);

impl SessionId {
    /// A new name, which sorts by the time of its making. Reads the clock: not for use inside `handle`.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7())
    }

    /// Its 128 bits.
    pub(super) fn bits(self) -> u128 {
        self.0.as_u128()
    }

    /// The name that stands for a hash's first 128 bits.
    pub(super) fn from_hash(hash: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (byte, hashed) in bytes.iter_mut().zip(hash) {
            *byte = *hashed;
        }
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The name with these 128 bits, for tests and fixed states.
    pub const fn from_bits(bits: u128) -> Self {
        Self(uuid::Uuid::from_u128(bits))
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that names no conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no session id: expected a UUID such as those that `sessions list` shows")]
pub struct BadSessionId(pub String);

impl std::str::FromStr for SessionId {
    type Err = BadSessionId;

    fn from_str(text: &str) -> Result<Self, BadSessionId> {
        uuid::Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| BadSessionId(text.to_owned()))
    }
}

impl TryFrom<String> for SessionId {
    type Error = BadSessionId;

    fn try_from(text: String) -> Result<Self, BadSessionId> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(session: SessionId) -> String {
        session.to_string()
    }
}

/// Names one submission within a [`State`]; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub u64);
