//! The feed-forward half of a block: `x + down(silu(gate(norm(x))) · up(norm(x)))`.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::sigmoid;

use super::kernels::KernelMlp;
use super::{Linear, RmsNorm, features};

/// A gated MLP with normalization before it and the residual around it.
#[derive(Debug)]
pub struct SwiGlu(Way);

#[derive(Debug)]
enum Way {
    Ops {
        norm: RmsNorm,
        gate_up: Linear,
        down: Linear,
        intermediate: usize,
    },
    Kernels(KernelMlp),
}

impl SwiGlu {
    /// By MLX's operations, of `gate_up` `[in, 2 · intermediate]`, the gate first, and `down` `[intermediate, in]`.
    pub fn ops(norm: RmsNorm, gate_up: Linear, down: Linear, intermediate: usize) -> Self {
        Self(Way::Ops {
            norm,
            gate_up,
            down,
            intermediate,
        })
    }

    /// By kernels.
    pub fn kernels(kernels: KernelMlp) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: &Array) -> Result<Array, Exception> {
        match &self.0 {
            Way::Ops {
                norm,
                gate_up,
                down,
                intermediate,
            } => {
                let both = gate_up.forward(&norm.forward(x)?)?;
                let gate = features(&both, 0, *intermediate)?;
                let up = features(&both, *intermediate, 2 * intermediate)?;
                // nn::silu would compile itself anew at every call.
                let silu = gate.multiply(sigmoid(&gate)?)?;
                x.add(down.forward(&silu.multiply(up)?)?)
            }
            Way::Kernels(kernels) => kernels.forward(x),
        }
    }
}
