//! The settings file: TOML with the line of each key.

use std::ops::Range;

use toml::Value;
use toml::de::{DeTable, DeValue};

/// What the parser says of a name that is there already.
const TWICE: &str = "duplicate key";

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line, from 1.
    pub number: usize,
    /// The key with the tables it is in: `engine.max_batch`.
    pub key: String,
    /// The same, part by part.
    pub path: Vec<String>,
    /// What it is set to.
    pub value: Value,
}

/// A line that is no TOML, or says again what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub number: usize,
    /// What is wrong.
    pub message: String,
}

/// The text of a file; where it is none, what is wrong with it.
pub fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| {
        let whole = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let byte = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        Fault {
            number: 1 + whole.iter().filter(|byte| **byte == b'\n').count(),
            message: format!("it is no text: the byte {byte:#04x} here is no UTF-8"),
        }
    })
}

/// Reads settings in the order of the file; what can't be read is left out, and told. Of a key that is there twice the
/// first one counts.
pub fn read(text: &str) -> (Vec<Line>, Vec<Fault>) {
    let number = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let (table, errors) = DeTable::parse_recoverable(text);
    let (mut faults, mut unread) = (Vec::new(), Vec::new());
    for error in errors {
        let at = error.span().unwrap_or_default();
        let number = number(at.start);
        let message = match error.message() {
            TWICE => again(text, at),
            message => {
                unread.push(number);
                message.replace('\n', ", ")
            }
        };
        faults.push(Fault { number, message });
    }
    // One mistake can be met several times.
    faults.dedup_by_key(|fault| fault.number);
    let mut lines = Vec::new();
    gather(table.get_ref(), &[], &number, &mut lines);
    lines.retain(|line: &Line| !unread.contains(&line.number));
    lines.sort_by_key(|line| line.number);
    (lines, faults)
}

/// Tells of the name that is in `at`, of a key or in a table's line, that it was there before.
fn again(text: &str, at: Range<usize>) -> String {
    let line = text[..at.start].rfind('\n').map_or(0, |end| end + 1);
    let before = text[line..at.start].trim_start();
    let end = text[at.end..].find(']').map_or(at.end, |end| at.end + end + 1);
    if before.starts_with('[') {
        let table = text[line..end].trim();
        return format!("{table}: it is there a second time; keys that are new count, too");
    }
    format!("{}: it is set a second time; the first one counts", &text[at])
}

fn gather(table: &DeTable<'_>, within: &[String], number: &impl Fn(usize) -> usize, lines: &mut Vec<Line>) {
    for (name, value) in table {
        let path = [within, &[name.get_ref().to_string()]].concat();
        let (named, begun) = (number(name.span().start), number(value.span().start));
        match value.get_ref() {
            // A table's line that isn't closed at the end of the file has the word before that for its name.
            DeValue::Table(inner) if inner.is_empty() && named != begun => {}
            DeValue::Table(inner) if !inner.is_empty() => gather(inner, &path, number, lines),
            value => lines.push(Line {
                number: named,
                key: path.join("."),
                path,
                value: plain(value),
            }),
        }
    }
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::String(number.as_str().to_owned()), Value::Integer),
        DeValue::Float(number) => Value::Float(number.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(on) => Value::Boolean(*on),
        DeValue::Datetime(time) => Value::Datetime(*time),
        DeValue::Array(values) => Value::Array(values.iter().map(|value| plain(value.get_ref())).collect()),
        DeValue::Table(_) => Value::Table(toml::Table::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_with_their_lines_in_the_order_of_the_file() {
        let (lines, faults) = read("model = 'x'\n\n[engine]\nmax_batch = 0x10\n[sampling]\ntop_p = 0.5\n");
        assert_eq!(faults, []);
        let told: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.key.as_str(), line.value.to_string()))
            .collect();
        assert_eq!(
            told,
            [
                (1, "model", "\"x\"".into()),
                (4, "engine.max_batch", "16".into()),
                (6, "sampling.top_p", "0.5".into()),
            ]
        );
    }

    #[test]
    fn a_tables_line_that_is_not_closed_makes_no_table_of_what_follows() {
        let mine = "[mine\ntop_k = 7\nseed = 3\n";
        for (more, rest) in [("", &[][..]), ("[other]\nseed = 1\n", &["other.seed"])] {
            let (lines, faults) = read(&format!("{mine}{more}"));
            assert_eq!(faults.iter().map(|fault| fault.number).collect::<Vec<_>>(), [1]);
            let keys: Vec<_> = lines.iter().map(|line| line.key.as_str()).collect();
            assert_eq!(keys, rest);
        }
    }

    #[test]
    fn what_is_there_twice_is_told_by_its_name_and_the_first_counts() {
        let text =
            "panes = 3\npanes = 4\n[ engine ]\nthreads = 1\n[look]\n[ engine ]\nthreads = 2\nmax_batch = 5\n";
        let (lines, faults) = read(text);
        let told: Vec<_> = faults
            .iter()
            .map(|fault| (fault.number, fault.message.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (2, "panes: it is set a second time; the first one counts"),
                (
                    6,
                    "[ engine ]: it is there a second time; keys that are new count, too"
                ),
                (7, "threads: it is set a second time; the first one counts"),
            ]
        );
        let read: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.key.as_str(), line.value.to_string()))
            .collect();
        assert_eq!(
            read,
            [
                (1, "panes", "3".into()),
                (4, "engine.threads", "1".into()),
                (5, "look", "{}".into()),
                (8, "engine.max_batch", "5".into()),
            ]
        );
    }

    #[test]
    fn what_is_no_text_is_told_with_its_line() {
        assert_eq!(text("größe".as_bytes()), Ok("größe"));
        let fault = text(b"a = 1\nb = \xff\n").unwrap_err();
        assert_eq!(fault.number, 2);
        assert!(fault.message.contains("0xff"), "{}", fault.message);
    }

    #[test]
    fn a_line_that_is_no_toml_is_told_and_the_others_count() {
        let (lines, faults) = read("panes = 3\nmodel = \nsystem = 'be brief'\n");
        assert_eq!(faults.iter().map(|fault| fault.number).collect::<Vec<_>>(), [2]);
        let keys: Vec<_> = lines.iter().map(|line| line.key.as_str()).collect();
        assert_eq!(keys, ["panes", "system"]);
    }
}
