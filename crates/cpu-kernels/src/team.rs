//! The threads that run kernels: one team, started once, parked when there is nothing to do.

use std::cell::UnsafeCell;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::patience::{Patience, wait};
use crate::{Arithmetic, Isa};

/// Work is handed out from this many counters; a kernel has at most as many phases.
const PHASES: usize = 4;

/// A job, as the workers see it.
type Job = *const (dyn Fn(&Worker<'_>) + Sync);

struct Shared {
    size: usize,
    /// Counts jobs; workers wait for it to change.
    epoch: AtomicU32,
    job: UnsafeCell<Option<Job>>,
    /// Workers that have not finished the job.
    busy: AtomicUsize,
    /// Which workers are parked, or about to be.
    parked: Vec<AtomicBool>,
    closing: AtomicBool,
    /// The next piece of work of each phase.
    tickets: [Ticket; PHASES],
    /// How many pieces of each phase are done.
    finished: [Ticket; PHASES],
    arrived: AtomicUsize,
    generation: AtomicU32,
    /// A member has panicked: those at a barrier must not wait for it.
    broken: AtomicBool,
}

// SAFETY: `job` is written by the leader alone, before the epoch is advanced and while no worker runs.
unsafe impl Sync for Shared {}
// SAFETY: as above; the job's pointer is only followed while the leader keeps it alive.
unsafe impl Send for Shared {}

/// A counter on a cache line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Ticket(AtomicUsize);

/// Threads that run one function together, the caller's among them.
pub struct Team {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    isa: Isa,
    arithmetic: Arithmetic,
    /// One job at a time.
    turn: Mutex<()>,
}

/// A member of a team, in a job.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    index: usize,
}

impl Team {
    /// A team of `threads` (at least 1), the thread that runs a kernel being one of them, with the best instructions that
    /// there are.
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn new(threads: usize) -> io::Result<Self> {
        let isa = Isa::best();
        Self::with_arithmetic(threads, isa, isa.best_arithmetic())
    }

    /// The same with given instructions, and products by floats.
    ///
    /// # Errors
    /// If a thread can't be started, or the machine does not have the instructions.
    pub fn with_isa(threads: usize, isa: Isa) -> io::Result<Self> {
        Self::with_arithmetic(threads, isa, Arithmetic::Floats)
    }

    /// The same with given instructions and products.
    ///
    /// # Errors
    /// If a thread can't be started, or the machine does not have the instructions.
    pub fn with_arithmetic(threads: usize, isa: Isa, arithmetic: Arithmetic) -> io::Result<Self> {
        if !Isa::available().contains(&isa) {
            let message = format!("this machine has no {isa} instructions");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        if !isa.arithmetics().contains(&arithmetic) {
            let message = format!("this machine has no products of {arithmetic} by {isa} instructions");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let size = threads.max(1);
        let shared = Arc::new(Shared {
            size,
            epoch: AtomicU32::new(0),
            job: UnsafeCell::new(None),
            busy: AtomicUsize::new(0),
            parked: (1..size).map(|_| AtomicBool::new(false)).collect(),
            closing: AtomicBool::new(false),
            tickets: Default::default(),
            finished: Default::default(),
            arrived: AtomicUsize::new(0),
            generation: AtomicU32::new(0),
            broken: AtomicBool::new(false),
        });
        let mut team = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            isa,
            arithmetic,
            turn: Mutex::new(()),
        };
        for index in 0..size - 1 {
            let shared = Arc::clone(&shared);
            let name = format!("kernels-{}", index + 1);
            // A team dropped half-made joins those that were started.
            team.threads.push(
                thread::Builder::new()
                    .name(name)
                    .spawn(move || serve(&shared, index))?,
            );
        }
        Ok(team)
    }

    /// How many threads run a job.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The instructions that its kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How its products with quantized weights are computed.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// Has every member run `job`, and returns when all have. A panic in one of them is passed on. A job must not start another.
    pub(crate) fn run<F: Fn(&Worker<'_>) + Sync>(&self, job: F) {
        let _turn = lock(&self.turn);
        let shared = &*self.shared;
        for ticket in shared.tickets.iter().chain(&shared.finished) {
            ticket.0.store(0, Ordering::Relaxed);
        }
        shared.arrived.store(0, Ordering::Relaxed);
        shared.broken.store(false, Ordering::Relaxed);
        if shared.size == 1 {
            job(&Worker { shared, index: 0 });
            return;
        }
        let erased: *const (dyn Fn(&Worker<'_>) + Sync + '_) = &raw const job;
        // SAFETY: only the lifetime is changed; nobody follows the pointer after this function has waited for all workers.
        let erased: Job = unsafe { std::mem::transmute(erased) };
        // SAFETY: no worker runs (the last job was waited for), and the turn is ours.
        unsafe { *shared.job.get() = Some(erased) };
        shared.busy.store(shared.size - 1, Ordering::Relaxed);
        // The order of this store and the loads below matters: see `serve`.
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        for (parked, thread) in shared.parked.iter().zip(&self.threads) {
            if parked.load(Ordering::SeqCst) {
                thread.thread().unpark();
            }
        }
        let ours = catch_unwind(AssertUnwindSafe(|| job(&Worker { shared, index: 0 })));
        if ours.is_err() {
            shared.broken.store(true, Ordering::Release);
        }
        wait(|| shared.busy.load(Ordering::Acquire) == 0);
        match ours {
            Err(payload) => resume_unwind(payload),
            Ok(()) if shared.broken.load(Ordering::Acquire) => {
                panic!("a thread of the kernel's team panicked")
            }
            Ok(()) => {}
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team")
            .field("size", &self.size())
            .field("isa", &self.isa)
            .field("arithmetic", &self.arithmetic)
            .finish()
    }
}

impl Worker<'_> {
    /// Which member this is, below the team's size; 0 leads.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// The next piece of work of a phase, counted from 0: pieces go to whoever asks first.
    pub(crate) fn claim(&self, phase: usize) -> usize {
        self.shared.tickets[phase].0.fetch_add(1, Ordering::Relaxed)
    }

    /// The next pieces of `total`: long runs at first, so that memory is read in order, and single ones in the end, so that nobody
    /// waits long for the last. Empty when all are taken.
    pub(crate) fn claim_run(&self, phase: usize, total: usize) -> Range<usize> {
        let ticket = &self.shared.tickets[phase].0;
        let mut start = ticket.load(Ordering::Relaxed);
        loop {
            let run = ((total.saturating_sub(start)) / (2 * self.shared.size)).max(1);
            let end = (start + run).min(total);
            if start >= total {
                return total..total;
            }
            match ticket.compare_exchange_weak(start, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return start..end,
                Err(now) => start = now,
            }
        }
    }

    /// Says that pieces of a phase are done.
    pub(crate) fn finish(&self, phase: usize, pieces: usize) {
        self.shared.finished[phase].0.fetch_add(pieces, Ordering::Release);
    }

    /// Waits until so many pieces of a phase are done, by whomever: what they have written is seen afterwards. Who is late has not
    /// to be waited for.
    pub(crate) fn wait_for(&self, phase: usize, pieces: usize) {
        let shared = self.shared;
        let done = || shared.finished[phase].0.load(Ordering::Acquire) >= pieces;
        wait(|| done() || shared.broken.load(Ordering::Relaxed));
        assert!(done(), "another thread of the team panicked");
    }

    /// Waits for all members: what each has written is seen by all afterwards.
    pub(crate) fn barrier(&self) {
        let shared = self.shared;
        if shared.size == 1 {
            return;
        }
        let generation = shared.generation.load(Ordering::Relaxed);
        if shared.arrived.fetch_add(1, Ordering::AcqRel) + 1 == shared.size {
            shared.arrived.store(0, Ordering::Relaxed);
            shared.generation.fetch_add(1, Ordering::Release);
            return;
        }
        let passed = || shared.generation.load(Ordering::Acquire) != generation;
        wait(|| passed() || shared.broken.load(Ordering::Relaxed));
        assert!(passed(), "another thread of the team panicked");
    }
}

/// What a worker thread does all its life.
fn serve(shared: &Shared, index: usize) {
    let mut seen = 0;
    loop {
        let mut patience = Patience::default();
        while shared.epoch.load(Ordering::Acquire) == seen {
            if patience.lasts() {
                continue;
            }
            // Either the leader sees the flag after it has advanced the epoch, or this thread sees the new epoch.
            shared.parked[index].store(true, Ordering::SeqCst);
            if shared.epoch.load(Ordering::SeqCst) == seen {
                thread::park();
            }
            shared.parked[index].store(false, Ordering::SeqCst);
        }
        seen = seen.wrapping_add(1);
        if shared.closing.load(Ordering::SeqCst) {
            return;
        }
        // SAFETY: written before the epoch was advanced, and not again before this thread says that it is done.
        let job = unsafe { *shared.job.get() };
        if let Some(job) = job {
            // SAFETY: the leader keeps the job alive until all workers are done.
            let job = unsafe { &*job };
            let member = Worker {
                shared,
                index: index + 1,
            };
            if catch_unwind(AssertUnwindSafe(|| job(&member))).is_err() {
                shared.broken.store(true, Ordering::Release);
            }
        }
        shared.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_member_runs_a_job_and_each_piece_is_claimed_once() {
        for size in [1, 2, 3, 5] {
            let team = Team::new(size).unwrap();
            for _ in 0..50 {
                let (claimed, members) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
                team.run(|worker| {
                    members.fetch_add(1, Ordering::Relaxed);
                    loop {
                        let piece = worker.claim(1);
                        if piece >= 100 {
                            break;
                        }
                        claimed.lock().unwrap().push(piece);
                    }
                });
                let claimed = claimed.into_inner().unwrap();
                assert_eq!(members.into_inner(), size);
                assert_eq!(claimed.len(), 100);
                assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), 100);
            }
        }
    }

    #[test]
    fn runs_cover_all_pieces_once_and_get_shorter() {
        for (size, total) in [(1, 10), (2, 1), (3, 100), (4, 0)] {
            let team = Team::new(size).unwrap();
            let claimed = Mutex::new(Vec::new());
            team.run(|worker| {
                loop {
                    let run = worker.claim_run(0, total);
                    if run.is_empty() {
                        break;
                    }
                    claimed.lock().unwrap().push(run);
                }
            });
            let mut claimed = claimed.into_inner().unwrap();
            claimed.sort_by_key(|run| run.start);
            assert!(claimed.is_sorted_by(|a, b| a.end == b.start && a.len() >= b.len()));
            assert_eq!(claimed.iter().map(Range::len).sum::<usize>(), total);
        }
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_have_come() {
        let team = Team::new(4).unwrap();
        for _ in 0..50 {
            let arrivals = AtomicUsize::new(0);
            team.run(|worker| {
                for round in 1..=3 {
                    arrivals.fetch_add(1, Ordering::Relaxed);
                    worker.barrier();
                    assert!(arrivals.load(Ordering::Relaxed) >= 4 * round);
                    worker.barrier();
                }
            });
        }
    }

    #[test]
    fn a_panic_is_passed_on_and_the_team_works_on() {
        let team = Team::new(3).unwrap();
        let failed = catch_unwind(AssertUnwindSafe(|| {
            team.run(|worker| {
                assert_ne!(worker.claim(0), 1, "told to");
                worker.barrier();
            });
        }));
        assert!(failed.is_err());
        let ran = AtomicUsize::new(0);
        team.run(|worker| {
            worker.barrier();
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), 3);
    }

    #[test]
    fn idle_workers_park_and_are_woken() {
        let team = Team::new(2).unwrap();
        while !team.shared.parked[0].load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let ran = AtomicUsize::new(0);
        team.run(|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), 2);
    }

    #[test]
    fn a_panic_of_any_member_reaches_the_caller_wherever_the_others_wait() {
        for size in [1, 2, 3, 5] {
            let team = Team::new(size).unwrap();
            for culprit in 0..size {
                // Before a barrier that the others wait at, between two, after the last; and of all at once.
                for when in 0..4 {
                    let failed = catch_unwind(AssertUnwindSafe(|| {
                        team.run(|worker| {
                            for stage in 0..3 {
                                let told = worker.index() == culprit && stage == when;
                                assert!(!told && when != 3, "told to");
                                if stage < 2 {
                                    worker.barrier();
                                }
                            }
                        });
                    }));
                    assert!(failed.is_err(), "{size} members, {culprit} at {when}");
                    let (arrived, complete) = (AtomicUsize::new(0), AtomicUsize::new(0));
                    team.run(|worker| {
                        arrived.fetch_add(1, Ordering::Relaxed);
                        worker.barrier();
                        if arrived.load(Ordering::Relaxed) == size {
                            complete.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                    assert_eq!(complete.into_inner(), size, "{size} members, {culprit} at {when}");
                }
            }
        }
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let team = Team::new(3).unwrap();
        let running = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // Plain memory: nobody else's job may run between the two barriers.
                        let mut sums = [0usize; 3];
                        let shared = crate::shared::SharedMut::new(&mut sums);
                        team.run(|worker| {
                            if worker.index() == 0 {
                                assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0);
                            }
                            worker.barrier();
                            let own = worker.index()..worker.index() + 1;
                            // SAFETY: a member's element is its own.
                            unsafe { shared.slice(own)[0] += worker.index() + 1 };
                            worker.barrier();
                            if worker.index() == 0 {
                                running.fetch_sub(1, Ordering::Relaxed);
                            }
                        });
                        assert_eq!(sums, [1, 2, 3]);
                    }
                });
            }
        });
    }

    #[test]
    fn what_was_written_before_a_barrier_or_by_a_job_is_seen_after_it() {
        let team = Team::new(4).unwrap();
        let mut cells = [0usize; 4];
        for round in 1..=200 {
            let shared = crate::shared::SharedMut::new(&mut cells);
            team.run(|worker| {
                let own = worker.index();
                // SAFETY: between barriers, each element has one member that uses it.
                unsafe { shared.slice(own..own + 1)[0] = round };
                worker.barrier();
                let next = (own + 1) % 4;
                // SAFETY: as above.
                let next = unsafe { shared.slice(next..next + 1) };
                assert_eq!(next[0], round);
                next[0] += 1;
            });
            assert_eq!(cells, [round + 1; 4]);
        }
    }

    #[test]
    fn parked_workers_are_woken_each_time() {
        let team = Team::new(3).unwrap();
        for _ in 0..100 {
            while !team
                .shared
                .parked
                .iter()
                .all(|parked| parked.load(Ordering::SeqCst))
            {
                thread::yield_now();
            }
            let ran = AtomicUsize::new(0);
            team.run(|worker| {
                worker.barrier();
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.into_inner(), 3);
        }
    }

    #[test]
    fn a_team_can_be_dropped_at_any_time() {
        for round in 0..60 {
            let team = Team::new(1 + round % 5).unwrap();
            let parked = || {
                team.shared
                    .parked
                    .iter()
                    .all(|parked| parked.load(Ordering::SeqCst))
            };
            match round % 4 {
                // Its threads may not even have begun.
                0 => {}
                1 => team.run(|worker| worker.barrier()),
                2 => {
                    while !parked() {
                        thread::yield_now();
                    }
                }
                _ => {
                    let failed = catch_unwind(AssertUnwindSafe(|| team.run(|_| panic!("told to"))));
                    assert!(failed.is_err());
                }
            }
            let shared = Arc::clone(&team.shared);
            drop(team);
            // All threads have ended.
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    }

    #[test]
    fn more_members_than_cores_get_done() {
        let team = Team::new(64).unwrap();
        for _ in 0..5 {
            let claimed = AtomicUsize::new(0);
            team.run(|worker| {
                for phase in 0..3 {
                    while worker.claim(phase) < 200 {
                        claimed.fetch_add(1, Ordering::Relaxed);
                    }
                    worker.barrier();
                    assert_eq!(claimed.load(Ordering::Relaxed), 200 * (phase + 1));
                    worker.barrier();
                }
            });
        }
    }

    #[test]
    fn instructions_that_are_not_there_are_refused() {
        let absent = [Isa::Avx2, Isa::Avx512, Isa::Neon]
            .into_iter()
            .find(|isa| !Isa::available().contains(isa));
        if let Some(isa) = absent {
            let error = Team::with_isa(1, isa).unwrap_err();
            assert!(error.to_string().contains(&isa.to_string()));
        }
    }
}
