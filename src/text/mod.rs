//! Tokenizer, detokenizer, chat template, stop strings, thinking and tool spans, sanitizing.

mod boundary;
pub mod codec;
pub mod detokenizer;
pub mod error;
mod folder;
mod gguf;
mod guard;
pub mod message;
pub mod sanitize;
pub mod spans;
pub mod stop;
pub mod template;

pub use codec::{Codec, EncodedChat};
pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{Scan, StopStrings};
pub use template::Rendered;
