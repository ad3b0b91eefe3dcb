//! `bench`: rows that start together and decode together, greedy, EOS ignored.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::args::{EngineArgs, ModelArg, at_least_one};
use super::kv_config;
use super::open::{self, Interrupts, Opened, Opening};
use super::outcome::{Outcome, Stdout, tell, usage};
use crate::config::paths::Paths;
use crate::engine::command::TaskState;
use crate::engine::memory::{mlx_memory, reset_peak, resident_memory};
use crate::engine::options::{PREFILL_TOKENS, PromptCacheLimit};
use crate::engine::telemetry::StepSample;
use crate::engine::{Consumer, Engine, EngineHandle, Event, FinishReason, Prompt, Request, RequestId};

/// Measures how fast prompts are read (prefill) and answers are made (decode), for batches of several sizes
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    /// Which model.
    pub model: ModelArg,

    /// Batch sizes
    #[arg(long, value_name = "B,…", default_value = "1,4,8", value_delimiter = ',', value_parser = at_least_one, allow_negative_numbers = true)]
    pub batch: Vec<usize>,

    /// Tokens of each prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 128, value_parser = at_least_one, allow_negative_numbers = true)]
    pub prompt: usize,

    /// Tokens of each answer
    #[arg(long = "gen", value_name = "TOKENS", default_value_t = 64, value_parser = at_least_one, allow_negative_numbers = true)]
    pub generate: usize,

    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    /// How the engine batches; the batch size and prefill budget are raised to what a batch needs.
    pub engine: EngineArgs,
}

/// Runs the command.
pub fn run(args: &BenchArgs, paths: &Paths) -> anyhow::Result<ExitCode> {
    let most = args.batch.iter().copied().max().unwrap_or(1);
    let mut engine_args = args.engine.clone();
    engine_args.check()?;
    if let Some(flag) = engine_args.prompt_cache_flag() {
        return Err(usage(format!(
            "{flag}: nothing is measured with a prompt cache; leave it out"
        ))
        .into());
    }
    engine_args.max_batch = engine_args.max_batch.max(most);
    if engine_args.is_set("mixed-token-budget")
        && let Some(why) = engine_args.budget_too_small()
    {
        tell(format_args!(
            "engine.mixed_token_budget: {why}; the default counts"
        ));
        engine_args.mixed_token_budget = None;
    }
    engine_args.max_queued = engine_args.max_queued.max(most);
    engine_args.prefill_chunk = engine_args.prefill_chunk.or(Some(PREFILL_TOKENS));
    engine_args.prefill_batch_tokens = engine_args.prefill_batch_tokens.max(Some(most * args.prompt));
    engine_args.prompt_cache = Some(PromptCacheLimit::Off);
    (engine_args.prompt_cache_disk, engine_args.prompt_cache_dir) = (None, None);
    let (runtime, mut interrupts) = open::runtime()?;
    let Opened { engine, .. } = open::engine(Opening {
        model: &args.model,
        engine: &engine_args,
        paths,
        keeps_prompts: false,
    })?;
    runtime.block_on(open::wait_until_ready(&engine, &mut interrupts))?;
    let vocabulary = engine.snapshots().borrow().info.vocabulary;
    let vocabulary = u32::try_from(vocabulary).unwrap_or(u32::MAX);
    if !args.json {
        head(&engine, args)?;
    }
    // Once over a short prompt, so that nothing is measured cold.
    let listening = &mut (runtime, interrupts);
    measure(listening, &engine, 1, 16, 4, vocabulary)?;
    for &batch in &args.batch {
        let mut line = measure(listening, &engine, batch, args.prompt, args.generate, vocabulary)?;
        line["kv_layers"] = kv_config::applied(&engine.snapshots().borrow().info.kv_layers);
        print(&line, args.json)?;
    }
    engine.close();
    Ok(match engine.snapshots().borrow().state {
        crate::engine::telemetry::EngineState::Failed(_) => Outcome::Failed.into(),
        _ => ExitCode::SUCCESS,
    })
}

/// Token `position` of row `row`: spread over the vocabulary, the same in every run.
fn prompt_token(position: usize, row: usize, vocabulary: u32) -> u32 {
    let first = 1000 % vocabulary;
    let spread = 5000.min(vocabulary - first) as usize;
    first + u32::try_from((position * 37 + row * 101) % spread).unwrap_or(0)
}

fn measure(
    (runtime, interrupts): &mut (Runtime, Interrupts),
    engine: &EngineHandle,
    batch: usize,
    prompt: usize,
    generate: usize,
    vocabulary: u32,
) -> anyhow::Result<Value> {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let workload = (0..batch).map(|row| {
        let tokens = (0..prompt)
            .map(|position| prompt_token(position, row, vocabulary))
            .collect();
        let request = Request {
            ignore_eos: true,
            cache: false,
            ..Request::new(Prompt::Tokens(tokens), generate)
        };
        (0, request, Box::new(sender.clone()) as Box<dyn Consumer>)
    });
    let workload = workload.collect();
    settle(engine)?;
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    samples.clear();
    reset_peak();
    for outcome in engine.schedule(workload)? {
        outcome?;
    }
    drop(sender);
    let mut prefill_ms: f64 = 0.0;
    while let Some((_, event)) = runtime.block_on(open::next_event(engine, &mut events, interrupts))? {
        if let Event::Finish(finish) = event {
            if finish.reason != FinishReason::Length {
                return Err(anyhow!(
                    finish
                        .message
                        .unwrap_or_else(|| format!("a row ended by {:?}", finish.reason))
                ));
            }
            prefill_ms = prefill_ms.max(finish.prefill_ms + finish.queued_ms);
        }
    }
    settle(engine)?;
    engine.drain_samples(&mut samples);
    let steps = of_all_rows(&samples, batch);
    if steps.is_empty() && generate > 1 {
        let most = samples.iter().map(|step| step.rows).max().unwrap_or(0);
        return Err(anyhow!(
            "at most {most} of the {batch} rows ran together, so there is no batch of {batch} to measure: raise \
             --kv-budget"
        ));
    }
    Ok(report(batch, prompt, generate, prefill_ms, steps))
}

/// Waits until the engine is between two iterations: a row's end is told before the record of its last step is made.
fn settle(engine: &EngineHandle) -> anyhow::Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    engine.start_task(Box::new(move |_| {
        // Nobody waits any more where the command was interrupted.
        let _gone = sender.send(());
        TaskState::Finished
    }))?;
    receiver
        .recv()
        .map_err(|_| anyhow!("the engine ended in the middle of a measurement"))
}

/// The steps with every row in the forward, and the record after them, which holds the last one's read. Rows that start
/// together are in all of them.
fn of_all_rows(samples: &[StepSample], batch: usize) -> &[StepSample] {
    let all = |step: &StepSample| step.rows as usize == batch;
    match (samples.iter().position(all), samples.iter().rposition(all)) {
        (Some(first), Some(last)) => samples
            .get(first..samples.len().min(last + 2))
            .unwrap_or_default(),
        _ => &[],
    }
}

fn report(batch: usize, prompt: usize, generate: usize, prefill_ms: f64, steps: &[StepSample]) -> Value {
    let forwards = steps
        .iter()
        .filter(|step| step.rows as usize == batch)
        .count()
        .max(1) as f64;
    let sum = |part: fn(&StepSample) -> u64| steps.iter().map(part).sum::<u64>() as f64 / 1e6;
    let gap = sum(|step| step.gap_ns - step.prefill_ns);
    let (build, read, emit) = (
        sum(|step| step.build_ns),
        sum(|step| step.read_ns),
        sum(|step| step.emit_ns),
    );
    let decode_ms = build + read + emit + gap;
    let tokens: u64 = steps.iter().map(|step| u64::from(step.tokens)).sum();
    let rate = |tokens: f64, ms: f64| (ms > 0.0).then(|| tokens / ms * 1e3);
    json!({
        "batch": batch,
        "prompt": prompt,
        "gen": generate,
        "prefill_tok_s": rate((batch * prompt) as f64, prefill_ms),
        "decode_tok_s": rate(tokens as f64, decode_ms),
        "step_ms": decode_ms / forwards,
        "build_ms": build / forwards,
        "read_ms": read / forwards,
        "emit_ms": emit / forwards,
        "gap_ms": gap / forwards,
        // Read here: a snapshot may be a tenth of a second older than the last step.
        "mlx_peak_bytes": mlx_memory().peak,
        "rss_peak_bytes": resident_memory(true),
    })
}

/// What is measured, for people: the model, the device and the lengths.
fn head(engine: &EngineHandle, args: &BenchArgs) -> io::Result<()> {
    let info = engine.snapshots().borrow().info.clone();
    writeln!(
        Stdout::lock(),
        "{} ({}) on {}, prompts of {} tokens, {} generated",
        info.model,
        info.description,
        info.device,
        args.prompt,
        args.generate
    )
}

fn print(line: &Value, json: bool) -> io::Result<()> {
    let mut out = Stdout::lock();
    if json {
        return writeln!(out, "{line}");
    }
    let number = |name: &str| {
        line[name]
            .as_f64()
            .map_or("-".into(), |value| format!("{value:.1}"))
    };
    writeln!(
        out,
        "batch {:>3} · prefill {:>8} tok/s · decode {:>8} tok/s · step {:>7} ms (build {}, read {}, emit {}, gap {})",
        // A value of JSON pays no heed to a width.
        line["batch"].as_u64().unwrap_or(0),
        number("prefill_tok_s"),
        number("decode_tok_s"),
        number("step_ms"),
        number("build_ms"),
        number("read_ms"),
        number("emit_ms"),
        number("gap_ms"),
    )
}
