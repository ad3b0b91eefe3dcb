//! What the new tokens of a forward are given of an attention layer in columns.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::dequantize;
use mlx_rs::ops::indexing::TryIndexOp;

use super::{CacheError, Doing, KvQuantization};

/// Keys and values that new positions may see: of columns of which a [`Sight`](super::Sight) tells more.
#[derive(Debug, Clone)]
pub enum Seen {
    /// As the model computed them.
    Full {
        /// `[rows, heads, capacity, key_dim]`.
        keys: Array,
        /// `[rows, heads, capacity, value_dim]`.
        values: Array,
        /// The columns, from the first on.
        columns: usize,
    },
    /// Quantized along their last axis.
    Quantized {
        /// Codes `[rows, heads, capacity, key_dim · bits / 32]` uint32, scales and biases `[…, key_dim / group_size]`.
        keys: [Array; 3],
        /// The same of values.
        values: [Array; 3],
        /// How.
        by: KvQuantization,
        /// The columns, from the first on.
        columns: usize,
    },
}

impl Seen {
    /// One of the arrays: whoever waits for it waits for what was written.
    pub fn written(&self) -> &Array {
        match self {
            Self::Full { keys, .. } | Self::Quantized { keys: [keys, ..], .. } => keys,
        }
    }

    /// What they stand for: keys and values as in full precision.
    pub fn in_full(&self) -> Result<[Array; 2], CacheError> {
        match self {
            Self::Full {
                keys,
                values,
                columns,
            } => Ok([first(keys, *columns)?, first(values, *columns)?]),
            Self::Quantized { by, .. } => {
                let [keys, values] = self.codes()?;
                Ok([in_full(&keys, *by)?, in_full(&values, *by)?])
            }
        }
    }

    /// Codes, scales and biases of the columns' keys and values, where they are quantized.
    pub fn codes(&self) -> Result<[[Array; 3]; 2], CacheError> {
        let Self::Quantized {
            keys,
            values,
            columns,
            ..
        } = self
        else {
            return Err(CacheError::Mlx {
                doing: "look at a cache",
                source: Exception::custom("keys and values are not quantized"),
            });
        };
        let cut = |[codes, scales, biases]: &[Array; 3]| -> Result<[Array; 3], CacheError> {
            Ok([
                first(codes, *columns)?,
                first(scales, *columns)?,
                first(biases, *columns)?,
            ])
        };
        Ok([cut(keys)?, cut(values)?])
    }
}

/// The first columns: all, or a view of them.
fn first(buffer: &Array, columns: usize) -> Result<Array, CacheError> {
    let columns = super::extent(columns);
    if buffer.shape().get(2) == Some(&columns) {
        return Ok(buffer.clone());
    }
    buffer.try_index((.., .., ..columns)).doing("look at a cache")
}

/// What codes, scales and biases stand for.
pub(super) fn in_full([codes, scales, biases]: &[Array; 3], by: KvQuantization) -> Result<Array, CacheError> {
    let doing = "read a quantized cache";
    dequantize(
        codes,
        scales,
        biases,
        super::extent(by.group_size),
        super::extent(by.bits),
    )
    .doing(doing)
}
