//! `run`: one prompt, one answer on standard output.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use serde_json::{Value, json};

use super::args::{AnswerArgs, EngineArgs, ModelArg};
use super::open::{self, Interrupts, Opening};
use super::outcome::{Fault, Outcome, Stdout, usage};
use super::replay::{event_json, summary};
use super::status_line::StatusLine;
use super::stderr::{say, say_part};
use crate::chat::Settings;
use crate::config::paths::Paths;
use crate::engine::{Engine, Event, Finish, FinishReason, Prompt, Request, RequestId};
use crate::sampling::Sampling;
use crate::text::message::{ChatOptions, Message, Role};
use crate::text::sanitize::for_terminal;
use crate::text::spans::{Span, Spanned, tool_calls};

/// Answers one prompt, and prints the answer
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    /// Which model.
    pub model: ModelArg,

    /// A file whose text goes into the prompt, after PROMPT; may be given several times
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,

    /// Print counts and rates on standard error at the end
    #[arg(long)]
    pub stats: bool,

    /// Print one JSON event a line
    #[arg(long)]
    pub json: bool,

    /// Answers by a scripted engine, without a model: `fake:SCRIPT`, a TOML file; an empty one echoes prompts
    #[arg(long = "engine", value_name = "fake:SCRIPT")]
    pub scripted: Option<String>,

    /// What to answer; standard input is appended where it is not a terminal
    #[arg(value_name = "PROMPT")]
    pub prompt: Option<String>,

    #[command(flatten)]
    /// How the answer is made.
    pub answer: AnswerArgs,

    #[command(flatten)]
    /// How the engine batches.
    pub engine: EngineArgs,
}

/// Runs the command.
pub fn run(args: &RunArgs, paths: &Paths) -> anyhow::Result<ExitCode> {
    // What was said wrongly is told before anything is opened.
    args.answer.sampling(Sampling::default())?;
    let prompt = assemble(args)?;
    let (runtime, mut interrupts) = open::runtime()?;
    let opening = Opening {
        model: &args.model,
        engine: &args.engine,
        paths,
        keeps_prompts: false,
    };
    let (engine, recommended) = open::answering(args.scripted.as_deref(), opening)?;
    let engine = engine.as_ref();
    let sampling = args.answer.sampling(recommended)?;
    let outcome = runtime.block_on(async {
        open::wait_until_ready(engine, &mut interrupts).await?;
        let mut messages = Vec::new();
        if let Some(system) = &args.answer.system {
            messages.push(Message::new(Role::System, system));
        }
        messages.push(Message::new(Role::User, prompt));
        let prompt = if engine.snapshots().borrow().info.has_tokenizer {
            Prompt::Messages(messages)
        } else {
            return Err(anyhow!(
                "this model came without a tokenizer: it takes token ids, through `mlx-chat replay`"
            ));
        };
        let switch = engine.snapshots().borrow().info.thinking_switch;
        let thinking = args
            .answer
            .thinking
            .filter(|_| switch || !args.answer.thinking_by_setting);
        if thinking.is_some() && !switch {
            return Err(usage(
                "--thinking: this model's chat template has no switch for thinking; leave it out",
            )
            .into());
        }
        let request = Request {
            sampling,
            chat: Box::new(ChatOptions {
                thinking,
                ..ChatOptions::default()
            }),
            ..Request::up_to(prompt, args.answer.max_tokens, Settings::MAX_TOKENS)
        };
        answer(args, engine, &mut interrupts, request).await
    });
    open::close(engine);
    if args.stats && !args.json {
        print_stats(engine, outcome.as_ref().ok().and_then(Option::as_ref));
    }
    if args.json {
        print_line(&summary(&engine.snapshots().borrow()))?;
    }
    let Some(finish) = outcome? else {
        return Ok(Outcome::Interrupted.into());
    };
    match finish.reason {
        FinishReason::Stop | FinishReason::Length => Ok(ExitCode::SUCCESS),
        FinishReason::Cancelled => Ok(Outcome::Interrupted.into()),
        FinishReason::Rejected | FinishReason::Error => {
            let message = finish.message.unwrap_or_else(|| "the request failed".into());
            Err(Fault {
                outcome: Outcome::Failed,
                message,
            }
            .into())
        }
    }
}

/// The prompt: the argument, then the files, then standard input.
fn assemble(args: &RunArgs) -> anyhow::Result<String> {
    let mut parts: Vec<String> = args.prompt.iter().cloned().collect();
    for path in &args.file {
        let text = std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        parts.push(text);
    }
    if !std::io::stdin().is_terminal() {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("can't read standard input as UTF-8 text")?;
        parts.push(text);
    }
    parts.retain(|part| !part.trim().is_empty());
    if parts.is_empty() {
        return Err(usage(
            "there is no prompt: give one as an argument, in a file (-f), or on standard input",
        )
        .into());
    }
    Ok(parts.join("\n\n").trim_end().to_owned())
}

/// Streams the answer; `None` if it was interrupted.
async fn answer(
    args: &RunArgs,
    engine: &dyn Engine,
    interrupts: &mut Interrupts,
    request: Request,
) -> anyhow::Result<Option<Finish>> {
    let limit = request.max_tokens;
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let id = engine.submit(request, Box::new(sender))?;
    let mut out = Out::new(args.json);
    let mut interrupted = false;
    loop {
        let event = tokio::select! {
            biased;
            () = interrupts.next(), if !interrupted => {
                interrupted = true;
                engine.cancel(id);
                continue;
            }
            event = events.recv() => event,
        };
        let Some((_, event)) = event else {
            return Err(anyhow!("the engine ended without finishing the answer"));
        };
        out.event(&event).inspect_err(|_| engine.cancel(id))?;
        if let Event::Finish(finish) = event {
            if finish.reason == FinishReason::Length && !args.json {
                let told = finish.message.clone();
                let told = told.unwrap_or_else(|| format!("it has {limit} tokens; --max-tokens allows more"));
                say!("note: the answer was cut off: {told}");
            }
            return Ok((!interrupted).then_some(finish));
        }
    }
}

/// Writes the answer to standard output; thinking and progress to standard error, progress only where that is a terminal.
struct Out {
    json: bool,
    sanitize: bool,
    progress: bool,
    line: StatusLine,
    ends_with_newline: bool,
    /// Whether a thought is being written, and stands on a line that has not ended.
    thinking: bool,
    /// White space before the answer's first word, which belongs to what came before.
    blank: bool,
    /// A call of a tool that has not ended, as the model writes it, and without its markers.
    call: (String, String),
}

impl Out {
    fn new(json: bool) -> Self {
        Self {
            json,
            sanitize: std::io::stdout().is_terminal(),
            progress: !json && std::io::stderr().is_terminal(),
            line: StatusLine::new(),
            ends_with_newline: true,
            thinking: false,
            blank: false,
            call: (String::new(), String::new()),
        }
    }

    fn event(&mut self, event: &Event) -> std::io::Result<()> {
        if self.json {
            return event_json(&Value::Null, event, true).map_or(Ok(()), |line| print_line(&line));
        }
        match event {
            Event::Note(note) => {
                say!("note: {}", for_terminal(note));
                Ok(())
            }
            Event::Admitted { .. } => Ok(()),
            Event::Prefill { done, total } => {
                if done < total {
                    self.line
                        .show(&format!("reading the prompt: {done} of {total} tokens"));
                }
                Ok(())
            }
            Event::Token { text, .. } => self.spanned(text),
            Event::Finish(finish) => {
                self.spanned(&finish.text)?;
                self.end_thought();
                self.end_call()?;
                if !self.ends_with_newline {
                    println_flushed()?;
                }
                Ok(())
            }
        }
    }

    fn spanned(&mut self, text: &Spanned) -> std::io::Result<()> {
        self.line.clear();
        for run in text.runs() {
            if run.span != Span::Thinking {
                self.end_thought();
            }
            if run.span != Span::ToolCall {
                self.end_call()?;
            }
            match run.span {
                Span::ToolCall => {
                    self.call.0.push_str(run.text);
                    if !run.marker {
                        self.call.1.push_str(run.text);
                    }
                }
                _ if run.marker => self.blank = true,
                Span::Thinking => self.thought(run.text),
                Span::Answer => self.text(run.text)?,
            }
        }
        Ok(())
    }

    /// Thoughts go to standard error, dim where that is a terminal.
    fn thought(&mut self, text: &str) {
        let text = if self.thinking { text } else { text.trim_start() };
        if text.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.thinking, true) && self.progress {
            say_part!("{DIM}");
        }
        match self.progress {
            true => say_part!("{}", for_terminal(text)),
            false => say_part!("{text}"),
        }
    }

    fn end_thought(&mut self) {
        if std::mem::take(&mut self.thinking) {
            say!("{}", if self.progress { PLAIN } else { "" });
            self.blank = true;
        }
    }

    /// A call of a tool is written as its name and arguments, a call a line; it is not made.
    fn end_call(&mut self) -> std::io::Result<()> {
        let (raw, shown) = std::mem::take(&mut self.call);
        if raw.is_empty() {
            return Ok(());
        }
        let text = match tool_calls(&raw) {
            Some(calls) => calls.iter().map(|call| format!("{call}\n")).collect(),
            None => format!("{}\n", shown.trim()),
        };
        if !self.ends_with_newline {
            self.text("\n")?;
        }
        self.blank = false;
        self.text(&text)?;
        self.blank = true;
        Ok(())
    }

    fn text(&mut self, text: &str) -> std::io::Result<()> {
        let text = if self.blank { text.trim_start() } else { text };
        if text.is_empty() {
            return Ok(());
        }
        self.blank = false;
        self.ends_with_newline = text.ends_with('\n');
        let mut out = Stdout::lock();
        if self.sanitize {
            out.write_all(for_terminal(text).as_bytes())?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        out.flush()
    }
}

/// Begins dim text on a terminal.
const DIM: &str = "\x1b[2m";
/// Ends it.
const PLAIN: &str = "\x1b[0m";

fn println_flushed() -> std::io::Result<()> {
    let mut out = Stdout::lock();
    out.write_all(b"\n")?;
    out.flush()
}

fn print_line(line: &Value) -> std::io::Result<()> {
    let mut out = Stdout::lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn print_stats(engine: &dyn Engine, finish: Option<&Finish>) {
    let Some(finish) = finish else { return };
    let summary: Value = summary(&engine.snapshots().borrow());
    let stats = json!({
        "prompt_tokens": finish.prompt_tokens,
        "generated_tokens": finish.generated_tokens,
        "finish": finish.stop_reason.map_or(finish.reason.as_str(), |by| by.as_str()),
    });
    let rate = |name: &str| {
        summary[name]
            .as_f64()
            .map_or("-".into(), |value| format!("{value:.1}"))
    };
    let first = finish.ttft_ms.map_or("-".into(), |ms| format!("{ms:.0}"));
    say!(
        "{} prompt tokens, {} generated ({}) · first token after {first} ms · prefill {} tok/s · decode {} tok/s",
        stats["prompt_tokens"],
        stats["generated_tokens"],
        stats["finish"].as_str().unwrap_or("-"),
        rate("prefill_tokens_per_s"),
        rate("decode_tokens_per_s"),
    );
}
