//! Loading: a folder in the Hugging Face layout, or a GGUF file.

use std::path::Path;
use std::sync::Arc;

use super::decoder::Decoder;
use super::settings::Settings;
use super::weights::{GgufWeights, Quantization, SafetensorsFolder};
use super::{LanguageModel, ModelError, families, json};
use crate::cache::KvSchemes;
use crate::gguf::Gguf;
use crate::nn::Backend;
use crate::nn::kernels::Kernels;

/// How a model is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOptions {
    /// What computes.
    pub backend: Backend,
    /// Threads of the CPU's kernels; all cores if unset.
    pub threads: Option<usize>,
    /// How its layers are to hold keys and values; refused where one can't.
    pub kv: KvSchemes,
}

/// What a model is assembled for.
pub(super) struct Means {
    pub backend: Backend,
    /// Absent where MLX's own operations compute.
    pub kernels: Option<Arc<Kernels>>,
    /// How layers are to hold keys and values.
    pub kv: KvSchemes,
}

impl Means {
    pub fn new(options: &LoadOptions) -> Result<Self, ModelError> {
        let LoadOptions { backend, threads, .. } = *options;
        let kernels = match backend {
            Backend::Gpu | Backend::GpuFloat32 => None,
            Backend::Cpu => Some(Kernels::new(threads).map_err(|source| ModelError::Threads {
                threads: threads.map_or_else(|| "all".to_owned(), |threads| threads.to_string()),
                source,
            })?),
        };
        Ok(Self {
            backend,
            kernels,
            kv: options.kv.clone(),
        })
    }

    /// What computes, in words.
    pub fn device(&self) -> String {
        match (&self.kernels, self.backend) {
            (Some(kernels), _) => format!("cpu ({kernels})"),
            (None, Backend::Cpu) => "cpu".to_owned(),
            (None, Backend::Gpu | Backend::GpuFloat32) => Backend::gpu_in_words(),
        }
    }

    /// MLX's operations, as on a GPU.
    #[cfg(test)]
    pub fn ops(backend: Backend) -> Self {
        Self {
            backend,
            kernels: None,
            kv: KvSchemes::default(),
        }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            backend: Backend::detect(),
            threads: None,
            kv: KvSchemes::default(),
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
    let config = json::read(&folder.join("config.json"))?;
    let settings = Settings::from_json(&config)?;
    let architecture = families::read(&settings)?;
    let weights = SafetensorsFolder::open(folder, Quantization::from_config(&config)?)?;
    let generation = folder.join("generation_config.json");
    let mut eos = Vec::new();
    if generation.exists() {
        eos = Settings::from_json(&json::read(&generation)?)?.eos();
    }
    if eos.is_empty() {
        eos = settings.eos();
    }
    let model = Decoder::assemble(&architecture, &weights, &Means::new(options)?, progress)?;
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
    let settings = Settings::from_gguf(&file)?;
    let architecture = families::read(&settings)?;
    let weights = GgufWeights::new(&file)?;
    let model = Decoder::assemble(&architecture, &weights, &Means::new(options)?, progress)?;
    Ok(Loaded {
        model: Box::new(model),
        eos: settings.eos(),
        name: name_of(path),
    })
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
