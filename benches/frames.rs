//! What a frame costs: on a long conversation, with many panes, on the dashboard.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use mlx_chat::chat::{Draft, Effect, Event, SessionId, Settings, State};
use mlx_chat::engine::telemetry::{EngineState, Snapshot, StepSample};
use mlx_chat::engine::{self, RequestId};
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
            let event = engine::Event::Token {
                index: 0,
                token: 0,
                text: text.into(),
                logprob: None,
            };
            self.tell(Event::Engine { request, event });
        }
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

criterion_group!(benches, frames);
criterion_main!(benches);
