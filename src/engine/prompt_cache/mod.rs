//! Caches of rows that have ended, kept for prompts that begin alike.
//!
//! [`index`] decides which entry serves a prompt and which has to go; it knows tokens and bytes, not arrays.
//! [`store`] keeps them in memory, and [`disk`] what memory has no room for.

pub mod disk;
pub mod index;
pub mod store;
mod trie;
