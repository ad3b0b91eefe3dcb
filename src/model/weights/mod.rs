//! Files of weights: safetensors and GGUF.
