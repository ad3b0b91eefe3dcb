//! The terminal: application loop, layout, input and views; draws from `&State`.
//!
//! [`run`] takes the terminal and gives it back. In between, [`app::App`] turns keys and the engine's events into events
//! of the [conversations](crate::chat), carries out their effects, and has [`view::View`] draw what changed.

mod action;
mod answer;
pub mod app;
pub mod attach;
mod burst;
pub mod canvas;
pub mod cells;
mod chrome;
pub mod clipboard;
mod command;
pub mod complete;
mod composer;
mod dashboard;
pub mod editor;
pub mod external_editor;
mod field;
pub mod folds;
mod format;
mod fuzzy;
mod help;
pub mod highlight;
mod history;
pub mod input;
pub mod keymap;
pub mod keys;
mod layout;
mod loading;
pub mod markdown;
pub mod overlay;
mod paint;
pub mod palette;
mod pane;
pub mod picker;
pub mod reading;
mod reading_keys;
mod sanitize;
mod select;
mod session;
pub mod slash;
pub mod styles;
pub mod terminal;
pub mod transcript;
pub mod undo;
pub mod view;
pub mod worker;
pub mod wrap;
mod writing_keys;

pub use session::{Exit, Look, Reload, Settings, run};
