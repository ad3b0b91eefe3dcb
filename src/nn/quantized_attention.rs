//! Attention over quantized keys and values by MLX's operations: two quantized products, as mlx-lm does it.

use mlx_rs::error::Exception;
use mlx_rs::ops::{quantized_matmul, select, softmax_axis};
use mlx_rs::{Array, Dtype};

use super::{Mask, extent};
use crate::cache::KvQuantization;

/// Scaled queries `[rows, heads, L, dim]` over codes, scales and biases of keys and values `[rows, kv heads, S, …]`, to
/// `[rows, heads, L, dim]`.
pub(super) fn over_codes(
    queries: &Array,
    [keys, values]: [[Array; 3]; 2],
    by: KvQuantization,
    mask: &Mask,
) -> Result<Array, Exception> {
    let &[rows, heads, len, dim] = queries.shape() else {
        let shape = queries.shape();
        return Err(Exception::custom(format!(
            "queries of shape {shape:?}, expected four axes"
        )));
    };
    let kv_heads = keys[0].shape().get(1).copied().unwrap_or(1).max(1);
    let columns = keys[0].shape().get(2).copied().unwrap_or(0);
    // The query heads of a key head side by side.
    let queries = queries.reshape(&[rows, kv_heads, heads / kv_heads, len, dim])?;
    let scores = product(&queries, &keys, by, true)?;
    let scores = match seen(mask, len, columns)? {
        None => scores,
        Some(seen) => select(&seen, &scores, least(scores.dtype())?)?,
    };
    let weights = softmax_axis(&scores, -1, true)?;
    product(&weights, &values, by, false)?.reshape(&[rows, heads, len, -1])
}

/// `[rows, kv heads, group, L, …]` by matrices of each key head.
fn product(
    x: &Array,
    [codes, scales, biases]: &[Array; 3],
    by: KvQuantization,
    transpose: bool,
) -> Result<Array, Exception> {
    let [codes, scales, biases] = [codes, scales, biases].map(|array| array.expand_dims(2));
    let (group_size, bits) = (extent(by.group_size), extent(by.bits));
    quantized_matmul(x, &codes?, &scales?, &biases?, transpose, group_size, bits)
}

/// True where a query sees a key, in shapes that go with `[rows, kv heads, group, L, S]`.
fn seen(mask: &Mask, len: i32, columns: i32) -> Result<Option<Array>, Exception> {
    match mask {
        Mask::None => Ok(None),
        Mask::Causal => {
            let own = Array::from_iter(columns - len..columns, &[len, 1]);
            let keys = Array::from_iter(0..columns, &[1, columns]);
            own.ge(&keys).map(Some)
        }
        // [rows, 1, L, S]
        Mask::Array(array) => array.expand_dims(2).map(Some),
        Mask::Rows(rows) => seen(rows.mask(), len, columns),
    }
}

/// The least score of a type: what is not seen gets it.
fn least(dtype: Dtype) -> Result<Array, Exception> {
    let least = match dtype {
        Dtype::Float16 => -65504.0,
        Dtype::Bfloat16 => f32::from_bits(0xff7f_0000),
        _ => f32::MIN,
    };
    Array::from_f32(least).as_dtype(dtype)
}
