//! The interface without a terminal: screens, keys, wrapping, the loop.

mod branches;
mod editing;
mod frames;
mod keys;
mod markdown;
mod palette;
mod picker;
mod reading;
mod screens;
mod scrolling;
mod settings;
mod several;
mod stand;
mod support;
mod thoughts;
mod wrapping;
mod writing;
