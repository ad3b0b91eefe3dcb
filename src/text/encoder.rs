//! Text to tokens, whatever the kind of vocabulary.

use tokenizers::Tokenizer;

use super::panics::caught;
use super::sentencepiece::SentencePiece;

/// White space beyond this many bytes in a row is tokenized piece by piece: the pattern that finds words
/// gives up on about a million, and what follows would be taken for one word.
const WHITE_SPACE: usize = 1 << 16;

/// Turns text into tokens; special tokens written in it are recognised.
pub(super) enum Encoder {
    /// What the `tokenizers` library reads or is told.
    Library {
        tokenizer: Box<Tokenizer>,
        /// Whether words are found by a pattern, which long runs of white space are too much for.
        cut_white_space: bool,
    },
    /// SentencePiece's byte-pair encoding by scores.
    SentencePiece(Box<SentencePiece>),
}

/// A token that is found in text before anything else.
pub(super) struct AddedToken {
    pub(super) text: String,
    /// It is no text, but says something of it.
    pub(super) special: bool,
    /// A text can be cut where it begins without changing its tokens.
    pub(super) cuts: bool,
}

impl Encoder {
    /// The tokens that are found first.
    pub(super) fn added(&self) -> Vec<AddedToken> {
        let tokenizer = match self {
            Self::Library { tokenizer, .. } => tokenizer,
            Self::SentencePiece(sentence_piece) => return sentence_piece.added(),
        };
        let added = tokenizer.get_added_tokens_decoder().into_values();
        added
            .map(|token| AddedToken {
                special: token.special,
                cuts: !token.lstrip && !token.single_word && !token.normalized,
                text: token.content,
            })
            .collect()
    }

    /// The token with that text.
    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        match self {
            Self::Library { tokenizer, .. } => tokenizer.token_to_id(text),
            Self::SentencePiece(sentence_piece) => sentence_piece.token_id(text),
        }
    }

    /// The tokens of `text`, without any that only begin or end a text.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let (tokenizer, cut_white_space) = match self {
            Self::Library {
                tokenizer,
                cut_white_space,
            } => (tokenizer, *cut_white_space),
            Self::SentencePiece(sentence_piece) => return sentence_piece.encode(text),
        };
        let mut tokens = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let cut = if cut_white_space {
                white_space_cut(rest)
            } else {
                rest.len()
            };
            let (part, after) = rest.split_at_checked(cut).unwrap_or((rest, ""));
            let encoded = caught(|| tokenizer.encode_fast(part, false));
            match encoded.unwrap_or_else(|| Err("it panicked".into())) {
                Ok(encoding) => tokens.extend_from_slice(encoding.get_ids()),
                Err(error) => {
                    tracing::error!(%error, bytes = part.len(), "the tokenizer failed; the text is left out")
                }
            }
            rest = after;
        }
        tokens
    }
}

/// Where `text` must be cut, inside of its first long run of white space; its length where there is none.
fn white_space_cut(text: &str) -> usize {
    let mut run = 0;
    for (at, c) in text.char_indices() {
        if !c.is_whitespace() {
            run = 0;
            continue;
        }
        if run >= WHITE_SPACE {
            return at;
        }
        run += c.len_utf8();
    }
    text.len()
}
