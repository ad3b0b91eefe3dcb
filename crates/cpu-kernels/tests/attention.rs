//! Attention equals its definition to the bit, whatever the instructions, the threads, the cuts and the rows beside.

#[path = "attention/quantized.rs"]
mod quantized;
mod support;

use cpu_kernels::attention::{
    Attention, CAPACITY_STEP, KvCodes, KvLayout, KvMut, Rope, Scratch, Segment, attend,
};
use cpu_kernels::{Isa, Norm, Team};
use proptest::prelude::*;
use support::{Noise, bits, teams};

/// A model's attention.
#[derive(Debug, Clone)]
struct Model {
    kv_heads: usize,
    group: usize,
    key_dim: usize,
    value_dim: usize,
    window: Option<usize>,
    normed: bool,
    pairs: Option<usize>,
    /// How far scores are apart.
    scale: f32,
}

/// A row's keys and values, as floats or as codes.
trait Buffer {
    fn kv(&mut self) -> KvMut<'_>;
}

impl Buffer for Vec<f32> {
    fn kv(&mut self) -> KvMut<'_> {
        KvMut::Floats(self)
    }
}

impl Buffer for Vec<u32> {
    fn kv(&mut self) -> KvMut<'_> {
        KvMut::Codes(self)
    }
}

/// One row's tokens, with the angles of their positions.
#[derive(Debug, Clone)]
struct Tokens {
    start: usize,
    qkv: Vec<f32>,
    count: usize,
}

impl Model {
    fn layout(&self) -> KvLayout {
        KvLayout {
            heads: self.kv_heads,
            key_dim: self.key_dim,
            value_dim: self.value_dim,
        }
    }

    fn width(&self) -> usize {
        self.kv_heads * (self.group * self.key_dim + self.key_dim + self.value_dim)
    }

    fn outputs(&self) -> usize {
        self.kv_heads * self.group * self.value_dim
    }

    fn tokens(&self, noise: &mut Noise, start: usize, count: usize) -> Tokens {
        Tokens {
            start,
            qkv: noise.floats(count * self.width()),
            count,
        }
    }

    /// Runs segments of `(tokens, first, count)` in one call, and returns each one's results.
    fn run(&self, team: &Team, parts: &mut [(&Tokens, usize, usize, &mut Vec<f32>)]) -> Vec<Vec<f32>> {
        self.run_with(None, team, parts)
    }

    fn run_with<B: Buffer>(
        &self,
        codes: Option<KvCodes>,
        team: &Team,
        parts: &mut [(&Tokens, usize, usize, &mut B)],
    ) -> Vec<Vec<f32>> {
        let weight = Noise(77).floats(self.key_dim);
        let norm = self.normed.then_some(Norm {
            weight: &weight,
            eps: 1e-6,
        });
        let (mut cos, mut sin, mut qkv) = (Vec::new(), Vec::new(), Vec::new());
        let mut lengths = Vec::new();
        let mut segments = Vec::new();
        for (tokens, first, count, kv) in parts {
            let width = self.width();
            qkv.extend_from_slice(&tokens.qkv[*first * width..][..*count * width]);
            let start = tokens.start + *first;
            for position in start..start + *count {
                for pair in 0..self.pairs.unwrap_or(0) {
                    let angle = position as f32 / (pair as f32 * 3.0 + 1.0);
                    cos.push(angle.cos());
                    sin.push(angle.sin());
                }
            }
            lengths.push(*count * self.outputs());
            segments.push(Segment {
                kv: kv.kv(),
                start,
                tokens: *count,
            });
        }
        let attention = Attention {
            heads: self.kv_heads * self.group,
            kv: self.layout(),
            codes,
            scale: self.scale,
            window: self.window,
            query_norm: norm,
            key_norm: norm,
            rope: self.pairs.map(|pairs| Rope {
                pairs,
                cos: &cos,
                sin: &sin,
            }),
        };
        let mut out = vec![f32::NAN; lengths.iter().sum()];
        attend(
            team,
            &mut Scratch::default(),
            &attention,
            &qkv,
            &mut segments,
            &mut out,
        );
        let mut rest = out.as_slice();
        lengths
            .iter()
            .map(|&length| {
                let (part, others) = rest.split_at(length);
                rest = others;
                part.to_vec()
            })
            .collect()
    }
}

fn models() -> impl Strategy<Value = Model> {
    let dims = prop::sample::select(vec![2usize, 6, 18, 32, 40, 64, 80, 96, 128, 256]);
    let groups = prop_oneof![1usize..7, 1usize..17];
    (
        1usize..4,
        groups,
        dims,
        1usize..100,
        any::<bool>(),
        prop::option::of(1usize..300),
        any::<bool>(),
        any::<bool>(),
        0usize..3,
    )
        .prop_map(
            |(kv_heads, group, key_dim, value_dim, same, window, normed, turned, pairs)| Model {
                kv_heads,
                group: if key_dim >= 128 { group.min(6) } else { group },
                key_dim,
                value_dim: if same { key_dim } else { value_dim },
                window,
                normed,
                pairs: turned.then_some(key_dim / 2 - pairs.min(key_dim / 2)),
                scale: [0.1, 1.0, 40.0][pairs],
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn results_are_the_same_on_every_instruction_set_and_number_of_threads(
        model in models(),
        rows in prop::collection::vec((0usize..420, prop_oneof![Just(1usize), 1usize..30]), 1..5),
        seed in any::<u32>(),
    ) {
        let mut expected = None;
        for team in teams() {
            let mut noise = Noise(seed);
            // What is not filled is stale.
            let floats = model.layout().floats(512);
            let mut rows: Vec<(Tokens, Vec<f32>)> = rows
                .iter()
                .map(|&(start, count)| (model.tokens(&mut noise, start, count), noise.floats(floats)))
                .collect();
            let mut parts: Vec<_> = rows.iter_mut().map(|(tokens, kv)| (&*tokens, 0, tokens.count, kv)).collect();
            let results = model.run(&team, &mut parts);
            let found: Vec<_> = results.iter().chain(rows.iter().map(|(_, kv)| kv)).map(|v| bits(v)).collect();
            match &expected {
                None => expected = Some(found),
                Some(expected) => prop_assert!(found == *expected, "{:?}", team),
            }
        }
    }

    #[test]
    fn a_prompt_cut_anywhere_beside_anyone_gives_the_bits_of_the_prompt_alone(
        model in models(),
        count in 1usize..500,
        largest in 1usize..200,
        seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let floats = model.layout().floats(512);
        let prompt = model.tokens(&mut noise, 0, count);
        let mut kv = vec![0.0; floats];
        let whole = model.run(&Team::new(2).unwrap(), &mut [(&prompt, 0, count, &mut kv)]);
        for threads in [1, 2, 3] {
            let team = Team::new(threads).unwrap();
            let mut stale = noise.floats(floats);
            let (mut first, mut joined) = (0, Vec::new());
            while first < count {
                let cut = (1 + noise.below(largest)).min(count - first);
                let mut others: Vec<_> = (0..noise.below(4))
                    .map(|_| (model.tokens(&mut Noise(first as u32), noise.below(300), 1 + noise.below(9)), noise.floats(floats)))
                    .collect();
                let mut parts: Vec<_> = others.iter_mut().map(|(tokens, kv)| (&*tokens, 0, tokens.count, kv)).collect();
                let place = noise.below(parts.len() + 1);
                parts.insert(place, (&prompt, first, cut, &mut stale));
                joined.extend(model.run(&team, &mut parts).swap_remove(place));
                first += cut;
            }
            prop_assert!(bits(&joined) == bits(&whole[0]), "{} threads", threads);
        }
    }

    #[test]
    fn a_ring_gives_the_bits_of_a_buffer_that_never_wraps(
        model in models(),
        window in prop_oneof![1usize..257, 200usize..257],
        seed in any::<u32>(),
    ) {
        let model = Model { window: Some(window), group: model.group.min(4), ..model };
        let (count, ring) = (900, 256);
        let mut noise = Noise(seed);
        let prompt = model.tokens(&mut noise, 0, count);
        let mut kv = vec![0.0; model.layout().floats(1024)];
        let whole = model.run(&Team::new(2).unwrap(), &mut [(&prompt, 0, count, &mut kv)]);
        let mut wrapped = noise.floats(model.layout().floats(ring));
        let team = Team::new(3).unwrap();
        let (mut first, mut joined) = (0, Vec::new());
        while first < count {
            let cut = (1 + noise.below(ring - window + 1)).min(count - first);
            joined.extend(model.run(&team, &mut [(&prompt, first, cut, &mut wrapped)]).remove(0));
            first += cut;
        }
        prop_assert!(bits(&joined) == bits(&whole[0]));
    }

    #[test]
    fn memory_that_was_never_written_is_not_seen(
        model in models(),
        count in 1usize..300,
        seed in any::<u32>(),
    ) {
        let floats = model.layout().floats(512);
        for isa in Isa::available() {
            let team = Team::with_isa(2, isa).unwrap();
            let prompt = model.tokens(&mut Noise(seed), 0, count);
            let [zeros, nans] = [0.0, f32::NAN].map(|unwritten| {
                let mut kv = vec![unwritten; floats];
                let mut results = model.run(&team, &mut [(&prompt, 0, count - 1, &mut kv)][..usize::from(count > 1)]);
                results.extend(model.run(&team, &mut [(&prompt, count - 1, 1, &mut kv)]));
                bits(&results.concat())
            });
            prop_assert!(zeros == nans, "{}", isa);
        }
    }
}

#[test]
fn results_are_those_of_softmax_attention() {
    let model = Model {
        kv_heads: 2,
        group: 3,
        key_dim: 48,
        value_dim: 40,
        window: None,
        normed: false,
        pairs: None,
        scale: 2.0,
    };
    let count = 300;
    for window in [None, Some(70)] {
        let model = Model {
            window,
            ..model.clone()
        };
        let prompt = model.tokens(&mut Noise(5), 0, count);
        let mut kv = vec![0.0; model.layout().floats(512)];
        let found = model.run(&Team::new(2).unwrap(), &mut [(&prompt, 0, count, &mut kv)]);
        let part =
            |position: usize, at: usize, len: usize| &prompt.qkv[position * model.width() + at..][..len];
        let mut largest = 0.0f64;
        for position in 0..count {
            for head in 0..6 {
                let query = part(position, head * 48, 48);
                let first = window.map_or(0, |window| (position + 1).saturating_sub(window));
                let mut weights = Vec::new();
                for other in first..=position {
                    let key = part(other, 6 * 48 + head / 3 * 48, 48);
                    let score: f64 = query
                        .iter()
                        .zip(key)
                        .map(|(q, k)| f64::from(*q) * f64::from(*k))
                        .sum();
                    weights.push((score * 2.0).exp());
                }
                let total: f64 = weights.iter().sum();
                for d in 0..40 {
                    let value = |other: usize| f64::from(part(other, 8 * 48 + head / 3 * 40, 40)[d]);
                    let sum: f64 = (first..=position)
                        .zip(&weights)
                        .map(|(at, w)| w * value(at))
                        .sum();
                    let found = f64::from(found[0][(position * 6 + head) * 40 + d]);
                    largest = largest.max((found - sum / total).abs());
                }
            }
        }
        assert!(largest < 1e-5, "off by {largest}");
    }
}

#[test]
fn positions_are_read_back_from_where_they_were_written() {
    let model = Model {
        kv_heads: 3,
        group: 1,
        key_dim: 6,
        value_dim: 5,
        window: Some(20),
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let layout = model.layout();
    let tokens = model.tokens(&mut Noise(9), 250, 40);
    let mut kv = vec![0.0; layout.floats(CAPACITY_STEP)];
    model.run(&Team::new(1).unwrap(), &mut [(&tokens, 0, 40, &mut kv)]);
    let (mut key, mut value) = ([0.0; 6], [0.0; 5]);
    for (index, token) in tokens.qkv.chunks(model.width()).enumerate() {
        for head in 0..3 {
            layout.copy_key(&kv, head, 250 + index, &mut key);
            layout.copy_value(&kv, head, 250 + index, &mut value);
            assert_eq!(key, token[18 + head * 6..][..6]);
            assert_eq!(value, token[36 + head * 5..][..5]);
        }
    }
    assert_eq!(layout.capacity(kv.len()), CAPACITY_STEP);
    assert_eq!(layout.panel(), 32 * (6 + 16));
}

#[test]
fn keys_are_normalized_and_then_turned() {
    let model = Model {
        kv_heads: 1,
        group: 1,
        key_dim: 6,
        value_dim: 2,
        window: None,
        normed: true,
        pairs: Some(2),
        scale: 1.0,
    };
    let layout = model.layout();
    let (position, weight) = (11, Noise(77).floats(6));
    let tokens = model.tokens(&mut Noise(8), position, 1);
    let mut kv = vec![0.0; layout.floats(256)];
    model.run(&Team::new(1).unwrap(), &mut [(&tokens, 0, 1, &mut kv)]);
    let mut key = [0.0; 6];
    layout.copy_key(&kv, 0, position, &mut key);
    let x: Vec<f64> = tokens.qkv[6..12].iter().map(|x| f64::from(*x)).collect();
    let squares: f64 = x.iter().map(|x| x * x).sum();
    let norm = |i: usize| x[i] / (squares / 6.0 + 1e-6).sqrt() * f64::from(weight[i]);
    let turned = |i: usize| {
        let (sin, cos) = (position as f64 / ((i % 2) as f64 * 3.0 + 1.0)).sin_cos();
        match i {
            0 | 1 => norm(i) * cos - norm(i + 2) * sin,
            2 | 3 => norm(i) * cos + norm(i - 2) * sin,
            _ => norm(i),
        }
    };
    for (i, feature) in key.into_iter().enumerate() {
        let error = (f64::from(feature) - turned(i)).abs();
        assert!(error < 1e-5, "feature {i}: {feature}, not {}", turned(i));
    }
}

#[test]
#[should_panic(expected = "257 positions where there is room for 256")]
fn a_buffer_that_is_too_small_is_refused() {
    let model = Model {
        kv_heads: 1,
        group: 1,
        key_dim: 2,
        value_dim: 2,
        window: None,
        normed: false,
        pairs: None,
        scale: 1.0,
    };
    let tokens = model.tokens(&mut Noise(1), 256, 1);
    let mut kv = vec![0.0; model.layout().floats(256)];
    model.run(&Team::new(1).unwrap(), &mut [(&tokens, 0, 1, &mut kv)]);
}

/// Bits, where all NaN are alike.
fn alike(values: &[f32]) -> Vec<u32> {
    let one = |v: &f32| if v.is_nan() { f32::NAN } else { *v }.to_bits();
    values.iter().map(one).collect()
}

fn plain(window: Option<usize>) -> Model {
    Model {
        kv_heads: 2,
        group: 3,
        key_dim: 32,
        value_dim: 24,
        window,
        normed: false,
        pairs: None,
        scale: 1.0,
    }
}

#[test]
fn a_token_that_is_no_number_reaches_no_other_row() {
    let model = plain(None);
    for team in teams() {
        for counts in [[1, 1, 1], [40, 1, 5], [130, 140, 3]] {
            let run = |poison: f32| {
                let mut rows: Vec<_> = counts
                    .iter()
                    .enumerate()
                    .map(|(i, &count)| {
                        let tokens = model.tokens(&mut Noise(i as u32), 100, count);
                        (tokens, Noise(50 + i as u32).floats(model.layout().floats(512)))
                    })
                    .collect();
                for x in rows[1].0.qkv.iter_mut().step_by(7) {
                    *x *= poison;
                }
                let mut parts: Vec<_> = rows
                    .iter_mut()
                    .map(|(tokens, kv)| (&*tokens, 0, tokens.count, kv))
                    .collect();
                model.run(&team, &mut parts)
            };
            let (clean, poisoned) = (run(1.0), run(f32::NAN));
            assert!(poisoned[1].iter().any(|v| v.is_nan()));
            for row in [0, 2] {
                assert!(bits(&clean[row]) == bits(&poisoned[row]), "{team:?}, {counts:?}");
            }
        }
    }
}

#[test]
fn keys_and_queries_that_are_not_finite_give_what_the_definition_says() {
    let model = plain(None);
    let (queries, keys) = (
        0..model.group * 2 * 32,
        model.group * 2 * 32..(model.group + 1) * 2 * 32,
    );
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for features in [&queries, &keys] {
            for at in [0, 5, 18, 150, 199] {
                let mut expected: Option<Vec<u32>> = None;
                for team in teams() {
                    let mut tokens = model.tokens(&mut Noise(3), 0, 200);
                    tokens.qkv[at * model.width() + features.start + 9] = poison;
                    let mut kv = vec![0.0; model.layout().floats(256)];
                    let found = model.run(&team, &mut [(&tokens, 0, 200, &mut kv)]).concat();
                    let expected = expected.get_or_insert_with(|| alike(&found));
                    assert!(
                        alike(&found) == *expected,
                        "{team:?}, {poison} at {at} of {features:?}"
                    );
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "257 positions where there is room for 256")]
fn a_window_without_end_is_none() {
    let model = plain(Some(usize::MAX));
    let tokens = model.tokens(&mut Noise(1), 255, 2);
    let mut kv = vec![0.0; model.layout().floats(256)];
    model.run(&Team::new(1).unwrap(), &mut [(&tokens, 0, 2, &mut kv)]);
}
