//! A model whose files another process shortens or deletes while they are read.

use std::path::Path;

use mlx_chat::model::{LoadOptions, Loaded, ModelError, load};
use mlx_chat::nn::Backend;

/// Loads a tiny model, and does something to its weights when the first of them are read.
fn load_while(damage: impl Fn(&Path)) -> Result<Loaded, ModelError> {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/oracle/llama");
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(oracle.join(name), folder.path().join(name)).unwrap();
    }
    let options = LoadOptions {
        backend: Backend::Cpu,
        threads: Some(1),
        ..LoadOptions::default()
    };
    let mut steps = 0;
    let loaded = load(folder.path(), &options, &mut |_| {
        steps += 1;
        if steps == 1 {
            damage(&folder.path().join("model.safetensors"));
        }
    });
    assert!(steps > 0);
    loaded
}

#[test]
fn weights_that_become_shorter_while_they_are_read_are_an_error() {
    let error = load_while(|path| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(5000).unwrap();
    });
    let error = error.err().unwrap().to_string();
    for part in [
        "model.safetensors",
        "it became shorter",
        "5000 bytes",
        "fetch it again",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn weights_that_are_deleted_while_they_are_read_are_read_to_their_end() {
    load_while(|path| std::fs::remove_file(path).unwrap()).unwrap();
}
