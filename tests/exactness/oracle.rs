//! The oracle's four prompts through the engine, joining as they joined there: whatever the mode, each gets the tokens that
//! mlx-lm's batch gave it.

use std::collections::BTreeSet;

use mlx_chat::engine::options::PromptCacheLimit;
use mlx_chat::engine::{EngineOptions, Request};
use serde_json::Value;

use crate::FAMILIES;
use crate::support::{options, request, run};
use crate::tiny::folder;
use crate::workload::engine_of;

/// By the flags that ask for them.
fn modes() -> [(&'static str, EngineOptions); 5] {
    [
        ("default", options()),
        (
            "--prefill-chunk 7",
            EngineOptions {
                prefill_chunk: Some(7),
                ..options()
            },
        ),
        (
            "--no-pipeline",
            EngineOptions {
                pipeline: false,
                ..options()
            },
        ),
        (
            "--prompt-cache off",
            EngineOptions {
                prompt_cache: PromptCacheLimit::Off,
                ..options()
            },
        ),
        (
            "--max-batch 2",
            EngineOptions {
                max_batch: 2,
                ..options()
            },
        ),
    ]
}

fn numbers<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn every_stored_folder_is_in_the_list() {
    let root = folder("");
    let is_model = |path: &std::path::Path| path.join("expected.json").is_file();
    let found: BTreeSet<String> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_model(path))
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(found, FAMILIES.map(String::from).into());
}

#[test]
fn every_mode_gives_the_oracles_batched_tokens_for_every_folder() {
    for name in FAMILIES {
        let expected = std::fs::read(folder(name).join("expected.json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let prompts: Vec<Vec<u32>> = numbers(&expected["prompts"]);
        let steps: Vec<u64> = numbers(&expected["batch_joins_after_steps"]);
        let joined: Vec<Vec<u32>> = numbers(&expected["batch_joined"]);
        for (mode, options) in modes() {
            let engine = engine_of(name, 2, options);
            let asked = prompts.iter().zip(&joined).map(|(prompt, tokens)| Request {
                ignore_eos: true,
                ..request(prompt, tokens.len())
            });
            let heard = run(&engine, steps.iter().copied().zip(asked).collect());
            for (row, (heard, joined)) in heard.iter().zip(&joined).enumerate() {
                assert_eq!(heard.tokens, *joined, "{name}, {mode}, row {row}");
            }
        }
    }
}
