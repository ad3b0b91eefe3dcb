//! A scripted request: its tokens, and what of its text may be shown.

use std::time::Duration;

use super::script::{Answer, RowError, Script};
use crate::engine::admission::Need;
use crate::engine::chunks::ChunkPlan;
use crate::engine::rates::RateMeter;
use crate::engine::{Consumer, Prompt, Request, RequestId, StopReason};
use crate::text::message::Role;
use crate::text::spans::{Markup, Scanner};

/// Cuts text into tokens: a word with the white space before it.
pub(super) fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() && inside {
            words.push(&text[start..at]);
            start = at;
        }
        inside = !c.is_whitespace();
    }
    if start < text.len() {
        words.push(&text[start..]);
    }
    words
}

/// A token's id: FNV-1a of its text, so that equal words have equal ids.
pub(super) fn token_id(piece: &str) -> u32 {
    piece.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The prompt's tokens, and the text that answers are matched against and echo.
pub(super) fn read_prompt(prompt: &Prompt) -> (Vec<u32>, String) {
    let ids = |text: &str| words(text).into_iter().map(token_id).collect::<Vec<_>>();
    match prompt {
        Prompt::Tokens(tokens) => {
            let text: Vec<_> = tokens.iter().map(ToString::to_string).collect();
            (tokens.clone(), text.join(" "))
        }
        Prompt::Text(text) => (ids(text), text.clone()),
        Prompt::Messages(messages) => {
            let mut tokens = Vec::new();
            for message in messages {
                tokens.push(opening(message.role));
                tokens.extend(ids(&message.content));
            }
            tokens.push(opening(Role::Assistant));
            (
                tokens,
                messages
                    .last()
                    .map(|message| message.content.clone())
                    .unwrap_or_default(),
            )
        }
    }
}

fn opening(role: Role) -> u32 {
    token_id(match role {
        Role::System => "<system>",
        Role::User => "<user>",
        Role::Assistant => "<assistant>",
        Role::Tool => "<tool>",
    })
}

/// What a row says.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pieces: Vec<String>,
    /// Tokens before its end; none if it never ends.
    length: Option<u64>,
    pub(super) error: Option<RowError>,
}

impl Reply {
    pub(super) fn new(answer: Option<&Answer>, prompt: &str, ignore_eos: bool) -> Self {
        let cut = |text: &str| words(text).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let default = Answer::default();
        let answer = answer.unwrap_or(&default);
        let pieces = match (&answer.pieces, &answer.text) {
            (Some(pieces), _) => pieces.clone(),
            (None, Some(text)) => cut(text),
            (None, None) => cut(prompt),
        };
        let endless = (answer.endless || ignore_eos) && !pieces.is_empty();
        let whole = (pieces.len() as u64).saturating_mul(answer.repeat.unwrap_or(1));
        Self {
            pieces,
            length: (!endless).then_some(whole),
            error: answer.error.clone(),
        }
    }

    /// The token at a place; none at the end.
    pub(super) fn piece(&self, index: u64) -> Option<&str> {
        if self.length.is_some_and(|length| index >= length) {
            return None;
        }
        let place = usize::try_from(index % (self.pieces.len() as u64).max(1)).ok()?;
        self.pieces.get(place).map(String::as_str)
    }
}

/// Text on its way to the consumer: what may become a stop string is held back.
#[derive(Debug, Default)]
pub(super) struct Held {
    stops: Vec<String>,
    text: String,
}

impl Held {
    pub(super) fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        Self {
            stops,
            text: String::new(),
        }
    }

    /// Adds text; gives what may be shown, and whether a stop string ended the answer.
    pub(super) fn push(&mut self, piece: &str) -> (String, bool) {
        self.text.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| self.text.find(stop.as_str()))
            .min();
        if let Some(at) = found {
            self.text.truncate(at);
            return (std::mem::take(&mut self.text), true);
        }
        let begins = |tail: &str| self.stops.iter().any(|stop| stop.starts_with(tail));
        let keep = self
            .text
            .char_indices()
            .map(|(at, _)| at)
            .find(|&at| begins(&self.text[at..]));
        let held = self.text.split_off(keep.unwrap_or(self.text.len()));
        (std::mem::replace(&mut self.text, held), false)
    }

    /// What was held back after all belongs to the answer.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

/// Where a row is, beside its place in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    Prefill,
    Decode,
    Done,
}

/// A request with all that is known of it.
pub(super) struct Row {
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) consumer: Box<dyn Consumer>,
    pub(super) prompt: Vec<u32>,
    /// Tokens of the answer that are there already.
    pub(super) begun: usize,
    pub(super) reply: Reply,
    pub(super) reject: Option<String>,
    /// What to tell where the answer reaches `max_tokens`, once they have shrunk.
    pub(super) cut: Option<String>,
    pub(super) held: Held,
    pub(super) scanner: Scanner,
    pub(super) stage: Stage,
    pub(super) plan: ChunkPlan,
    /// Prompt tokens held.
    pub(super) done: usize,
    pub(super) cached: usize,
    pub(super) answer: Vec<u32>,
    /// Tokens sampled, an end-of-sequence token included.
    pub(super) generated: usize,
    pub(super) rate: RateMeter,
    pub(super) submitted: Duration,
    pub(super) admitted: Option<Duration>,
    pub(super) first_token: Option<Duration>,
    pub(super) finished: Option<Duration>,
}

impl Row {
    /// A request that waits.
    pub(super) fn new(
        id: RequestId,
        request: Request,
        consumer: Box<dyn Consumer>,
        script: &Script,
        now: Duration,
    ) -> Self {
        let (mut prompt, text) = read_prompt(&request.prompt);
        let begun = request
            .begun
            .as_deref()
            .map_or_else(Vec::new, |begun| match begun.tokens.as_slice() {
                [] => words(&begun.text).into_iter().map(token_id).collect(),
                tokens => tokens.to_vec(),
            });
        prompt.extend(&begun);
        let answer = script.answer_to(&text);
        Self {
            id,
            reply: Reply::new(answer, &text, request.ignore_eos),
            reject: answer.and_then(|answer| answer.reject.clone()),
            cut: None,
            held: Held::new(&request.stop),
            scanner: Markup::of_template(&script.model.template).scanner(""),
            request,
            consumer,
            prompt,
            begun: begun.len(),
            stage: Stage::Queued,
            plan: ChunkPlan::new(0, 1, None),
            done: 0,
            cached: 0,
            answer: Vec::new(),
            generated: 0,
            rate: RateMeter::new(),
            submitted: now,
            admitted: None,
            first_token: None,
            finished: None,
        }
    }

    /// Positions that hold something: the last token's are not written yet.
    pub(super) fn held_positions(&self) -> usize {
        match self.stage {
            Stage::Prefill | Stage::Decode => self.done + self.answer.len().saturating_sub(1),
            Stage::Queued | Stage::Done => 0,
        }
    }

    /// How long it can come to be.
    pub(super) fn need(&self) -> Need {
        Need {
            prompt: self.prompt.len(),
            max_tokens: self.request.max_tokens,
        }
    }

    /// What its caches hold at its end.
    pub(super) fn cache_key(&self) -> Vec<u32> {
        let mut tokens = self.prompt.clone();
        tokens.extend(self.answer.iter().take(self.answer.len().saturating_sub(1)));
        tokens
    }
}

/// How a row ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Stop(StopReason),
    Length,
    Cancelled,
    Rejected(String),
    Error(String),
    /// Its consumer failed, and hears nothing more.
    Consumer,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_the_white_space_before_them_and_lose_nothing() {
        assert_eq!(words("a bc\n d "), ["a", " bc", "\n d", " "]);
        assert_eq!(words("  x"), ["  x"]);
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("žluť 🦊"), ["žluť", " 🦊"]);
    }

    #[test]
    fn what_may_become_a_stop_string_is_held_back() {
        let mut held = Held::new(&["END".into(), "é!".into()]);
        assert_eq!(held.push("aE"), ("a".into(), false));
        assert_eq!(held.push("Nx"), ("ENx".into(), false));
        assert_eq!(held.push("é"), (String::new(), false));
        assert_eq!(held.push("yEN"), ("éy".into(), false));
        assert_eq!(held.finish(), "EN");
        let mut held = Held::new(&["END".into(), String::new()]);
        assert_eq!(held.push("xEND y"), ("x".into(), true));
    }
}
