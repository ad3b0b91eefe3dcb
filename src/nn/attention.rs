//! Attention over cached keys and values.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};
use mlx_rs::ops::indexing::TryIndexOp;

use super::rope::to_heads;
use super::{Linear, Mask, Rope, RopeStep, extent, features};

/// Grouped-query attention with rotary positions.
#[derive(Debug)]
pub struct Attention {
    qkv: Linear,
    output: Linear,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

/// What the layers of one forward share.
#[derive(Debug)]
pub struct Span {
    /// Rows: 1 in prefill, B in decode.
    pub rows: usize,
    /// The tokens' rotations.
    pub rope: RopeStep,
    /// What they may not see.
    pub mask: Mask,
}

impl Attention {
    /// Of `qkv` `[in, (heads + 2 · kv_heads) · head_dim]`, queries first, then keys, then values; and
    /// `output` `[heads · head_dim, in]`.
    pub fn new(qkv: Linear, output: Linear, heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        Self {
            qkv,
            output,
            heads,
            kv_heads,
            head_dim,
        }
    }

    /// The queries, keys and values of `[rows · L, features]`, turned by their positions: `[rows, heads, L,
    /// head_dim]` each.
    pub fn project(&self, x: &Array, rope: &Rope, span: &Span) -> Result<[Array; 3], Exception> {
        let joined = self.qkv.forward(x)?;
        let tokens = joined.shape().first().copied().unwrap_or(0);
        let turned_heads = self.heads + self.kv_heads;
        let shape = |heads: usize| [tokens, extent(heads), extent(self.head_dim)];
        let split = turned_heads * self.head_dim;
        let turned = features(&joined, 0, split)?.reshape(&shape(turned_heads))?;
        let turned = rope.apply(&turned, &span.rope, span.rows)?;
        let heads = extent(self.heads);
        let queries = turned.try_index((.., ..heads))?;
        let keys = turned.try_index((.., heads..))?;
        let values = features(&joined, split, split + self.kv_heads * self.head_dim)?;
        let values = to_heads(&values.reshape(&shape(self.kv_heads))?, span.rows)?;
        Ok([queries, keys, values])
    }

    /// Queries `[rows, heads, L, dim]` over all keys and values `[rows, kv_heads, S, dim]`, to `[rows · L,
    /// features]`.
    pub fn attend(
        &self,
        queries: &Array,
        keys: &Array,
        values: &Array,
        mask: &Mask,
    ) -> Result<Array, Exception> {
        let scale = (self.head_dim as f32).sqrt().recip();
        let mask = match mask {
            Mask::None => None,
            Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
            Mask::Padding(array) => Some(ScaledDotProductAttentionMask::Array(array)),
        };
        let out = scaled_dot_product_attention(queries, keys, values, scale, mask, None)?;
        let &[rows, heads, len, dim] = out.shape() else {
            return Err(Exception::custom(format!(
                "expected four axes, found {:?}",
                out.shape()
            )));
        };
        let flat = [rows * len, heads * dim];
        let out = if len == 1 {
            out.reshape(&flat)?
        } else {
            out.transpose_axes(&[0, 2, 1, 3])?.reshape(&flat)?
        };
        self.output.forward(&out)
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        self.qkv.bytes() + self.output.bytes()
    }
}
