//! A codec from the `tokenizer.*` keys of a GGUF file.

mod bpe;
mod pre_tokenizer;

use std::collections::HashSet;
use std::sync::Arc;

use self::pre_tokenizer::PreTokenizer;
use super::TextError;
use super::codec::Parts;
use super::detokenizer::Pieces;
use super::encoder::Encoder;
use super::sentencepiece::{Rules, SentencePiece, Vocabulary, token_type};
use super::template::{ChatTemplate, Fallback, Specials};
use crate::gguf::Metadata;

/// A vocabulary's way from text to tokens and back, and its conventions.
struct Kind {
    encoder: Encoder,
    pieces: Pieces,
    /// Whether a text begins with BOS where the file doesn't say.
    wants_bos: bool,
    /// BOS and EOS where the file doesn't say.
    bos: Option<u32>,
    eos: Option<u32>,
}

/// Reads the codec's parts from `metadata`. That a text should end with EOS (`add_eos_token`) is not
/// followed: a prompt is there to be continued.
pub(super) fn read(metadata: &Metadata) -> Result<Parts, TextError> {
    let model = metadata.str("tokenizer.ggml.model")?;
    let kind = match model {
        "gpt2" => byte_level,
        "llama" => sentence_piece,
        _ => {
            return Err(TextError::UnknownModel {
                found: named(model),
                known: "gpt2 (byte-level BPE), llama (SentencePiece BPE)".to_owned(),
            });
        }
    };
    let tokens = metadata.strings("tokenizer.ggml.tokens")?;
    if tokens.is_empty() {
        return Err(TextError::Vocabulary {
            what: "it has no tokens".to_owned(),
        });
    }
    let mut types = match metadata.opt_i32s("tokenizer.ggml.token_type")? {
        Some(types) if types.len() != tokens.len() => {
            let what = format!("it has {} tokens, but types for {}", tokens.len(), types.len());
            return Err(TextError::Vocabulary { what });
        }
        Some(types) => types,
        None => vec![token_type::NORMAL; tokens.len()],
    };
    for (token, kind) in tokens.iter().zip(&mut types) {
        // Some converters take these for plain words.
        if *kind == token_type::NORMAL && (TURN_ENDS.contains(&token.as_str()) || token == "<|endoftext|>") {
            *kind = token_type::CONTROL;
        }
    }
    let kind = kind(metadata, tokens, types)?;
    let bos = special(metadata, "tokenizer.ggml.bos_token_id", tokens)?.or(kind.bos);
    let eos = special(metadata, "tokenizer.ggml.eos_token_id", tokens)?.or(kind.eos);
    let wants_bos = metadata
        .opt_bool("tokenizer.ggml.add_bos_token")?
        .unwrap_or(kind.wants_bos);
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
    let id_of = |name: &str| kind.encoder.token_id(name);
    let fallback = fallback(|name| id_of(name).is_some());
    let mut all_eos: Vec<u32> = eos.into_iter().collect();
    for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
        all_eos.extend(special(metadata, key, tokens)?);
    }
    all_eos.extend(turn_ends(source, fallback).filter_map(id_of));
    let mut seen = HashSet::new();
    all_eos.retain(|id| seen.insert(*id));
    Ok(Parts {
        pieces: Arc::new(kind.pieces),
        template: ChatTemplate::new(source, specials, fallback, Arc::new(jiff::ZonedDateTime::now)),
        prompt_bos: bos.filter(|_| wants_bos),
        eos: all_eos,
        encoder: kind.encoder,
    })
}

/// Byte-level BPE by merges.
fn byte_level(metadata: &Metadata, tokens: &[String], types: Vec<i32>) -> Result<Kind, TextError> {
    let pre = PreTokenizer::named(metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or("default"))?;
    Ok(Kind {
        encoder: Encoder::Library {
            tokenizer: Box::new(bpe::tokenizer(metadata, pre, tokens, &types)?),
            cut_white_space: true,
        },
        pieces: bpe::pieces(tokens, &types)?,
        wants_bos: pre.wants_bos,
        bos: None,
        eos: None,
    })
}

/// SentencePiece's BPE by scores. Unlike in its own files, nothing tells which of the tokens it has to find
/// in text have spaces for `▁`: a converter writes those that a user defined as they are in text.
fn sentence_piece(metadata: &Metadata, tokens: &[String], types: Vec<i32>) -> Result<Kind, TextError> {
    let scores = match metadata.opt_f32s("tokenizer.ggml.scores")? {
        Some(scores) => scores.to_vec(),
        None => vec![0.0; tokens.len()],
    };
    let name = metadata.opt_str("general.name")?.unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let flag = |key: &str, default: bool| metadata.opt_bool(key).map(|flag| flag.unwrap_or(default));
    let rules = Rules {
        space_prefix: flag("tokenizer.ggml.add_space_prefix", true)?,
        space_behind_user_defined: true,
        collapse_spaces: flag("tokenizer.ggml.remove_extra_whitespaces", false)?,
        // A convention of Phi-3's tokenizer that its files don't state.
        strip_after_special: name.contains("phi-3") || name.contains("phi3"),
    };
    let unknown = special(metadata, "tokenizer.ggml.unknown_token_id", tokens)?;
    let control = |id: u32| {
        let kind = types.get(id as usize);
        (kind == Some(&token_type::CONTROL)).then_some(id)
    };
    let (bos, eos) = (control(1), control(2));
    let vocabulary = Vocabulary {
        tokens: tokens.to_vec(),
        scores,
        types,
    };
    Ok(Kind {
        encoder: Encoder::SentencePiece(Box::new(SentencePiece::new(&vocabulary, unknown, rules)?)),
        pieces: SentencePiece::pieces(&vocabulary, rules)?,
        wants_bos: true,
        bos,
        eos,
    })
}

/// A kind of vocabulary that isn't read, with what it is where that is known.
fn named(model: &str) -> String {
    let what = match model {
        "t5" => "Unigram",
        "bert" => "WordPiece",
        "rwkv" => "RWKV World",
        _ => return model.to_owned(),
    };
    format!("{model} ({what})")
}

/// Tokens by which known templates end a turn.
const TURN_ENDS: [&str; 9] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

/// Those tokens by which this model's template (or what stands in for it) ends a turn: some files name only
/// the end of a text as EOS.
pub(super) fn turn_ends(template: Option<&str>, fallback: Fallback) -> impl Iterator<Item = &'static str> {
    let uses = move |name: &&str| match template {
        // Where there are channels, `<|end|>` ends one message of several.
        Some(source) => source.contains(name) && !(*name == "<|end|>" && has_channels(source)),
        None => fallback == Fallback::ChatMl && *name == "<|im_end|>",
    };
    TURN_ENDS.into_iter().filter(uses)
}

/// Whether an answer's parts are messages of their own.
fn has_channels(template: &str) -> bool {
    ["<|return|>", "<|channel|>"]
        .iter()
        .any(|marker| template.contains(marker))
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
