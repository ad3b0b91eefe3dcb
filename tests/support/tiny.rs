//! The oracle's tiny models, fed by hand.

use std::path::{Path, PathBuf};

use mlx_chat::cache::{BatchCache, KvSchemes, RowCache};
use mlx_chat::model::{LanguageModel, LoadOptions, Loaded, load};
use mlx_chat::nn::Backend;
use mlx_rs::Array;

/// Where one is.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/oracle")
        .join(name)
}

/// Loads one for the CPU; it stays on this thread.
pub fn load_tiny(name: &str, threads: Option<usize>) -> Loaded {
    load_tiny_with(
        name,
        LoadOptions {
            threads,
            ..LoadOptions::default()
        },
    )
}

/// The same with other settings. `MLX_CHAT_TEST_DEVICE=gpu-float32` has MLX's operations compute on a GPU.
pub fn load_tiny_with(name: &str, options: LoadOptions) -> Loaded {
    let options = LoadOptions {
        backend: match std::env::var("MLX_CHAT_TEST_DEVICE").as_deref() {
            Ok("gpu-float32") => Backend::GpuFloat32,
            _ => Backend::Cpu,
        },
        ..options
    };
    load(&folder(name), &options, &mut |_| ()).unwrap()
}

/// The same with keys and values held as asked.
#[allow(dead_code, reason = "not all tests quantize them")]
pub fn load_tiny_holding(name: &str, threads: usize, kv: KvSchemes) -> Loaded {
    load_tiny_with(
        name,
        LoadOptions {
            threads: Some(threads),
            kv,
            ..LoadOptions::default()
        },
    )
}

/// Feeds tokens to a row in pieces, each evaluated.
pub fn feed<'a>(model: &dyn LanguageModel, row: &mut RowCache, pieces: impl Iterator<Item = &'a [u32]>) {
    for piece in pieces {
        model.prefill(piece, row).unwrap();
        mlx_rs::transforms::eval(row.arrays()).unwrap();
    }
}

/// The logits after one token for each row.
pub fn logits_of(model: &dyn LanguageModel, batch: &mut BatchCache, ids: &[u32]) -> Array {
    model
        .decode(&Array::from_slice(ids, &[ids.len() as i32]), batch)
        .unwrap()
}
