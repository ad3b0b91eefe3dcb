use std::path::Path;

use mlx_chat::text::Codec;
use mlx_chat::text::message::ChatOptions;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{alphabet, user};

/// A byte-level tokenizer: token `n` is the byte `n`, 256 `<s>`, 257 `</s>`, 258 `<note>` (not special).
pub(super) fn byte_level() -> Value {
    let vocab: serde_json::Map<String, Value> = alphabet().into_iter().zip((0..).map(Value::from)).collect();
    let added = |id: u32, content: &str, special: bool| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": special})
    };
    json!({
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
        "padding": null, "normalizer": null,
        "added_tokens": [added(256, "<s>", true), added(257, "</s>", true), added(258, "<note>", false)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []}
    })
}

/// A tokenizer as SentencePiece models have it: `▁` for a space, bytes for what the vocabulary lacks.
pub(super) fn sentence_piece() -> Value {
    let mut vocab = serde_json::Map::new();
    for token in ["<unk>", "<s>", "</s>"]
        .into_iter()
        .map(str::to_owned)
        .chain((0..256).map(|b| format!("<0x{b:02X}>")))
    {
        vocab.insert(token, vocab.len().into());
    }
    for token in ["▁", "a", "b", "▁a"] {
        vocab.insert(token.to_owned(), vocab.len().into());
    }
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab,
                  "merges": ["▁ a"]}
    })
}

pub(super) fn folder_of(files: &[(&str, Vec<u8>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn folder(files: &[(&str, String)]) -> TempDir {
    let files = files
        .iter()
        .map(|(name, text)| (*name, text.clone().into_bytes()));
    folder_of(&files.collect::<Vec<_>>())
}

fn with(files: &[(&str, Value)]) -> TempDir {
    let files: Vec<(&str, String)> = files
        .iter()
        .map(|(name, json)| (*name, json.to_string()))
        .collect();
    folder(&[&files[..], &[("tokenizer.json", byte_level().to_string())]].concat())
}

fn read(folder: &Path) -> Codec {
    Codec::from_folder(folder)
        .unwrap()
        .expect("the folder has a tokenizer")
}

#[test]
fn a_folder_without_a_tokenizer_has_no_codec() {
    let folder = folder(&[("config.json", "{}".to_owned())]);
    assert!(Codec::from_folder(folder.path()).unwrap().is_none());
}

#[test]
fn a_tokenizer_alone_is_enough_and_never_truncates() {
    let folder = with(&[]);
    let codec = read(folder.path());
    assert_eq!(codec.encode("abc<note></s>"), [97, 98, 99, 258, 257]);
    assert_eq!(codec.decode(&[97, 256, 258, 99_999, 98]), "a<note>b");
    assert_eq!(codec.vocab_size(), 259);
    assert_eq!(codec.eos(), [] as [u32; 0]);
    assert_eq!(codec.encode_prompt("a"), [97]);
    assert!(
        codec
            .render(&[user("hi")], &ChatOptions::default())
            .note
            .unwrap()
            .contains("no chat template")
    );
}

#[test]
fn eos_ids_are_one_or_several_and_the_generation_settings_win() {
    let one = ("config.json", json!({"eos_token_id": 257}));
    assert_eq!(read(with(std::slice::from_ref(&one)).path()).eos(), [257]);
    let several = ("generation_config.json", json!({"eos_token_id": [257, 10]}));
    assert_eq!(read(with(&[one.clone(), several]).path()).eos(), [257, 10]);
    let none = ("generation_config.json", json!({"eos_token_id": null}));
    assert_eq!(read(with(&[one, none]).path()).eos(), [257]);
    let nested = ("config.json", json!({"text_config": {"eos_token_id": 10}}));
    assert_eq!(read(with(&[nested]).path()).eos(), [10]);
    let named = ("tokenizer_config.json", json!({"eos_token": {"content": "</s>"}}));
    assert_eq!(read(with(&[named]).path()).eos(), [257]);
    let wrong = ("config.json", json!({"eos_token_id": "</s>"}));
    let message = Codec::from_folder(with(&[wrong]).path()).unwrap_err().to_string();
    assert!(
        message.contains("config.json") && message.contains("eos_token_id"),
        "{message}"
    );
}

#[test]
fn the_template_is_the_files_else_the_settings_default() {
    let config = json!({"bos_token": "<s>", "add_bos_token": true, "chat_template": [
        {"name": "tool_use", "template": "T"}, {"name": "default", "template": "{{ bos_token }}D"}]});
    let config = ("tokenizer_config.json", config);
    let folder = with(std::slice::from_ref(&config));
    let codec = read(folder.path());
    assert_eq!(codec.render(&[user("hi")], &ChatOptions::default()).text, "<s>D");
    assert_eq!(
        codec.encode_chat(&[user("hi")], &ChatOptions::default()).tokens,
        [256, u32::from(b'D')]
    );
    assert_eq!(codec.encode_prompt("D"), [256, u32::from(b'D')]);
    std::fs::write(
        folder.path().join("chat_template.jinja"),
        "{{ messages[0].content }}!",
    )
    .unwrap();
    assert_eq!(
        read(folder.path())
            .render(&[user("hi")], &ChatOptions::default())
            .text,
        "hi!"
    );
    let single = ("tokenizer_config.json", json!({"chat_template": "S"}));
    assert_eq!(
        read(with(&[single]).path())
            .render(&[user("hi")], &ChatOptions::default())
            .text,
        "S"
    );
}

#[test]
fn a_template_may_stand_in_a_file_of_its_own() {
    let folder = with(&[("chat_template.json", json!({"chat_template": "J"}))]);
    assert_eq!(
        read(folder.path())
            .render(&[user("hi")], &ChatOptions::default())
            .text,
        "J"
    );
}

#[test]
fn special_tokens_are_named_by_the_configuration_else_by_their_own_file() {
    let map = (
        "special_tokens_map.json",
        json!({"bos_token": {"content": "<s>"}, "eos_token": "</s>"}),
    );
    let wanted = ("tokenizer_config.json", json!({"add_bos_token": true}));
    let codec = read(with(&[map.clone(), wanted]).path());
    assert_eq!(
        (codec.eos(), codec.encode_prompt("a")),
        (&[257][..], vec![256, 97])
    );
    let other = (
        "tokenizer_config.json",
        json!({"eos_token": "<s>", "bos_token": null}),
    );
    assert_eq!(read(with(&[map, other]).path()).eos(), [256]);
}

#[test]
fn tokens_that_only_the_configuration_adds_get_the_next_ids() {
    let added = json!({"259": {"content": "<|end|>", "special": true}, "256": {"content": "<s>", "special": true},
                       "260": {"content": "<think>", "special": false}});
    let folder = with(&[("tokenizer_config.json", json!({"added_tokens_decoder": added}))]);
    let codec = read(folder.path());
    assert_eq!(codec.encode("<s>a<think><|end|>"), [256, 97, 260, 259]);
    assert_eq!(codec.decode(&[97, 260, 259]), "a<think>");
}

#[test]
fn sentence_piece_tokens_and_byte_tokens_come_out_as_text() {
    let folder = folder(&[("tokenizer.json", sentence_piece().to_string())]);
    let codec = read(folder.path());
    for text in ["a a b", "日本 a", "a é\n", "👩‍👩‍👧‍👦"] {
        let tokens = codec.encode(text);
        assert_eq!(codec.decode(&tokens), text, "{tokens:?}");
    }
    let mut stream = codec.decoder();
    let tokens = codec.encode("a日");
    let pieces: Vec<String> = tokens.iter().map(|token| stream.push(*token)).collect();
    assert_eq!(pieces, ["a", "", "", "日"]);
}

#[test]
fn a_damaged_tokenizer_is_an_error_that_names_the_file() {
    let mut broken_merge = byte_level();
    broken_merge["model"]["merges"] = json!(["a b"]);
    let mut pair_merge = byte_level();
    pair_merge["model"]["merges"] = json!([["a"]]);
    let mut unknown = byte_level();
    unknown["model"]["unk_token"] = json!("<nothing>");
    for (content, said) in [
        ("{".to_owned(), "tokenizer.json"),
        ("[]".to_owned(), "tokenizer.json"),
        ("{}".to_owned(), "model"),
        (broken_merge.to_string(), "a b"),
        (pair_merge.to_string(), "merge"),
        (unknown.to_string(), "<nothing>"),
    ] {
        let folder = folder(&[("tokenizer.json", content)]);
        let message = Codec::from_folder(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(said) && message.contains("tokenizer.json"),
            "{message}"
        );
    }
}

/// A pattern of nothing is found everywhere, which the library notices too late.
#[test]
fn a_tokenizer_on_which_the_library_panics_is_refused() {
    let mut endless = byte_level();
    endless["normalizer"] = json!({"type": "Replace", "pattern": {"String": ""}, "content": "x"});
    let mut absent = byte_level();
    absent["post_processor"] = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<none>", "type_id": 0}}],
        "pair": [], "special_tokens": {}});
    for tokenizer in [endless, absent] {
        let folder = folder(&[("tokenizer.json", tokenizer.to_string())]);
        let error = Codec::from_folder(folder.path()).unwrap_err();
        assert!(error.to_string().contains("tokenizer.json"), "{error}");
    }
}

#[test]
fn an_empty_template_is_none() {
    let config = json!({"chat_template": " \n"}).to_string();
    let folder = folder(&[
        ("tokenizer.json", byte_level().to_string()),
        ("tokenizer_config.json", config),
    ]);
    let rendered = read(folder.path()).render(&[user("hi")], &ChatOptions::default());
    assert!(
        rendered.note.is_some() && rendered.text.contains("hi"),
        "{rendered:?}"
    );
}

#[test]
fn a_decoder_that_is_not_known_is_refused_by_its_name() {
    let mut tokenizer = byte_level();
    tokenizer["decoder"] = json!({"type": "WordPiece", "prefix": "##", "cleanup": true});
    let folder = folder(&[("tokenizer.json", tokenizer.to_string())]);
    let message = Codec::from_folder(folder.path()).unwrap_err().to_string();
    assert!(message.contains("WordPiece"), "{message}");
}
