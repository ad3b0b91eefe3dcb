//! Panics of libraries that are given what a model's author wrote.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic on this thread is caught where it is expected: nothing need be said or tidied up.
pub fn is_caught() -> bool {
    CAUGHT.get()
}

/// What `work` returns; `None` if it panics, and then nothing is printed.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !is_caught() {
                loud(info);
            }
        }));
    });
    let outer = CAUGHT.replace(true);
    let returned = catch_unwind(AssertUnwindSafe(work)).ok();
    CAUGHT.set(outer);
    returned
}

#[cfg(test)]
mod tests {
    use super::{caught, is_caught};

    #[test]
    fn a_panic_is_caught_and_only_while_it_is_expected() {
        assert_eq!(caught(is_caught), Some(true));
        assert_eq!(
            caught(|| caught(|| panic!("within")).is_none() && is_caught()),
            Some(true)
        );
        assert_eq!(caught::<()>(|| panic!("expected")), None);
        assert!(!is_caught());
    }
}
