//! Caches of rows that have ended, kept for prompts that begin alike.
//!
//! [`index`] decides which entry serves a prompt and which has to go; it knows tokens and bytes, not arrays.

pub mod index;
mod trie;
