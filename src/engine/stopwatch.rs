//! Where the engine's time goes: exactly one phase runs at any moment, so the phases add up to the wall time.

use std::time::Instant;

/// What the engine's thread is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Asleep: nothing to do.
    Idle,
    /// Between steps: commands, admission, joining, leaving.
    Gap,
    /// Of the gap: processing prompts.
    Prefill,
    /// Making the graph of a step.
    Construct,
    /// Handing it to the device.
    Dispatch,
    /// Blocked for tokens.
    Read,
    /// Delivering tokens, text included.
    Emit,
}

/// Nanoseconds spent in each phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PhaseTimes {
    /// See [`Phase::Idle`].
    pub idle: u64,
    /// See [`Phase::Gap`]; without prefill.
    pub gap: u64,
    /// See [`Phase::Prefill`].
    pub prefill: u64,
    /// See [`Phase::Construct`].
    pub construct: u64,
    /// See [`Phase::Dispatch`].
    pub dispatch: u64,
    /// See [`Phase::Read`].
    pub read: u64,
    /// See [`Phase::Emit`].
    pub emit: u64,
}

impl PhaseTimes {
    fn slot(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Idle => &mut self.idle,
            Phase::Gap => &mut self.gap,
            Phase::Prefill => &mut self.prefill,
            Phase::Construct => &mut self.construct,
            Phase::Dispatch => &mut self.dispatch,
            Phase::Read => &mut self.read,
            Phase::Emit => &mut self.emit,
        }
    }

    /// Adds another record to this one.
    pub fn add(&mut self, other: &Self) {
        self.idle += other.idle;
        self.gap += other.gap;
        self.prefill += other.prefill;
        self.construct += other.construct;
        self.dispatch += other.dispatch;
        self.read += other.read;
        self.emit += other.emit;
    }

    /// Everything but idling.
    pub fn busy(&self) -> u64 {
        self.gap + self.prefill + self.construct + self.dispatch + self.read + self.emit
    }
}

/// Attributes every nanosecond since its start to one phase.
#[derive(Debug)]
pub struct Stopwatch {
    phase: Phase,
    since: Instant,
    times: PhaseTimes,
}

impl Stopwatch {
    /// Starts in [`Phase::Gap`] at `now`.
    pub fn start(now: Instant) -> Self {
        Self {
            phase: Phase::Gap,
            since: now,
            times: PhaseTimes::default(),
        }
    }

    /// Ends the phase that ran and starts `phase`; gives back the one that ran, so that a caller can return to it.
    pub fn enter_at(&mut self, phase: Phase, now: Instant) -> Phase {
        let elapsed = now.saturating_duration_since(self.since);
        *self.times.slot(self.phase) += u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.since = now;
        std::mem::replace(&mut self.phase, phase)
    }

    /// [`Self::enter_at`] now.
    pub fn enter(&mut self, phase: Phase) -> Phase {
        self.enter_at(phase, Instant::now())
    }

    /// What was spent since the last call, up to `now`; the running phase goes on.
    pub fn take_at(&mut self, now: Instant) -> PhaseTimes {
        let phase = self.phase;
        self.enter_at(phase, now);
        std::mem::take(&mut self.times)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn phases_add_up_to_the_wall_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = Stopwatch::start(start);
        assert_eq!(watch.enter_at(Phase::Construct, at(3)), Phase::Gap);
        watch.enter_at(Phase::Dispatch, at(5));
        watch.enter_at(Phase::Read, at(9));
        let first = watch.take_at(at(10));
        assert_eq!(first.gap, 3_000_000);
        assert_eq!(first.construct, 2_000_000);
        assert_eq!(first.dispatch, 4_000_000);
        assert_eq!(first.read, 1_000_000);
        watch.enter_at(Phase::Idle, at(11));
        let mut all = watch.take_at(at(20));
        assert_eq!(all.idle, 9_000_000);
        all.add(&first);
        assert_eq!(all.busy() + all.idle, 20_000_000);
    }
}
