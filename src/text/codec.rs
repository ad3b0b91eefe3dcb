//! All that one model needs to turn text into tokens and back.

use std::path::Path;
use std::sync::Arc;

use super::detokenizer::{Detokenizer, Pieces};
use super::encoder::Encoder;
use super::message::{Message, Role};
use super::template::{ChatTemplate, Rendered};
use super::{TextError, folder, gguf};
use crate::gguf::{Gguf, Metadata};

/// Tokenizer, chat template and special tokens of one model. Clones share them.
#[derive(Clone)]
pub struct Codec(Arc<Parts>);

/// What a codec is made of.
pub(super) struct Parts {
    pub(super) encoder: Encoder,
    pub(super) pieces: Arc<Pieces>,
    pub(super) template: ChatTemplate,
    /// The token to put before a raw prompt, where the model wants one.
    pub(super) prompt_bos: Option<u32>,
    pub(super) eos: Vec<u32>,
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
        Self(Arc::new(parts))
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
        let file = Gguf::open(path)?;
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
        self.0.pieces.len()
    }

    /// The tokens of `text`. Special tokens written in it are recognised; no BOS is added.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.0.encoder.encode(text)
    }

    /// The tokens of a raw prompt: as [`Self::encode`], behind a BOS where the model wants one and `text` has
    /// none.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut tokens = self.encode(text);
        if let Some(bos) = self.0.prompt_bos
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    /// Renders a conversation with the opening of the assistant's turn. A template that is missing or fails
    /// is replaced by ChatML or plain text, with a note that says why.
    pub fn render(&self, messages: &[Message]) -> Rendered {
        self.0.template.render(messages)
    }

    /// The tokens of a conversation, open for the assistant's answer.
    pub fn encode_chat(&self, messages: &[Message]) -> EncodedChat {
        let Rendered { text, note } = self.render(messages);
        let tokens = self.encode(&text);
        let mut next = messages.to_vec();
        next.extend(
            [(Role::Assistant, "Answer."), (Role::User, "Question?")].map(|(role, content)| Message {
                role,
                content: content.to_owned(),
            }),
        );
        let next = self.encode(&self.render(&next).text);
        let stable = tokens
            .iter()
            .zip(&next)
            .take_while(|(now, then)| now == then)
            .count();
        EncodedChat { tokens, note, stable }
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
        &self.0.eos
    }

    /// A detokenizer for one answer.
    pub fn decoder(&self) -> Detokenizer {
        Detokenizer::new(Arc::clone(&self.0.pieces))
    }
}
