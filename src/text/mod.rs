//! Tokenizer, detokenizer, chat template, stop strings, sanitizing.

pub mod message;
