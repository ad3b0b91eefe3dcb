//! The one place where text that others wrote is made safe for the terminal, on its way to a cell.

use std::borrow::Cow;

use crate::text::sanitize::for_terminal;

/// `text` without anything that a terminal could take as a command or that reorders what stands around it. Tabs and
/// line ends are for the caller.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    for_terminal(text)
}
