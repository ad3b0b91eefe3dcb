//! One line of a conversation's log. The log only grows; a record names the one it follows, so that a fork is just
//! another child.

use std::ops::Range;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SessionId;
use super::answer::{AnswerTokens, Stats, Thought};
use super::draft::{Edit, Typed};
use super::pane::Settings;
use crate::text::spans::Span;

/// The version of the log that this program writes.
pub const VERSION: u32 = 1;

/// Names a record within its log; they grow from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordId(pub u64);

impl RecordId {
    /// A log's first record: what the first prompts of a conversation follow.
    pub const BEGINNING: Self = Self(0);
}

/// How the picker lists a conversation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Marks {
    /// Before all others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// Not at all, unless those are asked for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
}

impl Marks {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// By itself.
    Stop,
    /// At `max_tokens`.
    Length,
    /// It was stopped.
    Cancelled,
    /// It never ran.
    Rejected,
    /// Something failed.
    Error,
    /// A word of a later version.
    #[serde(other)]
    Unknown,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Kind {
    /// The beginning.
    Session {
        /// The log's version; this program writes 1.
        version: u32,
        /// The conversation's name.
        session: SessionId,
        /// The model that was loaded; empty if none was yet.
        #[serde(default)]
        model: String,
        /// How requests are made.
        #[serde(default)]
        settings: Settings,
    },
    /// Another model than the one named so far answers from the next prompt on.
    Model {
        /// Its name.
        model: String,
    },
    /// New settings.
    Settings {
        /// From the next prompt on.
        settings: Settings,
    },
    /// A new title.
    Title {
        /// The title.
        title: String,
    },
    /// A prompt.
    User {
        /// What the model was told.
        text: String,
        /// How the person typed that, where it is something else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        typed: Option<Typed>,
        /// Its number in the conversation, from 1.
        turn: usize,
        /// What the answer's random draws begin with, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seed: Option<u64>,
    },
    /// The answer to its parent, a prompt, goes on after it was cut off.
    Continue {
        /// So many bytes of it stay.
        keep: usize,
    },
    /// A piece of the answer to its parent, a prompt.
    Delta {
        /// The piece, raw.
        text: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Span::is_answer")]
        span: Span,
        /// Whether it only delimits a span.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        marker: bool,
    },
    /// The end of the answer to its parent, a prompt.
    Finish {
        /// How it ended.
        reason: End,
        /// By what it stopped, where it stopped by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// What it took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stats: Option<Stats>,
        /// How long each of its thoughts took.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        thoughts: Vec<Thought>,
        /// The prompt's number, from 1: with the title, it lets a listing read the end of a long log only.
        turn: usize,
        /// The conversation's title.
        #[serde(default)]
        title: String,
        /// The tokens of an answer that can go on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens: Option<AnswerTokens>,
        /// How the conversation is listed: here for the same reason.
        #[serde(default, skip_serializing_if = "Marks::is_none")]
        marks: Marks,
    },
    /// How the conversation is listed from here on.
    Marks {
        /// Its marks.
        marks: Marks,
    },
    /// The composer's content; the last one counts.
    Draft {
        /// The text.
        text: String,
        /// The caret, a byte offset.
        #[serde(default)]
        cursor: usize,
        /// Large pastes in it, by their bytes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pastes: Vec<Range<usize>>,
        /// A prompt that waited to be sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued: Option<String>,
        /// How that one was typed, where it was otherwise.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queued_typed: Option<Typed>,
        /// The prompt that this text is to take the place of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<Edit>,
    },
    /// The branch that ends with the parent, a prompt, is shown from here on; none, where that is the beginning.
    Head {
        /// How many turns it has.
        turn: usize,
    },
    /// Something of a later version: ignored, and left in the file.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// Whether it is a part of what is said: by such a conversation is dated.
    pub(super) fn is_said(&self) -> bool {
        matches!(
            self,
            Self::User { .. } | Self::Continue { .. } | Self::Delta { .. } | Self::Finish { .. }
        )
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: RecordId,
    /// What it follows; nothing precedes a session's beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RecordId>,
    /// When.
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub kind: Kind,
}

impl Record {
    /// The record as a line of JSON, its newline included.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        Ok(line)
    }

    /// Reads a line of JSON.
    pub fn from_line(line: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(line)
    }
}

/// Times as RFC 3339 text.
mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
