//! What tests with a real model need.

use std::path::PathBuf;

/// The default model's GGUF file, named by the environment variable `MLX_CHAT_TEST_MODEL`.
pub fn default_model() -> PathBuf {
    let path = std::env::var_os("MLX_CHAT_TEST_MODEL").map(PathBuf::from);
    let path = path.expect("set MLX_CHAT_TEST_MODEL to the file SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(
        path.is_file(),
        "MLX_CHAT_TEST_MODEL names {}, which is not a file",
        path.display()
    );
    path
}
