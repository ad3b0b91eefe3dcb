//! How positions beyond those of training are reached.

use std::f64::consts::TAU;

/// How positions beyond those of training are reached.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Llama 3: slow frequencies are divided by a factor, fast ones kept, those between blended.
    Llama3 {
        /// The factor.
        factor: f64,
        /// Wavelengths above `original_max_positions / low_freq_factor` are slow.
        low_freq_factor: f64,
        /// Wavelengths below `original_max_positions / high_freq_factor` are fast.
        high_freq_factor: f64,
        /// The positions of training.
        original_max_positions: f64,
    },
    /// YaRN (Peng et al. 2023): pairs that turn rarely within the positions of training are divided by a factor, those that
    /// turn often kept, those between blended by their index.
    Yarn {
        /// The factor.
        factor: f64,
        /// The positions of training.
        original_max_positions: f64,
        /// Pairs that turn more often than this are kept.
        beta_fast: f64,
        /// Pairs that turn less often than this are divided.
        beta_slow: f64,
        /// What turned features are multiplied by.
        magnitude: f64,
    },
    /// Each frequency is divided by its own factor: LongRoPE, and Llama 3 as GGUF files store it.
    Factors {
        /// One for each pair.
        factors: Vec<f32>,
        /// What turned features are multiplied by.
        magnitude: f64,
    },
}

impl RopeScaling {
    /// What turned features are multiplied by.
    pub fn magnitude(&self) -> f64 {
        match self {
            Self::None | Self::Linear { .. } | Self::Llama3 { .. } => 1.0,
            Self::Yarn { magnitude, .. } | Self::Factors { magnitude, .. } => *magnitude,
        }
    }

    /// Scales frequencies in radians per position, of pairs that turn by `base^(-i / pairs)`.
    pub(super) fn apply(&self, frequencies: &mut [f64], base: f64) {
        match self {
            Self::None => {}
            Self::Linear { factor } => frequencies.iter_mut().for_each(|f| *f /= factor),
            Self::Factors { factors, .. } => {
                frequencies
                    .iter_mut()
                    .zip(factors)
                    .for_each(|(f, factor)| *f /= f64::from(*factor));
            }
            Self::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_positions,
            } => {
                for f in frequencies {
                    let waves = original_max_positions * *f / TAU;
                    // 1 from the high factor up: kept; 0 from the low factor down: divided.
                    let kept = (waves - low_freq_factor) / (high_freq_factor - low_freq_factor);
                    let kept = kept.clamp(0.0, 1.0);
                    *f *= kept + (1.0 - kept) / factor;
                }
            }
            Self::Yarn {
                factor,
                original_max_positions,
                beta_fast,
                beta_slow,
                ..
            } => {
                let features = 2.0 * frequencies.len() as f64;
                // The pair that turns so often within the positions of training, as a fraction of an index.
                let pair =
                    |turns: f64| features * (original_max_positions / (turns * TAU)).ln() / (2.0 * base.ln());
                let low = pair(*beta_fast).floor().max(0.0);
                let high = pair(*beta_slow).ceil().min(features - 1.0);
                // As the paper's authors do where both are the same.
                let width = if low == high { 0.001 } else { high - low };
                for (i, f) in frequencies.iter_mut().enumerate() {
                    let divided = ((i as f64 - low) / width).clamp(0.0, 1.0);
                    *f *= 1.0 - divided + divided / factor;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions per radian of 16 features over 10 000, scaled.
    fn periods(scaling: &RopeScaling) -> Vec<f64> {
        let mut frequencies: Vec<f64> = (0..8).map(|i| 10_000f64.powf(-f64::from(i) / 8.0)).collect();
        scaling.apply(&mut frequencies, 10_000.0);
        frequencies.iter().map(|f| 1.0 / f).collect()
    }

    fn assert_periods(scaling: &RopeScaling, expected: [f64; 8]) {
        for (found, expected) in periods(scaling).into_iter().zip(expected) {
            assert!(
                (found / expected - 1.0).abs() < 1e-12,
                "{scaling:?}: {found}, {expected}"
            );
        }
    }

    fn yarn(factor: f64, original_max_positions: f64) -> RopeScaling {
        RopeScaling::Yarn {
            factor,
            original_max_positions,
            beta_fast: 32.0,
            beta_slow: 1.0,
            magnitude: 1.0,
        }
    }

    /// The numbers are those of mlx-lm's YarnRoPE, in double precision.
    #[test]
    fn yarn_keeps_fast_pairs_divides_slow_ones_and_blends_between() {
        #[rustfmt::skip]
        assert_periods(&yarn(4.0, 32.0), [
            1.0, 5.059644256269407, 40.0, 126.49110640673517, 400.0, 1264.9110640673518, 4000.0, 12649.11064067352,
        ]);
        #[rustfmt::skip]
        assert_periods(&yarn(40.0, 4096.0), [
            1.0, 3.1622776601683795, 10.0, 41.815241787350466, 195.1219512195122, 1176.6614549463739, 40000.0,
            126491.10640673518,
        ]);
    }

    #[test]
    fn llama_3_divides_what_turns_less_often_than_the_low_factor_says() {
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_positions: 64.0,
        };
        let plain = periods(&RopeScaling::None);
        let found = periods(&llama3);
        let waves = |period: f64| 64.0 / (TAU * period);
        for (plain, found) in plain.into_iter().zip(found) {
            let blended = (waves(plain) - 1.0) / 3.0;
            let expected = plain / ((1.0 - blended.clamp(0.0, 1.0)) / 8.0 + blended.clamp(0.0, 1.0));
            assert!((found / expected - 1.0).abs() < 1e-12, "{found}, {expected}");
        }
        assert_eq!(llama3.magnitude(), 1.0);
    }

    #[test]
    fn factors_divide_one_pair_each() {
        let factors = RopeScaling::Factors {
            factors: vec![1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0],
            magnitude: 1.5,
        };
        let (plain, found) = (periods(&RopeScaling::None), periods(&factors));
        assert_eq!((found[0], found[1]), (plain[0], 2.0 * plain[1]));
        assert!((found[7] / plain[7] - 4.0).abs() < 1e-12);
        assert_eq!(factors.magnitude(), 1.5);
    }
}
