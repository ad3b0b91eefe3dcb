//! Kernels of language models for CPUs: slices in, slices out.
//!
//! # The same bits, always
//! Every result is defined to the bit, by a fixed order of reduction (see [`linear`]): a row's outputs don't depend on
//! the rows beside it, on the number of threads, or on the [`Isa`]; of products with quantized weights, on the [`Arithmetic`] alone. Lanes of a vector hold different outputs, so that wider
//! vectors change nothing; where lanes are partial sums, there are 16 of them on every machine. [`Isa::Portable`] runs the
//! definitions themselves, in plain loops; tests hold the others to it.
//!
//! All work is done by a [`Team`]: threads that are started once, share out a kernel's pieces among them as each gets done,
//! and park when there is nothing to do.

#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs, clippy::undocumented_unsafe_blocks)]
// A loop over the vectors of a tile indexes several arrays at once.
#![allow(clippy::needless_range_loop)]

mod arena;
mod argmax;
pub mod attention;
pub mod delta;
mod digits;
mod embed;
pub mod experts;
mod finishing;
mod isa;
pub mod limits;
pub mod linear;
mod math;
mod packing;
mod patience;
mod reference;
mod rows;
mod shared;
mod simd;
mod team;
mod weights;

pub use arena::Arena;
pub use argmax::argmax;
pub use embed::embed;
pub use finishing::{add_normalized, multiply_by_sigmoid};
pub use isa::{Arithmetic, Isa};
pub use packing::Packing;
pub use rows::{Input, Norm, Scratch};
pub use team::Team;
pub use weights::{Affine, Float, PackError, Quants, Storage, Weights};
