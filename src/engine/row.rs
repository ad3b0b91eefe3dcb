//! What is accounted for one request while it prepares and runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::admission::Need;
use super::event::{Consumer, Event, Finish, FinishReason, Flow, StopReason};
use super::rates::RateMeter;
use super::request::RequestId;
use crate::sampling::Sampling;
use crate::text::spans::{Scanner, Spanned};
use crate::text::{Detokenizer, StopStrings};

/// A request that has been checked and tokenized.
pub struct Job {
    /// Its id.
    pub id: RequestId,
    /// The prompt's tokens; never empty.
    pub prompt: Vec<u32>,
    /// Prompt tokens of the system prompt alone; 0 where there is none.
    pub system: usize,
    /// Prompt tokens that the next turn's rendering will share; 0 where none is known.
    pub stable: usize,
    /// The most tokens to generate.
    pub max_tokens: usize,
    /// How tokens are chosen; the seed is always set.
    pub sampling: Sampling,
    /// The seed of its draws.
    pub seed: u64,
    /// Texts that end it.
    pub stops: StopStrings,
    /// Turns its tokens into text; `None` without a tokenizer.
    pub detokenizer: Option<Detokenizer>,
    /// Tells the answer's parts apart.
    pub scanner: Scanner,
    /// What the user should know of how the prompt was made.
    pub note: Option<String>,
    /// Its session's name.
    pub session: Option<String>,
    /// Whether the prompt cache may be used.
    pub cache: bool,
    /// Whether EOS is a token like any other.
    pub ignore_eos: bool,
    /// Cancel after this many delivered tokens.
    pub cancel_after_tokens: Option<usize>,
    /// Whether log-probabilities are reported.
    pub logprobs: bool,
    /// Hears what happens.
    pub consumer: Box<dyn Consumer>,
    /// When it was submitted.
    pub submitted: Instant,
}

/// Why a row must leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The reason that its consumer hears.
    pub reason: FinishReason,
    /// By what it stopped.
    pub stop_reason: Option<StopReason>,
    /// What went wrong.
    pub message: Option<String>,
}

impl End {
    /// An end without a message.
    pub fn plain(reason: FinishReason) -> Self {
        Self {
            reason,
            stop_reason: None,
            message: None,
        }
    }

    /// An end by itself.
    pub fn stop(by: StopReason) -> Self {
        Self {
            reason: FinishReason::Stop,
            stop_reason: Some(by),
            message: None,
        }
    }

    /// A failure.
    pub fn error(message: impl Into<String>) -> Self {
        Self {
            reason: FinishReason::Error,
            stop_reason: None,
            message: Some(message.into()),
        }
    }

    /// A refusal.
    pub fn rejected(message: impl Into<String>) -> Self {
        Self {
            reason: FinishReason::Rejected,
            stop_reason: None,
            message: Some(message.into()),
        }
    }
}

/// One request from its admission to its end.
pub struct Row {
    /// The request.
    pub job: Job,
    /// Prompt tokens served by the prompt cache.
    pub cached: usize,
    /// When it was admitted.
    pub admitted: Option<Instant>,
    /// When its first token was read.
    pub first_token: Option<Instant>,
    /// Tokens sampled and read, a terminating EOS included.
    pub generated: usize,
    /// Tokens sampled; leads `generated` by one in the pipeline.
    pub sampled: usize,
    /// Tokens whose KV was written after the prompt, in order.
    pub fed: Vec<u32>,
    /// A placeholder was fed: what the cache holds is not known, so it is never stored.
    pub fed_tainted: bool,
    /// It was merged into a batch with others.
    pub merged: bool,
    /// Set once it must leave.
    pub end: Option<End>,
    rate: RateMeter,
    current: u32,
    /// What the next cold step feeds is the prompt's last token.
    ends_prompt: bool,
    delivered: usize,
    poisoned: bool,
}

impl Row {
    /// A row that waits or prepares.
    pub fn new(job: Job) -> Self {
        Self {
            job,
            cached: 0,
            admitted: None,
            first_token: None,
            generated: 0,
            sampled: 0,
            fed: Vec::new(),
            fed_tainted: false,
            merged: false,
            end: None,
            rate: RateMeter::default(),
            current: 0,
            ends_prompt: false,
            delivered: 0,
            poisoned: false,
        }
    }

    /// Its request.
    pub fn id(&self) -> RequestId {
        self.job.id
    }

    /// How long it can come to be.
    pub fn need(&self) -> Need {
        Need {
            prompt: self.job.prompt.len(),
            max_tokens: self.job.max_tokens,
        }
    }

    /// Has the next step, a cold one, feed the prompt's last token, which the caches lack.
    pub fn feed_last_of_prompt(&mut self) {
        self.current = self.last_of_prompt();
        self.ends_prompt = true;
    }

    /// The prompt's last token.
    pub fn last_of_prompt(&self) -> u32 {
        self.job.prompt.last().copied().unwrap_or_default()
    }

    /// Accounts for the token that a cold step feeds, and gives it.
    pub fn feed_current(&mut self) -> u32 {
        if !std::mem::take(&mut self.ends_prompt) {
            self.fed.push(self.current);
        }
        self.current
    }

    /// Its tokens per second over the last second, if any came.
    pub fn tokens_per_second(&self, now: Instant) -> Option<f64> {
        self.rate
            .per_second(now.saturating_duration_since(self.job.submitted))
    }

    /// Whether the token that is sampled but not read is its last by count.
    pub fn pending_is_last(&self) -> bool {
        self.sampled >= self.job.max_tokens
    }

    /// Whether what its caches hold may be published under prompt + fed.
    pub fn coverage_is_exact(&self) -> bool {
        !self.fed_tainted && !self.poisoned
    }

    /// The tokens that its caches hold, given that the whole prompt was processed.
    pub fn covered(&self) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(self.job.prompt.len() + self.fed.len());
        tokens.extend_from_slice(&self.job.prompt);
        tokens.extend_from_slice(&self.fed);
        tokens
    }

    /// Takes a token that was sampled for it: counts it, delivers it, and sets [`Row::end`] where it is the last.
    pub fn accept(&mut self, token: u32, logprob: Option<f32>, is_eos: bool, now: Instant) {
        self.current = token;
        self.generated += 1;
        self.first_token.get_or_insert(now);
        self.rate
            .record(now.saturating_duration_since(self.job.submitted), 1);
        if is_eos && !self.job.ignore_eos {
            self.end = Some(End::stop(StopReason::Eos));
            return;
        }
        let mut text = Spanned::default();
        let mut stopped = false;
        if let Some(detokenizer) = &mut self.job.detokenizer {
            let piece = detokenizer.push(token);
            let scan = self.job.stops.push(&piece);
            text = self.job.scanner.push(&scan.text);
            stopped = scan.stopped.is_some();
        }
        let event = Event::Token {
            index: self.delivered,
            token,
            text,
            logprob: logprob.filter(|_| self.job.logprobs),
        };
        self.delivered += 1;
        match self.deliver(event) {
            Ok(Flow::Continue) => {}
            Ok(Flow::Stop) => self.end = Some(End::stop(StopReason::Consumer)),
            Err(message) => self.end = Some(End::error(message)),
        }
        if self.end.is_some() {
            return;
        }
        if stopped {
            self.end = Some(End::stop(StopReason::StopString));
        } else if self
            .job
            .cancel_after_tokens
            .is_some_and(|limit| self.delivered >= limit)
        {
            self.end = Some(End::plain(FinishReason::Cancelled));
        } else if self.generated >= self.job.max_tokens {
            self.end = Some(End::plain(FinishReason::Length));
        }
    }

    /// Tells the consumer; its panic or error ends this row alone and poisons its caches.
    pub fn deliver(&mut self, event: Event) -> Result<Flow, String> {
        let id = self.job.id;
        let consumer = &mut self.job.consumer;
        let outcome = catch_unwind(AssertUnwindSafe(|| consumer.deliver(id, event)));
        let message = match outcome {
            Ok(Ok(flow)) => return Ok(flow),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!(
                "the consumer of this request panicked: {}",
                panic_text(panic.as_ref())
            ),
        };
        self.poisoned = true;
        Err(message)
    }

    /// Ends the row: tells its consumer, with the text that was held back.
    pub fn finish(mut self, end: End, now: Instant) -> FinishReason {
        let stopped_by_string = end.stop_reason == Some(StopReason::StopString);
        let mut text = String::new();
        if let Some(detokenizer) = &mut self.job.detokenizer
            && !stopped_by_string
        {
            let piece = detokenizer.finish();
            let scan = self.job.stops.push(&piece);
            text = scan.text;
            if scan.stopped.is_none() {
                text.push_str(&self.job.stops.finish());
            }
        }
        let mut spanned = self.job.scanner.push(&text);
        spanned.append(&self.job.scanner.finish());
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        let admitted = self.admitted.unwrap_or(now);
        let reason = end.reason;
        let finish = Finish {
            reason,
            stop_reason: end.stop_reason,
            message: end.message,
            text: spanned,
            prompt_tokens: self.job.prompt.len(),
            cached_tokens: self.cached,
            generated_tokens: self.generated,
            queued_ms: ms(self.job.submitted, admitted),
            prefill_ms: self
                .admitted
                .map_or(0.0, |from| ms(from, self.first_token.unwrap_or(now))),
            decode_ms: self.first_token.map_or(0.0, |from| ms(from, now)),
            ttft_ms: self.first_token.map(|at| ms(self.job.submitted, at)),
        };
        // A consumer that can't take its own end has nobody left to tell.
        let _gone = self.deliver(Event::Finish(finish));
        reason
    }
}

/// The message of a panic, where it has one.
pub fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
