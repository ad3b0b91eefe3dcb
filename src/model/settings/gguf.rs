//! GGUF metadata under the names of config.json.

use serde_json::{Map, Value, json};

use crate::gguf::{self, Gguf, GgufError, Metadata};
use crate::model::ModelError;

/// Settings of an architecture: config.json's name, and the key after the architecture's name.
const KEYS: [(&str, &str); 25] = [
    ("num_hidden_layers", "block_count"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("vocab_size", "vocab_size"),
    ("max_position_embeddings", "context_length"),
    ("rope_theta", "rope.freq_base"),
    ("sliding_window", "attention.sliding_window"),
    ("num_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    (
        "shared_expert_intermediate_size",
        "expert_shared_feed_forward_length",
    ),
    ("linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("linear_key_head_dim", "ssm.state_size"),
    ("linear_num_key_heads", "ssm.group_count"),
    ("linear_num_value_heads", "ssm.time_step_rank"),
    ("linear_value_features", "ssm.inner_size"),
    ("full_attention_interval", "full_attention_interval"),
    ("num_nextn_predict_layers", "nextn_predict_layers"),
    ("rope_scaling.factor", "rope.scaling.factor"),
    ("rope_scaling.attention_factor", "rope.scaling.attn_factor"),
    (
        "rope_scaling.original_max_position_embeddings",
        "rope.scaling.original_context_length",
    ),
];

/// Tensors that hold settings: each pair's factors. What divides frequencies whatever the scaling; what does for LongRoPE.
pub(in crate::model) const FACTOR_TENSORS: [&str; 3] = [
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
];

/// The settings of a file.
pub(super) fn read(file: &Gguf) -> Result<Found, ModelError> {
    let metadata = file.metadata();
    let architecture = metadata.str("general.architecture")?;
    let mut found = Found::default();
    found.put("model_type", "general.architecture", json!(architecture));
    for (name, key) in KEYS {
        let key = format!("{architecture}.{key}");
        if let Some(value) = metadata.get(&key).map(number) {
            found.put(name, &key, value);
        }
    }
    if !found.values.contains_key("vocab_size") {
        let table = file.tensors().find(|info| info.name == "token_embd.weight");
        if let Some(rows) = table.and_then(|info| info.shape.first()) {
            found.put("vocab_size", "the rows of token_embd.weight", json!(rows));
        }
    }
    // 0 stands for none.
    let none = |value: &Value| value.as_u64() == Some(0);
    if found.values.get("sliding_window").is_some_and(none) {
        found.values.remove("sliding_window");
    }
    found.turned(metadata, architecture)?;
    found.scaling(file, architecture)?;
    let ends = ["eos", "eot", "eom"].map(|end| metadata.opt_u64(&format!("tokenizer.ggml.{end}_token_id")));
    let ends = ends.into_iter().collect::<Result<Vec<_>, _>>()?;
    let ends: Vec<u64> = ends.into_iter().flatten().collect();
    found.put("eos_token_id", "tokenizer.ggml.eos_token_id", json!(ends));
    Ok(found)
}

/// What a file says, under the names of config.json.
#[derive(Default)]
pub(super) struct Found {
    pub values: Map<String, Value>,
    /// The file's key of each setting.
    pub keys: Map<String, Value>,
}

impl Found {
    /// A setting, `section.name` in a section.
    fn put(&mut self, name: &str, key: &str, value: Value) {
        match name.split_once('.') {
            None => self.values.insert(name.to_owned(), value),
            Some((section, inner)) => {
                let section = self.values.entry(section).or_insert_with(|| json!({}));
                let section = section.as_object_mut();
                section.and_then(|section| section.insert(inner.to_owned(), value))
            }
        };
        self.keys.insert(name.to_owned(), json!(key));
    }

    /// How many of a head's features turn, as the fraction that config.json gives.
    fn turned(&mut self, metadata: &Metadata, architecture: &str) -> Result<(), GgufError> {
        let key = format!("{architecture}.rope.dimension_count");
        let size = |name: &str| self.values.get(name).and_then(Value::as_u64);
        let head = size("head_dim").or_else(|| {
            let (hidden, heads) = (size("hidden_size")?, size("num_attention_heads")?);
            hidden.checked_div(heads)
        });
        if let (Some(turned), Some(head)) = (metadata.opt_u64(&key)?, head)
            && turned != head
        {
            let part = turned as f64 / head.max(1) as f64;
            self.put("partial_rotary_factor", &key, json!(part));
        }
        Ok(())
    }

    /// The kind of scaling, and the factors that lie in tensors.
    fn scaling(&mut self, file: &Gguf, architecture: &str) -> Result<(), ModelError> {
        let metadata = file.metadata();
        let key = format!("{architecture}.rope.scaling.type");
        let [freqs, long, _] = FACTOR_TENSORS;
        let factors = |name: &str| -> Result<Value, ModelError> { Ok(json!(file.tensor(name)?.to_f32()?)) };
        let kind = if file.has(freqs) {
            self.put("rope_scaling.factors", freqs, factors(freqs)?);
            Some("factors")
        } else if file.has(long) {
            self.put("rope_scaling.long_factor", long, factors(long)?);
            Some("longrope")
        } else {
            match metadata.opt_str(&key)? {
                Some("none") => None,
                Some(kind) => Some(kind),
                None => {
                    let legacy = format!("{architecture}.rope.scale_linear");
                    if let Some(factor) = metadata.opt_f32(&legacy)? {
                        self.put("rope_scaling.factor", &legacy, json!(factor));
                    }
                    let section = self.values.get("rope_scaling");
                    section
                        .and_then(|section| section.get("factor"))
                        .map(|_| "linear")
                }
            }
        };
        match kind {
            Some(kind) => self.put("rope_scaling.rope_type", &key, json!(kind)),
            None => {
                self.values.remove("rope_scaling");
            }
        }
        Ok(())
    }
}

/// A value as JSON has it. What it has not (a list, a float that is not finite) becomes a text, so that it is refused.
fn number(value: &gguf::Value) -> Value {
    match value {
        gguf::Value::F32(number) if number.is_finite() => json!(number),
        gguf::Value::F64(number) if number.is_finite() => json!(number),
        gguf::Value::Bool(flag) => json!(flag),
        gguf::Value::Str(text) => json!(text),
        other => match other.as_integer().map(u64::try_from) {
            Some(Ok(number)) => json!(number),
            _ => json!(other.describe()),
        },
    }
}
