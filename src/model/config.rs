//! The settings of a Llama-family model, from config.json or from GGUF metadata.

use serde_json::Value;

use super::ModelError;
use crate::gguf::Gguf;
use crate::nn::RopeScaling;

/// The model types that are implemented, as config.json and GGUF name them.
const SUPPORTED: [&str; 2] = ["llama", "mistral"];

/// The settings of a Llama-family model.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LlamaConfig {
    pub family: String,
    pub layers: usize,
    pub hidden: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub eps: f32,
    pub vocab_size: usize,
    pub max_positions: usize,
    pub rope_base: f64,
    pub rope_scaling: RopeScaling,
    /// Whether the head shares the embeddings; `None`: if the weights have no head.
    pub tied: Option<bool>,
}

impl LlamaConfig {
    /// From config.json.
    pub fn from_json(config: &Value) -> Result<Self, ModelError> {
        let family = config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned();
        check_type(&family)?;
        let settings = Settings(config);
        let layers = settings.count("num_hidden_layers")?;
        let max_positions = settings
            .optional_count("max_position_embeddings")?
            .unwrap_or(2048);
        settings.refuse_sliding(layers, max_positions)?;
        if let Some(act) = config
            .get("hidden_act")
            .filter(|act| act.as_str() != Some("silu"))
        {
            return Err(wrong("hidden_act", act, "\"silu\""));
        }
        let hidden = settings.count("hidden_size")?;
        let heads = settings.count("num_attention_heads")?;
        let (rope_base, rope_scaling) = settings.rope(max_positions)?;
        let config = Self {
            family,
            layers,
            hidden,
            intermediate: settings.count("intermediate_size")?,
            heads,
            kv_heads: settings.optional_count("num_key_value_heads")?.unwrap_or(heads),
            head_dim: settings.optional_count("head_dim")?.unwrap_or(hidden / heads),
            eps: settings.number("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            vocab_size: settings.count("vocab_size")?,
            max_positions,
            rope_base,
            rope_scaling,
            tied: config.get("tie_word_embeddings").and_then(Value::as_bool),
        };
        config.checked()
    }

    /// From GGUF metadata.
    pub fn from_gguf(file: &Gguf) -> Result<Self, ModelError> {
        let metadata = file.metadata();
        let family = metadata.str("general.architecture")?.to_owned();
        check_type(&family)?;
        let key = |name: &str| format!("{family}.{name}");
        let count = |value: u64, name: &str| in_range(value, &key(name));
        let needed = |name: &str| count(metadata.u64(&key(name))?, name);
        let optional = |name: &str| {
            metadata
                .opt_u64(&key(name))?
                .map(|value| count(value, name))
                .transpose()
        };
        let hidden = needed("embedding_length")?;
        let heads = needed("attention.head_count")?;
        let head_dim = match optional("attention.key_length")? {
            Some(dim) => dim,
            None => optional("rope.dimension_count")?.unwrap_or(hidden / heads),
        };
        let rows = file.tensors().find(|info| info.name == "token_embd.weight");
        let vocab_size = match optional("vocab_size")? {
            Some(size) => size,
            None => rows.and_then(|info| info.shape.first().copied()).unwrap_or(0),
        };
        let config = Self {
            layers: needed("block_count")?,
            hidden,
            intermediate: needed("feed_forward_length")?,
            heads,
            kv_heads: optional("attention.head_count_kv")?.unwrap_or(heads),
            head_dim,
            eps: metadata
                .opt_f32(&key("attention.layer_norm_rms_epsilon"))?
                .unwrap_or(1e-5),
            vocab_size,
            max_positions: optional("context_length")?.unwrap_or(2048),
            rope_base: f64::from(metadata.opt_f32(&key("rope.freq_base"))?.unwrap_or(10_000.0)),
            rope_scaling: gguf_scaling(file, &family, head_dim)?,
            tied: None,
            family,
        };
        config.checked()
    }

    fn checked(self) -> Result<Self, ModelError> {
        let divides = |part: usize, whole: usize| part > 0 && whole.is_multiple_of(part);
        if !divides(self.kv_heads, self.heads) {
            let allowed = format!("a divisor of the {} attention heads", self.heads);
            return Err(config_error(
                "num_key_value_heads",
                self.kv_heads.to_string(),
                allowed,
            ));
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return Err(config_error(
                "head_dim",
                self.head_dim.to_string(),
                "even and positive".to_owned(),
            ));
        }
        if !(self.rope_base.is_finite() && self.rope_base > 0.0) {
            return Err(config_error(
                "rope_theta",
                self.rope_base.to_string(),
                "a positive number".to_owned(),
            ));
        }
        if !(self.eps.is_finite() && self.eps >= 0.0) {
            return Err(config_error(
                "rms_norm_eps",
                self.eps.to_string(),
                "a small number".to_owned(),
            ));
        }
        Ok(self)
    }
}

/// Refuses types that aren't implemented.
fn check_type(found: &str) -> Result<(), ModelError> {
    if SUPPORTED.contains(&found) {
        return Ok(());
    }
    Err(ModelError::UnsupportedType {
        found: found.to_owned(),
        supported: SUPPORTED.join(", "),
    })
}

/// No size of a model is near this; it keeps products of sizes from overflowing.
const LARGEST: u64 = 1 << 31;

fn in_range(value: u64, name: &str) -> Result<usize, ModelError> {
    match usize::try_from(value) {
        Ok(n) if (1..LARGEST).contains(&value) => Ok(n),
        _ => Err(config_error(
            name,
            value.to_string(),
            format!("between 1 and {}", LARGEST - 1),
        )),
    }
}

fn config_error(name: &str, value: String, allowed: String) -> ModelError {
    ModelError::Config {
        name: name.to_owned(),
        value,
        allowed,
    }
}

fn wrong(name: &str, value: &Value, allowed: &str) -> ModelError {
    config_error(name, value.to_string(), allowed.to_owned())
}

/// Typed access to a configuration.
struct Settings<'a>(&'a Value);

impl Settings<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn optional_count(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = value
            .as_u64()
            .ok_or_else(|| wrong(name, value, "a positive integer"))?;
        in_range(number, name).map(Some)
    }

    fn count(&self, name: &str) -> Result<usize, ModelError> {
        let absent = || config_error(name, "absent".to_owned(), "a positive integer".to_owned());
        self.optional_count(name)?.ok_or_else(absent)
    }

    fn number(&self, name: &str) -> Result<Option<f64>, ModelError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        value
            .as_f64()
            .map(Some)
            .ok_or_else(|| wrong(name, value, "a number"))
    }

    /// Attention windows are only taken where they hide nothing.
    fn refuse_sliding(&self, layers: usize, max_positions: usize) -> Result<(), ModelError> {
        let sliding = self.get("layer_types").and_then(Value::as_array).map(|types| {
            types
                .iter()
                .take(layers)
                .any(|kind| kind.as_str() != Some("full_attention"))
        });
        let window = self.optional_count("sliding_window")?;
        match (sliding, window) {
            (Some(false), _) | (None, None) => Ok(()),
            (_, Some(window)) if window >= max_positions => Ok(()),
            (_, window) => Err(config_error(
                "sliding_window",
                window.map_or("used by layer_types".to_owned(), |window| window.to_string()),
                format!("absent, or no less than the {max_positions} positions"),
            )),
        }
    }

    /// The base, and how it is scaled: `rope_theta` and `rope_scaling`, or both in `rope_parameters`.
    fn rope(&self, max_positions: usize) -> Result<(f64, RopeScaling), ModelError> {
        let nested = self.get("rope_parameters");
        let settings = nested.or_else(|| self.get("rope_scaling"));
        let base = match (self.number("rope_theta")?, nested) {
            (Some(base), _) => base,
            (None, Some(nested)) => Settings(nested).number("rope_theta")?.unwrap_or(10_000.0),
            (None, None) => 10_000.0,
        };
        let Some(settings) = settings else {
            return Ok((base, RopeScaling::None));
        };
        let settings = Settings(settings);
        let kind = settings.get("rope_type").or_else(|| settings.get("type"));
        let needed = |name: &str| {
            let value = settings.number(name)?.filter(|n| n.is_finite() && *n > 0.0);
            let shown = || settings.get(name).map_or("absent".to_owned(), Value::to_string);
            value.ok_or_else(|| {
                config_error(
                    &format!("rope_scaling.{name}"),
                    shown(),
                    "a positive number".to_owned(),
                )
            })
        };
        let scaling = match kind.map(|kind| kind.as_str().unwrap_or("")) {
            None | Some("default") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear {
                factor: needed("factor")?,
            },
            Some("llama3") => RopeScaling::Llama3 {
                factor: needed("factor")?,
                low_freq_factor: settings.number("low_freq_factor")?.unwrap_or(1.0),
                high_freq_factor: settings.number("high_freq_factor")?.unwrap_or(4.0),
                original_max_positions: settings
                    .number("original_max_position_embeddings")?
                    .unwrap_or(max_positions as f64),
            },
            Some(_) => {
                let value = kind.map_or(String::new(), Value::to_string);
                let allowed = "default, linear or llama3".to_owned();
                return Err(config_error("rope_scaling.rope_type", value, allowed));
            }
        };
        Ok((base, scaling))
    }
}

/// Llama 3's scaling lies in a tensor of factors, a linear one in the metadata.
fn gguf_scaling(file: &Gguf, family: &str, head_dim: usize) -> Result<RopeScaling, ModelError> {
    let metadata = file.metadata();
    if file.has(ROPE_FACTORS) {
        let tensor = file.tensor(ROPE_FACTORS)?;
        let (found, expected) = (tensor.info.shape.clone(), vec![head_dim / 2]);
        if found != expected {
            return Err(ModelError::WrongShape {
                name: ROPE_FACTORS.to_owned(),
                found,
                expected,
            });
        }
        let factors = tensor.to_f32()?;
        if factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            return Ok(RopeScaling::Factors(factors));
        }
        return Err(config_error(
            ROPE_FACTORS,
            "not all positive".to_owned(),
            "positive numbers".to_owned(),
        ));
    }
    let name = format!("{family}.rope.scaling.type");
    let factor = metadata.opt_f32(&format!("{family}.rope.scaling.factor"))?;
    let legacy = metadata.opt_f32(&format!("{family}.rope.scale_linear"))?;
    match (metadata.opt_str(&name)?, factor.or(legacy)) {
        (Some("none"), _) | (None, None) => Ok(RopeScaling::None),
        (Some("linear") | None, Some(factor)) if factor.is_finite() && factor > 0.0 => {
            Ok(RopeScaling::Linear {
                factor: f64::from(factor),
            })
        }
        (Some("linear") | None, factor) => {
            let value = factor.map_or("absent".to_owned(), |factor| factor.to_string());
            Err(config_error(
                &format!("{family}.rope.scaling.factor"),
                value,
                "a positive number".to_owned(),
            ))
        }
        (Some(kind), _) => Err(config_error(&name, kind.to_owned(), "none or linear".to_owned())),
    }
}

/// Where GGUF files keep Llama 3's frequency factors.
pub(super) const ROPE_FACTORS: &str = "rope_freqs.weight";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn minimal() -> Value {
        json!({
            "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100
        })
    }

    fn with(name: &str, value: Value) -> Result<LlamaConfig, ModelError> {
        let mut config = minimal();
        config[name] = value;
        LlamaConfig::from_json(&config)
    }

    #[test]
    fn what_a_configuration_leaves_out_has_its_default() {
        let config = LlamaConfig::from_json(&minimal()).unwrap();
        assert_eq!(
            (config.head_dim, config.max_positions, config.rope_base),
            (16, 2048, 10_000.0)
        );
        assert_eq!((config.rope_scaling, config.tied), (RopeScaling::None, None));
    }

    #[test]
    fn each_wrong_setting_is_named() {
        for (name, value, part) in [
            (
                "model_type",
                json!("gpt_bigcode"),
                "\"gpt_bigcode\" is not supported; supported are: llama, mistral",
            ),
            ("num_hidden_layers", json!(0), "num_hidden_layers is 0"),
            ("hidden_size", json!("big"), "hidden_size is \"big\""),
            ("vocab_size", json!(-3), "vocab_size is -3"),
            ("num_key_value_heads", json!(3), "num_key_value_heads is 3"),
            ("head_dim", json!(15), "head_dim is 15"),
            ("hidden_act", json!("gelu"), "hidden_act is \"gelu\""),
            ("sliding_window", json!(16), "sliding_window is 16"),
            ("rope_theta", json!(0), "rope_theta is 0"),
            (
                "rope_scaling",
                json!({"rope_type": "yarn", "factor": 4}),
                "rope_scaling.rope_type is \"yarn\"",
            ),
            (
                "rope_scaling",
                json!({"type": "linear"}),
                "rope_scaling.factor is absent",
            ),
        ] {
            let message = with(name, value).unwrap_err().to_string();
            assert!(message.contains(part), "{name}: {message}");
        }
        let mut config = minimal();
        config.as_object_mut().unwrap().remove("intermediate_size");
        let message = LlamaConfig::from_json(&config).unwrap_err().to_string();
        assert!(message.contains("intermediate_size is absent"), "{message}");
    }

    #[test]
    fn a_window_that_hides_nothing_is_taken() {
        assert!(with("sliding_window", json!(2048)).is_ok());
        assert!(with("sliding_window", Value::Null).is_ok());
    }

    #[test]
    fn rope_settings_are_read_from_either_place() {
        let linear = with("rope_scaling", json!({"type": "linear", "factor": 2.0})).unwrap();
        assert_eq!(linear.rope_scaling, RopeScaling::Linear { factor: 2.0 });
        let nested = json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(with("rope_parameters", nested).unwrap().rope_base, 5e5);
    }
}
