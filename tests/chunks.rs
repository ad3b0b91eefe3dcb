//! How prompts are cut.

use mlx_chat::engine::chunks::{Burst, ChunkPlan};
use proptest::prelude::*;

/// All chunks from `cached` on.
fn cuts(plan: ChunkPlan, cached: usize) -> Vec<std::ops::Range<usize>> {
    let mut cuts = Vec::new();
    let mut done = cached;
    while let Some(chunk) = plan.next(done) {
        assert!(cuts.len() < 10_000, "the plan does not advance");
        done = chunk.end;
        cuts.push(chunk);
    }
    cuts
}

#[test]
fn cuts_of_small_prompts() {
    // (prompt, cached, chunk, boundary) → cuts
    type Case = (
        usize,
        usize,
        usize,
        Option<usize>,
        &'static [std::ops::Range<usize>],
    );
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
    let table: &[Case] = &[
        (0, 0, 4, None, &[]),
        (1, 0, 4, None, &[]),
        (2, 0, 4, None, &[0..1]),
        (5, 0, 4, None, &[0..4]),
        (6, 0, 4, None, &[0..4, 4..5]),
        (9, 0, 4, None, &[0..4, 4..8]),
        (9, 8, 4, None, &[]),
        (9, 7, 4, None, &[7..8]),
        (9, 3, 4, None, &[3..4, 4..8]),
        (9, 9, 4, None, &[]),
        (9, 0, 4, Some(5), &[0..4, 4..5, 5..8]),
        (12, 0, 4, Some(5), &[0..4, 4..5, 5..8, 8..11]),
        (9, 0, 4, Some(4), &[0..4, 4..8]),
        (9, 0, 4, Some(8), &[0..4, 4..8]),
        (9, 5, 4, Some(5), &[5..8]),
        (9, 6, 4, Some(5), &[6..8]),
        (9, 0, 4, Some(9), &[0..4, 4..8]),
        (9, 0, 100, Some(3), &[0..3, 3..8]),
        (4, 0, 0, None, &[0..1, 1..2, 2..3]),
    ];
    for (prompt, cached, chunk, boundary, expected) in table {
        let plan = ChunkPlan::new(*prompt, *chunk, *boundary);
        assert_eq!(
            cuts(plan, *cached),
            *expected,
            "{prompt} {cached} {chunk} {boundary:?}"
        );
    }
}

#[test]
fn the_last_token_is_left_for_a_forward_of_its_own() {
    let plan = ChunkPlan::new(9, 4, None);
    assert_eq!(
        (plan.covered(), plan.left(8), plan.left(0), plan.left(9)),
        (8, 1, 9, 0)
    );
}

#[test]
fn a_boundary_that_cannot_be_met_is_never_reported() {
    assert!(!ChunkPlan::new(9, 4, Some(9)).is_boundary(9));
    assert!(!ChunkPlan::new(9, 4, Some(0)).is_boundary(0));
    assert!(ChunkPlan::new(9, 4, Some(8)).is_boundary(8));
    assert!(!ChunkPlan::new(9, 4, None).is_boundary(8));
}

#[test]
fn prompts_that_arrive_together_start_together_up_to_the_batch_tokens() {
    let mut burst = Burst::new(2048, 2048);
    let mut started = 0;
    while burst.may_start(499) {
        burst.spend(499);
        assert!(burst.may_finish());
        burst.spend(1);
        started += 1;
    }
    assert_eq!((started, burst.spent()), (4, 2000));
}

#[test]
fn the_first_joiner_starts_whatever_the_batch_tokens_are() {
    let mut burst = Burst::new(2048, 0);
    assert!(burst.may_start(2048));
    burst.spend(10);
    assert!(burst.may_finish(), "its last token comes with its chunk");
    assert!(!burst.may_start(1), "but nobody else");
}

#[test]
fn a_full_chunk_leaves_its_last_token_to_the_next_iteration() {
    let mut burst = Burst::new(8, 4);
    burst.spend(8);
    assert!(!burst.may_finish());
    let mut burst = Burst::new(8, 9);
    burst.spend(8);
    assert!(burst.may_finish());
}

proptest! {
    #[test]
    fn chunks_are_contiguous_and_cover_all_but_the_cached_and_the_last(
        prompt in 1usize..400, chunk in 1usize..80, cached in 0usize..400, boundary in prop::option::of(0usize..410)
    ) {
        let cached = cached.min(prompt - 1);
        let plan = ChunkPlan::new(prompt, chunk, boundary);
        let mut done = cached;
        for cut in cuts(plan, cached) {
            prop_assert_eq!(cut.start, done);
            prop_assert!(!cut.is_empty() && cut.len() <= chunk);
            done = cut.end;
        }
        prop_assert_eq!(done, prompt - 1);
    }

    #[test]
    fn what_was_restored_or_cut_makes_no_piece_larger_than_a_fresh_rows_at_the_same_place(
        prompt in 1usize..400, chunk in 1usize..80, cached in 0usize..400, boundary in prop::option::of(0usize..410)
    ) {
        let plan = ChunkPlan::new(prompt, chunk, boundary);
        let fresh = cuts(ChunkPlan::new(prompt, chunk, None), 0);
        for cut in cuts(plan, cached.min(prompt - 1)) {
            let within = |piece: &std::ops::Range<usize>| piece.start <= cut.start && cut.end <= piece.end;
            prop_assert!(fresh.iter().any(within), "{cut:?} of {fresh:?}");
        }
    }

    #[test]
    fn a_boundary_ahead_is_hit_exactly(
        prompt in 2usize..400, chunk in 1usize..80, cached in 0usize..400, boundary in 1usize..400
    ) {
        let cached = cached.min(prompt - 1);
        let plan = ChunkPlan::new(prompt, chunk, Some(boundary));
        let hit = cuts(plan, cached).iter().filter(|cut| plan.is_boundary(cut.end)).count();
        prop_assert_eq!(hit, usize::from(cached < boundary && boundary < prompt));
    }

    #[test]
    fn running_rows_never_wait_for_more_than_a_chunk_or_the_batch_tokens(
        chunk in 1usize..50, batch in 0usize..100, pieces in prop::collection::vec(1usize..50, 1..20)
    ) {
        let mut burst = Burst::new(chunk, batch);
        for piece in pieces.into_iter().map(|piece| piece.min(chunk)) {
            if !burst.may_start(piece) {
                break;
            }
            burst.spend(piece);
            if !burst.may_finish() {
                break;
            }
            burst.spend(1);
        }
        prop_assert!(burst.spent() <= chunk.max(batch));
    }
}
