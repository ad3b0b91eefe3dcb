//! Loading: a folder in the Hugging Face layout, or a GGUF file.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::config::LlamaConfig;
use super::llama::Llama;
use super::weights::{GgufWeights, Quantization, SafetensorsFolder};
use super::{LanguageModel, ModelError, json};
use crate::gguf::Gguf;
use crate::nn::Backend;
use crate::nn::kernels::Kernels;

/// How a model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadOptions {
    /// What computes.
    pub backend: Backend,
    /// Threads of the CPU's kernels; all cores if unset.
    pub threads: Option<usize>,
}

/// What a model is assembled for.
pub(super) struct Means {
    pub backend: Backend,
    /// Absent where MLX's own operations compute.
    pub kernels: Option<Arc<Kernels>>,
}

impl Means {
    fn new(options: &LoadOptions) -> Result<Self, ModelError> {
        let LoadOptions { backend, threads } = *options;
        let kernels = match backend {
            Backend::Gpu => None,
            Backend::Cpu => Some(Kernels::new(threads).map_err(|source| ModelError::Threads {
                threads: threads.map_or_else(|| "all".to_owned(), |threads| threads.to_string()),
                source,
            })?),
        };
        Ok(Self { backend, kernels })
    }

    /// What computes, in words.
    pub fn device(&self) -> String {
        match (&self.kernels, self.backend) {
            (Some(kernels), _) => format!("cpu ({kernels})"),
            (None, Backend::Cpu) => "cpu".to_owned(),
            (None, Backend::Gpu) => "gpu".to_owned(),
        }
    }

    /// MLX's operations, as on a GPU.
    #[cfg(test)]
    pub fn ops(backend: Backend) -> Self {
        Self {
            backend,
            kernels: None,
        }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            backend: Backend::detect(),
            threads: None,
        }
    }
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes of weights taken from the file.
    pub done_bytes: u64,
    /// Bytes of weights that it has.
    pub total_bytes: u64,
}

/// A model, and what goes with it.
pub struct Loaded {
    /// The model; it stays on the thread that loaded it.
    pub model: Box<dyn LanguageModel>,
    /// What to call it: the file's or the folder's name.
    pub name: String,
    /// The tokens that end an answer; may be none.
    pub eos: Vec<u32>,
}

/// Loads a folder with config.json and *.safetensors, or a .gguf file. Call it on the thread that will run
/// the model: operations of that thread are sent to the backend from then on.
pub fn load(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, ModelError> {
    options.backend.enter();
    let metadata = std::fs::metadata(path);
    let metadata = metadata.map_err(|source| ModelError::Io {
        path: path.to_owned(),
        source,
    })?;
    if !metadata.is_dir() {
        return load_gguf(path, options, progress);
    }
    if path.join("config.json").exists() {
        load_folder(path, options, progress)
    } else {
        Err(ModelError::NotAModel {
            path: path.to_owned(),
        })
    }
}

fn load_folder(
    folder: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, ModelError> {
    let settings = json::read(&folder.join("config.json"))?;
    let config = LlamaConfig::from_json(&settings)?;
    let weights = SafetensorsFolder::open(folder, Quantization::from_config(&settings)?)?;
    let generation = folder.join("generation_config.json");
    let generation = if generation.exists() {
        json::read(&generation)?
    } else {
        Value::Null
    };
    let mut eos = eos_ids(&generation);
    if eos.is_empty() {
        eos = eos_ids(&settings);
    }
    let model = Llama::assemble(&config, &weights, &Means::new(options)?, progress)?;
    Ok(Loaded {
        model: Box::new(model),
        eos,
        name: name_of(folder),
    })
}

fn load_gguf(
    path: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, ModelError> {
    let file = Gguf::open(path)?;
    let config = LlamaConfig::from_gguf(&file)?;
    let weights = GgufWeights::new(&file)?;
    let metadata = file.metadata();
    let eos = metadata.opt_u64("tokenizer.ggml.eos_token_id")?;
    let eos = eos.and_then(|id| u32::try_from(id).ok()).into_iter().collect();
    let model = Llama::assemble(&config, &weights, &Means::new(options)?, progress)?;
    Ok(Loaded {
        model: Box::new(model),
        eos,
        name: name_of(path),
    })
}

/// `eos_token_id`: a number, or a list of them; sorted, each once.
fn eos_ids(settings: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let mut ids: Vec<u32> = match settings.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
        Some(value) => id(value).into_iter().collect(),
        None => Vec::new(),
    };
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn name_of(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = if path.is_dir() {
        path.file_name()
    } else {
        path.file_stem()
    };
    name.map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}
