//! Where formulas are: Markdown would take their stars and underscores for emphasis and their backslashes away. So they are
//! hidden from the parser behind letters, byte for byte, and shown by [their own rules](super::readable).

use std::borrow::Cow;
use std::ops::Range;

use super::readable;

/// Blanks before what is code, outside of lists.
const DEEP: &str = "    ";

/// A formula with its marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Formula {
    /// Where it is in the source.
    pub range: Range<usize>,
    /// Marks of quotes that stand before each of its lines but the first.
    quotes: usize,
}

impl Formula {
    /// What it says, without the marks of quotes that it is in.
    pub fn written<'s>(&self, source: &'s str) -> Cow<'s, str> {
        let text = source.get(self.range.clone()).unwrap_or_default();
        if self.quotes == 0 {
            return text.into();
        }
        let mut lines = text.split_inclusive('\n');
        let first = lines.next().unwrap_or_default().to_owned();
        lines
            .fold(first, |text, line| {
                text + within(line, self.quotes).unwrap_or(line)
            })
            .into()
    }
}

/// A part of a text as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'s> {
    /// As it is written there in the source.
    Text(Range<usize>),
    /// A formula.
    Formula {
        /// Where it begins in the source.
        start: usize,
        /// How it is written, with its marks.
        written: Cow<'s, str>,
        /// What it is read as.
        lines: Vec<String>,
    },
}

/// A text as the parser is given it, with its formulas hidden.
#[derive(Debug)]
pub struct Masked<'a> {
    /// As long as the source, with its line ends, indents and marks of quotes. A line ends with `\n` alone or with `\r\n`: to
    /// the parser a `\r` by itself would end one, too, so it is a blank here.
    pub text: Cow<'a, str>,
    /// Formulas that stand on lines of their own, whose line ends are kept.
    pub displays: Vec<Range<usize>>,
    /// All of them, in order.
    pub formulas: Vec<Formula>,
}

impl Masked<'_> {
    /// A text that the parser gives, of this range of what it was given, as it is in the source.
    pub fn original<'t>(&self, source: &str, text: &'t str, range: &Range<usize>) -> Cow<'t, str> {
        let seen = self.text.get(range.clone()).unwrap_or_default();
        let real = source.get(range.clone()).unwrap_or_default();
        if seen == real {
            return Cow::Borrowed(text);
        }
        let found = seen.rfind(text).and_then(|at| real.get(at..at + text.len()));
        found.map_or(Cow::Borrowed(text), |real| Cow::Owned(real.to_owned()))
    }

    /// A text of this range as it is shown: what is written, and the formulas that are readable. Of a formula that goes on in the
    /// next text, that shows no more of it: `shown_to` is up to where the source is shown. Nothing where no formula is, or the text
    /// isn't written so.
    pub fn parts<'s>(
        &self,
        source: &'s str,
        text: &str,
        range: &Range<usize>,
        shown_to: &mut usize,
    ) -> Option<Vec<Part<'s>>> {
        let written = source.get(range.clone()).unwrap_or_default();
        let place = written.rfind(text).filter(|_| !self.formulas.is_empty())?;
        let (from, to) = (range.start + place, range.start + place + text.len());
        let mut parts = Vec::new();
        let mut at = from.max((*shown_to).min(to));
        for formula in &self.formulas {
            let Range { start, end } = formula.range;
            if end <= at || start >= to || start < at {
                continue;
            }
            let written = formula.written(source);
            let Some(lines) = readable(&written) else { continue };
            parts.push(Part::Text(at..start));
            parts.push(Part::Formula {
                start,
                written,
                lines,
            });
            *shown_to = end;
            at = end.min(to);
        }
        parts.push(Part::Text(at..to));
        Some(parts)
    }
}

/// What stands before a line's text: blanks, and marks of quotes and of lists' items.
#[derive(Debug, Clone, Copy)]
struct Lead {
    /// Bytes.
    len: usize,
    quotes: usize,
    /// Whether the line begins so far to the right that outside of lists it is code.
    deep: bool,
}

/// Hides what stands between `$` and `$`, `\(` and `\)` on a line, and between `$$` and `$$`, `\[` and `\]` from the
/// beginning of a line, of a quote's line or of an item's text up to a blank line or a fence. A lone `\[` keeps its
/// backslash, too.
pub fn mask(source: &str) -> Masked<'_> {
    let mut displays = Vec::new();
    let mut formulas: Vec<Formula> = Vec::new();
    let whole = without_returns(source);
    if !whole.contains(['$', '\\']) {
        return Masked {
            text: whole,
            displays,
            formulas,
        };
    }
    let source = &*whole;
    let mut at = 0;
    while at < source.len() {
        let line = source[at..].split_inclusive('\n').next().unwrap_or_default();
        let lead = lead(line);
        let display = lead.and_then(|lead| {
            let mut marks = [("$$", "$$"), (r"\[", r"\]")].into_iter();
            let (open, close) = marks.find(|(open, _)| line[lead.len..].starts_with(open))?;
            let start = at + lead.len;
            let range = start..display_end(source, start, (open, close), lead);
            Some(Formula {
                range,
                quotes: lead.quotes,
            })
        });
        let from = display.as_ref().map_or(at, |formula| formula.range.end);
        let closed = display.is_none() || !source[..from].ends_with('\n');
        if let Some(formula) = display {
            displays.push(formula.range.clone());
            formulas.push(formula);
        }
        at = from;
        // One that isn't closed ends before a line, which may begin another.
        if closed {
            let rest = source[from..].split_inclusive('\n').next().unwrap_or_default();
            inline(rest, from, &mut formulas);
            at += rest.len();
        }
    }
    if formulas.is_empty() {
        return Masked {
            text: whole,
            displays,
            formulas,
        };
    }
    let mut text = String::with_capacity(source.len());
    for Formula { range, quotes } in &formulas {
        text.push_str(&source[text.len()..range.start]);
        let (mut indents, mut marks) = (true, 0);
        for c in source[range.clone()].chars() {
            match c {
                '\n' | '\r' => {
                    (indents, marks) = (true, *quotes);
                    text.push(c);
                }
                ' ' if indents => text.push(c),
                '>' if indents && marks > 0 => {
                    marks -= 1;
                    text.push(c);
                }
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
        formulas,
    }
}

/// A text with a blank for each `\r` that no `\n` follows.
fn without_returns(text: &str) -> Cow<'_, str> {
    let lone = |(at, _): &(usize, &str)| text.as_bytes().get(at + 1) != Some(&b'\n');
    let mut found = text.match_indices('\r').filter(lone).peekable();
    if found.peek().is_none() {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    for (at, _) in found {
        out.push_str(&text[out.len()..at]);
        out.push(' ');
    }
    out.push_str(&text[out.len()..]);
    out.into()
}

/// What stands before the text of a line; none where the text is code, too far behind a mark.
fn lead(line: &str) -> Option<Lead> {
    let deep = line.starts_with(DEEP);
    let (mut len, mut quotes) = (0, 0);
    loop {
        let text = line[len..].trim_start_matches(' ');
        let column = line.len() - text.len();
        if len > 0 && column > len + DEEP.len() {
            return None;
        }
        if text.starts_with('>') {
            quotes += 1;
            len = column + 1;
        } else if let Some(mark) = mark_len(text) {
            len = column + mark;
        } else {
            let len = column;
            return Some(Lead { len, quotes, deep });
        }
    }
}

/// Bytes of an item's mark at the beginning of a text: a sign, or a number with one; a blank follows.
fn mark_len(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let signs: &[u8] = if digits == 0 { b"-+*" } else { b".)" };
    let sign = text.as_bytes().get(digits)?;
    let blank = text[digits..].get(1..).is_some_and(|rest| rest.starts_with(' '));
    (digits < 10 && signs.contains(sign) && blank).then_some(digits + 1)
}

/// What stands on a line behind so many marks of quotes; none if it has fewer.
fn within(line: &str, quotes: usize) -> Option<&str> {
    (0..quotes).try_fold(line, |line, _| line.trim_start_matches(' ').strip_prefix('>'))
}

/// Where a formula on lines of its own ends: behind its mark, or before a blank line, a fence, the end of its quote, what
/// stands further left and begins a block, or the text's end.
fn display_end(source: &str, start: usize, (open, close): (&str, &str), lead: Lead) -> usize {
    let first = source[start..].split_inclusive('\n').next().unwrap_or_default();
    if let Some(found) = first[open.len()..].find(close) {
        return start + open.len() + found + close.len();
    }
    let mut at = start + first.len();
    for line in source[at..].split_inclusive('\n') {
        let Some(inside) = within(line, lead.quotes) else {
            break;
        };
        let text = inside.trim_start_matches(' ');
        let left = line.len() - text.len() < lead.len;
        let ends = text.trim().is_empty() || text.starts_with("```") || text.starts_with("~~~");
        let block = text.starts_with(['#', '>']) || mark_len(text).is_some();
        if ends || left && block || lead.deep && !line.starts_with(DEEP) {
            break;
        }
        if let Some(found) = line.find(close) {
            return at + found + close.len();
        }
        at += line.len();
    }
    at
}

/// Finds formulas within a line that begins at `base`; code is left alone.
fn inline(line: &str, base: usize, formulas: &mut Vec<Formula>) {
    let mut push = |range| formulas.push(Formula { range, quotes: 0 });
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
                    push(base + at..base + at + len);
                    at += len;
                }
                Some(b')' | b']') => {
                    push(base + at..base + at + 2);
                    at += 2;
                }
                Some(next) if next.is_ascii() => at += 2,
                _ => at += 1,
            },
            b'$' => {
                let len = dollars_len(rest);
                if let Some(len) = len {
                    push(base + at..base + at + len);
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
    fn marks_of_quotes_and_items_stay_before_a_formula_of_theirs() {
        for (text, hidden) in [
            ("- $$\n  a_1\n  $$ *b*", "- xx\n  xxx\n  xx *b*"),
            (
                "10. a\n\n    \\[\n    b_1\n    \\]",
                "10. a\n\n    xx\n    xxx\n    xx",
            ),
            ("> $$\n> a > b\n>$$\n> c", "> xx\n> xxxxx\n>xx\n> c"),
            ("> 1. $$\n>    a_1\n>    $$", "> 1. xx\n>    xxx\n>    xx"),
            // What isn't closed ends with its item, its quote or its code.
            ("- $$\n  a\n- $b_1$", "- xx\n  x\n- xxxxx"),
            ("- $$\n# a", "- xx\n# a"),
            ("> $$\n> a\n*b*", "> xx\n> x\n*b*"),
            ("> $$\n>\n> *b*", "> xx\n>\n> *b*"),
            ("    $$\n# a", "    xx\n# a"),
            ("-      $$\n# a", "-      $$\n# a"),
        ] {
            assert_eq!(masked(text), hidden);
        }
    }

    #[test]
    fn a_return_without_a_line_feed_ends_no_line() {
        assert_eq!(masked("- a\r* b\r\n\rc\r"), "- a * b\r\n c ");
        assert_eq!(masked("$a$\r# b"), "xxx # b");
        assert_eq!(masked("\\[\na\r* b\n\\]"), "xx\nxxxxx\nxx");
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
