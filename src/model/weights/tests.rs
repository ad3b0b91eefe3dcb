//! Some rows are those rows of the whole, however a file stores and orders them.

use std::path::Path;

use super::*;
use crate::gguf::Gguf;

#[allow(dead_code, reason = "other tests want more of it")]
#[path = "../../../tests/support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{Writer, text};

/// Rows taken by parts, of one row among them, are the whole.
fn assert_parts_are_the_whole(source: &dyn WeightSource, name: &str, rows: usize, cols: usize) {
    let whole = source.matrix(name, rows, cols).unwrap();
    let mut elements = Vec::new();
    for part in [0..1, 1..rows / 2, rows / 2..rows] {
        let matrix = source.rows(name, [rows, cols], part.clone()).unwrap();
        assert_eq!(matrix.shape(), (part.len(), cols), "{name} {part:?}");
        assert_eq!(
            std::mem::discriminant(&matrix),
            std::mem::discriminant(&whole),
            "{name}"
        );
        elements.extend(matrix.into_dense());
    }
    assert_eq!(elements, whole.into_dense(), "{name}");
    let missing = source.rows(name, [rows, cols], rows..rows + 1).unwrap_err();
    assert!(missing.to_string().contains("there are no rows"), "{missing}");
}

#[test]
fn rows_of_a_folder_are_rows_of_its_matrices() {
    for model in ["llama", "qwen3-4bit"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures/oracle")
            .join(model);
        let config: serde_json::Value =
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let size = |name: &str| config[name].as_u64().unwrap() as usize;
        let quantization = Quantization::from_config(&config).unwrap();
        let source = SafetensorsFolder::open(&folder, quantization).unwrap();
        let shape = [size("vocab_size"), size("hidden_size")];
        assert_parts_are_the_whole(&source, "model.embed_tokens.weight", shape[0], shape[1]);
    }
}

#[test]
fn rows_of_a_file_that_orders_them_otherwise_are_rows_in_our_order() {
    // Q8_0: blocks of 32 with a half before them.
    let data = |rows: usize| -> Vec<u8> {
        let block = |row: usize| [&[row as u8, 0x3c][..], &[row as u8; 32]].concat();
        (0..rows).flat_map(block).collect()
    };
    let file = Writer::new()
        .entry("general.architecture", 8, &text("llama"))
        .entry("llama.attention.head_count", 4, &2u32.to_le_bytes())
        .entry("llama.attention.head_count_kv", 4, &1u32.to_le_bytes())
        .tensor("blk.0.attn_q.weight", &[32, 16], 8, &data(16))
        .tensor("blk.0.attn_k.weight", &[32, 8], 8, &data(8))
        .tensor("blk.0.attn_v.weight", &[32, 8], 8, &data(8));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    let file = Gguf::open(&path).unwrap();
    let source = GgufWeights::new(&file).unwrap();
    for (name, rows) in [("q_proj", 16), ("k_proj", 8), ("v_proj", 8)] {
        let name = format!("model.layers.0.self_attn.{name}.weight");
        assert_parts_are_the_whole(&source, &name, rows, 32);
    }
    let keys = source
        .rows("model.layers.0.self_attn.k_proj.weight", [8, 32], 0..2)
        .unwrap();
    let second = keys.into_dense()[32];
    let stored = file.tensor("blk.0.attn_k.weight").unwrap().to_f32().unwrap();
    assert_eq!(second, stored[2 * 32], "our second row is the file's third");
}

#[test]
fn a_file_of_mixed_types_is_called_as_it_says_and_by_what_most_of_it_is() {
    let name = |file_type: Option<u32>, kind: u32, bytes: usize| {
        let mut file = Writer::new()
            .entry("general.architecture", 8, &text("llama"))
            .entry("llama.attention.head_count", 4, &1u32.to_le_bytes());
        if let Some(number) = file_type {
            file = file.entry("general.file_type", 4, &number.to_le_bytes());
        }
        let file = file.tensor("token_embd.weight", &[256, 1], kind, &vec![0; bytes]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, file.bytes()).unwrap();
        let file = Gguf::open(&path).unwrap();
        GgufWeights::new(&file).unwrap().quantization()
    };
    assert_eq!(name(Some(15), 12, 144), "Q4_K_M");
    assert_eq!(name(Some(15), 8, 8 * 34), "Q4_K_M, mostly Q8_0");
    assert_eq!(name(Some(7), 8, 8 * 34), "Q8_0");
    assert_eq!(name(Some(99), 12, 144), "Q4_K");
    assert_eq!(name(None, 0, 1024), "none (F32)");
}
