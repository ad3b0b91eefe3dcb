//! What a request may ask of the sampler.

use serde::{Deserialize, Serialize};

/// How the next token is chosen. Filters act on the untempered log-probabilities, in mlx-lm's order:
/// top-p, min-p, top-k, then a categorical draw at the temperature.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// 0 is greedy: the most likely token, the lowest id on a tie.
    pub temperature: f32,
    /// Keep the fewest most likely tokens whose probabilities sum to this; 1 (or 0) keeps all.
    pub top_p: f32,
    /// Keep this many most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Same seed, same request: same tokens, whatever else runs. Unset: drawn when the request is submitted.
    pub seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: None,
        }
    }
}

/// A sampling parameter that can't be honoured.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} is {value}, but must be {allowed}")]
pub struct BadSampling {
    /// The parameter.
    pub name: &'static str,
    /// What was given.
    pub value: f32,
    /// What would be taken.
    pub allowed: &'static str,
}

impl Sampling {
    /// The highest temperature that a person can mean: above it, all tokens are about as likely.
    pub const HOTTEST: f32 = 10.0;

    /// Whether every draw is the most likely token.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks that each parameter is in its range.
    pub fn check(&self) -> Result<(), BadSampling> {
        let bad = |name, value, allowed| Err(BadSampling { name, value, allowed });
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return bad("temperature", self.temperature, "0 (greedy) or a positive number");
        }
        if !(0.0..=1.0).contains(&self.top_p) {
            return bad("top_p", self.top_p, "between 0 and 1");
        }
        if !(0.0..=1.0).contains(&self.min_p) {
            return bad("min_p", self.min_p, "between 0 and 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_0_is_greedy_whatever_the_filters_say() {
        let filtered = Sampling {
            top_p: 0.5,
            top_k: 3,
            min_p: 0.2,
            seed: Some(1),
            ..Sampling::default()
        };
        assert!(filtered.is_greedy());
        let warm = Sampling {
            temperature: 0.1,
            ..Sampling::default()
        };
        assert!(!warm.is_greedy());
    }

    #[test]
    fn out_of_range_parameters_are_named() {
        let bad = Sampling {
            temperature: f32::NAN,
            ..Sampling::default()
        };
        assert_eq!(bad.check().unwrap_err().name, "temperature");
        let bad = Sampling {
            top_p: 1.5,
            ..Sampling::default()
        };
        assert_eq!(
            bad.check().unwrap_err().to_string(),
            "top_p is 1.5, but must be between 0 and 1"
        );
        let bad = Sampling {
            min_p: -0.1,
            ..Sampling::default()
        };
        assert_eq!(bad.check().unwrap_err().name, "min_p");
        assert!(Sampling::default().check().is_ok());
    }
}
