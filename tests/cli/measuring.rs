//! `bench`.

use super::model::ids_only;
use super::program::{Output, Program};

const FIELDS: [&str; 11] = [
    "batch",
    "prompt",
    "gen",
    "prefill_tok_s",
    "decode_tok_s",
    "step_ms",
    "build_ms",
    "read_ms",
    "emit_ms",
    "gap_ms",
    "mlx_peak_bytes",
];

fn bench(flags: &[&str]) -> Output {
    let small = ["bench", "-m", &ids_only(), "--prompt", "16", "--gen", "8"];
    Program::new().run(&[&small[..], flags].concat())
}

#[test]
fn there_is_a_line_per_batch_with_the_documented_fields() {
    let output = bench(&["--batch", "1,3,12", "--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let lines = output.json();
    assert_eq!(lines.len(), 3);
    for (line, batch) in lines.iter().zip([1, 3, 12]) {
        let keys: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, [&FIELDS[..], &["rss_peak_bytes", "kv_layers"]].concat());
        let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
        assert!(FIELDS.iter().all(|name| number(name).is_finite()));
        assert!(FIELDS[..7].iter().all(|name| number(name) > 0.0), "{line}");
        assert!(number("mlx_peak_bytes") > 0.0 && number("rss_peak_bytes") > 0.0);
        assert_eq!([&line["batch"], &line["prompt"], &line["gen"]], [batch, 16, 8]);
        let parts = number("build_ms") + number("read_ms") + number("emit_ms") + number("gap_ms");
        assert!((parts - number("step_ms")).abs() <= 1e-6 * parts);
        // Seven tokens a row after its token 0, over the steps' time.
        let tokens = number("decode_tok_s") * number("step_ms") / 1e3;
        assert!(
            (tokens - f64::from(batch)).abs() < 1e-6,
            "{tokens} tokens a step, {line}"
        );
    }
    assert!(lines[2]["mlx_peak_bytes"].as_u64() > lines[0]["mlx_peak_bytes"].as_u64());
}

#[test]
fn people_are_told_which_model_and_which_lengths_are_measured() {
    let output = bench(&["--batch", "1"]);
    assert_eq!(output.code, 0, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(
        lines[0].contains("prompts of 16 tokens, 8 generated") && lines[0].contains("llama"),
        "{output:?}"
    );
    assert!(lines[1].starts_with("batch   1"), "{output:?}");
}

#[test]
fn rows_that_cant_run_together_are_an_error_not_a_figure() {
    let output = bench(&["--batch", "4", "--json", "--kv-budget", "600K"]);
    output.fails(1, &["of the 4 rows", "--kv-budget"]);
    assert_eq!(output.stdout, "");
}

#[test]
fn wrong_sizes_are_usage_errors() {
    for flags in [
        ["--batch", "0"],
        ["--batch", "1,x"],
        ["--prompt", "0"],
        ["--gen", "0"],
    ] {
        bench(&flags).fails(2, &[flags[0]]);
    }
}

#[test]
fn a_prompt_past_the_models_positions_fails_with_the_reason() {
    let args = ["bench", "-m", &ids_only(), "--prompt", "3000"];
    Program::new().run(&args).fails(1, &["3000 tokens", "takes 2048"]);
}

#[test]
fn a_prompt_cache_that_this_call_asks_for_is_refused_and_one_of_the_settings_does_not_count() {
    for flag in [
        ["--prompt-cache", "1M"],
        ["--prompt-cache-disk", "1M"],
        ["--prompt-cache-dir", "here"],
    ] {
        bench(&flag).fails(2, &[flag[0], "nothing is measured with a prompt cache"]);
    }
    let program = Program::new();
    let small = ["bench", "-m", &ids_only(), "--prompt", "16", "--gen", "8"];
    let mixed = ["--mixed-prefill", "--batch", "16"];
    let mut command = program.command(&[&small[..], &mixed].concat());
    command.envs([
        ("MLX_CHAT_PROMPT_CACHE_DISK", "1M"),
        ("MLX_CHAT_ENGINE_MIXED_TOKEN_BUDGET", "9"),
    ]);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains("engine.mixed_token_budget: 9 tokens") && told.contains("the default counts"),
        "{told}"
    );
}
