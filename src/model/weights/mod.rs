//! Files of weights: safetensors and GGUF, and what models take from either.

mod gguf_llama;
mod matrix;
mod safetensors;

pub use gguf_llama::GgufLlama;
pub use matrix::{Affine, Matrix};
pub use safetensors::{Quantization, SafetensorsFolder};

use super::ModelError;

/// Where a model's weights come from. Names are those of Hugging Face checkpoints:
/// `model.layers.0.mlp.up_proj`.
pub trait WeightSource {
    /// The tensors that a model must take, all of them; a quantized matrix counts once, as its `.weight`.
    fn names(&self) -> Vec<String>;

    /// Whether there is a tensor of this name.
    fn has(&self, name: &str) -> bool;

    /// Bytes that the tensor (and its scales) take in the file; 0 if there is none.
    fn bytes(&self, name: &str) -> u64;

    /// A vector of `len` elements, in float32.
    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError>;

    /// The shape of a tensor that is not quantized, as the file has it; none if there is none of this name.
    fn shape(&self, name: &str) -> Option<Vec<usize>>;

    /// The matrix `[rows, cols]` of the tensor `name`, which ends in `.weight`. A convolution's kernel may have a further
    /// dimension of one.
    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError>;

    /// One expert's matrix `[rows, cols]` of the stack `name`, `[experts, rows, cols]`
    /// (`model.layers.0.mlp.switch_mlp.gate_proj.weight`); or of the tensor of its own that it is in the file
    /// (`model.layers.0.mlp.experts.7.gate_proj.weight`).
    fn expert(
        &self,
        name: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError>;

    /// How the file holds most of its weights: `none (float32)`, `affine 4-bit, group 32`, `Q4_1`.
    fn quantization(&self) -> String;
}
