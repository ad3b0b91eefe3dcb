//! A mixture of experts equals its definition to the bit, whatever the instructions, the threads and the rows beside.

mod support;

use cpu_kernels::experts::{Expert, Experts, Scratch, mixture};
use cpu_kernels::{Affine, Arena, Arithmetic, Norm, Team, Weights};
use proptest::prelude::*;
use support::{Noise, bits, teams, teams_of};

/// A layer's sizes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    experts: usize,
    chosen: usize,
    features: usize,
    intermediate: usize,
    shared: bool,
    renormalize: bool,
    quantized: bool,
    normed: bool,
}

struct Layer {
    shape: Shape,
    router: Weights,
    experts: Vec<[Weights; 3]>,
    shared: Option<([Weights; 3], Weights)>,
    norm: Vec<f32>,
}

fn weights(team: &Team, quantized: bool, outputs: usize, inputs: usize, noise: &mut Noise) -> Weights {
    if !quantized {
        return Weights::dense(
            team,
            &Arena::default(),
            outputs,
            inputs,
            &noise.floats(outputs * inputs),
        )
        .unwrap();
    }
    let packed: Vec<u32> = (0..outputs * inputs / 8)
        .map(|_| noise.bits() ^ noise.bits() >> 13)
        .collect();
    let matrix = Affine {
        outputs,
        inputs,
        bits: 4,
        group: 16,
        packed: &packed,
        scales: &noise.floats(outputs * inputs / 16),
        biases: &noise.floats(outputs * inputs / 16),
    };
    Weights::affine(team, &Arena::default(), matrix).unwrap()
}

impl Layer {
    fn new(team: &Team, shape: Shape, seed: u32) -> Self {
        let noise = &mut Noise(seed);
        let (features, intermediate) = (shape.features, shape.intermediate);
        let mut make = |outputs, inputs| weights(team, shape.quantized, outputs, inputs, noise);
        let mut expert = || {
            [
                make(intermediate, features),
                make(intermediate, features),
                make(features, intermediate),
            ]
        };
        let experts = (0..shape.experts).map(|_| expert()).collect();
        let shared = shape.shared.then(&mut expert);
        let shared = shared.map(|expert| (expert, make(1, features)));
        Self {
            shape,
            router: make(shape.experts, features),
            experts,
            shared,
            norm: Noise(3).floats(features),
        }
    }

    fn run(&self, team: &Team, scratch: &mut Scratch, x: &[f32]) -> Vec<f32> {
        let experts: Vec<Expert<'_>> = self
            .experts
            .iter()
            .map(|[gate, up, down]| Expert { gate, up, down })
            .collect();
        let experts = Experts {
            router: &self.router,
            experts: &experts,
            chosen: self.shape.chosen,
            renormalize: self.shape.renormalize,
            shared: self.shared.as_ref().map(|(shared, router)| {
                let [gate, up, down] = shared;
                (Expert { gate, up, down }, router)
            }),
        };
        let norm = self.shape.normed.then_some(Norm {
            weight: &self.norm,
            eps: 1e-6,
        });
        let mut x = x.to_vec();
        let rows = &mut cpu_kernels::Scratch::default();
        mixture(team, rows, scratch, norm, &experts, &mut x);
        x
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let counts = prop::sample::select(vec![(1usize, 1usize), (4, 2), (7, 7), (17, 3), (40, 8)]);
    let dims = || prop::sample::select(vec![16usize, 32, 48, 80]);
    (
        counts,
        dims(),
        dims(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |((experts, chosen), features, intermediate, shared, renormalize, quantized, normed)| Shape {
                experts,
                chosen,
                features,
                intermediate,
                shared,
                renormalize,
                quantized,
                normed,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn each_row_has_the_definitions_bits_whatever_is_beside_it(
        shape in shapes(), rows in 1usize..40, seed in any::<u32>(),
    ) {
        let mut noise = Noise(seed);
        let x = noise.floats(rows * shape.features);
        for arithmetic in [Arithmetic::Floats, Arithmetic::Integers] {
        let teams = teams_of(arithmetic);
        let layer = Layer::new(&teams[0], shape, seed ^ 77);
        let expected = layer.run(&teams[0], &mut Scratch::default(), &x);
        for team in &teams[1..] {
            let scratch = &mut Scratch::default();
            let found = layer.run(team, scratch, &x);
            prop_assert_eq!(bits(&found), bits(&expected), "{:?}", team);
            // Alone, from the last to the first, in memory that has been used.
            for row in (0..rows).rev() {
                let part = row * shape.features..(row + 1) * shape.features;
                let found = layer.run(team, scratch, &x[part.clone()]);
                prop_assert_eq!(bits(&found), bits(&expected[part]), "{:?}, row {}", team, row);
            }
        }
        }
    }
}

const SHAPE: Shape = Shape {
    experts: 6,
    chosen: 2,
    features: 32,
    intermediate: 16,
    shared: true,
    renormalize: true,
    quantized: true,
    normed: true,
};

#[test]
fn more_rows_than_are_taken_at_once_get_what_they_get_alone() {
    let rows = 1300;
    let mut noise = Noise(8);
    let x = noise.floats(rows * SHAPE.features);
    let both = teams().into_iter().chain(teams_of(Arithmetic::Integers));
    for team in &both.filter(|team| team.size() == 2).collect::<Vec<_>>() {
        let layer = Layer::new(team, SHAPE, 4);
        let scratch = &mut Scratch::default();
        let found = layer.run(team, scratch, &x);
        for row in [0, 1, 1023, 1024, 1299] {
            let part = row * SHAPE.features..(row + 1) * SHAPE.features;
            let alone = layer.run(team, scratch, &x[part.clone()]);
            assert_eq!(bits(&found[part]), bits(&alone), "{team:?}, row {row}");
        }
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row() {
    let mut noise = Noise(8);
    let x = noise.floats(3 * SHAPE.features);
    let mut broken = x.clone();
    broken[SHAPE.features..2 * SHAPE.features].fill(f32::NAN);
    for team in teams().into_iter().chain(teams_of(Arithmetic::Integers)) {
        let layer = Layer::new(&team, SHAPE, 4);
        let expected = layer.run(&team, &mut Scratch::default(), &x);
        let found = layer.run(&team, &mut Scratch::default(), &broken);
        for (row, (found, expected)) in found
            .chunks(SHAPE.features)
            .zip(expected.chunks(SHAPE.features))
            .enumerate()
        {
            if row == 1 {
                assert!(found.iter().all(|x| x.is_nan()), "{team:?}");
            } else {
                assert_eq!(bits(found), bits(expected), "{team:?}, row {row}");
            }
        }
    }
}

/// Of dense weights in double precision.
#[test]
fn the_definition_is_that_of_the_formulas() {
    let shape = Shape {
        quantized: false,
        normed: false,
        ..SHAPE
    };
    let (features, intermediate) = (shape.features, shape.intermediate);
    // As `Layer::new` draws them.
    let noise = &mut Noise(21);
    let matrix = |outputs: usize, inputs: usize, noise: &mut Noise| -> Vec<Vec<f64>> {
        let rows = noise.floats(outputs * inputs);
        let rows = rows.chunks(inputs);
        rows.map(|row| row.iter().map(|w| f64::from(*w)).collect())
            .collect()
    };
    let expert = |noise: &mut Noise| {
        [
            (intermediate, features),
            (intermediate, features),
            (features, intermediate),
        ]
        .map(|(outputs, inputs)| matrix(outputs, inputs, noise))
    };
    let experts: Vec<_> = (0..shape.experts).map(|_| expert(noise)).collect();
    let shared = expert(noise);
    let shared_router = matrix(1, features, noise);
    let router = matrix(shape.experts, features, noise);
    let product = |weights: &[Vec<f64>], x: &[f64]| -> Vec<f64> {
        let dot = |row: &Vec<f64>| row.iter().zip(x).map(|(w, x)| w * x).sum();
        weights.iter().map(dot).collect()
    };
    let run = |[gate, up, down]: &[Vec<Vec<f64>>; 3], x: &[f64]| {
        let pairs = product(gate, x).into_iter().zip(product(up, x));
        let inner: Vec<f64> = pairs
            .map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up)
            .collect();
        product(down, &inner)
    };
    let x = Noise(5).floats(features);
    let exact: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let mut logits: Vec<(usize, f64)> = product(&router, &exact).into_iter().enumerate().collect();
    logits.sort_by(|a, b| b.1.total_cmp(&a.1));
    let chosen = &logits[..shape.chosen];
    let sum: f64 = chosen.iter().map(|(_, logit)| logit.exp()).sum();
    let mut expected = exact.clone();
    for (index, logit) in chosen {
        for (to, y) in expected.iter_mut().zip(run(&experts[*index], &exact)) {
            *to += y * logit.exp() / sum;
        }
    }
    let weight = 1.0 / (1.0 + (-product(&shared_router, &exact)[0]).exp());
    for (to, y) in expected.iter_mut().zip(run(&shared, &exact)) {
        *to += y * weight;
    }
    let team = &teams()[0];
    let found = Layer::new(team, shape, 21).run(team, &mut Scratch::default(), &x);
    for (found, expected) in found.iter().zip(expected) {
        let apart = (f64::from(*found) - expected).abs();
        assert!(
            apart <= 1e-5 * expected.abs().max(1.0),
            "{found} where {expected} is exact"
        );
    }
}
