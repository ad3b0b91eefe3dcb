//! How long threads that wait for each other look before they give the core away.

use std::thread;
use std::time::{Duration, Instant};

/// How long a waiting thread looks before it gives the core away: it bridges the time between two kernels of a step, and is too
/// short for an interface to notice.
const PATIENCE: Duration = Duration::from_micros(50);

/// Looks from one look at the clock to the next.
const LOOKS: u32 = 64;

/// Waits for what other members of the team will do soon; gives the core away if it takes longer, since a member may be
/// waiting for this very core.
pub(crate) fn wait(done: impl Fn() -> bool) {
    let mut patience = Patience::default();
    while !done() {
        if !patience.lasts() {
            thread::yield_now();
        }
    }
}

/// Counts looks, and measures how long they have taken: one takes from a few nanoseconds to a tenth of a microsecond, by the CPU.
#[derive(Default)]
pub(crate) struct Patience {
    looks: u32,
    since: Option<Instant>,
    over: bool,
}

impl Patience {
    /// Whether to look again; takes the moment that lies between two looks.
    pub fn lasts(&mut self) -> bool {
        if self.over {
            return false;
        }
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS) {
            self.over = self.since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE;
        }
        !self.over
    }
}
