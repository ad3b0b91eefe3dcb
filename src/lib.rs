//! A terminal in which several conversations run side by side on one batching engine inside the process.
//!
//! The rooms, from the ground up: [`gguf`] reads files of that format, [`nn`] and [`cache`] are what models are made of, [`model`] reads and runs them,
//! [`sampling`] and [`text`] turn logits into tokens and tokens into text, [`hub`] finds and fetches models,
//! [`engine`] batches requests over one model, [`chat`] keeps conversations, [`ui`] draws them.
#![deny(unsafe_code)]
// They panic where nobody reads: `cli::outcome` writes to standard output, `cli::stderr` to standard error.
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![warn(missing_docs)]

pub mod cache;
pub mod chat;
pub mod cli;
pub mod config;
pub mod engine;
pub mod gguf;
pub mod hub;
pub mod model;
pub mod near;
pub mod nn;
pub mod sampling;
pub mod size;
pub mod text;
pub mod ui;
