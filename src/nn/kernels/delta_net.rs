//! The gated delta rule's half of a block as one node.

use std::sync::Arc;

use cpu_kernels::delta::{self, DeltaShape, Segment, update};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights};
use mlx_rs::{Array, Dtype};

use super::team::{Kernels, ROWS, Workspace, floats};
use super::{HostNorm, InPlaceNode, RoomMut, input, output, output_shape, rooms};
use crate::cache::LayerCache;
use crate::nn::{NnError, Packed};

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
                let mut outputs = y.chunks_mut(inner.part());
                for (x, at) in x.chunks(inner.part()).zip(inner.starts()) {
                    inner.update(x, at, rooms, &mut workspace);
                    if let Some(y) = outputs.next() {
                        inner.finish(&x[..y.len()], y, &mut workspace);
                    }
                }
            }),
            write: InPlaceNode::new("WriteState", move |inputs, rooms, outputs| {
                let x = input::<f32>(&inputs[0]);
                let mut workspace = writer.kernels.workspace();
                for (x, at) in x.chunks(writer.part()).zip(writer.starts()) {
                    writer.update(x, at, rooms, &mut workspace);
                }
                output::<f32>(&mut outputs[0]).fill(0.0);
            }),
        }
    }

    pub(in crate::nn) fn forward(
        &self,
        x: &Array,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        let rooms = rooms(caches, packed)?;
        let [y] = match output_shape(x, packed, put_out) {
            None => self.write.apply(&[x], &rooms, [(&[1], Dtype::Float32)])?,
            Some(shape) => self.forward.apply(&[x], &rooms, [(&shape, Dtype::Float32)])?,
        };
        Ok(y)
    }
}

impl Inner {
    /// Elements of `x` that are taken in at once, which bounds the memory.
    fn part(&self) -> usize {
        ROWS * self.weights.output.outputs()
    }

    /// The first token of each part.
    fn starts(&self) -> impl Iterator<Item = usize> {
        (0..).step_by(ROWS)
    }

    /// Takes the tokens from `at` on into their rows' states, and leaves what they get in the workspace's `inner`.
    fn update(&self, x: &[f32], at: usize, rooms: &mut [RoomMut<'_>], workspace: &mut Workspace) {
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
        let mut segments: Vec<Segment<'_>> = Vec::with_capacity(rooms.len());
        let mut end = 0;
        for room in rooms.iter_mut() {
            let first = end.max(at);
            end += room.tokens;
            if let Some(tokens) = end
                .min(at + tokens)
                .checked_sub(first)
                .filter(|&tokens| tokens > 0)
            {
                let state = &mut *room.buffer;
                segments.push(Segment { state, tokens });
            }
        }
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
