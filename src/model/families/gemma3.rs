//! Gemma 3, the text part: norms around each half, `h = x + norm(attention(norm(x)))`, whose weights are stored less one;
//! scaled embeddings; GELU; and layers of which most see a window only, with a rope of their own.

use half::bf16;
use serde_json::json;

use super::{Sizes, llama, windows};
use crate::model::ModelError;
use crate::model::architecture::{Architecture, NormNames};
use crate::model::settings::{RopeSettings, Settings};
use crate::nn::{Activation, RopeScaling};

/// Every so many layers one sees everything, where the file doesn't say.
const PATTERN: usize = 6;

/// The base of the rope of layers that see everything, where the file doesn't say; and of the others.
const BASE: f64 = 1_000_000.0;
const LOCAL_BASE: f64 = 10_000.0;

/// Of the one model whose scores are not scaled by the features of a head; GGUF files don't say so.
const LAYERS_OF_27B: usize = 62;

pub(super) fn read(settings: &Settings) -> Result<Architecture, ModelError> {
    let settings = &with_defaults(settings);
    let sizes = Sizes::read(settings)?;
    let pattern = match settings.optional_size("sliding_window_pattern")? {
        Some(pattern) => Some(pattern),
        None => settings.optional_size("_sliding_window_pattern")?,
    };
    let pattern = pattern.unwrap_or(PATTERN);
    let windows = windows(settings, sizes.layers, |layer| {
        !(layer + 1).is_multiple_of(pattern)
    })?;
    let scalar = match settings.optional_positive("query_pre_attn_scalar")? {
        Some(scalar) => scalar,
        None if settings.are_of_gguf() && sizes.layers == LAYERS_OF_27B => {
            sizes.hidden as f64 / sizes.heads.queries as f64
        }
        None if settings.are_of_gguf() => sizes.heads.dim as f64,
        None => 256.0,
    };
    let mut architecture = llama::plain(settings, &sizes, Activation::GeluTanh, BASE)?;
    architecture.ropes = ropes(settings, sizes.heads.dim)?;
    for (attention, window) in architecture.attentions_mut().zip(windows) {
        attention.scale = scalar.sqrt().recip() as f32;
        attention.head_norms = true;
        attention.rope = Some(usize::from(window.is_some()));
        attention.window = window;
    }
    for layer in &mut architecture.layers {
        layer.norms = NormNames::AROUND;
    }
    // Rounded as the models were trained with it.
    let scale = bf16::from_f64((sizes.hidden as f64).sqrt());
    architecture.embedding_scale = Some(scale.to_f32());
    // GGUF files hold the sums.
    architecture.norm_offset = if settings.are_of_gguf() { 0.0 } else { 1.0 };
    // Some checkpoints say that the head is tied and hold none, others hold one and say nothing.
    architecture.tied = None;
    architecture.passed_over = &[
        "vision_tower.",
        "multi_modal_projector.",
        "model.vision_tower.",
        "model.multi_modal_projector.",
    ];
    Ok(architecture)
}

/// What the files of larger models leave out.
fn with_defaults(settings: &Settings) -> Settings {
    let (heads, kv_heads, vocab_size) = match settings.are_of_a_part() {
        true => (8, 4, 262_208),
        false => (4, 1, 262_144),
    };
    [
        ("num_attention_heads", json!(heads)),
        ("num_key_value_heads", json!(kv_heads)),
        ("head_dim", json!(256)),
        ("vocab_size", json!(vocab_size)),
        ("sliding_window", json!(512)),
        ("max_position_embeddings", json!(131_072)),
    ]
    .into_iter()
    .fold(settings.clone(), |settings, (name, value)| {
        settings.or(name, value)
    })
}

/// Of layers that see everything, then of the others.
fn ropes(settings: &Settings, features: usize) -> Result<Vec<RopeSettings>, ModelError> {
    if let Some(each) = settings.section("rope_parameters")?
        && let Some(global) = each.section("full_attention")?
    {
        let local = each.section("sliding_attention")?;
        return Ok(vec![
            each.rope_of(features, BASE, Some(&global))?,
            each.rope_of(features, LOCAL_BASE, local.as_ref())?,
        ]);
    }
    let global = settings.rope(features, BASE)?;
    let base = settings.optional_positive("rope_local_base_freq")?;
    let local = RopeSettings {
        base: base.unwrap_or(LOCAL_BASE),
        scaling: RopeScaling::None,
        ..global
    };
    Ok(vec![global, local])
}
