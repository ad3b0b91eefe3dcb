//! What tests with a real model need.

use std::path::PathBuf;

use mlx_chat::config::paths::Paths;
use mlx_chat::hub::{Cancel, Hub, Settings};

/// The default model's GGUF file: the one that `MLX_CHAT_TEST_MODEL` names, else the user's own.
pub fn default_model() -> PathBuf {
    model(None, "MLX_CHAT_TEST_MODEL")
}

/// Gemma 3 270M's GGUF file: the one that `MLX_CHAT_TEST_GEMMA` names, else the user's own.
#[allow(dead_code, reason = "few tests need it")]
pub fn gemma() -> PathBuf {
    model(Some("gemma3-270m"), "MLX_CHAT_TEST_GEMMA")
}

/// A model of the manifest, fetched (with the retries of any download) if it is not there yet: the suite's only use of the
/// network.
fn model(name: Option<&str>, variable: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
        assert!(
            path.is_file(),
            "{variable} names {}, which is not a file",
            path.display()
        );
        return path;
    }
    let paths = Paths::for_user().expect("a home folder");
    let hub = Hub::new(&paths, Settings::default()).expect("a manifest");
    let model = hub.ensure(name, &mut |_| {}, &Cancel::new());
    model
        .unwrap_or_else(|error| panic!("a model can't be fetched: {error}"))
        .path
}
