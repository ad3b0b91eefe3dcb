//! Models that can't be loaded: one clear message each.

use std::path::Path;

use super::model::{ids_only, with_tokenizer};
use super::program::{Program, text};

/// A copy of the tiny model that `damage` has been at.
fn damaged(program: &Program, damage: impl Fn(&Path)) -> String {
    let folder = program.path("damaged");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&ids_only()).join(name), folder.join(name)).unwrap();
    }
    damage(&folder);
    text(&folder)
}

fn assert_refused(model: &str, program: &Program, said: &[&str]) {
    let workload = program.file("w.jsonl", "{\"id\": 0, \"prompt\": [1]}");
    for args in [
        &["replay", &workload, "-m", model, "--json"][..],
        &["run", "-m", model, "hi"],
        &["bench", "-m", model],
    ] {
        let output = program.run(args);
        output.fails(1, said);
        output.fails(1, &[model]);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn a_folder_without_config() {
    let program = Program::new();
    let model = damaged(&program, |folder| {
        std::fs::remove_file(folder.join("config.json")).unwrap()
    });
    assert_refused(&model, &program, &["config.json"]);
}

#[test]
fn a_folder_without_weights() {
    let program = Program::new();
    let model = damaged(&program, |folder| {
        std::fs::remove_file(folder.join("model.safetensors")).unwrap()
    });
    assert_refused(&model, &program, &["safetensors"]);
}

#[test]
fn an_unknown_model_type() {
    let program = Program::new();
    let model = damaged(&program, |folder| {
        let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
        std::fs::write(folder.join("config.json"), config.replace("llama", "mamba9")).unwrap();
    });
    assert_refused(&model, &program, &["mamba9", "supported are", "llama"]);
}

#[test]
fn truncated_weights() {
    for length in [0, 5, 5000, 100_000] {
        let program = Program::new();
        let model = damaged(&program, |folder| {
            let weights = std::fs::File::options()
                .write(true)
                .open(folder.join("model.safetensors"));
            weights.unwrap().set_len(length).unwrap();
        });
        assert_refused(&model, &program, &["model.safetensors", "fetch it again"]);
    }
}

#[test]
fn a_damaged_config_and_tokenizer() {
    let program = Program::new();
    let model = damaged(&program, |folder| {
        std::fs::write(folder.join("config.json"), "{").unwrap()
    });
    assert_refused(&model, &program, &["config.json"]);
    let model = with_tokenizer(&program);
    std::fs::write(Path::new(&model).join("tokenizer.json"), "{}").unwrap();
    assert_refused(&model, &program, &["tokenizer.json"]);
}

#[test]
fn a_web_page_in_place_of_a_gguf_file() {
    let program = Program::new();
    let model = program.file("model.gguf", "<!DOCTYPE html><html><body>404</body></html>");
    assert_refused(&model, &program, &["not a GGUF file", "web page"]);
    let model = program.file("model.gguf", "");
    assert_refused(&model, &program, &["not a GGUF file", "empty"]);
}

#[test]
fn a_model_that_is_not_there() {
    let program = Program::new();
    assert_refused("/there/is/none", &program, &["no file or folder"]);
}

#[test]
fn a_template_that_fails_is_told_of_beside_a_replay_s_events() {
    let program = Program::new();
    let model = with_tokenizer(&program);
    let template = "{{ raise_exception('not \u{1b}[31mtoday') }}";
    let config = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": template});
    std::fs::write(
        Path::new(&model).join("tokenizer_config.json"),
        config.to_string(),
    )
    .unwrap();
    let line = r#"{"id": "a", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}"#;
    let workload = program.file("w.jsonl", line);
    let output = program.run(&["replay", &workload, "-m", &model, "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    let told = |text: &str| assert!(output.stderr.contains(text), "{}", output.stderr);
    told("note: \"a\": the model's chat template failed");
    told("is used instead");
    assert!(!output.stderr.contains('\u{1b}'), "{:?}", output.stderr);
}

#[test]
fn what_an_error_quotes_cannot_steer_the_terminal() {
    let program = Program::new();
    let output = program.run(&["models", "info", "no\u{1b}[31mpe", "--offline"]);
    output.fails(1, &["no␛[31mpe"]);
    assert!(!output.stderr.contains('\u{1b}'), "{:?}", output.stderr);
}
