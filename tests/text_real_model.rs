//! The default model's tokenizer and template, against what llama.cpp says of them.
//!
//! `fixtures/smollm2-135m-q4_1.json` was made with llama.cpp from the same file.

mod support;

use mlx_chat::gguf::{Gguf, Kind};
use mlx_chat::text::Codec;
use mlx_chat::text::message::{ChatOptions, Message};
use serde::Deserialize;

#[derive(Deserialize)]
struct Oracle {
    tokens: Vec<Tokens>,
    chats: Vec<Chat>,
}

#[derive(Deserialize)]
struct Tokens {
    text: String,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<Message>,
    rendered: String,
    ids: Vec<u32>,
}

fn oracle() -> Oracle {
    serde_json::from_str(include_str!("fixtures/smollm2-135m-q4_1.json")).unwrap()
}

fn open() -> Gguf {
    Gguf::open(&support::default_model()).unwrap()
}

fn codec() -> Codec {
    Codec::from_gguf(open().metadata()).unwrap()
}

#[test]
fn token_ids_equal_the_oracles() {
    let codec = codec();
    let oracle = oracle();
    assert_eq!(oracle.tokens.len(), 18);
    for Tokens { text, ids } in oracle.tokens {
        assert_eq!(codec.encode(&text), ids, "{text:?}");
        assert_eq!(codec.encode_prompt(&text), ids, "{text:?}");
        if !text.contains("<|") {
            assert_eq!(codec.decode(&ids), text);
        }
    }
}

#[test]
fn rendered_chats_and_their_ids_equal_the_oracles() {
    let codec = codec();
    let oracle = oracle();
    assert_eq!(oracle.chats.len(), 3);
    for Chat {
        messages,
        rendered,
        ids,
    } in oracle.chats
    {
        let text = codec.render(&messages, &ChatOptions::default());
        assert_eq!((text.text, text.note), (rendered, None));
        let chat = codec.encode_chat(&messages, &ChatOptions::default());
        // The last line break would be another token if the answer began with a blank line.
        let stable = ids.len() - 1;
        assert_eq!((chat.tokens, chat.note, chat.stable), (ids, None, stable));
    }
}

/// Gemma's SentencePiece vocabulary: runs of spaces as tokens, no space before a text, bytes for what it lacks.
#[test]
fn token_ids_of_gemma_equal_the_oracles() {
    #[derive(Deserialize)]
    struct Oracle {
        tokens: Vec<Tokens>,
        completions: Vec<Tokens>,
    }
    let codec = Codec::open(&support::gemma()).unwrap().unwrap();
    let oracle: Oracle = serde_json::from_str(include_str!("fixtures/gemma3-270m-q4_k_m.json")).unwrap();
    assert_eq!((oracle.tokens.len(), oracle.completions.len()), (18, 4));
    for Tokens { text, ids } in oracle.tokens {
        assert_eq!(codec.encode(&text), ids, "{text:?}");
        assert_eq!(codec.decode(&ids), text);
    }
    for Tokens { text, ids } in oracle.completions {
        assert_eq!(codec.encode_prompt(&text), ids, "{text:?}");
        assert_eq!(codec.decode(&ids), text);
    }
    assert_eq!((codec.vocab_size(), codec.eos()), (262_144, &[1][..]));
    for unit in ["The quick brown fox. ", "a", " ", "1", "日本語", "\n\t"] {
        let text = unit.repeat((1 << 20) / unit.len());
        assert_eq!(codec.decode(&codec.encode(&text)), text, "{unit:?}");
    }
}

#[test]
fn streams_cut_at_every_token_never_show_half_a_character() {
    let codec = codec();
    for Tokens { text, ids } in oracle().tokens {
        if text.contains("<|") {
            continue;
        }
        let mut detokenizer = codec.decoder();
        let mut shown = String::new();
        for id in ids {
            shown += &detokenizer.push(id);
            assert!(text.starts_with(&shown), "{shown:?} of {text:?}");
        }
        assert_eq!(detokenizer.finish(), "");
        assert_eq!(shown, text);
    }
}

#[test]
fn the_vocabulary_and_the_end_of_a_turn_are_the_models() {
    let codec = codec();
    assert_eq!((codec.vocab_size(), codec.eos()), (49152, &[2][..]));
}

#[test]
fn a_megabyte_of_text_is_tokenized() {
    let codec = codec();
    for unit in ["The quick brown fox. ", "a", " ", "1", "日本語", "\n\t"] {
        let text = unit.repeat((1 << 20) / unit.len());
        assert_eq!(codec.decode(&codec.encode(&text)), text, "{unit:?}");
    }
}

#[test]
fn every_quantized_tensor_has_an_exact_affine_triple() {
    let file = open();
    let mut quantized = 0;
    for info in file.tensors() {
        let tensor = file.tensor(&info.name).unwrap();
        if !matches!(info.kind, Kind::Q4_1 | Kind::Q8_0) {
            continue;
        }
        quantized += 1;
        let affine = tensor.to_affine().unwrap();
        let dense = tensor.to_f32().unwrap();
        let per_word = 32 / affine.bits;
        // Rows of these tensors are whole words, so the packing runs through.
        for (at, element) in dense.iter().enumerate() {
            let word = affine.weight[at / per_word] >> (at % per_word * affine.bits);
            let quant = word & ((1 << affine.bits) - 1);
            let group = at / affine.group_size;
            let value = quant as f32 * affine.scales[group] + affine.biases[group];
            assert!(
                value == *element,
                "{} at {at}: {value} is not {element}",
                info.name
            );
        }
    }
    assert_eq!(quantized, 211);
}
