//! MLX for mlx-rs, linked from the binaries that Apple publishes.
//!
//! [`crate`] holds the raw declarations of mlx-c, as mlx-rs expects them, [`bridge`]: Rust closures as operations in
//! MLX's lazy graph, [`cuda`]: kernels of our own as such on NVIDIA's GPUs, and [`device`]: figures of the GPU.

mod bindings;
pub mod bridge;
mod clock;
pub mod cuda;
pub mod device;
pub mod heap;

pub use bindings::*;
