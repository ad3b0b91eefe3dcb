//! Fixed states to draw, and a stand for the loop to run on.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use mlx_chat::chat::{Draft, Effect, Event, Notice, NoticeKind, PaneId, SessionId, Settings, State, Write};
use mlx_chat::engine::telemetry::{
    EngineInfo, EngineState, KvFigures, MlxMemory, PromptCacheStats, RowSnapshot, RowState, Snapshot,
    StepSample,
};
use mlx_chat::engine::{self, Finish, FinishReason, RequestId, StopReason};
use mlx_chat::text::spans::{Span, Spanned};
use mlx_chat::ui::input::Reaction;
use mlx_chat::ui::models::Wish;
use mlx_chat::ui::styles::{ColorMode, Styles};
use mlx_chat::ui::view::View;
use mlx_chat::ui::worker::{Done, Job};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use super::shelf::Shelf;

pub const MIB: u64 = 1 << 20;

/// The time at which everything happens.
pub fn at() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

pub fn session(number: u8) -> SessionId {
    SessionId::from_bits(u128::from(number))
}

pub fn pane(number: u8) -> PaneId {
    PaneId::new(number).unwrap()
}

/// Conversations that take events, and name submissions as an engine would: 17, 18, …
#[derive(Clone)]
pub struct Chats {
    pub state: State,
    pub submitted: Vec<RequestId>,
    pub cancelled: Vec<RequestId>,
    /// What was to be kept.
    pub writes: Vec<Write>,
}

impl Chats {
    pub fn new(panes: u8) -> Self {
        let more: Vec<_> = (2..=panes).map(session).collect();
        let state = State::new(Settings::default(), session(1), &more);
        Self {
            state,
            submitted: Vec::new(),
            cancelled: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Conversations on an engine that is ready.
    pub fn ready(panes: u8) -> Self {
        let mut chats = Self::new(panes);
        chats.tell(Event::Snapshot(Arc::new(ready())));
        chats
    }

    pub fn tell(&mut self, event: Event) {
        for effect in self.state.handle(at(), event) {
            match effect {
                Effect::Submit { turn, .. } => {
                    let request = RequestId(17 + self.submitted.len() as u64);
                    self.submitted.push(request);
                    self.tell(Event::Submitted { turn, request });
                }
                Effect::Cancel(request) => self.cancelled.push(request),
                Effect::Write(write) => self.writes.push(write),
                _ => {}
            }
        }
    }

    pub fn send(&mut self, number: u8, text: &str) -> RequestId {
        self.tell(Event::Focus(pane(number)));
        self.tell(Event::Draft(Draft::at_end(text)));
        self.tell(Event::Submit);
        *self.submitted.last().unwrap()
    }

    pub fn engine(&mut self, request: RequestId, event: engine::Event) {
        self.tell(Event::Engine { request, event });
    }

    pub fn says(&mut self, request: RequestId, text: &str) {
        self.engine(
            request,
            engine::Event::Token {
                index: 0,
                token: 0,
                text: text.into(),
                logprob: None,
            },
        );
    }

    /// The model thinks, and then answers.
    pub fn thinks(&mut self, request: RequestId, thought: &str, answer: &str) {
        let mut text = Spanned::default();
        text.push(Span::Thinking, true, "<think>");
        text.push(Span::Thinking, false, thought);
        text.push(Span::Thinking, true, "</think>");
        text.push(Span::Answer, false, answer);
        let (index, token, logprob) = (0, 0, None);
        self.engine(
            request,
            engine::Event::Token {
                index,
                token,
                text,
                logprob,
            },
        );
    }

    /// What was told last.
    pub fn told(&self) -> &Notice {
        self.state.notices().last().unwrap()
    }

    pub fn finishes(&mut self, request: RequestId, reason: FinishReason, message: Option<&str>) {
        self.engine(request, engine::Event::Finish(finish(reason, message)));
    }
}

pub fn finish(reason: FinishReason, message: Option<&str>) -> Finish {
    Finish {
        reason,
        stop_reason: (reason == FinishReason::Stop).then_some(StopReason::Eos),
        message: message.map(str::to_owned),
        text: "".into(),
        prompt_tokens: 412,
        cached_tokens: 384,
        generated_tokens: 128,
        queued_ms: 1.0,
        prefill_ms: 210.0,
        decode_ms: 2000.0,
        ttft_ms: Some(211.0),
    }
}

pub fn ready() -> Snapshot {
    Snapshot {
        state: EngineState::Ready,
        info: EngineInfo {
            model: "smollm2-135m".into(),
            description: "llama, 135M".into(),
            device: "CPU".into(),
            mlx: "0.32.2".into(),
            context_length: 8192,
            has_tokenizer: true,
            kv_bytes_per_token: 23040,
            ..EngineInfo::default()
        },
        ..Snapshot::loading("")
    }
}

pub fn row(id: u64, number: u8, state: RowState) -> RowSnapshot {
    RowSnapshot {
        id: RequestId(id),
        session: Some(session(number).to_string()),
        state,
        prompt: 412,
        cached: 384,
        generated: 128,
        tokens_per_s: Some(61.2),
        ttft_ms: Some(210.0),
        queued_ms: 1400.0,
        kv_used: 58 * MIB,
        kv_reserved: 1180 * MIB,
    }
}

/// An engine with three rows that run and one that waits.
pub fn busy() -> Snapshot {
    let quiet = |row: RowSnapshot| RowSnapshot {
        generated: 0,
        tokens_per_s: None,
        ttft_ms: None,
        ..row
    };
    let rows = vec![
        row(17, 1, RowState::Decode),
        RowSnapshot {
            id: RequestId(18),
            prompt: 96,
            cached: 64,
            generated: 41,
            ..row(18, 3, RowState::Decode)
        },
        quiet(RowSnapshot {
            prompt: 2210,
            cached: 256,
            ..row(
                19,
                4,
                RowState::Prefill {
                    done: 1024,
                    total: 2210,
                },
            )
        }),
        quiet(RowSnapshot {
            kv_reserved: 310 * MIB,
            ..row(20, 2, RowState::Queued { for_kv: true })
        }),
    ];
    Snapshot {
        steps: 18442,
        rows,
        queued: 1,
        kv: KvFigures {
            used: 1228 * MIB,
            allocated: 2000 * MIB,
            reserved: 3891 * MIB,
            budget: 4096 * MIB,
        },
        kv_peak_reserved: 3900 * MIB,
        prompt_cache: PromptCacheStats {
            enabled: true,
            lookups: 12,
            full: 4,
            partial: 5,
            miss: 3,
            tokens_asked: 7200,
            tokens_served: 5112,
            entries: 9,
            bytes: 410 * MIB,
            limit: 2048 * MIB,
            evictions: 3,
            ..PromptCacheStats::default()
        },
        mlx: MlxMemory {
            active: 3100 * MIB,
            cache: 12 * MIB,
            peak: 3500 * MIB,
        },
        decode_tokens_per_s: Some(122.4),
        prefill_tokens_per_s: Some(1240.0),
        dropped_samples: 0,
        ..ready()
    }
}

/// Steps with a slow one now and then.
pub fn steps(count: u64) -> Vec<StepSample> {
    let step = |n: u64| StepSample {
        step: n,
        rows: 2,
        tokens: 2,
        build_ns: 2_100_000 + n % 7 * 100_000,
        read_ns: 12_900_000 - n % 5 * 200_000,
        emit_ns: 600_000,
        gap_ns: if n % 40 == 7 { 9_000_000 } else { 600_000 },
        ..StepSample::default()
    };
    (0..count).map(step).collect()
}

const ANSWER: &str = "RoPE rotates each query/key pair by an angle that grows with position. Scaling stretches those \
    angles, so a model trained at 4k can run at 32k:\n\n```python\ndef inv_freq(d, base=10000.0):\n  \
    e = -arange(0, d, 2) / d\n  return base ** e\n```\n\n日本語も 👩‍👩‍👧 ok";

/// Two panes at work (and two more if asked for): one answers, one waits, one is done, one prepares.
pub fn working(panes: u8) -> Chats {
    let mut chats = Chats::ready(panes);
    let first = chats.send(1, "explain rope scaling");
    chats.engine(
        first,
        engine::Event::Admitted {
            prompt_tokens: 412,
            cached_tokens: 384,
        },
    );
    chats.says(first, ANSWER);
    if panes >= 3 {
        let third = chats.send(3, "haiku about caches");
        chats.says(
            third,
            "Keys wait in silence,\nvalues answer when they're asked,\nnothing is computed twice.",
        );
    }
    if panes >= 4 {
        let fourth = chats.send(4, "review this, please: it is a rather long file with many lines");
        chats.engine(
            fourth,
            engine::Event::Prefill {
                done: 1024,
                total: 2210,
            },
        );
    }
    while chats.submitted.len() < 3 {
        // Names go to rows 17, 18, 19 whatever the number of panes.
        chats.submitted.push(RequestId(0));
    }
    chats.send(2, "same, but in one sentence");
    chats.tell(Event::Focus(pane(1)));
    chats.tell(Event::Draft(Draft::at_end("write a test for inv_freq")));
    chats.tell(Event::Snapshot(Arc::new(busy())));
    chats
}

pub fn color() -> Styles {
    Styles::new(ColorMode::Sixteen, false)
}

pub fn no_color() -> Styles {
    Styles::new(ColorMode::Off, false)
}

pub fn ascii() -> Styles {
    Styles::new(ColorMode::Off, true)
}

pub fn view(styles: Styles) -> View {
    View::new(styles, "/var/log/mlx-chat.log")
}

/// Draws a screen; the cursor's cell is marked by `cursor x,y` below it.
pub fn draw(view: &mut View, state: &State, width: u16, height: u16) -> (Buffer, Option<(u16, u16)>) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let cursor = view.draw(&mut buffer, state);
    (buffer, cursor.map(|position| (position.x, position.y)))
}

pub fn text(view: &mut View, state: &State, width: u16, height: u16) -> String {
    mlx_chat::ui::view::to_text(&draw(view, state, width, height).0)
}

/// The screen with its styles: below each row of text a row of marks, a letter for the color (capital: bold), `-`
/// where dim, `i` where italic, `_` where underlined, `#` where reversed.
pub fn styled(buffer: &Buffer) -> String {
    let lines = mlx_chat::ui::view::to_text(buffer);
    let mut out = String::new();
    for (y, line) in lines.lines().enumerate() {
        let marks: String = (0..buffer.area.width)
            .map(|x| mark(buffer.cell((x, y as u16)).unwrap()))
            .collect();
        out.push_str(line);
        out.push('\n');
        if !marks.trim().is_empty() {
            out.push_str(marks.trim_end());
            out.push('\n');
        }
    }
    out
}

fn mark(cell: &ratatui::buffer::Cell) -> char {
    let bold = cell.modifier.contains(Modifier::BOLD);
    let letter = match cell.fg {
        Color::Reset if bold => 'B',
        Color::Reset => ' ',
        Color::Cyan => 'c',
        Color::Blue => 'l',
        Color::Green => 'g',
        Color::Red => 'r',
        Color::Magenta => 'm',
        _ => '?',
    };
    match () {
        () if cell.modifier.contains(Modifier::REVERSED) => '#',
        () if letter == ' ' && cell.modifier.contains(Modifier::DIM) => '-',
        () if letter == ' ' && cell.modifier.contains(Modifier::ITALIC) => 'i',
        () if letter == ' ' && cell.modifier.contains(Modifier::UNDERLINED) => '_',
        () if bold => letter.to_ascii_uppercase(),
        () => letter,
    }
}

/// Keys into a view over conversations, at a time that goes on.
pub struct Keyboard {
    pub chats: Chats,
    pub view: View,
    pub now: Duration,
    pub suspended: bool,
    /// Whether the draft was asked for elsewhere.
    pub outside: bool,
    /// Whether the settings file was.
    pub config: bool,
    /// What the worker reads.
    pub store: mlx_chat::chat::Store,
    /// The models that it knows.
    pub models: Arc<Shelf>,
    /// What was wished of the engine.
    pub wishes: Vec<Wish>,
    pub folder: tempfile::TempDir,
    /// Conversations that were begun.
    begun: u128,
}

impl Keyboard {
    pub fn new(chats: Chats) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config_file = folder.path().join("config.toml");
        let mut keyboard = Self {
            outside: false,
            config: false,
            store: mlx_chat::chat::Store::at(folder.path()),
            models: Shelf::new(&[]),
            wishes: Vec::new(),
            folder,
            begun: 0,
            chats,
            view: {
                let mut view = view(no_color());
                view.config_file = config_file;
                view
            },
            now: Duration::from_secs(1),
            suspended: false,
        };
        keyboard.screen();
        keyboard
    }

    pub fn screen(&mut self) -> String {
        let typed = self.view.flush_typed(&self.chats.state);
        self.react(typed);
        let wanted = self.view.wants(&self.chats.state);
        self.react(wanted);
        text(&mut self.view, &self.chats.state, 80, 24)
    }

    /// A key, long after the one before.
    pub fn press(&mut self, modifiers: KeyModifiers, code: KeyCode) {
        self.now += Duration::from_millis(200);
        self.burst(modifiers, code);
        self.screen();
    }

    /// A key right after the one before.
    pub fn burst(&mut self, modifiers: KeyModifiers, code: KeyCode) {
        let key = KeyEvent::new(code, modifiers);
        let reactions = self.view.before(&key, &self.chats.state);
        self.react(reactions);
        let reactions = self.view.key(&key, &self.chats.state, self.now);
        self.react(reactions);
    }

    pub fn code(&mut self, code: KeyCode) {
        self.press(KeyModifiers::NONE, code);
    }

    pub fn ctrl(&mut self, c: char) {
        self.press(KeyModifiers::CONTROL, KeyCode::Char(c));
    }

    pub fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.code(KeyCode::Char(c));
        }
    }

    /// A conversation that isn't there yet.
    fn begin(&mut self) -> SessionId {
        self.begun += 1;
        SessionId::from_bits(1000 + self.begun)
    }

    pub fn react(&mut self, reactions: Vec<Reaction>) {
        for reaction in reactions {
            match reaction {
                Reaction::Chat(event) => {
                    self.chats.tell(event);
                    self.serve();
                }
                Reaction::NewConversation => {
                    let session = self.begin();
                    self.chats.tell(Event::NewConversation { session });
                }
                Reaction::NewPane => {
                    let session = self.begin();
                    self.chats.tell(Event::NewPane { session });
                }
                Reaction::NewPrivatePane => {
                    let session = self.begin();
                    self.chats.tell(Event::NewPrivatePane { session });
                }
                Reaction::ForkPane(at) => {
                    let session = self.begin();
                    self.chats.tell(Event::ForkPane { at, session });
                }
                Reaction::Suspend => self.suspended = true,
                Reaction::EditOutside => self.outside = true,
                Reaction::EditConfig => self.config = true,
                Reaction::Repaint | Reaction::Copy { .. } => {}
                Reaction::Tell(text) => {
                    let kind = NoticeKind::Info;
                    self.chats.tell(Event::Notice { kind, text });
                }
                Reaction::Model(wish) => self.wishes.push(wish),
                Reaction::Work(Job::Models(ask)) => {
                    let answer = mlx_chat::ui::models::answer(&*self.models, ask);
                    let reactions = self.view.take_done(Done::Models(answer), &self.chats.state);
                    self.react(reactions);
                }
                Reaction::Work(job) => {
                    let done = mlx_chat::ui::worker::carry_out(job, &self.store);
                    let reactions = self.view.take_done(done, &self.chats.state);
                    self.react(reactions);
                }
            }
        }
    }

    /// Answers what was asked of the store.
    fn serve(&mut self) {
        let asks: Vec<Write> = self
            .chats
            .writes
            .extract_if(.., |write| matches!(write, Write::Ask(_)))
            .collect();
        for ask in asks {
            let mut writer = mlx_chat::chat::writer::Writer::new(self.store.reader());
            if let Some(report) = writer.push(Duration::ZERO, ask) {
                self.chats.tell(Event::Writer(report));
            }
        }
    }

    pub fn draft(&self) -> &str {
        self.chats.state.focused_pane().draft.text()
    }

    pub fn caret(&self) -> usize {
        self.chats.state.focused_pane().draft.cursor()
    }
}
