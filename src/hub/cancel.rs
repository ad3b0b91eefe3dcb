//! A flag that stops a download from another thread or from a signal handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest time between two looks at the flag.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asked for once, seen by all its clones: "stop as soon as you can, keep what can be resumed".
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that nobody has asked to stop yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop; never blocks.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Waits for `time`, or less if asked to stop; says whether the whole time has passed.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let start = Instant::now();
        loop {
            if self.is_cancelled() {
                return false;
            }
            let left = time.saturating_sub(start.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

impl From<Arc<AtomicBool>> for Cancel {
    /// A token over somebody's flag.
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_sees_the_request_to_stop() {
        let token = Cancel::new();
        let other = token.clone();
        assert!(other.wait(Duration::ZERO));
        token.cancel();
        assert!(other.is_cancelled());
        assert!(!other.wait(Duration::from_secs(3600)));
    }
}
