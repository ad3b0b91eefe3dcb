//! A mixture of experts, the feed-forward half of a block, as one node.

use std::sync::Arc;

use cpu_kernels::Weights;
use cpu_kernels::experts::{Expert, Experts, mixture};
use mlx_rs::Array;
use mlx_rs::error::Exception;

use super::team::Kernels;
use super::{HostNorm, Node, output};

/// What the node computes with.
#[derive(Debug)]
pub struct ExpertsWeights {
    /// Before it.
    pub norm: HostNorm,
    /// `[experts, features]`.
    pub router: Arc<Weights>,
    /// All of one shape.
    pub experts: Vec<ExpertWeights>,
    /// How many of them a token gets.
    pub chosen: usize,
    /// Whether the weights of those chosen are made to sum up to 1.
    pub renormalize: bool,
    /// One that every token gets, and its router `[1, features]`.
    pub shared: Option<(ExpertWeights, Arc<Weights>)>,
}

/// A gated MLP.
#[derive(Debug)]
pub struct ExpertWeights {
    /// `[intermediate, features]`.
    pub gate: Arc<Weights>,
    /// `[intermediate, features]`.
    pub up: Arc<Weights>,
    /// `[features, intermediate]`.
    pub down: Arc<Weights>,
}

/// `x + mixture(norm(x))`.
#[derive(Debug)]
pub struct KernelExperts {
    node: Node,
}

impl KernelExperts {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: ExpertsWeights) -> Self {
        let kernels = Arc::clone(kernels);
        let node = Node::new("Experts", move |_, outputs| {
            let each: Vec<Expert<'_>> = weights.experts.iter().map(ExpertWeights::as_expert).collect();
            let experts = Experts {
                router: &weights.router,
                experts: &each,
                chosen: weights.chosen,
                renormalize: weights.renormalize,
                shared: weights
                    .shared
                    .as_ref()
                    .map(|(expert, router)| (expert.as_expert(), &**router)),
            };
            let mut workspace = kernels.workspace();
            let workspace = &mut *workspace;
            mixture(
                &kernels.team,
                &mut workspace.rows,
                &mut workspace.experts,
                Some(weights.norm.as_norm()),
                &experts,
                output(&mut outputs[0]),
            );
        });
        Self { node }
    }

    pub(in crate::nn) fn forward(&self, x: &Array) -> Result<Array, Exception> {
        self.node.update(x, &[])
    }
}

impl ExpertWeights {
    fn as_expert(&self) -> Expert<'_> {
        Expert {
            gate: &self.gate,
            up: &self.up,
            down: &self.down,
        }
    }
}
