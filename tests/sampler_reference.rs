//! The sampler's arithmetic: mlx-lm's filters and order, and draws from given noise.

use mlx_chat::sampling::Sampling;
use mlx_chat::sampling::reference::{BadLogits, Noise, argmax, filter, log_softmax, sample};
use proptest::prelude::*;

const HOT: Sampling = Sampling {
    temperature: 1.0,
    top_p: 1.0,
    top_k: 0,
    min_p: 0.0,
    seed: None,
};

/// Logits of given probabilities.
fn logits(of: &[f32]) -> Vec<f32> {
    of.iter().map(|p| p.ln()).collect()
}

fn survivors(of: &[f32], sampling: Sampling) -> Vec<u32> {
    sample(&logits(of), &sampling, Noise::Uniform(0.5))
        .unwrap()
        .survivors
}

fn drawn(of: &[f32], sampling: Sampling, uniform: f32) -> u32 {
    sample(&logits(of), &sampling, Noise::Uniform(uniform))
        .unwrap()
        .token
}

#[test]
fn log_softmax_sums_to_one_and_ignores_a_shift() {
    let a = log_softmax(&[1.0, 2.0, 3.0]).unwrap();
    let b = log_softmax(&[1001.0, 1002.0, 1003.0]).unwrap();
    assert_eq!(a, b);
    assert!((a[2] - -0.407_605_96).abs() < 1e-6);
    assert!((a.iter().map(|x| x.exp()).sum::<f32>() - 1.0).abs() < 1e-6);
    let masked = log_softmax(&[f32::NEG_INFINITY, 0.0]).unwrap();
    assert_eq!((masked[0], masked[1]), (f32::NEG_INFINITY, 0.0));
}

#[test]
fn logits_without_a_choice_are_errors_that_say_where() {
    assert_eq!(log_softmax(&[]), Err(BadLogits::Nothing(0)));
    assert_eq!(log_softmax(&[f32::NEG_INFINITY; 3]), Err(BadLogits::Nothing(3)));
    let error = sample(&[0.0, f32::NAN], &Sampling::default(), Noise::Uniform(0.0)).unwrap_err();
    assert_eq!(error.to_string(), "the logit of token 1 is NaN");
    assert!(log_softmax(&[f32::INFINITY]).is_err());
}

#[test]
fn argmax_takes_the_lowest_of_a_tie() {
    assert_eq!(argmax(&[1.0, 3.0, 3.0, 2.0]), Some(1));
    assert_eq!(argmax(&[f32::NAN, -1.0]), Some(1));
    assert_eq!(argmax(&[]), None);
}

#[test]
fn filters_keep_what_mlx_lm_keeps() {
    let p = [0.05, 0.5, 0.1, 0.05, 0.3];
    let table: &[(Sampling, &[u32])] = &[
        (HOT, &[0, 1, 2, 3, 4]),
        // Ascending cumulative sums: 0.05 (0), 0.1 (3), 0.2 (2), 0.5 (4), 1 (1); kept are those above 1 - p.
        (Sampling { top_p: 0.45, ..HOT }, &[1]),
        (Sampling { top_p: 0.55, ..HOT }, &[1, 4]),
        (Sampling { top_p: 0.75, ..HOT }, &[1, 4]),
        (Sampling { top_p: 0.85, ..HOT }, &[1, 2, 4]),
        (Sampling { top_p: 0.93, ..HOT }, &[1, 2, 3, 4]),
        (Sampling { top_p: 0.97, ..HOT }, &[0, 1, 2, 3, 4]),
        (Sampling { top_p: 0.0, ..HOT }, &[0, 1, 2, 3, 4]),
        (Sampling { top_p: 1e-9, ..HOT }, &[1]),
        (Sampling { min_p: 0.15, ..HOT }, &[1, 2, 4]),
        (Sampling { min_p: 0.5, ..HOT }, &[1, 4]),
        (Sampling { min_p: 1.0, ..HOT }, &[1]),
        (Sampling { top_k: 1, ..HOT }, &[1]),
        (Sampling { top_k: 4, ..HOT }, &[0, 1, 2, 4]),
        (Sampling { top_k: 5, ..HOT }, &[0, 1, 2, 3, 4]),
        (Sampling { top_k: 50, ..HOT }, &[0, 1, 2, 3, 4]),
        (
            Sampling {
                top_p: 0.93,
                top_k: 3,
                ..HOT
            },
            &[1, 2, 4],
        ),
        (
            Sampling {
                top_p: 0.85,
                min_p: 0.5,
                top_k: 4,
                ..HOT
            },
            &[1, 4],
        ),
    ];
    for (sampling, expected) in table {
        assert_eq!(survivors(&p, *sampling), *expected, "{sampling:?}");
    }
}

#[test]
fn ties_stay_together_under_min_p_and_are_split_by_id_under_the_others() {
    let p = [0.25; 4];
    assert_eq!(survivors(&p, Sampling { min_p: 1.0, ..HOT }), [0, 1, 2, 3]);
    assert_eq!(survivors(&p, Sampling { top_k: 2, ..HOT }), [0, 1]);
    // A stable ascending sort puts the lower ids first, where top-p cuts.
    assert_eq!(survivors(&p, Sampling { top_p: 0.6, ..HOT }), [1, 2, 3]);
}

#[test]
fn filters_act_before_the_temperature() {
    let p = [0.6, 0.3, 0.1];
    for temperature in [0.1, 1.0, 10.0] {
        assert_eq!(
            survivors(
                &p,
                Sampling {
                    top_p: 0.85,
                    temperature,
                    ..HOT
                }
            ),
            [0, 1]
        );
    }
}

#[test]
fn a_uniform_number_draws_by_cumulative_probability() {
    let p = [0.5, 0.25, 0.25];
    for (uniform, token) in [
        (0.0, 0),
        (0.49, 0),
        (0.51, 1),
        (0.74, 1),
        (0.76, 2),
        (0.999_999, 2),
        (1.0, 2),
    ] {
        assert_eq!(drawn(&p, HOT, uniform), token, "{uniform}");
    }
    // Over what top-k leaves: 2/3, 1/3.
    assert_eq!(drawn(&p, Sampling { top_k: 2, ..HOT }, 0.65), 0);
    assert_eq!(drawn(&p, Sampling { top_k: 2, ..HOT }, 0.68), 1);
}

#[test]
fn a_high_temperature_flattens_and_a_low_one_sharpens() {
    let p = [0.2, 0.8];
    assert_eq!(drawn(&p, HOT, 0.3), 1);
    assert_eq!(
        drawn(
            &p,
            Sampling {
                temperature: 100.0,
                ..HOT
            },
            0.45
        ),
        0
    );
    assert_eq!(
        drawn(
            &p,
            Sampling {
                temperature: 0.1,
                ..HOT
            },
            0.01
        ),
        1
    );
}

#[test]
fn gumbel_noise_draws_the_greatest_sum() {
    let logits = logits(&[0.5, 0.25, 0.25]);
    let draw = |noise: &[f32], sampling| sample(&logits, &sampling, Noise::Gumbel(noise)).unwrap().token;
    assert_eq!(draw(&[0.0, 0.0, 0.0], HOT), 0);
    assert_eq!(draw(&[0.0, 0.0, 0.7], HOT), 2);
    assert_eq!(
        draw(
            &[0.0, 0.0, 0.7],
            Sampling {
                temperature: 0.5,
                ..HOT
            }
        ),
        0
    );
    assert_eq!(
        draw(&[0.0, 0.0, 9.0], Sampling { top_k: 2, ..HOT }),
        0,
        "noise can't bring back what was cut"
    );
}

fn any_sampling() -> impl Strategy<Value = Sampling> {
    (0.01f32..5.0, 0.0f32..=1.0, 0u32..12, 0.0f32..=1.0).prop_map(|(temperature, top_p, top_k, min_p)| {
        Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
            seed: None,
        }
    })
}

fn any_logits() -> impl Strategy<Value = Vec<f32>> {
    // Few distinct values, so that there are ties; some masked.
    let one =
        prop_oneof![4 => (-8i8..8).prop_map(f32::from), 4 => -30f32..30.0, 1 => Just(f32::NEG_INFINITY)];
    (0.0f32..1.0, prop::collection::vec(one, 0..12)).prop_map(|(first, mut rest)| {
        rest.insert(rest.len() / 2, first);
        rest
    })
}

proptest! {
    #[test]
    fn at_least_one_token_survives_and_the_drawn_one_did(
        logits in any_logits(), sampling in any_sampling(), uniform in 0f32..1.0
    ) {
        let draw = sample(&logits, &sampling, Noise::Uniform(uniform)).unwrap();
        prop_assert!(draw.survivors.contains(&draw.token));
        prop_assert!(logits[draw.token as usize] > f32::NEG_INFINITY);
        prop_assert!(sampling.top_k == 0 || draw.survivors.len() <= sampling.top_k as usize);
    }

    #[test]
    fn a_token_that_was_cut_is_never_likelier_than_one_that_stayed(
        logits in any_logits(), sampling in any_sampling()
    ) {
        let kept = filter(&logits, &sampling).unwrap();
        let all = log_softmax(&logits).unwrap();
        let least = (0..all.len()).filter(|&i| kept[i] > f32::NEG_INFINITY).map(|i| all[i]).fold(f32::MAX, f32::min);
        for i in 0..all.len() {
            prop_assert!(kept[i] == all[i] || (kept[i] == f32::NEG_INFINITY && all[i] <= least));
        }
    }

    #[test]
    fn greedy_does_not_depend_on_filters_or_noise(
        logits in any_logits(), sampling in any_sampling(), uniform in 0f32..1.0
    ) {
        let greedy = Sampling { temperature: 0.0, ..sampling };
        let draw = sample(&logits, &greedy, Noise::Uniform(uniform)).unwrap();
        prop_assert_eq!(Some(draw.token), argmax(&logits));
        prop_assert_eq!(draw.survivors, vec![draw.token]);
    }

    #[test]
    fn top_p_keeps_enough_and_not_one_too_many(
        logits in any_logits(), p in 0.05f32..0.95
    ) {
        let all: Vec<f32> = log_softmax(&logits).unwrap().iter().map(|lp| lp.exp()).collect();
        let kept = filter(&logits, &Sampling { top_p: p, ..HOT }).unwrap();
        let stayed: Vec<f32> = (0..all.len()).filter(|&i| kept[i] > f32::NEG_INFINITY).map(|i| all[i]).collect();
        let sum: f32 = stayed.iter().sum();
        let least = stayed.iter().copied().fold(f32::MAX, f32::min);
        prop_assert!(sum >= p - 1e-5);
        prop_assert!(stayed.len() == 1 || sum - least <= p + 1e-5);
    }
}
