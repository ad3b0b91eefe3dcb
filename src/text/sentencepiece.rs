//! SentencePiece's byte-pair encoding, as Llama 2, Mistral, Gemma and Phi-3 use it: neighbours whose joined
//! text is a token are joined, the token of the highest score first, the leftmost of equals.
//!
//! Algorithm: Kudo and Richardson 2018, "SentencePiece", with a priority queue over a linked list of symbols,
//! so that a text of n characters costs O(n log n).

mod file;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};

use aho_corasick::{AhoCorasick, MatchKind};

use super::TextError;
use super::detokenizer::{Pieces, fallback_byte};
use super::encoder::AddedToken;

pub(super) use file::read as read_model;

/// What stands for a space.
const SPACE: char = '▁';
/// Plain text beyond this many bytes is encoded part by part, which bounds what encoding takes.
const PART: usize = 1 << 22;
/// More text in special tokens than any vocabulary has (Gemma: 70 kB); the automaton that finds them takes a
/// multiple.
const SPECIAL_TEXT: usize = 1 << 22;

/// How far behind a vocabulary's end an added token may be.
const MORE_TOKENS: usize = 1 << 16;
/// Special tokens behind which white space is text even with [`Rules::strip_after_special`].
const NEVER_STRIPPED: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// The kind of a token, as SentencePiece files and `tokenizer.ggml.token_type` number it.
pub(super) mod token_type {
    pub(in crate::text) const NORMAL: i32 = 1;
    pub(in crate::text) const UNKNOWN: i32 = 2;
    pub(in crate::text) const CONTROL: i32 = 3;
    pub(in crate::text) const USER_DEFINED: i32 = 4;
    pub(in crate::text) const UNUSED: i32 = 5;
    pub(in crate::text) const BYTE: i32 = 6;
}

/// A vocabulary as a file holds it: a token's id is its place. All lists are as long as `tokens`.
#[derive(Debug, Default, Clone)]
pub(super) struct Vocabulary {
    pub(super) tokens: Vec<String>,
    pub(super) scores: Vec<f32>,
    /// See [`token_type`].
    pub(super) types: Vec<i32>,
}

impl Vocabulary {
    /// Puts in a token at `id`; what lies between is unused.
    pub(super) fn add(&mut self, id: u32, token: String, kind: i32) -> Result<(), TextError> {
        let place = id as usize;
        if place > self.tokens.len() + MORE_TOKENS {
            let known = self.tokens.len();
            let what = format!("{token:?} has the id {id}, but it has {known} tokens");
            return Err(TextError::Vocabulary { what });
        }
        if self.tokens.len() <= place {
            self.tokens.resize(place + 1, String::new());
            self.scores.resize(place + 1, 0.0);
            self.types.resize(place + 1, token_type::UNUSED);
        }
        if let Some((text, of)) = self.tokens.get_mut(place).zip(self.types.get_mut(place)) {
            (*text, *of) = (token, kind);
        }
        Ok(())
    }
}

/// How text is treated around the joining of symbols.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rules {
    /// A space is put before a text, and before what follows a control token.
    pub(super) space_prefix: bool,
    /// And before what follows a token that a user defined.
    pub(super) space_behind_user_defined: bool,
    /// Spaces at the ends are dropped, several in a row become one.
    pub(super) collapse_spaces: bool,
    /// White space behind a special token belongs to it, but for tokens that stand for no turn.
    pub(super) strip_after_special: bool,
}

/// Encodes text over one vocabulary.
pub(super) struct SentencePiece {
    /// Tokens that symbols may be joined to, by their text.
    ids: HashMap<Box<str>, u32>,
    /// By id; no negative zero.
    scores: Vec<f32>,
    /// By id: tokens that are never given out, but taken apart again.
    unused: Vec<bool>,
    /// The length in bytes of the longest text in `ids`.
    longest: usize,
    /// The tokens of single bytes.
    bytes: Vec<Option<u32>>,
    unknown: Option<u32>,
    special: Special,
    rules: Rules,
}

/// Finds special tokens in text.
struct Special {
    automaton: AhoCorasick,
    /// The automaton's patterns.
    texts: Vec<String>,
    /// By the automaton's pattern.
    tokens: Vec<SpecialToken>,
}

#[derive(Debug, Clone, Copy)]
struct SpecialToken {
    id: u32,
    /// White space behind it is dropped.
    strips: bool,
    /// What follows is treated as a text's beginning.
    begins: bool,
    /// It is no text.
    control: bool,
}

impl SentencePiece {
    /// Fails when characters could be left without any token, or the lists' lengths differ.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        unknown: Option<u32>,
        rules: Rules,
    ) -> Result<Self, TextError> {
        let damaged = |what: String| Err(TextError::Vocabulary { what });
        let Vocabulary {
            tokens,
            scores,
            types,
        } = vocabulary;
        if scores.len() != tokens.len() || types.len() != tokens.len() {
            let (scores, types, tokens) = (scores.len(), types.len(), tokens.len());
            return damaged(format!("{tokens} tokens have {scores} scores and {types} types"));
        }
        let mut ids: HashMap<Box<str>, u32> = HashMap::new();
        let mut bytes = vec![None; 256];
        let mut first_unknown = None;
        for ((id, token), kind) in (0_u32..).zip(tokens).zip(types) {
            match *kind {
                token_type::BYTE => {
                    let byte = fallback_byte(token);
                    let Some(place) = byte.and_then(|byte| bytes.get_mut(usize::from(byte))) else {
                        return damaged(format!("its byte token {token:?} is not like <0x0A>"));
                    };
                    place.get_or_insert(id);
                }
                token_type::UNKNOWN => _ = first_unknown.get_or_insert(id),
                token_type::CONTROL => {}
                _ if token.is_empty() => {}
                _ => _ = ids.entry(token.as_str().into()).or_insert(id),
            }
        }
        let unknown = unknown.or(first_unknown);
        if unknown.is_none()
            && let Some(missing) = bytes.iter().position(Option::is_none)
        {
            return damaged(format!(
                "it has no unknown token, and none for the byte <0x{missing:02X}>"
            ));
        }
        Ok(Self {
            longest: ids.keys().map(|token| token.len()).max().unwrap_or(0),
            ids,
            scores: scores.iter().map(|score| score + 0.0).collect(),
            unused: types.iter().map(|kind| *kind == token_type::UNUSED).collect(),
            bytes,
            unknown,
            special: Special::new(vocabulary, rules)?,
            rules,
        })
    }

    /// The tokens of `text`; special tokens written in it are recognised.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        let mut rest = text;
        let mut first = true;
        while !rest.is_empty() {
            let Some((plain, token, after)) = self.special.split(rest) else {
                self.encode_plain(rest, first, &mut out);
                break;
            };
            self.encode_plain(plain, first, &mut out);
            out.push(token.id);
            first = token.begins || (first && plain.is_empty());
            rest = after;
        }
        out
    }

    /// The token with that text.
    pub(super) fn token_id(&self, text: &str) -> Option<u32> {
        let special = self
            .special
            .split(text)
            .filter(|(before, _, after)| before.is_empty() && after.is_empty());
        special
            .map(|(_, token, _)| token.id)
            .or_else(|| self.ids.get(text).copied())
    }

    /// The tokens that are found before anything else.
    pub(super) fn added(&self) -> Vec<AddedToken> {
        let Special { texts, tokens, .. } = &self.special;
        let added = texts.iter().zip(tokens);
        added
            .map(|(text, token)| AddedToken {
                text: text.clone(),
                special: token.control,
                cuts: token.begins,
            })
            .collect()
    }

    /// The tokens of text without special ones; `first`: at the beginning, or behind a special token.
    fn encode_plain(&self, text: &str, first: bool, out: &mut Vec<u32>) {
        let escaped = self.escaped(text, first);
        let mut rest = escaped.as_str();
        while !rest.is_empty() {
            let part = rest.split_at_checked(rest.floor_char_boundary(PART));
            let (part, after) = part.unwrap_or((rest, ""));
            self.join(part, out);
            rest = after;
        }
    }

    /// `text` with its spaces as the vocabulary writes them.
    fn escaped(&self, text: &str, first: bool) -> String {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2);
        let mut last_space = true;
        if self.rules.space_prefix && first && !text.is_empty() {
            escaped.push(SPACE);
        }
        for c in text.chars() {
            let space = c == ' ';
            if !(self.rules.collapse_spaces && space && last_space) {
                escaped.push(if space { SPACE } else { c });
            }
            last_space = space;
        }
        if self.rules.collapse_spaces && last_space && escaped.ends_with(SPACE) {
            escaped.pop();
        }
        escaped
    }

    fn join(&self, text: &str, out: &mut Vec<u32>) {
        let mut symbols = Symbols::new(text);
        let mut queue = BinaryHeap::new();
        // How tokens that are never given out came to be.
        let mut parts: HashMap<&str, (&str, &str)> = HashMap::new();
        for left in 0..symbols.0.len() {
            queue.extend(self.candidate(text, &symbols, left, &mut parts));
        }
        while let Some(Candidate { left, length, .. }) = queue.pop() {
            let Reverse(left) = left;
            if !symbols.join(left, length) {
                continue;
            }
            if let Some(before) = symbols.before(left) {
                queue.extend(self.candidate(text, &symbols, before, &mut parts));
            }
            queue.extend(self.candidate(text, &symbols, left, &mut parts));
        }
        let mut unknown_before = false;
        for symbol in symbols.0.iter().filter(|symbol| symbol.length > 0) {
            self.give_out(symbol.text(text), &parts, out, &mut unknown_before);
        }
    }

    /// What joining the symbol `left` with the next one would come to, if to a token.
    fn candidate<'t>(
        &self,
        text: &'t str,
        symbols: &Symbols,
        left: usize,
        parts: &mut HashMap<&'t str, (&'t str, &'t str)>,
    ) -> Option<Candidate> {
        let (one, two) = symbols.pair(left)?;
        let length = one.length + two.length;
        if length > self.longest {
            return None;
        }
        let joined = text.get(one.start..one.start + length)?;
        let id = *self.ids.get(joined)?;
        if self.unused.get(id as usize) == Some(&true) {
            parts.insert(joined, (one.text(text), two.text(text)));
        }
        Some(Candidate {
            score: self.scores.get(id as usize).copied().unwrap_or(f32::MIN),
            left: Reverse(left),
            length,
        })
    }

    /// Puts out the token of a symbol, or the tokens of its parts or bytes; several unknown ones in a row are
    /// one.
    fn give_out<'t>(
        &self,
        symbol: &'t str,
        parts: &HashMap<&'t str, (&'t str, &'t str)>,
        out: &mut Vec<u32>,
        unknown_before: &mut bool,
    ) {
        let mut left_to_do = vec![symbol];
        while let Some(symbol) = left_to_do.pop() {
            let id = self.ids.get(symbol).copied();
            let unused = id.is_some_and(|id| self.unused.get(id as usize) == Some(&true));
            match (id, parts.get(symbol)) {
                (Some(_), Some((one, two))) if unused => left_to_do.extend([two, one]),
                (Some(id), _) => {
                    out.push(id);
                    *unknown_before = false;
                }
                (None, _) => {
                    let byte_token = |byte: u8| self.bytes.get(usize::from(byte)).copied().flatten();
                    let bytes: Option<Vec<u32>> = symbol.bytes().map(byte_token).collect();
                    let known = bytes.is_some();
                    match bytes {
                        Some(bytes) => out.extend(bytes),
                        None if *unknown_before => {}
                        None => out.extend(self.unknown),
                    }
                    *unknown_before = !known;
                }
            }
        }
    }

    /// The bytes of every token. A text's first space is the encoder's own where it puts one there.
    pub(super) fn pieces(vocabulary: &Vocabulary, rules: Rules) -> Result<Pieces, TextError> {
        let bytes = |(token, kind): (&String, &i32)| match *kind {
            token_type::CONTROL | token_type::UNKNOWN | token_type::UNUSED => Vec::new(),
            token_type::BYTE => fallback_byte(token).map(|byte| vec![byte]).unwrap_or_default(),
            _ => token.replace(SPACE, " ").into_bytes(),
        };
        let tokens = vocabulary.tokens.iter().zip(&vocabulary.types);
        Pieces::new((0..).zip(tokens.map(bytes)).collect(), rules.space_prefix)
    }
}

impl Special {
    fn new(vocabulary: &Vocabulary, rules: Rules) -> Result<Self, TextError> {
        let mut tokens = Vec::new();
        let mut texts = Vec::new();
        for ((id, token), kind) in (0_u32..).zip(&vocabulary.tokens).zip(&vocabulary.types) {
            let special = matches!(
                *kind,
                token_type::CONTROL | token_type::USER_DEFINED | token_type::UNKNOWN
            );
            if special && !token.is_empty() {
                tokens.push(SpecialToken {
                    id,
                    strips: rules.strip_after_special && !NEVER_STRIPPED.contains(&token.as_str()),
                    begins: *kind != token_type::USER_DEFINED || rules.space_behind_user_defined,
                    control: *kind == token_type::CONTROL,
                });
                texts.push(token.clone());
            }
        }
        let length: usize = texts.iter().map(|text| text.len()).sum();
        let what = if length > SPECIAL_TEXT {
            format!("its special tokens have {length} bytes")
        } else {
            let automaton = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(&texts);
            match automaton {
                Ok(automaton) => {
                    return Ok(Self {
                        automaton,
                        texts,
                        tokens,
                    });
                }
                Err(error) => error.to_string(),
            }
        };
        Err(TextError::Vocabulary { what })
    }

    /// The text before the first special token, that token, and the text behind it.
    fn split<'t>(&self, text: &'t str) -> Option<(&'t str, SpecialToken, &'t str)> {
        let found = self.automaton.find(text)?;
        let token = *self.tokens.get(found.pattern().as_usize())?;
        let before = text.get(..found.start())?;
        let after = text.get(found.end()..)?;
        let after = if token.strips { after.trim_start() } else { after };
        Some((before, token, after))
    }
}

/// A pair of symbols whose joined text is a token. The greatest is joined first.
struct Candidate {
    score: f32,
    left: Reverse<usize>,
    /// In bytes, of both together; the pair is gone where it has another.
    length: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_score = self.score.total_cmp(&other.score);
        by_score.then_with(|| self.left.cmp(&other.left))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

/// A piece of the text; without length once it was joined to the one on its left.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: usize,
    length: usize,
    /// The place of the symbol on its left, and of the one on its right.
    before: Option<usize>,
    after: Option<usize>,
}

impl Symbol {
    fn text(self, text: &str) -> &str {
        text.get(self.start..self.start + self.length).unwrap_or_default()
    }
}

/// The symbols of a text, at first its characters.
struct Symbols(Vec<Symbol>);

impl Symbols {
    fn new(text: &str) -> Self {
        let symbol = |(place, (start, c)): (usize, (usize, char))| Symbol {
            start,
            length: c.len_utf8(),
            before: place.checked_sub(1),
            after: Some(place + 1),
        };
        let mut symbols: Vec<Symbol> = text.char_indices().enumerate().map(symbol).collect();
        if let Some(last) = symbols.last_mut() {
            last.after = None;
        }
        Self(symbols)
    }

    fn before(&self, place: usize) -> Option<usize> {
        self.0.get(place)?.before
    }

    /// The symbol at `left` and the one on its right.
    fn pair(&self, left: usize) -> Option<(Symbol, Symbol)> {
        let one = self.0.get(left)?;
        Some((*one, *self.0.get(one.after?)?))
    }

    /// Joins the symbol at `left` with the one on its right, if both together still have that length.
    fn join(&mut self, left: usize, length: usize) -> bool {
        let Some((one, two)) = self.pair(left) else {
            return false;
        };
        if one.length == 0 || one.length + two.length != length {
            return false;
        }
        if let Some(gone) = one.after.and_then(|place| self.0.get_mut(place)) {
            gone.length = 0;
        }
        if let Some(joined) = self.0.get_mut(left) {
            (joined.length, joined.after) = (length, two.after);
        }
        if let Some(after) = two.after.and_then(|place| self.0.get_mut(place)) {
            after.before = Some(left);
        }
        true
    }
}
