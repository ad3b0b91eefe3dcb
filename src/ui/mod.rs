//! The terminal: application loop, layout, input and views; draws from `&State`.
//!
//! [`run`] takes the terminal and gives it back. In between, [`app::App`] turns keys and the engine's events into events
//! of the [conversations](crate::chat), carries out their effects, and has [`view::View`] draw what changed.

mod action;
pub mod aloud;
pub mod app;
mod background;
pub mod canvas;
pub mod cells;
mod change;
mod chrome;
mod command;
mod dashboard;
mod format;
pub mod host;
pub mod input;
pub mod keymap;
pub mod keys;
mod layout;
mod leaving;
mod loading;
pub mod looks;
pub mod models;
pub mod mouse;
pub mod overlay;
mod paint;
mod pane;
pub mod presets;
pub mod reading;
mod sanitize;
mod session;
pub mod settings_file;
pub mod slash;
pub mod styles;
pub mod terminal;
mod told;
pub mod view;
pub mod worker;
pub mod wrap;
pub mod writing;

pub use session::{Ended, Exit, Look, Reload, Settings, run};
