//! The largest element is found wherever it is, by everyone the same.

mod support;

use cpu_kernels::{Team, argmax};
use proptest::prelude::*;
use support::teams;

fn found(team: &Team, logits: &[f32], columns: usize) -> Vec<u32> {
    let mut out = vec![u32::MAX; logits.len() / columns];
    argmax(team, logits, columns, &mut out);
    out
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
        let expected: Vec<u32> = logits
            .chunks(columns)
            .map(|row| {
                let largest = row.iter().copied().fold(f32::NAN, f32::max);
                row.iter().position(|&x| x == largest).unwrap_or(0) as u32
            })
            .collect();
        for team in teams() {
            prop_assert_eq!(&found(&team, &logits, columns), &expected, "{:?}", team);
        }
    }
}

#[test]
fn one_long_row_is_searched_to_its_end() {
    let mut logits = vec![-1.0; 262_144];
    for team in teams() {
        for at in [0, 16_383, 16_384, 200_001, 262_143] {
            logits[at] = 1.0;
            assert_eq!(found(&team, &logits, 262_144), [at as u32], "{team:?}");
            logits[at] = -1.0;
        }
    }
}

#[test]
#[should_panic(expected = "logits")]
fn logits_that_are_not_whole_rows_are_refused() {
    argmax(&Team::new(1).unwrap(), &[0.0; 7], 4, &mut [0, 0]);
}
