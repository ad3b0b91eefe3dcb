//! Models as a GPU would run them.

use std::path::Path;

use mlx_rs::ops::indexing::TryIndexOp;
use serde_json::Value;

use super::*;
use crate::cache::{BatchCache, KvQuantization, KvScheme, KvSchemes};
use crate::model::settings::Settings;
use crate::model::weights::{Quantization, SafetensorsFolder};
use crate::model::{families, json};
use crate::nn::Backend;

/// Assembled as for a GPU: quantized products, fast RoPE, bfloat16. Computed by the CPU.
fn as_for_a_gpu(name: &str) -> (Decoder, Value) {
    by_operations(name, &Means::ops(Backend::Gpu))
}

/// Run by MLX's operations.
fn by_operations(name: &str, means: &Means) -> (Decoder, Value) {
    Backend::Cpu.enter();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/oracle")
        .join(name);
    let settings = json::read(&folder.join("config.json")).unwrap();
    let architecture = families::read(&Settings::from_json(&settings).unwrap()).unwrap();
    let quantization = Quantization::from_config(&settings).unwrap();
    let weights = SafetensorsFolder::open(&folder, quantization).unwrap();
    let model = Decoder::assemble(&architecture, &weights, means, &mut |_| ()).unwrap();
    (model, json::read(&folder.join("expected.json")).unwrap())
}

fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Random weights of few features magnify bfloat16's rounding: the logits must point the same way.
fn assert_alike(found: &Array, expected: &[f32], what: &str) {
    let found: Vec<f32> = found.contiguous().unwrap().to_vec_exact().unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let norms = (dot(&found, &found) * dot(expected, expected)).sqrt();
    let cosine = dot(&found, expected) / norms;
    assert!(cosine > 0.98, "{what}: the cosine is {cosine}");
}

#[test]
fn what_a_gpu_would_run_gives_the_oracles_logits_too() {
    for name in [
        "llama",
        "llama-4bit",
        "llama3-rope-4bit",
        "llama-yarn-4bit",
        "mistral-sliding-4bit",
        "smollm3-4bit",
        "qwen2-4bit",
        "qwen3-4bit",
        "phi3-4bit",
        "gemma3",
        "gemma3-4bit",
        "qwen3_moe-4bit",
        "qwen3_next-4bit",
        "qwen3_5",
        "qwen3_5-4bit",
    ] {
        let (model, expected) = as_for_a_gpu(name);
        let quantized = name.ends_with("4bit");
        assert_eq!(
            model.info.weight_bytes < model.info.parameters,
            quantized,
            "{name}"
        );
        let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
        let row = |prompt: &[u32]| {
            let mut row = model.new_row();
            model.prefill(&prompt[..prompt.len() - 1], &mut row).unwrap();
            row
        };
        let mut batch = BatchCache::adopt(row(&prompts[0]));
        let token = |prompt: &[u32]| prompt[prompt.len() - 1];
        let logits = model
            .decode(&Array::from_slice(&[token(&prompts[0])], &[1]), &mut batch)
            .unwrap();
        assert_alike(
            &logits,
            &numbers::<f32>(&expected["serial"][0]["last_logits"]),
            name,
        );
        let mut batch = BatchCache::adopt(row(&prompts[1]));
        batch.extend(row(&prompts[2])).unwrap();
        let tokens = Array::from_slice(&[token(&prompts[1]), token(&prompts[2])], &[2]);
        let logits = model.decode(&tokens, &mut batch).unwrap();
        for at in 0..2 {
            let expected = numbers::<f32>(&expected["serial"][at + 1]["last_logits"]);
            assert_alike(&logits.try_index(at as i32).unwrap(), &expected, name);
        }
    }
}

/// In float32, as mlx-lm ran: quantized keys and values give its tokens, for lone rows and for padded ones.
#[test]
fn quantized_keys_and_values_give_the_oracles_tokens_by_operations() {
    for (name, bits) in [("llama-4bit", 8), ("llama-4bit", 4), ("qwen3-4bit", 4)] {
        let by = KvQuantization { bits, group_size: 32 };
        let means = Means {
            kv: KvSchemes {
                uniform: KvScheme::Quantized(by),
                ..KvSchemes::default()
            },
            ..Means::ops(Backend::Cpu)
        };
        let (model, expected) = by_operations(name, &means);
        let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
        let told = &expected[format!("kv{bits}_group32")];
        let (tokens, margins): (Vec<Vec<u32>>, Vec<Vec<f32>>) =
            (numbers(&told["greedy"]), numbers(&told["margins"]));
        let row = |prompt: &[u32]| {
            let mut row = model.new_row();
            model.prefill(&prompt[..prompt.len() - 1], &mut row).unwrap();
            row
        };
        let next = |batch: &mut BatchCache, tokens: &[u32]| -> Vec<u32> {
            let tokens = Array::from_slice(tokens, &[tokens.len() as i32]);
            let logits = model.decode(&tokens, batch).unwrap();
            model.most_likely(&logits).unwrap().to_vec_exact().unwrap()
        };
        let sure = |at: usize| {
            margins[at]
                .iter()
                .position(|&margin| margin < 5e-3)
                .unwrap_or(12)
                .min(12)
        };
        let mut lone = BatchCache::adopt(row(&prompts[2]));
        let mut token = prompts[2][prompts[2].len() - 1];
        for step in 0..sure(2) {
            token = next(&mut lone, &[token])[0];
            assert_eq!(token, tokens[2][step], "{name}, {bits} bits, step {step}");
        }
        let mut padded = BatchCache::adopt(row(&prompts[3]));
        padded.extend(row(&prompts[1])).unwrap();
        let mut both: Vec<u32> = [3, 1].map(|at| prompts[at][prompts[at].len() - 1]).to_vec();
        for step in 0..sure(3).min(sure(1)) {
            both = next(&mut padded, &both);
            assert_eq!(
                both,
                [tokens[3][step], tokens[1][step]],
                "{name}, {bits} bits, step {step}"
            );
        }
    }
}
