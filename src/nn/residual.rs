//! The stream that blocks add to.

use mlx_rs::Array;
use mlx_rs::error::Exception;

use super::RmsNorm;

/// `[tokens, features]`, and what the last half of a block adds to it: that is left to the next normalization, which a kernel may
/// compute along.
#[derive(Debug, Clone)]
pub struct Residual {
    x: Array,
    more: Option<Array>,
}

impl From<Array> for Residual {
    fn from(x: Array) -> Self {
        Self { x, more: None }
    }
}

impl Residual {
    /// `x + more`, not yet added.
    pub fn sum(x: Array, more: Array) -> Self {
        Self { x, more: Some(more) }
    }

    /// All of it.
    pub fn whole(self) -> Result<Array, Exception> {
        match self.more {
            None => Ok(self.x),
            Some(more) => self.x.add(more),
        }
    }

    /// All of it, and that normalized.
    pub fn normed(self, norm: &RmsNorm) -> Result<[Array; 2], Exception> {
        match self.more {
            None => {
                let normed = norm.forward(&self.x)?;
                Ok([self.x, normed])
            }
            Some(more) => norm.forward_sum(&self.x, &more),
        }
    }
}
