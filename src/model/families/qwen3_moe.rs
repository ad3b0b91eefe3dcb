//! Qwen3-MoE: Qwen3 with a mixture of experts in most layers.

use serde_json::{Value, json};

use super::qwen;
use crate::model::ModelError;
use crate::model::architecture::{Architecture, FeedForwardParts, MoeParts};
use crate::model::settings::Settings;

/// More experts than any model has.
const MOST_EXPERTS: usize = 65_536;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let settings = &with_intermediate(settings)?;
    let mut architecture = qwen::read_3(settings)?;
    // GGUF files don't say; their models all do.
    put_experts(settings, &mut architecture, settings.are_of_gguf())?;
    Ok(architecture)
}

/// Where every layer has experts, a file may say nothing of MLPs of another width.
pub(super) fn with_intermediate(settings: &Settings) -> Result<Settings, ModelError> {
    let inside = settings.optional_size("moe_intermediate_size")?;
    Ok(match inside {
        Some(inside) => settings.clone().or("intermediate_size", json!(inside)),
        None => settings.clone(),
    })
}

/// Puts experts into the layers that have them, if the settings know of any: every `decoder_sparse_step`th, but for those
/// in `mlp_only_layers`. A shared one, too, if its width is given. `renormalize` is what holds where `norm_topk_prob` says nothing.
pub(super) fn put_experts(
    settings: &Settings,
    architecture: &mut Architecture,
    renormalize: bool,
) -> Result<(), ModelError> {
    // 0 stands for none.
    if !settings.has("num_experts") || settings.number("num_experts")? == Some(0.0) {
        return Ok(());
    }
    let experts = settings.count("num_experts", MOST_EXPERTS)?;
    let shared = match settings.number("shared_expert_intermediate_size")? {
        None | Some(0.0) => None,
        Some(_) => Some(settings.size("shared_expert_intermediate_size")?),
    };
    let parts = MoeParts {
        experts,
        chosen: settings.count("num_experts_per_tok", experts)?,
        renormalize: settings.flag("norm_topk_prob")?.unwrap_or(renormalize),
        intermediate: settings.size("moe_intermediate_size")?,
        shared,
    };
    let layers = architecture.layers.len();
    let step = settings.optional_size("decoder_sparse_step")?.unwrap_or(1);
    let layer = |value: &Value| value.as_u64().and_then(|layer| usize::try_from(layer).ok());
    let dense = settings.list("mlp_only_layers", "a list of layers", layer)?;
    let dense = dense.unwrap_or_default();
    for (layer, of_layer) in architecture.layers.iter_mut().enumerate().take(layers) {
        if (layer + 1).is_multiple_of(step) && !dense.contains(&layer) {
            of_layer.feed_forward = FeedForwardParts::Moe(parts.clone());
        }
    }
    Ok(())
}
