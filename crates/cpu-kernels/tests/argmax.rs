//! The largest element is found wherever it is, by everyone the same.

mod support;

use cpu_kernels::{Team, argmax};
use proptest::prelude::*;
use support::teams;

/// Indices, and the largest elements.
fn found(team: &Team, logits: &[f32], columns: usize) -> (Vec<u32>, Vec<f32>) {
    let mut out = vec![u32::MAX; logits.len() / columns];
    let mut largest = vec![5.0; out.len()];
    argmax(team, logits, columns, &mut out, &mut largest);
    (out, largest)
}

/// The first of the largest numbers, and that number, or NaN where the row holds one.
fn expected(row: &[f32]) -> (u32, f32) {
    let largest = row.iter().copied().fold(f32::NAN, f32::max);
    let at = row.iter().position(|&x| x == largest).unwrap_or(0);
    let broken = row.iter().any(|x| x.is_nan());
    (at as u32, if broken { f32::NAN } else { largest })
}

fn same(a: &[f32], b: &[f32]) -> bool {
    let equal = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

fn element() -> impl Strategy<Value = f32> {
    prop_oneof![
        Just(f32::NAN),
        Just(-f32::NAN),
        Just(f32::NEG_INFINITY),
        Just(0.0),
        Just(-0.0),
        -3.0f32..3.0
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_team_finds_the_first_of_the_largest(
        columns in prop_oneof![1usize..40, 1usize..2000, 16_300usize..33_000],
        rows in 0usize..5,
        pattern in prop::collection::vec(element(), 1..9),
        peaks in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(7.0f32), Just(8.0), Just(f32::INFINITY)]), 0..4),
    ) {
        let mut logits: Vec<f32> = (0..rows * columns).map(|i| pattern[i * 7 / 5 % pattern.len()]).collect();
        for (at, peak) in peaks {
            if !logits.is_empty() {
                let at = at.index(logits.len());
                logits[at] = peak;
            }
        }
        let (indices, most): (Vec<u32>, Vec<f32>) = logits.chunks(columns).map(expected).unzip();
        for team in teams() {
            let (out, largest) = found(&team, &logits, columns);
            prop_assert_eq!(&out, &indices, "{:?}", team);
            prop_assert!(same(&largest, &most), "{:?}: {:?} for {:?}", team, largest, most);
        }
    }
}

#[test]
fn one_long_row_is_searched_to_its_end() {
    let mut logits = vec![-1.0; 262_144];
    for team in teams() {
        for at in [0, 16_383, 16_384, 200_001, 262_143] {
            logits[at] = 1.0;
            let (out, largest) = found(&team, &logits, 262_144);
            assert_eq!((out[0], largest[0]), (at as u32, 1.0), "{team:?}");
            logits[at] = -1.0;
        }
    }
}

#[test]
fn one_nan_in_a_long_row_is_seen_wherever_it_is_and_concerns_that_row_alone() {
    const COLUMNS: usize = 40_003;
    let mut logits = vec![-1.0; 3 * COLUMNS];
    logits[COLUMNS + 7] = f32::NEG_INFINITY;
    for team in teams() {
        for at in [0, 100, 16_383, 16_384, 32_767, 40_000, COLUMNS - 1] {
            logits[COLUMNS + at] = f32::NAN;
            let (_, largest) = found(&team, &logits, COLUMNS);
            assert!(
                same(&largest, &[-1.0, f32::NAN, -1.0]),
                "{team:?}: {at} {largest:?}"
            );
            logits[COLUMNS + at] = -1.0;
        }
    }
}

#[test]
#[should_panic(expected = "logits")]
fn logits_that_are_not_whole_rows_are_refused() {
    argmax(&Team::new(1).unwrap(), &[0.0; 7], 4, &mut [0, 0], &mut [0.0; 2]);
}
