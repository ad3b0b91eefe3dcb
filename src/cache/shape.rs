//! What layers keep.

use mlx_rs::Dtype;

use super::KvScheme;
use super::plan::dtype_bytes;

/// What one attention layer keeps for each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Key and value heads.
    pub heads: usize,
    /// Elements of a key, per head.
    pub key_dim: usize,
    /// Elements of a value, per head.
    pub value_dim: usize,
    /// The type of both, as the model computes them.
    pub dtype: Dtype,
    /// How they are held.
    pub scheme: KvScheme,
}

impl KvShape {
    /// Of float32, in full precision.
    pub fn float32(heads: usize, key_dim: usize, value_dim: usize) -> Self {
        Self {
            heads,
            key_dim,
            value_dim,
            dtype: Dtype::Float32,
            scheme: KvScheme::Full,
        }
    }
}

/// What one recurrent layer keeps of all positions together: the last inputs of its convolution, and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecurrentShape {
    /// Rows of the convolution's input that the next token's convolution takes in: its kernel's length less 1.
    pub conv: usize,
    /// Features of such a row.
    pub conv_features: usize,
    /// Heads of the state.
    pub heads: usize,
    /// Elements of a value, per head: rows of the state's matrices.
    pub value_dim: usize,
    /// Elements of a key, per head: columns of the state's matrices.
    pub key_dim: usize,
    /// The type of the convolution's input. The state is float32 always.
    pub dtype: Dtype,
}

impl RecurrentShape {
    /// Elements of the convolution's input.
    pub fn conv_len(&self) -> usize {
        self.conv * self.conv_features
    }

    /// Elements of the state.
    pub fn state_len(&self) -> usize {
        self.heads * self.value_dim * self.key_dim
    }

    /// Bytes of one row, however many positions it has been fed.
    pub fn bytes(&self) -> u64 {
        self.conv_len() as u64 * dtype_bytes(self.dtype)
            + self.state_len() as u64 * dtype_bytes(Dtype::Float32)
    }
}

/// What one layer keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerPlan {
    /// Keys and values of every position.
    Full(KvShape),
    /// Keys and values of the last positions.
    Sliding {
        /// What it keeps of each.
        kv: KvShape,
        /// How many positions a token sees, its own among them; at least 1.
        window: usize,
    },
    /// A state that takes in one position after the other.
    Recurrent(RecurrentShape),
}

impl From<KvShape> for LayerPlan {
    fn from(kv: KvShape) -> Self {
        Self::Full(kv)
    }
}

impl LayerPlan {
    /// What an attention layer keeps for each position.
    pub fn kv(&self) -> Option<KvShape> {
        match *self {
            Self::Full(kv) | Self::Sliding { kv, .. } => Some(kv),
            Self::Recurrent(_) => None,
        }
    }

    /// How many positions an attention layer's tokens see, `Some(None)` if all; nothing for a recurrent layer.
    pub fn sees(&self) -> Option<Option<usize>> {
        match *self {
            Self::Full(_) => Some(None),
            Self::Sliding { window, .. } => Some(Some(window)),
            Self::Recurrent(_) => None,
        }
    }

    /// The same with a window of at least one position: a token sees itself.
    pub(super) fn sound(mut self) -> Self {
        if let Self::Sliding { window, .. } = &mut self {
            *window = (*window).max(1);
        }
        self
    }

    /// The same in float32.
    pub(super) fn in_floats(mut self) -> Self {
        match &mut self {
            Self::Full(kv) | Self::Sliding { kv, .. } => kv.dtype = Dtype::Float32,
            Self::Recurrent(shape) => shape.dtype = Dtype::Float32,
        }
        self
    }
}
