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
    program.run(&["models", "rm", "nothing"]).fails(2, &["--yes"]);
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
