//! Rows join, leave and decode together as they would alone.

use mlx_chat::engine::{Engine, EngineOptions, Event, FinishReason, Request, StopReason};
use mlx_chat::model::hashing::HashingOptions;
use mlx_chat::sampling::Sampling;

use super::{alone, assert_as_alone, engine_over, plain, staggered, with_eos};
use crate::support::{Dice, Heard, options, request, run};

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
fn a_seeded_token_0_is_delivered_a_step_later_and_changes_nothing() {
    for seed in 0..4 {
        let mut dice = Dice(seed);
        let workload = staggered(&mut dice, 12);
        let options = EngineOptions {
            seed_first_token: true,
            max_batch: 4,
            ..options()
        };
        let engine = engine_over(options, with_eos());
        assert_as_alone(&with_eos(), &workload, &run(&engine, workload.clone()));
        let again: Vec<_> = workload.iter().map(|(_, request)| (0, request.clone())).collect();
        assert_as_alone(&with_eos(), &again, &run(&engine, again.clone()));
    }
    let engine = engine_over(
        EngineOptions {
            seed_first_token: true,
            ..options()
        },
        plain(),
    );
    run(&engine, vec![(0, request(&[1, 2, 3], 5))]);
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    let delivered: Vec<u32> = samples.iter().map(|sample| sample.tokens).collect();
    assert_eq!(
        delivered,
        [1, 1, 1, 1, 1],
        "the first step already delivers token 0"
    );
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
            prefill_chunk: Some(4),
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
            Event::Note(note) => format!("note {note}"),
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
fn a_chunk_of_one_token_lets_a_step_pass_between_two() {
    let engine = engine_over(
        EngineOptions {
            prefill_chunk: Some(1),
            ..options()
        },
        plain(),
    );
    run(
        &engine,
        vec![(0, request(&[1, 2], 40)), (5, request(&[1, 2, 3, 4, 5, 6], 3))],
    );
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    // The last chunk and the last token go together.
    let most = samples
        .iter()
        .filter(|sample| sample.rows > 0)
        .map(|sample| sample.prefill_tokens)
        .max();
    assert_eq!(most, Some(2));
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
