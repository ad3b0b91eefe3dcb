//! The feed-forward half of a block as one node.

use std::sync::Arc;

use cpu_kernels::linear::{Activation, Output, gated, project};
use cpu_kernels::{Input, Weights, add_normalized};
use mlx_rs::Array;
use mlx_rs::error::Exception;

use super::team::{Kernels, ROWS, floats};
use super::{HostNorm, Node, output};

/// What the node computes with.
#[derive(Debug)]
pub struct MlpWeights {
    /// Before it.
    pub norm: HostNorm,
    /// `[intermediate, features]`.
    pub gate: Arc<Weights>,
    /// `[intermediate, features]`.
    pub up: Arc<Weights>,
    /// Of gate, then up: `[2 · intermediate]`.
    pub bias: Option<Vec<f32>>,
    /// What the gate goes through.
    pub activation: Activation,
    /// `[features, intermediate]`.
    pub down: Arc<Weights>,
    /// `[features]`.
    pub down_bias: Option<Vec<f32>>,
    /// Of the output, before it is added to the residual.
    pub output_norm: Option<HostNorm>,
}

/// `x + down(activation(gate(norm(x))) · up(norm(x)))`.
#[derive(Debug)]
pub struct KernelMlp {
    node: Node,
}

impl KernelMlp {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: MlpWeights) -> Self {
        let kernels = Arc::clone(kernels);
        let node = Node::new("GatedMlp", move |_, outputs| {
            let x = output::<f32>(&mut outputs[0]);
            let features = weights.down.outputs();
            let mut workspace = kernels.workspace();
            let workspace = &mut *workspace;
            for x in x.chunks_mut(ROWS * features) {
                let rows = x.len() / features;
                let inner = floats(&mut workspace.inner, rows * weights.gate.outputs());
                let normed = Input::new(x, features, Some(weights.norm.as_norm()));
                let pair = [&*weights.gate, &*weights.up];
                gated(
                    &kernels.team,
                    &mut workspace.rows,
                    normed,
                    pair,
                    weights.bias.as_deref(),
                    weights.activation,
                    inner,
                );
                let inner = Input::new(inner, weights.gate.outputs(), None);
                let (down, bias) = ([&*weights.down], weights.down_bias.as_deref());
                let Some(norm) = &weights.output_norm else {
                    let to = Output::Add(x);
                    project(&kernels.team, &mut workspace.rows, inner, &down, bias, to);
                    continue;
                };
                let out = floats(&mut workspace.joined, x.len());
                let to = Output::Store(out);
                project(&kernels.team, &mut workspace.rows, inner, &down, bias, to);
                add_normalized(&kernels.team, out, norm.as_norm(), x);
            }
        });
        Self { node }
    }

    pub(in crate::nn) fn forward(&self, x: &Array) -> Result<Array, Exception> {
        self.node.update(x, &[])
    }
}
