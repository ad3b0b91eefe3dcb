//! The gated delta rule's half of a block as one node.

use std::sync::Arc;

use cpu_kernels::delta::{self, DeltaShape, Segment, update};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights};
use mlx_rs::Array;

use super::mixer::{Mixer, MixerNodes};
use super::team::{Kernels, ROWS, Workspace, floats};
use super::{HostNorm, RoomMut, TensorView};
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
    nodes: MixerNodes,
}

struct Inner {
    kernels: Arc<Kernels>,
    weights: DeltaWeights,
}

impl KernelDeltaNet {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: DeltaWeights) -> Self {
        let kernels = Arc::clone(kernels);
        Self {
            nodes: MixerNodes::new("GatedDeltaNet", Inner { kernels, weights }),
        }
    }

    pub(in crate::nn) fn forward(
        &self,
        x: &Array,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        self.nodes.forward(x, &[], caches, packed, put_out)
    }
}

impl Mixer for Inner {
    fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    fn features(&self) -> usize {
        self.weights.output.outputs()
    }

    fn most_tokens(&self) -> usize {
        ROWS
    }

    /// Takes tokens into their rows' states, and leaves what they get in the workspace's `inner`.
    fn mix(
        &self,
        x: &[f32],
        at: usize,
        _: &[TensorView<'_>],
        rooms: &mut [RoomMut<'_>],
        workspace: &mut Workspace,
    ) {
        let weights = &self.weights;
        let (features, shape) = (self.features(), weights.shape);
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

    fn finish(&self, x: &mut [f32], workspace: &mut Workspace) {
        let output = &self.weights.output;
        let wide = output.inputs();
        let out = floats(&mut workspace.inner, x.len() / output.outputs() * wide);
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(out, wide, None),
            &[output],
            None,
            Output::Add(x),
        );
    }
}
