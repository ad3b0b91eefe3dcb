//! Text that others wrote, made safe to print: it must not be able to steer the terminal.

use std::borrow::Cow;

/// `text` with everything that a terminal could take as a command made visible.
///
/// C0 controls other than newline and tab, and DEL, become their Unicode control pictures (ESC is `␛`), so
/// that an escape sequence shows as text. C1 controls, and the characters that reorder a line's text
/// (U+202A–202E, U+2066–2069), become U+FFFD. All else stays as it is. It works per character: pieces of a
/// stream can be treated one by one.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    match text.find(|c| replacement(c).is_some()) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().map(|c| replacement(c).unwrap_or(c)).collect()),
    }
}

/// `text` on one line, its blanks one space each, and safe to print.
pub fn line_for_terminal(text: &str) -> String {
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for_terminal(&joined).into_owned()
}

fn replacement(c: char) -> Option<char> {
    match c {
        '\n' | '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)),
        '\x7f' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some('\u{fffd}'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_show_as_text() {
        for (hostile, shown) in [
            ("\x1b[2J", "␛[2J"),
            ("\x1b]0;title\x07", "␛]0;title␇"),
            ("\x1b]52;c;aGk=\x1b\\", "␛]52;c;aGk=␛\\"),
            ("\x1bPq\x1b\\", "␛Pq␛\\"),
            ("a\rb", "a␍b"),
            ("a\x08b", "a␈b"),
            ("a\x7fb", "a␡b"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("\u{90}q\u{9c}", "\u{fffd}q\u{fffd}"),
            ("\0", "␀"),
        ] {
            assert_eq!(for_terminal(hostile), shown, "{hostile:?}");
        }
    }

    #[test]
    fn characters_that_reorder_a_line_are_replaced() {
        assert_eq!(
            for_terminal("a\u{202e}b\u{2066}c\u{2069}"),
            "a\u{fffd}b\u{fffd}c\u{fffd}"
        );
    }

    #[test]
    fn all_other_text_is_borrowed_untouched() {
        let text = "tab\tline\nnaïve 日本語 مرحبا 👩‍👩‍👧‍👦 ☺️ e\u{301} \u{200e}\u{feff}\u{a0}";
        assert!(matches!(for_terminal(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn no_control_character_is_left_but_newline_and_tab() {
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        let safe = for_terminal(&all);
        assert!(safe.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')));
        assert_eq!(safe.chars().count(), all.chars().count());
    }

    #[test]
    fn a_stream_cut_anywhere_comes_out_the_same() {
        let text = "a\x1b[31m日\u{9b}b\r\n\u{202e}";
        let by_char: String = text
            .chars()
            .map(|c| for_terminal(&c.to_string()).into_owned())
            .collect();
        assert_eq!(by_char, for_terminal(text));
    }
}
