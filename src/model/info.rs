//! What a loaded model is, as plain data.

/// What a loaded model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// The architecture, as its configuration names it: `llama`.
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
    /// Features inside a block's MLP.
    pub intermediate: usize,
    /// Logits per token.
    pub vocab_size: usize,
    /// The most positions that it was made for.
    pub max_positions: usize,
    /// Weights, counted before quantization; tied ones once.
    pub parameters: u64,
    /// How the file holds the weights: `none (float32)`, `affine 4-bit, group 32`, `Q4_1`.
    pub quantization: String,
    /// What activations and caches are: `float32`, `bfloat16`.
    pub dtype: String,
    /// What computes: `gpu`, or `cpu (AVX2, products of floats, 2 threads)`.
    pub device: String,
    /// Whether a GPU computes.
    pub on_gpu: bool,
    /// Prompt tokens that the device gets through in about a second, at least: more at once would keep others waiting.
    pub brisk_prefill: usize,
    /// Bytes that the weights take in device memory.
    pub weight_bytes: u64,
}
