//! SmolLM3: Llama in which some layers, mostly every fourth, know no positions.

use super::{Sizes, llama};
use crate::model::ModelError;
use crate::model::architecture::Architecture;
use crate::model::settings::Settings;
use crate::nn::Activation;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let sizes = Sizes::read(settings)?;
    let interval = settings.optional_size("no_rope_layer_interval")?.unwrap_or(4);
    // 1 where there is a rope.
    let with_rope = settings.each_layer("no_rope_layers", sizes.layers, "0 or 1", |with| {
        with.as_u64().filter(|with| *with <= 1).map(|with| with == 1)
    })?;
    let windows = super::windows(settings, sizes.layers, |_| false)?;
    let mut architecture = llama::plain(settings, &sizes, Activation::Silu, 2_000_000.0)?;
    for (layer, (attention, window)) in architecture.attentions_mut().zip(windows).enumerate() {
        let turns = match &with_rope {
            Some(with) => with.get(layer).copied().unwrap_or(true),
            None => !(layer + 1).is_multiple_of(interval),
        };
        attention.rope = turns.then_some(0);
        attention.window = window;
    }
    Ok(architecture)
}
