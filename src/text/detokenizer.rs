//! From a stream of tokens to a stream of text that never holds half a character.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TextError;

/// More tokens than any vocabulary has; an id above is a damaged file.
const MAX_TOKENS: usize = 1 << 24;

/// The bytes of every token of a vocabulary; none for control tokens and for ids without a token.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    bytes: Vec<u8>,
    /// Where each token's bytes end, by id.
    ends: Vec<usize>,
    /// Whether a text's very first space is an artefact of the tokenizer (SentencePiece).
    strip_first_space: bool,
}

impl Pieces {
    /// Collects pieces given as (id, bytes); ids without a piece have none. Of two pieces for an id the first
    /// counts.
    pub(super) fn new(mut pieces: Vec<(u32, Vec<u8>)>, strip_first_space: bool) -> Result<Self, TextError> {
        pieces.sort_by_key(|(id, _)| *id);
        pieces.dedup_by_key(|(id, _)| *id);
        let length = pieces.last().map_or(0, |(id, _)| *id as usize + 1);
        if length > MAX_TOKENS {
            return Err(TextError::Vocabulary {
                what: format!("it has a token with the id {}", length - 1),
            });
        }
        let mut all = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(length),
            strip_first_space,
        };
        for (id, piece) in pieces {
            all.ends.resize(id as usize, all.bytes.len());
            all.bytes.extend_from_slice(&piece);
            all.ends.push(all.bytes.len());
        }
        Ok(all)
    }

    /// Whether a token is known and gives no text.
    pub(super) fn is_silent(&self, token: u32) -> bool {
        (token as usize) < self.len() && self.get(token).is_empty()
    }

    /// One more than the highest id.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, token: u32) -> &[u8] {
        let index = token as usize;
        let start = index
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or(0);
        let end = self.ends.get(index).copied().unwrap_or(start);
        self.bytes.get(start..end).unwrap_or_default()
    }
}

/// Turns one answer's tokens into text, piece by piece.
///
/// Bytes of a character that isn't complete yet are held back; bytes that can't be part of one become U+FFFD,
/// as [`String::from_utf8_lossy`] does it. Control tokens and unknown ids give no text.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    pieces: Arc<Pieces>,
    /// The beginning of a character: at most three bytes between calls.
    pending: Vec<u8>,
    at_start: bool,
    /// Control tokens that are shown, by their texts.
    markers: Arc<BTreeMap<u32, &'static str>>,
}

impl Detokenizer {
    pub(super) fn new(pieces: Arc<Pieces>) -> Self {
        Self {
            pieces,
            pending: Vec::new(),
            at_start: true,
            markers: Arc::default(),
        }
    }

    /// The same, with some control tokens shown.
    pub(super) fn with_markers(mut self, markers: Arc<BTreeMap<u32, &'static str>>) -> Self {
        self.markers = markers;
        self
    }

    /// The text that `token` completes; often empty.
    pub fn push(&mut self, token: u32) -> String {
        let mut piece = self.pieces.get(token);
        if piece.is_empty()
            && let Some(text) = self.markers.get(&token)
        {
            // What comes behind a marker is still the beginning of a text.
            self.pending.extend_from_slice(text.as_bytes());
        }
        if self.at_start && !piece.is_empty() {
            self.at_start = false;
            if self.pieces.strip_first_space {
                piece = piece.strip_prefix(b" ").unwrap_or(piece);
            }
        }
        self.pending.extend_from_slice(piece);
        let (text, rest) = decode(&self.pending);
        self.pending.drain(..self.pending.len() - rest);
        text
    }

    /// The stream ended: U+FFFD where half a character is left, else nothing. The next token begins a new
    /// text.
    pub fn finish(&mut self) -> String {
        self.at_start = true;
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// The text of `bytes`, and how many bytes at their end are the beginning of a character.
fn decode(mut bytes: &[u8]) -> (String, usize) {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return (text, 0);
            }
            Err(error) => {
                let (valid, rest) = bytes
                    .split_at_checked(error.valid_up_to())
                    .unwrap_or((bytes, &[]));
                text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                let Some(invalid) = error.error_len() else {
                    return (text, rest.len());
                };
                text.push(char::REPLACEMENT_CHARACTER);
                bytes = rest.get(invalid..).unwrap_or_default();
            }
        }
    }
}

/// The byte that each character of GPT-2's byte-level alphabet stands for: printable Latin-1 for itself, the
/// other bytes in order for the characters from U+0100 up.
pub(super) fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    let others = || (0..=255_u8).filter(|byte| !stands_for_itself(*byte));
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => others().nth(code.checked_sub(256)? as usize),
    }
}

fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes of a byte-level token; a token with other characters stands for itself.
pub(super) fn byte_level(token: &str) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token.chars().map(byte_of).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

/// The byte that a byte-fallback token (`<0x0A>`) stands for.
pub(super) fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hex = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary in which token `n` is the byte `n`, and 256 a control token.
    fn bytes() -> Detokenizer {
        let mut pieces: Vec<(u32, Vec<u8>)> = (0..=255_u8).map(|byte| (byte.into(), vec![byte])).collect();
        pieces.push((256, Vec::new()));
        Detokenizer::new(Arc::new(Pieces::new(pieces, false).unwrap()))
    }

    fn stream(detokenizer: &mut Detokenizer, tokens: &[u32]) -> (Vec<String>, String) {
        let pieces: Vec<String> = tokens.iter().map(|token| detokenizer.push(*token)).collect();
        let whole = pieces.concat() + &detokenizer.finish();
        (pieces, whole)
    }

    #[test]
    fn a_character_appears_with_its_last_byte_and_never_as_a_replacement() {
        for text in ["👩‍👩‍👧‍👦", "☺️", "日本語", "e\u{301}", "🇨🇭", "Příliš žluťoučký"]
        {
            let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
            let (pieces, whole) = stream(&mut bytes(), &tokens);
            assert_eq!(whole, text);
            assert!(
                pieces
                    .iter()
                    .all(|piece| !piece.contains('\u{fffd}') && piece.chars().count() <= 1)
            );
        }
    }

    #[test]
    fn invalid_bytes_come_out_as_the_whole_would_decode() {
        for broken in [
            &b"\xff"[..],
            b"a\xe2\x82",
            b"\xe2\x28\xa1",
            b"\xf0\x9f\x91a",
            b"\x80\x80",
            b"\xed\xa0\x80",
        ] {
            let tokens: Vec<u32> = broken.iter().map(|byte| u32::from(*byte)).collect();
            assert_eq!(
                stream(&mut bytes(), &tokens).1,
                String::from_utf8_lossy(broken),
                "{broken:?}"
            );
        }
    }

    #[test]
    fn control_tokens_and_unknown_ids_give_no_text_even_within_a_character() {
        assert_eq!(
            stream(&mut bytes(), &[0xe2, 256, 0x82, 99_999, 0xac, u32::MAX]).1,
            "€"
        );
    }

    #[test]
    fn after_the_end_a_new_text_begins() {
        let mut detokenizer = bytes();
        assert_eq!(detokenizer.push(0xe2), "");
        assert_eq!(detokenizer.finish(), "\u{fffd}");
        assert_eq!(detokenizer.push(0x41), "A");
        assert_eq!(detokenizer.finish(), "");
    }

    #[test]
    fn only_the_first_space_of_a_text_is_stripped() {
        let pieces = vec![(0, b" a".to_vec()), (1, b" b".to_vec())];
        let mut detokenizer = Detokenizer::new(Arc::new(Pieces::new(pieces, true).unwrap()));
        assert_eq!(stream(&mut detokenizer, &[0, 1, 0]).1, "a b a");
        assert_eq!(stream(&mut detokenizer, &[1]).1, "b");
    }

    #[test]
    fn the_byte_level_alphabet_covers_every_byte_once() {
        let mut found: Vec<u8> = (0..400).filter_map(char::from_u32).filter_map(byte_of).collect();
        found.sort_unstable();
        assert_eq!(found, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_level("Ġthe"), b" the");
        assert_eq!(byte_level("Ċ"), b"\n");
        assert_eq!(byte_level("日"), "日".as_bytes());
    }

    #[test]
    fn byte_fallback_tokens_are_two_hex_digits() {
        assert_eq!(fallback_byte("<0x0A>"), Some(b'\n'));
        for other in ["<0xA>", "<0x+1>", "<0x0AB>", "0x0A", "<0xGG>"] {
            assert_eq!(fallback_byte(other), None, "{other}");
        }
    }

    #[test]
    fn an_absurd_id_is_refused_without_a_table_of_its_size() {
        assert!(Pieces::new(vec![(u32::MAX, vec![])], false).is_err());
    }
}
