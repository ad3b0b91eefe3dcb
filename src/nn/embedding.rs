//! Token embeddings, and the tied head that shares their weights.

use mlx_rs::error::Exception;
use mlx_rs::ops::matmul;
use mlx_rs::{Array, Dtype};

use super::Quantized;
use super::kernels::KernelEmbedding;

/// A vector of features for each token.
#[derive(Debug)]
pub struct Embedding {
    table: Table,
    /// What looked up vectors are multiplied by, of their type. Kernels know it themselves.
    scale: Option<Array>,
}

#[derive(Debug)]
enum Table {
    /// `[vocab, features]`.
    Dense(Array),
    /// `[vocab, features]`, packed along the features; looked up in this type.
    Quantized(Quantized, Dtype),
    /// Packed for kernels.
    Kernel(KernelEmbedding),
}

impl Embedding {
    /// A dense table `[vocab, features]`.
    pub fn dense(table: Array) -> Self {
        Self {
            table: Table::Dense(table),
            scale: None,
        }
    }

    /// A quantized table `[vocab, features]`. Looked up rows are dequantized to `dtype`.
    pub fn quantized(table: Quantized, dtype: Dtype) -> Self {
        Self {
            table: Table::Quantized(table, dtype),
            scale: None,
        }
    }

    /// The same for MLX's operations, with what is looked up multiplied by `scale`, an array of one element of its type.
    pub fn scaled(self, scale: Array) -> Self {
        Self {
            scale: Some(scale),
            ..self
        }
    }

    /// An affine-quantized table: see [`Quantized::affine`].
    pub fn affine(arrays: [Array; 3], bits: i32, group_size: i32, dtype: Dtype) -> Self {
        Self::quantized(Quantized::affine(arrays, bits, group_size), dtype)
    }

    /// A table that a kernel looks up.
    pub fn kernel(kernel: KernelEmbedding) -> Self {
        Self {
            table: Table::Kernel(kernel),
            scale: None,
        }
    }

    /// The vectors of `[tokens]` ids: `[tokens, features]`.
    pub fn lookup(&self, tokens: &Array) -> Result<Array, Exception> {
        let vectors = match &self.table {
            Table::Dense(table) => table.take_axis(tokens, 0)?,
            Table::Quantized(table, dtype) => table.rows(tokens, *dtype)?,
            Table::Kernel(kernel) => kernel.lookup(tokens)?,
        };
        match &self.scale {
            Some(scale) => vectors.multiply(scale),
            None => Ok(vectors),
        }
    }

    /// The logits `[tokens, vocab]` of `[tokens, features]`, for a model whose head is tied to its
    /// embeddings.
    pub fn as_head(&self, x: &Array) -> Result<Array, Exception> {
        match &self.table {
            Table::Dense(table) => matmul(x, table.transpose()?),
            Table::Quantized(table, _) => table.product(x),
            Table::Kernel(_) => Err(Exception::custom(
                "a table of kernels is no head of MLX's operations".to_owned(),
            )),
        }
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.table {
            Table::Dense(table) => vec![table],
            Table::Quantized(table, _) => table.arrays(),
            Table::Kernel(_) => Vec::new(),
        }
    }
}
