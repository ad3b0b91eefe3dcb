//! The terminal: application loop, layout, input and views; draws from `&State`.
//!
//! [`run`] takes the terminal and gives it back. In between, [`app::App`] turns keys and the engine's events into events
//! of the [conversations](crate::chat), carries out their effects, and has [`view::View`] draw what changed.

mod action;
mod answer;
pub mod app;
mod burst;
pub mod canvas;
pub mod cells;
mod chrome;
pub mod clipboard;
mod composer;
mod dashboard;
pub mod editor;
mod format;
mod help;
pub mod highlight;
mod history;
pub mod input;
pub mod keymap;
pub mod keys;
mod layout;
mod loading;
pub mod markdown;
mod paint;
mod pane;
pub mod reading;
mod reading_keys;
mod sanitize;
mod session;
pub mod styles;
pub mod terminal;
pub mod transcript;
pub mod view;
pub mod wrap;

pub use session::{Exit, Look, Reload, Settings, run};
