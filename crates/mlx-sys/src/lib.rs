//! MLX for mlx-rs, linked from the binaries that Apple publishes.
//!
//! [`crate`] holds the raw declarations of mlx-c, as mlx-rs expects them, and [`bridge`]: Rust closures as
//! operations in MLX's lazy graph.

mod bindings;
pub mod bridge;
mod clock;

pub use bindings::*;
