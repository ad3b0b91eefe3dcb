//! Whole workloads through the engine: every request says, to the bit, what it says alone.

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{Engine, EngineOptions, Event, FinishReason, Request, RequestId};

use crate::MODELS;
use crate::support::{Dice, Heard, options, request, run};
use crate::workload::{Alone, IDS, Said, engine_of, follow_ups, random};

fn assert_as_alone(alone: &mut Alone, workload: &[(u64, Request)], heard: &[Heard], what: &str) {
    for (number, ((_, request), heard)) in workload.iter().zip(heard).enumerate() {
        let what = format!("{what}, request {number} of {:?}", request.sampling);
        Said::of(heard).assert_as(&alone.says(request), &what);
    }
}

/// How an engine can be set up, thrown by dice.
fn any_options(dice: &mut Dice) -> EngineOptions {
    let cache = [
        PromptCacheLimit::Default,
        PromptCacheLimit::Default,
        PromptCacheLimit::Bytes(2 << 20),
        PromptCacheLimit::Off,
    ];
    let chunk = [5, 7, 64, 512][dice.below(4)];
    EngineOptions {
        max_batch: 1 + dice.below(8),
        prefill_chunk: Some(chunk),
        prefill_batch_tokens: Some([chunk, 300, 2048][dice.below(3)]),
        prompt_cache: cache[dice.below(4)],
        pipeline: dice.below(2) == 0,
        seed_first_token: dice.below(2) == 0,
        attribution: dice.below(8) == 0,
        ..options()
    }
}

#[test]
fn random_workloads_say_to_the_bit_what_each_request_says_alone() {
    let (mut restored, mut rows) = (0, 0);
    for (name, seed) in MODELS.into_iter().zip(1..) {
        let mut dice = Dice(seed);
        let mut alone = Alone::new(name);
        // One model in full, of the others what fits in a test's time.
        let (requests, threads): (_, &[usize]) = match name {
            "llama-4bit" => (14, &[2, 1, 3]),
            _ => (8, &[[2], [3]][dice.below(2)]),
        };
        let workload = random(&mut dice, requests);
        for &threads in threads {
            let options = any_options(&mut dice);
            let what = format!("{name}, {threads} threads, {options:?}");
            let engine = engine_of(name, threads, options);
            let first = run(&engine, workload.clone());
            assert_as_alone(&mut alone, &workload, &first, &what);
            // Again, now from the prompt cache, with the next turns among them.
            let mut again = follow_ups(&mut dice, &workload, &first);
            again.extend(workload.iter().cloned());
            let second = run(&engine, again.clone());
            assert_as_alone(&mut alone, &again, &second, &format!("{what}, again"));
            restored += second
                .iter()
                .filter(|heard| heard.end().cached_tokens > 0)
                .count();
            engine.close();
            let mut samples = Vec::new();
            engine.drain_samples(&mut samples);
            rows = samples
                .iter()
                .map(|sample| sample.rows)
                .max()
                .unwrap_or(0)
                .max(rows);
        }
    }
    assert!(restored > 20, "only {restored} requests were restored");
    assert!(rows > 3, "at most {rows} rows ran together");
}

#[test]
fn eight_rows_that_cross_growth_steps_together_say_what_they_say_alone() {
    for name in MODELS {
        let mut dice = Dice(7);
        let mut alone = Alone::new(name);
        let workload: Vec<(u64, Request)> = (0..8)
            .map(|row| {
                let prompt = dice.prompt([250, 254, 255, 256, 500, 510, 767, 3][row], IDS);
                let request = Request {
                    logprobs: true,
                    ..request(&prompt, 20)
                };
                (row as u64, request)
            })
            .collect();
        for (pipeline, threads) in [(true, 2), (false, 3)] {
            let options = EngineOptions {
                pipeline,
                ..options()
            };
            let heard = run(&engine_of(name, threads, options), workload.clone());
            assert_as_alone(
                &mut alone,
                &workload,
                &heard,
                &format!("{name}, pipeline {pipeline}"),
            );
        }
    }
}

#[test]
fn a_prefix_of_a_cached_prompt_is_restored_by_cutting_and_changes_no_bit() {
    let name = "llama-4bit";
    let mut dice = Dice(11);
    let mut alone = Alone::new(name);
    let engine = engine_of(name, 2, options());
    let long = dice.prompt(700, IDS);
    let asked = |prompt: &[u32]| Request {
        logprobs: true,
        session: Some("s".into()),
        ..request(prompt, 12)
    };
    run(&engine, vec![(0, asked(&long))]);
    for kept in [600, 513, 512, 511, 257, 256, 255, 33, 32, 31, 1] {
        let mut prompt = long[..kept].to_vec();
        prompt.extend([1, 2, 3]);
        let workload = vec![(0, asked(&prompt))];
        let heard = run(&engine, workload.clone());
        assert!(heard[0].end().cached_tokens >= kept, "{kept} were to be restored");
        assert_as_alone(&mut alone, &workload, &heard, &format!("{kept} kept"));
    }
}

#[test]
fn rows_that_are_cancelled_at_any_time_change_nothing_of_the_others_nor_of_what_is_cached() {
    let name = "llama3-rope-4bit";
    let mut dice = Dice(5);
    let mut alone = Alone::new(name);
    for pipeline in [true, false] {
        let options = EngineOptions {
            prefill_chunk: Some(64),
            pipeline,
            ..options()
        };
        let engine = engine_of(name, 2, options);
        let requests: Vec<Request> = (0..8)
            .map(|_| {
                let length = 1 + dice.below(500);
                Request {
                    logprobs: true,
                    session: Some("s".into()),
                    ..request(&dice.prompt(length, IDS), 60)
                }
            })
            .collect();
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel::<(RequestId, Event)>();
        let ids: Vec<RequestId> = requests
            .iter()
            .map(|request| {
                let consumer = Box::new(sender.clone());
                engine.submit(request.clone(), consumer).expect("taken")
            })
            .collect();
        drop(sender);
        let mut heard = vec![Heard::default(); ids.len()];
        while let Some((id, event)) = events.blocking_recv() {
            let number = ids.iter().position(|known| *known == id).expect("one of them");
            // Every other one is cancelled: some at once, some while they prepare, some while they decode.
            let due = match &event {
                Event::Admitted { .. } => number == 1,
                Event::Prefill { .. } => number == 3,
                Event::Token { index, .. } => number == 5 && *index == 4 || number == 7 && *index == 20,
                Event::Note(_) | Event::Finish(_) => false,
            };
            if due {
                engine.cancel(id);
            }
            let heard = &mut heard[number];
            match &event {
                Event::Token { token, .. } => heard.tokens.push(*token),
                Event::Finish(finish) => heard.finish = Some(finish.clone()),
                _ => {}
            }
            heard.events.push(event);
        }
        let workload: Vec<(u64, Request)> = requests.into_iter().map(|request| (0, request)).collect();
        assert_as_alone(&mut alone, &workload, &heard, "beside cancelled ones");
        for number in [0, 2, 4, 6] {
            assert_eq!(heard[number].end().reason, FinishReason::Length);
        }
        // What the cancelled ones left is what a lone run would have.
        let next = follow_ups(&mut dice, &workload, &heard);
        let answers = run(&engine, next.clone());
        assert_as_alone(&mut alone, &next, &answers, "after cancelled ones");
        assert!(answers.iter().any(|heard| heard.end().cached_tokens > 0));
    }
}
