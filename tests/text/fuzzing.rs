//! Tokenizers changed at random: read or refused, and what was read encodes and decodes without a panic.

use mlx_chat::gguf::Gguf;
use mlx_chat::text::Codec;

use super::alphabet;
use super::folder::{byte_level, sentence_piece};
use super::fuzz::fuzz;
use super::model_file::{self, Piece};
use super::writer::{Writer, array, text};

const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Whatever a codec has to do, over text that is hard on it.
fn use_it(codec: &Codec) {
    for text in [
        "",
        "ab a  b\n\n",
        "<s>日本 👩‍👩‍👧‍👦 e\u{301}</s>",
        "<0x41><unk>\0\u{fffd} 123",
    ] {
        let tokens = codec.encode_prompt(text);
        let _ = codec.decode(&tokens);
    }
    let mut detokenizer = codec.decoder();
    for token in (0..300).chain([u32::MAX]) {
        let _ = detokenizer.push(token);
    }
    let _ = (detokenizer.finish(), codec.eos());
}

fn strings(texts: &[String]) -> Vec<u8> {
    let items: Vec<u8> = texts.iter().flat_map(|item| text(item)).collect();
    array(STRING, texts.len() as u64, &items)
}

fn words(kind: u32, words: impl ExactSizeIterator<Item = [u8; 4]>) -> Vec<u8> {
    let count = words.len() as u64;
    array(kind, count, &words.flatten().collect::<Vec<u8>>())
}

fn byte_level_file(pre: &str) -> Vec<u8> {
    let mut tokens = alphabet();
    tokens.extend(["ab", "Ġab", "<s>", "</s>"].map(str::to_owned));
    let types = (0..tokens.len()).map(|id| if id < 258 { 1_i32 } else { 3 }.to_le_bytes());
    Writer::new()
        .entry("tokenizer.ggml.model", STRING, &text("gpt2"))
        .entry("tokenizer.ggml.pre", STRING, &text(pre))
        .entry("tokenizer.ggml.tokens", ARRAY, &strings(&tokens))
        .entry("tokenizer.ggml.token_type", ARRAY, &words(5, types))
        .entry(
            "tokenizer.ggml.merges",
            ARRAY,
            &strings(&["a b".into(), "Ġ ab".into()]),
        )
        .entry("tokenizer.ggml.bos_token_id", 4, &258_u32.to_le_bytes())
        .entry("tokenizer.ggml.add_bos_token", 7, &[1])
        .bytes()
}

fn sentence_piece_file() -> Vec<u8> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "a", "b", "ab", "▁ab", "  "].map(str::to_owned));
    let types = (0..tokens.len()).map(|id| match id {
        0 => 2_i32,
        1 | 2 => 3,
        3..259 => 6,
        264 => 4,
        _ => 1,
    });
    let scores = (0..tokens.len()).map(|id| (-(id as f32)).to_le_bytes());
    Writer::new()
        .entry("tokenizer.ggml.model", STRING, &text("llama"))
        .entry("tokenizer.ggml.tokens", ARRAY, &strings(&tokens))
        .entry("tokenizer.ggml.scores", ARRAY, &words(6, scores))
        .entry(
            "tokenizer.ggml.token_type",
            ARRAY,
            &words(5, types.map(i32::to_le_bytes)),
        )
        .entry("tokenizer.ggml.add_space_prefix", 7, &[1])
        .entry("tokenizer.ggml.unknown_token_id", 4, &[0; 4])
        .bytes()
}

#[test]
fn fuzzed_gguf_tokenizers_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let seeds = [
        sentence_piece_file(),
        byte_level_file("smollm"),
        byte_level_file("llama-bpe"),
        byte_level_file("deepseek-v3"),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    fuzz("gguf-tokenizer", &seeds, |bytes| {
        std::fs::write(&path, bytes).unwrap();
        let Ok(file) = Gguf::open(&path) else { return false };
        let codec = Codec::from_gguf(file.metadata());
        codec.as_ref().map(use_it).is_ok()
    });
}

fn fuzz_folder(name: &str, file: &str, seeds: &[&[u8]]) {
    let folder = tempfile::tempdir().unwrap();
    fuzz(name, seeds, |bytes| {
        std::fs::write(folder.path().join(file), bytes).unwrap();
        let codec = Codec::from_folder(folder.path());
        codec.as_ref().map(|codec| codec.as_ref().map(use_it)).is_ok()
    });
}

#[test]
fn fuzzed_tokenizer_json_is_read_or_refused() {
    let seeds = [byte_level(), sentence_piece()].map(|json| json.to_string().into_bytes());
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    fuzz_folder("tokenizer-json", "tokenizer.json", &seeds);
}

#[test]
fn fuzzed_tokenizer_model_is_read_or_refused() {
    let mut pieces: Vec<Piece> = vec![
        ("<unk>".into(), 0.0, 2),
        ("<s>".into(), 0.0, 3),
        ("</s>".into(), 0.0, 3),
    ];
    pieces.extend(["▁", "a", "b", "ab", "▁ab"].map(|piece| (piece.into(), -1.0, 1)));
    let seed = model_file::write(&pieces, 2, &model_file::plain_normalizer());
    fuzz_folder("tokenizer-model", "tokenizer.model", &[&seed]);
}
