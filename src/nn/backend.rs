//! What computes, and what that asks of weights and activations.

use mlx_rs::transforms::compile::disable_compile;
use mlx_rs::{Device, DeviceType, Dtype};

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// MLX on the CPU: dense float32 weights stored `[in, out]`, since its quantized products and
    /// half-precision ones are slower by far.
    Cpu,
    /// Metal or CUDA: weights stay quantized, the rest is bfloat16.
    Gpu,
}

impl Backend {
    /// The GPU where MLX has one, else the CPU.
    pub fn detect() -> Self {
        let kind = Device::try_default().and_then(|device| device.get_type());
        if matches!(kind, Ok(DeviceType::Gpu)) {
            Self::Gpu
        } else {
            Self::Cpu
        }
    }

    /// Makes this thread's operations run here; call it first on the thread that loads and runs the model.
    pub fn enter(self) {
        match self {
            Self::Cpu => {
                Device::set_default(&Device::cpu());
                // On the CPU, MLX compiles by starting a C++ compiler.
                disable_compile();
            }
            Self::Gpu => Device::set_default(&Device::gpu()),
        }
    }

    /// The type of activations, caches and dense weights.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Cpu => Dtype::Float32,
            Self::Gpu => Dtype::Bfloat16,
        }
    }

    /// Whether quantized weights stay so.
    pub fn keeps_quantized(self) -> bool {
        self == Self::Gpu
    }
}
