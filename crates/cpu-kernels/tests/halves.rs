//! Every half-precision and bfloat16 number is loaded as what it is.

use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Affine, Arena, Float, Input, Isa, Scratch, Storage, Team, Weights};
use half::{bf16, f16};

/// All patterns of two bytes as float32.
fn values(float: Float) -> Vec<f32> {
    (0..=u16::MAX)
        .map(|pattern| match float {
            Float::F16 => f16::from_bits(pattern).to_f32(),
            _ => bf16::from_bits(pattern).to_f32(),
        })
        .collect()
}

/// Products of `rows` rows, all `[1, 0, 0, …]`, with a matrix that holds each value once where the 1 is.
fn check(team: &Team, weights: &Weights, rows: usize, values: &[f32]) {
    let mut x = vec![0.0; rows * weights.inputs()];
    x.iter_mut().step_by(weights.inputs()).for_each(|x| *x = 1.0);
    let mut y = vec![-1.0; rows * values.len()];
    let input = Input::new(&x, weights.inputs(), None);
    project(
        team,
        &mut Scratch::default(),
        input,
        &[weights],
        None,
        Output::Store(&mut y),
    );
    for row in y.chunks(values.len()) {
        for (found, value) in row.iter().zip(values) {
            // A total starts at 0, so that zeros are positive.
            let same = found.to_bits() == (value + 0.0).to_bits() || (value.is_nan() && found.is_nan());
            assert!(same, "{team:?}, {rows} rows: {found:e} for {value:e}");
        }
    }
}

/// One row, whose product is computed as weights are unpacked, and more than there are in a register tile.
const ROWS: [usize; 2] = [1, 13];

#[test]
fn every_pattern_is_loaded_as_an_element() {
    for float in [Float::F16, Float::Bf16] {
        let values = values(float);
        for isa in Isa::available() {
            let team = Team::with_isa(2, isa).unwrap();
            let weights = Weights::dense(&team, &Arena::default(), values.len(), 1, &values).unwrap();
            assert_eq!(weights.storage(), Storage::Dense(float));
            for rows in ROWS {
                check(&team, &weights, rows, &values);
            }
        }
    }
}

#[test]
fn every_pattern_is_loaded_as_a_scale_or_a_bias() {
    // A quant of 1, then zeros.
    let (bits, group) = (2, 16);
    for float in [Float::F16, Float::Bf16] {
        let values = values(float);
        let (packed, zeros) = (vec![1; values.len()], vec![0.0; values.len()]);
        for isa in Isa::available() {
            let team = Team::with_isa(2, isa).unwrap();
            for [scales, biases] in [[&values, &zeros], [&zeros, &values]] {
                let matrix = Affine {
                    outputs: values.len(),
                    inputs: group,
                    bits,
                    group,
                    packed: &packed,
                    scales,
                    biases,
                };
                let weights = Weights::affine(&team, &Arena::default(), matrix).unwrap();
                let Storage::Affine(quants) = weights.storage() else {
                    panic!("not quantized");
                };
                assert_eq!((quants.scale, quants.centered), (float, false));
                for rows in ROWS {
                    check(&team, &weights, rows, &values);
                }
            }
        }
    }
}
