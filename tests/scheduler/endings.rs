//! How rows end, and whom that concerns.

use mlx_chat::engine::telemetry::EngineState;
use mlx_chat::engine::{
    Consumer, ConsumerError, Engine, EngineOptions, Event, FinishReason, Flow, Request, RequestId,
    StopReason, SubmitError,
};
use mlx_chat::model::hashing::HashingOptions;
use std::sync::mpsc;

use super::{alone, assert_as_alone, engine_over, plain, prompt_of};
use crate::support::{options, request, run, wait_for};

/// Hears events on a channel, and does what it is told to at a token.
struct Scripted {
    at: usize,
    what: Act,
    out: mpsc::Sender<Event>,
}

#[derive(Clone, Copy)]
enum Act {
    Stop,
    Fail,
    Panic,
}

impl Consumer for Scripted {
    fn deliver(&mut self, _: RequestId, event: Event) -> Result<Flow, ConsumerError> {
        let due = matches!(event, Event::Token { index, .. } if index == self.at);
        let _gone = self.out.send(event);
        match self.what {
            Act::Stop if due => Ok(Flow::Stop),
            Act::Fail if due => Err(ConsumerError("the pipe is closed".into())),
            Act::Panic if due => panic!("scripted panic"),
            _ => Ok(Flow::Continue),
        }
    }
}

#[test]
fn a_consumer_that_stops_fails_or_panics_ends_its_own_row_alone() {
    for what in [Act::Stop, Act::Fail, Act::Panic] {
        for at in [0, 5] {
            let engine = engine_over(options(), plain());
            let (out, scripted) = mpsc::channel();
            let (sender, mut sibling) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
            let workload: Vec<(u64, Request, Box<dyn Consumer>)> = vec![
                (0, request(&[1, 2], 20), Box::new(Scripted { at, what, out })),
                (0, request(&[3, 4], 20), Box::new(sender)),
            ];
            engine.schedule(workload).expect("runs");
            let mut tokens = Vec::new();
            while let Some((_, event)) = sibling.blocking_recv() {
                if let Event::Token { token, .. } = event {
                    tokens.push(token);
                }
            }
            assert_eq!(tokens, alone(&plain(), &[3, 4], 20), "the sibling goes on");
            let heard: Vec<Event> = scripted.iter().collect();
            let Some(Event::Finish(finish)) = heard.last() else {
                panic!("no end: {heard:?}")
            };
            assert_eq!(finish.generated_tokens, at + 1);
            match what {
                Act::Stop => assert_eq!(finish.stop_reason, Some(StopReason::Consumer)),
                Act::Fail | Act::Panic => assert_eq!(finish.reason, FinishReason::Error),
            }
            // What a failed row held is not cached; what a stopped one held is.
            let follow_up = run(&engine, vec![(0, request(&[1, 2, 9], 1))]);
            assert_eq!(
                follow_up[0].end().cached_tokens > 0,
                matches!(what, Act::Stop) && at == 0
            );
        }
    }
}

#[test]
fn a_failed_forward_ends_the_running_batch_and_queued_requests_go_on() {
    let hashing = HashingOptions {
        fail_decode: Some(9),
        ..plain()
    };
    let engine = engine_over(
        EngineOptions {
            max_batch: 2,
            ..options()
        },
        hashing,
    );
    let workload: Vec<_> = (0..4).map(|row| (0, request(&[row, 1], 20))).collect();
    let heard = run(&engine, workload.clone());
    for heard in &heard[..2] {
        assert_eq!(heard.end().reason, FinishReason::Error);
        assert!(
            heard
                .end()
                .message
                .as_deref()
                .unwrap_or_default()
                .contains("failed")
        );
        assert!(!heard.tokens.is_empty(), "what was computed is delivered");
    }
    for ((_, request), heard) in workload.iter().zip(&heard) {
        let expected = alone(&plain(), &prompt_of(request), 20);
        assert!(expected.starts_with(&heard.tokens));
    }
    assert_as_alone(&plain(), &workload[2..], &heard[2..]);
    let again = run(&engine, vec![(0, request(&[0, 1, 5], 1))]);
    assert_eq!(
        again[0].end().cached_tokens,
        0,
        "nothing of the failed batch is cached"
    );
}

#[test]
fn a_failure_during_preparation_rejects_that_joiner_only() {
    let hashing = HashingOptions {
        poison: Some(1),
        ..plain()
    };
    // All three go through one forward, until it fails.
    let engine = engine_over(options(), hashing);
    let workload: Vec<_> = (0..3).map(|row| (0, request(&[row, 3, 2], 12))).collect();
    let heard = run(&engine, workload.clone());
    assert_eq!(heard[1].end().reason, FinishReason::Error);
    for at in [0, 2] {
        assert_as_alone(&plain(), &workload[at..=at], &heard[at..=at]);
    }
}

#[test]
fn a_cancelled_row_leaves_and_its_text_so_far_stays() {
    let engine = engine_over(options(), plain());
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let id = engine
        .submit(request(&[1, 2], 4000), Box::new(sender))
        .expect("taken");
    let mut tokens = Vec::new();
    let mut end = None;
    while let Some((_, event)) = events.blocking_recv() {
        match event {
            Event::Token { token, .. } => {
                tokens.push(token);
                if tokens.len() == 3 {
                    engine.cancel(id);
                }
            }
            Event::Finish(finish) => end = Some(finish),
            _ => {}
        }
    }
    assert_eq!(end.expect("an end").reason, FinishReason::Cancelled);
    assert!(tokens.len() < 4000);
    assert!(alone(&plain(), &[1, 2], 4000).starts_with(&tokens));
    let snapshot = wait_for(&engine, |snapshot| snapshot.kv.reserved == 0);
    assert_eq!(
        (snapshot.kv.used, snapshot.kv.allocated),
        (0, 0),
        "its KV is free"
    );
}

#[test]
fn cancel_after_tokens_cancels_after_exactly_so_many() {
    for pipeline in [true, false] {
        let engine = engine_over(
            EngineOptions {
                pipeline,
                ..options()
            },
            plain(),
        );
        let limited = Request {
            cancel_after_tokens: Some(4),
            ..request(&[1, 2], 50)
        };
        let heard = run(&engine, vec![(0, limited), (0, request(&[5], 9))]);
        assert_eq!(heard[0].end().reason, FinishReason::Cancelled);
        assert_eq!(heard[0].tokens, alone(&plain(), &[1, 2], 4));
        assert_eq!(heard[1].tokens, alone(&plain(), &[5], 9));
    }
}

#[test]
fn a_queued_request_can_be_cancelled() {
    let engine = engine_over(
        EngineOptions {
            max_batch: 1,
            ..options()
        },
        plain(),
    );
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let long = engine
        .submit(request(&[1], 4000), Box::new(sender.clone()))
        .expect("taken");
    let queued = engine
        .submit(request(&[2], 4000), Box::new(sender))
        .expect("taken");
    engine.cancel(queued);
    let mut ended = Vec::new();
    while let Some((id, event)) = events.blocking_recv() {
        if let Event::Finish(finish) = event {
            assert_eq!(finish.reason, FinishReason::Cancelled);
            ended.push(id);
            engine.cancel(long);
        }
    }
    assert_eq!(ended, [queued, long]);
}

#[test]
fn closing_ends_every_request_with_an_error_and_refuses_new_ones() {
    let engine = engine_over(
        EngineOptions {
            max_batch: 1,
            ..options()
        },
        plain(),
    );
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    for token in 0..3 {
        engine
            .submit(request(&[token], 4000), Box::new(sender.clone()))
            .expect("taken");
    }
    engine.close();
    assert_eq!(engine.snapshots().borrow().state, EngineState::Closed);
    let late = engine.submit(request(&[1], 4), Box::new(sender));
    assert!(matches!(late, Err(SubmitError::Closed(_))), "{late:?}");
    let mut ends = Vec::new();
    while let Some((_, event)) = events.blocking_recv() {
        if let Event::Finish(finish) = event {
            ends.push((finish.reason, finish.message));
        }
    }
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().all(|(reason, message)| {
        *reason == FinishReason::Error
            && message
                .as_deref()
                .is_some_and(|message| message.contains("closed"))
    }));
}
