//! Files of weights: safetensors and GGUF.

pub mod gguf;
