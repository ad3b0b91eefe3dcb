//! What a replay's lines may say, and what its output lines hold.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::model::{expected, ids_only, joining};
use super::program::{Program, finish};

fn keys(line: &Value) -> Vec<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

fn assert_numbers(line: &Value, names: &[&str]) {
    for name in names {
        let number = line[name].as_f64();
        assert!(
            number.is_some_and(|number| number.is_finite() && number >= 0.0),
            "{name} in {line}"
        );
    }
}

const FINISH: [&str; 10] = [
    "event",
    "id",
    "reason",
    "prompt_tokens",
    "cached_tokens",
    "generated_tokens",
    "queued_ms",
    "prefill_ms",
    "decode_ms",
    "ttft_ms",
];
const TIMES: [&str; 8] = [
    "wall_ms",
    "idle_ms",
    "build_ms",
    "construct_ms",
    "dispatch_ms",
    "read_ms",
    "emit_ms",
    "gap_ms",
];

#[test]
fn every_line_has_the_documented_fields() {
    let replayed = Program::new().replay(&ids_only(), &joining(), &[]);
    let mut next = [0; 4];
    for line in &replayed.0 {
        match line["event"].as_str().unwrap() {
            "token" => {
                assert_eq!(keys(line), ["event", "id", "index", "token", "text"]);
                assert_eq!(line["text"], Value::Null);
                let id = line["id"].as_u64().unwrap() as usize;
                assert_eq!(line["index"], next[id]);
                next[id] += 1;
                assert!(line["token"].as_u64().unwrap() < 320);
            }
            "finish" => {
                assert_eq!(keys(line), FINISH);
                assert_numbers(line, &FINISH[3..]);
            }
            "summary" => {
                assert_eq!(&keys(line)[..3], ["event", "steps", "prefill_chunks"]);
                assert_eq!(&keys(line)[3..11], TIMES);
                assert_eq!(
                    &keys(line)[11..],
                    [
                        "prefill_ms",
                        "decode_tokens_per_s",
                        "prefill_tokens_per_s",
                        "mixed_tokens",
                        "kv",
                        "prompt_cache",
                        "dropped_samples",
                        "device",
                        "mlx"
                    ]
                );
                assert_numbers(line, &TIMES);
                assert_numbers(
                    line,
                    &[
                        "steps",
                        "prefill_chunks",
                        "prefill_ms",
                        "decode_tokens_per_s",
                        "prefill_tokens_per_s",
                        "mixed_tokens",
                        "dropped_samples",
                    ],
                );
                let kv = [
                    "budget_bytes",
                    "peak_reserved_bytes",
                    "peak_allocated_bytes",
                    "peak_used_bytes",
                ];
                assert_eq!(keys(&line["kv"]), [&kv[..], &["layers"]].concat());
                assert_numbers(&line["kv"], &kv);
                let cache = [
                    "lookups",
                    "full",
                    "partial",
                    "miss",
                    "tokens_asked",
                    "tokens_served",
                    "entries",
                    "bytes",
                    "evictions",
                    "restore_ms",
                ];
                assert_eq!(keys(&line["prompt_cache"]), [&cache[..], &["disk"]].concat());
                assert_numbers(&line["prompt_cache"], &cache);
                assert!(
                    line["prompt_cache"]["disk"].is_null(),
                    "off where nobody asks for it"
                );
                assert!(line["device"].is_string() && line["mlx"].is_string());
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(next, [40; 4]);
    assert_eq!(replayed.summary()["dropped_samples"], 0);
}

#[test]
fn phases_add_up_to_wall_time_less_idle_time() {
    for flags in [&[][..], &["--no-pipeline"], &["--prefill-chunk", "7"]] {
        let replayed = Program::new().replay(&ids_only(), &joining(), flags);
        let summary = replayed.summary();
        let ms = |name: &str| summary[name].as_f64().unwrap();
        let busy = ms("build_ms") + ms("read_ms") + ms("emit_ms") + ms("gap_ms");
        let wall = ms("wall_ms") - ms("idle_ms");
        assert!((busy - wall).abs() <= wall / 100.0, "{busy} and {wall}");
        assert!((ms("construct_ms") + ms("dispatch_ms") - ms("build_ms")).abs() <= 1e-6 * wall);
        assert!(ms("prefill_ms") > 0.0 && ms("prefill_ms") <= ms("gap_ms"));
        // No request lived longer than the engine.
        let request = |id: usize, name: &str| replayed.finish(id)[name].as_f64().unwrap();
        for id in 0..4 {
            assert!(request(id, "ttft_ms") + request(id, "decode_ms") <= ms("wall_ms"));
        }
    }
}

#[test]
fn a_request_can_cancel_itself_and_can_end_by_its_limit() {
    let lines = [
        json!({"id": "c", "prompt": [1, 2], "max_tokens": 30, "cancel_after_tokens": 3}),
        json!({"id": "l", "prompt": [3, 4], "max_tokens": 5}),
        json!({"id": "one", "prompt": [3, 4], "max_tokens": 1}),
    ];
    let replayed = Program::new().replay(&ids_only(), &lines, &[]);
    assert_eq!(replayed.finish("c")["reason"], "cancelled");
    assert_eq!(replayed.tokens("c").len(), 3);
    assert_eq!(replayed.finish("l")["reason"], "length");
    assert_eq!(replayed.tokens("l").len(), 5);
    assert_eq!(replayed.tokens("one"), replayed.tokens("l")[..1]);
    assert_eq!(replayed.finish("l").get("stop_reason"), None);
}

#[test]
fn logprobs_are_those_of_the_oracles_logits() {
    let mut line = joining()[0].clone();
    line["logprobs"] = json!(1);
    let replayed = Program::new().replay(&ids_only(), &[line], &[]);
    let id = json!(0);
    let first = replayed.events("token", &id).next().unwrap();
    assert_eq!(keys(first), ["event", "id", "index", "token", "text", "logprob"]);
    let logits = expected()["serial"][0]["last_logits"].clone();
    let logits: Vec<f64> = logits
        .as_array()
        .unwrap()
        .iter()
        .map(|logit| logit.as_f64().unwrap())
        .collect();
    let sum = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
    let logprob = logits[first["token"].as_u64().unwrap() as usize] - sum;
    assert!(
        (first["logprob"].as_f64().unwrap() - logprob).abs() < 1e-3,
        "{first}, {logprob}"
    );
}

#[test]
fn a_wrong_line_is_a_usage_error_that_names_file_line_and_reason() {
    let program = Program::new();
    for (line, said) in [
        (
            r#"{"id": 1, "prompt": [1], "grammar": {}}"#,
            "unknown field `grammar`",
        ),
        (
            r#"{"id": 1, "prompt": [1], "sampling": {"heat": 1}}"#,
            "unknown field `heat`",
        ),
        ("{bad", "key must be a string"),
        (r#"{"id": 1}"#, "needs a prompt"),
        (r#"{"prompt": [1]}"#, "missing field `id`"),
        (
            r#"{"id": 1, "prompt": [-1]}"#,
            "\"prompt\" has -1, which is no token id",
        ),
        (r#"{"id": 1, "prompt": [1], "at_step": -1}"#, "-1"),
        (
            r#"{"id": 1, "prompt": "a", "messages": []}"#,
            "exclude each other",
        ),
    ] {
        let workload = program.file("w.jsonl", format!("{{\"id\": 0, \"prompt\": [1]}}\n\n{line}\n"));
        let output = program.run(&["replay", &workload, "-m", &ids_only(), "--json"]);
        output.fails(2, &[&workload, "line 3", said]);
        assert_eq!(output.stdout, "");
        let output = program.run_with(&["replay", "-", "-m", "/there/is/no/model"], line);
        output.fails(2, &["standard input: line 1", said]);
    }
}

#[test]
fn a_workload_that_cant_be_read_is_named() {
    Program::new()
        .run(&["replay", "/there/is/none.jsonl", "-m", &ids_only()])
        .fails(1, &["/there/is/none.jsonl"]);
}

#[test]
fn an_empty_workload_has_a_summary_alone() {
    let replayed = Program::new().replay(&ids_only(), &[], &[]);
    assert_eq!(replayed.0.len(), 1);
    assert_eq!(replayed.summary()["steps"], 0);
    assert_eq!(replayed.summary()["decode_tokens_per_s"], Value::Null);
}

#[test]
fn what_a_request_cant_ask_for_is_refused_with_the_reason_and_the_rest_runs() {
    let refused = [
        (json!({"id": 1, "prompt": "text"}), "without a tokenizer"),
        (
            json!({"id": 1, "messages": [{"role": "user", "content": "hi"}]}),
            "without a tokenizer",
        ),
        (json!({"id": 1, "prompt": []}), "empty"),
        (json!({"id": 1, "prompt": [320]}), "320"),
        (
            json!({"id": 1, "prompt": [1], "max_tokens": 0}),
            "max_tokens is 0",
        ),
        (
            json!({"id": 1, "prompt": [1], "sampling": {"temperature": -1}}),
            "temperature is -1",
        ),
        (
            json!({"id": 1, "prompt": [1], "stop": [""]}),
            "stop string 1 is empty",
        ),
    ];
    for (line, said) in refused {
        let good = json!({"id": 2, "prompt": [1], "max_tokens": 2});
        let replayed = Program::new().replay(&ids_only(), &[line, good], &[]);
        let finish = replayed.finish(1);
        assert_eq!(finish["reason"], "rejected");
        let message = finish["message"].as_str().unwrap();
        assert!(message.contains(said), "{said:?} is not in {message}");
        assert_numbers(
            finish,
            &["prompt_tokens", "cached_tokens", "generated_tokens", "queued_ms"],
        );
        assert_eq!(finish["ttft_ms"], Value::Null);
        assert_eq!(replayed.tokens(2).len(), 2);
    }
}

#[test]
fn flags_that_mean_nothing_are_usage_errors() {
    let program = Program::new();
    let workload = program.file("w.jsonl", "");
    for flag in [
        &["--kv-bits", "5"][..],
        &["--mixed-token-budget", "0"],
        &["--mixed-token-budget", "7", "--mixed-prefill"],
        &["--prompt-cache-dir", "here", "--prompt-cache-disk", "off"],
        &["--no-compile"],
        &["--max-batch", "0"],
        &["--kv-budget", "much"],
        &["--kv-budget", "-1"],
    ] {
        let model = ids_only();
        let args = [&["replay", &workload, "-m", &model], flag].concat();
        program.run(&args).fails(2, &[flag[0]]);
    }
}

#[test]
fn a_folder_for_the_prompt_cache_that_can_not_be_made_is_told() {
    let program = Program::new();
    let workload = program.file("w.jsonl", json!({"id": 0, "prompt": [1]}).to_string());
    let inside = format!("{workload}/prompts");
    let args = [
        "replay",
        &workload,
        "-m",
        &ids_only(),
        "--prompt-cache-dir",
        &inside,
    ];
    program
        .run(&args)
        .fails(1, &["--prompt-cache-dir", &inside, "can't be made"]);
}

#[test]
fn a_reader_who_leaves_ends_a_replay_quietly() {
    let program = Program::new();
    let line = json!({"id": 0, "prompt": [1], "max_tokens": 2000, "ignore_eos": true});
    let workload = program.file("w.jsonl", line.to_string());
    let mut child = program
        .command(&["replay", &workload, "-m", &ids_only(), "--json"])
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let output = finish(child);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
}

#[test]
fn without_json_a_replay_prints_a_line_per_request_and_a_sum() {
    let program = Program::new();
    let workload = program.file("w.jsonl", "{\"id\": \"a\", \"prompt\": [1], \"max_tokens\": 2}");
    let output = program.run(&["replay", &workload, "-m", &ids_only()]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!((output.code, lines.len()), (0, 2), "{output:?}");
    assert!(lines[0].starts_with("\"a\": length · 1 prompt tokens") && lines[1].starts_with("1 steps"));
}

#[test]
fn a_limit_that_a_line_does_not_say_shrinks_to_what_the_context_leaves() {
    let prompt = vec![1; 2000];
    let lines = [
        json!({"id": "unsaid", "prompt": prompt, "ignore_eos": true}),
        json!({"id": "said", "prompt": prompt, "ignore_eos": true, "max_tokens": 256}),
    ];
    let replayed = Program::new().replay(&ids_only(), &lines, &[]);
    let unsaid = replayed.finish("unsaid");
    assert_eq!(
        (&unsaid["reason"], &unsaid["generated_tokens"]),
        (&json!("length"), &json!(48))
    );
    assert_eq!(
        unsaid["message"],
        "prompt and answer fill the model's 2048 positions"
    );
    assert_eq!(replayed.finish("said")["reason"], "rejected");
}

#[test]
fn an_id_that_two_lines_have_is_a_usage_error_with_both_numbers() {
    let program = Program::new();
    let workload = program.file(
        "w.jsonl",
        "{\"id\": 7, \"prompt\": [1]}\n\n{\"id\": 7, \"prompt\": [2]}\n",
    );
    program
        .run(&["replay", &workload, "-m", &ids_only()])
        .fails(2, &["line 3", "the id 7", "line 1"]);
}
