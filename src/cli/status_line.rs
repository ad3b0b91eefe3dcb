//! A line on standard error that is written over: how far something is. Where standard error is no terminal, nothing is
//! shown.

use std::io::IsTerminal;

use super::stderr::say_part;

/// Columns that are wiped.
const WIDTH: usize = 78;

/// The line.
pub struct StatusLine {
    shows: bool,
    shown: bool,
}

impl StatusLine {
    /// Nothing, at first.
    pub fn new() -> Self {
        Self {
            shows: std::io::stderr().is_terminal(),
            shown: false,
        }
    }

    /// Shows a text in the place of the one before.
    pub fn show(&mut self, text: &str) {
        if self.shows {
            say_part!("\r{:WIDTH$}\r{text}", "");
            self.shown = true;
        }
    }

    /// Wipes it, if anything was shown.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            say_part!("\r{:WIDTH$}\r", "");
        }
    }
}
