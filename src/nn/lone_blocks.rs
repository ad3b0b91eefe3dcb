//! The blocks of a decoder for one token of one row, where a kernel computes several of them at once.

use std::rc::Rc;

use mlx_rs::transforms::{async_eval, eval};
use mlx_rs::{Array, Dtype};

use super::cuda::{Cuda, LoneLayer, LonePlace, LoneShape, LoneWeights};
use super::{Attending, Attention, GatedMlp, Linear, Mask, NnError, RmsNorm, RopeStep, Span};
use crate::cache::BatchCache;

/// All blocks, each attention and MLP.
#[derive(Debug)]
pub struct LoneBlocks {
    cuda: Rc<Cuda>,
    attending: Attending,
    shape: LoneShape,
    layers: Vec<LoneWeights>,
}

impl LoneBlocks {
    /// Of these, whose weights it shares; nothing where there is no kernel for one of them, or they differ in shape.
    pub fn of(blocks: &[(&Attention, &GatedMlp)]) -> Option<Self> {
        let mut all: Option<Self> = None;
        for (attention, mlp) in blocks {
            let (cuda, attending, shape, weights) = of_one(attention, mlp)?;
            let all = all.get_or_insert_with(|| Self {
                cuda,
                attending,
                shape,
                layers: Vec::new(),
            });
            if (all.attending, all.shape) != (attending, shape) || !all.is_alike(&weights) {
                return None;
            }
            all.layers.push(weights);
        }
        all
    }

    /// Whether a layer has biases and norms of heads where the others do.
    fn is_alike(&self, other: &LoneWeights) -> bool {
        self.layers.first().is_none_or(|first| {
            let eps = |weights: &LoneWeights| weights.head_norms.as_ref().map(|(_, eps)| *eps);
            first.qkv_bias.is_some() == other.qkv_bias.is_some() && eps(first) == eps(other)
        })
    }

    /// `[1, features]` through all blocks; the token's keys and values are written to the cache. It is under way when this returns. Nothing is
    /// done, and nothing given, where the span is not one token of a row that holds some, in full precision.
    pub fn forward(&self, x: &Array, cache: &mut BatchCache, span: &Span) -> Result<Option<Array>, NnError> {
        let rope = span
            .ropes
            .get(self.attending.rope.unwrap_or(0))
            .and_then(RopeStep::of_tokens);
        let (Some(columns), Some((turned, periods, magnitude, _))) = (self.columns(span), rope) else {
            return Ok(None);
        };
        let turned = if self.attending.rope.is_some() { turned } else { 0 };
        let place = LonePlace {
            columns,
            rope: (turned, periods, magnitude),
        };
        let (start, before) = columns;
        let Some(held) = (cache.width() == start + before)
            .then(|| cache.grown())
            .transpose()?
            .flatten()
        else {
            return Ok(None);
        };
        let layers = self.layers.iter().zip(&held);
        let layers: Vec<LoneLayer<'_>> = layers
            .map(|(weights, held)| LoneLayer {
                weights,
                held: held.each_ref(),
            })
            .collect();
        let mut x = x.clone();
        for layers in layers.chunks(Cuda::MOST_LONE) {
            x = self.cuda.lone_blocks(&x, &self.shape, layers, &place)?;
        }
        // MLX doesn't know that the caches are written to: whatever reads them is to come later, in a graph of its own.
        async_eval([&x])?;
        Ok(Some(x))
    }

    /// The first column that the token of a span sees, and how many there are before it.
    fn columns(&self, span: &Span) -> Option<(usize, usize)> {
        let Some(Mask::Rows(rows)) = span.masks.get(self.attending.mask) else {
            return None;
        };
        let (start, count) = rows.of_one().filter(|_| span.rows == 1 && span.added == 1)?;
        Some((start, count.checked_sub(1)?))
    }
}

/// The kernels, how it attends, its shape and its weights, of a block that there is a kernel for.
fn of_one(attention: &Attention, mlp: &GatedMlp) -> Option<(Rc<Cuda>, Attending, LoneShape, LoneWeights)> {
    let (attention, cuda) = attention.by_cuda()?;
    let mlp = mlp.by_cuda()?;
    let attending = attention.attending;
    let plain = !attention.gated
        && attending.window.is_none()
        && attention.output_norm.is_none()
        && mlp.output_norm.is_none();
    let (norm, eps) = attention.norm.parts();
    let (inner_norm, inner_eps) = mlp.norm.parts();
    let shape = LoneShape {
        hidden: norm.shape().first()?.unsigned_abs() as usize,
        inner: mlp.intermediate,
        heads: attending.heads,
        scale: attending.scale,
        activation: mlp.activation,
        eps,
    };
    if !plain || eps != inner_eps || norm.dtype() != Dtype::Bfloat16 || !cuda.knows_lone(&shape) {
        return None;
    }
    let unbiased = |linear: &Linear| match linear.as_rows()? {
        (rows, None) => Some(rows),
        (_, Some(_)) => None,
    };
    let (qkv, qkv_bias) = attention.qkv.as_rows()?;
    let weights = LoneWeights {
        norm: norm.clone(),
        qkv,
        qkv_bias: qkv_bias.cloned(),
        head_norms: attention.head_norms.as_ref().map(|norms| {
            let [(queries, eps), (keys, _)] = norms.each_ref().map(RmsNorm::parts);
            ([queries.clone(), keys.clone()], eps)
        }),
        output: unbiased(&attention.output)?,
        inner_norm: inner_norm.clone(),
        gate_up: unbiased(&mlp.gate_up)?,
        down: unbiased(&mlp.down)?,
    };
    // Views, made once.
    eval([&weights.qkv, &weights.output, &weights.gate_up, &weights.down]).ok()?;
    Some((Rc::clone(cuda), attending, shape, weights))
}
