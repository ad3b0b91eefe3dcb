//! What the scheduler itself costs a step: all but the model's forward, MLX's dispatch and the wait for its results.
//!
//! `cargo bench --bench overhead -- MODEL` runs eight rows of a model without weights, whose calls are timed apart, and
//! then as many of MODEL in the same process.

#[path = "../tests/support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mlx_chat::cache::{CachePlan, KvLayout, KvSchemes};
use mlx_chat::engine::telemetry::StepSample;
use mlx_chat::engine::{Engine, EngineHandle, EngineOptions, Request};
use mlx_chat::model::hashing::{HashingModel, HashingOptions};
use mlx_chat::model::{Feed, LanguageModel, LoadOptions, Loaded, ModelError, ModelInfo, MostLikely, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;
use support::{Dice, engine_with, request, run};

/// Rows that decode together.
const ROWS: usize = 8;
/// Tokens of each.
const TOKENS: usize = 400;

/// A model whose calls are timed.
struct Timed {
    model: HashingModel,
    spent_ns: Arc<AtomicU64>,
}

impl Timed {
    fn timed<T>(&self, call: impl FnOnce(&HashingModel) -> T) -> T {
        let started = Instant::now();
        let value = call(&self.model);
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.spent_ns.fetch_add(spent, Ordering::Relaxed);
        value
    }
}

impl LanguageModel for Timed {
    fn info(&self) -> &ModelInfo {
        self.model.info()
    }

    fn plan(&self) -> &CachePlan {
        self.model.plan()
    }

    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError> {
        self.timed(|model| model.packed(feed))
    }

    fn head(&self, hidden: &Array) -> Result<Array, ModelError> {
        self.timed(|model| model.head(hidden))
    }

    fn most_likely(&self, logits: &Array) -> Result<MostLikely, ModelError> {
        self.timed(|model| model.most_likely(logits))
    }
}

/// Runs the rows, and gives the samples of the steps in which all of them were.
fn steps(engine: &EngineHandle, vocabulary: usize) -> Vec<StepSample> {
    let mut dice = Dice(8);
    let ask = |dice: &mut Dice| Request {
        ignore_eos: true,
        cache: false,
        ..request(&dice.prompt(64, vocabulary), TOKENS)
    };
    let workload: Vec<(u64, Request)> = (0..ROWS).map(|_| (0, ask(&mut dice))).collect();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    samples.clear();
    run(engine, workload);
    engine.drain_samples(&mut samples);
    samples.retain(|sample| sample.rows as usize == ROWS && sample.prefill_tokens == 0);
    samples
}

fn median(mut values: Vec<u64>) -> f64 {
    values.sort_unstable();
    values
        .get(values.len() / 2)
        .map_or(f64::NAN, |&value| value as f64 / 1000.0)
}

fn main() -> ExitCode {
    // `cargo bench` adds a flag of its own.
    let model = std::env::args()
        .skip(1)
        .find(|arg| arg != "--bench")
        .map(PathBuf::from);
    let Some(model) = model.filter(|model| model.exists()) else {
        println!("overhead: name a model: cargo bench --bench overhead -- MODEL");
        return ExitCode::SUCCESS;
    };
    let spent_ns = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&spent_ns);
    let weightless = engine_with(EngineOptions::default(), move || {
        Backend::Cpu.enter();
        let options = HashingOptions {
            layout: KvLayout::OwnBuffers,
            ..HashingOptions::default()
        };
        let model = HashingModel::new(options);
        Loaded {
            eos: Vec::new(),
            model: Box::new(Timed {
                model,
                spent_ns: counter,
            }),
            name: "hashing".into(),
        }
    });
    let samples = steps(&weightless, 63);
    weightless.close();
    let total: u64 = samples
        .iter()
        .map(|s| s.construct_ns + s.emit_ns + s.gap_ns)
        .sum();
    // The few steps that are not among the samples have their calls among the spent: none of them is longer.
    let calls = spent_ns.load(Ordering::Relaxed) * samples.len() as u64 / TOKENS as u64;
    let overhead = total.saturating_sub(calls.min(total)) as f64 / samples.len().max(1) as f64 / 1000.0;
    println!(
        "{} steps of {ROWS} rows without weights, microseconds a step (medians):",
        samples.len()
    );
    for (name, of) in [
        (
            "construct, model included",
            (|s| s.construct_ns) as fn(&StepSample) -> u64,
        ),
        ("emit", |s| s.emit_ns),
        ("gap", |s| s.gap_ns),
    ] {
        println!("  {name:<26} {:>9.1}", median(samples.iter().map(of).collect()));
    }
    println!("  all but the model's (mean) {overhead:>9.1}");
    let engine = engine_with(EngineOptions::default(), move || {
        let options = LoadOptions {
            backend: Backend::detect(),
            threads: None,
            kv: KvSchemes::default(),
        };
        load(&model, &options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
    });
    let vocabulary = engine.snapshots().borrow().info.vocabulary;
    let samples = steps(&engine, vocabulary);
    engine.close();
    let whole = |s: &StepSample| s.build_ns + s.read_ns + s.emit_ns + s.gap_ns;
    let step = median(samples.iter().map(whole).collect());
    println!(
        "{} steps of {ROWS} rows of the model: {step:.0} (median)",
        samples.len()
    );
    println!("the scheduler: {:.2} % of a step", overhead / step * 100.0);
    ExitCode::SUCCESS
}
