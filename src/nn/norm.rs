//! Normalization.

use mlx_rs::error::Exception;
use mlx_rs::{Array, fast};

/// Root-mean-square normalization: `x / sqrt(mean(x²) + eps) · weight` over the features.
#[derive(Debug)]
pub struct RmsNorm {
    weight: Array,
    eps: f32,
}

impl RmsNorm {
    /// Of a weight `[features]`.
    pub fn new(weight: Array, eps: f32) -> Self {
        Self { weight, eps }
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        fast::rms_norm(x, Some(&self.weight), self.eps)
    }
}
