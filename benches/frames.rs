//! What a frame costs: on a long conversation, with many panes, on the dashboard.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use mlx_chat::chat::{Draft, Effect, Event, SessionId, Settings, State};
use mlx_chat::engine::telemetry::{EngineState, Snapshot, StepSample};
use mlx_chat::engine::{self, RequestId};
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
