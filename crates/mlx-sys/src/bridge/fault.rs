//! What is kept of a closure's panic until someone asks.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic of a custom operation's closure. The outputs of that run are filled with `0xff` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The operation's name.
    pub op: String,
    /// The panic's message.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU operation `{}` panicked: {}", self.op, self.message)
    }
}

impl std::error::Error for Fault {}

/// The first fault since it was last taken.
#[derive(Default)]
pub(super) struct Slot {
    raised: AtomicBool,
    first: Mutex<Option<Fault>>,
}

/// Of all operations of the process.
pub(super) static PROCESS: Slot = Slot::new();

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            raised: AtomicBool::new(false),
            first: Mutex::new(None),
        }
    }

    pub(super) fn put(&self, fault: Fault) {
        self.first().get_or_insert(fault);
        self.raised.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<Fault> {
        // The usual case costs one load.
        if !self.raised.load(Ordering::Acquire) {
            return None;
        }
        let mut first = self.first();
        self.raised.store(false, Ordering::Relaxed);
        first.take()
    }

    fn first(&self) -> MutexGuard<'_, Option<Fault>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first fault of any operation in the process since the last call, if there was one; cheap enough for every step.
pub fn take_fault() -> Option<Fault> {
    PROCESS.take()
}

/// The text of a panic.
pub(super) fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}
