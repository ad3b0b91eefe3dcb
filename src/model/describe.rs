//! What a model's files say of it, without loading its weights.

use std::path::Path;

use serde::Serialize;

use super::architecture::Architecture;
use super::settings::Settings;
use super::weights::{GgufWeights, Holding, Quantization, SafetensorsFolder, WeightSource};
use super::{ModelError, families, json};
use crate::cache::CachePlan;
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
    /// How the device that computes here holds them: one entry for each type in the file, the most elements first.
    pub holdings: Vec<Holding>,
    /// Bytes of keys and values for each token of context, on the device that computes here.
    pub kv_bytes_per_token: u64,
    /// How large its caches get on that device.
    #[serde(skip)]
    pub plan: CachePlan,
}

/// Reads the configuration of a folder with config.json, or of a .gguf file. Nothing is computed.
pub fn describe(path: &Path) -> Result<Description, ModelError> {
    if path.is_dir() {
        let config = json::read(&path.join("config.json"))?;
        let weights = SafetensorsFolder::open(path, Quantization::from_config(&config)?)?;
        let architecture = families::read(&Settings::from_json(&config)?)?;
        return Ok(of(architecture, &weights));
    }
    describe_gguf(&Gguf::open(path)?)
}

/// The same of a .gguf file that is open.
pub fn describe_gguf(file: &Gguf) -> Result<Description, ModelError> {
    let architecture = families::read(&Settings::from_gguf(file)?)?;
    Ok(of(architecture, &GgufWeights::new(file)?))
}

fn of(architecture: Architecture, weights: &dyn WeightSource) -> Description {
    let backend = Backend::detect();
    let mut holdings = weights.holdings(backend);
    holdings.sort_by_key(|holding| std::cmp::Reverse(holding.elements));
    let plan = architecture.plan(backend, !backend.is_gpu());
    let heads = architecture.heads();
    Description {
        layers: architecture.layers.len(),
        hidden: architecture.hidden,
        heads: heads.queries,
        kv_heads: heads.kv,
        head_dim: heads.dim,
        vocabulary: architecture.vocab_size,
        context_length: architecture.max_positions,
        quantization: weights.quantization(),
        holdings,
        kv_bytes_per_token: plan.bytes_per_token(),
        plan,
        family: architecture.family,
    }
}
