//! How large the caches of a model get: plain arithmetic, no arrays.

use std::fmt;

use mlx_rs::Dtype;

use super::shape::{KvShape, LayerPlan};

/// Buffers grow by this many columns.
pub const GROWTH: usize = 256;

/// Tokens of an answer for which own buffers have room before it begins; only longer answers make them grow.
const ANSWER_ROOM: usize = 256;

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
    /// batch, padded to the widest; where they are quantized, three of each: codes, scales, biases; for a recurrent layer its two tensors. For MLX's own operations.
    Columns,
    /// For each row and layer one float32 array of its own, `[heads, capacity / PANEL, panel]`. A panel holds the keys
    /// of [`PANEL`] positions transposed, `[key_dim, PANEL]`, then their values, `[PANEL, value_stride]`; position `p`
    /// lies in slot `p % capacity`. Where they are quantized, the array is of uint32, and a panel holds codes, scales and
    /// biases, as `cpu_kernels::attention::CodeLayout` says. For a recurrent layer `[floats]`: the rows of the convolution's input, then the
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

    pub(super) fn layers_mut(&mut self) -> &mut [LayerPlan] {
        &mut self.layers
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

    /// Bytes of the layouts of a row by itself, right after a forward of `added` tokens has brought it to `len` positions: a
    /// full layer's capacity is rounded up to a growth step, a sliding one holds its window and in own buffers what the
    /// forward needed besides, a recurrent one its state. It never falls as either grows.
    pub fn row_bytes(&self, len: usize, added: usize) -> u64 {
        self.row_bytes_with_room(len, added, 0)
    }

    /// [`row_bytes`](Self::row_bytes) where own buffers for all positions have room for `room` of them at least.
    fn row_bytes_with_room(&self, len: usize, added: usize, room: usize) -> u64 {
        let of = |layer: &LayerPlan| {
            let positions = match (*layer, self.layout) {
                (LayerPlan::Recurrent(shape), _) => return if len > 0 { shape.bytes() } else { 0 },
                (LayerPlan::Full(_), KvLayout::Columns) => capacity_for(len),
                (LayerPlan::Full(_), KvLayout::OwnBuffers) => capacity_for(len.max(room)),
                (LayerPlan::Sliding { window, .. }, KvLayout::Columns) => ring_columns_for(len, window),
                (LayerPlan::Sliding { window, .. }, KvLayout::OwnBuffers) => {
                    own_capacity_for(len, added, Some(window))
                }
            };
            let bytes = layer.kv().map_or(0, |kv| self.bytes_per_position(kv));
            (positions as u64).saturating_mul(bytes)
        };
        self.layers.iter().map(of).fold(0, u64::saturating_add)
    }

    /// The most that the layouts of these rows can come to hold: as columns, every row as wide as the widest; in own
    /// buffers, each what its largest forward leaves. Prompts are fed up to their last token in pieces that end at
    /// multiples of `chunk` or before, all else token by token. Rows that still prefill alone hold less. It never falls when
    /// a row is added or grows.
    ///
    /// ```
    /// use mlx_chat::cache::{CachePlan, KvShape, LayerPlan, Need};
    /// let kv = KvShape::float32(2, 8, 8);
    /// let need = |prompt, max_tokens| Need { prompt, max_tokens };
    /// let plan = CachePlan::new(vec![kv; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * 16 * 4);
    /// assert_eq!(plan.reserved_bytes(&[need(9, 1), need(1, 256)], 2048), 2 * 512 * plan.bytes_per_token());
    ///
    /// let plan = CachePlan::own_buffers(vec![kv; 3]);
    /// assert_eq!(plan.bytes_per_token(), 3 * 2 * (8 + 16) * 4);
    /// assert_eq!(plan.reserved_bytes(&[need(9, 1), need(1, 256)], 2048), (256 + 512) * plan.bytes_per_token());
    /// // Alone, the last token is never fed.
    /// assert_eq!(plan.reserved_bytes(&[need(1, 256)], 2048), 256 * plan.bytes_per_token());
    ///
    /// let plan = CachePlan::own_buffers(vec![LayerPlan::Sliding { kv, window: 512 }]);
    /// assert_eq!(plan.reserved_bytes(&[need(4000, 1000)], 256), 768 * plan.bytes_per_token());
    /// assert_eq!(plan.reserved_bytes(&[need(1, 4999)], 256), 512 * plan.bytes_per_token());
    /// ```
    pub fn reserved_bytes(&self, rows: &[Need], chunk: usize) -> u64 {
        let alone = rows.len() == 1;
        match self.layout {
            KvLayout::Columns => {
                let longest = rows.iter().map(|need| need.most_fed(alone)).max().unwrap_or(0);
                self.row_bytes(longest, 1).saturating_mul(rows.len() as u64)
            }
            KvLayout::OwnBuffers => rows
                .iter()
                .map(|need| self.most_bytes(*need, alone, chunk.max(1)))
                .fold(0, u64::saturating_add),
        }
    }

    /// What the largest of a row's forwards leaves: the last whole piece, the rest of the prompt, or the last token's.
    fn most_bytes(&self, need: Need, alone: bool, chunk: usize) -> u64 {
        let pieces = need.prompt.saturating_sub(1);
        let rest = pieces % chunk;
        let forwards = [(pieces - rest, chunk), (pieces, rest), (need.most_fed(alone), 1)];
        let room = need.likely_length();
        let bytes = forwards
            .iter()
            .map(|&(len, added)| self.row_bytes_with_room(len, added, room));
        bytes.max().unwrap_or(0)
    }
}

/// How long a row can come to be, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// The most tokens to generate.
    pub max_tokens: usize,
}

impl Need {
    /// Positions at the row's end: prompt + max_tokens.
    pub fn final_length(&self) -> usize {
        self.prompt.saturating_add(self.max_tokens)
    }

    /// The same row once its prompt is fed up to the last token: the rest goes token by token.
    pub fn after_prefill(&self) -> Self {
        let prompt = self.prompt.min(1);
        Self {
            prompt,
            max_tokens: self.final_length() - prompt,
        }
    }

    /// The positions for which own buffers have room from the prompt's first piece on: the prompt and the beginning of the answer,
    /// and no more than the row comes to alone.
    pub fn likely_length(&self) -> usize {
        self.most_fed(true).min(self.prompt.saturating_add(ANSWER_ROOM))
    }

    /// The most positions that it ever holds. Its last token is fed only beside others, whose step it takes part in before
    /// that token has been read.
    fn most_fed(&self, alone: bool) -> usize {
        self.prompt
            .saturating_add(self.max_tokens.saturating_sub(usize::from(alone)))
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
