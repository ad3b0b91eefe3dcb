//! Qwen3-Next: layers of the gated delta rule, and after some of them one of attention, whose heads are gated and turned in
//! part; with a mixture of experts in each.

use serde_json::json;

use super::qwen3_moe::{put_experts, with_intermediate};
use super::{Sizes, llama};
use crate::model::ModelError;
use crate::model::architecture::{Architecture, MixerParts};
use crate::model::settings::Settings;
use crate::nn::{Activation, DeltaShape};

/// Every so many layers one attends, where the file doesn't say.
const INTERVAL: usize = 4;

/// More heads than any model has, and wider ones; a longer convolution.
const MOST_HEADS: usize = 65_536;
const MOST_HEAD_FEATURES: usize = 1024;
const MOST_TAPS: usize = 64;

/// Which features of a head turn, where the file doesn't say.
const TURNED: f64 = 0.25;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    read_hybrid(settings, 10_000.0)
}

/// What both are made of; `rope_base` holds where the file says nothing.
pub(super) fn read_hybrid(settings: &Settings, rope_base: f64) -> Result<Architecture, ModelError> {
    let settings = &with_defaults(&with_intermediate(settings)?);
    let mut sizes = Sizes::read(settings)?;
    // Layers that guess further tokens are counted by GGUF files; they come last.
    let guessing = settings.number("num_nextn_predict_layers")?.unwrap_or(0.0);
    let guessing = match settings.are_of_gguf() {
        true if guessing >= 1.0 => settings.count("num_nextn_predict_layers", sizes.layers - 1)?,
        _ => 0,
    };
    sizes.layers -= guessing;
    let shape = delta_shape(settings)?;
    let attends = attending(settings, sizes.layers)?;
    let mut architecture = llama::plain(settings, &sizes, Activation::Silu, rope_base)?;
    for attention in architecture.attentions_mut() {
        attention.head_norms = true;
        attention.gated = true;
    }
    for (layer, attends) in architecture.layers.iter_mut().zip(attends) {
        if !attends {
            layer.mixer = MixerParts::DeltaNet(shape);
        }
    }
    architecture.norms_tell = true;
    architecture.layers_left_out = guessing;
    architecture.passed_over = &["mtp."];
    put_experts(settings, &mut architecture, true)?;
    Ok(architecture)
}

/// What holds where config.json says nothing.
fn with_defaults(settings: &Settings) -> Settings {
    let settings = settings.clone().or("partial_rotary_factor", json!(TURNED));
    if settings.are_of_gguf() {
        return settings;
    }
    [
        ("linear_num_value_heads", 32),
        ("linear_num_key_heads", 16),
        ("linear_key_head_dim", 128),
        ("linear_value_head_dim", 128),
        ("linear_conv_kernel_dim", 4),
    ]
    .into_iter()
    .fold(settings, |settings, (name, value)| {
        settings.or(name, json!(value))
    })
}

/// Which layers attend: by `layer_types`, or every `full_attention_interval`th.
fn attending(settings: &Settings, layers: usize) -> Result<Vec<bool>, ModelError> {
    let allowed = "full_attention or linear_attention";
    let kinds = settings.each_layer("layer_types", layers, allowed, |kind| match kind.as_str()? {
        "full_attention" => Some(true),
        "linear_attention" => Some(false),
        _ => None,
    })?;
    let interval = settings.optional_size("full_attention_interval")?;
    let interval = interval.unwrap_or(INTERVAL);
    Ok(kinds.unwrap_or_else(|| (1..=layers).map(|n| n.is_multiple_of(interval)).collect()))
}

fn delta_shape(settings: &Settings) -> Result<DeltaShape, ModelError> {
    let value_heads = settings.count("linear_num_value_heads", MOST_HEADS)?;
    let key_heads = settings.count("linear_num_key_heads", MOST_HEADS)?;
    if !value_heads.is_multiple_of(key_heads) {
        let allowed = format!("a divisor of the {value_heads} value heads");
        return Err(settings.wrong("linear_num_key_heads", allowed));
    }
    // GGUF files give the features of all heads together.
    let value_dim = match settings.optional_size("linear_value_features")? {
        Some(all) if all.is_multiple_of(value_heads) && all / value_heads <= MOST_HEAD_FEATURES => {
            all / value_heads
        }
        Some(_) => {
            let allowed = format!("a multiple of the {value_heads} value heads");
            return Err(settings.wrong("linear_value_features", allowed));
        }
        None => settings.count("linear_value_head_dim", MOST_HEAD_FEATURES)?,
    };
    Ok(DeltaShape {
        key_heads,
        value_heads,
        key_dim: settings.count("linear_key_head_dim", MOST_HEAD_FEATURES)?,
        value_dim,
        kernel: settings.count("linear_conv_kernel_dim", MOST_TAPS)?,
    })
}
