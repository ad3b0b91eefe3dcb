//! GGUF files, right and wrong.

#[path = "gguf/damaged.rs"]
mod damaged;
#[path = "support/fuzz.rs"]
mod fuzz;
#[path = "gguf/fuzzing.rs"]
mod fuzzing;
#[path = "gguf/split.rs"]
mod split;
#[path = "gguf/tensors.rs"]
mod tensors;
#[path = "support/gguf_writer.rs"]
mod writer;

use std::path::PathBuf;

use mlx_chat::gguf::{Gguf, GgufError};
use tempfile::TempDir;

/// A file on disk, gone with the value.
struct OnDisk {
    _folder: TempDir,
    path: PathBuf,
}

fn on_disk(bytes: &[u8]) -> OnDisk {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    OnDisk {
        _folder: folder,
        path,
    }
}

fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::open(&on_disk(bytes).path)
}

/// The message with which opening fails.
fn refusal(bytes: &[u8]) -> String {
    match open(bytes) {
        Ok(_) => panic!("the file was accepted"),
        Err(error) => error.to_string(),
    }
}
