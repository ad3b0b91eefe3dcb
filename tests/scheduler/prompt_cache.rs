//! What later prompts find of earlier ones.

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{EngineOptions, Request};

use super::{ENTRY, POSITION, alone, engine_over, plain, with_eos};
use crate::support::{options, request, run, wait_for};

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
    // Two short rows.
    let limit = PromptCacheLimit::Bytes(2 * ENTRY * POSITION);
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
    assert!(
        stats.bytes <= 2 * ENTRY * POSITION && stats.evictions >= 3,
        "{stats:?}"
    );
    assert_eq!(cached(4), 2);
}
