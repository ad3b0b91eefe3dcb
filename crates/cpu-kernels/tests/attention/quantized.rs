//! Attention over codes equals its definition to the bit, and attention over the floats that the codes stand for.

use cpu_kernels::attention::{CAPACITY_STEP, CodeLayout, KvCodes};
use cpu_kernels::{Isa, Team};
use proptest::prelude::*;

use crate::support::{Noise, bits, teams};
use crate::{Model, Tokens};

fn codes() -> impl Strategy<Value = KvCodes> {
    let bits = prop::sample::select(vec![4, 8]);
    let groups = prop::sample::select(vec![32, 64, 128]);
    (bits, groups).prop_map(|(bits, group)| KvCodes { bits, group })
}

/// A model whose heads have whole groups.
fn models() -> impl Strategy<Value = (Model, KvCodes)> {
    let window = prop::option::of(1usize..300);
    (
        1usize..4,
        1usize..8,
        1usize..5,
        1usize..5,
        window,
        any::<bool>(),
        codes(),
    )
        .prop_map(|(kv_heads, group, keys, values, window, turned, codes)| {
            let wide = |groups: usize| codes.group * groups.min(256 / codes.group);
            let model = Model {
                kv_heads,
                group: if codes.group > 64 { group.min(3) } else { group },
                key_dim: wide(keys),
                value_dim: wide(values),
                window,
                normed: turned,
                pairs: turned.then_some(wide(keys) / 4),
                scale: 0.7,
            };
            (model, codes)
        })
}

fn layout(model: &Model, codes: KvCodes) -> CodeLayout {
    CodeLayout {
        kv: model.layout(),
        codes,
    }
}

/// A buffer in which nothing is written yet, and everything looks as if it were.
fn stale(layout: &CodeLayout, capacity: usize, noise: &mut Noise) -> Vec<u32> {
    (0..layout.words(capacity)).map(|_| noise.bits()).collect()
}

/// A row's tokens, and the words it was left with by the first pieces of them.
struct Row {
    tokens: Tokens,
    held: usize,
    words: Vec<u32>,
}

fn row(model: &Model, codes: KvCodes, team: &Team, noise: &mut Noise, held: usize, more: usize) -> Row {
    let mut words = stale(&layout(model, codes), 512, noise);
    let tokens = model.tokens(noise, 0, held + more);
    if held > 0 {
        model.run_with(Some(codes), team, &mut [(&tokens, 0, held, &mut words)]);
    }
    Row { tokens, held, words }
}

/// Keys or values of the first positions, `[heads][positions][dim]`.
fn read(layout: &CodeLayout, words: &[u32], positions: std::ops::Range<usize>, values: bool) -> Vec<f32> {
    let dim = if values {
        layout.kv.value_dim
    } else {
        layout.kv.key_dim
    };
    let mut all = Vec::new();
    for head in 0..layout.kv.heads {
        for position in positions.clone() {
            let mut one = vec![0.0; dim];
            if values {
                layout.copy_value(words, head, position, &mut one);
            } else {
                layout.copy_key(words, head, position, &mut one);
            }
            all.extend(one);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_and_codes_are_the_same_on_every_instruction_set_and_number_of_threads(
        (model, codes) in models(),
        rows in prop::collection::vec((prop_oneof![Just(0usize), 1usize..420], prop_oneof![Just(1usize), 1usize..30]), 1..5),
        seed in any::<u32>(),
    ) {
        let mut expected = None;
        for team in teams() {
            let mut noise = Noise(seed);
            let mut rows: Vec<Row> = rows
                .iter()
                .map(|&(held, more)| row(&model, codes, &team, &mut noise, held, more))
                .collect();
            let mut parts: Vec<_> = rows
                .iter_mut()
                .map(|Row { tokens, held, words }| (&*tokens, *held, tokens.count - *held, words))
                .collect();
            let results = model.run_with(Some(codes), &team, &mut parts);
            let mut found: Vec<Vec<u32>> = results.iter().map(|v| bits(v)).collect();
            found.extend(rows.into_iter().map(|row| row.words));
            match &expected {
                None => expected = Some(found),
                Some(expected) => prop_assert!(found == *expected, "{:?}", team),
            }
        }
    }

    #[test]
    fn a_prompt_in_the_same_pieces_beside_anyone_gives_the_bits_of_the_prompt_alone(
        (model, codes) in models(),
        pieces in prop::collection::vec(1usize..120, 1..5),
        seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let layout = layout(&model, codes);
        let count: usize = pieces.iter().sum();
        let prompt = model.tokens(&mut noise, 0, count);
        let mut runs: Vec<Vec<u32>> = Vec::new();
        for (threads, beside) in [(2, false), (1, true), (3, true)] {
            let team = Team::new(threads).unwrap();
            let mut words = vec![0; layout.words(512)];
            let (mut first, mut all) = (0, Vec::new());
            for &piece in &pieces {
                let mut others: Vec<Row> = (0..if beside { 3 } else { 0 })
                    .map(|_| {
                        let (held, more) = (noise.below(200), 1 + noise.below(9));
                        row(&model, codes, &team, &mut noise, held, more)
                    })
                    .collect();
                let mut parts: Vec<_> = others
                    .iter_mut()
                    .map(|Row { tokens, held, words }| (&*tokens, *held, tokens.count - *held, words))
                    .collect();
                let place = noise.below(parts.len() + 1);
                parts.insert(place, (&prompt, first, piece, &mut words));
                all.extend(bits(&model.run_with(Some(codes), &team, &mut parts).swap_remove(place)));
                first += piece;
            }
            all.extend(words);
            runs.push(all);
        }
        prop_assert!(runs[0] == runs[1] && runs[0] == runs[2]);
    }

    /// Written as floats, what the codes stand for gives the same results: there is one order of operations.
    #[test]
    fn results_are_those_over_the_floats_that_the_codes_stand_for(
        (model, codes) in models(),
        held in 1usize..400,
        more in 1usize..20,
        seed in any::<u32>(),
    ) {
        // Keys as they are written.
        let model = Model { normed: false, pairs: None, ..model };
        let team = Team::new(2).unwrap();
        let mut noise = Noise(seed);
        let layout = layout(&model, codes);
        let mut row = row(&model, codes, &team, &mut noise, held, more);
        let mut parts = [(&row.tokens, held, more, &mut row.words)];
        let found = model.run_with(Some(codes), &team, &mut parts).remove(0);
        let count = held + more;
        let [keys, values] = [false, true].map(|values| read(&layout, &row.words, 0..count, values));
        let mut decoded = row.tokens.clone();
        let (dk, dv) = (model.key_dim, model.value_dim);
        for (position, token) in decoded.qkv.chunks_mut(model.width()).enumerate() {
            let queries = model.kv_heads * model.group * dk;
            for head in 0..model.kv_heads {
                let from = head * count + position;
                token[queries + head * dk..][..dk].copy_from_slice(&keys[from * dk..][..dk]);
                let value = queries + model.kv_heads * dk + head * dv;
                token[value..][..dv].copy_from_slice(&values[from * dv..][..dv]);
            }
        }
        let mut floats = vec![0.0; model.layout().floats(512)];
        model.run(&team, &mut [(&decoded, 0, held, &mut floats)]);
        let expected = model.run(&team, &mut [(&decoded, held, more, &mut floats)]).remove(0);
        prop_assert!(bits(&found) == bits(&expected));
    }

    #[test]
    fn a_rows_first_tokens_attend_to_keys_and_values_as_they_are(
        (model, codes) in models(),
        count in 1usize..300,
        seed in any::<u32>(),
    ) {
        let team = Team::new(2).unwrap();
        let mut noise = Noise(seed);
        let prompt = model.tokens(&mut noise, 0, count);
        let mut words = stale(&layout(&model, codes), 512, &mut noise);
        let found = model.run_with(Some(codes), &team, &mut [(&prompt, 0, count, &mut words)]).remove(0);
        let mut floats = vec![0.0; model.layout().floats(512)];
        let expected = model.run(&team, &mut [(&prompt, 0, count, &mut floats)]).remove(0);
        prop_assert!(bits(&found) == bits(&expected));
    }

    #[test]
    fn a_ring_of_codes_gives_the_bits_of_a_buffer_that_never_wraps(
        (model, codes) in models(),
        window in prop_oneof![1usize..257, 200usize..257],
        seed in any::<u32>(),
    ) {
        let model = Model { window: Some(window), group: model.group.min(4), ..model };
        let layout = layout(&model, codes);
        let (count, ring) = (700, 256);
        let mut noise = Noise(seed);
        let prompt = model.tokens(&mut noise, 0, count);
        let (one, two) = (Team::new(2).unwrap(), Team::new(3).unwrap());
        let mut long = vec![0; layout.words(768)];
        let mut wrapped = stale(&layout, ring, &mut noise);
        let mut first = 0;
        while first < count {
            let cut = (1 + noise.below(ring - window + 1)).min(count - first);
            let whole = model.run_with(Some(codes), &one, &mut [(&prompt, first, cut, &mut long)]);
            let found = model.run_with(Some(codes), &two, &mut [(&prompt, first, cut, &mut wrapped)]);
            prop_assert!(bits(&whole[0]) == bits(&found[0]), "from {}", first);
            first += cut;
        }
    }
}

#[test]
fn what_is_read_back_is_within_a_step_of_what_was_written() {
    let (dim, count) = (64, 40);
    let model = Model {
        kv_heads: 2,
        group: 1,
        key_dim: dim,
        value_dim: dim,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    for (bits, group) in [(4, 32), (4, 64), (8, 32), (8, 64)] {
        let codes = KvCodes { bits, group };
        let layout = layout(&model, codes);
        let prompt = model.tokens(&mut Noise(4), 0, count);
        let mut words = vec![0; layout.words(CAPACITY_STEP)];
        model.run_with(
            Some(codes),
            &Team::new(2).unwrap(),
            &mut [(&prompt, 0, count, &mut words)],
        );
        for values in [false, true] {
            let found = read(&layout, &words, 0..count, values);
            let at = 2 * dim * if values { 2 } else { 1 };
            for (index, group) in found.chunks(group).enumerate() {
                let per_head = dim / codes.group;
                let (head, position) = (index / per_head / count, index / per_head % count);
                let start = at + head * dim + index % per_head * codes.group;
                let written = &prompt.qkv[position * model.width() + start..][..codes.group];
                let least = written.iter().copied().fold(f32::INFINITY, f32::min);
                let most = written.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                // The edge is hit, the step is adapted to it: up to half a step more at the other end.
                let step = (most - least) / ((1 << bits) - 1) as f32 * 1.05;
                for (found, written) in group.iter().zip(written) {
                    let error = (found - written).abs();
                    assert!(
                        error <= step,
                        "{bits} bits: {found} for {written}, steps of {step}"
                    );
                }
            }
        }
    }
}

#[test]
fn four_bits_take_less_than_a_third_of_float16() {
    let model = Model {
        kv_heads: 3,
        group: 3,
        key_dim: 64,
        value_dim: 64,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let bytes = |bits, group| layout(&model, KvCodes { bits, group }).words(4096) * 4;
    let float16 = 4096 * 3 * (64 + 64) * 2;
    assert_eq!(bytes(4, 64) * 16, float16 * 5);
    assert_eq!(bytes(4, 32) * 8, float16 * 3);
    assert_eq!(bytes(8, 64) * 16, float16 * 9);
    let layout = layout(&model, KvCodes { bits: 4, group: 64 });
    assert_eq!(layout.capacity(layout.words(512)), 512);
}

#[test]
fn what_is_not_finite_shows_in_its_row_and_in_no_other() {
    let model = Model {
        kv_heads: 1,
        group: 2,
        key_dim: 32,
        value_dim: 64,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let codes = KvCodes { bits: 4, group: 32 };
    for team in teams() {
        let run = |poison: f32| {
            let mut rows = [0, 1].map(|seed| row(&model, codes, &team, &mut Noise(seed), 50, 3));
            let value = 50 * model.width() + 3 * 32 + 40;
            rows[0].tokens.qkv[value] *= poison;
            let mut parts: Vec<_> = rows
                .iter_mut()
                .map(|Row { tokens, held, words }| (&*tokens, *held, 3, words))
                .collect();
            model.run_with(Some(codes), &team, &mut parts)
        };
        let clean = run(1.0);
        for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let found = run(poison);
            assert!(found[0].iter().any(|x| x.is_nan()), "{team:?}, {poison}");
            assert!(bits(&found[1]) == bits(&clean[1]), "{team:?}, {poison}");
        }
    }
}

#[test]
fn codes_that_were_never_written_are_not_seen() {
    let model = Model {
        kv_heads: 2,
        group: 3,
        key_dim: 64,
        value_dim: 64,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let codes = KvCodes { bits: 4, group: 64 };
    for isa in Isa::available() {
        let team = Team::with_isa(2, isa).unwrap();
        for count in [2, 33, 130, 255] {
            let prompt = model.tokens(&mut Noise(count as u32), 0, count);
            let [zeros, nans] = [0, u32::MAX].map(|unwritten| {
                let mut words = vec![unwritten; layout(&model, codes).words(256)];
                let parts = &mut [(&prompt, 0, count - 1, &mut words)];
                let mut results = model.run_with(Some(codes), &team, parts);
                results.extend(model.run_with(
                    Some(codes),
                    &team,
                    &mut [(&prompt, count - 1, 1, &mut words)],
                ));
                bits(&results.concat())
            });
            assert!(zeros == nans, "{isa}, {count}");
        }
    }
}

#[test]
#[should_panic(expected = "48 features in groups of 32")]
fn heads_of_broken_groups_are_refused() {
    let model = Model {
        kv_heads: 1,
        group: 1,
        key_dim: 48,
        value_dim: 32,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let codes = KvCodes { bits: 8, group: 32 };
    let tokens = model.tokens(&mut Noise(1), 0, 1);
    let mut words = vec![0u32; 16384];
    model.run_with(
        Some(codes),
        &Team::new(1).unwrap(),
        &mut [(&tokens, 0, 1, &mut words)],
    );
}
