//! The sampler in plain arithmetic, one row at a time: what the MLX version is held against.
//!
//! Filters in mlx-lm's order (`make_sampler`: top-p, min-p, top-k), each on the untempered log-probabilities that the
//! ones before left; then a draw at the temperature.

use super::params::Sampling;

/// Logits that no token can be drawn from.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BadLogits {
    /// There is none above minus infinity.
    #[error("none of the {0} logits is above minus infinity")]
    Nothing(usize),
    /// One is not a number, or plus infinity.
    #[error("the logit of token {token} is {value}")]
    NotFinite {
        /// Whose.
        token: usize,
        /// What it is.
        value: f32,
    },
}

/// Where a draw's chance comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise<'a> {
    /// A number in [0, 1): the inverse of the cumulative distribution, in order of token ids.
    Uniform(f32),
    /// Gumbel noise `[V]`: the greatest of tempered log-probability plus noise.
    Gumbel(&'a [f32]),
}

/// A drawn token, and what it was drawn from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// The tokens that the filters left, by id; for a greedy draw, which uses no filter, the token alone.
    pub survivors: Vec<u32>,
}

/// The greatest value's place, the lowest on a tie; none if there is no number.
pub fn argmax(values: &[f32]) -> Option<u32> {
    let mut best: Option<(usize, f32)> = None;
    for (at, &value) in values.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, most)| value > most) {
            best = Some((at, value));
        }
    }
    best.map(|(at, _)| at as u32)
}

/// Log-probabilities `[V]` of logits `[V]`: `x - max - ln Σ exp(x - max)`, the sum in f64. Minus infinity is allowed.
pub fn log_softmax(logits: &[f32]) -> Result<Vec<f32>, BadLogits> {
    let broken = logits
        .iter()
        .position(|value| value.is_nan() || *value == f32::INFINITY);
    if let Some(token) = broken {
        return Err(BadLogits::NotFinite {
            token,
            value: logits[token],
        });
    }
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return Err(BadLogits::Nothing(logits.len()));
    }
    let sum: f64 = logits.iter().map(|&value| f64::from(value - max).exp()).sum();
    Ok(logits
        .iter()
        .map(|&value| (f64::from(value - max) - sum.ln()) as f32)
        .collect())
}

/// Keeps the fewest most likely tokens whose probabilities sum to `top_p`: sorted ascending (stably), those with a
/// cumulative probability above `1 - top_p`. Outside (0, 1) it keeps all. The most likely always stays.
pub fn top_p(logprobs: &mut [f32], top_p: f32) {
    if !(top_p > 0.0 && top_p < 1.0) {
        return;
    }
    let mut order: Vec<usize> = (0..logprobs.len()).collect();
    order.sort_by(|&a, &b| logprobs[a].total_cmp(&logprobs[b]));
    let Some(&last) = order.last() else { return };
    let mut cumulative = 0.0f32;
    for at in order {
        cumulative += logprobs[at].exp();
        // Rounding may leave even the whole sum at or below 1 - p.
        if cumulative <= 1.0 - top_p && at != last {
            logprobs[at] = f32::NEG_INFINITY;
        }
    }
}

/// Keeps tokens at least `min_p` times as likely as the most likely: `logprob >= max + ln(min_p)`. 0 keeps all.
pub fn min_p(logprobs: &mut [f32], min_p: f32) {
    if min_p <= 0.0 {
        return;
    }
    let max = logprobs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let threshold = max + min_p.min(1.0).ln();
    for value in logprobs {
        if *value < threshold {
            *value = f32::NEG_INFINITY;
        }
    }
}

/// Keeps the `top_k` most likely tokens, on a tie the lower ids. 0 keeps all.
pub fn top_k(logprobs: &mut [f32], top_k: usize) {
    if top_k == 0 || top_k >= logprobs.len() {
        return;
    }
    let mut order: Vec<usize> = (0..logprobs.len()).collect();
    order.sort_by(|&a, &b| logprobs[b].total_cmp(&logprobs[a]));
    for &at in &order[top_k..] {
        logprobs[at] = f32::NEG_INFINITY;
    }
}

/// Log-probabilities `[V]` after all filters, minus infinity for what they took out; not normalised again.
pub fn filter(logits: &[f32], sampling: &Sampling) -> Result<Vec<f32>, BadLogits> {
    let mut logprobs = log_softmax(logits)?;
    top_p(&mut logprobs, sampling.top_p);
    min_p(&mut logprobs, sampling.min_p);
    top_k(&mut logprobs, sampling.top_k as usize);
    Ok(logprobs)
}

/// Draws a token from logits `[V]`. At temperature 0: the most likely, whatever the filters and the noise.
pub fn sample(logits: &[f32], sampling: &Sampling, noise: Noise<'_>) -> Result<Draw, BadLogits> {
    let logprobs = filter(logits, sampling)?;
    if sampling.is_greedy() {
        let token = argmax(logits).ok_or(BadLogits::Nothing(logits.len()))?;
        return Ok(Draw {
            token,
            survivors: vec![token],
        });
    }
    let survivors: Vec<u32> = (0u32..)
        .zip(&logprobs)
        .filter(|(_, value)| **value > f32::NEG_INFINITY)
        .map(|(id, _)| id)
        .collect();
    let tempered: Vec<f32> = survivors
        .iter()
        .map(|&id| logprobs[id as usize] / sampling.temperature)
        .collect();
    let place = match noise {
        Noise::Uniform(uniform) => by_inverse(&tempered, uniform),
        Noise::Gumbel(gumbel) => {
            let noise = survivors
                .iter()
                .map(|&id| gumbel.get(id as usize).copied().unwrap_or(0.0));
            let noisy: Vec<f32> = tempered
                .iter()
                .zip(noise)
                .map(|(value, noise)| value + noise)
                .collect();
            argmax(&noisy).unwrap_or(0) as usize
        }
    };
    let token = *survivors.get(place).ok_or(BadLogits::Nothing(logits.len()))?;
    Ok(Draw { token, survivors })
}

/// The first place whose cumulative probability is above `uniform` times the whole.
fn by_inverse(tempered: &[f32], uniform: f32) -> usize {
    let max = tempered.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = tempered
        .iter()
        .map(|&value| f64::from(value - max).exp())
        .collect();
    let target = f64::from(uniform) * weights.iter().sum::<f64>();
    let mut cumulative = 0.0;
    let found = weights.iter().position(|weight| {
        cumulative += weight;
        cumulative > target
    });
    found.unwrap_or(tempered.len().saturating_sub(1))
}
