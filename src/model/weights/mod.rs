//! Files of weights: safetensors and GGUF, and what models take from either.

mod gguf;
mod gguf_names;
mod matrix;
mod microscaled;
mod noise;
mod quantization;
mod safetensors;
#[cfg(test)]
mod tests;

pub use gguf::GgufWeights;
pub use matrix::{Affine, Matrix};
pub use microscaled::Microscaled;
pub use noise::Noise;
pub use quantization::{Coding, Quantization};
pub use safetensors::SafetensorsFolder;
pub(super) use safetensors::{files, open_regular};

use std::ops::Range;

use serde::Serialize;

use super::ModelError;
use crate::nn::Backend;

/// Where a model's weights come from. Names are those of Hugging Face checkpoints:
/// `model.layers.0.mlp.up_proj`.
pub trait WeightSource {
    /// The tensors that a model must take, all of them; a quantized matrix counts once, as its `.weight`, and so do experts
    /// that the file keeps apart, as the stack that [`expert`](Self::expert) takes them from.
    fn names(&self) -> Vec<String>;

    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;

    /// Bytes that the tensor (and its scales) take in the file; 0 if there is none.
    fn bytes(&self, name: &str) -> u64;

    /// A vector of `len` elements, in float32.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError>;

    /// The shape of a tensor that is not quantized, as the file has it; none if there is none of this name.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// Some rows of the matrix `[rows, cols]` of the tensor `name`, which ends in `.weight`. A convolution's kernel may have
    /// a further dimension of one.
    fn rows(&self, name: &str, shape: [usize; 2], rows: Range<usize>) -> Result<Matrix, ModelError>;

    /// All of its rows.
    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        self.rows(name, [rows, cols], 0..rows)
    }

    /// One expert's matrix `[rows, cols]` of the stack `name`, `[experts, rows, cols]`
    /// (`model.layers.0.mlp.switch_mlp.gate_proj.weight`, `model.layers.0.mlp.experts.gate_up_proj`); or of the tensor of
    /// its own that it is in the file (`model.layers.0.mlp.experts.7.gate_proj.weight`).
    fn expert(
        &self,
        name: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError>;

    /// How the file holds most of its weights: `none (float32)`, `affine 4-bit, group 32`, `Q4_1`,
    /// `Q4_K_M, mostly Q8_0`.
    fn quantization(&self) -> String;

    /// What types its tensors are of, and how this backend holds each.
    fn holdings(&self, backend: Backend) -> Vec<Holding>;
}

/// The tensors of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holding {
    /// The type, as the file's format names it: `Q4_K`, `affine 4-bit, group 64`, `BF16`.
    pub stored: String,
    /// How many there are.
    pub tensors: usize,
    /// Their elements.
    pub elements: u64,
    /// What they are in memory: `affine 4-bit, group 32`, `dense float32`, `mxfp4`.
    pub held: String,
}

impl Holding {
    /// How a backend holds affine groups.
    fn affine(bits: usize, group_size: usize, backend: Backend) -> String {
        match backend {
            Backend::Gpu | Backend::GpuFloat32 if group_size < 32 => Self::dense(false, backend),
            _ => format!("affine {bits}-bit, group {group_size}"),
        }
    }

    /// How a backend holds floats.
    fn dense(wide: bool, backend: Backend) -> String {
        match backend {
            Backend::Gpu => "dense bfloat16".to_owned(),
            Backend::GpuFloat32 => "dense float32".to_owned(),
            Backend::Cpu if wide => "dense float32".to_owned(),
            Backend::Cpu => "dense, 16 bits where they hold it".to_owned(),
        }
    }
}

impl std::fmt::Display for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            stored,
            tensors,
            held,
            ..
        } = self;
        write!(f, "{stored} ×{tensors} as {held}")
    }
}

/// The error for rows that aren't there.
fn no_rows(name: &str, rows: &Range<usize>, of: usize) -> ModelError {
    ModelError::Misuse(format!("{name}: there are no rows {rows:?} among {of}"))
}

/// The error for an expert that isn't there.
fn no_expert(name: &str, expert: usize, experts: usize) -> ModelError {
    ModelError::Misuse(format!("{name}: there is no expert {expert} among {experts}"))
}
