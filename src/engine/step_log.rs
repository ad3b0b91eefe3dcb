//! Step records on their way to the screen: a ring that drops the oldest, and percentiles over the last of them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use super::telemetry::StepSample;

/// A ring of step records. The engine never waits for a reader: when it is full the oldest goes, and is counted.
#[derive(Debug)]
pub struct StepLog {
    ring: ArrayQueue<StepSample>,
    dropped: AtomicU64,
}

impl StepLog {
    /// A ring for `capacity` records (0 is taken as 1).
    pub fn new(capacity: usize) -> Self {
        Self {
            ring: ArrayQueue::new(capacity.max(1)),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a record; takes no lock.
    pub fn push(&self, sample: StepSample) {
        if self.ring.force_push(sample).is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Moves the records to the end of `out`, oldest first; at most as many as the ring holds, however fast the
    /// engine adds more.
    pub fn drain(&self, out: &mut Vec<StepSample>) {
        for _ in 0..self.ring.capacity() {
            let Some(sample) = self.ring.pop() else { return };
            out.push(sample);
        }
    }

    /// Records that were dropped because nobody took them.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A part of a step's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// [`StepSample::build_ns`].
    Build,
    /// [`StepSample::read_ns`].
    Read,
    /// [`StepSample::emit_ns`].
    Emit,
    /// [`StepSample::gap_ns`].
    Gap,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 4] = [Self::Gap, Self::Build, Self::Read, Self::Emit];

    /// The phase's time in a step, in nanoseconds.
    pub fn of(self, sample: &StepSample) -> u64 {
        match self {
            Self::Build => sample.build_ns,
            Self::Read => sample.read_ns,
            Self::Emit => sample.emit_ns,
            Self::Gap => sample.gap_ns,
        }
    }
}

/// The middle and the edge of a phase's times, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// Half of the steps took no longer.
    pub p50: u64,
    /// 99 of 100 steps took no longer.
    pub p99: u64,
}

/// Percentiles of each phase over the last steps, by nearest rank: always a time that some step took.
#[derive(Debug, Clone)]
pub struct Percentiles {
    window: usize,
    samples: VecDeque<StepSample>,
}

impl Percentiles {
    /// Over the last `window` steps (0 is taken as 1).
    pub fn new(window: usize) -> Self {
        Self {
            window: window.max(1),
            samples: VecDeque::new(),
        }
    }

    /// Adds a step; the oldest beyond the window is forgotten.
    pub fn record(&mut self, sample: StepSample) {
        if self.samples.len() == self.window {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// A phase's percentiles; none without a step.
    pub fn phase(&self, phase: Phase) -> Option<Quantiles> {
        let mut times: Vec<u64> = self.samples.iter().map(|sample| phase.of(sample)).collect();
        times.sort_unstable();
        // Nearest rank: the smallest time that at least q of 100 steps did not exceed.
        let rank = |q: usize| {
            times
                .get((q * times.len()).div_ceil(100).saturating_sub(1))
                .copied()
        };
        Some(Quantiles {
            p50: rank(50)?,
            p99: rank(99)?,
        })
    }

    /// Steps in the window.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there was no step yet.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64) -> StepSample {
        StepSample {
            step,
            build_ns: step,
            read_ns: 2 * step,
            emit_ns: 3,
            gap_ns: 1000u64.saturating_sub(step),
            ..Default::default()
        }
    }

    fn drained(log: &StepLog) -> Vec<u64> {
        let mut out = Vec::new();
        log.drain(&mut out);
        out.iter().map(|sample| sample.step).collect()
    }

    #[test]
    fn a_full_ring_drops_the_oldest_and_counts_it() {
        let log = StepLog::new(3);
        (0..5).for_each(|n| log.push(step(n)));
        assert_eq!(log.dropped(), 2);
        assert_eq!(drained(&log), [2, 3, 4]);
        assert_eq!(drained(&log), [0u64; 0]);
        log.push(step(9));
        assert_eq!(drained(&log), [9]);
        assert_eq!(log.dropped(), 2);
    }

    #[test]
    fn draining_appends() {
        let log = StepLog::new(3);
        log.push(step(7));
        let mut out = vec![step(1)];
        log.drain(&mut out);
        assert_eq!(out.iter().map(|sample| sample.step).collect::<Vec<_>>(), [1, 7]);
    }

    #[test]
    fn a_capacity_of_nothing_keeps_one() {
        let log = StepLog::new(0);
        log.push(step(1));
        log.push(step(2));
        assert_eq!((drained(&log), log.dropped()), (vec![2], 1));
    }

    #[test]
    fn every_record_is_taken_or_counted_while_both_sides_run() {
        const STEPS: u64 = 20_000;
        let log = StepLog::new(16);
        let mut taken = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..STEPS).for_each(|n| log.push(step(n))));
            while !writer.is_finished() {
                log.drain(&mut taken);
            }
        });
        log.drain(&mut taken);
        assert_eq!(taken.len() as u64 + log.dropped(), STEPS);
        assert!(taken.is_sorted_by(|a, b| a.step < b.step), "in order, none twice");
    }

    #[test]
    fn without_a_step_there_is_no_percentile() {
        assert_eq!(Percentiles::new(10).phase(Phase::Build), None);
    }

    #[test]
    fn percentiles_are_times_that_some_step_took() {
        let mut percentiles = Percentiles::new(1000);
        percentiles.record(step(7));
        assert_eq!(
            percentiles.phase(Phase::Build),
            Some(Quantiles { p50: 7, p99: 7 })
        );
        let mut percentiles = Percentiles::new(1000);
        (1..=100).for_each(|n| percentiles.record(step(n)));
        assert_eq!(
            percentiles.phase(Phase::Build),
            Some(Quantiles { p50: 50, p99: 99 })
        );
        assert_eq!(
            percentiles.phase(Phase::Read),
            Some(Quantiles { p50: 100, p99: 198 })
        );
        assert_eq!(percentiles.phase(Phase::Emit), Some(Quantiles { p50: 3, p99: 3 }));
        assert_eq!(
            percentiles.phase(Phase::Gap),
            Some(Quantiles { p50: 949, p99: 998 })
        );
    }

    #[test]
    fn steps_beyond_the_window_are_forgotten() {
        let mut percentiles = Percentiles::new(2);
        [500, 1, 2]
            .map(step)
            .into_iter()
            .for_each(|sample| percentiles.record(sample));
        assert_eq!(percentiles.len(), 2);
        assert_eq!(
            percentiles.phase(Phase::Build),
            Some(Quantiles { p50: 1, p99: 2 })
        );
    }
}
