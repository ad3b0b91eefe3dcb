use serde_json::json;

use super::*;
use crate::nn::RopeScaling;

fn settings(config: Value) -> Settings {
    Settings::from_json(&config).unwrap()
}

#[test]
fn null_is_as_good_as_absent() {
    let settings = settings(json!({"sliding_window": null}));
    assert!(!settings.has("sliding_window"));
    assert_eq!(settings.optional_size("sliding_window").unwrap(), None);
}

#[test]
fn what_is_wrong_is_named_with_its_value_and_what_is_allowed() {
    let settings = settings(json!({
        "layers": 0, "big": 3_000_000_000u64, "theta": "much", "flag": 1, "act": "relu", "section": 5,
        "list": [1.0, -1.0], "kinds": ["a", "b"], "negative": -2.5
    }));
    let message = |result: Result<(), ModelError>| result.unwrap_err().to_string();
    let allowed = "must be an integer between 1 and 2147483647";
    for (found, expected) in [
        (
            message(settings.size("layers").map(drop)),
            format!("layers is 0, but {allowed}"),
        ),
        (
            message(settings.size("big").map(drop)),
            format!("big is 3000000000, but {allowed}"),
        ),
        (
            message(settings.size("none").map(drop)),
            format!("none is absent, but {allowed}"),
        ),
        (
            message(settings.number("theta").map(drop)),
            "theta is \"much\", but must be a number".to_owned(),
        ),
        (
            message(settings.positive("negative").map(drop)),
            "negative is -2.5, but must be a positive number".to_owned(),
        ),
        (
            message(settings.flag("flag").map(drop)),
            "flag is 1, but must be true or false".to_owned(),
        ),
        (
            message(settings.one_of("act", &["silu", "gelu"]).map(drop)),
            "act is \"relu\", but must be silu or gelu".to_owned(),
        ),
        (
            message(settings.section("section").map(drop)),
            "section is 5, but must be a section of settings".to_owned(),
        ),
        (
            message(settings.positives("list", 2).map(drop)),
            "list is [1.0,-1.0], but must be 2 positive numbers".to_owned(),
        ),
        (
            message(
                settings
                    .each_layer("kinds", 3, "letters", Value::as_str)
                    .map(drop),
            ),
            "kinds is [\"a\",\"b\"], but must be 3 of letters, one for each layer".to_owned(),
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn a_long_value_is_cut_in_a_message() {
    let list: Vec<usize> = (0..1000).collect();
    let error = settings(json!({"list": list})).wrong("list", "short").to_string();
    assert!(error.len() < 200 && error.contains('…'), "{error}");
}

#[test]
fn the_text_part_of_a_larger_model_is_taken_for_the_whole() {
    let settings = settings(json!({
        "model_type": "gemma3", "eos_token_id": [1, 106], "vocab_size": 5, "tie_word_embeddings": true,
        "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "vocab_size": 7, "rope_theta": null}
    }));
    assert_eq!(settings.model_type(), "gemma3");
    assert_eq!(settings.size("hidden_size").unwrap(), 64);
    assert_eq!(settings.size("vocab_size").unwrap(), 7);
    assert_eq!(settings.flag("tie_word_embeddings").unwrap(), Some(true));
    assert!(settings.are_of_a_part());
    assert_eq!(settings.eos(), [1, 106]);
}

#[test]
fn ends_are_one_number_or_a_list() {
    assert_eq!(settings(json!({"eos_token_id": 7})).eos(), [7]);
    assert_eq!(settings(json!({"eos_token_id": [9, 3, 9]})).eos(), [3, 9]);
    assert_eq!(settings(json!({})).eos(), []);
    let inside = json!({"model_type": "qwen3_5", "text_config": {"eos_token_id": 4}});
    assert_eq!(settings(inside).eos(), [4]);
}

fn scaling(section: Value) -> Result<RopeScaling, ModelError> {
    let config = json!({
        "rope_scaling": section, "max_position_embeddings": 256, "original_max_position_embeddings": 64
    });
    settings(config).rope(16, 10_000.0).map(|rope| rope.scaling)
}

#[test]
fn the_rope_stands_in_either_place() {
    let flat = settings(json!({"rope_theta": 5e5})).rope(16, 1.0).unwrap();
    let nested = settings(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}));
    assert_eq!(nested.rope(16, 1.0).unwrap(), flat);
    assert_eq!((flat.base, flat.turned), (5e5, 16));
    assert_eq!(settings(json!({})).rope(16, 77.0).unwrap().base, 77.0);
}

#[test]
fn a_part_of_a_head_may_turn() {
    let turned = |config: Value| settings(config).rope(96, 1.0).map(|rope| rope.turned);
    assert_eq!(turned(json!({"partial_rotary_factor": 0.75})).unwrap(), 72);
    assert_eq!(
        turned(json!({"rope_parameters": {"partial_rotary_factor": 0.25}})).unwrap(),
        24
    );
    assert_eq!(turned(json!({"partial_rotary_factor": 34.0 / 96.0})).unwrap(), 34);
    for part in [json!(0.0), json!(1.5), json!(0.01), json!(0.03), json!("half")] {
        let error = turned(json!({"partial_rotary_factor": part})).unwrap_err();
        assert!(error.to_string().contains("partial_rotary_factor"), "{error}");
    }
}

#[test]
fn scalings_are_read_with_their_defaults() {
    assert_eq!(
        scaling(json!({"type": "linear", "factor": 2})).unwrap(),
        RopeScaling::Linear { factor: 2.0 }
    );
    assert_eq!(scaling(json!({"mscale": 3})).unwrap(), RopeScaling::None);
    assert_eq!(
        scaling(json!({"rope_type": "llama3", "factor": 8})).unwrap(),
        RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_positions: 64.0
        }
    );
}

/// The numbers are those of mlx-lm's YarnRoPE and SuScaledRoPE.
#[test]
fn yarn_and_longrope_multiply_what_turns() {
    let magnitude = |section: Value| scaling(section).unwrap().magnitude();
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}");
    close(
        magnitude(json!({"type": "yarn", "factor": 4})),
        1.138_629_436_111_989,
    );
    let both = json!({"type": "yarn", "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707});
    close(magnitude(both), 1.0);
    close(
        magnitude(json!({"type": "yarn", "factor": 40, "mscale": 1})),
        1.368_887_945_411_393_6,
    );
    close(
        magnitude(json!({"type": "yarn", "factor": 4, "attention_factor": 1.5})),
        1.5,
    );
    let long = |kind: &str| json!({"type": kind, "short_factor": [1.0], "long_factor": [2.0; 8]});
    close(magnitude(long("longrope")), 1.154_700_538_379_251_7);
    assert_eq!(scaling(long("su")).unwrap(), scaling(long("longrope")).unwrap());
}

#[test]
fn a_wrong_scaling_is_named() {
    for (section, part) in [
        (
            json!({"type": "dynamic"}),
            "rope_scaling.type is \"dynamic\", but must be default, linear, llama3, yarn or longrope",
        ),
        (
            json!({"rope_type": "factors", "factors": [1.0]}),
            "rope_scaling.rope_type is \"factors\"",
        ),
        (json!({"type": 3}), "rope_scaling.type is 3"),
        (json!({"type": "linear"}), "rope_scaling.factor is absent"),
        (json!({"type": "yarn", "factor": 0}), "rope_scaling.factor is 0"),
        (
            json!({"type": "llama3", "factor": 8, "high_freq_factor": 1.0}),
            "rope_scaling.high_freq_factor is 1.0, but must be more than 1",
        ),
        (
            json!({"type": "longrope", "long_factor": [1.0, 2.0]}),
            "rope_scaling.long_factor is [1.0,2.0], but must be 8 positive numbers",
        ),
        (json!(7), "rope_scaling is 7"),
    ] {
        let message = scaling(section).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
