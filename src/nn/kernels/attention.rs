//! The attention half of a block as one node.

use std::sync::Arc;

use cpu_kernels::attention::{self, KvCodes, KvLayout, KvMut, Rope, Segment, attend};
use cpu_kernels::linear::{Output, project};
use cpu_kernels::{Input, Weights, add_normalized, multiply_by_sigmoid};
use mlx_rs::Array;
use mlx_rs::error::Exception;

use super::mixer::{Mixer, MixerNodes};
use super::team::{Kernels, Workspace, floats};
use super::{HostNorm, RoomMut, TensorView, input};
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
    nodes: MixerNodes,
    rope: Option<usize>,
}

struct Inner {
    kernels: Arc<Kernels>,
    weights: AttentionWeights,
}

impl KernelAttention {
    /// A node over these weights.
    pub fn new(kernels: &Arc<Kernels>, weights: AttentionWeights) -> Self {
        let kernels = Arc::clone(kernels);
        Self {
            rope: weights.attending.rope,
            nodes: MixerNodes::new("Attention", Inner { kernels, weights }),
        }
    }

    pub(in crate::nn) fn forward(
        &self,
        x: &Array,
        caches: Vec<LayerCache<'_>>,
        packed: &Packed,
        put_out: usize,
    ) -> Result<Array, NnError> {
        let Some(rope) = self.rope else {
            return self.nodes.forward(x, &[], caches, packed, put_out);
        };
        let Some(RopeStep::Tables { cos, sin }) = packed.ropes.get(rope) else {
            let reason = format!("kernels take rotations as tables, and there are none of rope {rope}");
            return Err(Exception::custom(reason).into());
        };
        self.nodes.forward(x, &[cos, sin], caches, packed, put_out)
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
        usize::MAX
    }

    /// Writes the new positions' keys and values, and leaves what their queries see in the workspace's `inner`.
    fn mix(
        &self,
        x: &[f32],
        _: usize,
        inputs: &[TensorView<'_>],
        rooms: &mut [RoomMut<'_>],
        workspace: &mut Workspace,
    ) {
        let weights = &self.weights;
        let Attending {
            heads, scale, window, ..
        } = weights.attending;
        let Heads { queries, kv, dim } = heads;
        let rows = x.len() / self.features();
        let joined = floats(&mut workspace.joined, rows * (queries + 2 * kv) * dim);
        let projections: Vec<&Weights> = weights.projections.iter().map(Arc::as_ref).collect();
        project(
            &self.kernels.team,
            &mut workspace.rows,
            Input::new(x, self.features(), Some(weights.norm.as_norm())),
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
            rope: inputs.first().zip(inputs.get(1)).map(|(cos, sin)| {
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

    fn finish(&self, x: &mut [f32], workspace: &mut Workspace) {
        let (team, weights) = (&self.kernels.team, &self.weights);
        let [features, wide] = [self.features(), weights.output.inputs()];
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
            let to = Output::Add(x);
            project(team, &mut workspace.rows, seen, &output, bias, to);
            return;
        };
        let out = floats(&mut workspace.joined, x.len());
        let to = Output::Store(out);
        project(team, &mut workspace.rows, seen, &output, bias, to);
        add_normalized(team, out, norm.as_norm(), x);
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("weights", &self.weights)
            .finish_non_exhaustive()
    }
}
