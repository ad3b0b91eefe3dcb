//! What tests with a real model need.

use std::path::PathBuf;

use mlx_chat::config::paths::Paths;
use mlx_chat::hub::{Cancel, Hub, Settings};

/// The default model's GGUF file: the one that `MLX_CHAT_TEST_MODEL` names, else the user's own, fetched (with the
/// retries of any download) if it is not there yet. The suite's only use of the network.
pub fn default_model() -> PathBuf {
    if let Some(path) = std::env::var_os("MLX_CHAT_TEST_MODEL").map(PathBuf::from) {
        assert!(
            path.is_file(),
            "MLX_CHAT_TEST_MODEL names {}, which is not a file",
            path.display()
        );
        return path;
    }
    let paths = Paths::for_user().expect("a home folder");
    let hub = Hub::new(&paths, Settings::default()).expect("a manifest");
    let model = hub.ensure(None, &mut |_| {}, &Cancel::new());
    model
        .unwrap_or_else(|error| panic!("the default model can't be fetched: {error}"))
        .path
}
