//! How large the caches of a model get: plain arithmetic, no arrays.

use mlx_rs::Dtype;

/// Buffers grow by this many columns.
pub const GROWTH: usize = 256;

/// The columns that a buffer for `len` positions has: `len` rounded up to a multiple of [`GROWTH`].
pub fn capacity_for(len: usize) -> usize {
    len.div_ceil(GROWTH).saturating_mul(GROWTH)
}

/// What one full-attention layer keeps for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Key and value heads.
    pub heads: usize,
    /// Elements of a key, per head.
    pub key_dim: usize,
    /// Elements of a value, per head.
    pub value_dim: usize,
    /// The type of both.
    pub dtype: Dtype,
}

impl KvShape {
    /// Bytes of one position of one row.
    pub fn bytes_per_column(&self) -> u64 {
        (self.heads * (self.key_dim + self.value_dim)) as u64 * dtype_bytes(self.dtype)
    }
}

/// Bytes of one element.
fn dtype_bytes(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Bool | Dtype::Uint8 | Dtype::Int8 => 1,
        Dtype::Uint16 | Dtype::Int16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
        Dtype::Uint32 | Dtype::Int32 | Dtype::Float32 => 4,
        Dtype::Uint64 | Dtype::Int64 | Dtype::Float64 | Dtype::Complex64 => 8,
    }
}

/// How large the caches of a model get, one entry for each layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePlan {
    layers: Vec<KvShape>,
}

impl CachePlan {
    /// A plan of these layers, from the first to the last.
    pub fn new(layers: Vec<KvShape>) -> Self {
        Self { layers }
    }

    /// The layers, from the first to the last.
    pub fn layers(&self) -> &[KvShape] {
        &self.layers
    }

    /// Bytes that one more position of one row takes in all layers.
    pub fn bytes_per_token(&self) -> u64 {
        self.layers.iter().map(KvShape::bytes_per_column).sum()
    }

    /// The most that the layouts of rows with these final lengths (prompt + max_tokens) can come to hold:
    /// every row as wide as the widest, rounded up to a growth step. Rows that still prefill alone hold less.
    /// It never falls when a row is added or grows.
    ///
    /// ```
    /// use mlx_chat::cache::{CachePlan, KvShape};
    /// use mlx_rs::Dtype;
    /// let layer = KvShape { heads: 2, key_dim: 8, value_dim: 8, dtype: Dtype::Float32 };
    /// let plan = CachePlan::new(vec![layer; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * 16 * 4);
    /// assert_eq!(plan.reserved_bytes(&[10, 257]), 2 * 512 * plan.bytes_per_token());
    /// ```
    pub fn reserved_bytes(&self, final_lengths: &[usize]) -> u64 {
        let width = final_lengths.iter().copied().max().map_or(0, capacity_for);
        (final_lengths.len() as u64)
            .saturating_mul(width as u64)
            .saturating_mul(self.bytes_per_token())
    }
}
