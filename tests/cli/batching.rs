//! `replay` of the oracle's prompts: one batch, whatever the flags; the prompt cache; the KV budget; the queue.

use serde_json::{Value, json};

use super::model::{expected, ids_only, joining};
use super::program::{Program, Replayed};

/// The four prompts' tokens equal the oracle's; gives the steps that it took.
fn joined(flags: &[&str]) -> u64 {
    let replayed = Program::new().replay(&ids_only(), &joining(), flags);
    for (id, tokens) in expected()["batch_joined"].as_array().unwrap().iter().enumerate() {
        assert_eq!(json!(replayed.tokens(id)), *tokens, "{flags:?}, request {id}");
        let finish = replayed.finish(id);
        assert_eq!(
            (&finish["reason"], &finish["generated_tokens"]),
            (&json!("length"), &json!(40))
        );
    }
    replayed.summary()["steps"].as_u64().unwrap()
}

#[test]
fn prompts_that_join_one_another_get_the_oracles_tokens_in_one_batch() {
    assert!(joined(&[]) <= 66);
}

#[test]
fn reading_before_building_changes_no_token() {
    assert!(joined(&["--no-pipeline"]) <= 66);
}

#[test]
fn small_chunks_of_prompt_change_no_token() {
    assert!(joined(&["--prefill-chunk", "7"]) <= 90);
}

#[test]
fn prompts_that_ride_along_in_steps_change_no_token() {
    assert!(joined(&["--mixed-prefill"]) <= 70);
    assert!(joined(&["--mixed-prefill", "--mixed-token-budget", "9", "--no-pipeline"]) <= 120);
    assert!(joined(&["--mixed-prefill", "--max-batch", "2"]) > 66);
}

#[test]
fn a_prompt_rides_along_beside_as_many_rows_as_may_run() {
    let long = json!({"prompt": [1, 2, 3], "max_tokens": 120, "ignore_eos": true});
    let rows = (0..3).map(|id| {
        let mut row = long.clone();
        row["id"] = json!(id);
        row
    });
    let prompt: Vec<usize> = (1..40).collect();
    let joiner = json!({"id": 3, "prompt": prompt, "max_tokens": 4, "at_step": 10, "ignore_eos": true});
    let workload: Vec<Value> = rows.chain([joiner]).collect();
    // Four rows may run: the budget leaves the prompt one token of each step.
    let flags = ["--mixed-prefill", "--mixed-token-budget", "4", "--max-batch", "4"];
    let replayed = Program::new().replay(&ids_only(), &workload, &flags);
    let steps = replayed.summary()["steps"].as_u64().unwrap();
    assert!(
        steps < 130,
        "{steps} steps: the prompt has waited for the rows to end"
    );
    assert_eq!(replayed.summary()["mixed_tokens"], 39);
    assert_eq!(replayed.tokens(3).len(), 4);
}

#[test]
fn prompts_that_ride_along_are_counted_by_themselves() {
    let replayed = Program::new().replay(&ids_only(), &joining(), &["--mixed-prefill"]);
    let expected = expected();
    let lengths = expected["prompts"].as_array().unwrap().iter();
    let prompts: u64 = lengths
        .map(|prompt| prompt.as_array().unwrap().len() as u64)
        .sum();
    let mixed = replayed.summary()["mixed_tokens"].as_u64().unwrap();
    assert!(mixed > 0 && mixed < prompts, "{mixed} of {prompts}");
    let plain = Program::new().replay(&ids_only(), &joining(), &[]);
    assert_eq!(plain.summary()["mixed_tokens"], 0);
}

#[test]
fn a_narrow_batch_changes_no_token() {
    assert!(joined(&["--max-batch", "2"]) > 66);
}

#[test]
fn no_prompt_cache_changes_no_token() {
    assert!(joined(&["--prompt-cache", "off"]) <= 66);
}

#[test]
fn lines_wait_outside_a_full_queue() {
    assert_eq!(joined(&["--max-batch", "1", "--max-queued", "1"]), 4 * 39);
}

/// A first turn and, after it, one that goes on from its answer.
fn two_turns(program: &Program, flags: &[&str]) -> Replayed {
    let prompt = &expected()["prompts"][2];
    let first = json!({"id": 0, "prompt": prompt, "max_tokens": 12, "session": "s"});
    let alone = program.replay(&ids_only(), std::slice::from_ref(&first), flags);
    let mut next: Vec<Value> = prompt.as_array().unwrap().clone();
    next.extend(alone.tokens(0).into_iter().map(Value::from));
    next.extend([9, 8, 7].map(Value::from));
    let second = json!({"id": 1, "prompt": next, "at_step": 11, "max_tokens": 12, "session": "s"});
    program.replay(
        &ids_only(),
        &[first, second],
        &[flags, &["--max-batch", "1"]].concat(),
    )
}

#[test]
fn the_next_turn_of_a_session_is_served_from_the_cache_with_the_same_tokens() {
    let program = Program::new();
    let (with, without) = (
        two_turns(&program, &[]),
        two_turns(&program, &["--prompt-cache", "off"]),
    );
    assert_eq!(with.tokens(1).len(), 12);
    assert_eq!(with.tokens(1), without.tokens(1));
    // All that the first turn fed: its prompt, and its answer but the last token.
    assert_eq!(with.finish(1)["cached_tokens"], 40 + 11);
    assert_eq!(with.finish(1)["prompt_tokens"], 40 + 12 + 3);
    assert_eq!(without.finish(1)["cached_tokens"], 0);
    let cache = &with.summary()["prompt_cache"];
    assert_eq!(cache["tokens_served"], 51);
    assert_eq!(cache["lookups"], 2);
    assert_eq!(without.summary()["prompt_cache"]["lookups"], 0);
}

#[test]
fn the_next_turn_is_served_from_disk_after_a_restart_where_a_folder_is_given() {
    let program = Program::new();
    let folder = super::program::text(&program.path("prompts"));
    let flags = ["--prompt-cache-dir", folder.as_str()];
    let prompt = &expected()["prompts"][2];
    let first = json!({"id": 0, "prompt": prompt, "max_tokens": 12, "session": "s"});
    let first = program.replay(&ids_only(), &[first], &flags);
    let disk = &first.summary()["prompt_cache"]["disk"];
    assert!(disk["written"].as_u64() > Some(0), "{disk}");
    assert_eq!(disk["entries"], disk["written"]);
    let mut next: Vec<Value> = prompt.as_array().unwrap().clone();
    next.extend(first.tokens(0).into_iter().map(Value::from));
    next.extend([9, 8, 7].map(Value::from));
    let next = json!({"id": 1, "prompt": next, "max_tokens": 12, "session": "s"});
    let without = program.replay(&ids_only(), std::slice::from_ref(&next), &[]);
    let with = program.replay(&ids_only(), &[next], &flags);
    assert_eq!(without.finish(1)["cached_tokens"], 0);
    assert_eq!(with.finish(1)["cached_tokens"], 40 + 11);
    assert_eq!(with.tokens(1), without.tokens(1));
    let cache = &with.summary()["prompt_cache"];
    assert_eq!(
        (&cache["disk"]["restored"], &cache["full"]),
        (&json!(1), &json!(0))
    );
    assert!(cache["restore_ms"].as_f64() > Some(0.0));
}

#[test]
fn a_program_that_is_killed_while_it_keeps_prompts_leaves_nothing_broken() {
    let program = Program::new();
    let folder = program.path("prompts");
    let (model, named) = (ids_only(), super::program::text(&folder));
    let flags = ["--prompt-cache-dir", &named, "--prompt-cache", "1"];
    // Entries go to disk from the first on.
    let lines: Vec<Value> = (0..30)
        .map(
            |id| json!({"id": id, "prompt": expected()["prompts"][3], "max_tokens": 30 + id, "session": "s"}),
        )
        .collect();
    let workload: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let workload = program.file("killed.jsonl", workload);
    let args = [
        &["replay", &workload, "-m", &model, "--json", "--max-batch", "1"],
        &flags[..],
    ]
    .concat();
    let mut child = program
        .command(&args)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = || {
        std::fs::read_dir(&folder).is_ok_and(|mut files| {
            files.any(|file| {
                file.unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .contains(".safetensors")
            })
        })
    };
    while !begun() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let after = program.replay(&model, &lines[..1], &flags);
    assert_eq!(after.tokens(0).len(), 30);
    assert_eq!(after.summary()["prompt_cache"]["disk"]["damaged"], 0);
    let unfinished = std::fs::read_dir(&folder).unwrap().filter(|file| {
        file.as_ref()
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .ends_with(".part")
    });
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn a_private_request_reads_and_leaves_nothing_in_the_cache() {
    let line = |id: u8, cache: bool| json!({"id": id, "prompt": expected()["prompts"][3], "max_tokens": 4, "session": "s", "cache": cache});
    let replayed = Program::new().replay(
        &ids_only(),
        &[line(0, false), line(1, false)],
        &["--max-batch", "1"],
    );
    assert_eq!(replayed.summary()["prompt_cache"]["entries"], 0);
    assert_eq!(replayed.finish(1)["cached_tokens"], 0);
}

/// KV bytes that one request of up to 256 positions reserves.
fn reserved_by_one() -> u64 {
    let replayed = Program::new().replay(&ids_only(), &joining()[..1], &[]);
    replayed.summary()["kv"]["peak_reserved_bytes"].as_u64().unwrap()
}

#[test]
fn with_memory_for_one_and_a_half_requests_the_second_waits_and_then_runs() {
    let budget = reserved_by_one() * 3 / 2;
    let mut lines = joining();
    lines.truncate(2);
    lines[1]["at_step"] = json!(0);
    let replayed = Program::new().replay(&ids_only(), &lines, &["--kv-budget", &budget.to_string()]);
    for id in 0..2 {
        assert_eq!(json!(replayed.tokens(id)), expected()["batch_joined"][id]);
    }
    assert!(replayed.place("token", 1) > replayed.place("finish", 0));
    let ms = |id: usize, name: &str| replayed.finish(id)[name].as_f64().unwrap();
    assert!(ms(1, "queued_ms") > ms(0, "decode_ms"));
    assert!(ms(1, "ttft_ms") > ms(1, "queued_ms"));
    let kv = &replayed.summary()["kv"];
    let figure = |name: &str| kv[name].as_u64().unwrap();
    assert_eq!(figure("budget_bytes"), budget);
    assert!(figure("peak_used_bytes") <= figure("peak_allocated_bytes"));
    assert!(figure("peak_allocated_bytes") <= figure("peak_reserved_bytes"));
    assert!(figure("peak_reserved_bytes") <= budget);
}

#[test]
fn the_peaks_are_those_of_prompts_too() {
    let one = json!({"id": 0, "prompt": vec![6; 500], "max_tokens": 1});
    let replayed = Program::new().replay(&ids_only(), &[one], &[]);
    let kv = &replayed.summary()["kv"];
    let figure = |name: &str| kv[name].as_u64().unwrap();
    let [used, allocated, reserved] =
        ["peak_used_bytes", "peak_allocated_bytes", "peak_reserved_bytes"].map(figure);
    assert!(0 < used && used <= allocated && allocated <= reserved, "{kv}");
    // A budget of as much admits it, one of less does not.
    for (budget, reason) in [(reserved, "length"), (reserved - 1, "rejected")] {
        let one = json!({"id": 0, "prompt": vec![6; 500], "max_tokens": 1});
        let replayed = Program::new().replay(&ids_only(), &[one], &["--kv-budget", &budget.to_string()]);
        assert_eq!(replayed.finish(0)["reason"], reason, "{budget}");
    }
}

#[test]
fn a_request_over_the_budget_is_rejected_with_figures_and_the_others_run() {
    let budget = reserved_by_one().to_string();
    let long = json!({"id": "long", "prompt": [1, 2, 3], "max_tokens": 900});
    let replayed = Program::new().replay(
        &ids_only(),
        &[long, joining()[0].clone()],
        &["--kv-budget", &budget],
    );
    let finish = replayed.finish("long");
    assert_eq!(finish["reason"], "rejected");
    let message = finish["message"].as_str().unwrap();
    let needed = (4 * reserved_by_one()).to_string();
    for said in [
        "prompt of 3 tokens",
        "max_tokens 900",
        &budget,
        &needed,
        "lower max_tokens",
        "--kv-budget",
    ] {
        assert!(message.contains(said), "{said:?} is not in {message}");
    }
    assert_eq!(json!(replayed.tokens(0)), expected()["batch_joined"][0]);
}

#[test]
fn a_request_past_the_models_positions_is_rejected() {
    let long = json!({"id": 0, "prompt": [1], "max_tokens": 2048});
    let replayed = Program::new().replay(&ids_only(), &[long], &[]);
    let message = replayed.finish(0)["message"].as_str().unwrap();
    assert!(
        message.contains("2049 positions") && message.contains("at most 2047"),
        "{message}"
    );
}
