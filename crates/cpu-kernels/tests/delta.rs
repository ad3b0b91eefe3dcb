//! The gated delta rule equals its definition to the bit, whatever the instructions, the threads, the cuts and the rows
//! beside.

mod support;

use cpu_kernels::delta::{DeltaNet, DeltaShape, Scratch, Segment, update};
use cpu_kernels::{Norm, Team};
use proptest::prelude::*;
use support::{Noise, bits, teams};

/// A layer's weights.
#[derive(Debug)]
struct Layer {
    shape: DeltaShape,
    conv: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
}

impl Layer {
    fn new(shape: DeltaShape, noise: &mut Noise) -> Self {
        Self {
            shape,
            conv: noise.floats(shape.kernel * shape.conv_features()),
            a_log: noise.floats(shape.value_heads),
            dt_bias: noise.floats(shape.value_heads),
            norm: noise.floats(shape.value_dim),
        }
    }

    fn tokens(&self, noise: &mut Noise, count: usize) -> Vec<f32> {
        let mut tokens = noise.floats(count * self.shape.width());
        tokens.iter_mut().for_each(|x| *x *= 3.0);
        tokens
    }

    fn state(&self) -> Vec<f32> {
        vec![0.0; self.shape.state_floats()]
    }

    /// Takes tokens into states, all in one call; gives what each row's tokens get.
    fn run(&self, team: &Team, rows: &mut [(&[f32], &mut Vec<f32>)]) -> Vec<Vec<f32>> {
        let net = DeltaNet {
            shape: self.shape,
            conv: &self.conv,
            a_log: &self.a_log,
            dt_bias: &self.dt_bias,
            norm: Norm {
                weight: &self.norm,
                eps: 1e-6,
            },
        };
        let projected: Vec<f32> = rows.iter().flat_map(|(tokens, _)| *tokens).copied().collect();
        let counts: Vec<usize> = rows
            .iter()
            .map(|(tokens, _)| tokens.len() / self.shape.width())
            .collect();
        let mut segments: Vec<Segment<'_>> = rows
            .iter_mut()
            .zip(&counts)
            .map(|((_, state), &tokens)| Segment { state, tokens })
            .collect();
        let features = self.shape.value_features();
        let mut out = vec![f32::NAN; counts.iter().sum::<usize>() * features];
        update(
            team,
            &mut Scratch::default(),
            &net,
            &projected,
            &mut segments,
            &mut out,
        );
        let mut rest = out.as_slice();
        counts
            .iter()
            .map(|&count| {
                let (part, others) = rest.split_at(count * features);
                rest = others;
                part.to_vec()
            })
            .collect()
    }

    /// One row by itself: what its tokens get, and its state.
    fn alone(&self, team: &Team, tokens: &[f32]) -> [Vec<f32>; 2] {
        let mut state = self.state();
        let mut out = self.run(team, &mut [(tokens, &mut state)]);
        [out.remove(0), state]
    }
}

fn shapes() -> impl Strategy<Value = DeltaShape> {
    let dims = || prop::sample::select(vec![1usize, 3, 8, 16, 20, 24, 32, 47, 64, 128]);
    (1usize..4, 1usize..4, dims(), dims(), 1usize..6).prop_map(
        |(key_heads, group, key_dim, value_dim, kernel)| DeltaShape {
            key_heads,
            value_heads: key_heads * group,
            key_dim,
            value_dim,
            kernel,
        },
    )
}

fn first_and_others() -> (Team, Vec<Team>) {
    let mut teams = teams();
    (teams.remove(0), teams)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn all_instructions_and_threads_give_the_definitions_bits(
        shape in shapes(), lengths in prop::collection::vec(1usize..20, 1..5), seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let layer = Layer::new(shape, &mut noise);
        let rows: Vec<Vec<f32>> = lengths.iter().map(|&n| layer.tokens(&mut noise, n)).collect();
        let (portable, others) = first_and_others();
        let expected: Vec<[Vec<f32>; 2]> = rows.iter().map(|row| layer.alone(&portable, row)).collect();
        for team in others {
            let mut states: Vec<Vec<f32>> = rows.iter().map(|_| layer.state()).collect();
            let mut parts: Vec<_> = rows.iter().map(Vec::as_slice).zip(&mut states).collect();
            let found = layer.run(&team, &mut parts);
            for ((found, state), [out, expected]) in found.iter().zip(&states).zip(&expected) {
                prop_assert_eq!(bits(found), bits(out), "{:?}", team);
                prop_assert_eq!(bits(state), bits(expected), "{:?}", team);
            }
        }
    }

    #[test]
    fn a_prompt_gives_the_same_however_it_is_cut(
        shape in shapes(), count in 2usize..40, cuts in prop::collection::vec(1usize..9, 1..8), seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let layer = Layer::new(shape, &mut noise);
        let tokens = layer.tokens(&mut noise, count);
        for team in teams() {
            let [expected, whole] = layer.alone(&team, &tokens);
            let (mut state, mut out, mut rest) = (layer.state(), Vec::new(), tokens.as_slice());
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let take = (cuts.next().unwrap() * shape.width()).min(rest.len());
                out.extend(layer.run(&team, &mut [(&rest[..take], &mut state)]).remove(0));
                rest = &rest[take..];
            }
            prop_assert_eq!(bits(&out), bits(&expected), "{:?}", team);
            prop_assert_eq!(bits(&state), bits(&whole), "{:?}", team);
        }
    }
}

/// The formulas themselves, in double precision.
fn exactly(layer: &Layer, tokens: &[f32]) -> Vec<f64> {
    let shape = layer.shape;
    let (conv, dk, dv) = (shape.conv_features(), shape.key_dim, shape.value_dim);
    let silu = |x: f64| x / (1.0 + (-x).exp());
    let tokens: Vec<&[f32]> = tokens.chunks(shape.width()).collect();
    let mut states = vec![vec![vec![0.0f64; dk]; dv]; shape.value_heads];
    let mut out = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let convolved: Vec<f64> = (0..conv)
            .map(|feature| {
                let taps = (0..shape.kernel).filter(|back| *back <= at);
                let sum: f64 = taps
                    .map(|back| {
                        let weight = layer.conv[(shape.kernel - 1 - back) * conv + feature];
                        f64::from(tokens[at - back][feature]) * f64::from(weight)
                    })
                    .sum();
                silu(sum)
            })
            .collect();
        let unit = |start: usize| -> Vec<f64> {
            let x = &convolved[start..start + dk];
            let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
            x.iter().map(|x| x / length).collect()
        };
        for (head, state) in states.iter_mut().enumerate() {
            let key_head = head * shape.key_heads / shape.value_heads;
            let (q, k) = (unit(key_head * dk), unit((shape.key_heads + key_head) * dk));
            let values = &convolved[2 * shape.key_heads * dk + head * dv..][..dv];
            let z = &token[conv + head * dv..][..dv];
            let gates = &token[conv + shape.value_features()..];
            let beta = 1.0 / (1.0 + (-f64::from(gates[head])).exp());
            let a = f64::from(gates[shape.value_heads + head]) + f64::from(layer.dt_bias[head]);
            let decay = (-f64::from(layer.a_log[head]).exp() * a.exp().ln_1p()).exp();
            let y: Vec<f64> = state
                .iter_mut()
                .zip(values)
                .map(|(row, value)| {
                    row.iter_mut().for_each(|s| *s *= decay);
                    let held: f64 = row.iter().zip(&k).map(|(s, k)| s * k).sum();
                    for (s, k) in row.iter_mut().zip(&k) {
                        *s += k * (value - held) * beta;
                    }
                    row.iter().zip(&q).map(|(s, q)| s * q).sum::<f64>() / (dk as f64).sqrt()
                })
                .collect();
            let mean = y.iter().map(|y| y * y).sum::<f64>() / dv as f64;
            let scale = 1.0 / (mean + 1e-6).sqrt();
            for ((y, weight), z) in y.iter().zip(&layer.norm).zip(z) {
                out.push(y * scale * f64::from(*weight) * silu(f64::from(*z)));
            }
        }
    }
    out
}

#[test]
fn the_definition_is_that_of_the_formulas() {
    let shape = DeltaShape {
        key_heads: 2,
        value_heads: 4,
        key_dim: 32,
        value_dim: 24,
        kernel: 4,
    };
    let mut noise = Noise(9);
    let layer = Layer::new(shape, &mut noise);
    let tokens = layer.tokens(&mut noise, 30);
    let [found, _] = layer.alone(&first_and_others().0, &tokens);
    for (at, (found, exact)) in found.iter().zip(exactly(&layer, &tokens)).enumerate() {
        let apart = (f64::from(*found) - exact).abs();
        assert!(
            apart <= 2e-4 * exact.abs().max(0.1),
            "{at}: {found} where {exact} is exact"
        );
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row() {
    let shape = DeltaShape {
        key_heads: 1,
        value_heads: 2,
        key_dim: 16,
        value_dim: 16,
        kernel: 4,
    };
    let mut noise = Noise(5);
    let layer = Layer::new(shape, &mut noise);
    let (good, mut bad) = (layer.tokens(&mut noise, 3), layer.tokens(&mut noise, 3));
    bad[0] = f32::NAN;
    for team in teams() {
        let [expected, _] = layer.alone(&team, &good);
        let (mut a, mut b) = (layer.state(), layer.state());
        let found = layer.run(&team, &mut [(&bad, &mut a), (&good, &mut b)]);
        assert!(found[0].iter().any(|x| x.is_nan()));
        assert_eq!(bits(&found[1]), bits(&expected));
    }
}

#[test]
#[should_panic(expected = "floats of a state")]
fn a_state_of_another_size_is_refused() {
    let shape = DeltaShape {
        key_heads: 1,
        value_heads: 1,
        key_dim: 8,
        value_dim: 8,
        kernel: 4,
    };
    let mut noise = Noise(1);
    let layer = Layer::new(shape, &mut noise);
    let tokens = layer.tokens(&mut noise, 1);
    let mut short = vec![0.0; shape.state_floats() - 1];
    layer.run(&first_and_others().0, &mut [(&tokens, &mut short)]);
}
