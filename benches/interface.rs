//! What the interface costs answers: decode by `bench`, and through the client in a pseudo-terminal, in turns.
//!
//! `cargo bench --bench interface -- MODEL 5` runs five turns of each, for one pane and for four: the client answers a
//! prompt on a screen of 200 × 50, whose bytes a terminal emulator reads in this process; `bench` then has prompts and
//! answers as long. It prints both rates and their ratio by turn, and the medians. Flags of the engine that follow, like
//! `--threads=1`, count for both.

#[path = "../tests/terminal/screen.rs"]
#[allow(dead_code, reason = "made for tests of all kinds")]
mod screen;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use mlx_chat::chat::{Stats, Status, Store};
use screen::Start;

/// The most tokens of an answer.
const TOKENS: usize = 256;
/// A prompt with a long answer.
const PROMPT: &str =
    "Tell me a very long story about a lighthouse, its keeper, and a storm that lasted for a week.";

/// Rows that decoded together.
struct Decoded {
    prompt: usize,
    generated: usize,
    tokens_per_s: f64,
}

/// Answers a prompt in so many panes of the client.
fn client(model: &Path, flags: &[String], panes: usize) -> Decoded {
    let home = tempfile::tempdir().expect("a folder");
    let start = Start::model(model).home(home.path());
    let mut screen = flags
        .iter()
        .fold(start, |start, flag| start.argument(flag))
        .argument(&format!("--panes={panes}"))
        .argument("--temperature=0")
        .argument(&format!("--max-tokens={TOKENS}"))
        .open();
    screen.resize(200, 50);
    screen.wait_for("ready");
    if panes > 1 {
        screen.send("\x1bOR"); // F3: to all panes
        screen.wait_for("to all");
    }
    screen.send(&format!("{PROMPT}\r"));
    screen.wait("all have answered", |text| {
        text.contains(" tokens in ") && text.contains("0 run")
    });
    screen.quit();
    let store = Store::at(&home.path().join("state/mlx-chat"));
    let sessions = store.list().expect("a list").sessions;
    let stats: Vec<Stats> = sessions
        .iter()
        .filter_map(
            |summary| match store.load(summary.session).ok()?.turns.first()?.status {
                Status::Done { stats, .. } => Some(stats),
                _ => None,
            },
        )
        .collect();
    assert_eq!(stats.len(), panes, "an answer in each pane");
    // `bench` counts steps of all rows: those of the row that began last, when no prompt held up a step any more. Its last ones, as many as
    // others began before it (one or two), have fewer rows.
    let last = stats.iter().min_by(|a, b| a.decode_ms.total_cmp(&b.decode_ms));
    let last = last.expect("a pane");
    assert!(
        stats.iter().all(|stats| stats.generated_tokens == TOKENS),
        "answers of one length: {stats:?}"
    );
    // The first token comes with the prompt.
    let tokens = (last.generated_tokens - 1) * stats.len();
    let most = |of: fn(&Stats) -> usize| stats.iter().map(of).max().unwrap_or(1);
    Decoded {
        prompt: most(|stats| stats.prompt_tokens),
        generated: most(|stats| stats.generated_tokens),
        tokens_per_s: tokens as f64 / last.decode_ms * 1e3,
    }
}

/// The rate without the interface, for as many rows of the same lengths.
fn bench(model: &Path, flags: &[String], rows: usize, like: &Decoded) -> f64 {
    let output = Command::new(env!("CARGO_BIN_EXE_mlx-chat"))
        .args(["bench", "--json", "-m"])
        .arg(model)
        .args(["--batch", &rows.to_string()])
        .args(["--prompt", &like.prompt.to_string()])
        .args(["--gen", &like.generated.to_string()])
        .args(flags)
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    line["decode_tok_s"].as_f64().expect("a rate")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let Some(model) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: cargo bench --bench interface -- MODEL [TURNS [FLAG…]]");
        return ExitCode::from(2);
    };
    let turns: usize = arguments.next().and_then(|turns| turns.parse().ok()).unwrap_or(5);
    let flags: Vec<String> = arguments.collect();
    for panes in [1, 4] {
        let (mut withs, mut withouts, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 1..=turns {
            let decoded = client(&model, &flags, panes);
            let without = bench(&model, &flags, panes, &decoded);
            let with = decoded.tokens_per_s;
            println!(
                "panes {panes}, turn {turn}: prompt {}, answer {}: {with:.1} tok/s in the client, {without:.1} by bench, {:.3}",
                decoded.prompt,
                decoded.generated,
                with / without
            );
            withs.push(with);
            withouts.push(without);
            ratios.push(with / without);
        }
        println!(
            "panes {panes}: medians {:.1} and {:.1} tok/s, ratio {:.3}",
            median(withs),
            median(withouts),
            median(ratios)
        );
    }
    ExitCode::SUCCESS
}
