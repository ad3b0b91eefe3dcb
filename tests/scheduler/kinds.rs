//! Layers that can't be cut: what the prompt cache makes of their rows, and what they reserve.

use mlx_chat::cache::Need;
use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{Engine, EngineHandle, EngineOptions, FinishReason, Request};
use mlx_chat::model::LanguageModel;
use mlx_chat::model::hashing::{HashingLayer, HashingModel, HashingOptions};

use super::{alone, engine_over, plain, with_eos};
use crate::support::{Dice, options, request, run};

/// Runs one request; what it says is what it would say alone. Gives how many of its tokens were cached, and what it said.
fn ask(engine: &EngineHandle, hashing: &HashingOptions, request: Request) -> (usize, Vec<u32>) {
    let prompt = super::prompt_of(&request);
    let most = request.max_tokens;
    let heard = run(engine, vec![(0, request)]).remove(0);
    assert_eq!(heard.tokens, alone(hashing, &prompt, most));
    (heard.end().cached_tokens, heard.tokens)
}

fn in_session(request: Request) -> Request {
    Request {
        session: Some("s".into()),
        ..request
    }
}

#[test]
fn the_same_prompt_again_is_served_from_the_snapshot_before_its_last_token() {
    for chunk in [2048, 64] {
        let engine = engine_over(
            EngineOptions {
                prefill_chunk: Some(chunk),
                ..options()
            },
            plain(),
        );
        let prompt = Dice(1).prompt(300, 63);
        for cached in [0, 299, 299] {
            assert_eq!(ask(&engine, &plain(), request(&prompt, 7)).0, cached);
        }
    }
}

#[test]
fn short_prompts_leave_snapshots_in_named_sessions_only() {
    let engine = engine_over(options(), plain());
    let prompt = Dice(2).prompt(50, 63);
    for cached in [0, 0] {
        assert_eq!(ask(&engine, &plain(), request(&prompt, 3)).0, cached);
    }
    for cached in [0, 49] {
        assert_eq!(ask(&engine, &plain(), in_session(request(&prompt, 3))).0, cached);
    }
}

#[test]
fn what_goes_on_from_a_whole_entry_is_served_and_what_parts_from_it_is_not() {
    let engine = engine_over(options(), plain());
    let prompt = Dice(3).prompt(300, 63);
    let (_, answer) = ask(&engine, &plain(), request(&prompt, 12));
    let mut follow_up = prompt.clone();
    follow_up.extend(&answer);
    follow_up.extend([1, 2, 3]);
    // The answer's last token was never fed.
    assert_eq!(ask(&engine, &plain(), request(&follow_up, 4)).0, 311);
    let mut parted = prompt[..280].to_vec();
    parted.extend([5; 40]);
    assert_eq!(ask(&engine, &plain(), request(&parted, 4)).0, 0);
    // Neither has taken the place of what is shorter.
    assert_eq!(ask(&engine, &plain(), request(&prompt, 4)).0, 299);
    let mut other_answer = prompt.clone();
    other_answer.extend([9, 9, 9]);
    assert_eq!(ask(&engine, &plain(), request(&other_answer, 4)).0, 299);
}

#[test]
fn rows_that_were_merged_are_given_back_whole() {
    for pipeline in [true, false] {
        let engine = engine_over(
            EngineOptions {
                pipeline,
                ..options()
            },
            plain(),
        );
        let prompts: Vec<Vec<u32>> = (0..3)
            .map(|seed| Dice(seed + 10).prompt(260 + 30 * seed as usize, 63))
            .collect();
        let asked: Vec<_> = prompts
            .iter()
            .zip([30, 10, 50])
            .map(|(prompt, most)| (0, request(prompt, most)))
            .collect();
        let heard = run(&engine, asked);
        for (prompt, heard) in prompts.iter().zip(heard) {
            assert_eq!(heard.tokens, alone(&plain(), prompt, heard.tokens.len()));
            let mut follow_up = prompt.clone();
            follow_up.extend(&heard.tokens);
            follow_up.push(1);
            let (cached, _) = ask(&engine, &plain(), request(&follow_up, 20));
            // Where others went on, its last token was fed, too.
            let fed = prompt.len() + heard.tokens.len() - 1;
            assert!((fed..=fed + 1).contains(&cached), "{cached} of {fed}");
        }
    }
}

#[test]
fn inside_its_window_a_sliding_layer_is_cut_as_any() {
    let hashing = HashingOptions {
        layers: vec![HashingLayer::Full, HashingLayer::Sliding(400)],
        ..plain()
    };
    let engine = engine_over(options(), hashing.clone());
    let prompt = Dice(4).prompt(300, 63);
    ask(&engine, &hashing, request(&prompt, 12));
    let mut parted = prompt[..280].to_vec();
    parted.extend([5; 40]);
    assert_eq!(ask(&engine, &hashing, request(&parted, 4)).0, 280);
    // Past the window it can't be cut any more: only its snapshot serves.
    let prompt = Dice(5).prompt(300, 63);
    ask(&engine, &hashing, request(&prompt, 300));
    let mut parted = prompt.clone();
    parted.extend([5; 40]);
    assert_eq!(ask(&engine, &hashing, request(&parted, 4)).0, 299);
    assert_eq!(
        ask(&engine, &hashing, request(&prompt[..290], 200)).0,
        289,
        "the last one could be cut"
    );
}

#[test]
fn conversations_that_go_on_are_edited_and_cancelled_say_what_they_say_alone() {
    for seed in 0..3 {
        let mut dice = Dice(seed + 20);
        let engine = engine_over(
            EngineOptions {
                pipeline: seed != 1,
                prefill_chunk: [None, Some(33), Some(256)][seed as usize],
                max_batch: 4,
                // Some entries are evicted.
                prompt_cache: PromptCacheLimit::Bytes(400 << 10),
                ..options()
            },
            with_eos(),
        );
        let mut talks: Vec<Vec<u32>> = (0..5)
            .map(|_| {
                let length = 1 + dice.below(330);
                dice.prompt(length, 63)
            })
            .collect();
        for _ in 0..5 {
            let workload: Vec<(u64, Request)> = talks
                .iter()
                .enumerate()
                .map(|(talk, prompt)| {
                    let request = Request {
                        session: (talk % 2 == 0).then(|| format!("talk {talk}")),
                        cancel_after_tokens: (dice.below(4) == 0).then(|| 1 + dice.below(10)),
                        ..request(prompt, 1 + dice.below(50))
                    };
                    (dice.below(20) as u64, request)
                })
                .collect();
            let heard = run(&engine, workload.clone());
            for (((_, request), heard), talk) in workload.iter().zip(&heard).zip(&mut talks) {
                let expected = alone(&with_eos(), talk, request.max_tokens);
                let most = request.cancel_after_tokens.unwrap_or(usize::MAX);
                assert_eq!(heard.tokens, expected[..expected.len().min(most)], "{request:?}");
                talk.extend(&heard.tokens);
                match dice.below(4) {
                    0 => talk.truncate(1 + dice.below(talk.len())),
                    1 => {}
                    _ => {
                        let length = 1 + dice.below(30);
                        talk.extend(dice.prompt(length, 63));
                    }
                }
            }
        }
        engine.close();
        let snapshot = engine.snapshots().borrow().clone();
        let kv = snapshot.totals.kv_peak;
        assert!(kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget);
        assert!(
            snapshot.prompt_cache.tokens_served > 0,
            "{:?}",
            snapshot.prompt_cache
        );
    }
}

#[test]
fn a_row_reserves_no_more_of_a_sliding_layer_than_its_window_and_a_chunk() {
    let hashing = HashingOptions {
        layers: vec![HashingLayer::Sliding(64), HashingLayer::Sliding(300)],
        ..plain()
    };
    let model = HashingModel::new(hashing.clone());
    let reserved = |prompt, max_tokens| model.plan().reserved_bytes(&[Need { prompt, max_tokens }], 32);
    let needed = reserved(900, 100);
    assert_eq!((reserved(2900, 100), reserved(700, 300)), (needed, needed));
    assert!(needed <= 1024 * model.plan().bytes_per_token());
    for (budget, reason) in [
        (needed, FinishReason::Length),
        (needed - 1, FinishReason::Rejected),
    ] {
        let engine = engine_over(
            EngineOptions {
                kv_budget: Some(budget),
                prefill_chunk: Some(32),
                ..options()
            },
            hashing.clone(),
        );
        let prompt = Dice(5).prompt(900, 63);
        let heard = run(
            &engine,
            vec![(0, request(&prompt, 100)), (0, request(&prompt[..700], 300))],
        );
        for (heard, length) in heard.iter().zip([900, 700]) {
            assert_eq!(heard.end().reason, reason, "{:?}", heard.end());
            if reason == FinishReason::Length {
                let most = 1000 - length;
                assert_eq!(heard.tokens, alone(&hashing, &prompt[..length], most));
            }
        }
        engine.close();
        let kv = engine.snapshots().borrow().totals.kv_peak;
        assert!(kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= budget);
    }
}
