//! What a request asks for.

use crate::sampling::Sampling;
use crate::text::message::{ChatOptions, Message};

/// Names a request within one engine; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the answer follows.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
    /// Raw text; the tokenizer's BOS goes before it where the model wants one.
    Text(String),
    /// A conversation, rendered by the model's chat template with the opening of the assistant's turn.
    Messages(Vec<Message>),
}

/// The beginning of an answer that is there already, and goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begun {
    /// Its tokens; where there are none, those of the text are taken.
    pub tokens: Vec<u32>,
    /// Its text, markers included.
    pub text: String,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// What the answer follows.
    pub prompt: Prompt,
    /// What the chat template is told, for [`Prompt::Messages`].
    pub chat: Box<ChatOptions>,
    /// How the answer begins, for [`Prompt::Messages`]: only what follows is delivered, and counted.
    pub begun: Option<Box<Begun>>,
    /// The most tokens to generate; at least 1.
    pub max_tokens: usize,
    /// Whether nobody asked for as many: where they don't fit, they shrink to what the context and the KV budget leave,
    /// instead of the request being rejected.
    pub shrinks: bool,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the answer; they are never delivered.
    pub stop: Vec<String>,
    /// The conversation this belongs to: its rows are published to the prompt cache however short they are.
    pub session: Option<String>,
    /// Whether the prompt cache may be read and written for this request.
    pub cache: bool,
    /// Whether end-of-sequence tokens are treated as any other.
    pub ignore_eos: bool,
    /// Cancels the request itself once this many tokens were delivered.
    pub cancel_after_tokens: Option<usize>,
    /// Whether the log-probability of each token is reported.
    pub logprobs: bool,
}

impl Request {
    /// A greedy request for `prompt` with every option at its default.
    pub fn new(prompt: Prompt, max_tokens: usize) -> Self {
        Self {
            prompt,
            chat: Box::default(),
            begun: None,
            max_tokens,
            shrinks: false,
            sampling: Sampling::default(),
            stop: Vec::new(),
            session: None,
            cache: true,
            ignore_eos: false,
            cancel_after_tokens: None,
            logprobs: false,
        }
    }

    /// The same of so many tokens, or of `otherwise` where nobody said, which then shrink to what there is room for.
    pub fn up_to(prompt: Prompt, max_tokens: Option<usize>, otherwise: usize) -> Self {
        Self {
            shrinks: max_tokens.is_none(),
            ..Self::new(prompt, max_tokens.unwrap_or(otherwise))
        }
    }
}
