//! What computes, and what that asks of weights and activations.

use mlx_rs::transforms::compile::disable_compile;
use mlx_rs::{Device, DeviceType, Dtype};

use super::Cuda;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The CPU, by kernels of our own: weights stay as they are stored, the rest is float32.
    Cpu,
    /// Metal or CUDA, by MLX's operations: weights stay quantized, the rest is bfloat16.
    Gpu,
    /// The same, with float32 for bfloat16: what both are compared with.
    GpuFloat32,
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
                Cuda::leave();
                // On the CPU, MLX compiles by starting a C++ compiler.
                disable_compile();
            }
            Self::Gpu | Self::GpuFloat32 => {
                Device::set_default(&Device::gpu());
                Cuda::enter();
            }
        }
    }

    /// The first GPU by its name, where MLX tells it: `gpu (NVIDIA H200)`.
    pub fn gpu_in_words() -> String {
        match mlx_sys::device::gpu_text(c"device_name") {
            Some(name) => format!("gpu ({name})"),
            None => "gpu".to_owned(),
        }
    }

    /// Whether MLX's operations compute, on a GPU.
    pub fn is_gpu(self) -> bool {
        self != Self::Cpu
    }

    /// The type of activations, caches and dense weights.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Cpu | Self::GpuFloat32 => Dtype::Float32,
            Self::Gpu => Dtype::Bfloat16,
        }
    }

    /// Prompt tokens that a model of so many parameters gets through in about a second. An estimate that depends on nothing
    /// else, so that a workload is cut alike wherever it runs.
    pub fn brisk_prefill(self, parameters: u64) -> usize {
        /// Multiply-adds a second of the kernels on two cores, in order of magnitude: measured 60 to 100 · 10⁹.
        const CPU_MULTIPLY_ADDS: u64 = 70_000_000_000;
        /// A step of lengths, and the least: smaller pieces would spend their time on reading the weights.
        const STEP: usize = 16;
        match self {
            Self::Cpu => {
                let tokens = CPU_MULTIPLY_ADDS / parameters.max(1);
                let tokens = usize::try_from(tokens).unwrap_or(usize::MAX);
                (tokens / STEP * STEP).max(STEP)
            }
            Self::Gpu | Self::GpuFloat32 => usize::MAX,
        }
    }
}
