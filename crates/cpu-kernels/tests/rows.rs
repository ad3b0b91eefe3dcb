//! Rows of every number and kind: each has the bits of the definition, and keeps to itself what is not finite.

use cpu_kernels::linear::{Activation, Output, gated, project};
use cpu_kernels::{Affine, Arena, Arithmetic, Input, Isa, Norm, Scratch, Team, Weights};

/// Reproducible numbers between -1 and 1.
fn noise(seed: u32) -> impl FnMut() -> f32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    }
}

fn floats(seed: u32, n: usize) -> Vec<f32> {
    let mut next = noise(seed);
    (0..n).map(|_| next()).collect()
}

fn dense(team: &Team, outputs: usize, inputs: usize, factor: f32) -> Weights {
    let elements: Vec<f32> = floats(7, outputs * inputs).iter().map(|v| v * factor).collect();
    Weights::dense(team, &Arena::default(), outputs, inputs, &elements).unwrap()
}

fn quantized(team: &Team, [outputs, inputs]: [usize; 2], bits: usize, group: usize) -> Weights {
    let mut next = noise(11);
    let matrix = Affine {
        outputs,
        inputs,
        bits,
        group,
        packed: &(0..outputs * inputs * bits / 32)
            .map(|_| next().to_bits().wrapping_mul(2_654_435_769))
            .collect::<Vec<_>>(),
        scales: &floats(12, outputs * inputs / group),
        biases: &floats(13, outputs * inputs / group),
    };
    Weights::affine(team, &Arena::default(), matrix).unwrap()
}

/// Matrices of all kinds and awkward shapes, two of each.
fn matrices(team: &Team) -> Vec<[Weights; 2]> {
    let pair = |weights: &dyn Fn() -> Weights| [weights(), weights()];
    let mut matrices = vec![
        pair(&|| dense(team, 1, 1, 1.0)),
        pair(&|| dense(team, 33, 1, 1.0)),
        pair(&|| dense(team, 1, 131, 1.0)),
        pair(&|| dense(team, 31, 17, 1.0)),
    ];
    for (bits, group, inputs) in [
        (2, 16, 48),
        (3, 32, 160),
        (4, 16, 16),
        (4, 64, 192),
        (5, 32, 32),
        (6, 16, 144),
        (8, 16, 48),
        (8, 128, 256),
    ] {
        matrices.push(pair(&|| quantized(team, [35, inputs], bits, group)));
    }
    matrices
}

/// The plain product, then the gated one.
fn products(
    team: &Team,
    scratch: &mut Scratch,
    [a, b]: &[Weights; 2],
    x: &[f32],
    normed: bool,
) -> [Vec<f32>; 2] {
    let weight = floats(5, a.inputs());
    let norm = normed.then_some(Norm {
        weight: &weight,
        eps: 1e-6,
    });
    let input = Input::new(x, a.inputs(), norm);
    let outputs = x.len() / a.inputs() * a.outputs();
    let mut plain = vec![-1.0; outputs];
    project(team, scratch, input, &[a], None, Output::Store(&mut plain));
    let mut gate = vec![-1.0; outputs];
    gated(team, scratch, input, [a, b], None, Activation::Silu, &mut gate);
    [plain, gate]
}

/// Bits, where all NaN are alike.
fn bits(values: &[f32]) -> Vec<u32> {
    let one = |v: &f32| if v.is_nan() { f32::NAN } else { *v }.to_bits();
    values.iter().map(one).collect()
}

const ARITHMETICS: [Arithmetic; 2] = [Arithmetic::Floats, Arithmetic::Integers];

/// What gives the definition's bits.
fn portable(arithmetic: Arithmetic) -> Team {
    Team::with_arithmetic(1, Isa::Portable, arithmetic).unwrap()
}

/// Who must give the same.
fn vector_teams(threads: usize, arithmetic: Arithmetic) -> impl Iterator<Item = Team> {
    Isa::available()
        .into_iter()
        .filter(move |isa| *isa != Isa::Portable && isa.arithmetics().contains(&arithmetic))
        .map(move |isa| Team::with_arithmetic(threads, isa, arithmetic).unwrap())
}

#[test]
fn every_number_of_rows_gives_the_bits_of_the_definition() {
    for arithmetic in ARITHMETICS {
        let portable = portable(arithmetic);
        // Every cut into register tiles, and counts around a block's; not in order, so that scratch memory holds more.
        let counts: Vec<usize> = [129, 128, 127, 125, 256].into_iter().chain(1..=64).collect();
        for matrices in matrices(&portable) {
            let x = floats(3, 256 * matrices[0].inputs());
            for normed in [false, true] {
                let expected = products(&portable, &mut Scratch::default(), &matrices, &x, normed);
                let expected = expected.map(|values| bits(&values));
                for team in vector_teams(2, arithmetic) {
                    let mut scratch = Scratch::default();
                    for &rows in &counts {
                        let x = &x[..rows * matrices[0].inputs()];
                        let found = products(&team, &mut scratch, &matrices, x, normed);
                        for (found, expected) in found.iter().zip(&expected) {
                            assert!(
                                bits(found) == expected[..found.len()],
                                "{team:?}, {rows} rows, {matrices:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn thousands_of_rows_give_the_bits_of_the_definition() {
    for arithmetic in ARITHMETICS {
        let portable = portable(arithmetic);
        let matrices = [(); 2].map(|()| quantized(&portable, [33, 48], 4, 16));
        let x = floats(4, 2048 * 48);
        let expected = products(&portable, &mut Scratch::default(), &matrices, &x, true);
        for team in vector_teams(3, arithmetic) {
            let found = products(&team, &mut Scratch::default(), &matrices, &x, true);
            for (found, expected) in found.iter().zip(&expected) {
                assert!(bits(found) == bits(expected), "{team:?}");
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_in_its_row() {
    for arithmetic in ARITHMETICS {
        let portable = portable(arithmetic);
        for matrices in matrices(&portable) {
            let [inputs, outputs] = [matrices[0].inputs(), matrices[0].outputs()];
            for rows in [4, 5, 8, 9, 12, 13, 30, 300] {
                let clean = floats(6, rows * inputs);
                for (at, poison) in [
                    (0, f32::NAN),
                    (3, f32::INFINITY),
                    (3, f32::NAN),
                    (rows - 1, f32::NEG_INFINITY),
                ] {
                    let mut x = clean.clone();
                    x[at * inputs + inputs / 2] = poison;
                    for normed in [false, true] {
                        // The row itself is as defined.
                        let alone = &x[at * inputs..][..inputs];
                        let alone = products(&portable, &mut Scratch::default(), &matrices, alone, normed);
                        for team in vector_teams(2, arithmetic) {
                            let mut scratch = Scratch::default();
                            let poisoned = products(&team, &mut scratch, &matrices, &x, normed);
                            let expected = products(&team, &mut scratch, &matrices, &clean, normed);
                            for ((found, mut expected), alone) in poisoned.iter().zip(expected).zip(&alone) {
                                expected[at * outputs..][..outputs].copy_from_slice(alone);
                                assert!(
                                    bits(found) == bits(&expected),
                                    "{team:?}, {poison} in row {at} of {rows}, {matrices:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn subnormal_numbers_are_not_flushed() {
    let portable = portable(Arithmetic::Floats);
    // Subnormal inputs; subnormal elements; products that are subnormal though neither factor is.
    for (rows, weights) in [(1e-40f32, 1.0f32), (1.0, 1e-40), (1e-20, 1e-20)] {
        let matrices = [(); 2].map(|()| dense(&portable, 40, 33, weights));
        let x: Vec<f32> = floats(9, 14 * 33).iter().map(|v| v * rows).collect();
        let expected = products(&portable, &mut Scratch::default(), &matrices, &x, false);
        assert!(expected[0].iter().any(|v| v.is_subnormal()));
        assert!(expected[0].iter().all(|v| *v != 0.0));
        for team in vector_teams(2, Arithmetic::Floats) {
            for rows in [1, 2, 14] {
                let x = &x[..rows * 33];
                let found = products(&team, &mut Scratch::default(), &matrices, x, false);
                for (found, expected) in found.iter().zip(&expected) {
                    assert!(
                        bits(found) == bits(&expected[..found.len()]),
                        "{team:?}, {rows} rows"
                    );
                }
            }
        }
    }
}

#[test]
fn nothing_is_computed_of_no_rows_or_no_outputs() {
    for isa in Isa::available() {
        let team = Team::with_isa(2, isa).unwrap();
        let mut scratch = Scratch::default();
        let (none, some) = (dense(&team, 0, 5, 1.0), dense(&team, 3, 5, 1.0));
        let mut empty: [f32; 0] = [];
        let no_rows = Input::new(&[], 5, None);
        project(
            &team,
            &mut scratch,
            no_rows,
            &[&some],
            None,
            Output::Store(&mut empty),
        );
        let row = [1.0, 2.0, 3.0, 4.0, 5.0];
        let input = Input::new(&row, 5, None);
        project(
            &team,
            &mut scratch,
            input,
            &[&none],
            None,
            Output::Store(&mut empty),
        );
        project(&team, &mut scratch, input, &[], None, Output::Store(&mut empty));
        // A matrix without outputs among others takes no columns.
        let (mut alone, mut among) = ([-1.0; 3], [-1.0; 3]);
        project(
            &team,
            &mut scratch,
            input,
            &[&some],
            None,
            Output::Store(&mut alone),
        );
        let all = [&none, &some, &none];
        project(&team, &mut scratch, input, &all, None, Output::Store(&mut among));
        assert_eq!(bits(&alone), bits(&among), "{isa}");
    }
}
