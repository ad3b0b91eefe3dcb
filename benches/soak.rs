//! Whether memory stays flat: thousands of steps while rows join, leave, are cancelled and go on in sessions.
//!
//! `cargo bench --bench soak -- MODEL [STEPS]`. Ends with 1 where memory has grown.

#[path = "../tests/support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mlx_chat::cache::KvSchemes;
use mlx_chat::engine::memory::{mlx_memory, resident_memory};
use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{Engine, EngineHandle, EngineOptions, Request};
use mlx_chat::model::{LoadOptions, load};
use mlx_chat::nn::Backend;
use mlx_chat::sampling::Sampling;
use support::{Dice, Heard, engine_with, request, run};

/// Steps until the prompt cache is full and every buffer has had its largest size.
const WARM_UP: u64 = 3000;

/// What the prompt cache may hold: filled many times over.
const PROMPT_CACHE: u64 = 24 << 20;

/// Requests of one round.
const ROUND: usize = 24;

/// Bytes of MLX that may be left when the engine has gone: what a worker's thread lets go of late.
const SLACK: u64 = 64 << 10;

/// What the process holds while the engine rests.
struct Held {
    when: String,
    active: u64,
    prompt_cache: u64,
    kept: u64,
    resident: u64,
    handles: usize,
    threads: usize,
}

impl Held {
    fn now(when: String, engine: &EngineHandle) -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        let mlx = mlx_memory();
        Self {
            when,
            active: mlx.active,
            prompt_cache: engine.snapshots().borrow().prompt_cache.bytes,
            kept: mlx.cache,
            resident: resident_memory(false).unwrap_or(0),
            handles: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    fn print(&self) {
        println!(
            "{:<16} {:>14} {:>14} {:>12} {:>14} {:>8} {:>8}",
            self.when, self.active, self.prompt_cache, self.kept, self.resident, self.handles, self.threads
        );
    }
}

/// A round of requests, half of them in sessions that go on from what they said before.
fn round(dice: &mut Dice, vocabulary: usize, talks: &mut [Vec<u32>]) -> Vec<(Option<usize>, Request)> {
    let mut ask = |dice: &mut Dice, number: usize| {
        let (length, tokens) = (1 + dice.below(200), 1 + dice.below(100));
        let new = dice.prompt(length, vocabulary);
        let talk = (number < talks.len()).then_some(number);
        let prompt = match talk {
            Some(talk) => {
                let said = &mut talks[talk];
                if said.len() > 800 {
                    said.clear();
                }
                said.extend(new);
                said.clone()
            }
            None => new,
        };
        let request = Request {
            ignore_eos: true,
            session: talk.map(|talk| format!("talk {talk}")),
            cancel_after_tokens: (dice.below(6) == 0).then(|| 1 + dice.below(tokens)),
            sampling: Sampling {
                temperature: dice.below(2) as f32,
                ..Sampling::default()
            },
            ..request(&prompt, tokens)
        };
        (talk, request)
    };
    (0..ROUND).map(|number| ask(dice, number)).collect()
}

/// Runs rounds until the engine has taken so many steps in all; gives how many requests that took.
fn work(engine: &EngineHandle, dice: &mut Dice, talks: &mut [Vec<u32>], steps: u64) -> usize {
    let vocabulary = engine.snapshots().borrow().info.vocabulary;
    let mut requests = 0;
    loop {
        let before = engine.snapshots().borrow().steps;
        if before >= steps {
            return requests;
        }
        let asked = round(dice, vocabulary, talks);
        let at: Vec<u64> = asked.iter().map(|_| before + dice.below(150) as u64).collect();
        let workload = at
            .into_iter()
            .zip(asked.iter().map(|(_, request)| request.clone()));
        let heard: Vec<Heard> = run(engine, workload.collect());
        for ((talk, _), heard) in asked.iter().zip(heard) {
            if let Some(talk) = talk {
                talks[*talk].extend(heard.tokens);
            }
        }
        // Its end is told when all before it has been let go.
        run(
            engine,
            vec![(
                0,
                Request {
                    cache: false,
                    ..request(&[1], 1)
                },
            )],
        );
        requests += ROUND;
    }
}

fn soak(model: PathBuf, steps: u64) -> ExitCode {
    let options = EngineOptions {
        prefill_chunk: Some(128),
        prompt_cache: PromptCacheLimit::Bytes(PROMPT_CACHE),
        ..EngineOptions::default()
    };
    let engine = engine_with(options, move || {
        let options = LoadOptions {
            backend: Backend::detect(),
            threads: None,
            kv: KvSchemes::default(),
        };
        load(&model, &options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
    });
    println!(
        "{:<16} {:>14} {:>14} {:>12} {:>14} {:>8} {:>8}",
        "steps", "MLX active", "prompt cache", "MLX cache", "resident", "handles", "threads"
    );
    let mut dice = Dice(30_000);
    let mut talks = vec![Vec::new(); ROUND / 2];
    let loaded = Held::now("0".into(), &engine);
    loaded.print();
    let mut requests = work(&engine, &mut dice, &mut talks, WARM_UP.min(steps / 2));
    let at = |engine: &EngineHandle| engine.snapshots().borrow().steps.to_string();
    let first = Held::now(at(&engine), &engine);
    first.print();
    let mut last = None;
    for part in 1..=4 {
        requests += work(&engine, &mut dice, &mut talks, steps * part / 4);
        let held = Held::now(at(&engine), &engine);
        held.print();
        last = Some(held);
    }
    engine.close();
    let left = mlx_memory().active;
    println!("{requests} requests; {left} bytes are active once the engine has closed");
    // Weights, and a full prompt cache, of which 2 % is how well it knows its size.
    let most = loaded.active + PROMPT_CACHE + PROMPT_CACHE / 50;
    let grown = left > SLACK
        || last.is_some_and(|last| {
            last.active > most || last.handles > first.handles || last.threads > first.threads
        });
    println!("memory {}", if grown { "has grown" } else { "is flat" });
    ExitCode::from(u8::from(grown))
}

fn main() -> ExitCode {
    // `cargo bench` adds a flag of its own.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let Some(model) = args.next().filter(|model| Path::new(model).exists()) else {
        println!("soak: name a model: cargo bench --bench soak -- MODEL [STEPS]");
        return ExitCode::SUCCESS;
    };
    let steps = args.next().and_then(|steps| steps.parse().ok()).unwrap_or(30_000);
    soak(model.into(), steps)
}
