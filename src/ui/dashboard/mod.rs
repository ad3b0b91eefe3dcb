//! The engine's screen: full, at the side, or as a strip under the panes. It draws from a snapshot and step records.

mod chart;
pub mod history;
mod memory;
mod rows;
mod strip;

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

pub(super) use strip::strip;

use crate::chat::State;
use crate::engine::telemetry::{EngineInfo, EngineState, Snapshot};
use crate::ui::dashboard::history::StepHistory;
use crate::ui::format;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::sanitize::sanitize;
use crate::ui::styles::Styles;

/// What the dashboard shows: the live figures, or those of the moment at which it was frozen.
#[derive(Debug, Clone)]
pub struct Figures {
    /// The engine's state.
    pub snapshot: Arc<Snapshot>,
    /// The steps.
    pub history: StepHistory,
}

/// What the dashboard's parts draw from.
pub(super) struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub history: &'a StepHistory,
    /// For the names of panes.
    pub state: &'a State,
    pub styles: &'a Styles,
    pub frozen: bool,
}

/// Draws the dashboard on the full screen.
pub(super) fn full(buffer: &mut Buffer, area: Rect, cx: &Context) {
    title(buffer, paint::row(area, 0), cx);
    parts(
        buffer,
        Rect {
            y: area.y + 1,
            height: area.height.saturating_sub(1),
            ..area
        },
        cx,
    );
}

/// Draws the dashboard beside the panes.
pub(super) fn side(buffer: &mut Buffer, area: Rect, cx: &Context) {
    parts(buffer, area, cx);
}

/// Chart, rows, memory over each other: the rows get at least three lines; what doesn't fit whole is left out,
/// memory last.
fn parts(buffer: &mut Buffer, area: Rect, cx: &Context) {
    const MEMORY: u16 = 6;
    let wanted = u16::try_from(cx.snapshot.rows.len())
        .unwrap_or(u16::MAX)
        .saturating_add(3);
    let memory = if area.height >= MEMORY + 3 { MEMORY } else { 0 };
    let rest = area.height - memory;
    let rows = if rest >= 12 {
        wanted.clamp(5, rest / 2)
    } else {
        rest.min(5).max(rest.saturating_sub(6).min(4))
    };
    let chart = rest - rows;
    let (chart, rows) = if chart < 4 { (0, rest) } else { (chart, rows) };
    let mut y = area.y;
    let mut part = |height: u16| {
        let rect = Rect { y, height, ..area };
        y += height;
        rect
    };
    chart::draw(buffer, part(chart), cx);
    rows::draw(buffer, part(rows), cx);
    memory::draw(buffer, part(memory), cx);
}

fn title(buffer: &mut Buffer, row: Rect, cx: &Context) {
    let styles = cx.styles;
    let state = match &cx.snapshot.state {
        _ if cx.frozen => piece("view frozen", styles.warning()),
        EngineState::Loading { .. } => piece("loading", styles.warning()),
        EngineState::Ready => piece("live", styles.good()),
        EngineState::Failed(_) => piece("failed", styles.error()),
        EngineState::Closed => piece("closed", styles.error()),
    };
    let total = cx.history.total();
    let ms = |ns: Option<u64>| ns.map_or(format::NONE.into(), |ns| format!("{} ms", format::millis(ns)));
    let steps = if cx.snapshot.steps == 0 {
        format::NONE.into()
    } else {
        cx.snapshot.steps.to_string()
    };
    let groups = [
        vec![piece(" ENGINE ", styles.strong()), state],
        vec![dropped(cx)],
        vec![plain(format!("step {steps}"))],
        vec![plain(format!("p50 {}", ms(total.map(|t| t.p50))))],
        vec![plain(format!("p99 {}", ms(total.map(|t| t.p99))))],
        model_and_kv(&cx.snapshot.info),
        vec![piece(
            sanitize(&cx.snapshot.info.device).into_owned(),
            styles.quiet(),
        )],
    ];
    paint::groups(buffer, row, 3, &groups);
}

/// The model, and how it holds keys and values where they are quantized.
fn model_and_kv(info: &EngineInfo) -> Vec<Piece> {
    let mut all = vec![plain(sanitize(&info.model).into_owned())];
    all.extend(info.kv_quantized.iter().map(|kv| plain(format!(" · KV {kv}"))));
    all
}

/// How many records were lost, which is itself shown.
fn dropped(cx: &Context) -> Piece {
    let count = cx.snapshot.dropped_samples;
    let style = if count > 0 {
        cx.styles.warning()
    } else {
        cx.styles.quiet()
    };
    piece(format!("dropped {count}"), style)
}
