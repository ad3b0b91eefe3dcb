//! `--kv-bits`, `--kv-group-size`, `--kv-config`: what was applied is told, what can't be is refused before anything runs.

use serde_json::json;

use super::model::{expected, ids_only, joining};
use super::program::Program;

#[test]
fn rows_that_join_one_another_get_the_oracles_tokens_and_every_layer_is_told() {
    let expected = expected();
    for bits in ["8", "4"] {
        let flags = ["--kv-bits", bits, "--kv-group-size", "32"];
        let replayed = Program::new().replay(&ids_only(), &joining(), &flags);
        let told = &expected[format!("kv{bits}_group32")];
        for id in 0..4 {
            let margins = told["margins"][id].as_array().unwrap().iter();
            let sure = margins
                .take_while(|margin| margin.as_f64().unwrap() >= 5e-3)
                .count();
            let tokens = told["greedy"][id].as_array().unwrap();
            assert_eq!(
                json!(replayed.tokens(id)[..sure]),
                json!(tokens[..sure]),
                "{bits} bits, request {id}"
            );
        }
        let bits: u64 = bits.parse().unwrap();
        // Two heads of keys and values of 32 features, a scale and a bias each.
        let bytes = 4 * 2 * 2 * (32 * bits / 8 + 8);
        assert_eq!(
            replayed.summary()["kv"]["layers"],
            json!([{"first": 0, "last": 3, "kind": "full", "bits": bits, "group_size": 32, "bytes_per_token": bytes}])
        );
    }
}

#[test]
fn a_file_says_how_single_layers_hold() {
    let program = Program::new();
    let config = program.file(
        "kv.toml",
        "[layers]\n0 = \"full\"\n1-2 = { bits = 4, group_size = 32 }\n",
    );
    let flags = ["--kv-config", &config, "--kv-bits", "8", "--kv-group-size", "32"];
    let replayed = program.replay(&ids_only(), &joining()[..1], &flags);
    let layers = &replayed.summary()["kv"]["layers"];
    let bits: Vec<_> = layers
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["bits"].as_u64())
        .collect();
    assert_eq!(bits, [None, Some(4), Some(8)]);
    let bench = [
        "bench",
        "-m",
        &ids_only(),
        "--batch",
        "1",
        "--prompt",
        "4",
        "--gen",
        "2",
        "--json",
    ];
    let output = program.run(&[&bench[..], &flags].concat());
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.json()[0]["kv_layers"], *layers);
}

#[test]
fn what_can_not_be_held_so_is_refused_with_the_reason() {
    let program = Program::new();
    let (workload, model) = (program.file("workload.jsonl", ""), ids_only());
    let refused = |flags: &[&str], code: i32, said: &str| {
        let all = [&["replay", &workload, "-m", &model], flags].concat();
        program.run(&all).fails(code, &[said]);
    };
    refused(
        &["--kv-bits", "3"],
        2,
        "can't be quantized to 3 bits: take 4 or 8",
    );
    refused(
        &["--kv-bits", "4", "--kv-group-size", "48"],
        2,
        "in groups of 48: take 32, 64 or 128",
    );
    refused(&["--kv-group-size", "32"], 2, "--kv-bits");
    refused(
        &["--kv-bits", "4"],
        1,
        "a head has 32 features, of which that is no divisor; take groups of 32",
    );
    let config = program.file("kv.json", r#"{"layers": {"4": {"bits": 4, "group_size": 32}}}"#);
    refused(
        &["--kv-config", &config],
        1,
        "there is no layer 4: the model has 4, from 0 to 3",
    );
    let config = program.file("twice.json", r#"{"layers": {"1": "full", "0-1": "full"}}"#);
    refused(&["--kv-config", &config], 2, "twice.json: layer 1 is named twice");
    refused(
        &["--kv-config", "/no/such/file"],
        2,
        "/no/such/file: can't be read",
    );
}

#[test]
fn a_conversation_goes_on_from_quantized_entries_of_the_prompt_cache() {
    let prompt = &expected()["prompts"][3];
    let flags = ["--kv-bits", "4", "--kv-group-size", "32"];
    let line = |id: u64, step: u64| json!({"id": id, "prompt": prompt, "at_step": step, "max_tokens": 12, "session": "s"});
    let replayed = Program::new().replay(&ids_only(), &[line(0, 0), line(1, 12)], &flags);
    assert!(replayed.finish(1)["cached_tokens"].as_u64().unwrap() > 0);
    assert_eq!(replayed.finish(1)["generated_tokens"], 12);
    // All but the last token was restored, as it lay.
    assert_eq!(replayed.tokens(0), replayed.tokens(1));
}
