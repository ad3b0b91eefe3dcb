//! Normalization.

use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::{Array, fast};

use super::Cuda;

/// Root-mean-square normalization: `x / sqrt(mean(x²) + eps) · weight` over the features.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Array,
    eps: f32,
    cuda: Option<Rc<Cuda>>,
}

impl RmsNorm {
    /// Of a weight `[features]`.
    pub fn new(weight: Array, eps: f32) -> Self {
        let features = weight.shape().first().copied().unwrap_or(0).unsigned_abs() as usize;
        Self {
            weight,
            eps,
            cuda: Cuda::here().filter(|_| Cuda::can_take(features)),
        }
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        fast::rms_norm(x, Some(&self.weight), self.eps)
    }

    /// `x + more`, and that normalized: `[tokens, features]` all.
    pub fn forward_sum(&self, x: &Array, more: &Array) -> Result<[Array; 2], Exception> {
        if let Some(cuda) = &self.cuda {
            return cuda.add_norm(x, more, &self.weight, self.eps);
        }
        let sum = x.add(more)?;
        let normed = self.forward(&sum)?;
        Ok([sum, normed])
    }

    /// The weight, and what keeps rows of zeros finite.
    pub(super) fn parts(&self) -> (&Array, f32) {
        (&self.weight, self.eps)
    }
}
