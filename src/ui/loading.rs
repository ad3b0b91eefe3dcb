//! How fast the model loads, measured from what the engine tells.

use std::time::Duration;

use crate::engine::telemetry::{EngineState, Snapshot};
use crate::ui::paint;
use crate::ui::styles::Styles;
use crate::ui::{cells, format};

/// Measures one stage of loading at a time.
#[derive(Debug, Clone, Default)]
pub struct LoadMeter {
    stage: String,
    since: Duration,
    from: u64,
    rate: Option<f64>,
}

impl LoadMeter {
    /// Takes a snapshot that came at `now`.
    pub fn take(&mut self, snapshot: &Snapshot, now: Duration) {
        let EngineState::Loading { stage, done, .. } = &snapshot.state else {
            *self = Self::default();
            return;
        };
        self.observe(stage, *done, now);
    }

    /// Notes that `done` bytes of a stage were there at `now`.
    pub fn observe(&mut self, stage: &str, done: u64, now: Duration) {
        if stage != self.stage || done < self.from {
            *self = Self {
                stage: stage.to_owned(),
                since: now,
                from: done,
                rate: None,
            };
            return;
        }
        let took = now.saturating_sub(self.since).as_secs_f64();
        if took >= 0.2 && done > self.from {
            self.rate = Some((done - self.from) as f64 / took);
        }
    }

    /// Bar, share, bytes, rate and time left, as far as they are known and fit into `width`; nothing if nothing is.
    pub fn progress(&self, done: u64, total: u64, width: usize, styles: &Styles) -> Option<String> {
        if done == 0 && total == 0 {
            return None;
        }
        let mut parts = Vec::new();
        if total > 0 {
            let gauge = paint::gauge(12, &[(done, "#", styles.good())], total, styles);
            parts.push(gauge.into_iter().map(|piece| piece.text).collect::<String>());
            parts.push(format!("{:>4}", format::percent(done.min(total), total)));
            parts.push(format!("{} of {}", format::bytes(done), format::bytes(total)));
        } else {
            parts.push(format::bytes(done));
        }
        if let Some(rate) = self.rate {
            parts.push(format!("{}/s", format::bytes(rate as u64)));
            if total > done && rate >= 1.0 {
                let left = Duration::from_secs_f64(((total - done) as f64 / rate).min(1e6).ceil());
                parts.push(format!("{} left", format::time_left(left)));
            }
        }
        let mut line = String::new();
        for part in parts {
            let gap = if line.is_empty() { "" } else { "  " };
            if cells::width(&line) + gap.len() + cells::width(&part) + 2 > width {
                break;
            }
            line.push_str(gap);
            line.push_str(&part);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::styles::ColorMode;

    fn loading(stage: &str, done: u64) -> Snapshot {
        let state = EngineState::Loading {
            stage: stage.into(),
            done,
            total: 100 << 20,
        };
        Snapshot {
            state,
            ..Snapshot::loading("")
        }
    }

    #[test]
    fn rate_and_time_left_come_from_the_stage_alone() {
        let styles = Styles::new(ColorMode::Off, true);
        let mut meter = LoadMeter::default();
        meter.take(&loading("download", 0), Duration::from_secs(1));
        assert_eq!(
            meter.progress(0, 100 << 20, 80, &styles).unwrap(),
            "[..........]    0%  0 of 100M"
        );
        meter.take(&loading("download", 20 << 20), Duration::from_secs(3));
        let line = meter.progress(20 << 20, 100 << 20, 80, &styles).unwrap();
        assert_eq!(line, "[##........]   20%  20M of 100M  10M/s  8 s left");
        meter.take(&loading("weights", 5), Duration::from_secs(4));
        assert!(!meter.progress(5, 100 << 20, 80, &styles).unwrap().contains("/s"));
    }

    #[test]
    fn parts_that_do_not_fit_are_left_out() {
        let styles = Styles::new(ColorMode::Off, true);
        let meter = LoadMeter {
            rate: Some(1e6),
            ..LoadMeter::default()
        };
        for width in 0..80 {
            assert!(meter.progress(1 << 20, 100 << 20, width, &styles).unwrap().len() <= width);
        }
        assert_eq!(meter.progress(0, 0, 80, &styles), None);
    }
}
