//! Our own kernels as operations in MLX's graph, on the CPU.
//!
//! A block is two nodes, and a step of the default model about sixty: MLX lets a hundred be in flight, so that a whole
//! step can be started before the last one has ended. Within a node, kernels run one after another on the team's threads.

mod attention;
mod delta_net;
mod experts;
mod mixer;
mod mlp;
mod node;
mod team;
mod vocabulary;

pub use attention::{AttentionWeights, Gate, KernelAttention};
pub use delta_net::{DeltaWeights, KernelDeltaNet};
pub use experts::{ExpertWeights, ExpertsWeights, KernelExperts};
pub use mlp::{KernelMlp, MlpWeights};
pub use mlx_sys::bridge::{TensorView, TensorViewMut};
pub use node::{Codes, InPlaceNode, Node, RoomMut};
pub use team::Kernels;
pub use vocabulary::{KernelEmbedding, KernelHead};

use cpu_kernels::Norm;
use mlx_sys::bridge::Element;

use super::{NnError, Packed};
use crate::cache::{LayerCache, Room};

/// A normalization's weight on the host.
#[derive(Debug, Clone)]
pub struct HostNorm {
    /// `[features]`.
    pub weight: Vec<f32>,
    /// Keeps rows of zeros finite.
    pub eps: f32,
}

impl HostNorm {
    fn as_norm(&self) -> Norm<'_> {
        Norm {
            weight: &self.weight,
            eps: self.eps,
        }
    }
}

/// Room for the tokens of a forward, those of one row after those of another.
fn rooms<'a>(caches: Vec<LayerCache<'a>>, packed: &Packed) -> Result<Vec<Room<'a>>, NnError> {
    let mut rooms = Vec::new();
    for (cache, span) in caches.into_iter().zip(&packed.spans) {
        rooms.extend(cache.rooms(span.added)?);
    }
    Ok(rooms)
}

/// An input that nodes of ours have put out, or that was uploaded: without gaps. A panic is a fault of the node.
fn input<'a, T: Element>(view: &TensorView<'a>) -> &'a [T] {
    view.as_slice().expect("an input without gaps, of the right type")
}

fn output<'a, T: Element>(view: &'a mut TensorViewMut<'_>) -> &'a mut [T] {
    view.as_mut_slice().expect("an output of the right type")
}
