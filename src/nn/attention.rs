//! The attention half of a block: `x + output(attention(qkv(norm(x))))`.

use std::rc::Rc;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};
use mlx_rs::ops::indexing::TryIndexOp;

use super::kernels::KernelAttention;
use super::rope::to_heads;
use super::{Linear, Mask, NnError, RmsNorm, Rope, RopeStep, extent, features};
use crate::cache::LayerCache;

/// How many heads there are, and how wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Of queries; a multiple of `kv`.
    pub queries: usize,
    /// Of keys and of values.
    pub kv: usize,
    /// Features of each.
    pub dim: usize,
}

/// What the layers of one forward share.
#[derive(Debug)]
pub struct Span {
    /// Rows: 1 in prefill, B in decode.
    pub rows: usize,
    /// The tokens' rotations.
    pub rope: RopeStep,
    /// What they may not see. Kernels know without it.
    pub mask: Mask,
}

/// Grouped-query attention with rotary positions, normalization before it and the residual around it.
#[derive(Debug)]
pub struct Attention(Way);

#[derive(Debug)]
enum Way {
    Ops(Ops),
    Kernels(KernelAttention),
}

#[derive(Debug)]
struct Ops {
    norm: RmsNorm,
    qkv: Linear,
    output: Linear,
    heads: Heads,
    rope: Rc<Rope>,
}

impl Attention {
    /// By MLX's operations, of `qkv` `[in, (queries + 2 · kv) · dim]`, queries first, then keys, then values; and
    /// `output` `[queries · dim, in]`.
    pub fn ops(norm: RmsNorm, qkv: Linear, output: Linear, heads: Heads, rope: Rc<Rope>) -> Self {
        Self(Way::Ops(Ops {
            norm,
            qkv,
            output,
            heads,
            rope,
        }))
    }

    /// By kernels.
    pub fn kernels(kernels: KernelAttention) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// `[rows · L, features]` to the same; keys and values of the new positions go to the cache.
    pub fn forward(&self, x: &Array, cache: LayerCache<'_>, span: &Span) -> Result<Array, NnError> {
        match &self.0 {
            Way::Ops(ops) => {
                let [queries, keys, values] = ops.project(x, span)?;
                let (keys, values) = cache.append(&keys, &values)?;
                Ok(x.add(ops.attend(&queries, &keys, &values, &span.mask)?)?)
            }
            Way::Kernels(kernels) => kernels.forward(x, cache, span),
        }
    }

    /// Only writes the keys and values: what the last layer of a prefill has to do. The result is nothing but what
    /// says that they are written.
    pub fn write(&self, x: &Array, cache: LayerCache<'_>, span: &Span) -> Result<Array, NnError> {
        match &self.0 {
            Way::Ops(ops) => {
                let [_, keys, values] = ops.project(x, span)?;
                Ok(cache.append(&keys, &values)?.0)
            }
            Way::Kernels(kernels) => kernels.write(x, cache, span),
        }
    }
}

impl Ops {
    /// The queries, keys and values of `[rows · L, features]`, turned by their positions: `[rows, heads, L, dim]` each.
    fn project(&self, x: &Array, span: &Span) -> Result<[Array; 3], Exception> {
        let Heads { queries, kv, dim } = self.heads;
        let joined = self.qkv.forward(&self.norm.forward(x)?)?;
        let tokens = joined.shape().first().copied().unwrap_or(0);
        let shape = |heads: usize| [tokens, extent(heads), extent(dim)];
        let split = (queries + kv) * dim;
        let turned = features(&joined, 0, split)?.reshape(&shape(queries + kv))?;
        let turned = self.rope.apply(&turned, &span.rope, span.rows)?;
        let heads = extent(queries);
        let queries = turned.try_index((.., ..heads))?;
        let keys = turned.try_index((.., heads..))?;
        let values = features(&joined, split, split + kv * dim)?;
        let values = to_heads(&values.reshape(&shape(kv))?, span.rows)?;
        Ok([queries, keys, values])
    }

    /// Queries `[rows, heads, L, dim]` over all keys and values `[rows, kv heads, S, dim]`, to `[rows · L, features]`.
    fn attend(&self, queries: &Array, keys: &Array, values: &Array, mask: &Mask) -> Result<Array, Exception> {
        let scale = (self.heads.dim as f32).sqrt().recip();
        let mask = match mask {
            Mask::None => None,
            Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
            Mask::Array(array) => Some(ScaledDotProductAttentionMask::Array(array)),
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
}
