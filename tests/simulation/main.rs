//! All that the engine can do, at once and at random: requests are submitted, held back, cancelled, failed and finished over
//! options thrown by dice, and each must say what it says alone.
//!
//! A plain test run goes through fixed seeds. For long:
//!
//! ```sh
//! MLX_CHAT_SIMULATION_SECONDS=600 cargo test --release --test simulation
//! ```
//!
//! Nothing else may run in this process meanwhile: what MLX holds is compared before and after.

#[path = "../support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;
#[path = "../support/tiny.rs"]
#[allow(dead_code, reason = "made for models fed by hand, too")]
mod tiny;
#[path = "../exactness/workload.rs"]
#[allow(dead_code, reason = "made for models by themselves, too")]
mod workload;

mod actor;
mod round;
mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mlx_chat::cache::{KvLayout, KvQuantization, KvScheme, KvSchemes};
use mlx_chat::model::hashing::HashingLayer::{self, Full, Recurrent, Sliding};
use mlx_rs::memory;
use round::{Seen, play};
use world::{Tiny, World, hashing};

/// Layers of each kind, and of all kinds. Rows reach the windows, and go round them.
const LAYERS: [&[HashingLayer]; 3] = [
    &[Full, Full],
    &[Sliding(8), Full, Sliding(40)],
    &[Recurrent, Full, Sliding(16), Recurrent],
];

/// Of full, sliding and recurrent layers, dense and quantized, with experts.
const MODELS: [&str; 6] = [
    "llama-4bit",
    "gemma3-4bit",
    "mistral-sliding-4bit",
    "qwen3_moe-4bit",
    "qwen3_next-4bit",
    "qwen3_5",
];

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays so many rounds, or for as long as was asked for. `world` gives the model of a round.
fn simulate(name: &str, rounds: u64, mut world: impl FnMut(u64) -> Box<dyn World>) -> Seen {
    let _turn = one_at_a_time();
    let seconds = std::env::var("MLX_CHAT_SIMULATION_SECONDS").ok();
    let seconds: Option<u64> = seconds.map(|text| text.parse().expect("a number of seconds"));
    let started = Instant::now();
    let mut seen = Seen::default();
    let mut held = None;
    for seed in 0.. {
        let over = match seconds {
            Some(seconds) => seed >= rounds && started.elapsed() >= Duration::from_secs(seconds),
            None => seed >= rounds,
        };
        if over {
            break;
        }
        let mut world = world(seed);
        play(&mut *world, seed, &mut seen);
        drop(world);
        // What the first round leaves is made once for all.
        let active = memory::active_memory().expect("MLX tells");
        let most = *held.get_or_insert(active);
        assert!(
            active <= most,
            "{name}, seed {seed}: {active} bytes are left, {most} before"
        );
    }
    println!("{name}: {seen:?} in {:?}", started.elapsed());
    seen
}

#[test]
fn over_the_hashing_model_everyone_says_what_they_say_alone() {
    let seen = simulate("hashing", 36, |seed| {
        let layout = [KvLayout::Columns, KvLayout::OwnBuffers][seed as usize % 2];
        hashing(seed, layout, LAYERS[seed as usize / 2 % 3])
    });
    assert!(seen.steps > 3000, "{seen:?}");
    seen.assert_all_met();
    assert!(seen.failed > 0, "{seen:?}");
}

#[test]
fn over_the_oracles_models_everyone_says_what_they_say_alone_to_the_bit() {
    let seen = simulate("tiny models", 12, |seed| {
        Box::new(Tiny::new(MODELS[seed as usize % MODELS.len()]))
    });
    assert!(seen.steps > 500, "{seen:?}");
    seen.assert_all_met();
}

#[test]
fn with_quantized_keys_and_values_everyone_says_what_they_say_alone_to_the_bit() {
    let seen = simulate("quantized", 8, |seed| {
        let kv = KvSchemes {
            uniform: KvScheme::Quantized(KvQuantization::new([4, 8][seed as usize % 2], 32).expect("valid")),
            ..KvSchemes::default()
        };
        Box::new(Tiny::holding(MODELS[seed as usize % MODELS.len()], kv))
    });
    assert!(
        seen.steps > 300 && seen.most_rows > 3 && seen.cancelled > 3,
        "{seen:?}"
    );
}
