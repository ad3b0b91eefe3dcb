use mlx_chat::gguf::{Array, Metadata, Value};
use mlx_chat::text::Codec;
use proptest::prelude::*;

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// A vocabulary with its scores and types; the place of a token is its id.
#[derive(Clone, Default)]
struct Vocabulary(Vec<(String, f32, i32)>);

impl Vocabulary {
    fn with(mut self, tokens: &[(&str, f32, i32)]) -> Self {
        let tokens = tokens
            .iter()
            .map(|(token, score, kind)| ((*token).to_owned(), *score, *kind));
        self.0.extend(tokens);
        self
    }

    fn with_bytes(mut self) -> Self {
        self.0
            .extend((0..256).map(|byte| (format!("<0x{byte:02X}>"), 0.0, BYTE)));
        self
    }

    fn id(&self, token: &str) -> u32 {
        self.0.iter().position(|(known, ..)| known == token).unwrap() as u32
    }

    fn ids(&self, tokens: &[&str]) -> Vec<u32> {
        tokens.iter().map(|token| self.id(token)).collect()
    }

    fn metadata(&self, more: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in more {
            assert!(metadata.insert((*key).to_owned(), value.clone()));
        }
        let tokens = self.0.iter().map(|(token, ..)| token.clone()).collect();
        let scores = self.0.iter().map(|(_, score, _)| *score).collect();
        let types = self.0.iter().map(|(.., kind)| *kind).collect();
        metadata.insert("tokenizer.ggml.model".into(), Value::Str("llama".into()));
        metadata.insert("tokenizer.ggml.tokens".into(), Value::Array(Array::Str(tokens)));
        metadata.insert("tokenizer.ggml.scores".into(), Value::Array(Array::F32(scores)));
        metadata.insert(
            "tokenizer.ggml.token_type".into(),
            Value::Array(Array::I32(types)),
        );
        metadata
    }

    fn codec(&self, more: &[(&str, Value)]) -> Codec {
        Codec::from_gguf(&self.metadata(more)).unwrap()
    }
}

fn llama() -> Vocabulary {
    Vocabulary::default()
        .with(&[
            ("<unk>", 0.0, UNKNOWN),
            ("<s>", 0.0, CONTROL),
            ("</s>", 0.0, CONTROL),
        ])
        .with_bytes()
        .with(&[
            ("▁h", -1.0, NORMAL),
            ("he", -2.0, NORMAL),
            ("ll", -3.0, NORMAL),
            ("▁he", -4.0, NORMAL),
            ("llo", -5.0, NORMAL),
            ("▁hello", -6.0, NORMAL),
            ("▁", -7.0, NORMAL),
            ("h", -8.0, NORMAL),
            ("e", -9.0, NORMAL),
            ("l", -10.0, NORMAL),
            ("o", -11.0, NORMAL),
        ])
}

fn no_prefix() -> [(&'static str, Value); 1] {
    [("tokenizer.ggml.add_space_prefix", Value::Bool(false))]
}

#[test]
fn the_pair_of_the_highest_score_is_joined_first_and_the_leftmost_of_equals() {
    let vocabulary = llama();
    let codec = vocabulary.codec(&[]);
    assert_eq!(codec.encode("hello"), vocabulary.ids(&["▁hello"]));
    // `ll` before `llo`; without `▁h`, `he` is joined.
    let bare = vocabulary.codec(&no_prefix());
    assert_eq!(bare.encode("hello"), vocabulary.ids(&["he", "llo"]));
    assert_eq!(bare.encode("lll"), vocabulary.ids(&["ll", "l"]));
    assert_eq!(bare.encode("lllll"), vocabulary.ids(&["ll", "ll", "l"]));
}

#[test]
fn a_space_goes_before_a_text_and_behind_special_tokens_where_the_model_wants_it() {
    let vocabulary = llama();
    let codec = vocabulary.codec(&[]);
    assert_eq!(codec.encode("h h"), vocabulary.ids(&["▁h", "▁h"]));
    assert_eq!(
        codec.encode("<s>h</s>h"),
        vocabulary.ids(&["<s>", "▁h", "</s>", "▁h"])
    );
    assert_eq!(codec.encode(""), [] as [u32; 0]);
    assert_eq!(codec.encode(" h"), vocabulary.ids(&["▁", "▁h"]));
    let bare = vocabulary.codec(&no_prefix());
    assert_eq!(bare.encode("<s>h"), vocabulary.ids(&["<s>", "h"]));
    assert_eq!(bare.decode(&bare.encode(" h")), " h");
}

#[test]
fn what_the_vocabulary_lacks_is_written_as_bytes_and_read_back() {
    let vocabulary = llama();
    let codec = vocabulary.codec(&[]);
    let bytes = ["<0xE6>", "<0x97>", "<0xA5>"];
    assert_eq!(codec.encode("日"), vocabulary.ids(&[&["▁"], &bytes[..]].concat()));
    for text in ["日本", "h\u{301}", "👩‍👩‍👧‍👦 ☺️", "a\0b\n"] {
        assert_eq!(codec.decode(&codec.encode(text)), text);
    }
    let mut stream = codec.decoder();
    let pieces: Vec<String> = codec.encode("h日").iter().map(|id| stream.push(*id)).collect();
    assert_eq!(pieces, ["h", "", "", "日"]);
}

#[test]
fn without_byte_tokens_unknown_characters_in_a_row_are_one_unknown_token() {
    let vocabulary = Vocabulary::default().with(&[("<unk>", 0.0, UNKNOWN), ("a", 0.0, NORMAL)]);
    let codec = vocabulary.codec(&no_prefix());
    assert_eq!(codec.encode("日本a日"), vocabulary.ids(&["<unk>", "a", "<unk>"]));
}

#[test]
fn user_defined_tokens_are_found_before_anything_is_joined_the_longest_first() {
    let vocabulary = llama().with(&[
        ("  ", 0.0, USER_DEFINED),
        ("   ", 0.0, USER_DEFINED),
        ("el", 0.0, USER_DEFINED),
    ]);
    let codec = vocabulary.codec(&no_prefix());
    assert_eq!(codec.encode("     h"), vocabulary.ids(&["   ", "  ", "h"]));
    assert_eq!(codec.encode("hello"), vocabulary.ids(&["h", "el", "l", "o"]));
    assert_eq!(codec.decode(&codec.encode("h     el")), "h     el");
}

#[test]
fn control_and_byte_tokens_are_never_joined_from_characters() {
    let vocabulary = Vocabulary::default().with(&[
        ("<unk>", 0.0, UNKNOWN),
        ("a", -1.0, NORMAL),
        ("b", -1.0, NORMAL),
        ("ab", 0.0, BYTE),
    ]);
    let message = Codec::from_gguf(&vocabulary.metadata(&[]))
        .unwrap_err()
        .to_string();
    assert!(message.contains("byte token \"ab\""), "{message}");
    // `<0x` and `41>` could be joined to the token of a byte; that text is no byte.
    let vocabulary = llama().with(&[
        ("<0x", 0.0, NORMAL),
        ("<0", 0.0, NORMAL),
        ("41>", 0.0, NORMAL),
        ("1>", 0.0, NORMAL),
        ("<", 0.0, NORMAL),
        ("0", 0.0, NORMAL),
        ("x", 0.0, NORMAL),
        ("4", 0.0, NORMAL),
        ("1", 0.0, NORMAL),
        (">", 0.0, NORMAL),
    ]);
    let codec = vocabulary.codec(&no_prefix());
    assert_eq!(codec.encode("<0x41>"), vocabulary.ids(&["<0x", "41>"]));
}

#[test]
fn unused_tokens_are_taken_apart_again() {
    let vocabulary = llama().with(&[("oo", 0.0, UNUSED), ("ooh", 0.0, UNUSED)]);
    let codec = vocabulary.codec(&no_prefix());
    assert_eq!(codec.encode("ooh"), vocabulary.ids(&["o", "o", "h"]));
}

#[test]
fn spaces_are_collapsed_where_the_file_says_so() {
    let vocabulary = llama();
    let codec = vocabulary.codec(&[("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(true))]);
    assert_eq!(codec.encode("  h   h "), vocabulary.ids(&["▁h", "▁h"]));
    assert_eq!(codec.encode("   "), [] as [u32; 0]);
}

#[test]
fn phi_3_takes_white_space_behind_its_special_tokens_for_theirs() {
    let vocabulary = llama().with(&[("<|user|>", 0.0, CONTROL)]);
    let codec = vocabulary.codec(&[("general.name", Value::Str("Phi 3 mini (phi3)".into()))]);
    assert_eq!(
        codec.encode("<|user|>\n h<s> h"),
        vocabulary.ids(&["<|user|>", "▁h", "<s>", "▁", "▁h"])
    );
}

#[test]
fn a_prompt_begins_with_bos_unless_the_file_says_otherwise() {
    let vocabulary = llama();
    assert_eq!(
        vocabulary.codec(&[]).encode_prompt("h"),
        vocabulary.ids(&["<s>", "▁h"])
    );
    assert_eq!(vocabulary.codec(&[]).eos(), vocabulary.ids(&["</s>"]));
    let without = vocabulary.codec(&[("tokenizer.ggml.add_bos_token", Value::Bool(false))]);
    assert_eq!(without.encode_prompt("h"), vocabulary.ids(&["▁h"]));
}

#[test]
fn a_vocabulary_that_could_leave_characters_without_a_token_is_refused() {
    let vocabulary = Vocabulary::default().with(&[("a", 0.0, NORMAL), ("<0x00>", 0.0, BYTE)]);
    let message = Codec::from_gguf(&vocabulary.metadata(&[]))
        .unwrap_err()
        .to_string();
    assert!(message.contains("<0x01>"), "{message}");
    let scores = ("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.0])));
    let message = Codec::from_gguf(&llama().metadata(&[scores]))
        .unwrap_err()
        .to_string();
    assert!(message.contains("1 scores"), "{message}");
}

/// One word of a million characters, and a run of equal ones whose every pair can be joined.
#[test]
fn a_very_long_word_is_encoded() {
    let runs: Vec<String> = (0..=10).map(|power| "l".repeat(1 << power)).collect();
    let runs: Vec<(&str, f32, i32)> = runs
        .iter()
        .map(|run| (run.as_str(), run.len() as f32, NORMAL))
        .collect();
    let vocabulary = Vocabulary::default()
        .with(&[("<unk>", 0.0, UNKNOWN)])
        .with_bytes()
        .with(&runs);
    let codec = vocabulary.codec(&no_prefix());
    let text = "l".repeat(1 << 20);
    assert_eq!(codec.encode(&text), vec![vocabulary.id(runs[10].0); 1 << 10]);
    let text = "日l".repeat(1 << 18);
    assert_eq!(codec.decode(&codec.encode(&text)), text);
}

/// What joining comes to, done the slow way: over all pairs, again and again.
fn reference(vocabulary: &Vocabulary, text: &str) -> Vec<u32> {
    let mut symbols: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    let score = |joined: &str| {
        let found = vocabulary
            .0
            .iter()
            .find(|(token, _, kind)| token == joined && *kind == NORMAL);
        found.map(|(_, score, _)| *score)
    };
    loop {
        let pairs = symbols.windows(2).enumerate();
        let pairs = pairs.filter_map(|(at, pair)| Some((at, score(&pair.concat())?)));
        let best = pairs.fold(None, |best: Option<(usize, f32)>, pair| match best {
            Some(best) if best.1 >= pair.1 => Some(best),
            _ => Some(pair),
        });
        let Some((at, _)) = best else { break };
        let right = symbols.remove(at + 1);
        symbols[at].push_str(&right);
    }
    symbols.iter().map(|symbol| vocabulary.id(symbol)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joining_by_a_queue_is_joining_the_best_pair_again_and_again(
        text in "[ab ]{0,40}",
        tokens in prop::collection::vec(("[ab▁]{2,5}", -3_i8..3), 0..30),
    ) {
        let mut vocabulary = Vocabulary::default()
            .with(&[("<unk>", 0.0, UNKNOWN), ("a", 0.0, NORMAL), ("b", 0.0, NORMAL), ("▁", 0.0, NORMAL)]);
        for (token, score) in tokens {
            if !vocabulary.0.iter().any(|(known, ..)| *known == token) {
                vocabulary.0.push((token, f32::from(score), NORMAL));
            }
        }
        let codec = vocabulary.codec(&no_prefix());
        prop_assert_eq!(codec.encode(&text), reference(&vocabulary, &text));
        prop_assert_eq!(codec.decode(&codec.encode(&text)), text);
    }

    #[test]
    fn a_text_comes_back_from_its_tokens_with_and_without_a_prefix(text in "\\PC{0,40}|[\\s\\S]{0,40}") {
        for more in [&no_prefix()[..], &[]] {
            let codec = llama().codec(more);
            let tokens = codec.encode(&text);
            // The one thing that a vocabulary of this kind can't tell apart.
            prop_assert_eq!(codec.decode(&tokens), text.replace('▁', " "));
        }
    }
}
