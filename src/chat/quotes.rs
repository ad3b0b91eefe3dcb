//! Words on a line with quotes around those that need them, as in a shell.

/// Splits a line into words. A word ends at a space outside of quotes. Within `'…'` all is as it is; within `"…"`, `\"` and
/// `\\` are the character behind the backslash, `\n` and `\t` a line's end and a tab; elsewhere a backslash stands before a
/// character that is to be as it is.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => quoted(c, &mut rest, word.get_or_insert_default())?,
            '\\' => {
                let next = rest.next().ok_or_else(|| {
                    "a backslash at the end stands before nothing; write \\\\ for one".to_owned()
                })?;
                word.get_or_insert_default().push(next);
            }
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Takes what is within quotes, up to the closing one.
fn quoted(quote: char, rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    while let Some(c) = rest.next() {
        match c {
            c if c == quote => return Ok(()),
            '\\' if quote == '"' => match rest.next() {
                Some('n') => word.push('\n'),
                Some('t') => word.push('\t'),
                Some(c @ ('"' | '\\')) => word.push(c),
                // It is part of the text.
                Some(c) => word.extend(['\\', c]),
                None => break,
            },
            c => word.push(c),
        }
    }
    Err(format!(
        "the quote {quote} isn't closed; write \\{quote} for one that is part of the text"
    ))
}

/// A text that may stand in quotes, as one: without them. What only begins with a quote is as it is.
pub fn unquote(text: &str) -> String {
    let quoted = text.starts_with(['"', '\'']).then(|| split(text).ok()).flatten();
    match quoted.as_deref() {
        Some([one]) if text.len() > 1 => one.clone(),
        _ => text.to_owned(),
    }
}

/// Words as a line that [`split`] splits into them again.
pub(super) fn join(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
    words.join(" ")
}

/// A word with quotes around it where it needs some.
fn quote(word: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"' | '\\');
    // "off" alone means that there is none.
    if !word.is_empty() && word.chars().all(plain) && word != "off" {
        return word.to_owned();
    }
    if !word.contains(['\'', '\n', '\t']) {
        return format!("'{word}'");
    }
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n").replace('\t', "\\t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together_and_are_no_part_of_them() {
        for (line, words) in [
            ("END", vec!["END"]),
            ("\"x\"", vec!["x"]),
            ("a b", vec!["a", "b"]),
            ("'a b'  \"c d\"", vec!["a b", "c d"]),
            ("a' 'b", vec!["a b"]),
            ("\\\"", vec!["\""]),
            ("'\"'", vec!["\""]),
            ("\"'\"", vec!["'"]),
            ("\"\\\"x\\\"\"", vec!["\"x\""]),
            ("\"a\\nb\"", vec!["a\nb"]),
            ("'a\\nb'", vec!["a\\nb"]),
            ("a\\ b", vec!["a b"]),
            ("''", vec![""]),
            ("  ", vec![]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
    }

    #[test]
    fn words_that_are_joined_are_split_into_themselves() {
        for word in [
            "x", "off", "", "a b", "it's", "\"", "'\"", "\\", "a\\nb", "a\nb\t", "\\\"' \n", "größe",
        ] {
            for words in [vec![word.to_owned()], vec![word.to_owned(), "next".to_owned()]] {
                let line = join(&words);
                assert!(!line.contains('\n'), "{line}");
                assert_eq!(split(&line).unwrap(), words, "{line}");
            }
        }
    }

    #[test]
    fn a_text_in_quotes_is_what_is_within_them() {
        for (text, is) in [
            ("\"q r.md\"", "q r.md"),
            ("'q r.md'", "q r.md"),
            ("q r.md", "q r.md"),
            ("\"a\" or \"b\"", "\"a\" or \"b\""),
            ("\"open", "\"open"),
            ("it's", "it's"),
            ("\"", "\""),
        ] {
            assert_eq!(unquote(text), is);
        }
    }

    #[test]
    fn a_quote_that_is_not_closed_is_told() {
        for (line, part) in [
            ("\"x", "isn't closed"),
            ("a 'b", "isn't closed"),
            ("x\\", "before nothing"),
        ] {
            assert!(split(line).unwrap_err().contains(part), "{line}");
        }
    }
}
