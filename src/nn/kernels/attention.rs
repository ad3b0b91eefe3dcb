//! The attention half of a block as one node.

use std::sync::Arc;

use cpu_kernels::attention::{self, KvCodes, KvLayout, KvMut, Rope, Segment, attend};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights, add_normalized, multiply_by_sigmoid};
use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype};

use super::team::{Kernels, Workspace, floats};
use super::{HostNorm, InPlaceNode, RoomMut, TensorView, input, output, output_shape, rooms};
use crate::cache::LayerCache;
use crate::nn::{Attending, Heads, NnError, Packed, RopeStep};

/// What the node computes with.
#[derive(Debug)]
pub struct AttentionWeights {
    /// Before it.
    pub norm: HostNorm,
    /// Whose outputs are the queries, the keys and the values, one after the other: `[(queries + 2 · kv) · dim, features]`.
    pub projections: Vec<Arc<Weights>>,
    /// Of these outputs.
    pub bias: Option<Vec<f32>>,
    /// Of each query head, `[dim]`, before it is turned.
    pub query_norm: Option<HostNorm>,
    /// Of each key head, `[dim]`, before it is turned.
    pub key_norm: Option<HostNorm>,
    /// By whose sigmoid what heads have seen is multiplied.
    pub gate: Option<Gate>,
    /// `[features, queries · dim]`.
    pub output: Arc<Weights>,
    /// `[features]`.
    pub output_bias: Option<Vec<f32>>,
    /// Of the output, before it is added to the residual.
    pub output_norm: Option<HostNorm>,
    /// How.
    pub attending: Attending,
}

/// Gates of what heads have seen.
#[derive(Debug)]
pub struct Gate {
    /// `[queries · dim, features]`.
    pub weights: Arc<Weights>,
    /// `[queries · dim]`.
    pub bias: Option<Vec<f32>>,
}

/// `x + output(attention(qkv(norm(x))))`, over rows with their own buffers of keys and values.
#[derive(Debug)]
pub struct KernelAttention {
    forward: InPlaceNode,
    write: InPlaceNode,
    rope: Option<usize>,
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
        let rope = inner.weights.attending.rope;
        let writer = Arc::clone(&inner);
        Self {
            rope,
            forward: InPlaceNode::new("Attention", move |inputs, rooms, outputs| {
                let mut workspace = inner.kernels.workspace();
                inner.attend(inputs, rooms, &mut workspace);
                let (x, y) = (input::<f32>(&inputs[0]), output::<f32>(&mut outputs[0]));
                inner.finish(&x[..y.len()], y, &mut workspace);
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
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        let rooms = rooms(caches, packed)?;
        let shape = output_shape(x, packed, put_out);
        let (node, shape) = match &shape {
            None => (&self.write, &[1][..]),
            Some(shape) => (&self.forward, &shape[..]),
        };
        let output = [(shape, Dtype::Float32)];
        let Some(rope) = self.rope else {
            let [y] = node.apply(&[x], &rooms, output)?;
            return Ok(y);
        };
        let Some(RopeStep::Tables { cos, sin }) = packed.ropes.get(rope) else {
            let reason = format!("kernels take rotations as tables, and there are none of rope {rope}");
            return Err(Exception::custom(reason).into());
        };
        let [y] = node.apply(&[x, cos, sin], &rooms, output)?;
        Ok(y)
    }
}

impl Inner {
    /// Writes the new positions' keys and values, and leaves what their queries see in the workspace's `inner`.
    fn attend(&self, inputs: &[TensorView<'_>], rooms: &mut [RoomMut<'_>], workspace: &mut Workspace) {
        let x = input::<f32>(&inputs[0]);
        let weights = &self.weights;
        let Attending {
            heads, scale, window, ..
        } = weights.attending;
        let Heads { queries, kv, dim } = heads;
        let rows = x.len() / weights.output.outputs();
        let joined = floats(&mut workspace.joined, rows * (queries + 2 * kv) * dim);
        let projections: Vec<&Weights> = weights.projections.iter().map(Arc::as_ref).collect();
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(x, weights.output.outputs(), Some(weights.norm.as_norm())),
            &projections,
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
            codes: rooms.first().and_then(|room| {
                room.codes.as_ref().map(|codes| KvCodes {
                    bits: codes.by.bits,
                    group: codes.by.group_size,
                })
            }),
            scale,
            window,
            query_norm: weights.query_norm.as_ref().map(HostNorm::as_norm),
            key_norm: weights.key_norm.as_ref().map(HostNorm::as_norm),
            rope: inputs.get(1).zip(inputs.get(2)).map(|(cos, sin)| {
                let (cos, sin) = (input::<f32>(cos), input::<f32>(sin));
                Rope {
                    pairs: cos.len() / rows.max(1),
                    cos,
                    sin,
                }
            }),
        };
        let mut segments: Vec<Segment<'_>> = rooms
            .iter_mut()
            .map(|room| Segment {
                kv: match &mut room.codes {
                    Some(codes) => KvMut::Codes(codes.words),
                    None => KvMut::Floats(room.buffer),
                },
                start: room.start,
                tokens: room.tokens,
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

    /// From what the heads have seen, in the workspace's `inner`, to the block's output.
    fn finish(&self, x: &[f32], y: &mut [f32], workspace: &mut Workspace) {
        let (team, weights) = (&self.kernels.team, &self.weights);
        let [features, wide] = [weights.output.outputs(), weights.output.inputs()];
        let seen = floats(&mut workspace.inner, x.len() / features * wide);
        if let Some(gate) = &weights.gate {
            let gates = floats(&mut workspace.joined, seen.len());
            project(
                team,
                &mut workspace.rows,
                Input::new(x, features, Some(weights.norm.as_norm())),
                &[&gate.weights],
                gate.bias.as_deref(),
                Output::Store(gates),
            );
            multiply_by_sigmoid(team, gates, seen);
        }
        let seen = Input::new(seen, wide, None);
        let (output, bias) = ([&*weights.output], weights.output_bias.as_deref());
        let Some(norm) = &weights.output_norm else {
            let to = Output::Residual { to: y, residual: x };
            project(team, &mut workspace.rows, seen, &output, bias, to);
            return;
        };
        let out = floats(&mut workspace.joined, x.len());
        let to = Output::Store(out);
        project(team, &mut workspace.rows, seen, &output, bias, to);
        add_normalized(team, out, norm.as_norm(), x, y);
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}
