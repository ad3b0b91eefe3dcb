//! The steps of late as stacked columns, one a step, the newest at the right; beside them each phase's figures.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Context;
use crate::engine::telemetry::StepSample;
use crate::ui::dashboard::history::{phase_ns, total_ns};
use crate::ui::paint::{self, piece, plain};
use crate::ui::styles::Phase;
use crate::ui::{cells, format};

/// Columns of the legend.
const LEGEND: u16 = 29;
/// Columns of the axis.
const AXIS: u16 = 7;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, cx: &Context) {
    if area.height < 3 {
        return;
    }
    let styles = cx.styles;
    let mut title = vec![
        plain(" step phases "),
        piece("1 column = 1 step, newest right ", styles.quiet()),
    ];
    if cx.snapshot.dropped_samples > 0 {
        title.push(super::dropped(cx));
        title.push(plain(" "));
    }
    let inner = paint::boxed(buffer, area, &title, styles, false);
    let legend = LEGEND.min(inner.width);
    let plot = Rect {
        width: inner.width - legend,
        ..inner
    };
    draw_legend(
        buffer,
        Rect {
            x: plot.right(),
            width: legend,
            ..inner
        },
        cx,
    );
    if plot.width > AXIS + 4 {
        draw_plot(buffer, plot, cx);
    }
}

fn draw_legend(buffer: &mut Buffer, area: Rect, cx: &Context) {
    let styles = cx.styles;
    for (at, phase) in Phase::ALL.into_iter().enumerate() {
        let (p50, p99, share) = match cx.history.phase(phase) {
            Some((spread, share)) => (
                format::millis(spread.p50),
                format::millis(spread.p99),
                format!("{share}%"),
            ),
            None => (format::NONE.into(), format::NONE.into(), format::NONE.into()),
        };
        let line = [
            plain(" "),
            piece(styles.phase_glyph(phase), styles.phase(phase)),
            plain(format!(" {:<5} {p50:>5}", phase.name())),
            piece(" p99", styles.quiet()),
            plain(format!(" {p99:>5}")),
            plain(format!("{share:>4}")),
        ];
        paint::pieces(buffer, paint::row(area, at as u16), &line);
    }
    let rows = cx
        .history
        .mean_rows()
        .map_or(format::NONE.into(), |rows| format!("{rows:.1}"));
    let decode = format::rate(cx.snapshot.decode_tokens_per_s);
    let prefill = format::rate(cx.snapshot.prefill_tokens_per_s);
    let lines = [
        format!(" rows {rows}  decode {decode} t/s"),
        format!(" prefill {prefill} t/s"),
    ];
    for (at, line) in lines.iter().enumerate() {
        paint::text(buffer, paint::row(area, 4 + at as u16), 0, line, styles.strong());
    }
}

fn draw_plot(buffer: &mut Buffer, area: Rect, cx: &Context) {
    let styles = cx.styles;
    let columns = usize::from(area.width - AXIS);
    let samples = cx.history.samples();
    let shown = || samples.iter().skip(samples.len().saturating_sub(columns));
    let scale = scale(shown());
    let label = |ns: u64| cells::pad_left(&format!("{}ms", format::millis(ns)), usize::from(AXIS) - 1, "");
    let bar = styles.pick("│", "|");
    for y in 0..area.height {
        let row = paint::row(area, y);
        let text = match y {
            _ if samples.is_empty() => " ".repeat(usize::from(AXIS) - 1),
            0 => label(scale),
            y if y + 1 == area.height => label(0),
            y if area.height >= 7 && y == area.height / 2 => label(scale / 2),
            _ => " ".repeat(usize::from(AXIS) - 1),
        };
        paint::pieces(
            buffer,
            row,
            &[piece(text, styles.quiet()), piece(bar, styles.quiet())],
        );
    }
    if samples.is_empty() {
        let row = paint::row(area, area.height / 2);
        paint::text(buffer, row, AXIS + 2, "no steps yet", styles.quiet());
        return;
    }
    let count = shown().count();
    for (at, sample) in shown().enumerate() {
        let column = AXIS + (columns - count + at) as u16;
        for y in 0..area.height {
            let row = paint::row(area, area.height - 1 - y);
            if y + 1 == area.height && total_ns(sample) > scale {
                paint::text(buffer, row, column, styles.pick("↑", "^"), styles.warning());
            } else if let Some(phase) = phase_at(sample, scale, y, area.height) {
                paint::text(
                    buffer,
                    row,
                    column,
                    styles.phase_glyph(phase),
                    styles.phase(phase),
                );
            }
        }
    }
}

/// What fills the cell `y` (from the bottom) of a column of `height` cells: the phase at the cell's middle. A step
/// is never invisible: it fills the lowest cell.
fn phase_at(sample: &StepSample, scale: u64, y: u16, height: u16) -> Option<Phase> {
    let middle = (f64::from(y) + 0.5) / f64::from(height) * scale as f64;
    let mut top = 0.0;
    for phase in Phase::ALL {
        top += phase_ns(sample, phase) as f64;
        if middle < top {
            return Some(phase);
        }
    }
    let longest = Phase::ALL
        .into_iter()
        .max_by_key(|phase| phase_ns(sample, *phase));
    if y == 0 && total_ns(sample) > 0 {
        longest
    } else {
        None
    }
}

/// The time at the top: somewhat over the usual step, in steps of 1, 2, 5, so that one slow step neither flattens the
/// others nor makes the chart jump. Slower steps are marked at the top.
fn scale<'a>(samples: impl Iterator<Item = &'a StepSample>) -> u64 {
    let mut totals: Vec<u64> = samples.map(total_ns).collect();
    totals.sort_unstable();
    let usual = totals
        .get(totals.len() * 9 / 10)
        .or(totals.last())
        .copied()
        .unwrap_or(0);
    let wanted = usual.saturating_add(usual / 5).max(1000);
    let mut unit = 1u64;
    loop {
        for step in [1, 2, 5] {
            let top = unit.saturating_mul(step);
            if top >= wanted {
                return top;
            }
        }
        unit = unit.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(build_ns: u64, read_ns: u64, emit_ns: u64, gap_ns: u64) -> StepSample {
        StepSample {
            build_ns,
            read_ns,
            emit_ns,
            gap_ns,
            ..StepSample::default()
        }
    }

    #[test]
    fn a_column_stacks_the_phases_from_the_bottom() {
        let sample = step(2_000, 5_000, 1_000, 2_000);
        let cells: Vec<_> = (0..12).map(|y| phase_at(&sample, 12_000, y, 12)).collect();
        let mut expected = vec![Some(Phase::Build); 2];
        expected.extend([Some(Phase::Read); 5]);
        expected.push(Some(Phase::Emit));
        expected.extend([Some(Phase::Gap); 2]);
        expected.extend([None; 2]);
        assert_eq!(cells, expected);
    }

    #[test]
    fn the_shortest_step_is_seen() {
        assert_eq!(phase_at(&step(1, 3, 1, 1), 50_000_000, 0, 5), Some(Phase::Read));
        assert_eq!(phase_at(&step(0, 0, 0, 0), 50_000_000, 0, 5), None);
    }

    #[test]
    fn one_slow_step_does_not_flatten_the_others() {
        let mut samples = vec![step(2_000_000, 12_000_000, 500_000, 500_000); 40];
        samples.push(step(2_000_000, 12_000_000, 500_000, 900_000_000));
        assert_eq!(scale(samples.iter()), 20_000_000);
        assert_eq!(scale([].iter()), 1000);
        scale([step(u64::MAX, u64::MAX, 0, 0)].iter());
    }
}
