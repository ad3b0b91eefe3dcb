//! Tokenizer, detokenizer, chat template, stop strings, thinking and tool spans, sanitizing.

mod boundary;
pub mod capabilities;
pub mod codec;
pub mod detokenizer;
mod encoder;
pub mod error;
mod folder;
pub mod formula;
mod gguf;
mod guard;
pub mod message;
pub mod panics;
pub mod sanitize;
mod sentencepiece;
pub mod spans;
pub mod stop;
pub mod template;
#[cfg(test)]
pub(crate) mod tiny;

pub use capabilities::{Capabilities, has_template};
pub use codec::{Codec, EncodedChat};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{Scan, StopStrings};
pub use template::Rendered;
