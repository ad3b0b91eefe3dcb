//! The default model and Gemma 3 270M against what llama.cpp and mlx-lm say of them, on weights dequantized to float32
//! (tests/fixtures/*.json).

mod support;

use std::path::Path;

use mlx_chat::cache::BatchCache;
use mlx_chat::model::{LanguageModel, LoadOptions, Loaded, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use mlx_rs::ops::indexing::argmax_axis;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    #[serde(alias = "completions")]
    chats: Vec<Answer>,
}

#[derive(Deserialize)]
struct Answer {
    ids: Vec<u32>,
    last_logits_top8: Vec<(usize, f32)>,
    greedy: Vec<u32>,
    greedy_margins: Vec<f32>,
}

fn expected(name: &str) -> Vec<Answer> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name);
    let expected: Expected = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    expected.chats
}

fn open(path: &Path) -> Loaded {
    let options = LoadOptions {
        backend: Backend::Cpu,
        threads: None,
        ..LoadOptions::default()
    };
    load(path, &options, &mut |_| ()).unwrap()
}

/// Feeds the prompt in one chunk, then decodes greedily.
fn assert_answers(model: &dyn LanguageModel, answer: &Answer) {
    let (last, rest) = answer.ids.split_last().unwrap();
    let mut row = model.new_row();
    model.prefill(rest, &mut row).unwrap();
    let mut batch = BatchCache::adopt(row);
    let (mut next, mut out) = (*last, Vec::new());
    for step in 0..answer.greedy.len() {
        let logits = model
            .decode(&Array::from_slice(&[next], &[1]), &mut batch)
            .unwrap();
        next = argmax_axis(&logits, -1, false)
            .unwrap()
            .to_vec_exact::<u32>()
            .unwrap()[0];
        out.push(next);
        if step == 0 {
            assert_top(&logits.to_vec_exact::<f32>().unwrap(), &answer.last_logits_top8);
        }
    }
    let sure = answer
        .greedy_margins
        .iter()
        .position(|m| *m < 1e-3)
        .unwrap_or(answer.greedy.len());
    assert!(sure >= 8);
    assert_eq!(out[..sure], answer.greedy[..sure]);
}

/// The highest logits, in their order.
fn assert_top(logits: &[f32], top: &[(usize, f32)]) {
    let largest = logits.iter().fold(0f32, |m, x| m.max(x.abs()));
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    ranked.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    for (rank, (id, logit)) in top.iter().enumerate() {
        let apart = (logits[*id] - logit).abs();
        assert!(
            apart <= 1e-4 * largest,
            "token {id}: {} instead of {logit}",
            logits[*id]
        );
        let at_rank = logits[ranked[rank]];
        assert!(
            (at_rank - logit).abs() <= 2e-4 * largest,
            "rank {rank} is {at_rank}"
        );
    }
}

#[test]
fn logits_and_greedy_tokens_of_the_default_model_equal_the_oracles() {
    let Loaded { model, eos, .. } = open(&support::default_model());
    assert_eq!(model.info().vocab_size, 49_152);
    assert_eq!(eos, [2]);
    assert_eq!(model.info().parameters, 134_515_008);
    assert_eq!(model.info().quantization, "Q4_1");
    for answer in expected("smollm2-135m-q4_1.json") {
        assert_answers(&*model, &answer);
    }
}

/// One of the prompts is longer than the window of 512.
#[test]
fn logits_and_greedy_tokens_of_gemma_equal_the_oracles() {
    let Loaded { model, eos, .. } = open(&support::gemma());
    assert_eq!(model.info().vocab_size, 262_144);
    assert_eq!(eos, [1]);
    let answers = expected("gemma3-270m-q4_k_m.json");
    assert!(answers.iter().any(|answer| answer.ids.len() > 512));
    for answer in answers {
        assert_answers(&*model, &answer);
    }
}
