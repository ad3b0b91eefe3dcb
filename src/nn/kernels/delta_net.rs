//! The gated delta rule's half of a block as one node.

use std::sync::Arc;

use cpu_kernels::delta::{self, DeltaShape, Segment, update};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights};
use mlx_rs::{Array, Dtype};

use super::team::{Kernels, ROWS, Workspace, floats};
use super::{HostNorm, InPlaceNode, RoomMut, input, output, rooms};
use crate::cache::LayerCache;
use crate::nn::{NnError, Span};

/// What the node computes with.
#[derive(Debug)]
pub struct DeltaWeights {
    /// Before it.
    pub norm: HostNorm,
    /// Whose outputs are queries, keys, values, `z`, `b` and `a`, one after the other: `[width, features]` in all.
    pub projections: Vec<Arc<Weights>>,
    /// How many heads, and how wide.
    pub shape: DeltaShape,
    /// `[kernel, conv_features]`, the tap of the oldest token first.
    pub conv: Vec<f32>,
    /// `[value_heads]`.
    pub a_log: Vec<f32>,
    /// `[value_heads]`.
    pub dt_bias: Vec<f32>,
    /// Of each head's output, `[value_dim]`.
    pub head_norm: HostNorm,
    /// `[features, value_heads · value_dim]`.
    pub output: Arc<Weights>,
}

/// `x + output(delta(projections(norm(x))))`, over rows with states of their own.
#[derive(Debug)]
pub struct KernelDeltaNet {
    forward: InPlaceNode,
    write: InPlaceNode,
}

/// Shared by the two nodes.
struct Inner {
    kernels: Arc<Kernels>,
    weights: DeltaWeights,
}

impl KernelDeltaNet {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: DeltaWeights) -> Self {
        let inner = Arc::new(Inner {
            kernels: Arc::clone(kernels),
            weights,
        });
        let writer = Arc::clone(&inner);
        Self {
            forward: InPlaceNode::new("GatedDeltaNet", move |inputs, rooms, outputs| {
                let (x, y) = (input::<f32>(&inputs[0]), output::<f32>(&mut outputs[0]));
                let mut workspace = inner.kernels.workspace();
                let part = inner.part(x, rooms);
                for (x, y) in x.chunks(part).zip(y.chunks_mut(part)) {
                    inner.update(x, rooms, &mut workspace);
                    inner.finish(x, y, &mut workspace);
                }
            }),
            write: InPlaceNode::new("WriteState", move |inputs, rooms, outputs| {
                let x = input::<f32>(&inputs[0]);
                let mut workspace = writer.kernels.workspace();
                for x in x.chunks(writer.part(x, rooms)) {
                    writer.update(x, rooms, &mut workspace);
                }
                output::<f32>(&mut outputs[0]).fill(0.0);
            }),
        }
    }

    pub(in crate::nn) fn forward(
        &self,
        x: &Array,
        cache: LayerCache<'_>,
        span: &Span,
    ) -> Result<Array, NnError> {
        Self::apply(&self.forward, x, cache, span, x.shape())
    }

    pub(in crate::nn) fn write(
        &self,
        x: &Array,
        cache: LayerCache<'_>,
        span: &Span,
    ) -> Result<Array, NnError> {
        Self::apply(&self.write, x, cache, span, &[1])
    }

    fn apply(
        node: &InPlaceNode,
        x: &Array,
        cache: LayerCache<'_>,
        span: &Span,
        shape: &[i32],
    ) -> Result<Array, NnError> {
        let rooms = rooms(x, cache, span)?;
        let [y] = node.apply(&[x], &rooms, [(shape, Dtype::Float32)])?;
        Ok(y)
    }
}

impl Inner {
    /// Elements of `x` that are taken in at once: a row's tokens in parts, which bounds the memory; one token of each of
    /// several rows.
    fn part(&self, x: &[f32], rooms: &[RoomMut<'_>]) -> usize {
        match rooms {
            [_] => ROWS * self.weights.output.outputs(),
            _ => x.len().max(1),
        }
    }

    /// Takes tokens into their rows' states, and leaves what they get in the workspace's `inner`.
    fn update(&self, x: &[f32], rooms: &mut [RoomMut<'_>], workspace: &mut Workspace) {
        let weights = &self.weights;
        let (features, shape) = (weights.output.outputs(), weights.shape);
        let tokens = x.len() / features;
        let projected = floats(&mut workspace.joined, tokens * shape.width());
        let projections: Vec<&Weights> = weights.projections.iter().map(Arc::as_ref).collect();
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(x, features, Some(weights.norm.as_norm())),
            &projections,
            None,
            Output::Store(projected),
        );
        let each = tokens / rooms.len().max(1);
        let mut segments: Vec<Segment<'_>> = rooms
            .iter_mut()
            .map(|room| Segment {
                state: room.buffer,
                tokens: each,
            })
            .collect();
        let net = delta::DeltaNet {
            shape,
            conv: &weights.conv,
            a_log: &weights.a_log,
            dt_bias: &weights.dt_bias,
            norm: weights.head_norm.as_norm(),
        };
        let out = floats(&mut workspace.inner, tokens * shape.value_features());
        update(
            &self.kernels.team,
            &mut workspace.delta,
            &net,
            projected,
            &mut segments,
            out,
        );
    }

    /// From what tokens got, in the workspace's `inner`, to the block's output.
    fn finish(&self, x: &[f32], y: &mut [f32], workspace: &mut Workspace) {
        let output = &self.weights.output;
        let wide = output.inputs();
        let out = floats(&mut workspace.inner, x.len() / output.outputs() * wide);
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(out, wide, None),
            &[output],
            None,
            Output::Residual { to: y, residual: x },
        );
    }
}
