//! On the CPU a row's result depends on its own tokens alone, to the bit: not on its batch, its neighbours, the cuts of its
//! prompt, what was restored, the threads, or the pipeline.

#[path = "../support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod forwards;
mod oracle;
mod workload;
mod workloads;

/// Some that between them have what a layer can have (heads that are normalized or gated, windows, norms of outputs, states,
/// experts): 320 ids, 4 to 8 layers, 2048 positions at least.
const MODELS: [&str; 8] = [
    "llama",
    "llama-4bit",
    "llama3-rope-4bit",
    "qwen3-4bit",
    "gemma3-4bit",
    "qwen3_moe-4bit",
    "qwen3_next-4bit",
    "qwen3_5",
];
