//! The tiny models: the oracle's, which takes ids alone, and a copy of it with a tokenizer.

use std::path::Path;

use serde_json::{Value, json};

use super::program::{Program, text};

/// The folder of the oracle's tiny llama: 320 ids, no tokenizer.
pub fn ids_only() -> String {
    text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/oracle/llama"))
}

/// What mlx-lm computed for it.
pub fn expected() -> Value {
    let file = std::fs::read(Path::new(&ids_only()).join("expected.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// The oracle's four prompts, arriving as it had them arrive.
pub fn joining() -> Vec<Value> {
    let expected = expected();
    let prompts = expected["prompts"].as_array().unwrap().iter();
    let steps = expected["batch_joins_after_steps"].as_array().unwrap().iter();
    prompts
        .zip(steps)
        .zip(0..)
        .map(|((prompt, step), id)| json!({"id": id, "prompt": prompt, "at_step": step, "max_tokens": 40}))
        .collect()
}

/// GPT-2's character for each byte.
fn alphabet() -> impl Iterator<Item = String> {
    let mut others = 0x100..;
    (0u32..256).map(move |byte| {
        let same = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if same { byte } else { others.next().unwrap() };
        char::from_u32(code).unwrap().to_string()
    })
}

const TEMPLATE: &str = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>";

/// A copy of the tiny llama with a tokenizer: ids 0 to 255 are bytes, 256 `<s>`, 257 `</s>` (EOS), 258 and on a letter pair
/// each, so that its noise has text for every id.
pub fn with_tokenizer(program: &Program) -> String {
    let folder = program.path("tiny");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(Path::new(&ids_only()).join(name), folder.join(name)).unwrap();
    }
    let pairs: Vec<(String, String)> = (0..62u8)
        .map(|n| {
            (
                char::from(b'a' + n % 26).to_string(),
                char::from(b'A' + n / 26).to_string(),
            )
        })
        .collect();
    let added = |id: u32, content: &str| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    };
    let mut vocab: serde_json::Map<String, Value> = alphabet().zip((0..).map(Value::from)).collect();
    // Tokens added outside the vocabulary would be numbered behind it, whatever their ids.
    vocab.extend([("<s>".to_owned(), 256.into()), ("</s>".to_owned(), 257.into())]);
    for ((first, second), id) in pairs.iter().zip(258..) {
        vocab.insert(format!("{first}{second}"), id.into());
    }
    let merges: Vec<String> = pairs
        .iter()
        .map(|(first, second)| format!("{first} {second}"))
        .collect();
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": [added(256, "<s>"), added(257, "</s>")],
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges}
    });
    let config = json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE});
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    text(&folder)
}
