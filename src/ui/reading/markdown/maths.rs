//! Where formulas are: Markdown would take their stars and underscores for emphasis and their backslashes away. So they are
//! hidden from the parser behind letters, byte for byte, and shown by [their own rules](super::formula).

use std::borrow::Cow;
use std::ops::Range;

/// A text with its formulas hidden.
#[derive(Debug)]
pub(super) struct Masked<'a> {
    /// As long as the source, with its line ends and indents.
    pub text: Cow<'a, str>,
    /// Formulas that stand on lines of their own, whose line ends are kept.
    pub displays: Vec<Range<usize>>,
    /// All of them, in order.
    pub formulas: Vec<Range<usize>>,
}

/// Hides what stands between `$` and `$`, `\(` and `\)` on a line, and between `$$` and `$$`, `\[` and `\]` from the
/// beginning of a line up to a blank line or a fence. A lone `\[` keeps its backslash, too.
pub(super) fn mask(source: &str) -> Masked<'_> {
    let mut displays = Vec::new();
    if !source.contains(['$', '\\']) {
        return Masked {
            text: source.into(),
            displays,
            formulas: Vec::new(),
        };
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let line = source[at..].split_inclusive('\n').next().unwrap_or_default();
        let indent = line.len() - line.trim_start_matches(' ').len();
        let display = [("$$", "$$"), (r"\[", r"\]")]
            .into_iter()
            .find(|(open, _)| indent < 4 && line[indent..].starts_with(open));
        if let Some((open, close)) = display {
            let start = at + indent;
            let end = display_end(source, start, open.len(), close);
            ranges.push(start..end);
            displays.push(start..end);
            let rest = source[end..].split_inclusive('\n').next().unwrap_or_default();
            inline(rest, end, &mut ranges);
            at = end + rest.len();
        } else {
            inline(line, at, &mut ranges);
            at += line.len();
        }
    }
    if ranges.is_empty() {
        return Masked {
            text: source.into(),
            displays,
            formulas: ranges,
        };
    }
    let mut text = String::with_capacity(source.len());
    for range in ranges.iter().cloned() {
        text.push_str(&source[text.len()..range.start]);
        let mut indents = true;
        for c in source[range].chars() {
            match c {
                '\n' | '\r' => {
                    indents = true;
                    text.push(c);
                }
                ' ' if indents => text.push(c),
                c => {
                    indents = false;
                    text.extend(std::iter::repeat_n('x', c.len_utf8()));
                }
            }
        }
    }
    text.push_str(&source[text.len()..]);
    Masked {
        text: text.into(),
        displays,
        formulas: ranges,
    }
}

/// Where a formula on lines of its own ends: behind its mark, or before a blank line, a fence, or the text's end.
fn display_end(source: &str, start: usize, open: usize, close: &str) -> usize {
    let mut at = start;
    for (number, line) in source[start..].split_inclusive('\n').enumerate() {
        let text = line.trim();
        if number > 0 && (text.is_empty() || text.starts_with("```") || text.starts_with("~~~")) {
            return at;
        }
        let from = if number == 0 { open } else { 0 };
        if let Some(found) = line[from..].find(close) {
            return at + from + found + close.len();
        }
        at += line.len();
    }
    at
}

/// Finds formulas within a line that begins at `base`; code is left alone.
fn inline(line: &str, base: usize, ranges: &mut Vec<Range<usize>>) {
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &line[at..];
        match bytes[at] {
            b'`' => at += code_len(rest),
            b'\\' => match bytes.get(at + 1) {
                Some(b'(' | b'[') => {
                    let close = if bytes[at + 1] == b'(' { r"\)" } else { r"\]" };
                    let len = rest[2..].find(close).map_or(2, |found| found + 4);
                    ranges.push(base + at..base + at + len);
                    at += len;
                }
                Some(b')' | b']') => {
                    ranges.push(base + at..base + at + 2);
                    at += 2;
                }
                Some(next) if next.is_ascii() => at += 2,
                _ => at += 1,
            },
            b'$' => {
                let len = dollars_len(rest);
                if let Some(len) = len {
                    ranges.push(base + at..base + at + len);
                }
                at += len.unwrap_or_else(|| rest.len() - rest.trim_start_matches('$').len());
            }
            _ => at += 1,
        }
        while !line.is_char_boundary(at.min(line.len())) {
            at += 1;
        }
    }
}

/// The length of a code span at the beginning of `rest`, or of the backticks that open none.
fn code_len(rest: &str) -> usize {
    let ticks = rest.len() - rest.trim_start_matches('`').len();
    let mut at = ticks;
    while let Some(found) = rest[at..].find('`') {
        let start = at + found;
        let run = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        at = start + run;
        if run == ticks {
            return at;
        }
    }
    ticks
}

/// The length of a formula between dollars at the beginning of `rest`. What looks like two prices is none.
fn dollars_len(rest: &str) -> Option<usize> {
    if let Some(inner) = rest.strip_prefix("$$") {
        let len = inner.find("$$")?;
        return (len > 0).then_some(len + 4);
    }
    let inner = &rest[1..];
    if inner.starts_with(char::is_whitespace) {
        return None;
    }
    let closes = |(at, _): &(usize, &str)| {
        let (before, after) = (&inner[..*at], &inner[at + 1..]);
        let escaped = before.ends_with('\\');
        let spaced = before.is_empty() || before.ends_with(char::is_whitespace);
        !escaped && !spaced && !after.starts_with(|c: char| c.is_ascii_alphanumeric())
    };
    let end = inner.match_indices('$').find(closes)?.0;
    (!inner[..end].contains('`')).then_some(end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let masked = mask(text);
        assert_eq!(masked.text.len(), text.len());
        masked.text.into_owned()
    }

    #[test]
    fn formulas_are_hidden_byte_for_byte() {
        assert_eq!(masked("a $x_1*y$ b"), "a xxxxxxx b");
        assert_eq!(masked(r"a \(x_1\) b"), "a xxxxxxx b");
        assert_eq!(masked("$é$ b"), "xxxx b");
        assert_eq!(
            masked("$$\n- a\n  = b\n$$ *c*"),
            "xx\nx x\n  x x\nxx *c*".replace("x x", "xxx")
        );
    }

    #[test]
    fn what_is_no_formula_stays() {
        for text in [
            "it costs $5 and $10",
            "PATH=$HOME/bin:$PATH",
            "`$a` and `$b`",
            "a $ b $ c",
            "$",
            "x\\",
            "`",
            "$`a$`",
        ] {
            assert_eq!(masked(text), text);
        }
    }

    #[test]
    fn a_formula_that_is_not_closed_ends_with_its_paragraph() {
        assert_eq!(masked("\\[\na_1\n\n*b*"), "xx\nxxx\n\n*b*");
        assert_eq!(masked("$$ a\n```\nb\n```"), "xxxx\n```\nb\n```");
        assert_eq!(masked(r"a \( b *c*"), r"a xx b *c*");
    }
}
