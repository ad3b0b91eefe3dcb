//! How large the caches of a model get: plain arithmetic, no arrays.

use std::fmt;

use mlx_rs::Dtype;

use super::shape::{KvShape, LayerPlan};

/// Buffers grow by this many columns.
pub const GROWTH: usize = 256;

/// Positions in a panel of an own buffer.
pub const PANEL: usize = 32;

/// The columns that a buffer for `len` positions has: `len` rounded up to a multiple of [`GROWTH`].
pub fn capacity_for(len: usize) -> usize {
    len.div_ceil(GROWTH).saturating_mul(GROWTH)
}

/// The columns of a ring that `len` positions of a row have gone through: a window's at most.
pub(super) fn ring_columns_for(len: usize, window: usize) -> usize {
    capacity_for(len.min(window)).min(window)
}

/// The positions that an own buffer has room for, of a row that grows to `end` by `added`: all, or those of the window
/// of the first of the new ones to the last.
pub(super) fn own_capacity_for(end: usize, added: usize, window: Option<usize>) -> usize {
    let seen = window.map_or(end, |window| window.saturating_add(added.max(1) - 1));
    capacity_for(end.min(seen))
}

/// How caches lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvLayout {
    /// A keys and a values tensor per layer, `[rows, heads, columns, dim]`: a lone row's, or one for all rows of a
    /// batch, padded to the widest; for a recurrent layer its two tensors. For MLX's own operations.
    Columns,
    /// For each row and layer one float32 array of its own, `[heads, capacity / PANEL, panel]`. A panel holds the keys
    /// of [`PANEL`] positions transposed, `[key_dim, PANEL]`, then their values, `[PANEL, value_stride]`; position `p`
    /// lies in slot `p % capacity`. For a recurrent layer `[floats]`: the rows of the convolution's input, then the
    /// state. For kernels that write in place and take rows with buffers and lengths of their own.
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

/// How large the caches of a model get, one entry for each layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachePlan {
    layers: Vec<LayerPlan>,
    layout: KvLayout,
}

impl CachePlan {
    /// A plan of these layers, from the first to the last, laid out as columns.
    pub fn new<L: Into<LayerPlan>>(layers: Vec<L>) -> Self {
        Self {
            layers: layers.into_iter().map(|layer| layer.into().sound()).collect(),
            layout: KvLayout::Columns,
        }
    }

    /// A plan of these layers in own buffers, which are float32: that becomes their type.
    pub fn own_buffers<L: Into<LayerPlan>>(layers: Vec<L>) -> Self {
        Self {
            layers: layers
                .into_iter()
                .map(|layer| layer.into().sound().in_floats())
                .collect(),
            layout: KvLayout::OwnBuffers,
        }
    }

    /// The layers, from the first to the last.
    pub fn layers(&self) -> &[LayerPlan] {
        &self.layers
    }

    /// How they lie in memory.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// The windows of its attention layers, each once, in the order in which layers first have them; `None` is that of a
    /// layer that sees everything. A forward needs a mask for each: see [`sight`](super::Layers::sight).
    pub fn windows(&self) -> Vec<Option<usize>> {
        let mut windows = Vec::new();
        for window in self.layers.iter().filter_map(LayerPlan::sees) {
            if !windows.contains(&window) {
                windows.push(window);
            }
        }
        windows
    }

    /// Whether a row of `len` positions can be cut to any length: it can't once a window has let go of positions, nor
    /// with a recurrent layer.
    pub fn trimmable_at(&self, len: usize) -> bool {
        self.layers.iter().all(|layer| match layer {
            LayerPlan::Full(_) => true,
            LayerPlan::Sliding { window, .. } => len <= *window,
            LayerPlan::Recurrent(_) => len == 0,
        })
    }

    /// Bytes that a position takes in all attention layers, as long as no window is full.
    pub fn bytes_per_token(&self) -> u64 {
        let bytes = |layer: &LayerPlan| layer.kv().map_or(0, |kv| self.bytes_per_position(kv));
        self.layers.iter().map(bytes).sum()
    }

    fn bytes_per_position(&self, kv: KvShape) -> u64 {
        match self.layout {
            KvLayout::Columns => kv.bytes_per_column(),
            KvLayout::OwnBuffers => kv.bytes_per_own_position(),
        }
    }

    /// Bytes of what a row of `len` positions holds in all layers: no more than their window's in sliding ones, the state in
    /// recurrent ones.
    pub fn used_bytes(&self, len: usize) -> u64 {
        let used = |layer: &LayerPlan| match *layer {
            LayerPlan::Full(kv) => len as u64 * self.bytes_per_position(kv),
            LayerPlan::Sliding { kv, window } => len.min(window) as u64 * self.bytes_per_position(kv),
            LayerPlan::Recurrent(shape) if len > 0 => shape.bytes(),
            LayerPlan::Recurrent(_) => 0,
        };
        self.layers.iter().map(used).sum()
    }

    /// The most that the layouts of rows with these final lengths (prompt + max_tokens) can come to hold, if no forward
    /// feeds more than `chunk` tokens to a row: as columns, every row as wide as the widest, rounded up to a growth step;
    /// in own buffers, each rounded up for itself. A sliding layer holds its window, and in own buffers a chunk besides; a
    /// recurrent one its state. Rows that still prefill alone hold less. It never falls when a row is added or grows.
    ///
    /// ```
    /// use mlx_chat::cache::{CachePlan, KvShape, LayerPlan};
    /// use mlx_rs::Dtype;
    /// let kv = KvShape { heads: 2, key_dim: 8, value_dim: 8, dtype: Dtype::Float32 };
    /// let plan = CachePlan::new(vec![kv; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * 16 * 4);
    /// assert_eq!(plan.reserved_bytes(&[10, 257], 2048), 2 * 512 * plan.bytes_per_token());
    ///
    /// let plan = CachePlan::own_buffers(vec![kv; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * (8 + 16) * 4);
    /// assert_eq!(plan.reserved_bytes(&[10, 257], 2048), (256 + 512) * plan.bytes_per_token());
    ///
    /// let plan = CachePlan::own_buffers(vec![LayerPlan::Sliding { kv, window: 512 }]);
    /// assert_eq!(plan.reserved_bytes(&[10, 5000], 256), (256 + 768) * plan.bytes_per_token());
    /// ```
    pub fn reserved_bytes(&self, final_lengths: &[usize], chunk: usize) -> u64 {
        let longest = final_lengths.iter().copied().max().unwrap_or(0);
        let of = |layer: &LayerPlan, len: usize| -> u64 {
            let positions = match (*layer, self.layout) {
                (LayerPlan::Recurrent(shape), _) => return shape.bytes(),
                (LayerPlan::Full(_), _) => capacity_for(len),
                (LayerPlan::Sliding { window, .. }, KvLayout::Columns) => ring_columns_for(len, window),
                (LayerPlan::Sliding { window, .. }, KvLayout::OwnBuffers) => {
                    own_capacity_for(len, chunk, Some(window))
                }
            };
            let bytes = layer.kv().map_or(0, |kv| self.bytes_per_position(kv));
            (positions as u64).saturating_mul(bytes)
        };
        let row = |len: usize| {
            let layers = self.layers.iter().map(|layer| of(layer, len));
            layers.fold(0, u64::saturating_add)
        };
        match self.layout {
            KvLayout::Columns => row(longest).saturating_mul(final_lengths.len() as u64),
            KvLayout::OwnBuffers => final_lengths
                .iter()
                .fold(0, |all, &len| all.saturating_add(row(len))),
        }
    }
}

/// Bytes of one element.
pub(super) fn dtype_bytes(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Bool | Dtype::Uint8 | Dtype::Int8 => 1,
        Dtype::Uint16 | Dtype::Int16 | Dtype::Float16 | Dtype::Bfloat16 => 2,
        Dtype::Uint32 | Dtype::Int32 | Dtype::Float32 => 4,
        Dtype::Uint64 | Dtype::Int64 | Dtype::Float64 | Dtype::Complex64 => 8,
    }
}
