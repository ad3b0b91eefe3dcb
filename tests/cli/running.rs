//! `run`, and the program alone with piped input.

use serde_json::{Value, json};

use super::model::{ids_only, with_tokenizer};
use super::program::{Output, Program};

/// What was answered; nothing else is told but that it was cut off where it was to be.
fn ok(output: Output) -> String {
    let told = output.stderr.as_str();
    let cut = told.starts_with("note: the answer was cut off: ") && told.lines().count() == 1;
    assert!(output.code == 0 && (told.is_empty() || cut), "{output:?}");
    output.stdout
}

/// What a replay of this conversation says.
fn replayed(program: &Program, model: &str, messages: &Value) -> String {
    let line = json!({"id": 0, "messages": messages, "max_tokens": 24});
    program.replay(model, &[line], &[]).text(0)
}

fn with_newline(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') {
        text
    } else {
        text + "\n"
    }
}

#[test]
fn the_answer_is_that_of_a_replay_with_the_same_messages() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let messages = json!([{"role": "system", "content": "Short."}, {"role": "user", "content": "Hello?"}]);
    let expected = with_newline(replayed(&program, &model, &messages));
    assert!(expected.len() > 2, "{expected:?}");
    let answer = ok(program.run(&[
        "run",
        "-m",
        &model,
        "--max-tokens",
        "24",
        "--system",
        "Short.",
        "Hello?",
    ]));
    // Byte for byte: what goes into a pipe is not sanitized.
    assert_eq!(answer, expected);
}

#[test]
fn argument_files_and_input_are_joined_in_this_order() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let messages = json!([{"role": "user", "content": "ask\n\none\n\n\ntwo\n\nthree"}]);
    let expected = with_newline(replayed(&program, &model, &messages));
    let (one, two) = (program.file("one", "one\n"), program.file("two", "two"));
    let args = [
        "run",
        "-m",
        &model,
        "--max-tokens",
        "24",
        "ask",
        "-f",
        &one,
        "-f",
        &two,
    ];
    assert_eq!(ok(program.run_with(&args, "three\n")), expected);
}

#[test]
fn the_program_alone_answers_piped_input_like_run() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let run = ok(program.run(&["run", "-m", &model, "--max-tokens", "24", "Hello?"]));
    let piped = program.run_with(&["-m", &model, "--max-tokens", "24"], "Hello?\n");
    assert_eq!(ok(piped), run);
}

#[test]
fn json_has_the_events_and_a_summary() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let plain = ok(program.run(&["run", "-m", &model, "--max-tokens", "24", "Hello?"]));
    let output = program.run(&["run", "-m", &model, "--max-tokens", "24", "--json", "Hello?"]);
    assert_eq!(output.code, 0, "{output:?}");
    let lines = output.json();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    let (rest, end) = events.split_at(events.len() - 2);
    assert!(rest.iter().all(|event| *event == "token"));
    assert_eq!(end, ["finish", "summary"]);
    let text: String = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(with_newline(text), plain);
}

#[test]
fn nothing_asked_is_a_usage_error_with_a_hint() {
    let program = Program::new();
    for args in [&["run"][..], &[], &["run", "  "]] {
        program.run(args).fails(2, &["there is no prompt", "-f"]);
        program.run_with(args, " \n").fails(2, &["there is no prompt"]);
    }
}

#[test]
fn input_that_is_no_text_is_an_error_that_says_so() {
    let program = Program::new();
    program
        .run_with(&["run", "hi"], [0xff, 0xfe, 0x00])
        .fails(1, &["standard input", "UTF-8"]);
    let file = program.file("garbage", [0xff, 0xfe]);
    program.run(&["run", "-f", &file]).fails(1, &[&file, "UTF-8"]);
    program
        .run(&["run", "-f", "/there/is/none"])
        .fails(1, &["/there/is/none"]);
}

#[test]
fn settings_out_of_range_are_usage_errors() {
    let program = Program::new();
    for (flag, value, said) in [
        ("--temperature", "-1", "temperature is -1"),
        ("--temperature", "nan", "temperature is NaN"),
        ("--temperature", "warm", "--temperature"),
        ("--top-p", "2", "top_p is 2"),
        ("--min-p", "-0.5", "min_p is -0.5"),
        ("--max-tokens", "0", "expected a whole number from 1"),
        ("--seed", "x", "expected a whole number from 0"),
        ("--max-batch", "-3", "expected a whole number from 1"),
        ("--threads", "x", "expected a whole number from 1 to 1024"),
        ("--top-k", "-1", "expected a whole number from 0 to"),
        ("--kv-bits", "x", "expected 4 or 8"),
    ] {
        program.run(&["run", "hi", flag, value]).fails(2, &[said]);
        program.run_with(&[flag, value], "hi").fails(2, &[said]);
    }
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let drawn = |seed: &str| {
        ok(program.run(&[
            "run",
            "-m",
            &model,
            "--max-tokens",
            "32",
            "--temperature",
            "1.5",
            "--seed",
            seed,
            "Hi",
        ]))
    };
    let seven = drawn("7");
    assert_eq!(drawn("7"), seven);
    assert_ne!(drawn("8"), seven);
}

#[test]
fn statistics_go_to_standard_error_alone() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let plain = ok(program.run(&["run", "-m", &model, "--max-tokens", "8", "Hi"]));
    let output = program.run(&["run", "-m", &model, "--max-tokens", "8", "--stats", "Hi"]);
    assert_eq!((output.code, &output.stdout), (0, &plain));
    assert_eq!(output.stderr.lines().count(), 2, "it was cut off, and the counts");
    assert!(
        output.stderr.contains("8 generated (length)"),
        "{}",
        output.stderr
    );
    assert!(!output.stderr.contains('\u{1b}'));
}

#[test]
fn a_model_without_tokenizer_is_refused_with_what_to_do() {
    Program::new()
        .run(&["run", "-m", &ids_only(), "hi"])
        .fails(1, &["without a tokenizer", "mlx-chat replay"]);
}

#[test]
fn a_rejected_request_fails_with_its_message() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let output = program.run(&["run", "-m", &model, "--max-tokens", "5000", "hi"]);
    output.fails(1, &["2048", "lower max_tokens"]);
    assert_eq!(output.stdout, "");
}

#[test]
fn a_prompt_that_fits_is_answered_with_what_the_context_leaves() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let prompt = "?".repeat(2000);
    let output = program.run(&["run", "-m", &model, "--temperature", "0", "--stats", &prompt]);
    assert_eq!(output.code, 0, "{output:?}");
    // The model's noise may end before.
    assert_eq!(
        output.stderr.contains("(length)"),
        output
            .stderr
            .contains("note: the answer was cut off: prompt and answer fill the model's 2048 positions"),
        "{}",
        output.stderr
    );
    program
        .run(&["run", "-m", &model, "--max-tokens", "1024", &prompt])
        .fails(1, &["2048", "lower max_tokens"]);
}

#[test]
fn a_model_without_a_template_is_told_of_and_stops_at_the_next_turn() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    program.file(
        "tiny/tokenizer_config.json",
        "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    );
    let output = program.run(&["run", "-m", &model, "--max-tokens", "4", "hi"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stderr.starts_with("note: the model has no chat template"),
        "{}",
        output.stderr
    );
    assert!(
        output.stderr.contains("writes the next `user:` itself"),
        "{}",
        output.stderr
    );
}
