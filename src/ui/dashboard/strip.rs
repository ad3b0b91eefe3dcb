//! The engine in one or two rows under the panes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::Context;
use crate::ui::dashboard::history::{phase_ns, total_ns};
use crate::ui::format;
use crate::ui::paint::{self, piece, plain};
use crate::ui::styles::Phase;

/// Cells of a whole step's bar in the first row.
const BAR: usize = 24;
/// Heights of a cell, from the lowest.
const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The same in ASCII, by halves.
const HALVES: [&str; 3] = [".", ":", "|"];

/// Draws the strip: the median step in its phases, and below it the steps of late, one a column.
pub(in crate::ui) fn strip(buffer: &mut Buffer, area: Rect, cx: &Context) {
    let styles = cx.styles;
    let total = cx.history.total();
    let ms = |ns: Option<u64>| ns.map_or(format::NONE.into(), format::millis);
    let mut groups = vec![vec![plain(format!(" step {:>5}ms", ms(total.map(|t| t.p50))))]];
    let bar = if area.width >= 100 { BAR } else { BAR / 2 };
    for phase in Phase::ALL {
        let figures = cx.history.phase(phase);
        let share = figures.map_or(0, |(_, share)| share as usize);
        let mark = styles.phase_glyph(phase).repeat((share * bar).div_ceil(100));
        let style = styles.phase(phase);
        let name = format!(
            "{} {:>4} ",
            phase.name(),
            ms(figures.map(|(spread, _)| spread.p50))
        );
        groups.push(vec![plain(name), piece(mark, style)]);
    }
    if cx.snapshot.dropped_samples > 0 {
        groups.push(vec![super::dropped(cx)]);
    }
    paint::groups(buffer, paint::row(area, 0), 1, &groups);
    if area.height > 1 {
        steps(buffer, paint::row(area, 1), cx);
    }
}

fn steps(buffer: &mut Buffer, row: Rect, cx: &Context) {
    let styles = cx.styles;
    let columns = usize::from(row.width.saturating_sub(2));
    let samples = cx.history.samples();
    if samples.is_empty() {
        paint::text(buffer, row, 1, "no steps yet", styles.quiet());
        return;
    }
    let shown = samples.iter().skip(samples.len().saturating_sub(columns));
    let usual = cx.history.total().map_or(1, |total| total.p50.max(1));
    let count = shown.len();
    for (at, sample) in shown.enumerate() {
        // The median step stands at half height, one twice as slow fills the cell.
        let height = total_ns(sample) as f64 / usual as f64 / 2.0;
        let glyphs: &[&str] = if styles.is_ascii() { &HALVES } else { &EIGHTHS };
        let level = ((height * glyphs.len() as f64).round() as usize).clamp(1, glyphs.len());
        let gap = phase_ns(sample, Phase::Gap) > usual;
        let style = if gap {
            styles.phase(Phase::Gap)
        } else {
            styles.phase(Phase::Read)
        };
        let column = 1 + (columns - count + at) as u16;
        paint::text(buffer, row, column, glyphs[level - 1], style);
    }
}
