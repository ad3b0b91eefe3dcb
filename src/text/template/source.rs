//! A template's source before it is compiled: its size, its marks for training, and its bindings.
//!
//! The engine charges for every instruction and byte, but not for the shape of values: a list that holds another one
//! twice, sixty times over, prints 2⁶⁰ items, and a namespace that holds itself has no end. Values grow so only from
//! binding to binding, so each binding is written to pass [`OWN`], which weighs it; and a namespace passes when it has been changed.

use minijinja::{Error, ErrorKind};

/// The function that a bound value passes. No template may name it.
pub(super) const OWN: &str = "__own";

/// The longest source in bytes: the largest in use take a tenth of it.
const MOST_SOURCE: usize = 256 << 10;
/// The most tags: what the compiler's depth is bounded by (it calls itself for every `elif`).
const MOST_TAGS: usize = 10_000;
/// The most bytes of one tag besides its texts: its chains of operators take the compiler the square of their length.
const MOST_TAG: usize = 8 << 10;

/// `source` as it is compiled.
///
/// # Errors
/// If it is too large, names what.
pub(super) fn prepared(source: &str) -> Result<String, Error> {
    if source.len() > MOST_SOURCE {
        return Err(too_large(format!(
            "it has {} bytes, {MOST_SOURCE} at most are read",
            source.len()
        )));
    }
    if source.contains(OWN) {
        let message = format!("the name `{OWN}` is taken");
        return Err(Error::new(ErrorKind::SyntaxError, message));
    }
    // As Jinja reads it.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut written = String::with_capacity(source.len() + source.len() / 4);
    let mut rest = source.as_str();
    let mut tags = 0;
    let mut blocks = Vec::new();
    while let Some((start, kind)) = next_tag(rest) {
        let (before, tag) = rest.split_at(start);
        written.push_str(before);
        let raw = if kind == '%' { raw_end(tag) } else { None };
        let end = match kind {
            '#' => tag.get(2..).and_then(|tag| tag.find("#}")).map(|at| at + 4),
            '%' => raw.or_else(|| tag_end(tag, '%')),
            _ => tag_end(tag, '}'),
        };
        // Not closed: the compiler tells it better.
        let Some((whole, after)) = end.and_then(|end| tag.split_at_checked(end)) else {
            rest = tag;
            break;
        };
        tags += 1;
        let compiled = kind != '#' && raw.is_none();
        if tags > MOST_TAGS || (compiled && bare_bytes(whole) > MOST_TAG) {
            return Err(too_large(format!(
                "one of its tags has more than {MOST_TAG} bytes, or there are more than {MOST_TAGS} tags"
            )));
        }
        if compiled && kind == '%' {
            written.push_str(&statement(whole, &mut blocks));
        } else {
            written.push_str(whole);
        }
        rest = after;
    }
    Ok(written + rest)
}

fn too_large(what: String) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("it is too large: {what}"))
}

/// Where the next tag begins, and the second character of its opening.
fn next_tag(text: &str) -> Option<(usize, char)> {
    text.match_indices('{').find_map(|(at, _)| {
        let kind = text.get(at + 1..)?.chars().next()?;
        matches!(kind, '{' | '%' | '#').then_some((at, kind))
    })
}

/// The length of `{% raw %}…{% endraw %}` where `tag` begins with it.
fn raw_end(tag: &str) -> Option<usize> {
    let is = |tag: &str, name: &str| {
        let inner = tag.strip_prefix("{%").and_then(|tag| tag.split_once("%}"));
        inner.is_some_and(|(inner, _)| inner.trim_matches(is_mark) == name)
    };
    if !is(tag, "raw") {
        return None;
    }
    let (at, end) = tag
        .match_indices("{%")
        .find(|(at, _)| tag.get(*at..).is_some_and(|from| is(from, "endraw")))
        .map(|(at, _)| (at, tag.get(at..).and_then(|from| from.find("%}"))))?;
    end.map(|end| at + end + 2)
}

/// Whether it may stand between a tag's brackets and its words.
fn is_mark(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '+')
}

/// The characters of an expression that stand outside of its texts, each with its place and how many brackets are open
/// around it.
fn bare(expression: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let mut quote = None;
    let mut escaped = false;
    let mut depth = 0usize;
    expression.char_indices().filter_map(move |(at, c)| {
        if let Some(open) = quote {
            if escaped {
                escaped = false;
            } else if c == '\\' {
                escaped = true;
            } else if c == open {
                quote = None;
            }
            return None;
        }
        match c {
            '\'' | '"' => {
                quote = Some(c);
                return None;
            }
            '(' | '[' | '{' => {
                depth += 1;
                return Some((at, c, depth - 1));
            }
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        Some((at, c, depth))
    })
}

/// The bytes of a tag that belong to no text.
fn bare_bytes(tag: &str) -> usize {
    bare(tag).map(|(_, c, _)| c.len_utf8()).sum()
}

/// The length of a tag that ends with `last` and `}`; both brackets of its opening are two characters long.
fn tag_end(tag: &str, last: char) -> Option<usize> {
    let inner = tag.get(2..)?;
    let mut before = None;
    for (at, c, depth) in bare(inner) {
        if c == '}' && before == Some((at.wrapping_sub(1), last)) && (last == '%' || depth == 0) {
            return Some(at + 3);
        }
        before = (last == '%' || depth == 0).then_some((at, c));
    }
    None
}

/// A statement's tag as it is compiled. `blocks` are the targets of the `set` blocks that are open.
fn statement<'a>(tag: &'a str, blocks: &mut Vec<&'a str>) -> String {
    let inner = tag.strip_prefix("{%").and_then(|tag| tag.strip_suffix("%}"));
    let Some(inner) = inner else { return tag.to_owned() };
    let close = match inner.chars().next_back() {
        Some(mark @ ('-' | '+')) => format!("{mark}%}}"),
        _ => "%}".to_owned(),
    };
    let body = inner.trim_end_matches(['-', '+']);
    let words = body.trim_start_matches(is_mark);
    let (open, _) = body.split_at(body.len() - words.len());
    let name_end = words
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(words.len());
    let (name, arguments) = words.split_at(name_end);
    match name {
        // They mark the assistant's text for training; a condition that holds keeps what they do to white space.
        "generation" if arguments.trim().is_empty() => format!("{{%{open}if true {close}"),
        "endgeneration" if arguments.trim().is_empty() => format!("{{%{open}endif {close}"),
        "set" => match assigned(arguments) {
            // Two brackets, for `set a, b = 1, 2`.
            Some((target, value)) => {
                format!("{{%{open}set{target}={OWN}(({value})){close}") + &changed(target, &close)
            }
            None => {
                blocks.push(arguments.split('|').next().unwrap_or_default());
                tag.to_owned()
            }
        },
        "endset" => {
            let target = blocks.pop().unwrap_or_default();
            let plain = names(target).into_iter().filter(|_| !target.contains('.'));
            tag.to_owned() + &changed(target, &close) + &rebound(&plain.collect::<Vec<_>>(), &close)
        }
        "with" => {
            let bound: Vec<String> = pieces(arguments)
                .map(|piece| match assigned(piece) {
                    Some((target, value)) => format!("{target}={OWN}(({value}))"),
                    None => piece.to_owned(),
                })
                .collect();
            format!("{{%{open}with{}{close}", bound.join(","))
        }
        "for" => {
            let targets = words_before(arguments, "in").unwrap_or_default();
            tag.to_owned() + &rebound(&names(targets), &close)
        }
        "macro" => tag.to_owned() + &rebound(&parameters(arguments), &close),
        // `call(x) f()` has parameters, `call f(x)` none.
        "call" if arguments.trim_start().starts_with('(') => {
            tag.to_owned() + &rebound(&parameters(arguments), &close)
        }
        _ => tag.to_owned(),
    }
}

/// Tags that weigh the namespaces of which `target` names attributes.
fn changed(target: &str, close: &str) -> String {
    let held = target
        .split([',', '(', ')'])
        .filter_map(|name| name.trim().split_once('.'));
    held.map(|(namespace, _)| format!("{{% if {OWN}({}) %}}{{% endif {close}", namespace.trim()))
        .collect()
}

/// Tags that bind `names` again, to what they are.
fn rebound(names: &[&str], close: &str) -> String {
    let last = names.len().saturating_sub(1);
    let tag = |(at, name): (usize, &&str)| {
        let close = if at == last { close } else { "%}" };
        format!("{{% set {name}={OWN}({name}) {close}")
    };
    names.iter().enumerate().map(tag).collect()
}

/// Target and value of an assignment; `None` where there is no `=`.
fn assigned(text: &str) -> Option<(&str, &str)> {
    let at = bare(text).find_map(|(at, c, depth)| (c == '=' && depth == 0).then_some(at))?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The pieces between the commas that stand in no bracket.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut from = 0;
    let commas = bare(text).filter_map(|(at, c, depth)| (c == ',' && depth == 0).then_some(at));
    let ends: Vec<usize> = commas.chain([text.len()]).collect();
    ends.into_iter().filter_map(move |end| {
        let piece = text.get(from..end);
        from = end + 1;
        piece
    })
}

/// What stands before a word of its own.
fn words_before<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    text.match_indices(word).find_map(|(at, _)| {
        let before = text.get(..at)?;
        let after = text.get(at + word.len()..)?;
        (apart(before.chars().next_back()) && apart(after.chars().next())).then_some(before)
    })
}

/// The names in a target: `a`, `a, b` or `(a, b)`.
fn names(target: &str) -> Vec<&str> {
    let name = |c: char| !c.is_alphanumeric() && c != '_';
    target.split(name).filter(|name| !name.is_empty()).collect()
}

/// The parameters in the first brackets of a macro's or call's tag.
fn parameters(arguments: &str) -> Vec<&str> {
    let brackets: Vec<usize> = bare(arguments)
        .filter_map(|(at, c, depth)| (depth == 0 && matches!(c, '(' | ')')).then_some(at))
        .take(2)
        .collect();
    let [open, close] = brackets.as_slice() else {
        return Vec::new();
    };
    let Some(inner) = arguments.get(open + 1..*close) else {
        return Vec::new();
    };
    pieces(inner)
        .map(|piece| assigned(piece).map_or(piece, |(name, _)| name).trim())
        .filter(|name| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::prepared;

    fn becomes(source: &str, expected: &str) {
        assert_eq!(prepared(source).unwrap(), expected);
    }

    #[test]
    fn what_is_bound_passes_the_scales() {
        becomes(
            "{% set x = [1, '=%}'] -%} y",
            "{% set x =__own(( [1, '=%}'] ))-%} y",
        );
        becomes(
            "{%- set ns.a = ns -%}",
            "{%- set ns.a =__own(( ns ))-%}{% if __own(ns) %}{% endif -%}",
        );
        becomes(
            "{%\x0cset (ns.a, b) = x %}",
            "{%\x0cset (ns.a, b) =__own(( x ))%}{% if __own(ns) %}{% endif %}",
        );
        becomes(
            "{% set ns.a|f(ns) %}{% set y %}{% endset %}{% endset %}",
            "{% set ns.a|f(ns) %}{% set y %}{% endset %}{% set y=__own(y) %}{% endset %}{% if __own(ns) %}{% endif %}",
        );
        becomes("{#} {% ' #}{% set x=1 %}", "{#} {% ' #}{% set x=__own((1 ))%}");
        becomes("{% set a, b = 1, 2 %}", "{% set a, b =__own(( 1, 2 ))%}");
        becomes(
            "{% with a = f(1, 2), b='x=,' %}",
            "{% with a =__own(( f(1, 2))), b=__own(('x=,' ))%}",
        );
        becomes(
            "{% for k, v in m.in -%} a",
            "{% for k, v in m.in -%}{% set k=__own(k) %}{% set v=__own(v) -%} a",
        );
        becomes(
            "{% macro f(a, b=(1,2)) %}",
            "{% macro f(a, b=(1,2)) %}{% set a=__own(a) %}{% set b=__own(b) %}",
        );
        becomes("{% call(x) f(1) %}", "{% call(x) f(1) %}{% set x=__own(x) %}");
    }

    #[test]
    fn all_else_stays_as_it_is() {
        for source in [
            "{% call g(1) %}{% call g(a=m) %}",
            "{# {% set x = 1 %} #}{% raw %}{% set x = 1 %}{% endraw %}{{ '{% set x = 1 %}' }}",
            "{{ {'a': {'b': 1}} }}{% if a == 1 %}{% endif %}",
            "{% macro f() %}{% call f() %}",
            "{% set x = 1",
            "{{ 'open",
            "{% raw %} no end {% set x",
        ] {
            becomes(source, source);
        }
    }

    #[test]
    fn lines_end_as_jinja_reads_them() {
        becomes("a\r\nb\rc\n", "a\nb\nc\n");
    }

    #[test]
    fn marks_for_training_become_conditions() {
        becomes(
            "{%- generation -%}a{% endgeneration +%}",
            "{%- if true -%}a{% endif +%}",
        );
    }

    #[test]
    fn what_would_take_the_compiler_for_ever_is_refused() {
        let refused = |source: String| prepared(&source).unwrap_err().to_string();
        assert!(refused(format!("{{{{ 1{} }}}}", "~1".repeat(5_000))).contains("8192 bytes"));
        assert!(refused("{% elif a %}".repeat(10_001)).contains("10000 tags"));
        assert!(refused("x".repeat(300_000)).contains("300000 bytes"));
        assert!(refused("{% set __own = 1 %}".to_owned()).contains("is taken"));
        assert!(prepared(&format!("{{{{ '{}' }}}}", "~1".repeat(50_000))).is_ok());
    }
}
