//! What models are made of, over `[tokens, features]`; the one place that picks an MLX op or a CPU kernel.
//!
//! Features stay flattened to `[tokens, features]` from the embedding to the logits (a product over `[B, 1,
//! K]` takes a slower way on GPUs than one over `[B, K]`); only attention sees `[rows, heads, L, dim]`.

mod attention;
mod backend;
mod cuda;
mod delta_net;
mod embedding;
mod error;
mod head;
pub mod kernels;
mod linear;
mod lone_blocks;
pub mod mask;
mod mlp;
mod moe;
mod norm;
mod packed;
mod quantized;
mod quantized_attention;
mod residual;
mod rope;
#[cfg(test)]
mod tests;

pub use attention::{Attending, Attention, AttentionOps, Heads};
pub use backend::Backend;
pub use cuda::{Affine, Cuda};
pub use delta_net::{DeltaNet, DeltaOps, DeltaShape};
pub use embedding::Embedding;
pub use error::NnError;
pub use head::{Head, MostLikely};
pub use linear::Linear;
pub use lone_blocks::LoneBlocks;
pub use mask::Mask;
pub use mlp::{GatedMlp, MlpOps};
pub use moe::{ExpertLinear, Moe, MoeOps, SharedOps};
pub use norm::RmsNorm;
pub use packed::{Packed, Span};
pub use quantized::{Microscaling, Quantized};
pub use residual::Residual;
pub use rope::{FastRope, Offset, Positions, Rope, RopeScaling, RopeStep};

pub use cpu_kernels::linear::Activation;
use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::TryIndexOp;

/// A size as MLX takes it; no array that fits in memory has an extent past `i32`.
fn extent(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// Columns `start..end` of `[tokens, features]`.
fn features(x: &Array, start: usize, end: usize) -> Result<Array, Exception> {
    x.try_index((.., extent(start)..extent(end)))
}
