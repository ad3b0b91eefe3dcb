//! The sampler on the device: one row's slice of the logits to one token, with that row's own key.

use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::{argmax_axis, put_along_axis, take_along_axis, topk_axis};
use mlx_rs::ops::{argsort_axis, cumsum, exp, ge, gt, logsumexp_axis, lt, max_axis, select};
use mlx_rs::random::{categorical, key};
use mlx_rs::{Array, Dtype};

use super::Sampling;

/// The most likely token of every row: `[B, V]` logits to `[B]` ids (u32), the lowest id on a tie.
pub fn greedy(logits: &Array) -> Result<Array, Exception> {
    argmax_axis(logits, -1, false)
}

/// Log-probabilities of logits: `[B, V]` to `[B, V]`.
pub fn log_softmax(logits: &Array) -> Result<Array, Exception> {
    logits.subtract(logsumexp_axis(logits, -1, true)?)
}

/// The log-probabilities of the chosen tokens: logits `[B, V]` and ids `[B]` to `[B]`.
pub fn chosen_logprobs(logits: &Array, tokens: &Array) -> Result<Array, Exception> {
    let chosen = take_along_axis(logits, tokens.expand_dims(-1)?, -1)?;
    chosen
        .subtract(logsumexp_axis(logits, -1, true)?)?
        .squeeze_axes(&[-1])
}

/// One row's draw number `index` (0 for its first token): logits `[1, V]` to an id `[1]` (u32).
///
/// The key depends on the row's seed and on `index` alone, and the draw is made over a single row, so that a row's
/// tokens don't depend on its neighbours.
pub fn sample(logits: &Array, sampling: &Sampling, seed: u64, index: usize) -> Result<Array, Exception> {
    if sampling.is_greedy() {
        return greedy(logits);
    }
    let logprobs = filtered_logprobs(logits, sampling)?;
    let tempered = logprobs.divide(Array::from_f32(sampling.temperature))?;
    categorical(&tempered, -1, None, &key(draw_seed(seed, index))?)?.as_dtype(Dtype::Uint32)
}

/// Log-probabilities `[1, V]` with every token that the filters drop at negative infinity; the order is top-p, min-p,
/// top-k, all on untempered values, as in mlx-lm.
pub fn filtered_logprobs(logits: &Array, sampling: &Sampling) -> Result<Array, Exception> {
    let mut logprobs = log_softmax(logits)?;
    if sampling.top_p > 0.0 && sampling.top_p < 1.0 {
        logprobs = top_p(&logprobs, sampling.top_p)?;
    }
    if sampling.min_p > 0.0 {
        let threshold = max_axis(&logprobs, -1, true)?.add(Array::from_f32(sampling.min_p.ln()))?;
        logprobs = keep_where(&ge(&logprobs, threshold)?, &logprobs)?;
    }
    let vocabulary = logprobs.dim(-1);
    if sampling.top_k > 0 && i64::from(sampling.top_k) < i64::from(vocabulary) {
        logprobs = top_k(&logprobs, sampling.top_k)?;
    }
    Ok(logprobs)
}

/// Keeps tokens whose cumulative probability, from the least likely up, is over `1 - p`.
fn top_p(logprobs: &Array, p: f32) -> Result<Array, Exception> {
    let ascending = argsort_axis(logprobs, -1)?;
    let sorted = take_along_axis(exp(logprobs)?, &ascending, -1)?;
    let kept = gt(cumsum(&sorted, -1, false, true)?, Array::from_f32(1.0 - p))?;
    let mask = put_along_axis(kept.logical_not()?, &ascending, &kept, -1)?;
    keep_where(&mask, logprobs)
}

/// Keeps the `k` most likely tokens (more on a tie with the last of them).
fn top_k(logprobs: &Array, k: u32) -> Result<Array, Exception> {
    let k = i32::try_from(k).unwrap_or(i32::MAX);
    let least = mlx_rs::ops::min_axis(topk_axis(logprobs, k, -1)?, -1, true)?;
    keep_where(&lt(logprobs, least)?.logical_not()?, logprobs)
}

fn keep_where(mask: &Array, logprobs: &Array) -> Result<Array, Exception> {
    select(mask, logprobs, Array::from_f32(f32::NEG_INFINITY))
}

/// Mixes a row's seed with the number of the draw (splitmix64's finaliser).
pub fn draw_seed(seed: u64, index: usize) -> u64 {
    let mut z = seed.wrapping_add((index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
