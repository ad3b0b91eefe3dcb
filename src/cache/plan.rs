//! How large the caches of a model get: plain arithmetic, no arrays.

use std::fmt;

use mlx_rs::Dtype;

/// Buffers grow by this many columns.
pub const GROWTH: usize = 256;

/// Positions in a panel of an own buffer.
pub const PANEL: usize = 32;

/// The columns that a buffer for `len` positions has: `len` rounded up to a multiple of [`GROWTH`].
pub fn capacity_for(len: usize) -> usize {
    len.div_ceil(GROWTH).saturating_mul(GROWTH)
}

/// How caches lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvLayout {
    /// A keys and a values tensor per layer, `[rows, heads, columns, dim]`: a lone row's, or one for all rows of a
    /// batch, padded to the widest. For MLX's own attention.
    Columns,
    /// For each row and layer one float32 array of its own, `[heads, capacity / PANEL, panel]`. A panel holds the keys
    /// of [`PANEL`] positions transposed, `[key_dim, PANEL]`, then their values, `[PANEL, value_stride]`. For kernels
    /// that write in place and take rows with buffers and lengths of their own.
    OwnBuffers,
}

impl fmt::Display for KvLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Columns => "columns",
            Self::OwnBuffers => "own buffers",
        })
    }
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
    /// Bytes of one position of one row, laid out as columns.
    pub fn bytes_per_column(&self) -> u64 {
        (self.heads * (self.key_dim + self.value_dim)) as u64 * dtype_bytes(self.dtype)
    }

    /// Elements from one position's values to the next one's in a panel: `value_dim`, rounded up to a multiple of 16.
    pub fn value_stride(&self) -> usize {
        self.value_dim.next_multiple_of(16)
    }

    /// Elements of a panel: the keys and values of [`PANEL`] positions of one head.
    pub fn panel_len(&self) -> usize {
        PANEL * (self.key_dim + self.value_stride())
    }

    /// Bytes of one position of one row in an own buffer.
    pub fn bytes_per_own_position(&self) -> u64 {
        (self.heads * (self.key_dim + self.value_stride())) as u64 * dtype_bytes(Dtype::Float32)
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
    layout: KvLayout,
}

impl CachePlan {
    /// A plan of these layers, from the first to the last, laid out as columns.
    pub fn new(layers: Vec<KvShape>) -> Self {
        Self {
            layers,
            layout: KvLayout::Columns,
        }
    }

    /// A plan of these layers in own buffers, which are float32: that becomes their type.
    pub fn own_buffers(mut layers: Vec<KvShape>) -> Self {
        for layer in &mut layers {
            layer.dtype = Dtype::Float32;
        }
        Self {
            layers,
            layout: KvLayout::OwnBuffers,
        }
    }

    /// The layers, from the first to the last.
    pub fn layers(&self) -> &[KvShape] {
        &self.layers
    }

    /// How they lie in memory.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// Bytes that one more position of one row takes in all layers.
    pub fn bytes_per_token(&self) -> u64 {
        let bytes = match self.layout {
            KvLayout::Columns => KvShape::bytes_per_column,
            KvLayout::OwnBuffers => KvShape::bytes_per_own_position,
        };
        self.layers.iter().map(bytes).sum()
    }

    /// The most that the layouts of rows with these final lengths (prompt + max_tokens) can come to hold: as columns,
    /// every row as wide as the widest, rounded up to a growth step; in own buffers, each rounded up for itself. Rows
    /// that still prefill alone hold less. It never falls when a row is added or grows.
    ///
    /// ```
    /// use mlx_chat::cache::{CachePlan, KvShape};
    /// use mlx_rs::Dtype;
    /// let layer = KvShape { heads: 2, key_dim: 8, value_dim: 8, dtype: Dtype::Float32 };
    /// let plan = CachePlan::new(vec![layer; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * 16 * 4);
    /// assert_eq!(plan.reserved_bytes(&[10, 257]), 2 * 512 * plan.bytes_per_token());
    ///
    /// let plan = CachePlan::own_buffers(vec![layer; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * (8 + 16) * 4);
    /// assert_eq!(plan.reserved_bytes(&[10, 257]), (256 + 512) * plan.bytes_per_token());
    /// ```
    pub fn reserved_bytes(&self, final_lengths: &[usize]) -> u64 {
        let capacities = final_lengths.iter().map(|&len| capacity_for(len) as u64);
        let columns = match self.layout {
            KvLayout::Columns => {
                let width = capacities.max().unwrap_or(0);
                width.saturating_mul(final_lengths.len() as u64)
            }
            KvLayout::OwnBuffers => capacities.fold(0, u64::saturating_add),
        };
        columns.saturating_mul(self.bytes_per_token())
    }
}
