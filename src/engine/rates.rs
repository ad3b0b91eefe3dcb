//! Tokens per second. Time is the caller's: a duration since any fixed moment, never going back.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back rates look.
pub const WINDOW: Duration = Duration::from_secs(1);

/// Tokens per second of wall time over the last [`WINDOW`]: for one row, or for all rows together.
///
/// An event's tokens are taken to have come since the event before it, so the rate counts from the last event at or
/// before the window's start; at the first event, or after [`RateMeter::begin`], from there.
#[derive(Debug, Clone, Default)]
pub struct RateMeter {
    /// (when, tokens), oldest first; the first is the mark to count from.
    events: VecDeque<(Duration, u64)>,
}

impl RateMeter {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Work starts now, after idling or for the first time: what was before is forgotten.
    pub fn begin(&mut self, now: Duration) {
        self.events.clear();
        self.events.push_back((now, 0));
    }

    /// Counts tokens that are there now. Without a [`RateMeter::begin`] the first call only sets the mark.
    pub fn record(&mut self, now: Duration, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.events.push_back((now, tokens));
        self.forget(now);
    }

    /// The rate; none if no tokens came within the last second, or none but the first mark.
    pub fn per_second(&self, now: Duration) -> Option<f64> {
        let start = now.saturating_sub(WINDOW);
        // The mark: the last event at or before the window's start, or the first one there is.
        let mark = self
            .events
            .iter()
            .rposition(|&(at, _)| at <= start && now >= WINDOW)
            .unwrap_or(0);
        let &(since, _) = self.events.get(mark)?;
        let tokens: u64 = self.events.iter().skip(mark + 1).map(|event| event.1).sum();
        let elapsed = now.checked_sub(since)?.as_secs_f64();
        (tokens > 0 && elapsed > 0.0).then(|| tokens as f64 / elapsed)
    }

    fn forget(&mut self, now: Duration) {
        let start = now.saturating_sub(WINDOW);
        while self.events.get(1).is_some_and(|&(at, _)| at <= start) {
            self.events.pop_front();
        }
    }
}

/// Tokens per second of decode steps: over the last [`WINDOW`] of them while there is work, and where there is none, as it
/// was last.
#[derive(Debug, Clone, Default)]
pub struct DecodeRate {
    /// None until the first step after a rest.
    meter: Option<RateMeter>,
    last: Option<f64>,
}

impl DecodeRate {
    /// Counts a step that ended now and took so long.
    pub fn record(&mut self, now: Duration, tokens: u64, took: Duration) {
        let meter = self.meter.get_or_insert_with(|| {
            let mut meter = RateMeter::new();
            meter.begin(now.saturating_sub(took));
            meter
        });
        meter.record(now, tokens);
    }

    /// Nothing is left to do now: what passes from here on doesn't count.
    pub fn rest(&mut self, now: Duration) {
        self.last = self.per_second(now);
        self.meter = None;
    }

    /// The rate; none before the first token.
    pub fn per_second(&self, now: Duration) -> Option<f64> {
        let meter = self.meter.as_ref();
        meter.and_then(|meter| meter.per_second(now)).or(self.last)
    }
}

/// Tokens per second of working time, over the last [`WINDOW`] in which there was work: for prefill, which shares its
/// thread with decode steps. It stands still while there is no work.
#[derive(Debug, Clone, Default)]
pub struct WorkRate {
    /// (when it ended, tokens, time it took), oldest first.
    pieces: VecDeque<(Duration, u64, Duration)>,
}

impl WorkRate {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a piece of work that ended now.
    pub fn record(&mut self, now: Duration, tokens: u64, took: Duration) {
        self.pieces.push_back((now, tokens, took));
        let start = now.saturating_sub(WINDOW);
        while self.pieces.len() > 1
            && self
                .pieces
                .front()
                .is_some_and(|piece| now >= WINDOW && piece.0 <= start)
        {
            self.pieces.pop_front();
        }
    }

    /// The rate; none if nothing was done yet.
    pub fn per_second(&self) -> Option<f64> {
        let tokens: u64 = self.pieces.iter().map(|piece| piece.1).sum();
        let took: Duration = self.pieces.iter().map(|piece| piece.2).sum();
        (tokens > 0 && !took.is_zero()).then(|| tokens as f64 / took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn near(rate: Option<f64>, expected: f64) {
        let rate = rate.expect("a rate");
        assert!((rate - expected).abs() < 1e-9, "{rate} is not {expected}");
    }

    #[test]
    fn without_tokens_there_is_no_rate() {
        let mut meter = RateMeter::new();
        assert_eq!(meter.per_second(ms(500)), None);
        meter.begin(ms(0));
        assert_eq!(meter.per_second(ms(500)), None);
        meter.record(ms(600), 0);
        assert_eq!(meter.per_second(ms(600)), None);
    }

    #[test]
    fn the_first_token_alone_has_no_rate_but_sets_the_mark() {
        let mut meter = RateMeter::new();
        meter.record(ms(100), 1);
        assert_eq!(meter.per_second(ms(100)), None);
        assert_eq!(meter.per_second(ms(150)), None);
        meter.record(ms(200), 1);
        near(meter.per_second(ms(200)), 10.0);
    }

    #[test]
    fn a_steady_row_shows_its_rate_from_the_second_token_on() {
        let mut meter = RateMeter::new();
        meter.begin(ms(0));
        for n in 1..=200 {
            meter.record(ms(20 * n), 1);
            near(meter.per_second(ms(20 * n)), 50.0);
        }
    }

    #[test]
    fn a_row_slower_than_the_window_has_its_true_rate_while_fresh() {
        let mut meter = RateMeter::new();
        for at in [0, 2000, 4000] {
            meter.record(ms(at), 1);
        }
        near(meter.per_second(ms(4000)), 0.5);
        assert_eq!(meter.per_second(ms(5000)), None);
    }

    #[test]
    fn a_stall_shows_and_a_second_of_it_ends_the_rate() {
        let mut meter = RateMeter::new();
        (0..=10).for_each(|n| meter.record(ms(100 * n), 1));
        near(meter.per_second(ms(1000)), 10.0);
        assert!(meter.per_second(ms(1500)).unwrap() < 7.0);
        assert_eq!(meter.per_second(ms(2000)), None);
    }

    #[test]
    fn idling_does_not_count_after_begin() {
        let mut meter = RateMeter::new();
        (0..=10).for_each(|n| meter.record(ms(100 * n), 1));
        meter.begin(ms(60_000));
        assert_eq!(meter.per_second(ms(60_000)), None);
        meter.record(ms(60_100), 2);
        near(meter.per_second(ms(60_100)), 20.0);
    }

    #[test]
    fn the_last_rate_stays_while_nothing_is_done_and_rest_does_not_count() {
        let mut rate = DecodeRate::default();
        assert_eq!(rate.per_second(ms(10)), None);
        rate.record(ms(1000), 2, ms(20));
        near(rate.per_second(ms(1000)), 100.0);
        rate.rest(ms(1000));
        rate.rest(ms(5000));
        near(rate.per_second(ms(60_000)), 100.0);
        rate.record(ms(61_000), 1, ms(20));
        near(rate.per_second(ms(61_000)), 50.0);
    }

    #[test]
    fn memory_is_bounded_by_the_window() {
        let mut meter = RateMeter::new();
        (0..10_000).for_each(|n| meter.record(ms(10 * n), 1));
        assert!(meter.events.len() <= 102, "{}", meter.events.len());
    }

    #[test]
    fn prefill_counts_its_own_time_alone_and_stands_still_after() {
        let mut rate = WorkRate::new();
        assert_eq!(rate.per_second(), None);
        rate.record(ms(100), 2048, ms(50));
        rate.record(ms(400), 1024, ms(25));
        near(rate.per_second(), 40_960.0);
        rate.record(ms(9000), 10, ms(10));
        near(rate.per_second(), 1000.0);
        rate.record(ms(9001), 0, ms(0));
        near(rate.per_second(), 1000.0);
    }
}
