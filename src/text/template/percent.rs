//! Python's `%` on texts: `'%05d' % 7`.
//!
//! The engine's operator knows numbers alone, so that a literal text before `%` is given to the filter that does the same. A text
//! that isn't written out there stays with the operator, which fails on it.

/// The longest group that is looked through: so that what is crafted takes no time.
const LONGEST: usize = 4096;

/// `source` with filters in place of such operators.
pub(super) fn with_filters(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
        out.push_str(before);
        let is_comment = tag.starts_with("{#");
        let end = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map(|at| at + 2),
            Some(b'{') => tag_end(tag, "}}"),
            Some(b'%') => tag_end(tag, "%}"),
            _ => Some(1),
        };
        let Some((tag, after)) = end.and_then(|end| tag.split_at_checked(end)) else {
            return out + tag;
        };
        if is_comment || tag.len() == 1 {
            out.push_str(tag);
        } else {
            expression(tag, &mut out);
        }
        rest = after;
        let word = tag.trim_matches(['{', '}', '%', '-', '+', ' ', '\t', '\n', '\r']);
        if tag.starts_with("{%") && word == "raw" {
            let (raw, after) = rest.split_at(rest.find("endraw").unwrap_or(rest.len()));
            out.push_str(raw);
            rest = after;
        }
    }
    out + rest
}

/// The length of a tag that `close` ends, outside of literals and braces.
fn tag_end(tag: &str, close: &str) -> Option<usize> {
    let (mut at, mut depth) = (2, 0usize);
    loop {
        let rest = tag.get(at..)?;
        if depth == 0 && rest.starts_with(close) {
            return Some(at + close.len());
        }
        at += match rest.chars().next()? {
            '\'' | '"' => literal(rest)?,
            '{' => {
                depth += 1;
                1
            }
            '}' => {
                depth = depth.saturating_sub(1);
                1
            }
            c => c.len_utf8(),
        };
    }
}

/// Copies code, with filters in place of the operator behind literal texts.
fn expression(code: &str, out: &mut String) {
    let mut rest = code;
    while let Some(at) = rest.find(['\'', '"']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let Some((text, after)) = literal(from).and_then(|length| from.split_at_checked(length)) else {
            rest = from;
            break;
        };
        out.push_str(text);
        rest = after;
        let operator = after.trim_start().strip_prefix('%');
        let Some(behind) = operator.filter(|behind| !behind.starts_with('}')) else {
            continue;
        };
        let behind = behind.trim_start();
        let Some((value, after)) = operand(behind).and_then(|length| behind.split_at_checked(length)) else {
            continue;
        };
        // A tuple is all that is formatted, anything else is one value.
        out.push_str("|format(");
        expression(tuple(value).unwrap_or(value), out);
        out.push(')');
        rest = after;
    }
    out.push_str(rest);
}

/// The length of the literal text that `code` begins with.
fn literal(code: &str) -> Option<usize> {
    let quote = code.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut chars = code.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

/// The length of the brackets that `code` begins with, and of what is in them, if that is not too much.
fn group(code: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while at < LONGEST {
        let rest = code.get(at..)?;
        match rest.chars().next()? {
            '\'' | '"' => {
                at += literal(rest)?;
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1)?,
            c => {
                at += c.len_utf8();
                continue;
            }
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The length of a name or number at the beginning of `code`.
fn word(code: &str) -> usize {
    code.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(code.len())
}

/// The length of the operand that `code` begins with: a literal, name, number or group, with what is taken or called of it,
/// and filters.
fn operand(code: &str) -> Option<usize> {
    let mut at = code.len() - code.trim_start_matches(['-', '+']).len();
    let rest = code.get(at..)?;
    at += match rest.chars().next()? {
        '\'' | '"' => literal(rest)?,
        '(' | '[' | '{' => group(rest)?,
        _ => Some(word(rest)).filter(|length| *length > 0)?,
    };
    loop {
        let rest = code.get(at..)?;
        let filter = rest.trim_start().strip_prefix('|');
        at += match (rest.chars().next(), filter) {
            (Some('('), _) | (Some('['), _) => group(rest)?,
            (Some('.'), _) => 1 + word(rest.get(1..)?),
            (_, Some(name)) => {
                let name = name.trim_start();
                rest.len() - name.len() + word(name)
            }
            _ => return Some(at),
        };
    }
}

/// What is between the brackets of a tuple.
fn tuple(value: &str) -> Option<&str> {
    let inner = value
        .strip_prefix('(')
        .filter(|_| group(value) == Some(value.len()))?;
    let inner = inner.strip_suffix(')')?.trim();
    let mut rest = inner;
    let mut commas = inner.is_empty();
    while let Some(c) = rest.chars().next() {
        commas |= c == ',';
        let length = match c {
            '\'' | '"' => literal(rest)?,
            '(' | '[' | '{' => group(rest)?,
            c => c.len_utf8(),
        };
        rest = rest.get(length..)?;
    }
    commas.then(|| inner.trim_end_matches(','))
}
