//! What a look-up costs among many entries, beside the prompt that it may save: `cargo bench --bench prompt_cache`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mlx_chat::engine::prompt_cache::index::{Class, Index, Namespace, NewEntry};

const ENTRIES: u32 = 1000;
const TOKENS: u32 = 4000;
/// Tokens that all entries begin with, as those of one system prompt do.
const SHARED: u32 = 500;

/// Token `at` of conversation `number`.
fn token(number: u32, at: u32) -> u32 {
    if at < SHARED {
        at
    } else {
        (number * 7919 + at * 31) % 49_000
    }
}

fn conversation(number: u32) -> Vec<u32> {
    (0..TOKENS).map(|at| token(number, at)).collect()
}

fn lookups(criterion: &mut Criterion) {
    let namespace = Namespace::new("bench");
    let mut index = Index::new(u64::MAX);
    for number in 0..ENTRIES {
        let entry = NewEntry {
            tokens: conversation(number),
            bytes: 1,
            class: Class::Turn,
            trimmable: number % 2 == 0,
            payload: (),
        };
        assert!(index.insert(&namespace, entry).id.is_some());
    }
    let mut group = criterion.benchmark_group("look-up among 1,000 entries of 4,000 tokens");
    let mut next_turn = conversation(ENTRIES / 2);
    next_turn.extend(0..128);
    let other = conversation(ENTRIES);
    for (name, prompt) in [
        ("of a next turn", &next_turn),
        ("of another conversation", &other),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| index.lookup(&namespace, black_box(prompt), prompt.len() - 1));
        });
    }
    group.finish();
}

criterion_group!(benches, lookups);
criterion_main!(benches);
