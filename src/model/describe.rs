//! What a model's files say of it, without loading its weights.

use std::path::Path;

use serde::Serialize;

use super::config::LlamaConfig;
use super::weights::{GgufLlama, Quantization, SafetensorsFolder, WeightSource};
use super::{ModelError, json};
use crate::cache::{CachePlan, KvShape};
use crate::gguf::Gguf;
use crate::nn::Backend;

/// What a model's files say of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    /// The architecture, as its configuration names it.
    pub family: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Features of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Token ids.
    pub vocabulary: usize,
    /// The most positions that it was made for.
    pub context_length: usize,
    /// How the file holds the weights.
    pub quantization: String,
    /// Bytes of keys and values for each token of context, on the device that computes here.
    pub kv_bytes_per_token: u64,
    /// How large its caches get on that device.
    #[serde(skip)]
    pub plan: CachePlan,
}

/// Reads the configuration of a folder with config.json, or of a .gguf file. Nothing is computed.
pub fn describe(path: &Path) -> Result<Description, ModelError> {
    if path.is_dir() {
        let settings = json::read(&path.join("config.json"))?;
        let weights = SafetensorsFolder::open(path, Quantization::from_config(&settings)?)?;
        return Ok(of(LlamaConfig::from_json(&settings)?, weights.quantization()));
    }
    let file = Gguf::open(path)?;
    let config = LlamaConfig::from_gguf(&file)?;
    let quantization = GgufLlama::new(&file, config.heads, config.kv_heads).quantization();
    Ok(of(config, quantization))
}

fn of(config: LlamaConfig, quantization: String) -> Description {
    let backend = Backend::detect();
    let layer = KvShape {
        heads: config.kv_heads,
        key_dim: config.head_dim,
        value_dim: config.head_dim,
        dtype: backend.dtype(),
    };
    let layers = vec![layer; config.layers];
    let plan = match backend {
        Backend::Cpu => CachePlan::own_buffers(layers),
        Backend::Gpu => CachePlan::new(layers),
    };
    Description {
        family: config.family,
        layers: config.layers,
        hidden: config.hidden,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        vocabulary: config.vocab_size,
        context_length: config.max_positions,
        quantization,
        kv_bytes_per_token: plan.bytes_per_token(),
        plan,
    }
}
