//! The families that are implemented: each a file that reads settings and names its parts.

mod gemma3;
mod llama;
mod phi3;
mod qwen;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod smollm3;
#[cfg(test)]
mod tests;

use super::ModelError;
use super::architecture::Architecture;
use super::settings::Settings;
use crate::nn::Heads;

/// A family of models.
struct Family {
    /// `model_type` of config.json.
    types: &'static [&'static str],
    /// `general.architecture` of GGUF files.
    architecture: &'static str,
    read: fn(&Settings) -> Result<Architecture, ModelError>,
}

/// One line for each family.
const FAMILIES: [Family; 10] = [
    family(&["llama", "mistral"], "llama", llama::read),
    family(&["smollm3"], "smollm3", smollm3::read),
    family(&["qwen2"], "qwen2", qwen::read_2),
    family(&["qwen3"], "qwen3", qwen::read_3),
    family(&["qwen3_moe"], "qwen3moe", qwen3_moe::read),
    family(&["qwen3_next"], "qwen3next", qwen3_next::read),
    family(&["qwen3_5", "qwen3_5_text"], "qwen35", qwen3_5::read),
    family(&["qwen3_5_moe", "qwen3_5_moe_text"], "qwen35moe", qwen3_5::read),
    family(&["phi3"], "phi3", phi3::read),
    family(&["gemma3_text", "gemma3"], "gemma3", gemma3::read),
];

const fn family(
    types: &'static [&'static str],
    architecture: &'static str,
    read: fn(&Settings) -> Result<Architecture, ModelError>,
) -> Family {
    Family {
        types,
        architecture,
        read,
    }
}

/// What the model of these settings is made of.
pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let names = |family: &Family| -> Vec<&'static str> {
        if settings.are_of_gguf() {
            vec![family.architecture]
        } else {
            family.types.to_vec()
        }
    };
    let found = settings.model_type();
    let family = FAMILIES.iter().find(|family| names(family).contains(&found));
    let family = family.ok_or_else(|| {
        let supported = FAMILIES.iter().flat_map(names).collect::<Vec<_>>().join(", ");
        match found {
            // Absent, or no text.
            "" => settings.wrong("model_type", format!("one of {supported}")),
            found => ModelError::UnsupportedType {
                found: found.to_owned(),
                supported,
            },
        }
    })?;
    let mut architecture = (family.read)(settings)?;
    // A window that hides nothing is none.
    let most = architecture.max_positions;
    for attention in architecture.attentions_mut() {
        attention.window = attention.window.filter(|window| *window < most);
    }
    Ok(architecture)
}

/// More blocks than any model has; it bounds what is made of a setting alone.
const MOST_LAYERS: usize = 1024;

/// Wider heads than any model has.
const MOST_HEAD_FEATURES: usize = 1024;

/// The sizes that every family has.
struct Sizes {
    layers: usize,
    hidden: usize,
    intermediate: usize,
    heads: Heads,
    vocab_size: usize,
    max_positions: usize,
    eps: f32,
    tied: Option<bool>,
}

impl Sizes {
    /// `head_dim` is `hidden_size / num_attention_heads` where it is not said.
    fn read(settings: &Settings) -> Result<Self, ModelError> {
        let hidden = settings.size("hidden_size")?;
        let queries = settings.size("num_attention_heads")?;
        let kv = settings.optional_size("num_key_value_heads")?.unwrap_or(queries);
        if !queries.is_multiple_of(kv) {
            let allowed = format!("a divisor of the {queries} attention heads");
            return Err(settings.wrong("num_key_value_heads", allowed));
        }
        let dim = match settings.optional_size("head_dim")? {
            Some(dim) => dim,
            None => hidden / queries,
        };
        if !dim.is_multiple_of(2) || !(2..=MOST_HEAD_FEATURES).contains(&dim) {
            let allowed = format!("even, between 2 and {MOST_HEAD_FEATURES}");
            return Err(match settings.has("head_dim") {
                true => settings.wrong("head_dim", allowed),
                false => settings.wrong("num_attention_heads", format!("such that head_dim is {allowed}")),
            });
        }
        let eps = settings.number("rms_norm_eps")?.unwrap_or(1e-6);
        if !(0.0..1.0).contains(&eps) {
            return Err(settings.wrong("rms_norm_eps", "a small number"));
        }
        Ok(Self {
            layers: settings.count("num_hidden_layers", MOST_LAYERS)?,
            hidden,
            intermediate: settings.size("intermediate_size")?,
            heads: Heads { queries, kv, dim },
            vocab_size: settings.size("vocab_size")?,
            max_positions: settings.optional_size("max_position_embeddings")?.unwrap_or(2048),
            eps: eps as f32,
            tied: settings.flag("tie_word_embeddings")?,
        })
    }
}

/// The window of each layer: `sliding_window` in those that `layer_types` calls `sliding_attention`, or, if it says nothing,
/// in those of which `otherwise` is true.
fn windows(
    settings: &Settings,
    layers: usize,
    otherwise: impl Fn(usize) -> bool,
) -> Result<Vec<Option<usize>>, ModelError> {
    let allowed = "full_attention or sliding_attention";
    let kinds = settings.each_layer("layer_types", layers, allowed, |kind| match kind.as_str()? {
        "full_attention" => Some(false),
        "sliding_attention" => Some(true),
        _ => None,
    })?;
    let window = settings.optional_size("sliding_window")?;
    if window.is_none() && kinds.as_ref().is_some_and(|kinds| kinds.contains(&true)) {
        return Err(settings.wrong(
            "sliding_window",
            "a positive integer: layers slide by layer_types",
        ));
    }
    let slides = |layer: usize| match &kinds {
        Some(kinds) => kinds.get(layer).copied().unwrap_or(false),
        None => otherwise(layer),
    };
    Ok((0..layers)
        .map(|layer| window.filter(|_| slides(layer)))
        .collect())
}
