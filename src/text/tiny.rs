//! The least tokenizer that tests can load.

use std::path::Path;

use serde_json::json;

/// Writes a `tokenizer.json` of two tokens, `a` and `b`.
pub(crate) fn write_two_letters(folder: &Path) {
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": {"a": 0, "b": 1}, "merges": []}
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}
