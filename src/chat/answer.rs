//! A prompt and its answer: what came of it, what it took, and where it is.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::TurnId;
use super::draft::{Draft, Said, Typed};
use super::record::{End, RecordId};
use super::room;
use crate::engine::{Finish, FinishReason, RequestId, StopReason};
use crate::text::spans::{Run, Span, Spanned};

/// What an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, served by the prompt cache.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Milliseconds from submission to admission.
    pub queued_ms: f64,
    /// Milliseconds from admission to the first token.
    pub prefill_ms: f64,
    /// Milliseconds from the first token to the end.
    pub decode_ms: f64,
    /// Milliseconds from submission to the first token, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
}

impl Stats {
    /// What an answer took in all that went on after it had been cut off.
    pub(super) fn followed_by(self, then: Self) -> Self {
        Self {
            generated_tokens: self.generated_tokens + then.generated_tokens,
            decode_ms: self.decode_ms + then.queued_ms + then.prefill_ms + then.decode_ms,
            ..self
        }
    }
}

impl From<&Finish> for Stats {
    fn from(finish: &Finish) -> Self {
        Self {
            prompt_tokens: finish.prompt_tokens,
            cached_tokens: finish.cached_tokens,
            generated_tokens: finish.generated_tokens,
            queued_ms: finish.queued_ms,
            prefill_ms: finish.prefill_ms,
            decode_ms: finish.decode_ms,
            ttft_ms: finish.ttft_ms,
        }
    }
}

/// What one of the model's thoughts took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thought {
    /// Milliseconds from its first token to its last.
    pub ms: u64,
    /// Its tokens.
    pub tokens: usize,
}

/// An answer's tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerTokens {
    /// The model whose tokens they are; empty where they aren't known.
    pub model: String,
    /// Their ids.
    pub ids: Vec<u32>,
    /// Bytes at the answer's end that came with its end alone: half a character, or what might have become a text that
    /// ends answers.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Where a running request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In the engine's queue.
    Queued,
    /// Its prompt is being processed: `done` of `total` tokens.
    Prefill {
        /// Prompt tokens held so far, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// It answers.
    Decode,
}

/// Where a turn is.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// On its way to the engine.
    Submitting {
        /// Under this name.
        turn: TurnId,
        /// Whether it is to be cancelled as soon as the engine has named it.
        stopping: bool,
    },
    /// The engine has it.
    Streaming {
        /// Under this name.
        request: RequestId,
        /// Where it is.
        phase: Phase,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// The answer came to its end.
    Done {
        /// What cut it off, in words; none where it wasn't.
        truncated: Option<String>,
        /// What it took.
        stats: Stats,
    },
    /// It was stopped, or the program ended in the middle: the answer is what came until then.
    Stopped {
        /// What it took, where the engine said.
        stats: Option<Stats>,
    },
    /// It failed.
    Failed {
        /// Why, and what to do.
        message: String,
        /// Why the request never ran, where it was refused by the queue, or rejected.
        refused: Option<Refused>,
    },
}

/// Why a request never ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The prompt, with what was said before, is too long for the model.
    Full,
    /// Something else, as the message says.
    Otherwise,
}

impl Refused {
    const FULL: &str = "full";

    /// As a log has it, among the reasons for which answers stop.
    pub(super) fn stop_reason(self) -> Option<String> {
        match self {
            Self::Full => Some(Self::FULL.into()),
            Self::Otherwise => None,
        }
    }

    /// Logs of earlier versions have it in the message alone.
    pub(super) fn read(stop_reason: Option<&str>, message: Option<&str>) -> Self {
        let full = match stop_reason {
            Some(reason) => reason == Self::FULL,
            None => message.is_some_and(|message| message.starts_with(room::FULL)),
        };
        if full { Self::Full } else { Self::Otherwise }
    }
}

/// A prompt and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The prompt's record in the log.
    pub record: RecordId,
    /// When it was sent.
    pub at: Timestamp,
    /// What the model was told.
    pub prompt: String,
    /// How the person typed that, where it is something else.
    pub typed: Option<Typed>,
    /// What the model said (so far), raw: a view must sanitize it. Its thinking and its calls of tools are told apart.
    pub answer: Spanned,
    /// What its thoughts took, in their order in the answer. A log that ends in the middle doesn't tell.
    pub thoughts: Vec<Thought>,
    /// What its random draws began with, where there were any.
    pub seed: Option<u64>,
    /// The answer's tokens, by which it can go on.
    pub tokens: AnswerTokens,
    /// Where it is.
    pub status: Status,
}

impl Turn {
    /// A prompt without an answer yet.
    pub(super) fn new(record: RecordId, at: Timestamp, prompt: impl Into<Said>, status: Status) -> Self {
        let prompt = prompt.into();
        Self {
            record,
            at,
            prompt: prompt.text,
            typed: prompt.typed,
            answer: Spanned::default(),
            thoughts: Vec::new(),
            seed: None,
            tokens: AnswerTokens::default(),
            status,
        }
    }

    /// The draft that its prompt was, with the caret at its end.
    pub fn draft(&self) -> Draft {
        Typed::draft(self.typed.as_ref(), &self.prompt)
    }

    /// Its prompt, to be sent again.
    pub(super) fn said(&self) -> Said {
        Said {
            text: self.prompt.clone(),
            typed: self.typed.clone(),
        }
    }

    /// Whether its answer was cut off and can go on where it ended.
    pub fn can_go_on(&self) -> bool {
        let cut = matches!(
            self.status,
            Status::Done {
                truncated: Some(_),
                ..
            } | Status::Stopped { .. }
        );
        cut && !self.answer.is_empty()
    }

    /// Takes a token's text, `elapsed` milliseconds after the one before it, and counts it where it belongs to a thought.
    pub(super) fn take(&mut self, text: &Spanned, elapsed: u64) {
        self.answer.append(text);
        let thought = |run: &Run<'_>| run.span == Span::Thinking;
        let thinks = if text.is_empty() {
            self.answer
                .runs()
                .next_back()
                .is_some_and(|run| thought(&run) && !run.marker)
        } else {
            text.runs().any(|run| thought(&run))
        };
        let shown = |run: &Run<'_>| thought(run) && !run.marker && !run.text.trim().is_empty();
        let count = self.answer.runs().filter(shown).count();
        if !thinks || count == 0 {
            return;
        }
        let begins = self.thoughts.len() < count;
        self.thoughts.resize(count, Thought::default());
        if let Some(thought) = self.thoughts.last_mut() {
            thought.tokens += 1;
            thought.ms += if begins { 0 } else { elapsed };
        }
    }

    /// Whether a request runs for it.
    pub fn is_running(&self) -> bool {
        matches!(self.status, Status::Submitting { .. } | Status::Streaming { .. })
    }

    /// Whether the model sees it in later prompts. One that failed without an answer went back to the draft instead.
    pub fn in_history(&self) -> bool {
        match self.status {
            Status::Failed { refused, .. } => refused.is_none() && !self.answer.is_empty(),
            _ => true,
        }
    }
}

/// How a turn ended, for the log.
pub(super) fn end_of(reason: FinishReason, stop: Option<StopReason>) -> (End, Option<String>) {
    let end = match reason {
        FinishReason::Stop => End::Stop,
        FinishReason::Length => End::Length,
        FinishReason::Cancelled => End::Cancelled,
        FinishReason::Rejected => End::Rejected,
        FinishReason::Error => End::Error,
    };
    (end, stop.map(|reason| reason.as_str().to_owned()))
}

/// A turn's status after it ended, as the engine or the log tells it.
pub(super) fn ended(
    end: End,
    stop_reason: Option<&str>,
    message: Option<String>,
    stats: Option<Stats>,
) -> Status {
    let refused = Refused::read(stop_reason, message.as_deref());
    let failed = |refused, otherwise: &str| Status::Failed {
        message: message.clone().unwrap_or_else(|| otherwise.to_owned()),
        refused,
    };
    match end {
        End::Stop => Status::Done {
            truncated: None,
            stats: stats.unwrap_or_default(),
        },
        End::Length => Status::Done {
            truncated: Some(message.unwrap_or_else(|| "the answer reached max-tokens".to_owned())),
            stats: stats.unwrap_or_default(),
        },
        End::Cancelled | End::Unknown => Status::Stopped { stats },
        End::Rejected => failed(Some(refused), "the engine rejected the request"),
        End::Error => failed(None, "the engine failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_request_never_ran_is_read_from_logs_of_all_versions() {
        let full = format!("{}: 9 of 8 tokens", room::FULL);
        for (stop_reason, message, refused) in [
            (Some("full"), "in other words", Refused::Full),
            (None, full.as_str(), Refused::Full),
            (None, "the queue is full", Refused::Otherwise),
            (Some("of a later version"), full.as_str(), Refused::Otherwise),
        ] {
            let status = ended(End::Rejected, stop_reason, Some(message.into()), None);
            let refused = Some(refused);
            let message = message.to_owned();
            assert_eq!(status, Status::Failed { message, refused });
        }
        for refused in [Refused::Full, Refused::Otherwise] {
            assert_eq!(Refused::read(refused.stop_reason().as_deref(), None), refused);
        }
    }
}
