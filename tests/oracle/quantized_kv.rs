//! Keys and values in 8 and 4 bits, groups of 32, against mlx-lm's tokens.

use mlx_chat::cache::{BatchCache, KvQuantization, KvScheme, KvSchemes};
use mlx_chat::model::{LanguageModel, LoadOptions};
use serde::Deserialize;

use crate::tiny::{folder, load_tiny_with, logits_of};
use crate::{best, greedy, prepared};

/// Those that mlx-lm was asked about.
const MODELS: [&str; 4] = ["llama", "llama-4bit", "qwen2-4bit", "qwen3-4bit"];

/// Below this margin between the two best, a code that was rounded the other way may choose the other.
const CLOSE: f32 = 5e-3;

#[derive(Deserialize)]
struct Expected {
    prompts: Vec<Vec<u32>>,
    kv8_group32: Continued,
    kv4_group32: Continued,
}

#[derive(Deserialize)]
struct Continued {
    greedy: Vec<Vec<u32>>,
    margins: Vec<Vec<f32>>,
}

fn expected(name: &str) -> Expected {
    serde_json::from_slice(&std::fs::read(folder(name).join("expected.json")).unwrap()).unwrap()
}

fn open(name: &str, bits: usize) -> Box<dyn LanguageModel> {
    let by = KvQuantization { bits, group_size: 32 };
    let options = LoadOptions {
        kv: KvSchemes {
            uniform: KvScheme::Quantized(by),
            ..KvSchemes::default()
        },
        ..LoadOptions::default()
    };
    load_tiny_with(name, options).model
}

#[test]
fn greedy_tokens_equal_the_oracles() {
    for name in MODELS {
        let expected = expected(name);
        for (bits, continued) in [(8, &expected.kv8_group32), (4, &expected.kv4_group32)] {
            let model = open(name, bits);
            for (at, prompt) in expected.prompts.iter().enumerate() {
                let (tokens, margins) = (&continued.greedy[at], &continued.margins[at]);
                let sure = margins.iter().position(|&margin| margin < CLOSE);
                let sure = sure.unwrap_or(margins.len());
                assert!(sure > 10, "{name}: the oracle has nothing to say");
                let found = greedy(&*model, prompt, 2048, sure);
                assert_eq!(found, tokens[..sure], "{name}, {bits} bits, prompt {at}");
            }
        }
    }
}

#[test]
fn a_batched_row_holds_the_bytes_and_gives_the_logits_of_a_lone_one() {
    for (name, bits) in [("llama-4bit", 4), ("qwen3-4bit", 8)] {
        let (model, prompts) = (open(name, bits), expected(name).prompts);
        for chunk in [2048, 7] {
            let mut alone: Vec<BatchCache> = prompts.iter().map(|p| prepared(&*model, p, chunk)).collect();
            let mut batch = prepared(&*model, &prompts[0], chunk);
            for prompt in &prompts[1..] {
                batch
                    .extend(prepared(&*model, prompt, chunk).into_lone().unwrap())
                    .unwrap();
            }
            let mut ids: Vec<u32> = prompts.iter().map(|p| *p.last().unwrap()).collect();
            for _ in 0..5 {
                let together = logits_of(&*model, &mut batch, &ids);
                let all: Vec<f32> = together.to_vec_exact().unwrap();
                let each = all.chunks(all.len() / prompts.len());
                for ((row, lone), found) in alone.iter_mut().enumerate().zip(each) {
                    let expected: Vec<f32> = logits_of(&*model, lone, &[ids[row]]).to_vec_exact().unwrap();
                    assert!(found == expected, "{name}, row {row}");
                }
                ids = best(&together);
            }
            for (row, lone) in alone.into_iter().enumerate() {
                let (batched, lone) = (batch.extract(row).unwrap(), lone.into_lone().unwrap());
                for layer in 0..model.info().layers {
                    assert_eq!(
                        batched.parts(layer).unwrap(),
                        lone.parts(layer).unwrap(),
                        "{name}, row {row}, layer {layer}"
                    );
                }
            }
        }
    }
}

#[test]
fn layers_that_are_named_hold_as_named() {
    let full = KvSchemes::default();
    let four = KvQuantization {
        bits: 4,
        group_size: 32,
    };
    let all = |layers: &[usize]| KvSchemes {
        layers: layers
            .iter()
            .map(|&layer| (layer, KvScheme::Quantized(four)))
            .collect(),
        ..full.clone()
    };
    let load = |kv: KvSchemes| {
        let options = LoadOptions {
            kv,
            ..LoadOptions::default()
        };
        load_tiny_with("mistral-sliding-4bit", options).model
    };
    // Layer 0 is a sliding one, layer 1 is not.
    let prompt: Vec<u32> = (5..60).collect();
    let told = |kv: KvSchemes| {
        let model = load(kv);
        (model.plan().quantized(), greedy(&*model, &prompt, 2048, 20).len())
    };
    assert_eq!(told(full.clone()).0, None);
    let (some, tokens) = told(all(&[0, 1]));
    assert_eq!(
        (some.as_deref(), tokens),
        (Some("4 bits, groups of 32 in 2 of 4 layers"), 20)
    );
    let (every, _) = told(all(&[0, 1, 2, 3]));
    assert_eq!(every.as_deref(), Some("4 bits, groups of 32"));
}
