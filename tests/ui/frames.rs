//! The loop on a screen that is read back from the bytes it writes: how often it draws, and what.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event as TerminalEvent, KeyCode, KeyEvent, KeyModifiers};
use mlx_chat::chat::Settings;
use mlx_chat::engine::telemetry::{DiskState, DiskStats, EngineState, RowState, Snapshot, StepSample};
use mlx_chat::engine::{self, Consumer, Engine, FinishReason, Request, RequestId, SubmitError};
use mlx_chat::ui::app::{App, Clock, Outcome, Signal, Wires};
use mlx_chat::ui::canvas::Canvas;
use tokio::sync::{mpsc, watch};

use super::stand::*;
use super::support::*;

#[test]
fn an_idle_screen_is_not_drawn() {
    on_stand(ready(), |stand| async move {
        stand.pass(100).await;
        let before = stand.screen.draws();
        stand.pass(3_600_000).await;
        assert_eq!(stand.screen.draws(), before);
        assert!(stand.screen.contents().contains("smollm2-135m"));
    });
}

#[test]
fn text_that_streams_is_drawn_thirty_times_a_second_at_most() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        let before = stand.screen.draws();
        for _ in 0..1000 {
            stand.engine.says(0, "word ");
            stand.pass(1).await;
        }
        let drawn = stand.screen.draws() - before;
        assert!((25..=30).contains(&drawn), "{drawn} frames in a second");
        stand.pass(100).await;
        let settled = stand.screen.draws();
        stand.pass(10_000).await;
        assert_eq!(stand.screen.draws(), settled, "and then no more");
    });
}

#[test]
fn a_key_is_drawn_at_once_though_text_streams() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.engine.says(0, "word ");
        stand.pass(1).await;
        let before = stand.screen.draws();
        stand.hands.text("x");
        stand.pass(1).await;
        assert!(stand.screen.draws() > before);
        assert!(stand.screen.contents().contains("│x"));
    });
}

#[test]
fn keys_that_come_together_are_one_frame() {
    on_stand(ready(), |stand| async move {
        stand.pass(100).await;
        let before = stand.screen.draws();
        stand.hands.text(&"some typed text ".repeat(20));
        stand.pass(5).await;
        assert_eq!(stand.screen.draws(), before + 1);
    });
}

#[test]
fn both_panes_stream_at_once() {
    on_stand(ready(), |stand| async move {
        stand.hands.code(KeyCode::F(3));
        stand.hands.text("hello");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        for n in 0..3 {
            stand.engine.says(0, &format!("left{n} "));
            stand.engine.says(1, &format!("right{n} "));
        }
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(
            screen.contains("left0 left1 left2") && screen.contains("right0 right1 right2"),
            "{screen}"
        );
    });
}

#[test]
fn an_enter_at_the_end_of_a_burst_sends_after_a_moment() {
    on_stand(ready(), |stand| async move {
        stand.pass(100).await;
        stand.hands.text("all at once");
        stand.hands.code(KeyCode::Enter);
        stand.pass(200).await;
        assert_eq!(stand.engine.running.lock().unwrap().len(), 1);
        assert!(stand.screen.contents().contains("› all at once"));
    });
}

#[test]
fn escape_cancels_the_focused_request_alone() {
    on_stand(ready(), |stand| async move {
        stand.hands.code(KeyCode::F(3));
        stand.hands.text("hello");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.hands.code(KeyCode::Esc);
        stand.pass(10).await;
        assert_eq!(*stand.engine.cancelled.lock().unwrap(), [RequestId(17)]);
        stand.engine.says(1, "goes on");
        stand
            .engine
            .tell(0, engine::Event::Finish(finish(FinishReason::Cancelled, None)));
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(
            screen.contains("stopped") && screen.contains("goes on"),
            "{screen}"
        );
    });
}

#[test]
fn prompts_sent_while_the_model_loads_are_answered_then() {
    let loading = Snapshot::loading("reading the weights");
    on_stand(loading, |stand| async move {
        stand.hands.text("early");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        let state = EngineState::Loading {
            stage: "reading the weights".into(),
            done: 0,
            total: 100 * MIB,
        };
        stand.engine.snapshots.send_replace(Arc::new(Snapshot {
            state,
            ..Snapshot::loading("")
        }));
        stand.pass(1000).await;
        let state = EngineState::Loading {
            stage: "reading the weights".into(),
            done: 50 * MIB,
            total: 100 * MIB,
        };
        stand.engine.snapshots.send_replace(Arc::new(Snapshot {
            state,
            ..Snapshot::loading("")
        }));
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(
            screen.contains("50%") && screen.contains("waits: early"),
            "{screen}"
        );
        assert!(stand.engine.running.lock().unwrap().is_empty());
        stand.engine.snapshots.send_replace(Arc::new(ready()));
        stand.pass(100).await;
        assert_eq!(stand.engine.running.lock().unwrap().len(), 1);
    });
}

#[test]
fn an_engine_that_is_gone_is_told_of() {
    struct Gone(Arc<Puppet>);
    impl Engine for Gone {
        fn submit(&self, _: Request, _: Box<dyn Consumer>) -> Result<RequestId, SubmitError> {
            Err(SubmitError::Closed("gone".into()))
        }
        fn cancel(&self, _: RequestId) {}
        fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
            watch::Sender::new(Arc::new(ready())).subscribe()
        }
        fn drain_samples(&self, out: &mut Vec<StepSample>) {
            self.0.drain_samples(out);
        }
        fn close(&self) {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let state = mlx_chat::chat::State::new(Settings::default(), session(1), &[]);
        let (_signals, signals) = mpsc::unbounded_channel();
        let (_reports, reports) = mpsc::unbounded_channel();
        let wires = Wires {
            signals,
            reports,
            write: Box::new(|_| {}),
        };
        let engine = Arc::new(Gone(Puppet::new(ready())));
        let mut app = App::new(state, view(no_color()), engine, Clock::new(at), wires);
        let screen = SharedVt::new(80, 24);
        let mut canvas = Canvas::new(screen.clone()).unwrap();
        let _ = tokio::time::timeout(
            Duration::from_secs(1),
            app.run(Some(&mut canvas), &mut Hands::default()),
        )
        .await;
        assert!(
            screen.contents().contains("The engine failed"),
            "{}",
            screen.contents()
        );
        assert!(screen.draws() < 5, "and it doesn't spin");
    });
}

#[test]
fn a_signal_ends_the_loop_with_its_number() {
    let outcome = on_stand(ready(), |stand| async move {
        stand.pass(10).await;
        stand.signals.send(Signal::End(15)).unwrap();
        stand.pass(1000).await;
    });
    assert_eq!(outcome, Some(Outcome::Signal(15)));
}

#[test]
fn quitting_takes_two_presses() {
    let ctrl_c = TerminalEvent::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let outcome = on_stand(ready(), |stand| async move {
        stand.hands.give(ctrl_c.clone());
        stand.pass(1100).await;
        assert!(
            !stand.screen.contents().contains("once more"),
            "the hint goes by itself"
        );
        stand.hands.give(ctrl_c.clone());
        stand.pass(100).await;
        assert!(stand.screen.contents().contains("once more"));
        stand.hands.give(ctrl_c);
        stand.pass(100).await;
    });
    assert_eq!(outcome, Some(Outcome::Quit));
}

#[test]
fn notices_go_after_their_time() {
    on_stand(ready(), |stand| async move {
        stand.hands.code(KeyCode::F(8));
        stand.hands.code(KeyCode::F(8));
        stand.pass(100).await;
        assert!(stand.screen.contents().contains("the last pane doesn't close"));
        stand.pass(9_000).await;
        assert!(!stand.screen.contents().contains("the last pane doesn't close"));
        let drawn = stand.screen.draws();
        stand.pass(60_000).await;
        assert_eq!(stand.screen.draws(), drawn, "and nothing is drawn any more");
    });
}

/// Frames as pieces: whether a piece lies between the marks of a synchronized update.
fn outside_of_updates(frame: &[u8]) -> String {
    let text = String::from_utf8_lossy(frame).into_owned();
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("\x1b[?2026h") {
        out.push_str(&rest[..start]);
        rest = rest[start..]
            .split_once("\x1b[?2026l")
            .map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

#[test]
fn frames_are_whole_updates_and_clear_nothing_outside_of_them() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hello");
        stand.pass(100).await;
        for (width, height) in [(120, 40), (40, 10), (20, 5), (80, 24)] {
            stand.screen.resize(width, height);
            stand.hands.give(TerminalEvent::Resize(width, height));
            stand.pass(100).await;
        }
        stand.hands.give(TerminalEvent::Key(KeyEvent::new(
            KeyCode::Char('l'),
            KeyModifiers::CONTROL,
        )));
        stand.pass(100).await;
        for frame in &stand.screen.0.borrow().frames {
            assert_eq!(outside_of_updates(frame), "");
            assert!(!String::from_utf8_lossy(frame).contains("\x1b[3J"));
        }
    });
}

#[test]
fn cells_that_did_not_change_are_not_written() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.engine.says(0, "some words");
        stand.pass(100).await;
        stand.engine.says(0, "!");
        stand.pass(100).await;
        let frame = stand.screen.last_frame();
        assert!(
            frame.len() < 120,
            "{} bytes for one character: {frame:?}",
            frame.len()
        );
        // The same state once more: not one printable byte.
        stand.engine.snapshots.send_replace(Arc::new(ready()));
        stand.pass(100).await;
        let text = stand.screen.last_frame();
        let mut printed = String::new();
        let mut escape = false;
        for c in text.chars() {
            match c {
                '\x1b' => escape = true,
                c if escape => escape = !(c.is_ascii_alphabetic()),
                c => printed.push(c),
            }
        }
        assert_eq!(printed, "");
    });
}

#[test]
fn after_many_resizes_the_screen_is_as_if_drawn_afresh() {
    on_stand(busy(), |stand| async move {
        stand.hands.text("hello 日本 ☺️ there");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.engine.says(
            0,
            "日本語 and 👩‍👩‍👧 more text that wraps around somewhere in the middle of it\n```\ncode\n```\n",
        );
        let mut seed = 7u32;
        for _ in 0..50 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (width, height) = ((seed >> 8) % 150 + 1, (seed >> 20) % 50 + 1);
            stand.screen.resize(width as u16, height as u16);
            stand
                .hands
                .give(TerminalEvent::Resize(width as u16, height as u16));
            stand.pass(100).await;
        }
        stand.screen.resize(100, 30);
        stand.hands.give(TerminalEvent::Resize(100, 30));
        stand.pass(100).await;
        let resized = stand.screen.contents();
        stand.hands.give(TerminalEvent::Key(KeyEvent::new(
            KeyCode::Char('l'),
            KeyModifiers::CONTROL,
        )));
        stand.pass(100).await;
        assert_eq!(resized, stand.screen.contents());
        assert!(resized.contains("日本語 and"), "{resized}");
    });
}

#[test]
fn the_hardware_cursor_is_at_the_caret_in_every_frame() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.hands.text("日本x");
        stand.pass(100).await;
        for _ in 0..10 {
            stand.engine.says(0, "words and ");
            stand.pass(50).await;
            let vt = stand.screen.0.borrow();
            assert_eq!(vt.parser.screen().cursor_position(), (19, 6));
            assert!(!vt.parser.screen().hide_cursor());
        }
    });
}

#[test]
fn a_wide_character_that_a_narrow_one_replaces_leaves_nothing_behind() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("日本語日本語");
        stand.pass(100).await;
        for _ in 0..6 {
            stand.hands.code(KeyCode::Backspace);
        }
        stand.hands.text("abc");
        stand.pass(100).await;
        let line = stand.screen.contents().lines().nth(19).unwrap().to_owned();
        assert_eq!(line.trim_matches('│').trim(), "abc");
    });
}

#[test]
fn rows_of_the_snapshot_reach_the_dashboard() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.hands.code(KeyCode::F(2));
        stand.engine.samples.lock().unwrap().extend(steps(40));
        stand.engine.snapshots.send_replace(Arc::new(Snapshot {
            rows: vec![row(17, 1, RowState::Decode)],
            ..busy()
        }));
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(
            screen.contains("17 1 hi") && screen.contains("decode") && screen.contains("p50 16.1 ms"),
            "{screen}"
        );
    });
}

#[test]
fn the_prompt_cache_on_disk_is_on_the_dashboard_where_there_is_one() {
    on_stand(ready(), |stand| async move {
        stand.hands.code(KeyCode::F(2));
        for (state, shown) in [
            (DiskState::Off, None),
            (DiskState::On, Some("disk 1.5G, 12 entries")),
            (DiskState::Paused, Some("disk can't be written")),
        ] {
            let mut snapshot = busy();
            snapshot.prompt_cache.disk = DiskStats {
                state,
                entries: 12,
                bytes: 3 << 29,
                ..DiskStats::default()
            };
            stand.engine.snapshots.send_replace(Arc::new(snapshot));
            stand.pass(100).await;
            let screen = stand.screen.contents();
            match shown {
                Some(text) => assert!(screen.contains(text), "{text}: {screen}"),
                None => assert!(!screen.contains("disk"), "{screen}"),
            }
        }
    });
}
