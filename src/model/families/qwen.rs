//! Qwen2 and 2.5: Llama with biases of queries, keys and values (taken where the weights have them). Qwen3: without them, and
//! with query and key heads normalized.

use super::{Sizes, llama};
use crate::model::ModelError;
use crate::model::architecture::Architecture;
use crate::model::settings::Settings;
use crate::nn::Activation;

pub(super) fn read_2(settings: &Settings) -> Result<Architecture, ModelError> {
    read(settings, false)
}

pub(super) fn read_3(settings: &Settings) -> Result<Architecture, ModelError> {
    read(settings, true)
}

fn read(settings: &Settings, head_norms: bool) -> Result<Architecture, ModelError> {
    let sizes = Sizes::read(settings)?;
    let sliding = settings.flag("use_sliding_window")?.unwrap_or(false);
    // Of so many first layers the window is never used.
    let full = settings.number("max_window_layers")?.unwrap_or(0.0);
    let windows = super::windows(settings, sizes.layers, |layer| sliding && layer as f64 >= full)?;
    let mut architecture = llama::plain(settings, &sizes, Activation::Silu, 1_000_000.0)?;
    for (attention, window) in architecture.attentions_mut().zip(windows) {
        attention.head_norms = head_norms;
        attention.window = window;
    }
    Ok(architecture)
}
