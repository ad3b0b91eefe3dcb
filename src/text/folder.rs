//! A codec from a model folder in the Hugging Face layout.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::metaspace::PrependScheme;
use tokenizers::{AddedToken, Decoder, Tokenizer};

use super::TextError;
use super::codec::Parts;
use super::detokenizer::{Pieces, byte_level, fallback_byte};
use super::encoder::Encoder;
use super::gguf::{fallback, turn_ends};
use super::panics::caught;
use super::sentencepiece::{SentencePiece, read_model, token_type};
use super::template::{ChatTemplate, Specials};

/// A vocabulary's way from text to tokens and back.
struct Kind {
    encoder: Encoder,
    pieces: Pieces,
    /// The tokens that begin and end a text, as far as the vocabulary itself names them.
    bos: Option<u32>,
    eos: Option<u32>,
    /// Whether a text begins with BOS where the configuration doesn't say; for the BOS that it names.
    begins_with: Box<dyn Fn(u32) -> bool>,
}

/// Reads the codec's parts; `None` without a `tokenizer.json` or `tokenizer.model`.
pub(super) fn read(folder: &Path) -> Result<Option<Parts>, TextError> {
    let config = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let map = read_json(&folder.join("special_tokens_map.json"))?.unwrap_or_default();
    let kind = if let Some(bytes) = read_file(&folder.join("tokenizer.json"))? {
        library(folder.join("tokenizer.json"), &bytes, &config)?
    } else if let Some(bytes) = read_file(&folder.join("tokenizer.model"))? {
        sentence_piece(folder, &bytes, &config)?
    } else {
        return Ok(None);
    };
    let named = |key: &str| {
        let text = token_text(&config, key).or_else(|| token_text(&map, key));
        let id = text.as_deref().and_then(|text| kind.encoder.token_id(text));
        (text.unwrap_or_default(), id)
    };
    let (bos_text, bos) = named("bos_token");
    let (eos_text, eos) = named("eos_token");
    let (bos, named_eos) = (bos.or(kind.bos), eos.or(kind.eos));
    let wants_bos = match config.get("add_bos_token").and_then(Value::as_bool) {
        Some(wanted) => wanted,
        None => bos.is_some_and(|bos| (kind.begins_with)(bos)),
    };
    let source = chat_template(folder, &config)?;
    let fallback = fallback(|name| kind.encoder.token_id(name).is_some());
    let mut eos = eos_ids(folder)?;
    if eos.is_empty() {
        eos.extend(named_eos);
        eos.extend(turn_ends(source.as_deref(), fallback).filter_map(|name| kind.encoder.token_id(name)));
        eos.sort_unstable();
        eos.dedup();
    }
    let specials = Specials {
        bos: bos_text,
        eos: eos_text,
        wants_bos,
    };
    Ok(Some(Parts {
        pieces: Arc::new(kind.pieces),
        template: ChatTemplate::new(
            source.as_deref(),
            specials,
            fallback,
            Arc::new(jiff::ZonedDateTime::now),
        ),
        prompt_bos: bos.filter(|_| wants_bos),
        eos,
        encoder: kind.encoder,
    }))
}

/// What `tokenizer.json` describes. The library panics on some of what may stand there, also only once it encodes.
fn library(path: PathBuf, bytes: &[u8], config: &Value) -> Result<Kind, TextError> {
    let read = caught(|| {
        let kind = read_library(path.clone(), bytes, config)?;
        if let Encoder::Library { tokenizer, .. } = &kind.encoder {
            // What it says to it is seen when there is a text.
            let _ = tokenizer.encode_fast("A word, 2 more.\n", false);
        }
        Ok(kind)
    });
    read.unwrap_or_else(|| {
        Err(TextError::File {
            path,
            what: "the tokenizer library fails on it".to_owned(),
        })
    })
}

fn read_library(path: PathBuf, bytes: &[u8], config: &Value) -> Result<Kind, TextError> {
    let damaged = |what: String| TextError::File {
        path: path.clone(),
        what,
    };
    // All of it, escapes included: the library reads parts of it on trust.
    let file: Value = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    check_merges(bytes).map_err(damaged)?;
    let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(|error| damaged(error.to_string()))?;
    check_added(&file, &tokenizer).map_err(damaged)?;
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(None)
        .map_err(|error| damaged(error.to_string()))?;
    // Those that the file lacks get the next ids, as in other programs.
    let missing = added_tokens(config).into_iter().map(|(_, added)| added);
    let missing: Vec<AddedToken> = missing
        .filter(|added| tokenizer.token_to_id(&added.content).is_none())
        .collect();
    tokenizer
        .add_tokens(missing)
        .map_err(|error| damaged(error.to_string()))?;
    let mut steps = Steps::default();
    if let Some(decoder) = tokenizer.get_decoder() {
        steps.add(decoder)?;
    }
    let pieces = pieces(&tokenizer, &steps)?;
    let cut_white_space = steps.byte_level;
    let first = tokenizer.encode("", true).ok();
    let first = first.and_then(|encoding| encoding.get_ids().first().copied());
    Ok(Kind {
        pieces,
        bos: None,
        eos: None,
        begins_with: Box::new(move |bos| first == Some(bos)),
        encoder: Encoder::Library {
            tokenizer: Box::new(tokenizer),
            cut_white_space,
        },
    })
}

/// What SentencePiece's own file describes, with the tokens that the configuration adds.
fn sentence_piece(folder: &Path, bytes: &[u8], config: &Value) -> Result<Kind, TextError> {
    let mut model = read_model(bytes).map_err(|what| TextError::TokenizerModel {
        path: folder.join("tokenizer.model"),
        what,
    })?;
    let mut added = added_tokens(config);
    if let Some(Value::Object(more)) = read_json(&folder.join("added_tokens.json"))? {
        let known = added.len();
        for (content, id) in more {
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let news = !added
                .iter()
                .take(known)
                .any(|(_, added)| added.content == content);
            added.extend(
                id.filter(|_| news)
                    .map(|id| (id, AddedToken::from(content, true))),
            );
        }
        added.sort_by_key(|(id, _)| *id);
    }
    for (id, added) in added {
        let kind = if added.special {
            token_type::CONTROL
        } else {
            token_type::USER_DEFINED
        };
        model.vocabulary.add(id, added.content, kind)?;
    }
    let (vocabulary, rules) = (&model.vocabulary, model.rules);
    Ok(Kind {
        encoder: Encoder::SentencePiece(Box::new(SentencePiece::new(vocabulary, model.unknown, rules)?)),
        pieces: SentencePiece::pieces(vocabulary, rules)?,
        bos: model.bos,
        eos: model.eos,
        begins_with: Box::new(|_| true),
    })
}

/// The configuration's `added_tokens_decoder`, by id.
fn added_tokens(config: &Value) -> Vec<(u32, AddedToken)> {
    let entries = config.get("added_tokens_decoder").and_then(Value::as_object);
    let added = |(id, token): (&String, &Value)| {
        let flag = |key: &str| token.get(key).and_then(Value::as_bool).unwrap_or(false);
        let content = token
            .get("content")?
            .as_str()
            .filter(|content| !content.is_empty())?;
        let added = AddedToken::from(content, flag("special"))
            .single_word(flag("single_word"))
            .lstrip(flag("lstrip"))
            .rstrip(flag("rstrip"))
            .normalized(flag("normalized"));
        Some((id.parse().ok()?, added))
    };
    let mut all: Vec<(u32, AddedToken)> = entries.into_iter().flatten().filter_map(added).collect();
    all.sort_by_key(|(id, _)| *id);
    all
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, TextError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TextError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

fn read_json(path: &Path) -> Result<Option<Value>, TextError> {
    let Some(bytes) = read_file(path)? else {
        return Ok(None);
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| TextError::File {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// The text of a token that is named by its text, or by an object that holds it.
fn token_text(config: &Value, key: &str) -> Option<String> {
    let token = config.get(key)?;
    let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether a folder has a chat template of its own; none where that can't be read.
pub(super) fn has_template(folder: &Path) -> Option<bool> {
    let config = read_json(&folder.join("tokenizer_config.json")).ok()?;
    let template = chat_template(folder, &config.unwrap_or_default()).ok()?;
    Some(template.is_some())
}

/// `chat_template.jinja`, else the configuration's `chat_template`: a text, or a list of named ones with a
/// default; else that of `chat_template.json`.
fn chat_template(folder: &Path, config: &Value) -> Result<Option<String>, TextError> {
    let path = folder.join("chat_template.jinja");
    if let Some(bytes) = read_file(&path)? {
        let text = String::from_utf8(bytes);
        return text.map(Some).map_err(|_| TextError::File {
            path,
            what: "it is not UTF-8".to_owned(),
        });
    }
    let separate = read_json(&folder.join("chat_template.json"))?;
    let of = |config: &Value| config.get("chat_template").cloned();
    let template = of(config).or_else(|| of(separate.as_ref()?));
    let template = match &template {
        Some(Value::Array(named)) => {
            let default = named
                .iter()
                .find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            default.or(named.first()).and_then(|entry| entry.get("template"))
        }
        other => other.as_ref(),
    };
    // An empty one would lose what is said.
    let template = template
        .and_then(Value::as_str)
        .filter(|text| !text.trim().is_empty());
    Ok(template.map(str::to_owned))
}

/// `eos_token_id`, one or several, of `generation_config.json`, else of `config.json`, else of its
/// `text_config`.
fn eos_ids(folder: &Path) -> Result<Vec<u32>, TextError> {
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let Some(config) = read_json(&path)? else { continue };
        let set = |config: &Value| config.get("eos_token_id").filter(|ids| !ids.is_null()).cloned();
        let Some(ids) = set(&config).or_else(|| set(config.get("text_config")?)) else {
            continue;
        };
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        let ids: Option<Vec<u32>> = match &ids {
            Value::Array(several) => several.iter().map(id).collect(),
            one => id(one).map(|id| vec![id]),
        };
        return ids.ok_or_else(|| {
            let what = "`eos_token_id` should be a token id or a list of them".to_owned();
            TextError::File { path, what }
        });
    }
    Ok(Vec::new())
}

/// Added tokens must have the ids that the file gives them: the library renumbers those that don't follow the vocabulary.
fn check_added(file: &Value, tokenizer: &Tokenizer) -> Result<(), String> {
    for added in file
        .get("added_tokens")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let content = added.get("content").and_then(Value::as_str).unwrap_or_default();
        let wanted = added.get("id").and_then(Value::as_u64);
        let got = tokenizer.token_to_id(content).map(u64::from);
        if wanted != got {
            let show = |id: Option<u64>| id.map_or("none".to_owned(), |id| id.to_string());
            return Err(format!(
                "its added token {content:?} has id {}, but can only be given {}",
                show(wanted),
                show(got)
            ));
        }
    }
    Ok(())
}

/// What of `tokenizer.json` is checked before the tokenizer reads it.
#[derive(Deserialize)]
struct Unchecked {
    model: UncheckedModel,
}

#[derive(Deserialize)]
struct UncheckedModel {
    #[serde(default)]
    vocab: Value,
    #[serde(default)]
    merges: Vec<Value>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    unk_token: Option<String>,
}

/// Every merge must join tokens of the vocabulary to a token of the vocabulary: the tokenizer relies on it.
fn check_merges(bytes: &[u8]) -> Result<(), String> {
    let file: Unchecked = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let Value::Object(vocab) = &file.model.vocab else {
        return Ok(());
    };
    let prefix = file.model.continuing_subword_prefix.unwrap_or_default();
    if let Some(unknown) = file.model.unk_token.filter(|token| !vocab.contains_key(token)) {
        return Err(format!("its unknown token {unknown:?} is not in its vocabulary"));
    }
    for merge in &file.model.merges {
        let pair = match merge {
            Value::String(pair) => pair.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [left, right] => left.as_str().zip(right.as_str()),
                _ => None,
            },
            _ => None,
        };
        let joined = pair.and_then(|(left, right)| Some([left, right.strip_prefix(&prefix)?].concat()));
        let known = pair.zip(joined).is_some_and(|((left, right), joined)| {
            [left, right, &joined]
                .iter()
                .all(|token| vocab.contains_key(*token))
        });
        if !known {
            return Err(format!("its merge {merge} doesn't join tokens of its vocabulary"));
        }
    }
    Ok(())
}

/// How tokens turn into bytes.
#[derive(Default)]
struct Steps<'a> {
    byte_level: bool,
    byte_fallback: bool,
    strip_first_space: bool,
    /// Decoders that work on each token by itself.
    per_token: Vec<&'a DecoderWrapper>,
    /// What Metaspace writes for a space.
    space: Option<char>,
}

impl<'a> Steps<'a> {
    fn add(&mut self, decoder: &'a DecoderWrapper) -> Result<(), TextError> {
        let unknown = |found: &str| {
            Err(TextError::UnknownDecoder {
                found: found.to_owned(),
            })
        };
        match decoder {
            DecoderWrapper::ByteLevel(_) => self.byte_level = true,
            DecoderWrapper::ByteFallback(_) => self.byte_fallback = true,
            DecoderWrapper::Fuse(_) => {}
            DecoderWrapper::Replace(_) => self.per_token.push(decoder),
            DecoderWrapper::Strip(strip) if strip.content == ' ' && strip.stop == 0 => {
                self.strip_first_space |= strip.start > 0;
            }
            DecoderWrapper::Metaspace(metaspace) => {
                self.space = Some(metaspace.get_replacement());
                self.strip_first_space |= metaspace.get_prepend_scheme() != PrependScheme::Never;
            }
            DecoderWrapper::Sequence(steps) => {
                for step in steps.get_decoders() {
                    self.add(step)?;
                }
            }
            DecoderWrapper::Strip(_) => return unknown("Strip (of something else than the first spaces)"),
            DecoderWrapper::BPE(_) => return unknown("BPEDecoder"),
            DecoderWrapper::WordPiece(_) => return unknown("WordPiece"),
            DecoderWrapper::CTC(_) => return unknown("CTC"),
        }
        Ok(())
    }

    fn bytes(&self, token: String) -> Result<Vec<u8>, String> {
        if self.byte_fallback
            && let Some(byte) = fallback_byte(&token)
        {
            return Ok(vec![byte]);
        }
        let mut parts = vec![token];
        for step in &self.per_token {
            parts = step.decode_chain(parts).map_err(|error| error.to_string())?;
        }
        let mut token = parts.concat();
        if let Some(space) = self.space {
            token = token.replace(space, " ");
        }
        Ok(if self.byte_level {
            byte_level(&token)
        } else {
            token.into_bytes()
        })
    }
}

fn pieces(tokenizer: &Tokenizer, steps: &Steps<'_>) -> Result<Pieces, TextError> {
    let mut pieces: HashMap<u32, Vec<u8>> = HashMap::new();
    for (token, id) in tokenizer.get_vocab(false) {
        pieces.insert(
            id,
            steps
                .bytes(token)
                .map_err(|what| TextError::Vocabulary { what })?,
        );
    }
    for (id, added) in tokenizer.get_added_tokens_decoder() {
        let text = if added.special {
            Vec::new()
        } else {
            added.content.into_bytes()
        };
        pieces.insert(id, text);
    }
    Pieces::new(pieces.into_iter().collect(), steps.strip_first_space)
}
