//! Products equal their definition to the bit, whatever the instructions, the threads and the rows beside.

mod support;

use cpu_kernels::linear::{Activation, Output, gated, project};
use cpu_kernels::{Affine, Arena, Arithmetic, Input, Norm, Scratch, Storage, Team, Weights};
use proptest::prelude::*;
use support::{Noise, bits, teams_of};

/// Everything that a product takes.
#[derive(Debug, Clone)]
struct Case {
    inputs: usize,
    outputs: usize,
    rows: usize,
    kind: Kind,
    normed: bool,
    seed: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    F32,
    F16,
    Bf16,
    Affine {
        bits: usize,
        group: usize,
        centered: bool,
        scale: usize,
    },
}

fn weights(team: &Team, kind: Kind, outputs: usize, inputs: usize, noise: &mut Noise) -> Weights {
    let n = outputs * inputs;
    match kind {
        Kind::F32 => Weights::dense(team, &Arena::default(), outputs, inputs, &noise.floats(n)).unwrap(),
        Kind::F16 => {
            let halves: Vec<f32> = noise
                .floats(n)
                .iter()
                .map(|v| half::f16::from_f32(*v).to_f32())
                .collect();
            Weights::dense(team, &Arena::default(), outputs, inputs, &halves).unwrap()
        }
        Kind::Bf16 => {
            let halves: Vec<f32> = noise
                .floats(n)
                .iter()
                .map(|v| half::bf16::from_f32(*v * 1e-9).to_f32())
                .collect();
            Weights::dense(team, &Arena::default(), outputs, inputs, &halves).unwrap()
        }
        Kind::Affine {
            bits,
            group,
            centered,
            scale,
        } => {
            let groups = n / group;
            let round = |v: f32| match scale {
                0 => half::f16::from_f32(v).to_f32(),
                1 => half::bf16::from_f32(v * 1e-6).to_f32(),
                _ => v,
            };
            let scales: Vec<f32> = noise.floats(groups).into_iter().map(round).collect();
            let biases: Vec<f32> = if centered {
                scales.iter().map(|s| -((1 << (bits - 1)) as f32) * s).collect()
            } else {
                noise.floats(groups).into_iter().map(round).collect()
            };
            let packed: Vec<u32> = (0..n * bits / 32)
                .map(|_| noise.bits() ^ noise.bits() >> 13)
                .collect();
            let matrix = Affine {
                outputs,
                inputs,
                bits,
                group,
                packed: &packed,
                scales: &scales,
                biases: &biases,
            };
            Weights::affine(team, &Arena::default(), matrix).unwrap()
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let kind = prop_oneof![
        Just(Kind::F32),
        Just(Kind::F16),
        Just(Kind::Bf16),
        (
            prop::sample::select(vec![2usize, 3, 4, 5, 6, 8]),
            prop::sample::select(vec![16usize, 32, 64, 128]),
            any::<bool>(),
            0usize..3
        )
            .prop_map(|(bits, group, centered, scale)| Kind::Affine {
                bits,
                group,
                centered,
                scale
            }),
    ];
    (
        kind,
        1usize..200,
        1usize..5,
        1usize..30,
        any::<bool>(),
        any::<u32>(),
        1usize..90,
    )
        .prop_map(|(kind, outputs, groups, rows, normed, seed, odd)| {
            let inputs = match kind {
                Kind::Affine { group, bits, .. } => {
                    // A row's bits fill whole words.
                    let groups = if group == 16 && bits % 2 == 1 {
                        groups * 2
                    } else {
                        groups
                    };
                    group * groups
                }
                _ => odd,
            };
            Case {
                inputs,
                outputs,
                rows,
                kind,
                normed,
                seed,
            }
        })
}

/// All products of a case, by one team.
fn products(team: &Team, case: &Case) -> [Vec<f32>; 3] {
    let mut noise = Noise(case.seed);
    let Case {
        inputs,
        outputs,
        rows,
        kind,
        ..
    } = *case;
    let a = weights(team, kind, outputs, inputs, &mut noise);
    let b = weights(team, kind, outputs, inputs, &mut noise);
    let c = weights(team, Kind::F32, outputs / 2 + 1, inputs, &mut noise);
    let (x, norm) = (noise.floats(rows * inputs), noise.floats(inputs));
    let norm = case.normed.then_some(Norm {
        weight: &norm,
        eps: 1e-5,
    });
    let all = outputs + c.outputs();
    let (bias, mut added) = (noise.floats(all), noise.floats(rows * all));
    let mut scratch = Scratch::default();
    let input = || Input::new(&x, inputs, norm);
    let mut plain = vec![f32::NAN; rows * outputs];
    project(
        team,
        &mut scratch,
        input(),
        &[&a],
        None,
        Output::Store(&mut plain),
    );
    let to = Output::Add(&mut added);
    project(team, &mut scratch, input(), &[&c, &b], Some(&bias), to);
    let mut gate = vec![f32::NAN; rows * outputs];
    let activation = if case.seed.is_multiple_of(2) {
        Activation::Silu
    } else {
        Activation::GeluTanh
    };
    let both = noise.floats(2 * outputs);
    let both = case.normed.then_some(&both[..]);
    gated(team, &mut scratch, input(), [&a, &b], both, activation, &mut gate);
    [plain, added, gate]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_are_the_same_on_every_instruction_set_and_number_of_threads(case in cases()) {
        for arithmetic in [Arithmetic::Floats, Arithmetic::Integers] {
            let teams = teams_of(arithmetic);
            let expected = products(&teams[0], &case).map(|values| bits(&values));
            for team in &teams[1..] {
                let found = products(team, &case).map(|values| bits(&values));
                prop_assert_eq!(&found, &expected, "{:?}", team);
            }
        }
    }

    #[test]
    fn a_row_is_the_same_alone_and_among_others(case in cases()) {
        let team = Team::new(2).unwrap();
        let mut noise = Noise(case.seed);
        let matrix = weights(&team, case.kind, case.outputs, case.inputs, &mut noise);
        let x = noise.floats(case.rows * case.inputs);
        let norm = noise.floats(case.inputs);
        let norm = case.normed.then_some(Norm { weight: &norm, eps: 1e-6 });
        let mut scratch = Scratch::default();
        let mut run = |x: &[f32]| {
            let mut y = vec![f32::NAN; x.len() / case.inputs * case.outputs];
            project(&team, &mut scratch, Input::new(x, case.inputs, norm), &[&matrix], None, Output::Store(&mut y));
            y
        };
        let together = run(&x);
        for (x, y) in x.chunks(case.inputs).zip(together.chunks(case.outputs)) {
            prop_assert_eq!(bits(&run(x)), bits(y));
        }
    }
}

#[test]
fn integers_are_off_by_no_more_than_their_steps_and_roundings() {
    let (inputs, outputs, rows, unit) = (512, 96, 6, f64::from(2.0f32.powi(-24)));
    for (bits, group, spread) in [
        (2, 16, 1000.0),
        (4, 32, 1.0),
        (4, 64, 30.0),
        (8, 32, 1000.0),
        (8, 128, 1.0),
    ] {
        let kind = Kind::Affine {
            bits,
            group,
            centered: true,
            scale: 0,
        };
        let team = teams_of(Arithmetic::Integers).pop().unwrap();
        let mut noise = Noise(11);
        let matrix = weights(&team, kind, outputs, inputs, &mut noise);
        // Some inputs far larger than the rest, as models have them.
        let x = noise.floats(rows * inputs).into_iter().enumerate();
        let x: Vec<f32> = x.map(|(i, x)| if i % 67 == 5 { x * spread } else { x }).collect();
        let mut y = vec![0.0; rows * outputs];
        let input = Input::new(&x, inputs, None);
        project(
            &team,
            &mut Scratch::default(),
            input,
            &[&matrix],
            None,
            Output::Store(&mut y),
        );
        let mut row = vec![0.0; inputs];
        for output in 0..outputs {
            matrix.copy_output(output, &mut row);
            for (x, y) in x.chunks(inputs).zip(y.chunks(outputs)) {
                let pairs = || x.iter().zip(&row).map(|(x, w)| f64::from(*x) * f64::from(*w));
                let (exact, sizes): (f64, f64) = (pairs().sum(), pairs().map(f64::abs).sum());
                let blocks = x.chunks(32).zip(row.chunks(32)).map(|(x, w)| {
                    let largest = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    f64::from(largest) * w.iter().map(|w| f64::from(w.abs())).sum::<f64>()
                });
                // An input is off by less than 3 units of its block's largest; sums are rounded once a piece, and its product five times.
                let roundings = (inputs / group.min(32) + 5) as f64;
                let most = unit * (3.0 * blocks.sum::<f64>() + roundings * sizes);
                let off = (exact - f64::from(y[output])).abs();
                assert!(off <= most, "{kind:?}: {off:e}, but {most:e} at most");
            }
        }
    }
}

#[test]
fn the_narrowest_exact_type_is_stored() {
    let team = Team::new(1).unwrap();
    let mut noise = Noise(3);
    let stored = |kind, noise: &mut Noise| format!("{:?}", weights(&team, kind, 4, 32, noise).storage());
    assert_eq!(stored(Kind::F16, &mut noise), "Dense(F16)");
    assert_eq!(stored(Kind::Bf16, &mut noise), "Dense(Bf16)");
    assert_eq!(stored(Kind::F32, &mut noise), "Dense(F32)");
    let affine = |centered, scale| Kind::Affine {
        bits: 4,
        group: 32,
        centered,
        scale,
    };
    for (scale, name) in [(0, "F16"), (1, "Bf16"), (2, "F32")] {
        for centered in [false, true] {
            let Storage::Affine(quants) =
                weights(&team, affine(centered, scale), 4, 32, &mut noise).storage()
            else {
                panic!("not quantized");
            };
            assert_eq!(
                (quants.centered, format!("{:?}", quants.scale)),
                (centered, name.to_owned())
            );
        }
    }
}

#[test]
fn an_embedding_is_quant_times_scale_plus_bias() {
    let team = Team::new(1).unwrap();
    // Two rows of 16 nibbles, 0 to 15 and back.
    let packed = [0x7654_3210, 0xfedc_ba98, 0x89ab_cdef, 0x0123_4567];
    let matrix = Affine {
        outputs: 2,
        inputs: 16,
        bits: 4,
        group: 16,
        packed: &packed,
        scales: &[0.5, 2.0],
        biases: &[1.0, -3.0],
    };
    let weights = Weights::affine(&team, &Arena::default(), matrix).unwrap();
    let mut row = [0.0; 16];
    weights.copy_output(0, &mut row);
    assert_eq!(row[..3], [1.0, 1.5, 2.0]);
    weights.copy_output(1, &mut row);
    assert_eq!(row[..3], [27.0, 25.0, 23.0]);
}

#[test]
fn what_there_is_no_kernel_for_is_refused_with_the_reason() {
    let team = Team::new(1).unwrap();
    let matrix = |bits, group, words| {
        let packed = vec![0; words];
        let matrix = Affine {
            outputs: 1,
            inputs: 64,
            bits,
            group,
            packed: &packed,
            scales: &[0.0; 2],
            biases: &[0.0; 2],
        };
        Weights::affine(&team, &Arena::default(), matrix)
            .unwrap_err()
            .to_string()
    };
    assert!(matrix(7, 32, 14).starts_with("7 bits"));
    assert!(matrix(4, 48, 8).starts_with("groups of 48 among 64 inputs"));
    assert!(matrix(4, 32, 9).starts_with("packed: 288 elements where 256"));
    let dense = Weights::dense(&team, &Arena::default(), 2, 3, &[0.0; 5]).unwrap_err();
    assert_eq!(dense.to_string(), "elements: 5 elements where 6 were expected");
}
