//! A codec from the `tokenizer.*` keys of a GGUF file: byte-level BPE.

use std::collections::HashSet;
use std::sync::Arc;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::TextError;
use super::codec::Parts;
use super::detokenizer::{Pieces, byte_level};
use super::template::{ChatTemplate, Fallback, Specials};
use crate::gguf::Metadata;

/// The kind of a token, as `tokenizer.ggml.token_type` numbers it.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
}

/// GPT-2's words, the run of white space at a text's end left to the rest.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// Llama 3's words.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's words.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A way of cutting text into words, as `tokenizer.ggml.pre` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PreTokenizer {
    Default,
    Gpt2,
    Llama3,
    Qwen2,
    SmolLm,
}

impl PreTokenizer {
    const KNOWN: [(&str, Self); 5] = [
        ("default", Self::Default),
        ("gpt-2", Self::Gpt2),
        ("llama-bpe", Self::Llama3),
        ("qwen2", Self::Qwen2),
        ("smollm", Self::SmolLm),
    ];

    fn named(name: &str) -> Result<Self, TextError> {
        let found = Self::KNOWN.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, pre)| *pre)
            .ok_or_else(|| TextError::UnknownPreTokenizer {
                found: name.to_owned(),
                known: Self::KNOWN.map(|(known, _)| known).join(", "),
            })
    }

    fn build(self) -> Result<PreTokenizerWrapper, TextError> {
        let split = |pattern: &str| match Split::new(
            SplitPattern::Regex(pattern.to_owned()),
            SplitDelimiterBehavior::Isolated,
            false,
        ) {
            Ok(split) => Ok(PreTokenizerWrapper::from(split)),
            Err(error) => Err(TextError::Vocabulary {
                what: format!("the pattern {pattern}: {error}"),
            }),
        };
        let bytes = |gpt2: bool| PreTokenizerWrapper::from(ByteLevel::new(false, false, gpt2));
        let steps = match self {
            Self::Default => vec![
                split(r"[\p{P}\$\+<=>\^~\|]+")?,
                split(GPT2)?,
                split(r"\p{N}+")?,
                split("[0-9][0-9][0-9]")?,
                bytes(false),
            ],
            Self::Gpt2 => vec![bytes(true)],
            Self::Llama3 => vec![split(LLAMA3)?, bytes(false)],
            Self::Qwen2 => vec![split(QWEN2)?, bytes(false)],
            Self::SmolLm => vec![Digits::new(true).into(), bytes(true)],
        };
        Ok(Sequence::new(steps).into())
    }
}

/// Reads the codec's parts from `metadata`.
pub(super) fn read(metadata: &Metadata) -> Result<Parts, TextError> {
    let model = metadata.str("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(TextError::UnknownModel {
            found: model.to_owned(),
            known: "gpt2 (byte-level BPE)".to_owned(),
        });
    }
    let pre = PreTokenizer::named(metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or("default"))?;
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    if tokens.is_empty() {
        return Err(TextError::Vocabulary {
            what: "it has no tokens".to_owned(),
        });
    }
    let types = match metadata.opt_i32s("tokenizer.ggml.token_type")? {
        Some(types) if types.len() != tokens.len() => {
            let what = format!("it has {} tokens, but types for {}", tokens.len(), types.len());
            return Err(TextError::Vocabulary { what });
        }
        Some(types) => types,
        None => vec![token_type::NORMAL; tokens.len()],
    };
    let tokenizer = tokenizer(metadata, pre, tokens, &types)?;
    let bos = special(metadata, "tokenizer.ggml.bos_token_id", tokens)?;
    let eos = special(metadata, "tokenizer.ggml.eos_token_id", tokens)?;
    let wants_bos = match metadata.opt_bool("tokenizer.ggml.add_bos_token")? {
        Some(wanted) => wanted,
        None => pre == PreTokenizer::Llama3,
    };
    let source = metadata.opt_str("tokenizer.chat_template")?;
    let text = |id: Option<u32>| {
        id.and_then(|id| tokens.get(id as usize))
            .cloned()
            .unwrap_or_default()
    };
    let specials = Specials {
        bos: text(bos),
        eos: text(eos),
        wants_bos,
    };
    let fallback = fallback(|name| tokenizer.token_to_id(name).is_some());
    let mut all_eos: Vec<u32> = eos.into_iter().collect();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        all_eos.extend(special(metadata, key, tokens)?);
    }
    all_eos.extend(turn_ends(source, fallback).filter_map(|name| tokenizer.token_to_id(name)));
    let mut seen = HashSet::new();
    all_eos.retain(|id| seen.insert(*id));
    Ok(Parts {
        pieces: Arc::new(pieces(tokens, &types)?),
        template: ChatTemplate::new(source, specials, fallback, Arc::new(jiff::ZonedDateTime::now)),
        prompt_bos: bos.filter(|_| wants_bos),
        eos: all_eos,
        cut_white_space: true,
        tokenizer,
    })
}

/// Tokens by which known templates end a turn, where this model's template (or what stands in for it) uses
/// them: some files name only the end of a text as EOS.
pub(super) fn turn_ends(template: Option<&str>, fallback: Fallback) -> impl Iterator<Item = &'static str> {
    let uses = move |name: &&str| match template {
        Some(source) => source.contains(name),
        None => fallback == Fallback::ChatMl && *name == "<|im_end|>",
    };
    ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"]
        .into_iter()
        .filter(uses)
}

/// What stands in for a missing template, by what the vocabulary `has`.
pub(super) fn fallback(has: impl Fn(&str) -> bool) -> Fallback {
    if has("<|im_start|>") && has("<|im_end|>") {
        Fallback::ChatMl
    } else {
        Fallback::Plain
    }
}

/// The token id of `key`, which must be one of `tokens`.
fn special(metadata: &Metadata, key: &str, tokens: &[String]) -> Result<Option<u32>, TextError> {
    let Some(id) = metadata.opt_u64(key)? else {
        return Ok(None);
    };
    match u32::try_from(id) {
        Ok(id) if (id as usize) < tokens.len() => Ok(Some(id)),
        _ => Err(TextError::Vocabulary {
            what: format!("`{key}` is {id}, but it has {} tokens", tokens.len()),
        }),
    }
}

fn pieces(tokens: &[String], types: &[i32]) -> Result<Pieces, TextError> {
    let bytes = |(token, kind): (&String, &i32)| match *kind {
        token_type::CONTROL | token_type::UNKNOWN | token_type::UNUSED => Vec::new(),
        token_type::USER_DEFINED => token.as_bytes().to_vec(),
        _ => byte_level(token),
    };
    Pieces::new((0..).zip(tokens.iter().zip(types).map(bytes)).collect(), false)
}

fn tokenizer(
    metadata: &Metadata,
    pre: PreTokenizer,
    tokens: &[String],
    types: &[i32],
) -> Result<Tokenizer, TextError> {
    let damaged = |what: String| TextError::Vocabulary { what };
    let vocab: Vocab = tokens.iter().cloned().zip(0..).collect();
    let mut merges = Vec::new();
    for (number, merge) in (1..).zip(metadata.strings("tokenizer.ggml.merges")?) {
        let pair = merge
            .split_once(' ')
            .filter(|(left, right)| !left.is_empty() && !right.is_empty());
        let (left, right) =
            pair.ok_or_else(|| damaged(format!("merge {number} is not a pair: {merge:?}")))?;
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
        .ignore_merges(pre == PreTokenizer::Llama3);
    let mut tokenizer = Tokenizer::new(bpe.build().map_err(|error| damaged(error.to_string()))?);
    if pre == PreTokenizer::Qwen2 {
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
