//! The step records of late, for the chart and its figures.

use std::collections::VecDeque;

use crate::engine::telemetry::StepSample;
use crate::ui::styles::Phase;

/// Steps that are kept: more than the widest chart shows.
const KEPT: usize = 512;

/// Two points of a distribution, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Half of the steps took at most this.
    pub p50: u64,
    /// 99 of 100 steps took at most this.
    pub p99: u64,
}

/// The last [`KEPT`] steps.
#[derive(Debug, Clone, Default)]
pub struct StepHistory {
    samples: VecDeque<StepSample>,
    phases: Option<[(Spread, u64); 4]>,
    total: Option<Spread>,
}

/// How long a step spent in a phase, in nanoseconds.
pub fn phase_ns(sample: &StepSample, phase: Phase) -> u64 {
    match phase {
        Phase::Build => sample.build_ns,
        Phase::Read => sample.read_ns,
        Phase::Emit => sample.emit_ns,
        Phase::Gap => sample.gap_ns,
    }
}

/// How long a step took with the gap before it, in nanoseconds.
pub fn total_ns(sample: &StepSample) -> u64 {
    Phase::ALL
        .iter()
        .fold(0, |sum, phase| sum.saturating_add(phase_ns(sample, *phase)))
}

impl StepHistory {
    /// Takes new records, oldest first.
    pub fn extend(&mut self, samples: &[StepSample]) {
        if samples.is_empty() {
            return;
        }
        self.samples.extend(samples);
        self.samples.drain(..self.samples.len().saturating_sub(KEPT));
        let sum = self
            .samples
            .iter()
            .fold(0, |sum: u64, sample| sum.saturating_add(total_ns(sample)))
            .max(1);
        self.phases = Some(Phase::ALL.map(|phase| {
            let times: Vec<u64> = self
                .samples
                .iter()
                .map(|sample| phase_ns(sample, phase))
                .collect();
            let share = times
                .iter()
                .fold(0, |sum: u64, ns| sum.saturating_add(*ns))
                .saturating_mul(100)
                / sum;
            (spread(times), share)
        }));
        self.total = Some(spread(self.samples.iter().map(total_ns).collect()));
    }

    /// The records, oldest first.
    pub fn samples(&self) -> &VecDeque<StepSample> {
        &self.samples
    }

    /// The newest record.
    pub fn last(&self) -> Option<&StepSample> {
        self.samples.back()
    }

    /// A phase's distribution and its share of all time, in percent.
    pub fn phase(&self, phase: Phase) -> Option<(Spread, u64)> {
        self.phases.map(|phases| phases[phase as usize])
    }

    /// The distribution of whole steps.
    pub fn total(&self) -> Option<Spread> {
        self.total
    }

    /// Rows per step, on average over the last 64 steps.
    pub fn mean_rows(&self) -> Option<f64> {
        let last = self.samples.iter().rev().take(64);
        let (sum, count) = last.fold((0u64, 0u32), |(sum, count), s| {
            (sum + u64::from(s.rows), count + 1)
        });
        (count > 0).then(|| sum as f64 / f64::from(count))
    }
}

/// By the nearest rank.
fn spread(mut times: Vec<u64>) -> Spread {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).clamp(1, times.len()) - 1];
    Spread {
        p50: at(50),
        p99: at(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: u64, build_ns: u64, gap_ns: u64) -> StepSample {
        StepSample {
            step,
            build_ns,
            gap_ns,
            read_ns: 10,
            emit_ns: 0,
            rows: 2,
            ..StepSample::default()
        }
    }

    #[test]
    fn the_last_steps_are_kept_and_older_ones_go() {
        let mut history = StepHistory::default();
        let samples: Vec<_> = (0..700).map(|n| step(n, 1, 1)).collect();
        samples.chunks(33).for_each(|chunk| history.extend(chunk));
        assert_eq!(history.samples().len(), KEPT);
        assert_eq!(history.last().map(|s| s.step), Some(699));
    }

    #[test]
    fn percentiles_are_by_nearest_rank_and_shares_by_time() {
        let mut history = StepHistory::default();
        let samples: Vec<_> = (1..=100).map(|n| step(n, n, 0)).collect();
        history.extend(&samples);
        let (build, share) = history.phase(Phase::Build).unwrap();
        assert_eq!(build, Spread { p50: 50, p99: 99 });
        assert_eq!(share, 5050 * 100 / (5050 + 1000));
        assert_eq!(history.total(), Some(Spread { p50: 60, p99: 109 }));
        assert_eq!(history.mean_rows(), Some(2.0));
    }

    #[test]
    fn without_steps_there_are_no_figures() {
        let history = StepHistory::default();
        assert!(
            history.total().is_none() && history.phase(Phase::Gap).is_none() && history.mean_rows().is_none()
        );
    }
}
