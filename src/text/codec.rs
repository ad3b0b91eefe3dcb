//! All that one model needs to turn text into tokens and back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::boundary::Bounded;
use super::detokenizer::{Detokenizer, Pieces};
use super::encoder::Encoder;
use super::guard::{self, TokenTexts};
use super::message::{ChatOptions, Message};
use super::spans::{Markup, Scanner};
use super::template::{ChatTemplate, Rendered};
use super::{TextError, folder, gguf};
use crate::gguf::{Gguf, Metadata};

/// Tokenizer, chat template and special tokens of one model. Clones share them.
#[derive(Clone)]
pub struct Codec(Arc<Inner>);

/// What a codec is made of.
pub(super) struct Parts {
    pub(super) encoder: Encoder,
    pub(super) pieces: Arc<Pieces>,
    pub(super) template: ChatTemplate,
    /// The token to put before a raw prompt, where the model wants one.
    pub(super) prompt_bos: Option<u32>,
    pub(super) eos: Vec<u32>,
}

/// A codec's parts, and what follows from them.
pub(super) struct Inner {
    pub(super) parts: Parts,
    spans: SpanTokens,
    /// Special tokens' texts, which messages must not forge.
    special: TokenTexts,
    /// Texts of added tokens at whose beginning a text can be cut without changing its tokens.
    pub(super) hard: TokenTexts,
}

/// The markers of an answer's spans, in text and in tokens.
struct SpanTokens {
    markup: Markup,
    /// Markers that are control tokens, which otherwise give no text.
    texts: Arc<BTreeMap<u32, &'static str>>,
}

/// A conversation as tokens, open for the assistant's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedChat {
    /// The prompt.
    pub tokens: Vec<u32>,
    /// What the user should know, where the model's own template wasn't used as it is.
    pub note: Option<String>,
    /// How many of the first tokens the rendering of the next turn will still begin with. Fewer than all
    /// where the template rewrites past turns, as some do with an answer's reasoning.
    pub stable: usize,
    /// How many of the first tokens the system prompt takes; `None` without one.
    pub system: Option<usize>,
    /// The prompt's end behind the last message: it may open a span, see [`Codec::scanner`].
    pub tail: String,
    /// Texts that end the answer: where the model has no template, the markers of the next turn.
    pub stop: &'static [&'static str],
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (vocab_size, eos) = (self.vocab_size(), self.eos());
        f.debug_struct("Codec")
            .field("vocab_size", &vocab_size)
            .field("eos", &eos)
            .finish_non_exhaustive()
    }
}

impl Codec {
    pub(super) fn new(parts: Parts) -> Self {
        let added = parts.encoder.added();
        let special = added.iter().filter(|token| token.special);
        let hard = added.iter().filter(|token| token.cuts);
        let markup = match parts.template.markup() {
            Some(markup) => markup.clone(),
            None => Markup::of_vocabulary(|text| added.iter().any(|token| token.text == text)),
        };
        let control = markup.markers().into_iter().filter_map(|text| {
            let id = parts.encoder.token_id(text)?;
            parts.pieces.is_silent(id).then_some((id, text))
        });
        let texts: BTreeMap<u32, &'static str> = control.collect();
        Self(Arc::new(Inner {
            special: special.map(|token| &token.text).collect(),
            hard: hard.map(|token| &token.text).collect(),
            spans: SpanTokens {
                markup: markup.with_control(|text| texts.values().any(|control| *control == text)),
                texts: Arc::new(texts),
            },
            parts,
        }))
    }

    /// The codec that a GGUF file describes. Fails when the file has no tokenizer, or one of a kind that
    /// isn't supported.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self, TextError> {
        gguf::read(metadata).map(Self::new)
    }

    /// The codec of a model: a folder in the Hugging Face layout, or a .gguf file. `None` when it has no tokenizer.
    pub fn open(path: &Path) -> Result<Option<Self>, TextError> {
        if path.is_dir() {
            return Self::from_folder(path);
        }
        Self::of_gguf(&Gguf::open(path)?)
    }

    /// The codec of a model in a .gguf file that is open; `None` when it has no tokenizer.
    pub fn of_gguf(file: &Gguf) -> Result<Option<Self>, TextError> {
        match file.metadata().get("tokenizer.ggml.model") {
            Some(_) => Self::from_gguf(file.metadata()).map(Some),
            None => Ok(None),
        }
    }

    /// The codec of a model folder in the Hugging Face layout; `None` when it has no `tokenizer.json`.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, TextError> {
        Ok(folder::read(folder)?.map(Self::new))
    }

    /// How many tokens there are: one more than the highest id. A model may have logits for more.
    pub fn vocab_size(&self) -> usize {
        self.0.parts.pieces.len()
    }

    /// The tokens of `text`. Special tokens written in it are recognised; no BOS is added.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.0.encode(text)
    }

    /// The tokens of a raw prompt: as [`Self::encode`], behind a BOS where the model wants one and `text` has
    /// none.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut tokens = self.encode(text);
        if let Some(bos) = self.0.parts.prompt_bos
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// Renders a conversation with the opening of the assistant's turn. A template that is missing or fails
    /// is replaced by ChatML or plain text, with a note that says why.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Rendered {
        self.0.parts.template.render(messages, options)
    }

    /// Whether the template has a switch for thinking, which [`ChatOptions::thinking`] turns.
    pub fn has_thinking_switch(&self) -> bool {
        self.0.parts.template.has_thinking_switch()
    }

    /// The tokens of a conversation, open for the assistant's answer. What messages hold is text, whatever special
    /// token it looks like.
    pub fn encode_chat(&self, messages: &[Message], options: &ChatOptions) -> EncodedChat {
        let markers = self.0.spans.markup.markers();
        let messages = guard::protect(messages, &self.0.special, &markers);
        let rendered = self.render(&messages, options);
        let Bounded {
            tokens,
            stable,
            system,
        } = self.0.bounded(&rendered, &messages, options);
        let opening = self.0.opening(&rendered, &messages, options);
        EncodedChat {
            tokens,
            note: rendered.note,
            stop: rendered.stop,
            stable,
            system,
            tail: guard::unmarked(&opening),
        }
    }

    /// Takes an answer to a conversation apart, whose prompt ends with `tail`: see [`EncodedChat::tail`].
    pub fn scanner(&self, tail: &str) -> Scanner {
        self.0.spans.markup.scanner(tail)
    }

    /// The text of `tokens`, as a stream of them would come out.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut detokenizer = self.decoder();
        let mut text: String = tokens.iter().map(|token| detokenizer.push(*token)).collect();
        text.push_str(&detokenizer.finish());
        text
    }

    /// The tokens that end an answer; may be none.
    pub fn eos(&self) -> &[u32] {
        &self.0.parts.eos
    }

    /// A detokenizer for one answer.
    pub fn decoder(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.0.parts.pieces))
    }

    /// A detokenizer for one answer in a conversation: it also shows those control tokens that [`Self::scanner`] looks for.
    pub fn answer_decoder(&self) -> Detokenizer {
        self.decoder().with_markers(Arc::clone(&self.0.spans.texts))
    }
}

impl Inner {
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        self.parts.encoder.encode(text)
    }
}
