//! The interface without a terminal: screens, keys, wrapping, the loop.

mod aloud;
mod branches;
mod editing;
mod frames;
mod keys;
mod listed;
mod looks;
mod markdown;
mod matrix;
mod models;
mod overlays;
mod palette;
mod picker;
mod reading;
mod screens;
mod scripts;
mod scrolling;
mod settings;
mod several;
mod shelf;
mod stand;
mod support;
mod thoughts;
mod told;
mod wrapping;
mod writing;
