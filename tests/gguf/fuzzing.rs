//! Files changed at random: opened and read, whatever they hold, without a panic or an outsized allocation.

use super::damaged::{read_all, valid};
use super::fuzz::fuzz;
use super::on_disk;
use super::writer::{Writer, array, text};
use mlx_chat::gguf::Gguf;

#[test]
fn fuzzed_files_are_read_or_refused() {
    let plain = valid().bytes();
    let bare = Writer::new().bytes();
    let names: Vec<u8> = ["a", "b", "c"].iter().flat_map(|name| text(name)).collect();
    let lists = Writer::new()
        .entry("general.architecture", 8, &text("llama"))
        .entry("tokenizer.ggml.tokens", 9, &array(8, 3, &names))
        .entry("tokenizer.ggml.scores", 9, &array(6, 3, &[0; 12]))
        .tensor("token_embd.weight", &[32, 3], 8, &[1; 102])
        .bytes();
    let types = Writer::new()
        .tensor("a", &[256], 10, &[0x31; 84])
        .tensor("b", &[256], 11, &[0x31; 110])
        .tensor("c", &[256], 12, &[0x31; 144])
        .tensor("d", &[256], 13, &[0x31; 176])
        .tensor("e", &[256], 14, &[0x31; 210])
        .tensor("f", &[32, 2, 2], 39, &[0x31; 68])
        .tensor("g", &[32], 6, &[0x31; 22])
        .bytes();
    let split = Writer::new()
        .entry("split.no", 2, &[0, 0])
        .entry("split.count", 2, &[1, 0])
        .entry("split.tensors.count", 5, &[0; 4])
        .bytes();
    let file = on_disk(b"");
    fuzz("gguf", &[&plain, &bare, &lists, &types, &split], |bytes| {
        std::fs::write(&file.path, bytes).unwrap();
        let opened = Gguf::open(&file.path);
        if let Ok(opened) = &opened {
            read_all(opened);
        }
        opened.is_ok()
    });
}
