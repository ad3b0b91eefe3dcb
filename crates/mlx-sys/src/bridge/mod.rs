//! Rust closures as operations in MLX's lazy graph, for the CPU.
//!
//! A [`CustomOp`] wraps a closure; [`CustomOp::apply`] adds a node to the graph. When MLX evaluates that node, it
//! allocates the outputs ([`CustomOp::update`] takes an input's memory, where nobody else needs it) and queues the closure
//! on the stream's worker thread, in order with MLX's own operations, which see the result as any other array. The inputs' memory is kept until the closure has run.
//!
//! # Memory and layout
//! A [`TensorView`] describes an input by shape and strides: what a transposition or a broadcast gives isn't copied.
//! Closures that want rows one after another ask [`TensorView::as_slice`] and handle `None`, or use
//! [`TensorView::to_row_major`], or put `mlx_contiguous` before the operation. Outputs are row-contiguous and start
//! out uninitialized, but for those of [`CustomOp::update`], which start as an input of the same shape.
//!
//! # Faults
//! A closure that panics can't unwind through C++. The panic is caught, the outputs are filled with `0xff` bytes
//! (NaN in every float type; zero for booleans), and a [`Fault`] is kept for [`CustomOp::take_fault`] and
//! [`take_fault`]. Whoever reads results of such operations asks after the read, as the engine does once a step; the
//! process, the stream and all other rows go on.

mod dtype;
mod fault;
mod op;
mod view;

pub use dtype::Element;
pub use fault::{Fault, take_fault};
pub use op::{BridgeError, CustomOp, OutputSpec};
pub use view::{TensorView, TensorViewMut};
