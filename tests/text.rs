//! Text to tokens and back, over small vocabularies made here.

#[path = "text/boundary.rs"]
mod boundary;
#[path = "text/codec.rs"]
mod codec;
#[path = "text/folder.rs"]
mod folder;
#[path = "support/fuzz.rs"]
mod fuzz;
#[path = "text/fuzzing.rs"]
mod fuzzing;
#[path = "text/jinja.rs"]
mod jinja;
#[path = "text/model_file.rs"]
mod model_file;
#[path = "text/sentencepiece.rs"]
mod sentencepiece;
#[path = "text/spans.rs"]
mod spans;
#[path = "text/stops.rs"]
mod stops;
#[path = "text/streams.rs"]
mod streams;
#[path = "text/template_bounds.rs"]
mod template_bounds;
#[path = "text/template_fuzzing.rs"]
mod template_fuzzing;
#[path = "text/templates.rs"]
mod templates;
#[path = "support/gguf_writer.rs"]
#[allow(dead_code, reason = "made for whole files")]
mod writer;

use mlx_chat::gguf::{Array, Metadata, Value};
use mlx_chat::text::message::{Message, Role};

/// GPT-2's alphabet: the character that stands for each byte.
fn alphabet() -> Vec<String> {
    let same = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100..;
    let char_of = |byte| if same(&byte) { byte } else { others.next().unwrap() };
    (0..256)
        .map(char_of)
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect()
}

/// A vocabulary in which token `n` is the byte `n`, with the tokens of `merges` behind, then `specials` with
/// their types.
struct Vocabulary {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
}

impl Vocabulary {
    fn new(merges: &[&str], specials: &[(&str, i32)]) -> Self {
        let mut tokens = alphabet();
        tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
        let mut types = vec![1; tokens.len()];
        tokens.extend(specials.iter().map(|(token, _)| (*token).to_owned()));
        types.extend(specials.iter().map(|(_, kind)| kind));
        Self {
            tokens,
            types,
            merges: merges.iter().map(|merge| (*merge).to_owned()).collect(),
        }
    }

    fn id(&self, token: &str) -> u32 {
        self.tokens.iter().position(|known| known == token).unwrap() as u32
    }

    /// The keys of a file with this vocabulary, with `more` put in.
    fn metadata(&self, more: &[(&str, Value)]) -> Metadata {
        let mut metadata = Metadata::default();
        for (key, value) in more {
            assert!(metadata.insert((*key).to_owned(), value.clone()));
        }
        let strings = |strings: &[String]| Value::Array(Array::Str(strings.to_vec()));
        // Taken only where `more` doesn't say otherwise.
        metadata.insert("tokenizer.ggml.model".into(), Value::Str("gpt2".into()));
        metadata.insert("tokenizer.ggml.pre".into(), Value::Str("smollm".into()));
        metadata.insert("tokenizer.ggml.tokens".into(), strings(&self.tokens));
        metadata.insert("tokenizer.ggml.merges".into(), strings(&self.merges));
        metadata.insert(
            "tokenizer.ggml.token_type".into(),
            Value::Array(Array::I32(self.types.clone())),
        );
        metadata
    }
}

fn user(content: &str) -> Message {
    Message::new(Role::User, content)
}

fn assistant(content: &str) -> Message {
    Message::new(Role::Assistant, content)
}

fn system(content: &str) -> Message {
    Message::new(Role::System, content)
}
