//! Jinja as Python's templates expect it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use serde::Serialize;

use super::bounds::{HEAVY, fields_fit};
use super::{Clock, source};

/// How deeply macros and blocks may call each other.
const RECURSION: usize = 100;
/// The most bytes of one value as JSON: shared values can make it far larger than what they take.
const MOST_JSON: usize = 1 << 24;
/// The template's name in error messages.
pub(super) const NAME: &str = "chat_template";

/// An environment that holds `source` under [`NAME`].
pub(super) fn environment(source: &str, clock: Clock) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    minijinja_contrib::add_to_environment(&mut environment);
    // Jinja's takes its items one by one. What these hold cannot be weighed: texts and numbers.
    environment.add_function("cycler", |items: Rest<Value>| {
        items.iter().try_for_each(plain)?;
        minijinja_contrib::globals::cycler(items.0)
    });
    environment.add_function("joiner", |separator: Option<Value>| {
        separator.iter().try_for_each(plain)?;
        Ok::<_, Error>(minijinja_contrib::globals::joiner(separator))
    });
    let [format, join, pprint, sort, sum, unique] = HEAVY.map(|(_, plain)| plain);
    environment.add_filter(format, minijinja::filters::format);
    environment.add_filter(join, minijinja::filters::join);
    environment.add_filter(pprint, minijinja::filters::pprint);
    environment.add_filter(sort, minijinja::filters::sort);
    environment.add_filter(sum, minijinja::filters::sum);
    environment.add_filter(unique, minijinja::filters::unique);
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(method);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| {
        jiff::fmt::strtime::format(&format, &clock()).map_err(|error| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("time format `{format}`: {error}"),
            )
        })
    });
    environment.add_filter("tojson", to_json);
    environment.add_filter("urlencode", url_encode);
    // As in Python: nothing is not iterable, and all that has a length and items is a sequence.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment.add_template_owned(NAME, source::prepared(source)?)?;
    Ok(environment)
}

/// Refuses what holds others.
fn plain(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String | ValueKind::Number | ValueKind::Bool | ValueKind::None => Ok(()),
        kind => {
            let message = format!("texts and numbers are taken, this is a {kind}");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
    }
}

/// Methods of Python's types: those of minijinja-contrib, and a few more.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        match name {
            "format" | "join" => {
                let own = state.lookup(source::OWN).unwrap_or_default();
                let (positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
                let named: Result<Vec<Value>, Error> = named.args().map(|name| named.peek(name)).collect();
                for argument in positional.0.into_iter().chain(named?) {
                    own.call(state, &[argument])?;
                }
                if name == "format" {
                    modest_widths(text)?;
                    fields_fit(&[std::slice::from_ref(value), args].concat())?;
                }
            }
            "title" => return from_args(args).map(|()| Value::from(title(text))),
            "splitlines" => {
                let (ends,): (Option<bool>,) = from_args(args)?;
                return Ok(Value::from(lines(text, ends.unwrap_or(false))));
            }
            "split" | "rsplit" => {
                let (mut positional, named): (Rest<Value>, Kwargs) = from_args(args)?;
                for (at, name) in ["sep", "maxsplit"].into_iter().enumerate() {
                    if let Some(given) = named.get::<Option<Value>>(name)? {
                        positional.0.resize(at.max(positional.len()), Value::from(()));
                        positional.0.push(given);
                    }
                }
                named.assert_all_used()?;
                return split(state, value, text, name, &positional);
            }
            "find" | "rfind" | "index" | "rindex" | "count" | "startswith" | "endswith"
                if args.len() > 1 || name == "rindex" =>
            {
                return within(state, text, name, args);
            }
            _ => {}
        }
    }
    match minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args) {
        Err(error) if error.kind() == ErrorKind::UnknownMethod => {}
        other => return other,
    }
    let Some(text) = value.as_str() else {
        return match (name, value.kind()) {
            ("index", ValueKind::Seq | ValueKind::Iterable) => list_index(value, args),
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        };
    };
    match name {
        "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<&str>) = from_args(args)?;
            let mut fill = fill.unwrap_or(" ").chars();
            let (Some(fill), None) = (fill.next(), fill.next()) else {
                let message = "the fill character must be exactly one character long";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            };
            let missing = missing(state, text, width, fill)?;
            let odd = missing % 2 == 1 && width % 2 == 1;
            let before = match name {
                "ljust" => 0,
                "rjust" => missing,
                _ => missing / 2 + usize::from(odd),
            };
            let fill = |count: usize| std::iter::repeat_n(fill, count);
            let padded = fill(before).chain(text.chars()).chain(fill(missing - before));
            Ok(Value::from(padded.collect::<String>()))
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let zeros = "0".repeat(missing(state, text, width, '0')?);
            let digits = text.trim_start_matches(['+', '-']);
            // One sign at most stays in front.
            let (sign, digits) = match text.len() - digits.len() {
                0 => ("", text),
                _ => text.split_at(1),
            };
            Ok(Value::from(format!("{sign}{zeros}{digits}")))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = name == "partition";
            let parts = if first {
                text.split_once(separator)
            } else {
                text.rsplit_once(separator)
            };
            Ok(Value::from(match parts {
                Some((before, after)) => [before, separator, after].map(str::to_owned).to_vec(),
                None if first => [text, "", ""].map(str::to_owned).to_vec(),
                None => ["", "", text].map(str::to_owned).to_vec(),
            }))
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            };
            Ok(Value::from(text.chars().map(swap).collect::<String>()))
        }
        "casefold" => {
            let () = from_args(args)?;
            Ok(Value::from(text.to_lowercase()))
        }
        "index" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = text.find(wanted).and_then(|at| text.get(..at));
            at.map(|before| Value::from(before.chars().count()))
                .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

/// Python's `str.split` and `str.rsplit`.
fn split(state: &mut State, value: &Value, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    if name == "split" {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args);
    }
    let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
    let most = most.and_then(|most| usize::try_from(most).ok());
    Ok(Value::from(rsplit(text, separator, most)))
}

/// The methods of a text that look at a part of it: `find(wanted, start, end)` and its kin.
fn within(state: &mut State, text: &str, name: &str, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let length = text.chars().count();
    let place = |from: i64| match usize::try_from(from) {
        Ok(at) => at.min(length),
        Err(_) => length.saturating_sub(usize::try_from(from.unsigned_abs()).unwrap_or(length)),
    };
    let (start, end) = (place(start.unwrap_or(0)), place(end.unwrap_or(i64::MAX)));
    let part: String = text.chars().skip(start).take(end.saturating_sub(start)).collect();
    let plain = if name == "rindex" { "rfind" } else { name };
    let found = method(state, &Value::from(part), plain, std::slice::from_ref(wanted))?;
    Ok(match (name, found.as_i64()) {
        ("find" | "rfind" | "index" | "rindex", Some(at)) if at >= 0 => Value::from(at + start as i64),
        ("rindex", _) => return Err(Error::new(ErrorKind::InvalidOperation, "substring not found")),
        _ => found,
    })
}

/// Python's `str.title`: every run of letters begins with a large one.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut within = false;
    for c in text.chars() {
        match within {
            true => titled.extend(c.to_lowercase()),
            false => titled.extend(c.to_uppercase()),
        }
        within = c.is_alphabetic();
    }
    titled
}

/// Python's `str.splitlines`: more than `\n` ends a line.
fn lines(text: &str, ends: bool) -> Vec<String> {
    const ENDS: &[char] = &[
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = rest.find(ENDS).unwrap_or(rest.len());
        let (before, after) = rest.split_at(line);
        let end = match after.strip_prefix("\r\n") {
            Some(_) => 2,
            None => after.chars().next().map_or(0, char::len_utf8),
        };
        let (whole, next) = rest.split_at(line + end);
        lines.push(if ends { whole } else { before }.to_owned());
        rest = next;
    }
    lines
}

/// Refuses fields of `str.format` that ask for a width or precision of five digits: nothing charges for them.
fn modest_widths(format: &str) -> Result<(), Error> {
    let mut runs = format.split(|c: char| !c.is_ascii_digit());
    match runs
        .find(|digits| digits.len() > 4)
        .filter(|_| format.contains('{'))
    {
        Some(digits) => {
            let message = format!("a format asks for {digits} characters");
            Err(Error::new(ErrorKind::InvalidOperation, message))
        }
        None => Ok(()),
    }
}

/// How many characters `text` lacks to be `width` long; what they take is paid for.
fn missing(state: &State, text: &str, width: i64, fill: char) -> Result<usize, Error> {
    let width = usize::try_from(width).unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    let bytes = missing.saturating_mul(fill.len_utf8());
    state.consume_fuel(bytes as u64 / 64)?;
    Ok(missing)
}

/// Python's `list.index(item, start, stop)`.
fn list_index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted, start, stop): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let length = i64::try_from(list.len().unwrap_or(0)).unwrap_or(i64::MAX);
    let place = |from_end: i64| match from_end {
        at if at < 0 => at.saturating_add(length).max(0),
        at => at,
    };
    let range = place(start.unwrap_or(0))..place(stop.unwrap_or(length));
    for (at, item) in (0i64..).zip(list.try_iter()?.checked()) {
        if range.contains(&at) && item? == *wanted {
            return Ok(Value::from(at));
        }
    }
    let message = format!("{wanted} is not in the list");
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Jinja's `urlencode`: of a text, or of pairs as a query.
fn url_encode(state: &State, value: &Value) -> Result<String, Error> {
    let quoted = |value: &Value, in_query: bool| -> Result<String, Error> {
        let text = value.to_string();
        state.consume_fuel(text.len() as u64 / 16)?;
        let mut quoted = String::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b'_' | b'.' | b'-' | b'~' => quoted.push(byte.into()),
                b'/' if !in_query => quoted.push('/'),
                b' ' if in_query => quoted.push('+'),
                _ if byte.is_ascii_alphanumeric() => quoted.push(byte.into()),
                _ => quoted.push_str(&format!("%{byte:02X}")),
            }
        }
        Ok(quoted)
    };
    let pair = |key: &Value, value: &Value| Ok(format!("{}={}", quoted(key, true)?, quoted(value, true)?));
    let pairs: Result<Vec<String>, Error> = match value.kind() {
        ValueKind::Map => value
            .try_iter()?
            .map(|key| pair(&key, &value.get_item(&key)?))
            .collect(),
        ValueKind::Seq | ValueKind::Iterable => value
            .try_iter()?
            .map(|item| pair(&item.get_item(&Value::from(0))?, &item.get_item(&Value::from(1))?))
            .collect(),
        _ => return quoted(value, false),
    };
    Ok(pairs?.join("&"))
}

/// Python's `str.rsplit`.
fn rsplit(text: &str, separator: Option<&str>, most: Option<usize>) -> Vec<String> {
    let pieces = most.map_or(usize::MAX, |most| most.saturating_add(1));
    let mut parts: Vec<String> = match separator {
        Some(separator) => text.rsplitn(pieces, separator).map(str::to_owned).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end();
            while !rest.is_empty() {
                let cut = (parts.len() + 1 < pieces)
                    .then(|| rest.rfind(char::is_whitespace))
                    .flatten();
                let space = cut.and_then(|at| rest.get(at..)?.chars().next());
                match (cut, space) {
                    (Some(at), Some(space)) => {
                        parts.push(rest.get(at + space.len_utf8()..).unwrap_or_default().to_owned());
                        rest = rest.get(..at).unwrap_or_default().trim_end();
                    }
                    _ => {
                        parts.push(rest.to_owned());
                        break;
                    }
                }
            }
            parts
        }
    };
    parts.reverse();
    parts
}

/// JSON as Python's `json.dumps` writes it, which templates are written for: `", "` and `": "`, nothing
/// escaped for HTML.
fn to_json(state: &State, value: &Value, positional: Rest<Value>, options: Kwargs) -> Result<Value, Error> {
    // In transformers: tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
    let given = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => options.get::<Option<Value>>(name)?,
        }
        .filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ascii = given(0, "ensure_ascii")?.is_some_and(|value| value.is_true());
    let indent = given(1, "indent")?.map(usize::try_from).transpose()?;
    let separators = given(2, "separators")?;
    let sorted = given(3, "sort_keys")?.is_some_and(|value| value.is_true());
    options.assert_all_used()?;
    let (mut comma, mut colon) = (
        if indent.is_some() { "," } else { ", " }.to_owned(),
        ": ".to_owned(),
    );
    if let Some(separators) = separators {
        comma = separators.get_item(&Value::from(0))?.to_string();
        colon = separators.get_item(&Value::from(1))?.to_string();
    }
    let style = Style {
        comma: comma.into_bytes(),
        colon: colon.into_bytes(),
        indent: indent.map(|width| width.min(16)),
        depth: 0,
        filled: false,
    };
    let mut json = if sorted {
        // Through text, which is bounded; a tree of shared values is not.
        let plain = serialized(value, serde_json::ser::CompactFormatter)?;
        let mut tree: serde_json::Value = serde_json::from_str(&plain).map_err(failed)?;
        tree.sort_all_objects();
        serialized(&tree, style)?
    } else {
        serialized(value, style)?
    };
    if ascii {
        json = escape_non_ascii(&json);
    }
    state.consume_fuel(json.len() as u64 / 64)?;
    Ok(Value::from_safe_string(json))
}

fn failed(error: serde_json::Error) -> Error {
    Error::new(ErrorKind::BadSerialization, error.to_string())
}

fn serialized(value: &impl Serialize, style: impl serde_json::ser::Formatter) -> Result<String, Error> {
    let mut json = Bounded(Vec::new());
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut json, style))
        .map_err(failed)?;
    Ok(String::from_utf8_lossy(&json.0).into_owned())
}

/// Bytes up to [`MOST_JSON`].
struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_JSON {
            return Err(std::io::Error::other(format!(
                "the value takes more than {MOST_JSON} bytes as JSON"
            )));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn escape_non_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

/// JSON with separators as asked for, on one line or indented.
struct Style {
    comma: Vec<u8>,
    colon: Vec<u8>,
    indent: Option<usize>,
    depth: usize,
    /// Whether the innermost list or object has anything in it.
    filled: bool,
}

impl Style {
    fn line<W: ?Sized + std::io::Write>(&self, out: &mut W) -> std::io::Result<()> {
        match self.indent {
            Some(width) => write!(out, "\n{:1$}", "", width * self.depth),
            None => Ok(()),
        }
    }

    fn begin<W: ?Sized + std::io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> std::io::Result<()> {
        self.depth += 1;
        self.filled = false;
        out.write_all(bracket)
    }

    fn end<W: ?Sized + std::io::Write>(&mut self, out: &mut W, bracket: &[u8]) -> std::io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        if self.filled {
            self.line(out)?;
        }
        self.filled = true;
        out.write_all(bracket)
    }

    fn item<W: ?Sized + std::io::Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if !first {
            out.write_all(&self.comma)?;
        }
        self.line(out)
    }
}

impl serde_json::ser::Formatter for Style {
    fn begin_array<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.item(out, first)
    }

    fn end_array_value<W: ?Sized + std::io::Write>(&mut self, _: &mut W) -> std::io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.item(out, first)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(&self.colon)
    }

    fn end_object_value<W: ?Sized + std::io::Write>(&mut self, _: &mut W) -> std::io::Result<()> {
        self.filled = true;
        Ok(())
    }
}
