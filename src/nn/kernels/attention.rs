//! The attention half of a block as one node.

use std::sync::Arc;

use cpu_kernels::attention::{self, KvLayout, Rope, Segment, attend};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights};
use mlx_rs::{Array, Dtype};

use super::team::{Kernels, Workspace, floats};
use super::{HostNorm, InPlaceNode, RoomMut, TensorView, input, output};
use crate::cache::LayerCache;
use crate::nn::{Heads, NnError, RopeStep, Span};

/// What the node computes with.
#[derive(Debug)]
pub struct AttentionWeights {
    /// Before it.
    pub norm: HostNorm,
    /// `[queries · dim, features]`.
    pub queries: Arc<Weights>,
    /// `[kv · dim, features]`.
    pub keys: Arc<Weights>,
    /// `[kv · dim, features]`.
    pub values: Arc<Weights>,
    /// Of queries, keys, values: `[(queries + 2 · kv) · dim]`.
    pub bias: Option<Vec<f32>>,
    /// `[features, queries · dim]`.
    pub output: Arc<Weights>,
    /// `[features]`.
    pub output_bias: Option<Vec<f32>>,
    /// How many heads, and how wide.
    pub heads: Heads,
}

/// `x + output(attention(qkv(norm(x))))`, over rows with their own buffers of keys and values.
#[derive(Debug)]
pub struct KernelAttention {
    forward: InPlaceNode,
    write: InPlaceNode,
}

/// Shared by the two nodes.
struct Inner {
    kernels: Arc<Kernels>,
    weights: AttentionWeights,
}

impl KernelAttention {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: AttentionWeights) -> Self {
        let inner = Arc::new(Inner {
            kernels: Arc::clone(kernels),
            weights,
        });
        let writer = Arc::clone(&inner);
        Self {
            forward: InPlaceNode::new("Attention", move |inputs, rooms, outputs| {
                let mut workspace = inner.kernels.workspace();
                let workspace = &mut *workspace;
                inner.attend(inputs, rooms, workspace);
                let (x, y) = (input::<f32>(&inputs[0]), output::<f32>(&mut outputs[0]));
                let weights = &inner.weights;
                let attended =
                    &workspace.inner[..x.len() / weights.output.outputs() * weights.output.inputs()];
                project(
                    &inner.kernels.team,
                    &mut workspace.rows,
                    Input::new(attended, weights.output.inputs(), None),
                    &[&weights.output],
                    weights.output_bias.as_deref(),
                    Output::Residual { to: y, residual: x },
                );
            }),
            write: InPlaceNode::new("WriteKeysAndValues", move |inputs, rooms, outputs| {
                writer.attend(inputs, rooms, &mut writer.kernels.workspace());
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
        let tokens = x
            .shape()
            .first()
            .map_or(0, |tokens| tokens.unsigned_abs() as usize);
        let rooms = cache.rooms(tokens / span.rows.max(1))?;
        let output = [(shape, Dtype::Float32)];
        let [y] = match &span.rope {
            RopeStep::Tables { cos, sin } => node.apply(&[x, cos, sin], &rooms, output)?,
            RopeStep::Offset(_) | RopeStep::Offsets(_) => {
                return Err(
                    mlx_rs::error::Exception::custom("kernels take rotations as tables".to_owned()).into(),
                );
            }
        };
        Ok(y)
    }
}

impl Inner {
    /// Writes the new positions' keys and values, and leaves what their queries see in the workspace's `inner`.
    fn attend(&self, inputs: &[TensorView<'_>], rooms: &mut [RoomMut<'_>], workspace: &mut Workspace) {
        let [x, cos, sin] = [0, 1, 2].map(|index| input::<f32>(&inputs[index]));
        let weights = &self.weights;
        let Heads { queries, kv, dim } = weights.heads;
        let rows = x.len() / weights.queries.inputs();
        let joined = floats(&mut workspace.joined, rows * (queries + 2 * kv) * dim);
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(x, weights.queries.inputs(), Some(weights.norm.as_norm())),
            &[&weights.queries, &weights.keys, &weights.values],
            weights.bias.as_deref(),
            Output::Store(joined),
        );
        let attention = attention::Attention {
            heads: queries,
            kv: KvLayout {
                heads: kv,
                key_dim: dim,
                value_dim: dim,
            },
            scale: (dim as f32).sqrt().recip(),
            window: None,
            query_norm: None,
            key_norm: None,
            rope: Some(Rope {
                pairs: dim / 2,
                cos,
                sin,
            }),
        };
        let tokens = rows / rooms.len().max(1);
        let mut segments: Vec<Segment<'_>> = rooms
            .iter_mut()
            .map(|room| Segment {
                kv: room.buffer,
                start: room.start,
                tokens,
            })
            .collect();
        let attended = floats(&mut workspace.inner, rows * queries * dim);
        attend(
            &self.kernels.team,
            &mut workspace.attention,
            &attention,
            joined,
            &mut segments,
            attended,
        );
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}
