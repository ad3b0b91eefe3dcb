//! The scheduler over the hashing model, whose output changes if any row is mixed up, shifted, cut or doubled.

#[path = "support/engine.rs"]
mod support;

use std::sync::mpsc;

use mlx_chat::engine::command::TaskState;
use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::telemetry::{EngineState, RowState};
use mlx_chat::engine::{
    Consumer, ConsumerError, Engine, EngineOptions, Event, FinishReason, Flow, Request, RequestId,
    StopReason, SubmitError,
};
use mlx_chat::model::hashing::{HashingModel, HashingOptions};
use mlx_chat::sampling::Sampling;
use support::{Dice, Heard, engine_over, options, request, run, wait_for};

fn plain() -> HashingOptions {
    HashingOptions::default()
}

fn with_eos() -> HashingOptions {
    HashingOptions {
        eos_one_in: 23,
        ..HashingOptions::default()
    }
}

/// What a row must say, computed without MLX: EOS ends it and is not delivered.
fn alone(hashing: &HashingOptions, prompt: &[u32], max_tokens: usize) -> Vec<u32> {
    let model = HashingModel::new(hashing.clone());
    let mut tokens = model.continuation(prompt, max_tokens);
    if tokens.last().copied() == model.eos() {
        tokens.pop();
    }
    tokens
}

/// Four prompts that arrive at once, or while others decode.
fn staggered(dice: &mut Dice, count: usize) -> Vec<(u64, Request)> {
    (0..count)
        .map(|_| {
            let length = 1 + dice.below(40);
            let prompt = dice.prompt(length, 63);
            (dice.below(60) as u64, request(&prompt, 1 + dice.below(30)))
        })
        .collect()
}

fn prompt_of(request: &Request) -> Vec<u32> {
    match &request.prompt {
        mlx_chat::engine::Prompt::Tokens(tokens) => tokens.clone(),
        other => panic!("ids expected, found {other:?}"),
    }
}

fn assert_as_alone(hashing: &HashingOptions, workload: &[(u64, Request)], heard: &[Heard]) {
    for ((_, request), heard) in workload.iter().zip(heard) {
        assert_eq!(
            heard.tokens,
            alone(hashing, &prompt_of(request), request.max_tokens),
            "{request:?}"
        );
    }
}

#[test]
fn rows_that_join_and_leave_at_random_say_what_they_say_alone() {
    for seed in 0..6 {
        let mut dice = Dice(seed);
        let workload = staggered(&mut dice, 14);
        for (pipeline, chunk, cache) in [
            (true, 2048, false),
            (false, 2048, true),
            (true, 7, true),
            (false, 1, false),
        ] {
            let engine = engine_over(
                EngineOptions {
                    pipeline,
                    prefill_chunk: chunk,
                    max_batch: 1 + dice.below(6),
                    prompt_cache: if cache {
                        PromptCacheLimit::Default
                    } else {
                        PromptCacheLimit::Off
                    },
                    ..options()
                },
                with_eos(),
            );
            let heard = run(&engine, workload.clone());
            assert_as_alone(&with_eos(), &workload, &heard);
        }
    }
}

#[test]
fn requests_that_arrive_together_decode_in_one_batch() {
    let engine = engine_over(options(), plain());
    let workload: Vec<_> = (0..8).map(|row| (0, request(&[row, 1, 2], 20))).collect();
    let heard = run(&engine, workload.clone());
    assert_as_alone(&plain(), &workload, &heard);
    engine.close();
    let totals = engine.snapshots().borrow().totals;
    // Token 0 comes from preparation; nineteen forwards give the rest of all eight rows.
    assert_eq!(totals.steps, 19);
    assert_eq!(totals.decode_tokens, 8 * 19);
}

#[test]
fn a_row_whose_pending_token_is_its_last_is_not_fed_again() {
    for pipeline in [true, false] {
        let engine = engine_over(
            EngineOptions {
                pipeline,
                ..options()
            },
            plain(),
        );
        let heard = run(&engine, vec![(0, request(&[1, 2, 3], 5))]);
        engine.close();
        assert_eq!(heard[0].tokens.len(), 5);
        assert_eq!(engine.snapshots().borrow().totals.steps, 4, "pipeline {pipeline}");
    }
}

#[test]
fn a_row_that_ends_at_token_0_never_takes_a_step() {
    let engine = engine_over(options(), plain());
    let heard = run(&engine, vec![(0, request(&[5], 1))]);
    engine.close();
    assert_eq!(heard[0].tokens, alone(&plain(), &[5], 1));
    assert_eq!(heard[0].end().reason, FinishReason::Length);
    assert_eq!(engine.snapshots().borrow().totals.steps, 0);
}

#[test]
fn events_come_in_order_and_token_0_before_the_first_step() {
    let engine = engine_over(
        EngineOptions {
            prefill_chunk: 4,
            ..options()
        },
        plain(),
    );
    let heard = run(&engine, vec![(0, request(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 3))]);
    let kinds: Vec<String> = heard[0]
        .events
        .iter()
        .map(|event| match event {
            Event::Admitted {
                prompt_tokens,
                cached_tokens,
            } => format!("admitted {prompt_tokens} {cached_tokens}"),
            Event::Prefill { done, total } => format!("prefill {done}/{total}"),
            Event::Token { index, .. } => format!("token {index}"),
            Event::Finish(finish) => format!("finish {}", finish.reason.as_str()),
        })
        .collect();
    let expected = [
        "admitted 9 0",
        "prefill 4/9",
        "prefill 8/9",
        "token 0",
        "token 1",
        "token 2",
        "finish length",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn an_eos_ends_a_row_and_is_counted_but_not_delivered() {
    let hashing = HashingOptions {
        eos_one_in: 4,
        ..plain()
    };
    let engine = engine_over(options(), hashing.clone());
    let workload: Vec<_> = (0..10).map(|row| (0, request(&[row, 7], 60))).collect();
    let heard = run(&engine, workload.clone());
    assert_as_alone(&hashing, &workload, &heard);
    let stopped = heard
        .iter()
        .filter(|heard| heard.end().stop_reason == Some(StopReason::Eos))
        .count();
    assert!(stopped > 5, "{stopped} of 10 rows met an EOS");
    for heard in heard
        .iter()
        .filter(|heard| heard.end().reason == FinishReason::Stop)
    {
        assert_eq!(heard.end().generated_tokens, heard.tokens.len() + 1);
    }
    let ignoring = Request {
        ignore_eos: true,
        ..request(&[1, 7], 60)
    };
    assert_eq!(run(&engine, vec![(0, ignoring)])[0].tokens.len(), 60);
}

#[test]
fn the_same_seed_gives_the_same_tokens_whatever_else_runs() {
    let sampled = |seed| Request {
        sampling: Sampling {
            temperature: 1.5,
            top_p: 0.95,
            top_k: 40,
            seed: Some(seed),
            ..Sampling::default()
        },
        ..request(&[3, 1, 4], 24)
    };
    let flat = HashingOptions { peak: 1.0, ..plain() };
    let engine = engine_over(options(), flat);
    let lone = run(&engine, vec![(0, sampled(7))]);
    let crowd = run(
        &engine,
        vec![
            (0, sampled(7)),
            (0, request(&[9, 9], 30)),
            (0, sampled(8)),
            (0, sampled(7)),
            (0, request(&[2], 12)),
        ],
    );
    assert_eq!(crowd[0].tokens, lone[0].tokens);
    assert_eq!(crowd[3].tokens, lone[0].tokens);
    assert_ne!(crowd[2].tokens, lone[0].tokens, "another seed draws otherwise");
}

#[test]
fn unseeded_requests_of_the_same_instant_draw_differently() {
    let hot = Request {
        sampling: Sampling {
            temperature: 2.0,
            ..Sampling::default()
        },
        ..request(&[3, 1, 4], 24)
    };
    let engine = engine_over(options(), HashingOptions { peak: 1.0, ..plain() });
    let heard = run(&engine, vec![(0, hot.clone()), (0, hot)]);
    assert_ne!(heard[0].tokens, heard[1].tokens);
}

#[test]
fn a_request_over_the_budget_is_rejected_before_any_work_and_says_what_to_change() {
    let engine = engine_over(
        EngineOptions {
            kv_budget: Some(6000),
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
    for part in ["8192", "100", "400", "max_tokens", "kv-budget"] {
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
    // Each of the first two needs 512 columns of 2 layers × 8 bytes: 8 KiB; the third would fit beside the first.
    let engine = engine_over(
        EngineOptions {
            kv_budget: Some(12 << 10),
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
        fail_prefill: Some(1),
        ..plain()
    };
    let engine = engine_over(options(), hashing);
    let workload: Vec<_> = (0..3).map(|row| (0, request(&[row, 1, 2], 12))).collect();
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
fn a_follow_up_is_served_from_the_cache_and_says_the_same() {
    for pipeline in [true, false] {
        for crowd in [false, true] {
            let session = |prompt: &[u32], max| Request {
                session: Some("s".into()),
                ..request(prompt, max)
            };
            let engine = engine_over(
                EngineOptions {
                    pipeline,
                    ..options()
                },
                with_eos(),
            );
            let first_prompt = [3, 1, 4, 1, 5, 9, 2, 6];
            let mut workload = vec![(0, session(&first_prompt, 12))];
            if crowd {
                workload.push((0, request(&[8, 8, 8], 40)));
                workload.push((2, request(&[7; 30], 30)));
            }
            let first = run(&engine, workload);
            let mut second_prompt = first_prompt.to_vec();
            second_prompt.extend(&first[0].tokens);
            second_prompt.extend([10, 11]);
            let second = run(&engine, vec![(0, session(&second_prompt, 12))]);
            assert_eq!(second[0].tokens, alone(&with_eos(), &second_prompt, 12));
            // All that was fed: the last token was sampled but, where nothing followed it, not fed.
            let cached = second[0].end().cached_tokens;
            assert!(
                cached + 1 >= first_prompt.len() + first[0].tokens.len(),
                "{cached} (pipeline {pipeline}, crowd {crowd})"
            );
            wait_for(&engine, |snapshot| {
                snapshot.prompt_cache.tokens_served == cached as u64
            });
        }
    }
}

#[test]
fn the_cache_serves_at_most_all_but_the_last_token() {
    let engine = engine_over(options(), plain());
    let prompt = [1, 2, 3, 4, 5];
    run(&engine, vec![(0, request(&prompt, 3))]);
    let again = run(&engine, vec![(0, request(&prompt, 3))]);
    assert_eq!(again[0].end().cached_tokens, 4);
    assert_eq!(again[0].tokens, alone(&plain(), &prompt, 3));
}

#[test]
fn a_private_request_reads_and_stores_nothing() {
    let private = |prompt: &[u32]| Request {
        cache: false,
        session: Some("p".into()),
        ..request(prompt, 4)
    };
    let engine = engine_over(options(), plain());
    run(&engine, vec![(0, private(&[1, 2, 3]))]);
    let shared = run(&engine, vec![(0, request(&[1, 2, 3], 4))]);
    assert_eq!(shared[0].end().cached_tokens, 0, "nothing was stored");
    let again = run(&engine, vec![(0, private(&[1, 2, 3]))]);
    assert_eq!(again[0].end().cached_tokens, 0, "nothing is read");
}

#[test]
fn a_short_row_without_a_session_is_not_extracted_from_a_batch() {
    let engine = engine_over(options(), plain());
    run(
        &engine,
        vec![(0, request(&[1, 2, 3], 10)), (0, request(&[4, 5, 6], 10))],
    );
    assert_eq!(
        run(&engine, vec![(0, request(&[1, 2, 3, 4], 1))])[0]
            .end()
            .cached_tokens,
        0
    );
}

#[test]
fn a_cache_over_its_limit_forgets_the_least_recently_used() {
    // One row of up to 256 positions takes 4 KiB.
    let limit = PromptCacheLimit::Bytes(8 << 10);
    let engine = engine_over(
        EngineOptions {
            prompt_cache: limit,
            ..options()
        },
        plain(),
    );
    for token in 0..5 {
        run(&engine, vec![(0, request(&[token, 1, 2], 4))]);
    }
    let cached = |token| {
        run(
            &engine,
            vec![(
                0,
                Request {
                    max_tokens: 1,
                    ..request(&[token, 1, 2], 1)
                },
            )],
        )[0]
        .end()
        .cached_tokens
    };
    assert_eq!(cached(0), 0);
    let stats = wait_for(&engine, |snapshot| snapshot.prompt_cache.lookups == 6).prompt_cache;
    assert!(stats.bytes <= 8 << 10 && stats.evictions >= 3, "{stats:?}");
    assert_eq!(cached(4), 2);
}

#[test]
fn phases_and_idling_add_up_to_the_wall_time() {
    let engine = engine_over(options(), plain());
    run(
        &engine,
        (0..4).map(|row| (row, request(&[1, 2, 3], 30))).collect(),
    );
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    let snapshot = engine.snapshots().borrow().clone();
    assert_eq!(snapshot.dropped_samples, 0);
    let forwards = samples.iter().filter(|sample| sample.rows > 0).count();
    assert_eq!(forwards as u64, snapshot.totals.steps);
    let build: u64 = samples.iter().map(|sample| sample.build_ns).sum();
    assert_eq!(
        build,
        snapshot.totals.phases.construct + snapshot.totals.phases.dispatch
    );
    assert!(
        samples
            .iter()
            .all(|sample| sample.construct_ns + sample.dispatch_ns == sample.build_ns)
    );
    let tokens: u32 = samples.iter().map(|sample| sample.tokens).sum();
    assert_eq!(u64::from(tokens), snapshot.totals.decode_tokens);
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

#[test]
fn a_hold_waits_for_running_rows_and_the_queue_goes_on_after_it() {
    for cancel_running in [false, true] {
        let engine = engine_over(options(), plain());
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
        let running = engine
            .submit(request(&[1, 2], 4000), Box::new(sender.clone()))
            .expect("taken");
        wait_for(&engine, |snapshot| {
            snapshot.rows.iter().any(|row| row.state == RowState::Decode)
        });
        let (held, was_held) = mpsc::channel();
        engine
            .hold(
                cancel_running,
                Box::new(move |model| {
                    let _gone = held.send(model.info().family.clone());
                    false
                }),
            )
            .expect("runs");
        let after = engine.submit(request(&[3], 5), Box::new(sender)).expect("taken");
        assert_eq!(was_held.recv().expect("the hold ran"), "hashing");
        let mut ends = Vec::new();
        while let Some((id, event)) = events.blocking_recv() {
            if let Event::Finish(finish) = event {
                ends.push((id, finish.reason));
            }
        }
        let first = if cancel_running {
            FinishReason::Cancelled
        } else {
            FinishReason::Length
        };
        assert_eq!(ends, [(running, first), (after, FinishReason::Length)]);
    }
}

#[test]
fn a_model_that_changed_during_a_hold_is_not_served_from_the_old_cache() {
    let engine = engine_over(options(), plain());
    run(&engine, vec![(0, request(&[1, 2, 3], 4))]);
    engine.hold(false, Box::new(|_| true)).expect("runs");
    assert_eq!(
        run(&engine, vec![(0, request(&[1, 2, 3], 4))])[0]
            .end()
            .cached_tokens,
        0
    );
}

#[test]
fn tasks_take_turns_between_steps_and_can_be_cancelled() {
    let engine = engine_over(options(), plain());
    let (done, finished) = mpsc::channel();
    let mut turns = 0;
    let turn = move |_: &dyn mlx_chat::model::LanguageModel| {
        turns += 1;
        if turns < 3 {
            return TaskState::Unfinished;
        }
        let _gone = done.send(turns);
        TaskState::Finished
    };
    engine.start_task(Box::new(turn)).expect("runs");
    assert_eq!(finished.recv().expect("the task ran"), 3);
    let (dropped, gone) = mpsc::channel::<()>();
    let endless = move |_: &dyn mlx_chat::model::LanguageModel| {
        let _alive = &dropped;
        TaskState::Unfinished
    };
    let id = engine.start_task(Box::new(endless)).expect("runs");
    let heard = run(&engine, vec![(0, request(&[4, 5], 10))]);
    assert_eq!(
        heard[0].tokens,
        alone(&plain(), &[4, 5], 10),
        "requests go on beside it"
    );
    engine.cancel_task(id);
    assert!(gone.recv().is_err(), "a cancelled task is dropped");
}

#[test]
fn log_probabilities_come_where_asked_for() {
    let engine = engine_over(options(), plain());
    let asked = Request {
        logprobs: true,
        ..request(&[1, 2], 6)
    };
    let heard = run(&engine, vec![(0, asked), (0, request(&[3, 4], 6))]);
    let logprobs = |heard: &Heard| -> Vec<Option<f32>> {
        let tokens = heard.events.iter().filter_map(|event| match event {
            Event::Token { logprob, .. } => Some(*logprob),
            _ => None,
        });
        tokens.collect()
    };
    assert!(
        logprobs(&heard[0])
            .iter()
            .all(|value| value.is_some_and(|value| value < 0.0 && value > -1.0))
    );
    assert!(logprobs(&heard[1]).iter().all(Option::is_none));
}

#[test]
fn attribution_shows_each_parts_time_and_changes_no_token() {
    for pipeline in [true, false] {
        let engine = engine_over(
            EngineOptions {
                attribution: true,
                pipeline,
                ..options()
            },
            plain(),
        );
        let workload: Vec<_> = (0..3).map(|row| (row, request(&[1, 2, 3], 10))).collect();
        let heard = run(&engine, workload.clone());
        assert_as_alone(&plain(), &workload, &heard);
        engine.close();
        let mut samples = Vec::new();
        engine.drain_samples(&mut samples);
        for sample in samples.iter().filter(|sample| sample.rows > 0) {
            let parts = sample.attribution;
            assert!(
                parts.forward_ns > 0 && parts.head_ns > 0 && parts.sampling_ns > 0,
                "{sample:?}"
            );
            assert!(
                parts.forward_ns + parts.head_ns + parts.sampling_ns <= sample.dispatch_ns,
                "{sample:?}"
            );
        }
        let totals = engine.snapshots().borrow().totals;
        assert!(totals.attribution.forward_ns > 0);
    }
}
