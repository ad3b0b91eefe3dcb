//! The sampler on the device against the pure reference.

use mlx_chat::sampling::{Sampling, chain, reference};
use mlx_rs::{Array, Device};

const VOCABULARY: usize = 200;

/// Logits that look random and are the same everywhere; no two are equal.
fn logits(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..VOCABULARY)
        .map(|place| next() * 12.0 - 6.0 + place as f32 * 1e-4)
        .collect()
}

fn survivors(values: &[f32]) -> Vec<usize> {
    (0..values.len())
        .filter(|&place| values[place].is_finite())
        .collect()
}

fn on_device(values: &[f32]) -> Array {
    Device::set_default(&Device::cpu());
    Array::from_slice(values, &[1, VOCABULARY as i32])
}

#[test]
fn filters_keep_what_the_reference_keeps() {
    let plain = Sampling {
        temperature: 1.0,
        ..Sampling::default()
    };
    let table = [
        plain,
        Sampling { top_p: 0.9, ..plain },
        Sampling { top_p: 0.3, ..plain },
        Sampling { min_p: 0.05, ..plain },
        Sampling { top_k: 1, ..plain },
        Sampling { top_k: 40, ..plain },
        Sampling { top_k: 1000, ..plain },
        Sampling {
            top_p: 0.95,
            min_p: 0.02,
            top_k: 20,
            ..plain
        },
    ];
    for seed in 0..20 {
        let logits = logits(seed);
        for sampling in &table {
            let expected = reference::filter(&logits, sampling).expect("good logits");
            let got = chain::filtered_logprobs(&on_device(&logits), sampling).expect("MLX filters");
            let got: Vec<f32> = got.to_vec_exact().expect("float32");
            assert_eq!(survivors(&got), survivors(&expected), "{sampling:?}, seed {seed}");
            for place in survivors(&got) {
                assert!(
                    (got[place] - expected[place]).abs() < 1e-4,
                    "{sampling:?}, seed {seed}, token {place}"
                );
            }
        }
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut tied = vec![0.0; VOCABULARY];
    (tied[7], tied[90]) = (3.0, 3.0);
    let token = chain::greedy(&on_device(&tied)).expect("MLX takes the greatest");
    assert_eq!(token.to_vec_exact::<u32>().expect("uint32"), [7]);
    assert_eq!(reference::argmax(&tied), Some(7));
}

#[test]
fn a_draw_depends_on_seed_and_index_and_falls_among_the_survivors() {
    let sampling = Sampling {
        temperature: 1.5,
        top_k: 10,
        ..Sampling::default()
    };
    let logits = logits(3);
    let kept = survivors(&reference::filter(&logits, &sampling).expect("good logits"));
    let draw = |seed, index| {
        let token = chain::sample(&on_device(&logits), &sampling, seed, index).expect("MLX draws");
        token.to_vec_exact::<u32>().expect("uint32")[0] as usize
    };
    let draws: Vec<usize> = (0..60).map(|index| draw(5, index)).collect();
    assert!(draws.iter().all(|token| kept.contains(token)));
    assert!(
        draws.iter().any(|token| *token != draws[0]),
        "draws vary with the index"
    );
    assert_eq!(draws, (0..60).map(|index| draw(5, index)).collect::<Vec<_>>());
    assert_ne!(draws, (0..60).map(|index| draw(6, index)).collect::<Vec<_>>());
}

#[test]
fn the_log_probability_of_a_choice_is_its_own() {
    let logits = logits(9);
    let expected = reference::log_softmax(&logits).expect("good logits");
    let tokens = Array::from_slice(&[17u32], &[1]);
    let got = chain::chosen_logprobs(&on_device(&logits), &tokens).expect("MLX computes");
    let got: Vec<f32> = got.to_vec_exact().expect("float32");
    assert!((got[0] - expected[17]).abs() < 1e-4);
}
