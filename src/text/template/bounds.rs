//! What a template may take: stack, time, and the size of the values that it binds.

use std::time::{Duration, Instant};

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::super::panics::caught;
use super::source::OWN;

/// Bytes of stack for the compiler and the engine, which call themselves for what is nested.
const STACK: usize = 64 << 20;
/// How long one rendering may take: real ones take milliseconds.
const TIME: Duration = Duration::from_secs(3);
/// How deeply values may be nested: JSON is read to 128.
const DEPTH: usize = 150;
/// What a value may weigh besides a unit for each byte of the messages; an item weighs one, as 16 bytes of text do.
const WEIGHT: u64 = 50_000;

/// The most bytes that a format may come to.
const MOST_FORMATTED: usize = 1 << 24;
/// Filters that take more than their input's size in time or memory, by their names and those of the engine's own.
pub(super) const HEAVY: [(&str, &str); 6] = [
    ("format", "__format"),
    ("join", "__join"),
    ("pprint", "__pprint"),
    ("sort", "__sort"),
    ("sum", "__sum"),
    ("unique", "__unique"),
];

/// Refuses a format whose fields could come to too much text; it is the first of `arguments`.
pub(super) fn fields_fit(arguments: &[Value]) -> Result<(), Error> {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let (format, rest) = arguments.split_first().unzip();
    let format = format.and_then(Value::as_str).unwrap_or_default();
    let named = |value: &Value| -> usize {
        let keys = value.try_iter().into_iter().flatten();
        keys.filter_map(|key| value.get_item(&key).ok())
            .map(|value| text(&value))
            .sum()
    };
    let given: usize = rest
        .unwrap_or_default()
        .iter()
        .map(|value| text(value) + named(value))
        .sum();
    match format.matches(['{', '%']).count().saturating_mul(given) > MOST_FORMATTED {
        true => Err(Error::new(
            ErrorKind::InvalidOperation,
            "it makes too large a text",
        )),
        false => Ok(()),
    }
}

/// Runs `work` with a deep stack, and catches it where it panics.
///
/// # Errors
/// Those of `work`; if no thread can be started; and if it panicked.
pub(super) fn deep<T: Send>(work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("template".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || caught(work))
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("no thread for it: {error}")))?;
        let panicked = || Error::new(ErrorKind::InvalidOperation, "the template engine panicked");
        thread.join().ok().flatten().unwrap_or_else(|| Err(panicked()))
    })
}

/// Gives `environment` the functions that bound values pass, for one rendering that begins now; `input` is what its
/// messages and tools take in bytes.
pub(super) fn bind(environment: &mut Environment<'_>, input: u64) {
    let bounds = Bounds {
        until: Instant::now() + TIME,
        most: WEIGHT.saturating_add(input),
    };
    environment.add_function(OWN, move |value: Value| {
        bounds.weigh(&value)?;
        Ok::<_, Error>(value)
    });
    for (name, plain) in HEAVY {
        let heavy = move |state: &mut State, arguments: Rest<Value>, named: Kwargs| {
            let mut arguments = arguments.0;
            arguments.push(named.into());
            arguments.iter().try_for_each(|argument| bounds.weigh(argument))?;
            if name == "format" {
                fields_fit(&arguments)?;
            }
            state.apply_filter(plain, &arguments)
        };
        environment.add_filter(name, heavy);
    }
    environment.set_formatter(move |out, state, value| {
        bounds.weigh(value)?;
        minijinja::escape_formatter(out, state, value)
    });
}

/// The bounds of one rendering.
#[derive(Clone, Copy)]
struct Bounds {
    until: Instant,
    most: u64,
}

impl Bounds {
    /// Whether `value` is small enough, and there is time left.
    fn weigh(self, value: &Value) -> Result<(), Error> {
        if Instant::now() > self.until {
            let message = format!("it takes more than {} s", TIME.as_secs());
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        let mut left = self.most;
        descend(value, DEPTH, &mut left)
    }
}

fn descend(value: &Value, depth: usize, left: &mut u64) -> Result<(), Error> {
    let refused = |message: &str| Err(Error::new(ErrorKind::InvalidOperation, message.to_owned()));
    let weight = 1 + value.as_str().map_or(0, str::len) as u64 / 16;
    match left.checked_sub(weight) {
        Some(rest) => *left = rest,
        None => return refused("it makes too large a value"),
    }
    if !matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
    ) {
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else {
        return refused("it nests values too deeply");
    };
    let keyed = value.kind() == ValueKind::Map;
    if keyed && value.len().is_none() {
        // An object of methods alone.
        return Ok(());
    }
    for item in value.try_iter()?.checked() {
        let item = item?;
        descend(&item, depth, left)?;
        if keyed {
            descend(&value.get_item(&item)?, depth, left)?;
        }
    }
    Ok(())
}
