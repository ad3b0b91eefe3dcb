//! What can be wrong with a model's tokenizer or with a request's texts.

use std::path::PathBuf;

use crate::gguf::GgufError;

/// Why text cannot be turned into a model's tokens.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The GGUF metadata lacks something, or holds something else.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The kind of tokenizer is not known.
    #[error("the tokenizer model `{found}` is not supported; supported in GGUF files: {known}")]
    UnknownModel {
        /// What the file names.
        found: String,
        /// What would work.
        known: String,
    },
    /// The way of cutting text into words is not known.
    #[error("the pre-tokenizer `{found}` is not supported; supported: {known}")]
    UnknownPreTokenizer {
        /// What the file names.
        found: String,
        /// What would work.
        known: String,
    },
    /// The way back from tokens to text is not known.
    #[error(
        "the tokenizer's decoder {found} is not supported; supported: ByteLevel, Metaspace, ByteFallback"
    )]
    UnknownDecoder {
        /// What the file names.
        found: String,
    },
    /// The vocabulary contradicts itself.
    #[error("the tokenizer's vocabulary is damaged: {what}")]
    Vocabulary {
        /// What is wrong.
        what: String,
    },
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {what}; fetch it again", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// SentencePiece's own file cannot be used.
    #[error("cannot use {}: {what}; put the model's tokenizer.json beside it", path.display())]
    TokenizerModel {
        /// The file.
        path: PathBuf,
        /// Why not.
        what: String,
    },
    /// A stop string is empty: every text would contain it.
    #[error("stop string {number} is empty: leave it out, or give it a text")]
    EmptyStopString {
        /// Which one, counted from 1.
        number: usize,
    },
}
