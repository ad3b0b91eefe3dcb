//! The commands, end to end: the real binary over tiny models, in folders of its own.

mod answers;
mod batching;
mod broken;
mod interrupt;
mod measuring;
mod model;
mod models;
mod program;
mod quantized_kv;
mod reports;
mod running;
mod scripted;
mod sessions;
mod settings;
mod threads;
mod workloads;
