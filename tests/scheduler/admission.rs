//! Who gets in, who waits and who never can.

use mlx_chat::engine::telemetry::RowState;
use mlx_chat::engine::{
    Consumer, Engine, EngineOptions, Event, FinishReason, Request, RequestId, SubmitError,
};
use mlx_chat::model::hashing::HashingOptions;
use mlx_chat::sampling::Sampling;

use super::{POSITION, assert_as_alone, engine_over, plain};
use crate::support::{options, request, run, wait_for};

#[test]
fn a_request_over_the_budget_is_rejected_before_any_work_and_says_what_to_change() {
    let engine = engine_over(
        EngineOptions {
            kv_budget: Some(375 * POSITION),
            ..options()
        },
        plain(),
    );
    let heard = run(
        &engine,
        vec![(0, request(&[1; 100], 400)), (0, request(&[1; 100], 100))],
    );
    let end = heard[0].end();
    assert_eq!(end.reason, FinishReason::Rejected);
    let message = end.message.as_deref().expect("a message");
    let needed = (512 * POSITION).to_string();
    for part in [needed.as_str(), "100", "400", "max_tokens", "kv-budget"] {
        assert!(message.contains(part), "{part} is missing in: {message}");
    }
    assert_eq!(
        heard[1].end().reason,
        FinishReason::Length,
        "one that fits runs: {:?}",
        heard[1].end()
    );
}

#[test]
fn a_prompt_past_the_models_positions_is_rejected() {
    let engine = engine_over(
        options(),
        HashingOptions {
            max_positions: 32,
            ..plain()
        },
    );
    let heard = run(
        &engine,
        vec![
            (0, request(&[1; 40], 4)),
            (0, request(&[1; 30], 4)),
            (0, request(&[1; 28], 4)),
        ],
    );
    assert_eq!(heard[0].end().reason, FinishReason::Rejected);
    assert_eq!(heard[1].end().reason, FinishReason::Rejected);
    assert_eq!(heard[2].end().reason, FinishReason::Length);
}

#[test]
fn a_token_that_the_vocabulary_lacks_is_rejected_with_its_id() {
    let engine = engine_over(options(), plain());
    let heard = run(&engine, vec![(0, request(&[1, 64], 4))]);
    assert_eq!(heard[0].end().reason, FinishReason::Rejected);
    assert!(
        heard[0]
            .end()
            .message
            .as_deref()
            .unwrap_or_default()
            .contains("64")
    );
}

#[test]
fn a_request_that_does_not_fit_now_waits_and_nothing_overtakes_it() {
    // Each of the first two needs 512 positions; the third would fit beside the first.
    let engine = engine_over(
        EngineOptions {
            kv_budget: Some(768 * POSITION),
            pipeline: true,
            ..options()
        },
        plain(),
    );
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let workload = [request(&[1, 2], 300), request(&[3, 4], 300), request(&[5, 6], 20)];
    let with_consumers: Vec<_> = workload
        .iter()
        .map(|request| (0, request.clone(), Box::new(sender.clone()) as Box<dyn Consumer>))
        .collect();
    let ids: Vec<RequestId> = engine
        .schedule(with_consumers)
        .expect("runs")
        .into_iter()
        .map(|id| id.expect("valid"))
        .collect();
    drop(sender);
    let mut order = Vec::new();
    while let Some((id, event)) = events.blocking_recv() {
        match event {
            Event::Admitted { .. } => order.push(("admitted", id)),
            Event::Finish(finish) => {
                assert_eq!(finish.reason, FinishReason::Length);
                order.push(("finished", id));
            }
            _ => {}
        }
    }
    let admitted: Vec<RequestId> = order
        .iter()
        .filter(|(what, _)| *what == "admitted")
        .map(|(_, id)| *id)
        .collect();
    assert_eq!(admitted, ids, "first in, first out");
    assert_eq!(
        order[1],
        ("finished", ids[0]),
        "the second waited until the first had left: {order:?}"
    );
    engine.close();
    let totals = engine.snapshots().borrow().totals;
    assert!(totals.kv_peak.reserved <= totals.kv_peak.budget);
    assert!(totals.kv_peak.used <= totals.kv_peak.allocated);
    assert!(totals.kv_peak.allocated <= totals.kv_peak.reserved);
}

#[test]
fn no_more_rows_than_max_batch_run_at_once() {
    let engine = engine_over(
        EngineOptions {
            max_batch: 3,
            ..options()
        },
        plain(),
    );
    let workload: Vec<_> = (0..9).map(|row| (0, request(&[row, 1], 10))).collect();
    let heard = run(&engine, workload.clone());
    assert_as_alone(&plain(), &workload, &heard);
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    assert_eq!(samples.iter().map(|sample| sample.rows).max(), Some(3));
}

#[test]
fn one_request_more_than_the_queue_holds_is_refused_at_once() {
    let engine = engine_over(
        EngineOptions {
            max_batch: 1,
            max_queued: 2,
            ..options()
        },
        plain(),
    );
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
    let first = engine
        .submit(request(&[1], 4000), Box::new(sender.clone()))
        .expect("taken");
    wait_for(&engine, |snapshot| {
        snapshot.rows.iter().any(|row| row.state == RowState::Decode)
    });
    let others: Vec<_> = (2..5)
        .map(|token| engine.submit(request(&[token], 1), Box::new(sender.clone())))
        .collect();
    assert!(others[0].is_ok() && others[1].is_ok());
    assert_eq!(others[2], Err(SubmitError::QueueFull { limit: 2 }));
    engine.cancel(first);
    drop(sender);
    let mut ends = 0;
    while let Some((_, event)) = events.blocking_recv() {
        ends += usize::from(matches!(event, Event::Finish(_)));
    }
    assert_eq!(ends, 3);
}

#[test]
fn requests_that_make_no_sense_are_refused_with_the_reason() {
    let engine = engine_over(options(), plain());
    let refuse = |request: Request| {
        let (sender, _events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
        match engine.submit(request, Box::new(sender)) {
            Err(SubmitError::Invalid(message)) => message,
            other => panic!("{other:?}"),
        }
    };
    assert!(refuse(request(&[], 4)).contains("empty"));
    assert!(refuse(request(&[1], 0)).contains("max_tokens"));
    let hot = Sampling {
        temperature: -1.0,
        ..Sampling::default()
    };
    assert!(
        refuse(Request {
            sampling: hot,
            ..request(&[1], 4)
        })
        .contains("temperature")
    );
    assert!(
        refuse(Request {
            stop: vec![String::new()],
            ..request(&[1], 4)
        })
        .contains("stop string")
    );
    let text = Request::new(mlx_chat::engine::Prompt::Text("hello".into()), 4);
    assert!(refuse(text).contains("tokenizer"));
}

#[test]
fn a_limit_that_nobody_set_shrinks_to_what_is_left_and_says_so_where_it_cuts() {
    let engine = engine_over(
        options(),
        HashingOptions {
            max_positions: 32,
            ..plain()
        },
    );
    let unset = |prompt: &[u32]| Request {
        shrinks: true,
        ..request(prompt, 1024)
    };
    let workload = vec![
        (0, unset(&[1; 28])),
        (0, request(&[1; 28], 5)),
        (0, unset(&[1; 32])),
        (
            0,
            Request {
                shrinks: true,
                ..request(&[1; 28], 2)
            },
        ),
    ];
    let heard = run(&engine, workload);
    let ends: Vec<_> = heard
        .iter()
        .map(|heard| (heard.end().reason, heard.tokens.len()))
        .collect();
    let (cut, refused) = (FinishReason::Length, FinishReason::Rejected);
    assert_eq!(ends, [(cut, 4), (refused, 0), (refused, 0), (cut, 2)]);
    let told = heard[0].end().message.as_deref().expect("what was full");
    assert!(told.contains("the model's 32 positions"), "{told}");
    assert_eq!(heard[3].end().message, None, "it was cut where it was to be");
}

#[test]
fn a_limit_that_nobody_set_shrinks_to_the_budget() {
    let engine = engine_over(
        EngineOptions {
            kv_budget: Some(512 * POSITION),
            ..options()
        },
        plain(),
    );
    let unset = Request {
        shrinks: true,
        ..request(&[1; 100], 4000)
    };
    let heard = run(&engine, vec![(0, unset)]);
    let end = heard[0].end();
    assert_eq!(end.reason, FinishReason::Length, "{end:?}");
    assert!(!heard[0].tokens.is_empty() && heard[0].tokens.len() <= 413);
    assert!(
        end.message
            .as_deref()
            .expect("what was full")
            .contains("--kv-budget")
    );
}

#[test]
fn the_longest_row_that_there_is_room_for_is_told_and_one_of_a_token_more_is_refused() {
    for budget in [300, 512, 700] {
        let engine = engine_over(
            EngineOptions {
                kv_budget: Some(budget * POSITION),
                ..options()
            },
            plain(),
        );
        let snapshot = wait_for(&engine, |snapshot| snapshot.longest_row > 0);
        let longest = snapshot.longest_row;
        for (prompt, reason) in [
            (longest - 1, FinishReason::Length),
            (longest, FinishReason::Rejected),
        ] {
            let heard = run(&engine, vec![(0, request(&vec![1; prompt], 1))]);
            assert_eq!(heard[0].end().reason, reason, "{prompt} of {longest}");
        }
    }
}
