//! What a frame costs: on a long conversation, with many panes, on the dashboard.
//!
//! Before criterion's means, the slowest frames in a hundred are printed: those that a person notices.
//! `cargo bench --bench frames -- p99` prints them alone.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use mlx_chat::chat::{Draft, Effect, Event, SessionId, Settings, State};
use mlx_chat::engine::telemetry::{EngineState, Snapshot, StepSample};
use mlx_chat::engine::{self, RequestId};
use mlx_chat::ui::canvas::{Canvas, Target};
use mlx_chat::ui::input::Reaction;
use mlx_chat::ui::keymap::Action;
use mlx_chat::ui::styles::{ColorMode, Styles};
use mlx_chat::ui::view::{Screen, View};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Conversations in which every pane answers.
struct Bench {
    state: State,
    view: View,
    buffer: Buffer,
    requests: Vec<RequestId>,
}

impl Bench {
    fn new(panes: u8) -> Self {
        let more: Vec<_> = (2..=panes).map(|n| SessionId::from_bits(u128::from(n))).collect();
        let mut bench = Self {
            state: State::new(Settings::default(), SessionId::from_bits(1), &more),
            view: View::new(Styles::new(ColorMode::Sixteen, false), "log"),
            buffer: Buffer::empty(Rect::new(0, 0, 200, 50)),
            requests: Vec::new(),
        };
        bench.tell(Event::Snapshot(Arc::new(Snapshot {
            state: EngineState::Ready,
            ..Snapshot::loading("")
        })));
        bench.tell(Event::ToggleBroadcast);
        bench.tell(Event::Draft(Draft::at_end("prompt")));
        bench.tell(Event::Submit);
        bench
    }

    fn tell(&mut self, event: Event) {
        for effect in self.state.handle(Timestamp::UNIX_EPOCH, event) {
            if let Effect::Submit { turn, .. } = effect {
                let request = RequestId(self.requests.len() as u64);
                self.requests.push(request);
                self.tell(Event::Submitted { turn, request });
            }
        }
    }

    fn says(&mut self, text: &str) {
        for request in self.requests.clone() {
            self.token(request, text);
        }
    }

    fn token(&mut self, request: RequestId, text: &str) {
        let event = engine::Event::Token {
            index: 0,
            token: 0,
            text: text.into(),
            logprob: None,
        };
        self.tell(Event::Engine { request, event });
    }

    /// Has a prompt answered with a text, to its end.
    fn turn(&mut self, text: &str) {
        self.tell(Event::Draft(Draft::at_end("prompt")));
        self.tell(Event::Submit);
        let request = RequestId(self.requests.len() as u64 - 1);
        let finish = engine::Finish {
            reason: engine::FinishReason::Stop,
            stop_reason: None,
            message: None,
            text: text.into(),
            prompt_tokens: 1,
            cached_tokens: 0,
            generated_tokens: 1000,
            queued_ms: 0.0,
            prefill_ms: 1.0,
            decode_ms: 1.0,
            ttft_ms: Some(1.0),
        };
        let event = engine::Event::Finish(finish);
        self.tell(Event::Engine { request, event });
    }

    fn frame(&mut self) {
        self.buffer.reset();
        black_box(self.view.draw(&mut self.buffer, &self.state));
    }
}

fn frames(criterion: &mut Criterion) {
    // 100 000 tokens of prose in one answer.
    let mut long = Bench::new(1);
    long.says(&"some words of an answer that wraps. ".repeat(12_500));
    criterion.bench_function("a token at the end of 100k tokens", |b| {
        b.iter(|| {
            long.says(" token");
            long.frame();
        });
    });
    // 100 000 tokens of Markdown in a hundred answers, and one that goes on.
    let part = "Some *words* of an **answer** with `code`, and a [link](http://a.b).\n\n- one\n- two\n  - deep\n\n\
        ```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n";
    let mut talk = Bench::new(1);
    talk.turn("");
    for _ in 0..100 {
        talk.turn(&part.repeat(12));
    }
    talk.tell(Event::Draft(Draft::at_end("prompt")));
    talk.tell(Event::Submit);
    talk.requests.drain(..talk.requests.len() - 1);
    talk.says(&part.repeat(12));
    criterion.bench_function("a frame of a conversation of 100k tokens", |b| {
        b.iter(|| talk.frame())
    });
    criterion.bench_function("a token of Markdown after 100k tokens", |b| {
        b.iter(|| {
            talk.says(" token");
            talk.frame();
        });
    });
    criterion.bench_function("a row of scrolling in 100k tokens", |b| {
        let mut up = false;
        b.iter(|| {
            up = !up;
            let action = if up { Action::LineUp } else { Action::LineDown };
            let focused = talk.state.focused();
            talk.view.pane(focused).transcript.scroll(action);
            talk.frame();
        });
    });
    criterion.bench_function("a character of a search in 100k tokens", |b| {
        let focused = talk.state.focused();
        let mut longer = false;
        b.iter(|| {
            longer = !longer;
            let text = if longer { "hello" } else { "hell" };
            talk.view.pane(focused).transcript.find(text);
            talk.frame();
        });
    });
    let mut one_line = Bench::new(9);
    one_line.says(&"words ".repeat(500));
    criterion.bench_function("a token in each of nine panes", |b| {
        b.iter(|| {
            one_line.says(" token");
            one_line.frame();
        });
    });
    let mut dashboard = Bench::new(2);
    dashboard.view.screen = Screen::Dashboard;
    let step = |step| StepSample {
        step,
        build_ns: 2_000_000,
        read_ns: 12_000_000,
        ..StepSample::default()
    };
    criterion.bench_function("the dashboard with a new step", |b| {
        let mut number = 0;
        b.iter(|| {
            number += 1;
            dashboard.view.take_samples(&[step(number)]);
            dashboard.frame();
        });
    });
}

/// A terminal that takes everything.
struct Sink {
    size: (u16, u16),
    bytes: usize,
}

impl Target for Sink {
    fn size(&self) -> io::Result<(u16, u16)> {
        Ok(self.size)
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.bytes += black_box(frame).len();
        Ok(())
    }
}

/// Frames that are counted, and those that go before them.
const FRAMES: usize = 2000;
const WARM: usize = 100;
/// Frames in a second.
const RATE: usize = 30;
/// Tokens of all panes in a second.
const TOKENS: usize = 100;

/// Prints the median and the slowest in a hundred of what `step` takes.
fn percentiles(name: &str, mut step: impl FnMut(usize) -> Duration) {
    let mut taken: Vec<Duration> = (0..WARM + FRAMES).map(&mut step).skip(WARM).collect();
    taken.sort();
    let at = |percent: usize| taken[(taken.len() * percent / 100).min(taken.len() - 1)].as_secs_f64() * 1e3;
    println!(
        "{name:<58} p50 {:7.3} ms  p99 {:7.3} ms  max {:7.3} ms",
        at(50),
        at(99),
        at(100)
    );
}

/// A frame as the loop draws it: tokens, layout, difference, bytes.
fn slowest() {
    let words = [
        "the ",
        "river ",
        "winds,\n\n",
        "`code` ",
        "**and** ",
        "- so\n",
        "日本 ",
        "on. ",
    ];
    for (name, panes, size) in [
        (
            "a frame, nine panes streaming 100 tok/s in all, 200x50",
            9,
            (200, 50),
        ),
        (
            "a frame, two panes streaming 100 tok/s in all, 80x24",
            2,
            (80, 24),
        ),
    ] {
        let mut bench = Bench::new(panes);
        let mut canvas = Canvas::new(Sink { size, bytes: 0 }).expect("a sink");
        let mut next = 0;
        percentiles(name, |frame| {
            let began = Instant::now();
            while next * RATE <= frame * TOKENS {
                let request = bench.requests[next % bench.requests.len()];
                bench.token(request, words[next / 7 % words.len()]);
                next += 1;
            }
            let drawn = canvas.draw(|buffer| bench.view.draw(buffer, &bench.state));
            drawn.expect("a sink takes everything");
            began.elapsed()
        });
    }
    let mut nine = Bench::new(9);
    nine.says(&"words of an answer ".repeat(500));
    key_to_frame(
        "a key to its frame, nine panes streaming, 200x50",
        &mut nine,
        true,
    );
    let mut long = Bench::new(1);
    long.says(&"some words of an answer that wraps. ".repeat(12_500));
    key_to_frame(
        "a key to its frame, after 100,000 tokens, 200x50",
        &mut long,
        false,
    );
    let mut canvas = Canvas::new(Sink {
        size: (200, 50),
        bytes: 0,
    })
    .expect("a sink");
    percentiles("a token at the end of 100,000 tokens, 200x50", |_| {
        let began = Instant::now();
        long.says(" token");
        let drawn = canvas.draw(|buffer| long.view.draw(buffer, &long.state));
        drawn.expect("a sink takes everything");
        began.elapsed()
    });
}

/// From a typed character to the bytes that show it.
fn key_to_frame(name: &str, bench: &mut Bench, streams: bool) {
    let mut canvas = Canvas::new(Sink {
        size: (200, 50),
        bytes: 0,
    })
    .expect("a sink");
    percentiles(name, |at| {
        if streams {
            bench.token(bench.requests[at % bench.requests.len()], "word ");
        }
        let began = Instant::now();
        let code = if at % 40 == 39 {
            KeyCode::Backspace
        } else {
            KeyCode::Char('x')
        };
        let key = KeyEvent::new(code, KeyModifiers::NONE);
        let now = Duration::from_millis(200 * at as u64);
        let mut reactions = bench.view.before(&key, &bench.state);
        reactions.extend(bench.view.key(&key, &bench.state, now));
        reactions.extend(bench.view.flush_typed(&bench.state));
        for reaction in reactions {
            if let Reaction::Chat(event) = reaction {
                bench.tell(event);
            }
        }
        let drawn = canvas.draw(|buffer| bench.view.draw(buffer, &bench.state));
        drawn.expect("a sink takes everything");
        began.elapsed()
    });
}

criterion_group!(benches, frames);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    slowest();
    if !words.iter().any(|word| word == "p99") {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
