//! Why a model could not be loaded or run.

use std::path::PathBuf;

use mlx_rs::error::Exception;

use crate::cache::{CacheError, KvSchemeError};
use crate::gguf::GgufError;
use crate::nn::NnError;

/// Why a model could not be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file could not be read.
    #[error("can't read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither a model folder nor a .gguf file.
    #[error(
        "{} is not a model: expected a folder with config.json and *.safetensors, or a .gguf file",
        path.display()
    )]
    NotAModel {
        /// What was given.
        path: PathBuf,
    },
    /// A JSON file that can't be understood.
    #[error("{} is not what it should be: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An architecture that is not implemented.
    #[error("the model type {found:?} is not supported; supported are: {supported}")]
    UnsupportedType {
        /// The type named by the file.
        found: String,
        /// Those that are implemented.
        supported: String,
    },
    /// Its layers can't hold keys and values as asked.
    #[error(transparent)]
    KvScheme(#[from] KvSchemeError),
    /// A setting of the architecture that is not implemented, or makes no sense.
    #[error("{name} is {value}, but must be {allowed}")]
    Config {
        /// The setting.
        name: String,
        /// What the file says.
        value: String,
        /// What would be taken.
        allowed: String,
    },
    /// A file of weights that is truncated or damaged.
    #[error("{} is damaged: {reason}; fetch it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A weight that the model needs.
    #[error("the weights lack {name} (shape {expected:?})")]
    MissingTensor {
        /// Its name.
        name: String,
        /// The shape it should have.
        expected: Vec<usize>,
    },
    /// A packed weight without what unpacks it.
    #[error(
        "the weights lack {name}, though {weight} is of type {found}, as only quantized weights are; fetch the model again"
    )]
    MissingScales {
        /// What lacks.
        name: String,
        /// What it should unpack.
        weight: String,
        /// The packed weight's type.
        found: String,
    },
    /// Files of weights that others say belong to the model.
    #[error("{} lacks {}, which the names of its other files promise; fetch the model again", folder.display(),
        match count { 1 => first.clone(), count => format!("{first} and {} more", count - 1) })]
    MissingFiles {
        /// The model's folder.
        folder: PathBuf,
        /// How many.
        count: usize,
        /// One of them.
        first: String,
    },
    /// Weights that the model has no place for.
    #[error("the weights hold {count} tensors that this model has no place for, the first is {first}")]
    UnknownTensors {
        /// How many.
        count: usize,
        /// One of them.
        first: String,
    },
    /// A weight of the wrong shape.
    #[error("{name} has shape {found:?}, expected {expected:?}")]
    WrongShape {
        /// Its name.
        name: String,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape it should have.
        expected: Vec<usize>,
    },
    /// A weight of a type that can't be used there.
    #[error("{name} is of type {found}, expected {expected}")]
    WrongDtype {
        /// Its name.
        name: String,
        /// The type in the file.
        found: String,
        /// Those that can be used.
        expected: &'static str,
    },
    /// A GGUF file that can't be used.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// MLX refused an operation.
    #[error("MLX failed to {doing}: {source}")]
    Mlx {
        /// What was being done.
        doing: String,
        /// What MLX said.
        source: Exception,
    },
    /// The caches refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The threads of kernels.
    #[error("can't start {threads} threads for kernels: {source}; --threads sets how many")]
    Threads {
        /// How many were asked for.
        threads: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A call that can't be honoured: the wrong number of tokens, a row that a failed forward left.
    #[error("{0}")]
    Misuse(String),
    /// A failure that a test asked for.
    #[error("forward {forward} failed, as it was told to")]
    Told {
        /// Which forward, counted from 0.
        forward: u64,
    },
}

/// Says what was being done when MLX refused.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &str) -> Result<T, ModelError>;
}

impl<T> Doing<T> for Result<T, NnError> {
    fn doing(self, doing: &str) -> Result<T, ModelError> {
        self.map_err(|error| match error {
            NnError::Cache(error) => ModelError::Cache(error),
            NnError::Mlx(source) => ModelError::Mlx {
                doing: doing.to_owned(),
                source,
            },
        })
    }
}

impl<T> Doing<T> for Result<T, Exception> {
    fn doing(self, doing: &str) -> Result<T, ModelError> {
        self.map_err(|source| ModelError::Mlx {
            doing: doing.to_owned(),
            source,
        })
    }
}
