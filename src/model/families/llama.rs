//! Llama 1 to 3 and what is built alike (SmolLM2, Mistral): `h = x + attention(norm(x))`, `out = h + mlp(norm(h))`.

use super::{Sizes, windows};
use crate::model::ModelError;
use crate::model::architecture::{
    Architecture, AttentionParts, FeedForwardParts, GatedParts, LayerParts, MixerParts, NormNames,
};
use crate::model::settings::Settings;
use crate::nn::Activation;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let sizes = Sizes::read(settings)?;
    // Mistral's first models say no more than how wide the window is: it is every layer's.
    let windows = windows(settings, sizes.layers, |_| true)?;
    let mut architecture = plain(settings, &sizes, Activation::Silu, 10_000.0)?;
    for (attention, window) in architecture.attentions_mut().zip(windows) {
        attention.window = window;
    }
    Ok(architecture)
}

/// Blocks that are all alike, of full attention with one rope and a gated MLP: what other families vary.
pub(super) fn plain(
    settings: &Settings,
    sizes: &Sizes,
    activation: Activation,
    rope_base: f64,
) -> Result<Architecture, ModelError> {
    let name = match activation {
        Activation::Silu => "silu",
        Activation::GeluTanh => "gelu_pytorch_tanh",
    };
    for setting in ["hidden_act", "hidden_activation"] {
        settings.one_of(setting, &[name])?;
    }
    let layer = LayerParts {
        norms: NormNames::BEFORE,
        mixer: MixerParts::Attention(AttentionParts::plain(sizes.heads)),
        feed_forward: FeedForwardParts::Gated(GatedParts {
            intermediate: sizes.intermediate,
            activation,
            joined: false,
        }),
    };
    Ok(Architecture {
        family: settings.model_type().to_owned(),
        hidden: sizes.hidden,
        vocab_size: sizes.vocab_size,
        max_positions: sizes.max_positions,
        eps: sizes.eps,
        norm_offset: 0.0,
        embedding_scale: None,
        tied: sizes.tied,
        ropes: vec![settings.rope(sizes.heads.dim, rope_base)?],
        layers: vec![layer; sizes.layers],
        passed_over: &[],
    })
}
