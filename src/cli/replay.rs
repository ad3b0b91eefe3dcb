//! `replay`: requests against the real engine, reproducibly by step.

use std::collections::HashMap;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedReceiver;

use super::args::{EngineArgs, ModelArg};
use super::kv_config;
use super::open::{self, Interrupts, Opened, Opening};
use super::outcome::{Outcome, Stdout, usage};
use super::stderr::say;
use super::workload;
use crate::config::paths::Paths;
use crate::engine::telemetry::{DiskState, DiskStats, EngineState, Snapshot};
use crate::engine::{Consumer, Engine, EngineHandle, Event, Finish, FinishReason, RequestId};
use crate::text::sanitize::for_terminal;
use crate::text::spans::{Run, Spanned};

/// What a workload looks like, for `--help`.
const FORMAT: &str = "\
A line of the workload is an object of
  \"id\"           names the request in the output
  \"prompt\"       token ids, or raw text; or instead
  \"messages\"     [{\"role\", \"content\"}, …], which go through the model's chat template; an answer may also have
                 \"reasoning_content\" and \"tool_calls\"
and, each of which may be left out,
  \"at_step\": 0, \"max_tokens\": 256, \"stop\": [\"text\", …], \"session\": \"name\", \"cache\": true, \"ignore_eos\": false,
  \"cancel_after_tokens\": N, \"logprobs\": 1,
  \"thinking\": true, \"tools\": [{…}, …], \"chat_template_kwargs\": {\"name\": value, …},
  \"sampling\": {\"temperature\": 0, \"top_p\": 1, \"top_k\": 0, \"min_p\": 0, \"seed\": N}
A request is submitted once that many decode steps were taken; an idle engine takes the next one at once. Where
no max_tokens is said, it shrinks to what the context has room for.";

/// Answers the requests of a file, each from the step on that the file says, and tells how that went
#[derive(Debug, Args)]
#[command(after_help = FORMAT)]
pub struct ReplayArgs {
    /// The workload: one JSON object a line; `-` reads standard input
    #[arg(value_name = "WORKLOAD.jsonl")]
    pub workload: PathBuf,

    #[command(flatten)]
    /// Which model.
    pub model: ModelArg,

    /// Print one JSON event a line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    /// How the engine batches.
    pub engine: EngineArgs,
}

/// What is listened to while requests run.
struct Heard<'a> {
    events: &'a mut UnboundedReceiver<(RequestId, Event)>,
    interrupts: &'a mut Interrupts,
}

/// Runs the command.
pub fn run(args: &ReplayArgs, paths: &Paths) -> anyhow::Result<ExitCode> {
    let lines = workload::parse(&read_workload(&args.workload)?)
        .map_err(|message| usage(format!("{}: {message}", shown(&args.workload))))?;
    let (runtime, mut interrupts) = open::runtime()?;
    let Opened { engine, .. } = open::engine(Opening {
        model: &args.model,
        engine: &args.engine,
        paths,
        keeps_prompts: false,
    })?;
    runtime.block_on(open::wait_until_ready(&engine, &mut interrupts))?;
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let mut requests = Vec::new();
    for line in &lines {
        let request = line.request().map_err(usage)?;
        requests.push((
            line.at_step,
            request,
            Box::new(sender.clone()) as Box<dyn Consumer>,
        ));
    }
    drop(sender);
    let outcomes = engine.schedule(requests)?;
    let mut names = HashMap::new();
    let mut out = Printer::new(args.json);
    for (line, outcome) in lines.iter().zip(outcomes) {
        match outcome {
            Ok(id) => {
                names.insert(id, line.id.clone());
            }
            Err(refused) => out.line(&json!({
                "event": "finish", "id": line.id, "reason": FinishReason::Rejected.as_str(), "message": refused.to_string(),
                "prompt_tokens": line.prompt_ids(), "cached_tokens": 0, "generated_tokens": 0,
                "queued_ms": 0.0, "prefill_ms": 0.0, "decode_ms": 0.0, "ttft_ms": null,
            }))?,
        }
    }
    let heard = Heard {
        events: &mut events,
        interrupts: &mut interrupts,
    };
    let failed = runtime.block_on(print_events(&engine, heard, &names, &mut out))?;
    open::close(&engine);
    let snapshot = engine.snapshots().borrow().clone();
    out.summary(&summary(&snapshot))?;
    Ok(if failed || matches!(snapshot.state, EngineState::Failed(_)) {
        Outcome::Failed.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// Prints events until every request has ended; whether one of them failed. In one future, so that Ctrl-C is seen while
/// events never cease to be there.
async fn print_events(
    engine: &EngineHandle,
    heard: Heard<'_>,
    names: &HashMap<RequestId, Value>,
    out: &mut Printer,
) -> anyhow::Result<bool> {
    let has_text = engine.snapshots().borrow().info.has_tokenizer;
    let mut failed = false;
    let mut samples = Vec::new();
    while let Some((id, event)) = open::next_event(engine, heard.events, heard.interrupts).await? {
        // Nobody looks at single steps here; taken away, they are not counted as dropped.
        engine.drain_samples(&mut samples);
        samples.clear();
        if let Event::Note(note) = &event {
            let name = names.get(&id).unwrap_or(&Value::Null);
            say!("note: {name}: {}", for_terminal(note));
        }
        failed |= matches!(&event, Event::Finish(finish) if finish.reason == FinishReason::Error);
        if let Some(line) = event_json(names.get(&id).unwrap_or(&Value::Null), &event, has_text) {
            out.line(&line)?;
        }
    }
    Ok(failed)
}

/// A workload's path as messages name it.
fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "standard input".into()
    } else {
        path.display().to_string()
    }
}

fn read_workload(path: &Path) -> anyhow::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("can't read the workload from standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("can't read the workload {}", path.display()))
}

/// One event as scripts see it; `None` for those that they don't.
pub fn event_json(id: &Value, event: &Event, has_text: bool) -> Option<Value> {
    match event {
        Event::Note(_) | Event::Admitted { .. } | Event::Prefill { .. } => None,
        Event::Token {
            index,
            token,
            text,
            logprob,
        } => {
            let shown = has_text.then_some(text.as_str());
            let mut line = json!({"event": "token", "id": id, "index": index, "token": token, "text": shown});
            if let Some(spans) = spans_json(text) {
                line["spans"] = spans;
            }
            if let Some(logprob) = logprob {
                line["logprob"] = json!(logprob);
            }
            Some(line)
        }
        Event::Finish(finish) => Some(finish_json(id, finish)),
    }
}

/// What the parts of a text are; `None` where all of it is answer.
fn spans_json(text: &Spanned) -> Option<Value> {
    if text.is_plain() {
        return None;
    }
    let part = |run: Run<'_>| match run.marker {
        true => json!({"span": run.span.as_str(), "marker": true, "text": run.text}),
        false => json!({"span": run.span.as_str(), "text": run.text}),
    };
    Some(text.runs().map(part).collect())
}

fn finish_json(id: &Value, finish: &Finish) -> Value {
    let mut line = json!({"event": "finish", "id": id, "reason": finish.reason.as_str()});
    if let Some(by) = finish.stop_reason {
        line["stop_reason"] = json!(by.as_str());
    }
    if let Some(message) = &finish.message {
        line["message"] = json!(message);
    }
    if !finish.text.is_empty() {
        line["text"] = json!(finish.text.as_str());
    }
    if let Some(spans) = spans_json(&finish.text) {
        line["spans"] = spans;
    }
    line["prompt_tokens"] = json!(finish.prompt_tokens);
    line["cached_tokens"] = json!(finish.cached_tokens);
    line["generated_tokens"] = json!(finish.generated_tokens);
    line["queued_ms"] = json!(finish.queued_ms);
    line["prefill_ms"] = json!(finish.prefill_ms);
    line["decode_ms"] = json!(finish.decode_ms);
    line["ttft_ms"] = json!(finish.ttft_ms);
    line
}

/// The prompt cache on disk; null where there is none.
fn disk_json(disk: &DiskStats) -> Value {
    match disk.state {
        DiskState::Off => Value::Null,
        DiskState::On | DiskState::Paused => json!({
            "entries": disk.entries, "bytes": disk.bytes, "limit_bytes": disk.limit, "written": disk.written,
            "dropped": disk.dropped, "restored": disk.restored, "damaged": disk.damaged,
            "paused": disk.state == DiskState::Paused,
        }),
    }
}

/// The last line: sums over the whole run.
pub fn summary(snapshot: &Snapshot) -> Value {
    let totals = &snapshot.totals;
    let phases = &totals.phases;
    let ms = |ns: u64| ns as f64 / 1e6;
    let rate = |tokens: u64, ns: u64| (ns > 0 && tokens > 0).then(|| tokens as f64 / (ns as f64 / 1e9));
    let cache = &snapshot.prompt_cache;
    let mut summary = json!({
        "event": "summary",
        "steps": totals.steps,
        "prefill_chunks": totals.prefill_chunks,
        "wall_ms": ms(totals.wall_ns),
        "idle_ms": ms(phases.idle),
        "build_ms": ms(phases.construct + phases.dispatch),
        "construct_ms": ms(phases.construct),
        "dispatch_ms": ms(phases.dispatch),
        "read_ms": ms(phases.read),
        "emit_ms": ms(phases.emit),
        "gap_ms": ms(phases.gap + phases.prefill),
        "prefill_ms": ms(phases.prefill),
        "decode_tokens_per_s": rate(totals.decode_tokens, totals.decode_ns),
        "prefill_tokens_per_s": rate(totals.prefill_tokens, phases.prefill),
        "mixed_tokens": totals.mixed_tokens,
        "kv": {
            "budget_bytes": snapshot.kv.budget,
            "peak_reserved_bytes": totals.kv_peak.reserved,
            "peak_allocated_bytes": totals.kv_peak.allocated,
            "peak_used_bytes": totals.kv_peak.used,
            "layers": kv_config::applied(&snapshot.info.kv_layers),
        },
        "prompt_cache": {
            "lookups": cache.lookups, "full": cache.full, "partial": cache.partial, "miss": cache.miss,
            "tokens_asked": cache.tokens_asked, "tokens_served": cache.tokens_served,
            "entries": cache.entries, "bytes": cache.bytes, "evictions": cache.evictions,
            "restore_ms": ms(cache.restore_ns), "disk": disk_json(&cache.disk),
        },
        "dropped_samples": snapshot.dropped_samples,
        "device": snapshot.info.device,
        "mlx": snapshot.info.mlx,
    });
    let attribution = &totals.attribution;
    if attribution.forward_ns > 0 {
        summary["forward_ms"] = json!(ms(attribution.forward_ns));
        summary["head_ms"] = json!(ms(attribution.head_ns));
        summary["sampling_ms"] = json!(ms(attribution.sampling_ns));
    }
    summary
}

/// Prints events as JSON lines, or for a reader.
struct Printer {
    json: bool,
    out: BufWriter<Stdout>,
}

impl Printer {
    fn new(json: bool) -> Self {
        Self {
            json,
            out: BufWriter::new(Stdout::lock()),
        }
    }

    fn line(&mut self, line: &Value) -> std::io::Result<()> {
        if self.json {
            serde_json::to_writer(&mut self.out, line)?;
            self.out.write_all(b"\n")?;
            return self.out.flush();
        }
        if line["event"] == "finish" {
            let number = |name: &str| {
                line[name]
                    .as_f64()
                    .map_or("-".to_owned(), |ms| format!("{ms:.1}"))
            };
            writeln!(
                self.out,
                "{}: {} · {} prompt tokens ({} cached) · {} generated · first token after {} ms{}",
                line["id"],
                line["reason"].as_str().unwrap_or("-"),
                line["prompt_tokens"],
                line["cached_tokens"],
                line["generated_tokens"],
                number("ttft_ms"),
                line["message"]
                    .as_str()
                    .map_or(String::new(), |message| format!("\n  {message}")),
            )?;
        }
        Ok(())
    }

    fn summary(&mut self, summary: &Value) -> std::io::Result<()> {
        if self.json {
            return self.line(summary);
        }
        let number = |name: &str| {
            summary[name]
                .as_f64()
                .map_or("-".to_owned(), |value| format!("{value:.1}"))
        };
        writeln!(
            self.out,
            "{} steps · {} ms (idle {}, build {}, read {}, emit {}, gap {}) · decode {} tok/s · prefill {} tok/s",
            summary["steps"],
            number("wall_ms"),
            number("idle_ms"),
            number("build_ms"),
            number("read_ms"),
            number("emit_ms"),
            number("gap_ms"),
            number("decode_tokens_per_s"),
            number("prefill_tokens_per_s"),
        )?;
        for layers in summary["kv"]["layers"].as_array().into_iter().flatten() {
            if let Some(bits) = layers["bits"].as_u64() {
                writeln!(
                    self.out,
                    "layers {} to {}: keys and values in {bits} bits, groups of {}",
                    layers["first"], layers["last"], layers["group_size"]
                )?;
            }
        }
        self.out.flush()
    }
}
