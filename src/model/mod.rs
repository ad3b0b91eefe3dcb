//! From `config.json` or GGUF metadata and a file of weights to a model that can be run.

pub mod weights;
