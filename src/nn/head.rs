//! From the last block's output to logits.

use mlx_rs::Array;
use mlx_rs::error::Exception;

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

    /// The most likely token of every row: logits `[tokens, vocab]` to ids `[tokens]` uint32, the lowest on a tie.
    pub fn most_likely(&self, logits: &Array) -> Result<Array, Exception> {
        match &self.0 {
            Way::Own(..) | Way::Tied(..) => mlx_rs::ops::indexing::argmax_axis(logits, -1, false),
            Way::Kernels(kernel) => kernel.most_likely(logits),
        }
    }
}
