//! `models`, without a network.

use serde_json::{Value, json};

use super::model::ids_only;
use super::program::Program;

#[test]
fn with_nothing_installed_the_default_model_is_listed_as_one_to_pull() {
    let program = Program::new();
    let output = program.run(&["models", "list", "--json", "--offline"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let models = output.json()[0].as_array().unwrap().clone();
    let default: Vec<&Value> = models.iter().filter(|model| model["default"] == true).collect();
    assert_eq!(default.len(), 1);
    assert_eq!(
        (&default[0]["installed"], &default[0]["path"]),
        (&json!(false), &Value::Null)
    );
    let plain = program.run(&["models", "list"]);
    assert!(
        plain
            .stdout
            .contains("not installed, default; mlx-chat models pull"),
        "{plain:?}"
    );
    let info = program.run(&["models", "info", "--json"]);
    assert_eq!(info.json()[0]["name"], default[0]["name"]);
}

#[test]
fn info_of_a_folder_says_what_its_files_say() {
    let output = Program::new().run(&["models", "info", "--json", &ids_only()]);
    assert_eq!(output.code, 0, "{output:?}");
    let info = &output.json()[0];
    assert_eq!(info["path"], ids_only());
    let model = &info["model"];
    assert_eq!((&model["family"], &model["layers"]), (&json!("llama"), &json!(4)));
    assert_eq!(
        (&model["context_length"], &model["vocabulary"]),
        (&json!(2048), &json!(320))
    );
    // Keys and values of 2 heads of 32 in float32, 4 layers.
    assert_eq!(model["kv_bytes_per_token"], 2 * 2 * 32 * 4 * 4);
    let plain = Program::new().run(&["models", "info", &ids_only()]);
    assert!(plain.stdout.contains("model.family") && plain.stdout.contains("llama"));
}

#[test]
fn info_of_a_damaged_file_says_why_it_can_not_be_read() {
    let program = Program::new();
    let path = program.file("broken.gguf", b"GGUF\x03\0\0\0");
    let output = program.run(&["models", "info", "--json", &path]);
    let model = &output.json()[0]["model"];
    assert_eq!(model["supported"], false, "{output:?}");
    assert!(
        model["not_supported"].as_str().unwrap().contains("damaged"),
        "{output:?}"
    );
}

#[test]
fn info_counts_weights_and_says_whether_they_fit() {
    let output = Program::new().run(&["models", "info", "--json", &ids_only()]);
    let model = &output.json()[0]["model"];
    assert_eq!(model["supported"], true);
    let of_types = |key: &str| -> u64 {
        let types = model["types"].as_array().unwrap();
        types.iter().map(|share| share[key].as_u64().unwrap()).sum()
    };
    assert_eq!(model["parameters"].as_u64().unwrap(), of_types("parameters"));
    assert_eq!(model["weight_bytes"].as_u64().unwrap(), of_types("bytes"));
    let memory = &model["memory"];
    assert_eq!(
        (&memory["fits"], &memory["longest_context_that_fits"]),
        (&json!(true), &json!(2048))
    );
    assert_eq!(model["chat"]["not_supported"], "it has no tokenizer");
}

#[test]
fn info_of_a_family_that_is_not_supported_says_so_and_what_is_known() {
    let program = Program::new();
    std::fs::create_dir(program.path("odd")).unwrap();
    program.file(
        "odd/config.json",
        r#"{"model_type": "mamba", "max_position_embeddings": 512}"#,
    );
    let weights = std::path::Path::new(&ids_only()).join("model.safetensors");
    std::fs::copy(weights, program.path("odd/model.safetensors")).unwrap();
    let odd = program.path("odd");
    let output = program.run(&["models", "info", "--json", odd.to_str().unwrap()]);
    assert_eq!(output.code, 0, "{output:?}");
    let model = &output.json()[0]["model"];
    assert_eq!(
        (&model["family"], &model["supported"]),
        (&json!("mamba"), &json!(false))
    );
    assert!(model["not_supported"].as_str().unwrap().contains("mamba"));
    assert!(model["parameters"].as_u64() > Some(0) && model["context_length"] == 512);
}

#[test]
fn a_repository_that_is_not_in_the_cache_is_not_asked_for_offline() {
    let program = Program::new();
    for args in [
        &["models", "pull", "org/name", "--offline"][..],
        &["run", "-m", "org/name:Q4_0", "--offline", "hi"],
    ] {
        program
            .run(args)
            .fails(1, &["org/name", "offline", "huggingface/hub"]);
    }
    program
        .run(&["models", "info", "org/name"])
        .fails(1, &["models pull org/name"]);
}

#[test]
fn unknown_models_are_errors_that_name_them() {
    let program = Program::new();
    program
        .run(&["models", "info", "nothing"])
        .fails(1, &["'nothing'", "Known models"]);
    program
        .run(&["models", "info", "/there/is/none"])
        .fails(1, &["/there/is/none"]);
    program
        .run(&["models", "rm", "--yes", "nothing"])
        .fails(1, &["'nothing'", "models list"]);
    program
        .run(&["models", "rm", "nothing"])
        .fails(1, &["'nothing'", "models list"]);
    program.run(&["models"]).fails(2, &["Usage"]);
}

#[test]
fn rm_never_leaves_the_models_folder() {
    let program = Program::new();
    let kept = program.file("kept.gguf", "GGUF");
    for name in [kept.as_str(), "../../../kept.gguf", "..", "."] {
        let output = program.run(&["models", "rm", "--yes", name]);
        output.fails(1, &[]);
        assert!(std::path::Path::new(&kept).is_file());
    }
}

#[test]
fn offline_nothing_is_pulled_and_the_message_says_what_to_do() {
    let program = Program::new();
    for args in [&["models", "pull", "--offline"][..], &["run", "--offline", "hi"]] {
        program
            .run(args)
            .fails(1, &["offline", "mlx-chat models pull", "path of a .gguf file"]);
    }
}
