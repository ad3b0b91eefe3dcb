//! Reads `tokenizer.model`: SentencePiece's protobuf message, as far as byte-pair encoding needs it.
//!
//! Format: github.com/google/sentencepiece, src/sentencepiece_model.proto.

use super::{Rules, Vocabulary, token_type};

/// What a file says.
#[derive(Debug, Default)]
pub(in crate::text) struct Model {
    pub(in crate::text) vocabulary: Vocabulary,
    pub(in crate::text) rules: Rules,
    pub(in crate::text) unknown: Option<u32>,
    pub(in crate::text) bos: Option<u32>,
    pub(in crate::text) eos: Option<u32>,
}

/// Reads a file's content; says what is wrong with it.
pub(in crate::text) fn read(bytes: &[u8]) -> Result<Model, String> {
    let mut kind = 1;
    let mut model = Model {
        unknown: Some(0),
        bos: Some(1),
        eos: Some(2),
        ..Model::default()
    };
    let mut normalizer = Normalizer::default();
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(piece)) => read_piece(piece, &mut model.vocabulary)?,
            (2, Value::Bytes(trainer)) => {
                for field in Fields(trainer) {
                    match field? {
                        (3, Value::Number(number)) => kind = number,
                        (24, Value::Number(1)) => return Err(suffix()),
                        (40, Value::Number(id)) => model.unknown = id_of(id),
                        (41, Value::Number(id)) => model.bos = id_of(id),
                        (42, Value::Number(id)) => model.eos = id_of(id),
                        _ => {}
                    }
                }
            }
            (3, Value::Bytes(spec)) => normalizer = Normalizer::read(spec)?,
            _ => {}
        }
    }
    if model.vocabulary.tokens.is_empty() {
        return Err("it is no SentencePiece model, or has no tokens".to_owned());
    }
    if kind != 2 {
        let name = match kind {
            1 => "Unigram",
            3 => "Word",
            4 => "Char",
            _ => "an unknown kind",
        };
        return Err(format!("it is {name}, not BPE"));
    }
    if normalizer.replaces_characters {
        let name = &normalizer.name;
        return Err(format!("it normalizes text by `{name}`"));
    }
    let known = model.vocabulary.tokens.len();
    for id in [&mut model.unknown, &mut model.bos, &mut model.eos] {
        *id = id.filter(|id| (*id as usize) < known);
    }
    model.rules = Rules {
        space_prefix: normalizer.space_prefix,
        space_behind_user_defined: false,
        collapse_spaces: normalizer.collapse_spaces,
        strip_after_special: false,
    };
    // Tokens that a user defined are found in text as it is, where a space is a space.
    let Vocabulary { tokens, types, .. } = &mut model.vocabulary;
    for (token, kind) in tokens.iter_mut().zip(types) {
        if *kind == token_type::USER_DEFINED {
            *token = token.replace(super::SPACE, " ");
        }
    }
    Ok(model)
}

fn suffix() -> String {
    "it writes spaces behind words, which is not supported".to_owned()
}

/// A token id; none where it is switched off by a negative one.
fn id_of(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn read_piece(bytes: &[u8], vocabulary: &mut Vocabulary) -> Result<(), String> {
    let (mut token, mut score, mut kind) = (String::new(), 0.0, token_type::NORMAL);
    for field in Fields(bytes) {
        match field? {
            (1, Value::Bytes(text)) => {
                let text = std::str::from_utf8(text);
                text.map_err(|_| format!("token {} is not UTF-8", vocabulary.tokens.len()))?
                    .clone_into(&mut token);
            }
            (2, Value::Word(bits)) => score = f32::from_bits(bits),
            (3, Value::Number(number)) => kind = i32::try_from(number).unwrap_or_default(),
            _ => {}
        }
    }
    vocabulary.tokens.push(token);
    vocabulary.scores.push(score);
    vocabulary.types.push(kind);
    Ok(())
}

#[derive(Debug)]
struct Normalizer {
    name: String,
    replaces_characters: bool,
    space_prefix: bool,
    collapse_spaces: bool,
}

impl Default for Normalizer {
    fn default() -> Self {
        Self {
            name: String::new(),
            replaces_characters: false,
            space_prefix: true,
            collapse_spaces: true,
        }
    }
}

impl Normalizer {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut spec = Self::default();
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(name)) => spec.name = String::from_utf8_lossy(name).into_owned(),
                (2, Value::Bytes(map)) => spec.replaces_characters = !map.is_empty(),
                (3, Value::Number(number)) => spec.space_prefix = number != 0,
                (4, Value::Number(number)) => spec.collapse_spaces = number != 0,
                (5, Value::Number(0)) => {
                    return Err("it keeps spaces as they are, which is not supported".to_owned());
                }
                _ => {}
            }
        }
        Ok(spec)
    }
}

/// A field's value, as it is on the wire.
enum Value<'a> {
    Number(u64),
    Word(u32),
    Bytes(&'a [u8]),
    /// Eight bytes, which no field here has.
    Other,
}

/// The fields of a message, with their numbers, in file order; ends after an error.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = tail;
        Some(head)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Word(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let left = self.0.len();
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| format!("it is no SentencePiece model: {left} bytes before its end")))
    }
}
