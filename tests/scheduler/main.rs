//! The scheduler over the hashing model, whose output changes if any row is mixed up, shifted, cut or doubled: all tests run
//! with its caches as columns, and again in own buffers. What doesn't count bytes runs with layers of other kinds, too.

#![allow(
    clippy::duplicate_mod,
    reason = "every file is a module twice: once for each layout"
)]

mod going_on;
#[path = "../support/engine.rs"]
mod support;

use mlx_chat::cache::KvLayout;
use mlx_chat::engine::{EngineHandle, EngineOptions, Request};
use mlx_chat::model::Loaded;
use mlx_chat::model::hashing::{HashingLayer, HashingModel, HashingOptions};
use mlx_chat::nn::Backend;
use support::{Dice, Heard, engine_with, request};

/// Options of a model whose caches lie in one way, and whose layers are of these kinds.
macro_rules! options_of {
    ($layout:expr, $layers:expr) => {
        fn plain() -> HashingOptions {
            HashingOptions {
                layout: $layout,
                layers: $layers.to_vec(),
                ..HashingOptions::default()
            }
        }

        fn with_eos() -> HashingOptions {
            HashingOptions {
                eos_one_in: 23,
                ..plain()
            }
        }
    };
}

macro_rules! over_full {
    ($name:ident, $layout:expr, $bytes:literal, $entry:literal) => {
        #[path = "."]
        mod $name {
            use super::*;

            mod admission;
            mod batching;
            mod broken;
            mod control;
            mod disk;
            mod endings;
            mod packed;
            mod prompt_cache;
            mod rules;

            /// KV bytes of a position.
            const POSITION: u64 = $bytes;

            /// Positions that the least entry of the prompt cache takes.
            const ENTRY: u64 = $entry;

            options_of!($layout, [HashingLayer::Full; 2]);
        }
    };
}

macro_rules! over_others {
    ($name:ident, $layout:expr, $layers:expr) => {
        #[path = "."]
        mod $name {
            use super::*;

            mod batching;
            mod broken;
            mod disk;
            mod endings;
            mod kinds;
            mod packed;

            options_of!($layout, $layers);
        }
    };
}

// Two layers; in own buffers a value is padded to 16 floats.
over_full!(columns, KvLayout::Columns, 16, 256);
over_full!(own_buffers, KvLayout::OwnBuffers, 136, 32);

/// Rows of tests reach the windows, and go round them.
const SLIDING: [HashingLayer; 3] = [
    HashingLayer::Sliding(8),
    HashingLayer::Full,
    HashingLayer::Sliding(40),
];

const HYBRID: [HashingLayer; 4] = [
    HashingLayer::Recurrent,
    HashingLayer::Full,
    HashingLayer::Sliding(16),
    HashingLayer::Recurrent,
];

over_others!(sliding_columns, KvLayout::Columns, SLIDING);
over_others!(sliding_own_buffers, KvLayout::OwnBuffers, SLIDING);
over_others!(hybrid_columns, KvLayout::Columns, HYBRID);
over_others!(hybrid_own_buffers, KvLayout::OwnBuffers, HYBRID);

/// An engine over a hashing model, ready.
fn engine_over(options: EngineOptions, hashing: HashingOptions) -> EngineHandle {
    engine_with(options, move || loaded(hashing))
}

/// A hashing model, on the thread that is to use it.
fn loaded(hashing: HashingOptions) -> Loaded {
    Backend::Cpu.enter();
    let model = HashingModel::new(hashing);
    Loaded {
        eos: model.eos().into_iter().collect(),
        model: Box::new(model),
        name: "hashing".into(),
    }
}

/// What a row must say, computed without MLX: EOS ends it and is not delivered.
fn alone(hashing: &HashingOptions, prompt: &[u32], max_tokens: usize) -> Vec<u32> {
    let model = HashingModel::new(hashing.clone());
    let mut tokens = model.continuation(prompt, max_tokens);
    if tokens.last().copied() == model.eos() {
        tokens.pop();
    }
    tokens
}

/// Four prompts that arrive at once, or while others decode.
fn staggered(dice: &mut Dice, count: usize) -> Vec<(u64, Request)> {
    (0..count)
        .map(|_| {
            let length = 1 + dice.below(40);
            let prompt = dice.prompt(length, 63);
            (dice.below(60) as u64, request(&prompt, 1 + dice.below(30)))
        })
        .collect()
}

fn prompt_of(request: &Request) -> Vec<u32> {
    match &request.prompt {
        mlx_chat::engine::Prompt::Tokens(tokens) => tokens.clone(),
        other => panic!("ids expected, found {other:?}"),
    }
}

fn assert_as_alone(hashing: &HashingOptions, workload: &[(u64, Request)], heard: &[Heard]) {
    for ((_, request), heard) in workload.iter().zip(heard) {
        assert_eq!(
            heard.tokens,
            alone(hashing, &prompt_of(request), request.max_tokens),
            "{request:?}"
        );
    }
}
