//! Text that others wrote, made safe to print: it must not be able to steer the terminal.

use std::borrow::Cow;

/// `text` with everything that a terminal could take as a command made visible.
///
/// C0 controls other than newline and tab, and DEL, become their Unicode control pictures (ESC is `␛`), so
/// that an escape sequence shows as text. C1 controls, and the characters that reorder a line's text
/// (U+202A–202E, U+2066–2069) or annotate it (U+FFF9–FFFB), become U+FFFD. Separators of lines and paragraphs
/// (U+2028, U+2029), which terminals take no cell or one for, become `␤`. All else stays as it is. It works per character: pieces of a
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

/// `text` without escape sequences, each left out whole: one without its end goes as far as it is one (a string of it:
/// only its beginning). Other control characters stay.
pub fn without_sequences(text: &str) -> Cow<'_, str> {
    if !text.contains(is_introducer) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(is_introducer) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[sequence(rest)..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn is_introducer(c: char) -> bool {
    matches!(c, '\x1b' | '\u{90}' | '\u{98}' | '\u{9b}' | '\u{9d}'..='\u{9f}')
}

/// Bytes of the escape sequence with which a text begins (ECMA-48).
fn sequence(text: &str) -> usize {
    let mut characters = text.chars();
    let first = characters.next();
    // What one character says, two may say, too.
    let kind = match first {
        Some('\x1b') => characters.next(),
        Some('\u{9b}') => Some('['),
        Some(_) => Some(']'),
        None => None,
    };
    let begun = text.len() - characters.as_str().len();
    let rest = characters.as_str();
    // Bytes of these, and the one behind them, where it may end a sequence.
    let run = |body: fn(char) -> bool, end: fn(char) -> bool| {
        let stop = rest.find(|c| !body(c)).unwrap_or(rest.len());
        stop + usize::from(rest[stop..].starts_with(end))
    };
    match kind {
        Some('[') => begun + run(|c| matches!(c, ' '..='?'), |c| matches!(c, '@'..='~')),
        Some(']' | 'P' | 'X' | '^' | '_') => {
            let ends = ["\x07", "\x1b\\", "\u{9c}"];
            let end = ends
                .iter()
                .filter_map(|end| Some(rest.find(end)? + end.len()))
                .min();
            begun + end.unwrap_or(0)
        }
        Some(' '..='/') => begun + run(|c| matches!(c, ' '..='/'), |c| matches!(c, '0'..='~')),
        Some('0'..='~') => begun,
        _ => first.map_or(0, char::len_utf8),
    }
}

fn replacement(c: char) -> Option<char> {
    match c {
        '\n' | '\t' => None,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)),
        '\x7f' => Some('\u{2421}'),
        '\u{2028}' | '\u{2029}' => Some('\u{2424}'),
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}' => {
            Some('\u{fffd}')
        }
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
            ("a\u{2028}b\u{2029}c\u{fff9}", "a␤b␤c\u{fffd}"),
        ] {
            assert_eq!(for_terminal(hostile), shown, "{hostile:?}");
        }
    }

    #[test]
    fn sequences_are_left_out_whole() {
        for (text, left) in [
            ("a \x1b[1;31mred\x1b[0m b", "a red b"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ end", "link end"),
            ("\x1bPq#0\x1b\\x", "x"),
            ("\u{9b}2Jx\u{9d}0;t\u{9c}y", "xy"),
            ("\x1b(Bx\x1b7y\x1bcz", "xyz"),
            ("\x1b[31", ""),
            ("\x1b]no end of it", "no end of it"),
            ("x\x1b", "x"),
            ("x\x1b日", "x日"),
            ("\x1b[38;5日", "日"),
            ("tab\tand bell\x07", "tab\tand bell\x07"),
        ] {
            assert_eq!(without_sequences(text), left, "{text:?}");
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
