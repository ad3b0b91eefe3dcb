//! How much memory the program takes, from the first byte of its load on.

use std::path::PathBuf;

use mlx_chat::gguf::Gguf;
use mlx_chat::model::LoadOptions;

use crate::program::Program;
use crate::support;

const PROMPT: u64 = 128;
const GENERATED: u64 = 16;

/// What `bench` says at the peak, beside 1.3 · (weights + keys and values) + 80 MB.
fn stays_within_its_bound(model: PathBuf) {
    if LoadOptions::default().backend.is_gpu() {
        return; // Weights are on the device there.
    }
    let file = Gguf::open(&model).expect("a model");
    let weights: u64 = file.tensors().filter_map(|tensor| tensor.bytes()).sum::<usize>() as u64;
    let (model, prompt, generated) = (
        model.display().to_string(),
        PROMPT.to_string(),
        GENERATED.to_string(),
    );
    let output = Program::new().run(&[
        "bench", "-m", &model, "--batch", "1,8", "--prompt", &prompt, "--gen", &generated, "--json",
    ]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines = output.json();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let number = |name: &str| line[name].as_u64().expect("a number");
        let layers = line["kv_layers"].as_array().expect("layers");
        let of_token: u64 = layers
            .iter()
            .filter_map(|layer| layer["bytes_per_token"].as_u64())
            .sum();
        let kv = of_token * number("batch") * (PROMPT + GENERATED);
        let bound = (weights + kv) * 13 / 10 + 80_000_000;
        let peak = number("rss_peak_bytes");
        assert!(
            weights < peak && peak <= bound,
            "{peak} bytes of {bound}, weights {weights}, keys and values {kv}"
        );
    }
}

#[test]
fn the_default_model_takes_little_more_than_its_weights() {
    stays_within_its_bound(support::default_model());
}

/// Embeddings are most of it: they must not be there twice while they are packed.
#[test]
fn a_model_of_large_embeddings_takes_little_more_than_its_weights() {
    stays_within_its_bound(support::gemma());
}
