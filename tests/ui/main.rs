//! The interface without a terminal: screens, keys, wrapping, the loop.

mod aloud;
mod anything;
mod asked;
mod branches;
mod changing;
mod editing;
mod frames;
mod giving_back;
mod keys;
mod listed;
mod looks;
mod markdown;
mod matrix;
#[allow(dead_code, reason = "what other tests of the program want, too")]
#[path = "../cli/model.rs"]
mod model;
mod models;
mod overlays;
mod palette;
mod pane_settings;
mod picker;
#[allow(dead_code, reason = "what other tests of the program want, too")]
#[path = "../cli/program.rs"]
mod program;
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
