//! Rules of admission that need an engine: who shares a batch, which cache a request finds, what a row reserves, and what
//! is left when the loop itself fails.

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::telemetry::{EngineState, RowState};
use mlx_chat::engine::{
    Consumer, Engine, EngineHandle, EngineOptions, Event, FinishReason, Request, RequestId, SubmitError,
};
use mlx_chat::model::hashing::{HashingLayer, HashingOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{assert_as_alone, engine_over, plain};
use crate::support::{Dice, options, request, run, wait_for};

/// The order in which requests, by their place in the list, are admitted and end.
fn order(engine: &EngineHandle, workload: Vec<Request>) -> Vec<(&'static str, usize)> {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let with_consumers = workload
        .into_iter()
        .map(|request| (0, request, Box::new(sender.clone()) as Box<dyn Consumer>));
    let taken = engine.schedule(with_consumers.collect()).expect("runs");
    let ids: Vec<RequestId> = taken.into_iter().map(|id| id.expect("valid")).collect();
    drop(sender);
    let mut order = Vec::new();
    while let Some((id, event)) = events.blocking_recv() {
        let what = match event {
            Event::Admitted { .. } => "admitted",
            Event::Finish(_) => "ended",
            _ => continue,
        };
        order.push((
            what,
            ids.iter().position(|known| *known == id).expect("one of them"),
        ));
    }
    order
}

#[test]
fn private_requests_wait_for_the_batch_of_the_others_to_drain_and_nobody_overtakes_them() {
    let engine = engine_over(options(), plain());
    let private = Request {
        cache: false,
        ..request(&[5, 6], 10)
    };
    let workload = vec![
        request(&[1, 2], 10),
        private.clone(),
        private,
        request(&[3, 4], 10),
    ];
    let order = order(&engine, workload);
    let groups: Vec<&[(&str, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
    let expected: [&[(&str, usize)]; 6] = [
        &[("admitted", 0)],
        &[("ended", 0)],
        &[("admitted", 1), ("admitted", 2)],
        &[("ended", 1), ("ended", 2)],
        &[("admitted", 3)],
        &[("ended", 3)],
    ];
    assert_eq!(groups, expected, "{order:?}");
}

fn next_end(events: &mut UnboundedReceiver<(RequestId, Event)>) -> (RequestId, mlx_chat::engine::Finish) {
    loop {
        if let (id, Event::Finish(finish)) = events.blocking_recv().expect("another end") {
            return (id, finish);
        }
    }
}

fn decodes(engine: &EngineHandle) {
    wait_for(engine, |snapshot| {
        snapshot.rows.iter().any(|row| row.state == RowState::Decode)
    });
}

#[test]
fn a_request_finds_the_cache_of_the_model_that_admits_it_not_of_the_one_it_was_submitted_to() {
    let engine = engine_over(options(), plain());
    let asked = || Request {
        session: Some("s".into()),
        ..request(&[1; 300], 4)
    };
    run(&engine, vec![(0, asked())]);
    assert!(run(&engine, vec![(0, asked())])[0].end().cached_tokens > 0);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let running = engine
        .submit(request(&[7], 4000), Box::new(sender.clone()))
        .expect("taken");
    decodes(&engine);
    engine.hold(false, Box::new(|_| true)).expect("runs");
    // Submitted while the old model runs, and admitted after the hold.
    let behind = engine.submit(asked(), Box::new(sender)).expect("taken");
    wait_for(&engine, |snapshot| snapshot.queued == 1);
    engine.cancel(running);
    assert_eq!(next_end(&mut events).0, running);
    let (last, finish) = next_end(&mut events);
    assert_eq!((last, finish.cached_tokens), (behind, 0));
}

#[test]
fn a_failure_of_the_loop_itself_ends_every_request_and_is_told_once() {
    let engine = engine_over(
        EngineOptions {
            max_batch: 1,
            ..options()
        },
        plain(),
    );
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let running = engine
        .submit(request(&[1], 4000), Box::new(sender.clone()))
        .expect("taken");
    decodes(&engine);
    let queued = engine
        .submit(request(&[2], 4), Box::new(sender.clone()))
        .expect("taken");
    engine.hold(true, Box::new(|_| panic!("told to"))).expect("runs");
    let (first, finish) = next_end(&mut events);
    assert_eq!((first, finish.reason), (running, FinishReason::Cancelled));
    let (second, finish) = next_end(&mut events);
    assert_eq!((second, finish.reason), (queued, FinishReason::Error));
    let message = finish.message.expect("a message");
    assert!(
        message.contains("loop") && message.contains("told to"),
        "{message}"
    );
    let failed = wait_for(&engine, |snapshot| {
        matches!(snapshot.state, EngineState::Failed(_))
    });
    assert_eq!(failed.state, EngineState::Failed(message));
    let late = engine.submit(request(&[3], 4), Box::new(sender));
    assert!(matches!(late, Err(SubmitError::Closed(_))), "{late:?}");
    assert!(events.blocking_recv().is_none(), "nothing is told twice");
}

#[test]
fn a_row_that_runs_alone_reserves_no_more_than_a_third_above_what_it_comes_to_hold() {
    let kinds = [
        vec![HashingLayer::Full; 2],
        vec![HashingLayer::Sliding(300); 2],
        vec![
            HashingLayer::Recurrent,
            HashingLayer::Sliding(40),
            HashingLayer::Full,
        ],
    ];
    for layers in kinds {
        for chunk in [Some(600), Some(64), None] {
            let hashing = HashingOptions {
                layers: layers.clone(),
                ..plain()
            };
            for (prompt, max_tokens) in [(1, 3), (1, 256), (257, 2), (255, 2), (900, 20), (513, 256)] {
                let options = EngineOptions {
                    prefill_chunk: chunk,
                    prompt_cache: PromptCacheLimit::Off,
                    ..options()
                };
                let engine = engine_over(options, hashing.clone());
                run(
                    &engine,
                    vec![(0, request(&Dice(6).prompt(prompt, 63), max_tokens))],
                );
                engine.close();
                let kv = engine.snapshots().borrow().totals.kv_peak;
                assert!(
                    kv.allocated > 0 && kv.allocated <= kv.reserved && 3 * kv.reserved <= 4 * kv.allocated,
                    "{layers:?}, chunk {chunk:?}, {prompt} + {max_tokens}: {kv:?}"
                );
            }
        }
    }
}

#[test]
fn a_conversation_near_the_end_of_its_positions_is_still_found() {
    let hashing = HashingOptions {
        max_positions: 512,
        ..plain()
    };
    let engine = engine_over(options(), hashing);
    let mut talk = Dice(7).prompt(470, 63);
    let asked = |talk: &[u32], most| Request {
        session: Some("s".into()),
        ..request(talk, most)
    };
    let first = run(&engine, vec![(0, asked(&talk, 20))]);
    talk.extend(&first[0].tokens);
    let held = talk.len() - 1;
    talk.extend([1, 2, 3]);
    let most = 512 - talk.len();
    let second = run(&engine, vec![(0, asked(&talk, most))]);
    assert_eq!(second[0].end().cached_tokens, held);
    assert_eq!(second[0].tokens.len(), most);
}

#[test]
fn rows_of_equal_length_and_rows_of_equal_tokens_keep_apart() {
    let mut dice = Dice(13);
    let same = dice.prompt(30, 63);
    let mut workload: Vec<(u64, Request)> = (0..4).map(|_| (0, request(&dice.prompt(30, 63), 25))).collect();
    workload.extend((0..4).map(|_| (0, request(&same, 25))));
    let engine = engine_over(options(), plain());
    let heard = run(&engine, workload.clone());
    assert_as_alone(&plain(), &workload, &heard);
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    assert_eq!(samples.iter().map(|sample| sample.rows).max(), Some(8));
}

#[test]
fn two_engines_of_one_process_have_a_thread_and_streams_each() {
    let mut dice = Dice(14);
    let workloads: Vec<Vec<(u64, Request)>> = (0..2)
        .map(|_| (0..4).map(|_| (0, request(&dice.prompt(20, 63), 40))).collect())
        .collect();
    let engines: Vec<EngineHandle> = (0..2).map(|_| engine_over(options(), plain())).collect();
    std::thread::scope(|scope| {
        for (engine, workload) in engines.iter().zip(&workloads) {
            scope.spawn(|| {
                let heard = run(engine, workload.clone());
                assert_as_alone(&plain(), workload, &heard);
            });
        }
    });
}
