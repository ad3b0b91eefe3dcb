//! On the CPU a row's result depends on its own tokens alone, to the bit: not on its batch, its neighbours, the cuts of its
//! prompt, what was restored, the threads, or the pipeline.

#[path = "../support/engine.rs"]
#[allow(dead_code, reason = "made for workloads of all kinds")]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod forwards;
mod workload;
mod workloads;
