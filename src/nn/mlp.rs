//! The feed-forward part of a block.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::sigmoid;

use super::{Linear, features};

/// `down(silu(gate(x)) · up(x))`, gate and up being one product.
#[derive(Debug)]
pub struct SwiGlu {
    gate_up: Linear,
    down: Linear,
    intermediate: usize,
}

impl SwiGlu {
    /// Of `gate_up` `[in, 2 · intermediate]`, the gate's outputs first, and `down` `[intermediate, in]`.
    pub fn new(gate_up: Linear, down: Linear, intermediate: usize) -> Self {
        Self {
            gate_up,
            down,
            intermediate,
        }
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        let both = self.gate_up.forward(x)?;
        let gate = features(&both, 0, self.intermediate)?;
        let up = features(&both, self.intermediate, 2 * self.intermediate)?;
        // nn::silu would compile itself anew at every call.
        let silu = gate.multiply(sigmoid(&gate)?)?;
        self.down.forward(&silu.multiply(up)?)
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> u64 {
        self.gate_up.bytes() + self.down.bytes()
    }
}
