//! Models as a GPU would run them.

use std::path::Path;

use mlx_rs::ops::indexing::TryIndexOp;
use serde_json::Value;

use super::*;
use crate::cache::{BatchCache, KvQuantization, KvScheme, KvSchemes, RowCache};
use crate::model::Piece;
use crate::model::settings::Settings;
use crate::model::weights::{Quantization, SafetensorsFolder};
use crate::model::{families, json};
use crate::nn::Backend;

/// Assembled as for a GPU: quantized products, fast RoPE, bfloat16. Computed by the CPU.
fn as_for_a_gpu(name: &str) -> (Decoder, Value) {
    by_operations(name, &Means::ops(Backend::Gpu))
}

/// Run by MLX's operations; on the GPU where `MLX_CHAT_TEST_DEVICE` says so, else on the CPU.
fn by_operations(name: &str, means: &Means) -> (Decoder, Value) {
    match std::env::var("MLX_CHAT_TEST_DEVICE").as_deref() {
        Ok("gpu" | "gpu-float32") => Backend::Gpu.enter(),
        _ => Backend::Cpu.enter(),
    }
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

/// Operations in float32 hold the oracles' logits as tightly as kernels do.
#[test]
fn in_float32_operations_give_the_oracles_logits() {
    for name in [
        "llama-4bit",
        "smollm3-4bit",
        "qwen3-4bit",
        "gemma3",
        "phi3-4bit",
        "qwen3_5",
    ] {
        let (model, expected) = by_operations(name, &Means::ops(Backend::GpuFloat32));
        let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
        for (at, prompt) in prompts.iter().enumerate() {
            let mut row = model.new_row();
            let (last, rest) = prompt.split_last().unwrap();
            model.prefill(rest, &mut row).unwrap();
            let mut batch = BatchCache::adopt(row);
            let logits = model
                .decode(&Array::from_slice(&[*last], &[1]), &mut batch)
                .unwrap();
            let found: Vec<f32> = logits.to_vec_exact().unwrap();
            let expected: Vec<f32> = numbers(&expected["serial"][at]["last_logits"]);
            let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
            let apart = found
                .iter()
                .zip(&expected)
                .fold(0f32, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart <= 1e-4 * largest, "{name}: {apart} apart of {largest}");
        }
    }
}

#[test]
fn what_a_gpu_would_run_gives_the_same_packed_as_alone() {
    // On a GPU another number of rows takes other kernels, whose roundings these models magnify.
    let device = std::env::var("MLX_CHAT_TEST_DEVICE");
    if matches!(device.as_deref(), Ok("gpu" | "gpu-float32")) {
        packed_as_alone(Backend::Gpu, |found, alone, name| {
            let alone: Vec<f32> = alone.contiguous().unwrap().to_vec_exact().unwrap();
            assert_alike(found, &alone, name);
        });
    } else {
        packed_as_alone(Backend::Gpu, |found, alone, name| {
            assert_close(found, alone, 2e-2, name)
        });
    }
}

#[test]
fn in_float32_operations_give_the_same_packed_as_alone() {
    packed_as_alone(Backend::GpuFloat32, |found, alone, name| {
        assert_close(found, alone, 1e-4, name);
    });
}

/// A piece that has room beside a step, and a last token besides: none changes what the others get, but for rounding.
fn packed_as_alone(backend: Backend, same: impl Fn(&Array, &Array, &str)) {
    for name in ["llama-4bit", "gemma3-4bit", "qwen3_moe-4bit", "qwen3_next-4bit"] {
        let (model, expected) = by_operations(name, &Means::ops(backend));
        let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
        let row = |prompt: &[u32]| {
            let mut row = model.new_row();
            model.prefill(&prompt[..prompt.len() - 1], &mut row).unwrap();
            row
        };
        let last = |prompt: &[u32]| Array::from_slice(&prompt[prompt.len() - 1..], &[1]);
        let batch = || {
            let mut batch = BatchCache::adopt(row(&prompts[1]));
            batch.extend(row(&prompts[2])).unwrap();
            let tokens = [&prompts[1], &prompts[2]].map(|prompt| prompt[prompt.len() - 1]);
            (Array::from_slice(&tokens, &[2]), batch)
        };
        let (tokens, mut together) = batch();
        let alone = [
            model.decode(&tokens, &mut together).unwrap(),
            model
                .decode(&last(&prompts[0]), &mut BatchCache::adopt(row(&prompts[0])))
                .unwrap(),
        ];
        let (tokens, mut together) = batch();
        let first = last(&prompts[0]);
        let (mut lone, mut piece) = (BatchCache::adopt(row(&prompts[0])), model.new_row());
        let prompt = &prompts[3];
        let mut feed = Feed {
            steps: vec![
                Step {
                    tokens: &tokens,
                    batch: &mut together,
                },
                Step {
                    tokens: &first,
                    batch: &mut lone,
                },
            ],
            pieces: vec![Piece {
                tokens: &prompt[..prompt.len() - 1],
                row: &mut piece,
            }],
        };
        let hidden = model.packed(&mut feed).unwrap();
        let found = model.head(&hidden).unwrap();
        same(&found.try_index(0..2).unwrap(), &alone[0], name);
        same(&found.try_index(2..3).unwrap(), &alone[1], name);
        let (by_itself, packed) = (row(prompt), piece);
        let next = |row: RowCache| model.decode(&last(prompt), &mut BatchCache::adopt(row)).unwrap();
        same(&next(packed), &next(by_itself), name);
    }
}

/// Within a part of the largest logit.
fn assert_close(found: &Array, expected: &Array, part: f32, what: &str) {
    let [found, expected] =
        [found, expected].map(|logits| -> Vec<f32> { logits.contiguous().unwrap().to_vec_exact().unwrap() });
    let most = expected.iter().fold(0f32, |most, logit| most.max(logit.abs()));
    let apart = found
        .iter()
        .zip(&expected)
        .fold(0f32, |most, (a, b)| most.max((a - b).abs()));
    assert!(apart <= part * most, "{what}: {apart} apart of {most}");
}

/// Of 8 bits, whatever the layers and the layout: little is lost against full precision, cut in the same pieces.
#[test]
fn quantized_keys_and_values_give_nearly_the_same_logits_by_operations() {
    let by = KvQuantization {
        bits: 8,
        group_size: 32,
    };
    for name in [
        "llama-4bit",
        "qwen3-4bit",
        "mistral-sliding-4bit",
        "gemma3-4bit",
        "qwen3_5-4bit",
        "qwen3_next-4bit",
    ] {
        let [full, quantized] = [KvScheme::Full, KvScheme::Quantized(by)].map(|uniform| {
            let kv = KvSchemes {
                uniform,
                ..KvSchemes::default()
            };
            let means = Means {
                kv,
                ..Means::ops(Backend::Gpu)
            };
            let (model, expected) = by_operations(name, &means);
            lone_and_padded(&model, &numbers::<Vec<u32>>(&expected["prompts"]))
        });
        for (found, expected) in quantized.iter().zip(&full) {
            let expected: Vec<f32> = expected.contiguous().unwrap().to_vec_exact().unwrap();
            assert_alike(found, &expected, name);
        }
    }
}

/// The logits after the fourth prompt alone, and after the second and the third side by side. Prompts come in two pieces: the
/// second one's queries see what the first left.
fn lone_and_padded(model: &Decoder, prompts: &[Vec<u32>]) -> [Array; 2] {
    let row = |prompt: &[u32]| {
        let (mut row, last) = (model.new_row(), prompt.len() - 1);
        model.prefill(&prompt[..last / 2], &mut row).unwrap();
        model.prefill(&prompt[last / 2..last], &mut row).unwrap();
        row
    };
    let logits = |batch: &mut BatchCache, prompts: &[&Vec<u32>]| {
        let tokens: Vec<u32> = prompts.iter().map(|prompt| prompt[prompt.len() - 1]).collect();
        let tokens = Array::from_slice(&tokens, &[tokens.len() as i32]);
        model.decode(&tokens, batch).unwrap()
    };
    let mut lone = BatchCache::adopt(row(&prompts[3]));
    let mut padded = BatchCache::adopt(row(&prompts[1]));
    padded.extend(row(&prompts[2])).unwrap();
    let padded = logits(&mut padded, &[&prompts[1], &prompts[2]]);
    [logits(&mut lone, &[&prompts[3]]), padded]
}
