//! Prompts that are processed together, and prompts that ride along in steps.

use mlx_chat::engine::options::MixedPrefill;
use mlx_chat::engine::telemetry::StepSample;
use mlx_chat::engine::{Engine, EngineOptions, FinishReason, Request};
use mlx_chat::model::hashing::HashingOptions;

use super::{alone, assert_as_alone, engine_over, plain};
use crate::support::{Dice, options, request, run};

/// Prompts of these lengths, at these steps.
fn prompts(asked: &[(u64, usize, usize)]) -> Vec<(u64, Request)> {
    let mut dice = Dice(5);
    let ask = |&(step, length, most): &(u64, usize, usize)| (step, request(&dice.prompt(length, 63), most));
    asked.iter().map(ask).collect()
}

/// Runs a workload: everyone says what they say alone. Each step's record.
fn steps_of(options: EngineOptions, workload: &[(u64, Request)]) -> Vec<StepSample> {
    let engine = engine_over(options, plain());
    assert_as_alone(&plain(), workload, &run(&engine, workload.to_vec()));
    engine.close();
    let mut samples = Vec::new();
    engine.drain_samples(&mut samples);
    samples
}

fn mixed(budget: usize) -> EngineOptions {
    EngineOptions {
        mixed_prefill: MixedPrefill::Tokens(budget),
        ..options()
    }
}

#[test]
fn prompts_that_wait_together_advance_together_and_no_further_than_allowed() {
    let workload = prompts(&[(0, 20, 40), (4, 50, 8), (4, 50, 8), (4, 9, 8)]);
    let limited = EngineOptions {
        prefill_chunk: Some(16),
        prefill_batch_tokens: Some(40),
        ..options()
    };
    let samples = steps_of(limited, &workload);
    let between: Vec<u32> = samples
        .iter()
        .map(|sample| sample.prefill_tokens)
        .filter(|&tokens| tokens > 0)
        .collect();
    // The first one alone: 16, then 3 and the last. Of the others, two chunks and the short prompt go together; then two
    // chunks at a time.
    assert_eq!(
        between,
        [16 + 3 + 1, 16 + 16 + 8, 16 + 16 + 1, 16 + 16, 1 + 1 + 1 + 1]
    );
}

#[test]
fn a_forward_of_several_prompts_that_fails_is_done_again_for_each() {
    let once = HashingOptions {
        fail_prefill: Some(1),
        ..plain()
    };
    let workload = prompts(&[(0, 20, 5), (0, 30, 5), (0, 3, 5)]);
    let heard = run(&engine_over(options(), once.clone()), workload.clone());
    assert_as_alone(&plain(), &workload, &heard);
    // By itself, it fails for good.
    let one = EngineOptions {
        max_batch: 1,
        ..options()
    };
    let heard = run(&engine_over(one, once), workload);
    let reasons: Vec<FinishReason> = heard.iter().map(|heard| heard.end().reason).collect();
    assert_eq!(
        reasons,
        [FinishReason::Length, FinishReason::Error, FinishReason::Length]
    );
}

#[test]
fn with_mixed_iterations_no_step_waits_for_a_prompt() {
    for pipeline in [true, false] {
        let workload = prompts(&[(0, 5, 60), (3, 100, 20), (5, 40, 20), (30, 1, 4)]);
        let options = EngineOptions {
            pipeline,
            ..mixed(24)
        };
        let samples = steps_of(options, &workload);
        let first = samples.iter().position(|sample| sample.rows > 0).expect("steps");
        assert!(
            samples[first + 1..]
                .iter()
                .all(|sample| sample.prefill_tokens == 0)
        );
        for sample in &samples {
            assert!(
                sample.mixed_tokens == 0 || sample.mixed_tokens + sample.rows <= 24 + 1,
                "{sample:?}"
            );
        }
        let rode: u32 = samples.iter().map(|sample| sample.mixed_tokens).sum();
        assert_eq!(rode, 100 + 40 + 1);
        // Chunks of 24 less the seven rows that there may be besides, and the last tokens.
        assert!(samples.iter().any(|sample| sample.mixed_tokens == 17));
        let (stepped, forwards) = (samples.iter(), samples.iter().filter(|sample| sample.rows > 0));
        let tokens: u32 = stepped.map(|sample| sample.tokens).sum();
        // All tokens but the first row's first come from steps.
        assert_eq!(tokens, 59 + 20 + 20 + 4);
        assert!(forwards.count() >= 59);
    }
}

#[test]
fn a_budget_smaller_than_the_rows_that_may_run_leaves_a_prompt_a_token_of_each_step() {
    let options = EngineOptions {
        max_batch: 3,
        ..mixed(2)
    };
    let workload = prompts(&[(0, 3, 20), (0, 3, 30), (2, 10, 4)]);
    let samples = steps_of(options, &workload);
    assert!(samples.iter().all(|sample| sample.mixed_tokens <= 1));
    let beside_two = samples
        .iter()
        .filter(|sample| sample.rows == 2 && sample.step < 18);
    let ridden: u32 = beside_two.map(|sample| sample.mixed_tokens).sum();
    assert!(ridden >= 9, "{ridden} tokens of the prompt while both rows ran");
}

#[test]
fn a_mixed_step_that_fails_ends_the_running_rows_and_the_prompts_in_it_start_again() {
    for pipeline in [true, false] {
        let hashing = HashingOptions {
            // Token 0 is one; the second row's prompt has ridden along in a step or two.
            fail_decode: Some(5),
            ..plain()
        };
        let options = EngineOptions {
            pipeline,
            ..mixed(16)
        };
        let workload = prompts(&[(0, 3, 20), (2, 60, 6)]);
        let heard = run(&engine_over(options, hashing), workload.clone());
        assert_eq!(heard[0].end().reason, FinishReason::Error);
        assert!(!heard[0].tokens.is_empty(), "what was computed is delivered");
        assert_as_alone(&plain(), &workload[1..], &heard[1..]);
    }
}

#[test]
fn a_prompt_that_rode_along_is_found_in_the_cache() {
    let engine = engine_over(mixed(16), plain());
    let mut workload = prompts(&[(0, 3, 40), (2, 300, 8)]);
    workload[1].1.session = Some("s".into());
    let heard = run(&engine, workload.clone());
    assert_as_alone(&plain(), &workload, &heard);
    let mut next = super::prompt_of(&workload[1].1);
    next.extend(&heard[1].tokens);
    next.push(1);
    let again = run(&engine, vec![(0, request(&next, 4))]);
    assert_eq!(again[0].tokens, alone(&plain(), &next, 4));
    assert!(again[0].end().cached_tokens >= 299, "{:?}", again[0].end());
}
