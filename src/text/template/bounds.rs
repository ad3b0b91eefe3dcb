//! What a template may take: stack, time, and the size of the values that it binds.

use std::time::{Duration, Instant};

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

use super::super::panics::caught;
use super::source::{KEEP, OWN};

/// Bytes of stack for the compiler and the engine, which call themselves for what is nested.
const STACK: usize = 64 << 20;
/// How long one rendering may take: real ones take milliseconds.
const TIME: Duration = Duration::from_secs(10);
/// How deeply values may be nested: JSON is read to 128.
const DEPTH: usize = 150;
/// What a value may weigh besides a unit for each byte of the messages; an item weighs one, as 16 bytes of text do.
const WEIGHT: u64 = 50_000;

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
    let own = move |value: Value| bounds.pass(value, false);
    environment.add_function(OWN, own);
    environment.add_function(KEEP, move |value: Value| bounds.pass(value, true));
    environment.set_formatter(move |out, state, value| {
        bounds.weigh(value, false)?;
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
    fn pass(self, value: Value, kept: bool) -> Result<Value, Error> {
        self.weigh(&value, kept)?;
        Ok(value)
    }

    /// Whether `value` is small enough; one that a namespace is to keep holds no namespace, or it could hold itself.
    fn weigh(self, value: &Value, kept: bool) -> Result<(), Error> {
        if Instant::now() > self.until {
            let message = format!("it takes more than {} s", TIME.as_secs());
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        let mut left = self.most;
        descend(value, kept, DEPTH, &mut left)
    }
}

fn descend(value: &Value, kept: bool, depth: usize, left: &mut u64) -> Result<(), Error> {
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
    let namespace = |value: &Value| {
        value
            .as_object()
            .is_some_and(|object| object.type_name().ends_with("::Namespace"))
    };
    if kept && namespace(value) {
        return refused("a namespace cannot hold another one");
    }
    let keyed = value.kind() == ValueKind::Map;
    if keyed && value.len().is_none() {
        // An object of methods alone.
        return Ok(());
    }
    for item in value.try_iter()?.checked() {
        let item = item?;
        descend(&item, kept, depth, left)?;
        if keyed {
            descend(&value.get_item(&item)?, kept, depth, left)?;
        }
    }
    Ok(())
}
