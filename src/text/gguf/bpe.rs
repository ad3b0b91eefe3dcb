//! Byte-level BPE by merges (`tokenizer.ggml.model` is `gpt2`).

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::{AddedToken, Tokenizer};

use super::pre_tokenizer::PreTokenizer;
use crate::gguf::Metadata;
use crate::text::TextError;
use crate::text::detokenizer::{Pieces, byte_level};
use crate::text::sentencepiece::token_type;

/// A tokenizer over `tokens`, their types and the file's merges.
pub(super) fn tokenizer(
    metadata: &Metadata,
    pre: &PreTokenizer,
    tokens: &[String],
    types: &[i32],
) -> Result<Tokenizer, TextError> {
    let damaged = |what: String| TextError::Vocabulary { what };
    let vocab: Vocab = tokens.iter().cloned().zip(0..).collect();
    let mut merges = Vec::new();
    for (number, merge) in (1..).zip(metadata.strings("tokenizer.ggml.merges")?) {
        // A token may begin with a space.
        let space = merge.char_indices().skip(1).find(|(_, c)| *c == ' ');
        let pair = space.and_then(|(at, _)| Some((merge.get(..at)?, merge.get(at + 1..)?)));
        let (left, right) = pair
            .filter(|(_, right)| !right.is_empty())
            .ok_or_else(|| damaged(format!("merge {number} is not a pair: {merge:?}")))?;
        // Checked here, as the tokenizer relies on it.
        for token in [left, right, &[left, right].concat()] {
            if !vocab.contains_key(token) {
                return Err(damaged(format!(
                    "merge {number} ({merge:?}) needs the token {token:?}, which it lacks"
                )));
            }
        }
        merges.push((left.to_owned(), right.to_owned()));
    }
    let bpe = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .ignore_merges(pre.whole_words);
    let mut tokenizer = Tokenizer::new(bpe.build().map_err(|error| damaged(error.to_string()))?);
    if pre.composes {
        tokenizer
            .with_normalizer(Some(NFC))
            .map_err(|error| damaged(error.to_string()))?;
    }
    tokenizer.with_pre_tokenizer(Some(pre.build()?));
    let added = tokens.iter().zip(types).filter_map(|(token, kind)| {
        let special = match *kind {
            token_type::CONTROL | token_type::UNKNOWN => true,
            token_type::USER_DEFINED => false,
            _ => return None,
        };
        Some(AddedToken::from(token.clone(), special).normalized(false))
    });
    tokenizer
        .add_tokens(added)
        .map_err(|error| damaged(error.to_string()))?;
    Ok(tokenizer)
}

/// The bytes of every token.
pub(super) fn pieces(tokens: &[String], types: &[i32]) -> Result<Pieces, TextError> {
    let bytes = |(token, kind): (&String, &i32)| match *kind {
        token_type::CONTROL | token_type::UNKNOWN | token_type::UNUSED => Vec::new(),
        token_type::USER_DEFINED => token.as_bytes().to_vec(),
        _ => byte_level(token),
    };
    Pieces::new((0..).zip(tokens.iter().zip(types).map(bytes)).collect(), false)
}
