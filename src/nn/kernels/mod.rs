//! Our own code as operations in MLX's graph, on the CPU.

mod node;

pub use mlx_sys::bridge::{TensorView, TensorViewMut};
pub use node::{InPlaceNode, Node, RoomMut};
