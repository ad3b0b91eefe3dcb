//! Token embeddings, and the tied head that shares their weights.

use mlx_rs::error::Exception;
use mlx_rs::ops::{dequantize, matmul, quantized_matmul};
use mlx_rs::{Array, Dtype};

/// A vector of features for each token.
#[derive(Debug)]
pub struct Embedding {
    table: Table,
}

#[derive(Debug)]
enum Table {
    /// `[vocab, features]`.
    Rows(Array),
    /// `[features, vocab]`: as a tied head it is multiplied far more often than looked up, and this is how
    /// the CPU's BLAS wants it; a lookup gathers columns.
    Columns(Array),
    /// `[vocab, features]`, packed along the features.
    Affine {
        packed: Array,
        scales: Array,
        biases: Array,
        bits: i32,
        group_size: i32,
        dtype: Dtype,
    },
}

impl Embedding {
    /// A dense table `[vocab, features]`.
    pub fn rows(table: Array) -> Self {
        Self {
            table: Table::Rows(table),
        }
    }

    /// A dense table `[features, vocab]`, for one that is also the head.
    pub fn columns(table: Array) -> Self {
        Self {
            table: Table::Columns(table),
        }
    }

    /// An affine-quantized table `[vocab, features]`: see [`Linear::affine`](super::Linear::affine). Looked
    /// up rows are dequantized to `dtype`.
    pub fn affine([packed, scales, biases]: [Array; 3], bits: i32, group_size: i32, dtype: Dtype) -> Self {
        Self {
            table: Table::Affine {
                packed,
                scales,
                biases,
                bits,
                group_size,
                dtype,
            },
        }
    }

    /// The vectors of `[tokens]` ids: `[tokens, features]`.
    pub fn lookup(&self, tokens: &Array) -> Result<Array, Exception> {
        match &self.table {
            Table::Rows(table) => table.take_axis(tokens, 0),
            Table::Columns(table) => table.take_axis(tokens, 1)?.transpose()?.contiguous(),
            Table::Affine {
                packed,
                scales,
                biases,
                bits,
                group_size,
                dtype,
            } => {
                let row = |array: &Array| array.take_axis(tokens, 0);
                let biases = row(biases)?;
                dequantize(row(packed)?, row(scales)?, &biases, *group_size, *bits)?.as_dtype(*dtype)
            }
        }
    }

    /// The logits `[tokens, vocab]` of `[tokens, features]`, for a model whose head is tied to its
    /// embeddings.
    pub fn as_head(&self, x: &Array) -> Result<Array, Exception> {
        match &self.table {
            Table::Rows(table) => matmul(x, table.transpose()?),
            Table::Columns(table) => matmul(x, table),
            Table::Affine {
                packed,
                scales,
                biases,
                bits,
                group_size,
                ..
            } => quantized_matmul(x, packed, scales, biases, true, *group_size, *bits),
        }
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        self.arrays().iter().map(|array| array.nbytes() as u64).sum()
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.table {
            Table::Rows(table) | Table::Columns(table) => vec![table],
            Table::Affine {
                packed,
                scales,
                biases,
                ..
            } => vec![packed, scales, biases],
        }
    }
}
