//! `tokenizer.model`: SentencePiece's own file, written here.

use mlx_chat::text::Codec;
use serde_json::json;

use super::folder::folder_of;

/// A token, its score, its type.
pub(super) type Piece = (String, f32, u8);

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = content.len();
    while length > 0x7f {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// No table of characters, a space before each text, spaces kept.
pub(super) fn plain_normalizer() -> Vec<u8> {
    [&field(1, b"identity")[..], &[3 << 3, 1, 4 << 3, 0]].concat()
}

/// `kind`: 1 Unigram, 2 BPE.
pub(super) fn write(pieces: &[Piece], kind: u8, normalizer: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    for (token, score, kind) in pieces {
        let mut piece = field(1, token.as_bytes());
        piece.push(2 << 3 | 5);
        piece.extend(score.to_le_bytes());
        piece.extend([3 << 3, *kind]);
        file.extend(field(1, &piece));
    }
    file.extend(field(2, &[3 << 3, kind]));
    file.extend(field(3, normalizer));
    file
}

fn pieces() -> Vec<Piece> {
    let mut pieces: Vec<Piece> = vec![
        ("<unk>".into(), 0.0, 2),
        ("<s>".into(), 0.0, 3),
        ("</s>".into(), 0.0, 3),
    ];
    pieces.extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)));
    pieces.extend(
        [("▁", -3.0), ("a", -4.0), ("b", -5.0), ("ab", -2.0), ("▁ab", -1.0)]
            .map(|(piece, score)| (piece.into(), score, 1)),
    );
    pieces.push(("▁▁".into(), 0.0, 4));
    pieces
}

#[test]
fn a_folder_with_nothing_but_a_sentence_piece_file_is_read() {
    let folder = folder_of(&[("tokenizer.model", write(&pieces(), 2, &plain_normalizer()))]);
    let codec = Codec::from_folder(folder.path()).unwrap().unwrap();
    assert_eq!(codec.encode("ab ab"), [263, 263]);
    assert_eq!(codec.encode("ab  b"), [263, 264, 261]);
    assert_eq!(codec.encode("  ab"), [264, 263]);
    assert_eq!(codec.encode_prompt("ab"), [1, 263]);
    assert_eq!(codec.eos(), [2]);
    for text in ["ab  日本 a", "  b", "👩‍👩‍👧‍👦"] {
        assert_eq!(codec.decode(&codec.encode(text)), text);
    }
}

#[test]
fn the_configuration_adds_tokens_behind_the_file() {
    let config = json!({"add_bos_token": false, "eos_token": "<|end|>", "added_tokens_decoder": {
        "266": {"content": "<|end|>", "special": true}, "1": {"content": "<s>", "special": true}}});
    let folder = folder_of(&[
        ("tokenizer.model", write(&pieces(), 2, &plain_normalizer())),
        ("tokenizer_config.json", config.to_string().into_bytes()),
        (
            "added_tokens.json",
            json!({"<tool>": 267, "<|end|>": 266}).to_string().into_bytes(),
        ),
    ]);
    let codec = Codec::from_folder(folder.path()).unwrap().unwrap();
    assert_eq!(codec.encode("ab<|end|><tool>"), [263, 266, 267]);
    assert_eq!((codec.eos(), codec.vocab_size()), (&[266][..], 268));
    assert_eq!(codec.encode_prompt("ab"), [263]);
}

#[test]
fn what_cannot_be_used_says_so_and_asks_for_tokenizer_json() {
    let table = [&plain_normalizer()[..], &field(2, b"table")].concat();
    for (file, said) in [
        (write(&pieces(), 1, &plain_normalizer()), "Unigram"),
        (write(&pieces(), 2, &table), "identity"),
        (b"IQ== 0\nIg== 1\n".to_vec(), "no SentencePiece model"),
        (write(&[], 2, &plain_normalizer()), "no SentencePiece model"),
        (Vec::new(), "no SentencePiece model"),
    ] {
        let folder = folder_of(&[("tokenizer.model", file)]);
        let message = Codec::from_folder(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(said) && message.contains("tokenizer.json"),
            "{message}"
        );
    }
}
