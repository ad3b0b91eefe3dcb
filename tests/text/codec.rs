use mlx_chat::gguf::{Array, Value};
use mlx_chat::text::message::ChatOptions;
use mlx_chat::text::{Codec, TextError};
use proptest::prelude::*;

use super::{Vocabulary, assistant, user};

const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

fn string(text: &str) -> Value {
    Value::Str(text.into())
}

fn chatml() -> Vocabulary {
    Vocabulary::new(
        &["h e", "l l", "he ll", "hell o", "Ġ hello", "1 2"],
        &[
            ("<|im_start|>", CONTROL),
            ("<|im_end|>", CONTROL),
            ("<s>", CONTROL),
            ("<tool>", USER_DEFINED),
        ],
    )
}

fn codec(vocabulary: &Vocabulary, more: &[(&str, Value)]) -> Codec {
    Codec::from_gguf(&vocabulary.metadata(more)).unwrap()
}

fn error(more: &[(&str, Value)]) -> TextError {
    Codec::from_gguf(&chatml().metadata(more)).unwrap_err()
}

#[test]
fn a_codec_is_shared_between_threads() {
    fn shared<T: Clone + Send + Sync>() {}
    shared::<Codec>();
}

#[test]
fn words_are_merged_and_digits_are_not() {
    let vocabulary = chatml();
    let codec = codec(&vocabulary, &[]);
    assert_eq!(
        codec.encode("hello hello"),
        [vocabulary.id("hello"), vocabulary.id("Ġhello")]
    );
    assert_eq!(codec.encode("12"), [u32::from(b'1'), u32::from(b'2')]);
    assert_eq!(codec.encode(""), [] as [u32; 0]);
    assert_eq!(codec.vocab_size(), vocabulary.tokens.len());
}

#[test]
fn pre_tokenizers_differ_in_what_they_keep_together() {
    let vocabulary = chatml();
    let merged = [vocabulary.id("12")];
    let apart = [u32::from(b'1'), u32::from(b'2')];
    for (pre, tokens) in [
        ("smollm", &apart[..]),
        ("qwen2", &apart),
        ("gpt-2", &merged),
        ("llama-bpe", &merged),
        ("default", &merged),
    ] {
        let codec = codec(&vocabulary, &[("tokenizer.ggml.pre", string(pre))]);
        assert_eq!(codec.encode("12"), tokens, "{pre}");
    }
}

/// Whether two characters are in one word shows by the merge that would join them.
#[test]
fn words_are_cut_as_the_models_own_tokenizers_cut_them() {
    let vocabulary = Vocabulary::new(&["1 2", "2 3", "' S", "A b", "Ġ !", "Ċ Ċ", "! /"], &[]);
    let texts = |pre: &str, text: &str| -> Vec<String> {
        let codec = codec(&vocabulary, &[("tokenizer.ggml.pre", string(pre))]);
        codec.encode(text).iter().map(|id| codec.decode(&[*id])).collect()
    };
    for (pre, text, words) in [
        ("llama-bpe", "123", &["12", "3"][..]),
        ("smollm", "12", &["1", "2"]),
        ("tekken", "12", &["1", "2"]),
        ("gpt-4o", "12", &["12"]),
        ("deepseek-v3", "12", &["12"]),
        ("deepseek-coder", "12", &["1", "2"]),
        ("viking", "12", &["1", "2"]),
        ("bloom", "12", &["12"]),
        // Contractions in capitals, words of several cases.
        ("qwen2", "'S", &["'S"]),
        ("smollm", "'S", &["'", "S"]),
        ("tekken", "Ab", &["Ab"]),
        ("gpt-4o", "bAb", &["b", "Ab"]),
        // What follows punctuation.
        ("gpt-4o", "!/", &["!/"]),
        ("deepseek-coder", " !", &[" !"]),
        ("falcon", " !", &[" ", "!"]),
        ("deepseek-llm", "\n\n", &["\n", "\n"]),
        ("llama-bpe", "\n\n", &["\n\n"]),
    ] {
        assert_eq!(texts(pre, text), words, "{pre}: {text:?}");
    }
}

#[test]
fn a_word_that_is_a_token_is_that_token_where_the_pre_tokenizer_says_so() {
    // No merge leads to `xyz`.
    let mut vocabulary = chatml();
    vocabulary.tokens.push("xyz".to_owned());
    vocabulary.types.push(1);
    for (pre, tokens) in [("llama-bpe", 1), ("tekken", 1), ("qwen2", 3)] {
        let codec = codec(&vocabulary, &[("tokenizer.ggml.pre", string(pre))]);
        assert_eq!(codec.encode("xyz").len(), tokens, "{pre}");
    }
}

#[test]
fn a_turns_end_that_a_file_takes_for_a_word_is_a_control_token() {
    let vocabulary = Vocabulary::new(&[], &[("<|im_end|>", 1)]);
    let codec = codec(&vocabulary, &[]);
    assert_eq!(codec.encode("<|im_end|>"), [256]);
    assert_eq!(codec.decode(&[256]), "");
}

#[test]
fn special_tokens_in_a_text_are_recognised_and_give_no_text_back() {
    let vocabulary = chatml();
    let codec = codec(&vocabulary, &[]);
    let tokens = codec.encode("<|im_start|>hello<tool><|im_end|>");
    let expected = ["<|im_start|>", "hello", "<tool>", "<|im_end|>"].map(|token| vocabulary.id(token));
    assert_eq!(tokens, expected);
    assert_eq!(codec.decode(&tokens), "hello<tool>");
}

#[test]
fn a_bos_goes_before_a_raw_prompt_once_and_only_where_the_model_wants_it() {
    let vocabulary = chatml();
    let bos = vocabulary.id("<s>");
    let hello = vocabulary.id("hello");
    let id = ("tokenizer.ggml.bos_token_id", Value::U32(bos));
    let with = codec(
        &vocabulary,
        &[id.clone(), ("tokenizer.ggml.add_bos_token", Value::Bool(true))],
    );
    assert_eq!(with.encode("hello"), [hello]);
    assert_eq!(with.encode_prompt("hello"), [bos, hello]);
    assert_eq!(with.encode_prompt("<s>hello"), [bos, hello]);
    assert_eq!(with.encode_prompt(""), [bos]);
    let without = codec(&vocabulary, &[id]);
    assert_eq!(without.encode_prompt("hello"), [hello]);
}

#[test]
fn every_token_that_ends_a_turn_ends_an_answer() {
    let vocabulary = chatml();
    let (end, s) = (vocabulary.id("<|im_end|>"), vocabulary.id("<s>"));
    let eos = ("tokenizer.ggml.eos_token_id", Value::U32(s));
    assert_eq!(codec(&vocabulary, std::slice::from_ref(&eos)).eos(), [s, end]);
    let plain = ("tokenizer.chat_template", string("{{ messages[0].content }}"));
    assert_eq!(codec(&vocabulary, &[eos.clone(), plain.clone()]).eos(), [s]);
    let eot = ("tokenizer.ggml.eot_token_id", Value::U32(end));
    assert_eq!(codec(&vocabulary, &[eos, eot, plain.clone()]).eos(), [s, end]);
    assert_eq!(codec(&vocabulary, &[plain]).eos(), [] as [u32; 0]);
}

#[test]
fn the_end_of_a_message_ends_no_answer_where_answers_are_several() {
    let vocabulary = Vocabulary::new(&["h e"], &[("<|end|>", CONTROL)]);
    let end = vocabulary.id("<|end|>");
    let of = |template| codec(&vocabulary, &[("tokenizer.chat_template", string(template))]);
    assert_eq!(of("{{ messages[0].content }}<|end|>").eos(), [end]);
    assert_eq!(
        of("<|channel|>final{{ messages[0].content }}<|end|>").eos(),
        [] as [u32; 0]
    );
}

#[test]
fn what_is_not_supported_is_named_with_what_is() {
    let message = error(&[("tokenizer.ggml.pre", string("superbpe"))]).to_string();
    assert!(
        message.contains("`superbpe`") && message.contains("smollm") && message.contains("tekken"),
        "{message}"
    );
    let message = error(&[("tokenizer.ggml.model", string("t5"))]).to_string();
    assert!(
        message.contains("t5 (Unigram)") && message.contains("gpt2"),
        "{message}"
    );
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_refused() {
    let strings = |texts: &[&str]| Value::Array(Array::Str(texts.iter().map(ToString::to_string).collect()));
    for (key, value, said) in [
        ("tokenizer.ggml.tokens", strings(&[]), "no tokens"),
        (
            "tokenizer.ggml.token_type",
            Value::Array(Array::I32(vec![1])),
            "types for 1",
        ),
        (
            "tokenizer.ggml.bos_token_id",
            Value::U32(1_000_000),
            "`tokenizer.ggml.bos_token_id` is 1000000",
        ),
        ("tokenizer.ggml.eos_token_id", string("2"), "the string"),
        ("tokenizer.ggml.merges", strings(&["ab"]), "merge 1"),
        ("tokenizer.ggml.merges", strings(&["h e", "z z"]), "merge 2"),
        ("tokenizer.ggml.merges", strings(&["missing e"]), "missing"),
        ("tokenizer.ggml.merges", Value::Bool(true), "an array of strings"),
    ] {
        let message = error(&[(key, value)]).to_string();
        assert!(message.contains(said), "{key}: {message}");
    }
}

#[test]
fn a_file_without_a_tokenizer_says_which_key_is_missing() {
    let message = Codec::from_gguf(&mlx_chat::gguf::Metadata::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("tokenizer.ggml.model"), "{message}");
}

#[test]
fn a_chat_is_stable_up_to_the_answer_where_the_template_keeps_past_turns() {
    let codec = codec(&chatml(), &[]);
    let chat = codec.encode_chat(&[user("hello")], &ChatOptions::default());
    assert_eq!(chat.stable, chat.tokens.len());
    let answered = [user("hello"), assistant("hello hello"), user("again")];
    let next = codec.encode_chat(&answered, &ChatOptions::default());
    assert_eq!(next.tokens[..chat.stable], chat.tokens[..chat.stable]);
}

#[test]
fn a_chat_is_stable_only_up_to_what_the_template_rewrites() {
    // The opening of the answer holds a mark that past answers lose, as templates of reasoning models do it.
    let template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]<think>";
    let codec = codec(&chatml(), &[("tokenizer.chat_template", string(template))]);
    let chat = codec.encode_chat(&[user("hello")], &ChatOptions::default());
    assert_eq!(chat.note, None);
    assert_eq!(chat.stable, chat.tokens.len() - "<think>".len());
}

/// Texts that grow from nothing in particular, and ones that are hard on tokenizers: one word, spaces,
/// digits, no words.
#[test]
fn large_texts_are_tokenized_whole() {
    let codec = codec(&chatml(), &[]);
    let size = 1 << 18;
    for unit in [
        "hello, world ",
        "a",
        " ",
        "\n",
        "1",
        "日",
        "!",
        "a\u{301}",
        "<|im_start|>",
        " \n",
    ] {
        let text = unit.repeat(size / unit.len());
        let tokens = codec.encode(&text);
        if !unit.starts_with("<|") {
            assert_eq!(codec.decode(&tokens), text, "{unit:?}");
        }
    }
}

/// The pattern that finds words gives up on a million spaces; what follows must still be words.
#[test]
fn words_behind_very_long_white_space_are_still_words() {
    let vocabulary = chatml();
    let codec = codec(&vocabulary, &[("tokenizer.ggml.pre", string("llama-bpe"))]);
    let text = " ".repeat(1_200_000) + "hello hello";
    let tokens = codec.encode(&text);
    assert_eq!(
        tokens[tokens.len() - 2..],
        [vocabulary.id("Ġhello"), vocabulary.id("Ġhello")]
    );
    assert_eq!(codec.decode(&tokens), text);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_comes_back_from_its_tokens(text in "\\PC{0,40}|[\\s\\S]{0,40}") {
        let codec = codec(&chatml(), &[]);
        let tokens = codec.encode(&text);
        prop_assert!(tokens.iter().all(|token| (*token as usize) < codec.vocab_size()));
        prop_assert_eq!(codec.decode(&tokens), text);
    }

    #[test]
    fn a_stream_of_any_tokens_is_their_whole_text(tokens in prop::collection::vec(0_u32..300, 0..60)) {
        let codec = codec(&chatml(), &[]);
        let bytes: Vec<u8> = tokens.iter().filter(|t| **t < 256).map(|t| *t as u8).collect();
        // Byte tokens alone, so that the whole is known without the detokenizer.
        let tokens: Vec<u32> = tokens.into_iter().filter(|t| *t < 256 || *t > 270).collect();
        let mut detokenizer = codec.decoder();
        let mut stream: String = tokens.iter().map(|token| detokenizer.push(*token)).collect();
        stream += &detokenizer.finish();
        prop_assert_eq!(stream, String::from_utf8_lossy(&bytes));
    }
}
