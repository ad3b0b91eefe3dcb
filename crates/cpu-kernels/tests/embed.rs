//! Embeddings equal their definition to the bit.

use cpu_kernels::{Affine, Arena, Isa, Team, Weights, embed};
use proptest::prelude::*;

/// Reproducible bits.
fn noise(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ state >> 15
    }
}

fn quantized(
    team: &Team,
    outputs: usize,
    inputs: usize,
    bits: usize,
    group: usize,
    centered: bool,
    seed: u32,
) -> Weights {
    let mut next = noise(seed);
    let packed: Vec<u32> = (0..outputs * inputs * bits / 32).map(|_| next()).collect();
    let mut floats = || -> Vec<f32> {
        (0..outputs * inputs / group)
            .map(|_| next() as i32 as f32 / 1e9)
            .collect()
    };
    let (scales, mut biases) = (floats(), floats());
    if centered {
        biases = scales.iter().map(|s| -((1 << (bits - 1)) as f32) * s).collect();
    }
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

fn looked_up(team: &Team, weights: &Weights, tokens: &[u32], factor: Option<f32>) -> Vec<u32> {
    let mut out = vec![f32::NAN; tokens.len() * weights.inputs()];
    embed(team, weights, tokens, factor, &mut out);
    out.iter().map(|v| v.to_bits()).collect()
}

fn agree(weights: &Weights, tokens: &[u32], factor: Option<f32>) {
    let portable = Team::with_isa(1, Isa::Portable).unwrap();
    let expected = looked_up(&portable, weights, tokens, factor);
    for threads in [1, 2, 3] {
        let team = Team::with_isa(threads, Isa::best()).unwrap();
        assert!(
            looked_up(&team, weights, tokens, factor) == expected,
            "{weights:?} {threads}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn elements_are_quant_times_scale_plus_bias_whatever_the_width(
        bits in prop::sample::select(vec![2usize, 3, 4, 5, 6, 8]),
        group in prop::sample::select(vec![16usize, 32, 64, 128]),
        groups in 1usize..5,
        outputs in 1usize..100,
        centered in any::<bool>(),
        factor in prop::option::of(0.5f32..30.0),
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        seed in any::<u32>(),
    ) {
        let groups = if group == 16 && bits % 2 == 1 { groups * 2 } else { groups };
        let team = Team::new(1).unwrap();
        let weights = quantized(&team, outputs, group * groups, bits, group, centered, seed);
        let tokens: Vec<u32> = tokens.iter().map(|token| token.index(outputs) as u32).collect();
        agree(&weights, &tokens, factor);
    }

    #[test]
    fn dense_elements_are_themselves(
        inputs in 1usize..300,
        outputs in 1usize..100,
        kind in 0usize..3,
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        seed in any::<u32>(),
    ) {
        let mut next = noise(seed);
        let elements: Vec<f32> = (0..inputs * outputs)
            .map(|_| {
                let v = next() as i32 as f32 / 1e9;
                [v, half::f16::from_f32(v).to_f32(), half::bf16::from_f32(v * 1e-8).to_f32()][kind]
            })
            .collect();
        let team = Team::new(1).unwrap();
        let weights = Weights::dense(&team, &Arena::default(), outputs, inputs, &elements).unwrap();
        let tokens: Vec<u32> = tokens.iter().map(|token| token.index(outputs) as u32).collect();
        agree(&weights, &tokens, None);
        let mut row = vec![0.0; inputs];
        for output in 0..outputs {
            weights.copy_output(output, &mut row);
            prop_assert_eq!(&row, &elements[output * inputs..][..inputs]);
        }
    }
}

#[test]
#[should_panic(expected = "output 3 of 3")]
fn a_token_beyond_the_table_is_refused() {
    let team = Team::new(1).unwrap();
    let weights = Weights::dense(&team, &Arena::default(), 3, 2, &[0.0; 6]).unwrap();
    looked_up(&team, &weights, &[3], None);
}
