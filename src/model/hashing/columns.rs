//! The hash on the device, over columns. Integers wrap there, too.

use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, floor_divide, multiply, remainder, select, sum_axes};
use mlx_rs::{Array, Dtype};

use super::arithmetic::{CONV, CONV_FACTORS, GOLDEN, HALF, LATE, PRESENT, number, term};
use crate::cache::{CacheError, LayerCache, Recurrence};
use crate::model::ModelError;
use crate::model::error::Doing;
use crate::nn::Mask;

pub(super) fn constant(value: u32) -> Array {
    Array::from_slice(&[value], &[1])
}

pub(super) fn fold(x: &Array) -> Result<Array, ModelError> {
    let high = floor_divide(x, constant(HALF)).doing("hash")?;
    times(&plus(x, &high)?, GOLDEN)
}

fn plus(a: &Array, b: &Array) -> Result<Array, ModelError> {
    a.add(b).doing("hash")
}

fn times(x: &Array, factor: u32) -> Result<Array, ModelError> {
    multiply(x, constant(factor)).doing("hash")
}

fn position_factor(position: &Array) -> Result<Array, ModelError> {
    let x = fold(&times(&plus(position, &constant(1))?, GOLDEN)?)?;
    plus(&times(&x, 2)?, &constant(1))
}

fn terms(keys: &Array, positions: &Array) -> Result<Array, ModelError> {
    let present = plus(keys, &constant(PRESENT))?;
    multiply(present, position_factor(positions)?).doing("hash")
}

/// The states of the layer after those of `state`, which came to `sum`: `[B]` each.
pub(super) fn layered(state: &Array, sum: &Array) -> Result<Array, ModelError> {
    fold(&plus(&times(state, LATE)?, sum)?)
}

/// Writes a row's tokens from `start` on to an attention layer.
pub(super) fn write(tokens: &[u32], start: usize, cache: LayerCache<'_>) -> Result<(), CacheError> {
    let shape = [1, 1, extent(tokens.len()), 1];
    let keys: Vec<u32> = tokens.iter().map(|token| token.wrapping_add(1)).collect();
    let values: Vec<u32> = (start..).take(tokens.len()).map(number).collect();
    let (keys, values) = (
        Array::from_slice(&keys, &shape),
        Array::from_slice(&values, &shape),
    );
    cache.append(&keys, &values).map(|_| ())
}

/// Writes a token `[B]` at each row's position to an attention layer, and sums up what each sees, `[B]`.
pub(super) fn see(
    tokens: &Array,
    positions: &[usize],
    cache: LayerCache<'_>,
    mask: &Mask,
) -> Result<Array, ModelError> {
    let shape = [extent(positions.len()), 1, 1, 1];
    let keys = plus(tokens, &constant(1))?.reshape(&shape).doing("hash")?;
    let positions: Vec<u32> = positions.iter().copied().map(number).collect();
    let held = cache.append(&keys, &Array::from_slice(&positions, &shape))?;
    let [keys, values] = held.in_full()?;
    let mut terms = terms(&keys, &values)?;
    if let Mask::Array(mask) = mask {
        // [B, 1, 1, S] to the keys' [B, 1, S, 1]
        let mask = mask.swap_axes(2, 3).doing("hash")?;
        terms = select(mask, terms, constant(0)).doing("hash")?;
    }
    sum_axes(&terms, &[1, 2, 3], false).doing("hash")
}

/// Takes a row's tokens from `start` on into a recurrent layer: their terms are summed up on the host.
pub(super) fn take_in(tokens: &[u32], start: usize, layer: Recurrence<'_>) -> Result<(), ModelError> {
    let keys: Vec<u32> = tokens.iter().map(|token| token.wrapping_add(1)).collect();
    let (mut factor, mut sum) = (1u32, 0u32);
    for (&key, position) in keys.iter().zip(start..) {
        factor = factor.wrapping_mul(GOLDEN);
        sum = sum.wrapping_mul(GOLDEN).wrapping_add(term(key, number(position)));
    }
    let hash = plus(&times(&unpacked(layer.state())?, factor)?, &constant(sum))?;
    let keys = Array::from_slice(&keys, &[1, extent(keys.len()), 1]);
    store(layer, &keys, &hash).map(|_| ())
}

/// Takes a token `[B]` at each row's position into a recurrent layer, and sums up what each has come to, `[B]`.
pub(super) fn run_on(
    tokens: &Array,
    positions: &[usize],
    layer: Recurrence<'_>,
) -> Result<Array, ModelError> {
    let rows = extent(positions.len());
    let positions: Vec<u32> = positions.iter().copied().map(number).collect();
    let keys = plus(tokens, &constant(1))?;
    let new = terms(&keys, &Array::from_slice(&positions, &[rows]))?;
    let hash = plus(&times(&unpacked(layer.state())?, GOLDEN)?, &new)?;
    let keys = keys.reshape(&[rows, 1, 1]).doing("hash")?;
    let conv = store(layer, &keys, &hash)?;
    let factors = Array::from_slice(&CONV_FACTORS, &[1, extent(CONV), 1]);
    let counted = multiply(conv, factors).doing("hash")?;
    plus(&hash, &sum_axes(&counted, &[1, 2], false).doing("hash")?)
}

/// Stores `[B, L, 1]` keys behind the convolution's and the hashes `[B]`; gives the convolution's input.
fn store(layer: Recurrence<'_>, keys: &Array, hash: &Array) -> Result<Array, ModelError> {
    let all = concatenate(&[layer.conv(), keys], 1).doing("hash")?;
    let columns = all.shape().get(1).copied().unwrap_or(0);
    let conv = all
        .try_index((.., columns - extent(CONV)..columns))
        .doing("hash")?;
    let state = packed(hash)?;
    layer.store(conv.clone(), state)?;
    Ok(conv)
}

/// `[B]` words as halves, `[B, 1, 1, 2]` float32.
fn packed(words: &Array) -> Result<Array, ModelError> {
    let high = floor_divide(words, constant(HALF)).doing("hash")?;
    let low = remainder(words, constant(HALF)).doing("hash")?;
    let column = |half: Array| {
        half.as_type::<f32>()
            .and_then(|half| half.reshape(&[-1, 1, 1, 1]))
    };
    let halves = [column(high).doing("hash")?, column(low).doing("hash")?];
    concatenate(&halves, 3).doing("hash")
}

/// The words again.
fn unpacked(halves: &Array) -> Result<Array, ModelError> {
    let flat = halves
        .as_dtype(Dtype::Uint32)
        .and_then(|words| words.reshape(&[-1, 2]))
        .doing("hash")?;
    let half = |at: i32| flat.try_index((.., at)).doing("hash");
    plus(&times(&half(0)?, HALF)?, &half(1)?)
}

pub(super) fn extent(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
