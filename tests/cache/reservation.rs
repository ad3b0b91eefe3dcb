//! What is reserved for a row against what its buffers come to, piece by piece and token by token.

use mlx_chat::cache::{CachePlan, LayerPlan, Need, RowCache};
use mlx_chat::engine::chunks::ChunkPlan;

use crate::Random;
use crate::mixed::{Mixed, hybrid, plans, sliding, windows};

/// Lengths and cuts on both sides of windows and growth steps.
fn any_need(random: &mut Random) -> (Need, usize) {
    let prompt = match random.below(3) {
        0 => 1 + random.below(20),
        1 => [256, 257, 300, 512, 513, 768, 769][random.below(7)],
        _ => 1 + random.below(1100),
    };
    let max_tokens = match random.below(3) {
        0 => 1,
        1 => 1 + random.below(12),
        _ => 1 + 256usize.saturating_sub(prompt % 256),
    };
    let chunk = [7, 100, 256, 400, 512, 2048][random.below(6)];
    (Need { prompt, max_tokens }, chunk)
}

fn any_layers(random: &mut Random) -> Vec<LayerPlan> {
    let window = [1, 40, 200, 256, 300, 600][random.below(6)];
    match random.below(3) {
        0 => vec![sliding(window), sliding(window)],
        1 => windows(window, 500),
        _ => hybrid(window, 257),
    }
}

/// Feeds a prompt as the engine cuts it, from what the row holds; gives the most that its buffers came to.
fn prefill(mixed: &mut Mixed, row: &mut RowCache, tokens: &mut Vec<u32>, cuts: ChunkPlan) -> u64 {
    let mut most = row.allocated_bytes();
    while let Some(piece) = cuts.next(tokens.len()) {
        mixed.feed(row, tokens, piece.len());
        most = most.max(row.allocated_bytes());
    }
    most
}

/// Feeds the prompt's last token and all that is generated but the last.
fn decode(mixed: &mut Mixed, row: &mut RowCache, tokens: &mut Vec<u32>, max_tokens: usize) -> u64 {
    let steps = (0..max_tokens).map(|_| {
        mixed.feed(row, tokens, 1);
        row.allocated_bytes()
    });
    steps.max().unwrap_or(0)
}

fn each(cases: usize, seed: u64, check: impl Fn(CachePlan, &mut Random)) {
    let mut random = Random(seed);
    for _ in 0..cases {
        for plan in plans(&any_layers(&mut random)) {
            check(plan, &mut random);
        }
    }
}

#[test]
fn a_fresh_row_that_runs_alone_comes_to_hold_just_what_is_reserved() {
    each(25, 21, |plan, random| {
        let (need, chunk) = any_need(random);
        let mut mixed = Mixed::new(plan);
        let (mut row, mut tokens) = (RowCache::new(&mixed.plan), Vec::new());
        let cuts = ChunkPlan::new(need.prompt, chunk, None);
        let prefilled = prefill(&mut mixed, &mut row, &mut tokens, cuts);
        let decoded = decode(&mut mixed, &mut row, &mut tokens, need.max_tokens);
        let reserved = |need| mixed.plan.reserved_bytes(&[need], chunk);
        assert_eq!(
            prefilled.max(decoded),
            reserved(need),
            "{need:?} by {chunk}: {:?}",
            mixed.plan
        );
        assert_eq!(
            decoded,
            reserved(need.after_prefill()),
            "{need:?}: {:?}",
            mixed.plan
        );
        mixed.check();
    });
}

#[test]
fn no_cut_and_no_restored_prefix_takes_more_than_is_reserved() {
    each(25, 22, |plan, random| {
        let (need, chunk) = any_need(random);
        let mut mixed = Mixed::new(plan);
        let (mut row, mut tokens) = (RowCache::new(&mixed.plan), Vec::new());
        // As much as another's prompt had in common, with the cuts of that one.
        let restored = random.below(need.prompt);
        let cuts = ChunkPlan::new(restored + 1, chunk, Some(random.below(restored + 1)));
        let mut most = prefill(&mut mixed, &mut row, &mut tokens, cuts);
        if random.below(2) == 0 {
            row.compact().unwrap();
        }
        let cuts = ChunkPlan::new(need.prompt, chunk, Some(random.below(need.prompt)));
        most = most.max(prefill(&mut mixed, &mut row, &mut tokens, cuts));
        most = most.max(decode(&mut mixed, &mut row, &mut tokens, need.max_tokens));
        let reserved = mixed.plan.reserved_bytes(&[need], chunk);
        assert!(most <= reserved, "{need:?} by {chunk}: {most} of {reserved}");
        mixed.check();
    });
}

#[test]
fn beside_another_a_row_may_be_fed_its_last_token_too() {
    let need = |prompt| Need {
        prompt,
        max_tokens: 56,
    };
    for plan in plans(&[sliding(1000)]) {
        let (alone, beside) = (
            plan.reserved_bytes(&[need(201)], 256),
            plan.reserved_bytes(&[need(201), need(201)], 256),
        );
        assert_eq!(alone, plan.row_bytes(256, 1));
        assert_eq!(beside, 2 * plan.row_bytes(257, 1));
    }
}
