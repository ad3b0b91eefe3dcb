//! The feed-forward half of a block: `x + down(activation(gate(norm(x))) · up(norm(x)))`.

use std::f32::consts::{FRAC_2_SQRT_PI, SQRT_2};
use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::ops::sigmoid;
use mlx_rs::{Array, Dtype};

use super::kernels::KernelMlp;
use super::{Activation, Cuda, Linear, Residual, RmsNorm, features};

/// A gated MLP with normalization before it and the residual around it.
#[derive(Debug)]
pub struct GatedMlp(Way);

#[derive(Debug)]
enum Way {
    Ops(Box<MlpOps>, Option<Rc<Cuda>>),
    Kernels(KernelMlp),
}

/// The layer by MLX's operations.
#[derive(Debug)]
pub struct MlpOps {
    /// Before it.
    pub norm: RmsNorm,
    /// `[in, 2 · intermediate]`, the gate first.
    pub gate_up: Linear,
    /// What the gate goes through.
    pub activation: Activation,
    /// `[intermediate, in]`.
    pub down: Linear,
    /// Of the output, before it is added to the residual.
    pub output_norm: Option<RmsNorm>,
    /// Features inside.
    pub intermediate: usize,
}

impl GatedMlp {
    /// By MLX's operations.
    pub fn ops(ops: MlpOps) -> Self {
        let cuda = Cuda::here().filter(|_| Cuda::can_take(ops.intermediate));
        Self(Way::Ops(Box::new(ops), cuda))
    }

    /// By kernels.
    pub fn kernels(kernels: KernelMlp) -> Self {
        Self(Way::Kernels(kernels))
    }

    /// The layer by operations, where it has kernels of CUDA.
    pub(super) fn by_cuda(&self) -> Option<&MlpOps> {
        match &self.0 {
            Way::Ops(ops, Some(_)) => Some(ops),
            Way::Ops(_, None) | Way::Kernels(_) => None,
        }
    }

    /// `[tokens, features]` to the same.
    pub fn forward(&self, x: Residual) -> Result<Residual, Exception> {
        match &self.0 {
            Way::Ops(ops, cuda) => {
                let [x, normed] = x.normed(&ops.norm)?;
                let both = ops.gate_up.forward(&normed)?;
                let inner = match cuda {
                    Some(cuda) => cuda.gate(&both, ops.activation)?,
                    None => {
                        let gate = features(&both, 0, ops.intermediate)?;
                        let up = features(&both, ops.intermediate, 2 * ops.intermediate)?;
                        activate(&gate, ops.activation)?.multiply(up)?
                    }
                };
                let mut output = ops.down.forward(&inner)?;
                if let Some(norm) = &ops.output_norm {
                    output = norm.forward(&output)?;
                }
                Ok(Residual::sum(x, output))
            }
            Way::Kernels(kernels) => Ok(kernels.forward(&x.whole()?)?.into()),
        }
    }
}

/// The activation of every element, in the type of `x`. What `mlx_rs::nn` has would compile itself anew at every call.
pub(super) fn activate(x: &Array, activation: Activation) -> Result<Array, Exception> {
    match activation {
        Activation::Silu => x.multiply(sigmoid(x)?),
        Activation::GeluTanh => {
            // tanh(u) = 2 · sigmoid(2u) - 1, so that x / 2 · (1 + tanh(u)) is x · sigmoid(2u).
            let wide = x.as_dtype(Dtype::Float32)?;
            let cubic = wide.square()?.multiply(Array::from_f32(0.044_715))?;
            let u = wide.multiply(cubic.add(Array::from_f32(1.0))?)?;
            let twice = u.multiply(Array::from_f32(SQRT_2 * FRAC_2_SQRT_PI))?;
            wide.multiply(sigmoid(twice)?)?.as_dtype(x.dtype())
        }
    }
}
