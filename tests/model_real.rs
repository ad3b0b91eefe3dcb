//! The default model against what mlx-lm says of it, on weights dequantized to float32
//! (tests/fixtures/smollm2-135m-q4_1.json).

mod support;

use std::path::Path;

use mlx_chat::cache::BatchCache;
use mlx_chat::model::{LoadOptions, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use mlx_rs::ops::indexing::argmax_axis;
use serde::Deserialize;

#[derive(Deserialize)]
struct Expected {
    chats: Vec<Chat>,
}

#[derive(Deserialize)]
struct Chat {
    ids: Vec<u32>,
    last_logits_top8: Vec<(usize, f32)>,
    greedy: Vec<u32>,
    greedy_margins: Vec<f32>,
}

#[test]
fn logits_and_greedy_tokens_of_the_default_model_equal_the_oracles() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/smollm2-135m-q4_1.json");
    let expected: Expected = serde_json::from_slice(&std::fs::read(fixture).unwrap()).unwrap();
    let path = support::default_model();
    let loaded = load(
        &path,
        &LoadOptions {
            backend: Backend::Cpu,
            threads: None,
        },
        &mut |_| (),
    )
    .unwrap();
    let model = loaded.model;
    assert_eq!(model.info().vocab_size, 49_152);
    assert_eq!(loaded.eos, [2]);
    assert_eq!(model.info().parameters, 134_515_008);
    assert_eq!(model.info().quantization, "Q4_1");
    for chat in &expected.chats {
        let (last, rest) = chat.ids.split_last().unwrap();
        let mut row = model.new_row();
        model.prefill(rest, &mut row).unwrap();
        let mut batch = BatchCache::adopt(row);
        let (mut next, mut out) = (*last, Vec::new());
        for step in 0..chat.greedy.len() {
            let logits = model
                .decode(&Array::from_slice(&[next], &[1]), &mut batch)
                .unwrap();
            next = argmax_axis(&logits, -1, false)
                .unwrap()
                .to_vec_exact::<u32>()
                .unwrap()[0];
            out.push(next);
            if step > 0 {
                continue;
            }
            let logits: Vec<f32> = logits.to_vec_exact().unwrap();
            let largest = logits.iter().fold(0f32, |m, x| m.max(x.abs()));
            let mut ranked: Vec<usize> = (0..logits.len()).collect();
            ranked.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            for (rank, (id, logit)) in chat.last_logits_top8.iter().enumerate() {
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
        let sure = chat
            .greedy_margins
            .iter()
            .position(|m| *m < 1e-3)
            .unwrap_or(chat.greedy.len());
        assert!(sure >= 8);
        assert_eq!(out[..sure], chat.greedy[..sure]);
    }
}
