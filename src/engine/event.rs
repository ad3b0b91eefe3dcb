//! What a request's consumer hears.

use super::request::RequestId;
use crate::text::spans::Spanned;

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// It came to its end; [`Finish::stop_reason`] says by what.
    Stop,
    /// `max_tokens` were generated.
    Length,
    /// It was cancelled.
    Cancelled,
    /// It could never be admitted: too long for the model, or over the KV budget.
    Rejected,
    /// Something failed; [`Finish::message`] says what.
    Error,
}

impl FinishReason {
    /// The word that scripts see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Rejected => "rejected",
            Self::Error => "error",
        }
    }
}

/// What ended a request that stopped by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The model's end-of-sequence token.
    Eos,
    /// One of the request's stop strings.
    StopString,
    /// The consumer asked for it.
    Consumer,
}

impl StopReason {
    /// The word that scripts see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eos => "eos",
            Self::StopString => "stop_string",
            Self::Consumer => "consumer",
        }
    }
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why it ended.
    pub reason: FinishReason,
    /// By what it stopped, where it stopped by itself.
    pub stop_reason: Option<StopReason>,
    /// What went wrong and what to do, for [`FinishReason::Rejected`] and [`FinishReason::Error`]; for
    /// [`FinishReason::Length`], what there was no more room for, where nobody had set `max_tokens`.
    pub message: Option<String>,
    /// Text that was held back for a stop string, a span's marker or half a character, and is now known to be the
    /// answer's.
    pub text: Spanned,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, tokens served by the prompt cache.
    pub cached_tokens: usize,
    /// Tokens sampled and read, a terminating EOS included.
    pub generated_tokens: usize,
    /// Milliseconds from submission to admission.
    pub queued_ms: f64,
    /// Milliseconds from admission to the first token (or the end, without one).
    pub prefill_ms: f64,
    /// Milliseconds from the first token to the end.
    pub decode_ms: f64,
    /// Milliseconds from submission to the first token, where there was one.
    pub ttft_ms: Option<f64>,
}

/// One thing that happened to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// What the user should know of how the prompt was made; before anything else, if at all.
    Note(String),
    /// It left the queue.
    Admitted {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Of these, tokens served by the prompt cache.
        cached_tokens: usize,
    },
    /// Part of its prompt was processed.
    Prefill {
        /// Prompt tokens held so far, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// A token of the answer; an EOS that ends it is not delivered.
    Token {
        /// Its place in the answer, from 0.
        index: usize,
        /// Its id.
        token: u32,
        /// The text that it completed, and what its parts are: never half a character, nor part of what may become a
        /// stop string or a span's marker.
        text: Spanned,
        /// Its log-probability under the model, where asked for.
        logprob: Option<f32>,
    },
    /// The end; nothing follows.
    Finish(Finish),
}

/// What a consumer says to a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Continue,
    /// End the answer here: [`StopReason::Consumer`].
    Stop,
}

/// The consumer can take no more: its request is evicted and nothing of it is cached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the consumer of this request failed: {0}")]
pub struct ConsumerError(pub String);

/// Takes a request's events, on the engine's thread: it must be quick. A panic or an error ends that request alone.
pub trait Consumer: Send {
    /// Takes one event.
    fn deliver(&mut self, id: RequestId, event: Event) -> Result<Flow, ConsumerError>;
}

/// Sends every event into a channel, with the request's id. A closed channel is a consumer's error.
impl Consumer for tokio::sync::mpsc::UnboundedSender<(RequestId, Event)> {
    fn deliver(&mut self, id: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        match self.send((id, event)) {
            Ok(()) => Ok(Flow::Continue),
            Err(_) => Err(ConsumerError("its channel is closed".into())),
        }
    }
}
