//! What a model is made of, as plain data: what a family reads from settings, and what a decoder is assembled from.

use super::settings::RopeSettings;
use crate::cache::{CachePlan, KvScheme, KvShape, LayerPlan, RecurrentShape};
use crate::nn::{Activation, Backend, DeltaShape, Heads};

/// What a model is made of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Architecture {
    /// As the file names it.
    pub family: String,
    /// Features of the residual stream.
    pub hidden: usize,
    /// Token ids.
    pub vocab_size: usize,
    /// The most positions that it was made for.
    pub max_positions: usize,
    /// Of every normalization.
    pub eps: f32,
    /// What is added to every weight of a normalization: 1 where they are stored as what differs from it.
    pub norm_offset: f32,
    /// Whether that depends on the checkpoint: published ones have norms less 1, converted ones have not. Which it is, the layout
    /// of the convolutions says.
    pub norms_tell: bool,
    /// What embeddings are multiplied by.
    pub embedding_scale: Option<f32>,
    /// Whether the head shares the embeddings; `None`: if the weights have no head.
    pub tied: Option<bool>,
    /// The ropes that layers refer to.
    pub ropes: Vec<RopeSettings>,
    /// From the first to the last; at least one.
    pub layers: Vec<LayerParts>,
    /// Layers after these that the file holds, too, and that are not needed.
    pub layers_left_out: usize,
    /// Tensors of what is no part of the text model begin so.
    pub passed_over: &'static [&'static str],
}

/// One block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LayerParts {
    pub norms: NormNames,
    pub mixer: MixerParts,
    pub feed_forward: FeedForwardParts,
}

/// The modules that normalize in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NormNames {
    /// Before the mixer.
    pub mixer: &'static str,
    /// Of the mixer's output, before it is added to the residual.
    pub mixer_output: Option<&'static str>,
    /// Before the feed-forward half.
    pub feed_forward: &'static str,
    /// Of the feed-forward half's output.
    pub feed_forward_output: Option<&'static str>,
}

impl NormNames {
    /// Before each half.
    pub const BEFORE: Self = Self {
        mixer: "input_layernorm",
        mixer_output: None,
        feed_forward: "post_attention_layernorm",
        feed_forward_output: None,
    };

    /// Before and after each half.
    pub const AROUND: Self = Self {
        mixer: "input_layernorm",
        mixer_output: Some("post_attention_layernorm"),
        feed_forward: "pre_feedforward_layernorm",
        feed_forward_output: Some("post_feedforward_layernorm"),
    };
}

/// The half of a block in which positions meet.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MixerParts {
    /// `self_attn`.
    Attention(AttentionParts),
    /// `linear_attn`.
    DeltaNet(DeltaShape),
}

/// Softmax attention.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AttentionParts {
    pub heads: Heads,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Which of the architecture's ropes turns queries and keys.
    pub rope: Option<usize>,
    /// How many positions a query sees, its own among them; all if there is no window.
    pub window: Option<usize>,
    /// Whether query and key heads are normalized: `q_norm`, `k_norm`.
    pub head_norms: bool,
    /// Whether `q_proj` gives a gate after each head's queries.
    pub gated: bool,
    /// Whether queries, keys and values come from one matrix, `qkv_proj`.
    pub joined: bool,
}

/// The half of a block in which each position is by itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FeedForwardParts {
    /// `mlp`.
    Gated(GatedParts),
    /// `mlp`, too.
    Moe(MoeParts),
}

/// A mixture of experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MoeParts {
    /// How many there are.
    pub experts: usize,
    /// How many of them a token gets.
    pub chosen: usize,
    /// Whether the weights of those chosen are made to sum up to 1.
    pub renormalize: bool,
    /// Features inside of each.
    pub intermediate: usize,
    /// Features inside of one that every token gets, if there is one.
    pub shared: Option<usize>,
}

/// A gated MLP.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GatedParts {
    /// Features inside.
    pub intermediate: usize,
    /// What the gate goes through.
    pub activation: Activation,
    /// Whether gate and up come from one matrix, `gate_up_proj`.
    pub joined: bool,
}

impl AttentionParts {
    /// Attention over all positions, scaled by `1 / sqrt(dim)` and turned by the first rope.
    pub fn plain(heads: Heads) -> Self {
        Self {
            heads,
            scale: (heads.dim as f32).sqrt().recip(),
            rope: Some(0),
            window: None,
            head_norms: false,
            gated: false,
            joined: false,
        }
    }
}

impl Architecture {
    /// The first attention's heads.
    pub fn heads(&self) -> Heads {
        let mut attentions = self.layers.iter().filter_map(|layer| match &layer.mixer {
            MixerParts::Attention(attention) => Some(attention.heads),
            MixerParts::DeltaNet(_) => None,
        });
        attentions.next().unwrap_or(Heads {
            queries: 0,
            kv: 0,
            dim: 0,
        })
    }

    /// Every attention, from the first layer to the last.
    pub fn attentions_mut(&mut self) -> impl Iterator<Item = &mut AttentionParts> {
        self.layers.iter_mut().filter_map(|layer| match &mut layer.mixer {
            MixerParts::Attention(attention) => Some(attention),
            MixerParts::DeltaNet(_) => None,
        })
    }

    /// Features inside the first feed-forward half.
    pub fn intermediate(&self) -> usize {
        let mut inner = self.layers.iter().map(|layer| match &layer.feed_forward {
            FeedForwardParts::Gated(gated) => gated.intermediate,
            FeedForwardParts::Moe(moe) => moe.intermediate,
        });
        inner.next().unwrap_or(0)
    }

    /// What the layers keep, by kernels in own buffers or as MLX's operations want it.
    pub fn plan(&self, backend: Backend, kernels: bool) -> CachePlan {
        let dtype = backend.dtype();
        let layers = self.layers.iter().map(|layer| match &layer.mixer {
            MixerParts::Attention(AttentionParts { heads, window, .. }) => {
                let kv = KvShape {
                    heads: heads.kv,
                    key_dim: heads.dim,
                    value_dim: heads.dim,
                    dtype,
                    scheme: KvScheme::Full,
                };
                match *window {
                    None => LayerPlan::Full(kv),
                    Some(window) => LayerPlan::Sliding { kv, window },
                }
            }
            MixerParts::DeltaNet(shape) => LayerPlan::Recurrent(RecurrentShape {
                conv: shape.kernel - 1,
                conv_features: shape.conv_features(),
                heads: shape.value_heads,
                value_dim: shape.value_dim,
                key_dim: shape.key_dim,
                dtype,
            }),
        });
        if kernels {
            CachePlan::own_buffers(layers.collect::<Vec<_>>())
        } else {
            CachePlan::new(layers.collect::<Vec<_>>())
        }
    }
}
