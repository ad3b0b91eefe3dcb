//! The prompt cache on disk: entries that memory had no room for, or that were there at exit, a safetensors file each.
//!
//! - `file` is the format: header with key and checks, arrays after it; written aside, synced, renamed.
//! - `folder` is what lies beside each other: names, the byte limit, leftovers, and other processes.
//! - `writer` is the thread that writes, so that the engine's steps never wait for a disk.
//! - [`tier`] is the engine's side: which file serves a prompt, and what is on its way to become one.
//! - [`usage`] is for people: how much there is, and all of it deleted.
//! - [`identity`] says which model, in which layout of caches, entries are of.

mod file;
mod folder;
pub mod identity;
#[cfg(test)]
mod tests;
pub mod tier;
pub mod usage;
mod writer;
