//! From a request to a job: checked, tokenized, its boundaries known.

use std::time::Instant;

use super::SubmitError;
use super::event::Consumer;
use super::request::{Prompt, Request, RequestId};
use super::row::Job;
use crate::text::message::{Message, Role};
use crate::text::{Codec, StopStrings};

/// A prompt in tokens, and where the prompt cache should cut it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// How many of them the system prompt takes.
    pub system: Option<usize>,
    /// How many of them the next turn's rendering will share.
    pub stable: Option<usize>,
}

/// Checks what can be checked without the model.
pub fn check(request: &Request) -> Result<(), SubmitError> {
    request
        .sampling
        .check()
        .map_err(|error| SubmitError::Invalid(error.to_string()))?;
    if request.max_tokens == 0 {
        return Err(SubmitError::Invalid(
            "max_tokens is 0, but must be at least 1".into(),
        ));
    }
    if request.cancel_after_tokens == Some(0) {
        return Err(SubmitError::Invalid(
            "cancel_after_tokens is 0, but must be at least 1".into(),
        ));
    }
    StopStrings::new(&request.stop).map_err(|error| SubmitError::Invalid(error.to_string()))?;
    if matches!(&request.prompt, Prompt::Tokens(tokens) if tokens.is_empty())
        || matches!(&request.prompt, Prompt::Messages(messages) if messages.is_empty())
    {
        return Err(SubmitError::Invalid("the prompt is empty".into()));
    }
    Ok(())
}

/// Turns the prompt into tokens.
pub fn encode(prompt: &Prompt, codec: Option<&Codec>) -> Result<Encoded, SubmitError> {
    let plain = |tokens| Encoded {
        tokens,
        system: None,
        stable: None,
    };
    let needs_codec = || {
        let what =
            "this model came without a tokenizer: it takes prompts as token ids, not as text or messages";
        codec.ok_or_else(|| SubmitError::Invalid(what.into()))
    };
    let encoded = match prompt {
        Prompt::Tokens(tokens) => plain(tokens.clone()),
        Prompt::Text(text) => plain(needs_codec()?.encode_prompt(text)),
        Prompt::Messages(messages) => encode_messages(messages, needs_codec()?),
    };
    if encoded.tokens.is_empty() {
        return Err(SubmitError::Invalid("the prompt is empty".into()));
    }
    Ok(encoded)
}

fn encode_messages(messages: &[Message], codec: &Codec) -> Encoded {
    let chat = codec.encode_chat(messages);
    if let Some(note) = &chat.note {
        tracing::warn!(%note, "chat template");
    }
    let system = messages
        .first()
        .filter(|first| first.role == Role::System && messages.len() > 1)
        .map(|first| {
            // Whatever follows the system prompt differs between the two renderings, so what they share is its part.
            let other = Message {
                role: Role::User,
                content: "\u{1}".into(),
            };
            let probe = codec.encode_chat(&[first.clone(), other]);
            probe
                .tokens
                .iter()
                .zip(&chat.tokens)
                .take_while(|(a, b)| a == b)
                .count()
        });
    Encoded {
        tokens: chat.tokens,
        system,
        stable: Some(chat.stable),
    }
}

/// Puts a job together. The seed is drawn here where the request has none.
pub fn job(
    id: RequestId,
    request: Request,
    encoded: Encoded,
    codec: Option<&Codec>,
    consumer: Box<dyn Consumer>,
    submitted: Instant,
) -> Result<Job, SubmitError> {
    let seed = request.sampling.seed.unwrap_or_else(|| fresh_seed(id));
    let stops = StopStrings::new(&request.stop).map_err(|error| SubmitError::Invalid(error.to_string()))?;
    let boundaries = [encoded.system, encoded.stable].map(Option::unwrap_or_default);
    Ok(Job {
        id,
        prompt: encoded.tokens,
        system: boundaries[0],
        stable: boundaries[1],
        max_tokens: request.max_tokens,
        sampling: request.sampling,
        seed,
        stops,
        detokenizer: codec.map(Codec::decoder),
        session: request.session,
        cache: request.cache,
        ignore_eos: request.ignore_eos,
        cancel_after_tokens: request.cancel_after_tokens,
        logprobs: request.logprobs,
        consumer,
        submitted,
    })
}

/// A seed that differs between requests even of the same instant.
fn fresh_seed(id: RequestId) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(id)
}
