//! Phi-3, Phi-3.5 and Phi-4-mini: Llama with queries, keys and values from one matrix, gate and up from another, and a rope
//! that may turn a part of each head.

use super::{Sizes, llama, windows};
use crate::model::ModelError;
use crate::model::architecture::{Architecture, FeedForwardParts};
use crate::model::settings::Settings;
use crate::nn::Activation;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let sizes = Sizes::read(settings)?;
    let windows = windows(settings, sizes.layers, |_| true)?;
    let mut architecture = llama::plain(settings, &sizes, Activation::Silu, 10_000.0)?;
    for (attention, window) in architecture.attentions_mut().zip(windows) {
        attention.joined = true;
        attention.window = window;
    }
    for layer in &mut architecture.layers {
        let FeedForwardParts::Gated(gated) = &mut layer.feed_forward;
        gated.joined = true;
    }
    Ok(architecture)
}
