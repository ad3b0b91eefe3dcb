//! From a request to a job: checked, tokenized, its boundaries known.

use std::time::Instant;

use super::SubmitError;
use super::event::Consumer;
use super::request::{Prompt, Request, RequestId};
use super::row::Job;
use crate::text::message::{ChatOptions, Message};
use crate::text::spans::{Markup, Scanner};
use crate::text::{Codec, Detokenizer, StopStrings};

/// A prompt in tokens, and where the prompt cache should cut it.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// How many of them the system prompt takes.
    pub system: Option<usize>,
    /// How many of them the next turn's rendering will share.
    pub stable: Option<usize>,
    /// What the user should know of how they were made.
    pub note: Option<String>,
    /// Texts that end the answer beside those that the request names.
    pub stop: &'static [&'static str],
    /// Turns the answer's tokens into text; `None` without a tokenizer.
    pub detokenizer: Option<Detokenizer>,
    /// Tells the answer's parts apart.
    pub scanner: Scanner,
    /// How many of the tokens at the end are the answer's own beginning.
    pub begun: usize,
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
    if request.begun.is_some() && !matches!(request.prompt, Prompt::Messages(_)) {
        return Err(SubmitError::Invalid(
            "an answer can only go on that answers messages".into(),
        ));
    }
    if matches!(&request.prompt, Prompt::Tokens(tokens) if tokens.is_empty())
        || matches!(&request.prompt, Prompt::Messages(messages) if messages.is_empty())
    {
        return Err(SubmitError::Invalid("the prompt is empty".into()));
    }
    Ok(())
}

/// Turns the prompt into tokens.
pub fn encode(request: &Request, codec: Option<&Codec>) -> Result<Encoded, SubmitError> {
    let plain = |tokens| Encoded {
        tokens,
        system: None,
        stable: None,
        note: None,
        stop: &[],
        detokenizer: codec.map(Codec::decoder),
        scanner: Markup::default().scanner(""),
        begun: 0,
    };
    if codec.is_none() && !request.stop.is_empty() {
        let what = "this model came without a tokenizer: its answers have no text that could be stopped at";
        return Err(SubmitError::Invalid(what.into()));
    }
    let needs_codec = || {
        let what =
            "this model came without a tokenizer: it takes prompts as token ids, not as text or messages";
        codec.ok_or_else(|| SubmitError::Invalid(what.into()))
    };
    let encoded = match &request.prompt {
        Prompt::Tokens(tokens) => plain(tokens.clone()),
        Prompt::Text(text) => plain(needs_codec()?.encode_prompt(text)),
        Prompt::Messages(messages) => {
            let codec = needs_codec()?;
            let mut encoded = encode_messages(messages, &request.chat, codec);
            if let Some(begun) = &request.begun {
                let tokens = match begun.tokens.as_slice() {
                    [] => codec.encode(&begun.text),
                    tokens => tokens.to_vec(),
                };
                encoded.begun = tokens.len();
                encoded.tokens.extend(tokens);
            }
            encoded
        }
    };
    if encoded.tokens.is_empty() {
        return Err(SubmitError::Invalid("the prompt is empty".into()));
    }
    Ok(encoded)
}

fn encode_messages(messages: &[Message], options: &ChatOptions, codec: &Codec) -> Encoded {
    let chat = codec.encode_chat(messages, options);
    let unknown = options.thinking.is_some() && !codec.has_thinking_switch();
    let unknown = unknown.then(|| "the model's chat template has no switch for thinking".to_owned());
    let note = chat.note.or(unknown);
    if let Some(note) = &note {
        tracing::warn!(%note, "chat template");
    }
    Encoded {
        scanner: codec.scanner(&chat.tail),
        detokenizer: Some(codec.answer_decoder()),
        tokens: chat.tokens,
        system: chat.system,
        stable: Some(chat.stable),
        note,
        stop: chat.stop,
        begun: 0,
    }
}

/// Puts a job together. The seed is drawn here where the request has none.
pub fn job(
    id: RequestId,
    request: Request,
    encoded: Encoded,
    consumer: Box<dyn Consumer>,
    submitted: Instant,
) -> Result<Job, SubmitError> {
    let seed = request.sampling.seed.unwrap_or_else(|| fresh_seed(id));
    let own = encoded.stop.iter().map(|&text| text.to_owned());
    let stops: Vec<String> = request.stop.into_iter().chain(own).collect();
    let mut stops = StopStrings::new(&stops).map_err(|error| SubmitError::Invalid(error.to_string()))?;
    let (mut detokenizer, mut scanner) = (encoded.detokenizer, encoded.scanner);
    let begun = encoded.tokens.len().saturating_sub(encoded.begun);
    // What reads the answer stands where it would had it written the beginning itself, which was delivered before.
    if let Some(detokenizer) = &mut detokenizer {
        for token in encoded.tokens.get(begun..).unwrap_or_default() {
            let piece = detokenizer.push(*token);
            scanner.push(&stops.push(&piece).text);
        }
    }
    let boundaries = [encoded.system, encoded.stable].map(Option::unwrap_or_default);
    Ok(Job {
        id,
        prompt: encoded.tokens,
        system: boundaries[0],
        stable: boundaries[1],
        max_tokens: request.max_tokens,
        shrinks: request.shrinks,
        cut: None,
        sampling: request.sampling,
        seed,
        stops,
        note: encoded.note,
        detokenizer,
        scanner,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Event;
    use crate::text::message::Role;
    use crate::text::tiny::write_two_letters;

    #[test]
    fn texts_that_a_missing_template_asks_to_stop_at_end_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        write_two_letters(folder.path());
        let codec = Codec::from_folder(folder.path()).unwrap();
        let request = Request {
            stop: vec!["own".into()],
            ..Request::new(Prompt::Messages(vec![Message::new(Role::User, "a")]), 9)
        };
        let encoded = encode(&request, codec.as_ref()).unwrap();
        assert!(
            encoded
                .note
                .as_ref()
                .is_some_and(|note| note.contains("no chat template"))
        );
        let (consumer, _events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
        let job = job(RequestId(0), request, encoded, Box::new(consumer), Instant::now()).unwrap();
        let scan = job.stops.clone().push("a\n\nuser: b");
        assert_eq!((scan.text.as_str(), scan.stopped.is_some()), ("a", true));
        assert!(job.stops.clone().push("aown").stopped.is_some());
    }
}
