//! The one place where text that others wrote is made safe for the terminal.

use std::borrow::Cow;

/// `text` without anything that a terminal could take as a command or that reorders what stands around it: control
/// characters show as `U+FFFD`, overrides of the writing direction are left out. Tabs and line ends are for the caller.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) || !text.contains(unsafe_char) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(
        text.chars()
            .filter(|&c| !reorders(c))
            .map(|c| {
                if unsafe_char(c) {
                    char::REPLACEMENT_CHARACTER
                } else {
                    c
                }
            })
            .collect(),
    )
}

fn unsafe_char(c: char) -> bool {
    c.is_control() || reorders(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}
