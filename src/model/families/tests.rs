use serde_json::{Value, json};

use super::*;
use crate::model::architecture::{AttentionParts, FeedForwardParts, MixerParts, NormNames};
use crate::nn::{Activation, RopeScaling};

fn minimal(model_type: &str) -> Value {
    json!({
        "model_type": model_type, "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100
    })
}

fn with(model_type: &str, settings: Value) -> Result<Architecture, ModelError> {
    let mut config = minimal(model_type);
    for (name, value) in settings.as_object().unwrap() {
        config[name] = value.clone();
    }
    super::read(&Settings::from_json(&config)?)
}

fn attentions(architecture: &Architecture) -> Vec<&AttentionParts> {
    architecture
        .layers
        .iter()
        .map(|layer| {
            let MixerParts::Attention(attention) = &layer.mixer;
            attention
        })
        .collect()
}

fn windows_of(architecture: &Architecture) -> Vec<Option<usize>> {
    let of = |attention: &AttentionParts| attention.window;
    attentions(architecture).into_iter().map(of).collect()
}

#[test]
fn every_family_reads_the_least_that_it_needs() {
    for family in &FAMILIES {
        for model_type in family.types {
            let architecture = with(model_type, json!({})).unwrap();
            assert_eq!(architecture.family, *model_type);
            assert_eq!(architecture.layers.len(), 6);
        }
    }
}

#[test]
fn no_name_stands_for_two_families() {
    let mut types: Vec<&str> = FAMILIES.iter().flat_map(|family| family.types).copied().collect();
    let all = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), all);
}

#[test]
fn an_unknown_type_is_named_with_those_that_are_known() {
    let message = with("gpt_bigcode", json!({})).unwrap_err().to_string();
    let start = "the model type \"gpt_bigcode\" is not supported; supported are: llama, mistral, smollm3";
    assert!(message.starts_with(start), "{message}");
    assert!(message.contains("gemma3_text"), "{message}");
}

#[test]
fn what_a_configuration_leaves_out_has_its_default() {
    let llama = with("llama", json!({})).unwrap();
    assert_eq!((llama.heads().dim, llama.max_positions), (16, 2048));
    assert_eq!(
        (llama.ropes[0].base, &llama.ropes[0].scaling),
        (10_000.0, &RopeScaling::None)
    );
    assert_eq!((llama.tied, llama.norm_offset), (None, 0.0));
    assert_eq!(attentions(&llama)[0], &AttentionParts::plain(llama.heads()));
}

#[test]
fn each_wrong_size_is_named_before_anything_is_made_of_it() {
    for (name, value, part) in [
        ("num_hidden_layers", json!(0), "num_hidden_layers is 0"),
        (
            "num_hidden_layers",
            json!(2_000_000_000),
            "num_hidden_layers is 2000000000, but must be an integer between 1 and 1024",
        ),
        ("hidden_size", json!("big"), "hidden_size is \"big\""),
        ("vocab_size", json!(-3), "vocab_size is -3"),
        ("intermediate_size", Value::Null, "intermediate_size is absent"),
        (
            "num_key_value_heads",
            json!(3),
            "num_key_value_heads is 3, but must be a divisor of the 4 attention heads",
        ),
        ("head_dim", json!(15), "head_dim is 15"),
        ("head_dim", json!(1 << 20), "head_dim is 1048576"),
        ("num_attention_heads", json!(64), "num_attention_heads is 64"),
        ("hidden_act", json!("gelu"), "hidden_act is \"gelu\""),
        ("rope_theta", json!(0), "rope_theta is 0"),
        ("rms_norm_eps", json!(-1), "rms_norm_eps is -1"),
        ("sliding_window", json!(0), "sliding_window is 0"),
        (
            "tie_word_embeddings",
            json!("no"),
            "tie_word_embeddings is \"no\"",
        ),
        (
            "layer_types",
            json!(["sliding_attention"]),
            "layer_types is [\"sliding_attention\"], but must be 6 of full_attention or sliding_attention",
        ),
        (
            "layer_types",
            json!(vec!["sliding_attention"; 6]),
            "sliding_window is absent",
        ),
    ] {
        let message = with("llama", json!({name: value})).unwrap_err().to_string();
        assert!(message.contains(part), "{name}: {message}");
    }
}

#[test]
fn mistral_slides_in_every_layer_or_in_those_that_it_names() {
    let all = with("mistral", json!({"sliding_window": 16})).unwrap();
    assert_eq!(windows_of(&all), [Some(16); 6]);
    let kinds = json!([
        "sliding_attention",
        "full_attention",
        "sliding_attention",
        "full_attention",
        "full_attention",
        "full_attention"
    ]);
    let some = with("mistral", json!({"sliding_window": 16, "layer_types": kinds})).unwrap();
    assert_eq!(windows_of(&some), [Some(16), None, Some(16), None, None, None]);
    let hides_nothing = with("mistral", json!({"sliding_window": 2048})).unwrap();
    assert_eq!(windows_of(&hides_nothing), [None; 6]);
}

#[test]
fn qwen_slides_only_where_it_says_so() {
    let said = json!({"sliding_window": 16, "use_sliding_window": false, "max_window_layers": 2});
    assert_eq!(windows_of(&with("qwen2", said).unwrap()), [None; 6]);
    let used = json!({"sliding_window": 16, "use_sliding_window": true, "max_window_layers": 4});
    let used = windows_of(&with("qwen3", used).unwrap());
    assert_eq!(used, [None, None, None, None, Some(16), Some(16)]);
}

#[test]
fn qwen_3_normalizes_heads_and_qwen_2_does_not() {
    assert!(
        attentions(&with("qwen3", json!({})).unwrap())
            .iter()
            .all(|a| a.head_norms)
    );
    assert!(
        attentions(&with("qwen2", json!({})).unwrap())
            .iter()
            .all(|a| !a.head_norms)
    );
}

#[test]
fn smollm_3_knows_no_positions_in_every_fourth_layer_or_in_those_that_it_names() {
    let ropes = |settings: Value| -> Vec<bool> {
        let architecture = with("smollm3", settings).unwrap();
        attentions(&architecture)
            .iter()
            .map(|a| a.rope.is_some())
            .collect()
    };
    assert_eq!(ropes(json!({})), [true, true, true, false, true, true]);
    assert_eq!(
        ropes(json!({"no_rope_layer_interval": 2})),
        [true, false, true, false, true, false]
    );
    assert_eq!(
        ropes(json!({"no_rope_layers": [0, 1, 1, 1, 1, 1]})),
        [false, true, true, true, true, true]
    );
    let error = with("smollm3", json!({"no_rope_layers": [1]}))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no_rope_layers is [1], but must be 6 of 0 or 1"),
        "{error}"
    );
}

#[test]
fn phi_3_joins_its_projections() {
    let phi = with("phi3", json!({"partial_rotary_factor": 0.75})).unwrap();
    assert!(attentions(&phi).iter().all(|attention| attention.joined));
    let joined = phi.layers.iter().all(|layer| {
        let FeedForwardParts::Gated(gated) = &layer.feed_forward;
        gated.joined
    });
    assert!(joined);
    assert_eq!(phi.ropes[0].turned, 12);
}

#[test]
fn gemma_3_has_its_own_norms_scale_ropes_and_pattern() {
    let gemma = with(
        "gemma3_text",
        json!({"hidden_size": 640, "head_dim": 32, "sliding_window": 8, "sliding_window_pattern": 3,
               "query_pre_attn_scalar": 16, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}),
    )
    .unwrap();
    assert_eq!(gemma.embedding_scale, Some(25.25));
    assert_eq!(gemma.norm_offset, 1.0);
    assert!(gemma.layers.iter().all(|layer| layer.norms == NormNames::AROUND));
    let FeedForwardParts::Gated(gated) = &gemma.layers[0].feed_forward;
    assert_eq!(gated.activation, Activation::GeluTanh);
    assert_eq!(
        windows_of(&gemma),
        [Some(8), Some(8), None, Some(8), Some(8), None]
    );
    let attentions = attentions(&gemma);
    assert_eq!((attentions[0].rope, attentions[2].rope), (Some(1), Some(0)));
    assert_eq!((attentions[0].scale, attentions[0].head_norms), (0.25, true));
    let ropes: Vec<_> = gemma
        .ropes
        .iter()
        .map(|rope| (rope.base, rope.scaling.clone()))
        .collect();
    assert_eq!(ropes[0], (1_000_000.0, RopeScaling::Linear { factor: 8.0 }));
    assert_eq!(ropes[1], (10_000.0, RopeScaling::None));
    let error = with("gemma3_text", json!({"hidden_activation": "gelu"}))
        .unwrap_err()
        .to_string();
    assert!(error.contains("hidden_activation is \"gelu\""), "{error}");
}

#[test]
fn gemma_3_s_ropes_may_be_said_by_kind_of_layer() {
    let parameters = json!({
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 3e4}
    });
    let gemma = with("gemma3_text", json!({"rope_parameters": parameters})).unwrap();
    assert_eq!((gemma.ropes[0].base, gemma.ropes[1].base), (2e6, 3e4));
    assert_eq!(gemma.ropes[0].scaling, RopeScaling::Linear { factor: 8.0 });
}

#[test]
fn a_gemma_3_that_also_sees_has_what_it_leaves_out() {
    let config = json!({
        "model_type": "gemma3", "eos_token_id": [1, 106], "vision_config": {"hidden_size": 7},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024
        }
    });
    let gemma = super::read(&Settings::from_json(&config).unwrap()).unwrap();
    let heads = Heads {
        queries: 8,
        kv: 4,
        dim: 256,
    };
    assert_eq!((gemma.heads(), gemma.vocab_size), (heads, 262_208));
    assert_eq!(windows_of(&gemma)[4..6], [Some(1024), None]);
    assert!(gemma.passed_over.contains(&"vision_tower."));
}
