//! From the last block's output to logits.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::argmax_axis;
use mlx_rs::ops::max_axis;

use super::kernels::KernelHead;
use super::{Embedding, Linear, RmsNorm};

/// The last normalization and the projection to the vocabulary.
#[derive(Debug)]
pub struct Head(Way);

#[derive(Debug)]
enum Way {
    Own(RmsNorm, Linear),
    Tied(RmsNorm),
    Kernels(KernelHead),
}

impl Head {
    /// By MLX's operations: `linear` `[features, vocab]`, or the embeddings.
    pub fn ops(norm: RmsNorm, linear: Option<Linear>) -> Self {
        Self(match linear {
            Some(linear) => Way::Own(norm, linear),
            None => Way::Tied(norm),
        })
    }

    /// By a kernel.
    pub fn kernel(kernel: KernelHead) -> Self {
        Self(Way::Kernels(kernel))
    }

    /// The logits of `[tokens, features]`: `[tokens, vocab]` float32.
    pub fn forward(&self, x: &Array, embedding: &Embedding) -> Result<Array, Exception> {
        match &self.0 {
            Way::Own(norm, linear) => linear.forward(&norm.forward(x)?)?.as_type::<f32>(),
            Way::Tied(norm) => embedding.as_head(&norm.forward(x)?)?.as_type::<f32>(),
            Way::Kernels(kernel) => kernel.logits(x),
        }
    }

    /// What is most likely by logits `[tokens, vocab]`.
    pub fn most_likely(&self, logits: &Array) -> Result<MostLikely, Exception> {
        match &self.0 {
            Way::Own(..) | Way::Tied(..) => MostLikely::by_ops(logits),
            Way::Kernels(kernel) => kernel.most_likely(logits),
        }
    }
}

/// The most likely token of every row.
#[derive(Debug, Clone)]
pub struct MostLikely {
    /// Ids `[rows]` uint32, the lowest on a tie; where no logit is a number, any id of the vocabulary.
    pub tokens: Array,
    /// Their logits, `[rows]` float32: NaN where any logit of the row is.
    pub logits: Array,
}

impl MostLikely {
    /// By MLX's operations, of logits `[rows, vocab]` float32.
    pub fn by_ops(logits: &Array) -> Result<Self, Exception> {
        Ok(Self {
            tokens: argmax_axis(logits, -1, false)?,
            // A maximum is NaN where an element is.
            logits: max_axis(logits, -1, false)?,
        })
    }
}
