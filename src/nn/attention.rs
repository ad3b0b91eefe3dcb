//! The attention half of a block: `x + output(attention(qkv(norm(x))))`.

use std::rc::Rc;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::fast::{ScaledDotProductAttentionMask, scaled_dot_product_attention};
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::sigmoid;

use super::cuda::{Cuda, HeadCut};
use super::kernels::KernelAttention;
use super::packed::{cut, joined};
use super::quantized_attention::over_codes;
use super::rope::to_heads;
use super::{Linear, Mask, NnError, Packed, Residual, RmsNorm, RopeStep, Span, extent, features};
use crate::cache::{LayerCache, Seen};

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

/// How a layer attends, however it is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attending {
    /// Of what heads.
    pub heads: Heads,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Which of the span's ropes turns queries and keys, if one does.
    pub rope: Option<usize>,
    /// How many positions a query sees, its own among them; all if there is no window. MLX's operations go by the mask.
    pub window: Option<usize>,
    /// Which of the span's masks hides keys. Kernels go by the window.
    pub mask: usize,
}

/// Grouped-query attention with normalization before it and the residual around it.
#[derive(Debug)]
pub struct Attention(Way);

#[derive(Debug)]
enum Way {
    Ops(Box<AttentionOps>, Option<Rc<Cuda>>),
    Kernels(KernelAttention),
}

/// The layer by MLX's operations.
#[derive(Debug)]
pub struct AttentionOps {
    /// Before it.
    pub norm: RmsNorm,
    /// `[in, (queries + 2 · kv) · dim]`: queries, then keys, then values; then, if outputs are gated, `queries · dim` more
    /// for the gates.
    pub qkv: Linear,
    /// Of each query head and each key head, `[dim]`, before they are turned.
    pub head_norms: Option<[RmsNorm; 2]>,
    /// Whether what a head has seen is multiplied by the sigmoid of its gate.
    pub gated: bool,
    /// `[queries · dim, in]`.
    pub output: Linear,
    /// Of the output, before it is added to the residual.
    pub output_norm: Option<RmsNorm>,
    /// How.
    pub attending: Attending,
}

impl Attention {
    /// By MLX's operations.
    pub fn ops(ops: AttentionOps) -> Self {
        Self(Way::Ops(Box::new(ops), Cuda::here()))
    }

    /// By kernels.
    pub fn kernels(kernels: KernelAttention) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// The layer by operations, and the kernels of CUDA that it has.
    pub(super) fn by_cuda(&self) -> Option<(&AttentionOps, &Rc<Cuda>)> {
        match &self.0 {
            Way::Ops(ops, Some(cuda)) => Some((ops, cuda)),
            Way::Ops(_, None) | Way::Kernels(_) => None,
        }
    }

    /// `[tokens, features]` to the same, of the first `put_out` spans: a last layer has to do no more for the others than
    /// to write. Keys and values of all new positions go to their caches, one for each span. Of no span, the result is
    /// nothing but what says that they are written.
    pub fn forward(
        &self,
        x: Residual,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Residual, NnError> {
        match &self.0 {
            Way::Ops(ops, cuda) => ops.forward(x, caches, packed, put_out, cuda.as_deref()),
            Way::Kernels(kernels) => Ok(kernels.forward(&x.whole()?, caches, packed, put_out)?.into()),
        }
    }
}

impl AttentionOps {
    /// As [`Attention::forward`]: all tokens together, but for each span's by itself where they attend.
    fn forward(
        &self,
        x: Residual,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
        cuda: Option<&Cuda>,
    ) -> Result<Residual, NnError> {
        let [x, normed] = x.normed(&self.norm)?;
        let projected = self.qkv.forward(&normed)?;
        let (mut seen, mut at) = (Vec::new(), 0);
        let mut written = None;
        for (cache, span) in caches.into_iter().zip(&packed.spans) {
            let tokens = cut(&projected, at, at + span.tokens())?;
            let [queries, keys, values] = self.heads(&tokens, span, cuda)?;
            let held = cache.append(&keys, &values)?;
            if seen.len() < put_out {
                seen.push(self.attend(&queries, &held, span, cuda)?);
            }
            written = Some(held.written().clone());
            at += span.tokens();
        }
        if let Some(written) = written.filter(|_| seen.is_empty()) {
            return Ok(written.into());
        }
        let tokens = packed.tokens(put_out);
        let seen = self.gate(joined(&seen)?, &cut(&projected, 0, tokens)?)?;
        let mut output = self.output.forward(&seen)?;
        if let Some(norm) = &self.output_norm {
            output = norm.forward(&output)?;
        }
        Ok(Residual::sum(cut(&x, 0, tokens)?, output))
    }

    /// The queries, keys and values of a projection `[rows · L, …]`, normalized and turned by their positions: `[rows,
    /// heads, L, dim]` each.
    fn heads(&self, joined: &Array, span: &Span, cuda: Option<&Cuda>) -> Result<[Array; 3], Exception> {
        let Heads { queries, kv, dim } = self.attending.heads;
        // A layer that turns nothing still needs to know of rows and tokens.
        let rope = span
            .ropes
            .get(self.attending.rope.unwrap_or(0))
            .and_then(RopeStep::of_tokens);
        if let (Some(cuda), Some((turned, periods, magnitude, positions))) = (cuda, rope) {
            let norms = self.head_norms.as_ref().map(|norms| {
                let [(queries, eps), (keys, _)] = norms.each_ref().map(RmsNorm::parts);
                ([queries, keys], eps)
            });
            let turns = self.attending.rope.is_some();
            return cuda.heads(
                joined,
                &HeadCut {
                    heads: self.attending.heads,
                    turned: if turns { turned } else { 0 },
                    periods,
                    magnitude,
                    norms,
                    positions,
                },
            );
        }
        let tokens = joined.shape().first().copied().unwrap_or(0);
        let part = |from: usize, heads: usize| {
            features(joined, from * dim, (from + heads) * dim)?.reshape(&[tokens, extent(heads), extent(dim)])
        };
        let values = to_heads(&part(queries + kv, kv)?, span.rows)?;
        let turned = |x: Array| {
            let x = to_heads(&x, span.rows)?;
            match self.attending.rope {
                None => Ok(x),
                Some(rope) => span
                    .ropes
                    .get(rope)
                    .ok_or_else(|| Exception::custom(format!("the span has no rope {rope}")))?
                    .apply(&x),
            }
        };
        if let Some([query_norm, key_norm]) = &self.head_norms {
            let queries = query_norm.forward(&part(0, queries)?)?;
            let keys = key_norm.forward(&part(self.attending.heads.queries, kv)?)?;
            return Ok([turned(queries)?, turned(keys)?, values]);
        }
        // Both at once.
        let both = turned(part(0, queries + kv)?)?;
        let heads = extent(queries);
        let queries = both.try_index((.., ..heads))?;
        let keys = both.try_index((.., heads..))?;
        Ok([queries, keys, values])
    }

    /// Queries `[rows, heads, L, dim]` over all keys and values `[rows, kv heads, S, dim]`, to `[rows · L, heads · dim]`.
    fn attend(
        &self,
        queries: &Array,
        held: &Seen,
        span: &Span,
        cuda: Option<&Cuda>,
    ) -> Result<Array, NnError> {
        let Attending {
            heads, scale, mask, ..
        } = self.attending;
        let Some(mask) = span.masks.get(mask) else {
            return Err(Exception::custom(format!("the span has no mask {mask}")).into());
        };
        if let (Some(cuda), Mask::Rows(rows)) = (cuda, mask)
            && Cuda::can_attend(heads)
        {
            return Ok(cuda.attend(queries, held, rows.seen(), heads, scale)?);
        }
        let mask = match mask {
            Mask::Rows(rows) => rows.mask(),
            mask => mask,
        };
        let out = match held {
            Seen::Quantized { by, .. } if cuda.is_none() => {
                let queries = queries.multiply(Array::from_f32(scale).as_dtype(queries.dtype())?)?;
                over_codes(&queries, held.codes()?, *by, mask)?
            }
            // MLX's quantized products on CUDA are for some shapes only.
            Seen::Full { .. } | Seen::Quantized { .. } => {
                let mask = match mask {
                    Mask::None | Mask::Rows(_) => None,
                    Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
                    Mask::Array(array) => Some(ScaledDotProductAttentionMask::Array(array)),
                };
                let [keys, values] = held.in_full()?;
                scaled_dot_product_attention(queries, &keys, &values, scale, mask, None)?
            }
        };
        let &[rows, heads, len, dim] = out.shape() else {
            return Err(Exception::custom(format!("expected four axes, found {:?}", out.shape())).into());
        };
        let flat = [rows * len, heads * dim];
        if len == 1 {
            Ok(out.reshape(&flat)?)
        } else {
            Ok(out.transpose_axes(&[0, 2, 1, 3])?.reshape(&flat)?)
        }
    }

    /// What heads have seen, `[rows · L, heads · dim]`, through the gates of the projection, if there are some.
    fn gate(&self, seen: Array, joined: &Array) -> Result<Array, Exception> {
        if !self.gated {
            return Ok(seen);
        }
        let Heads { queries, kv, dim } = self.attending.heads;
        let first = (queries + 2 * kv) * dim;
        seen.multiply(sigmoid(features(joined, first, first + queries * dim)?)?)
    }
}
