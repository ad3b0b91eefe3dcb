//! The rows table: a line per request, columns of fixed width; where there isn't room for all of them, the less
//! important ones go.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::Context;
use crate::engine::telemetry::{RowSnapshot, RowState};
use crate::ui::paint::{self, piece, plain};
use crate::ui::sanitize::sanitize;
use crate::ui::{cells, format};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Pane,
    State,
    Prompt,
    Cached,
    Generated,
    Rate,
    Ttft,
    Kv,
}

use Column as C;

/// Columns as they stand, with their widths.
const COLUMNS: [(Column, usize); 9] = [
    (C::Id, 4),
    (C::Pane, 10),
    (C::State, 17),
    (C::Prompt, 6),
    (C::Cached, 6),
    (C::Generated, 6),
    (C::Rate, 5),
    (C::Ttft, 5),
    (C::Kv, 11),
];
/// Those that go first when there isn't room, in this order.
const DROPPED: [Column; 7] = [
    C::Cached,
    C::Prompt,
    C::Generated,
    C::Ttft,
    C::Kv,
    C::Rate,
    C::Pane,
];
/// The most that the pane's name grows to.
const PANE_MOST: usize = 28;

impl Column {
    fn head(self) -> &'static str {
        match self {
            C::Id => "row",
            C::Pane => "pane",
            C::State => "state",
            C::Prompt => "prompt",
            C::Cached => "cached",
            C::Generated => "gen",
            C::Rate => "tok/s",
            C::Ttft => "ttft",
            C::Kv => "KV use/rsv",
        }
    }

    fn left(self) -> bool {
        matches!(self, C::Pane | C::State)
    }
}

/// The columns that a width has room for; the pane's takes what is left over.
fn columns(width: usize) -> Vec<(Column, usize)> {
    let mut columns = COLUMNS.to_vec();
    let taken = |columns: &[(Column, usize)]| {
        columns
            .iter()
            .map(|(_, w)| w + 1)
            .sum::<usize>()
            .saturating_sub(1)
    };
    for dropped in DROPPED {
        if taken(&columns) <= width {
            break;
        }
        columns.retain(|(column, _)| *column != dropped);
    }
    let left = width.saturating_sub(taken(&columns));
    if let Some((_, pane)) = columns.iter_mut().find(|(column, _)| *column == C::Pane) {
        *pane = (*pane + left).min(PANE_MOST);
    }
    columns
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, cx: &Context) {
    if area.height < 3 {
        return;
    }
    let styles = cx.styles;
    let rows = &cx.snapshot.rows;
    let running = rows
        .iter()
        .filter(|row| matches!(row.state, RowState::Decode | RowState::Prefill { .. }))
        .count();
    let title = [
        plain(format!(" rows {running} ")),
        piece(format!("queued {} ", cx.snapshot.queued), styles.quiet()),
    ];
    let inner = paint::boxed(buffer, area, &title, styles, false);
    let columns = columns(usize::from(inner.width));
    let cut = styles.cut();
    let line = |cell: &dyn Fn(Column) -> String| {
        let cells = columns.iter().map(|(column, width)| {
            let text = cell(*column);
            if column.left() {
                cells::pad(&text, *width, cut)
            } else {
                cells::pad_left(&text, *width, cut)
            }
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    paint::text(
        buffer,
        paint::row(inner, 0),
        0,
        &line(&|column| column.head().to_owned()),
        styles.quiet(),
    );
    if rows.is_empty() {
        paint::text(
            buffer,
            paint::row(inner, 1),
            0,
            "   - no requests",
            styles.quiet(),
        );
        return;
    }
    let room = usize::from(inner.height).saturating_sub(1);
    // With more rows than room, those that ended go first, then the newest; how many is told in a line, where one is left beside it.
    let room = if rows.len() > room && room > 1 {
        room.saturating_sub(1)
    } else {
        room
    };
    let live: Vec<&RowSnapshot> = rows.iter().filter(|row| row.state != RowState::Done).collect();
    let done = rows
        .iter()
        .filter(|row| row.state == RowState::Done)
        .rev()
        .take(room.saturating_sub(live.len()));
    let mut shown: Vec<&RowSnapshot> = done.chain(live.iter().copied()).collect();
    shown.sort_by_key(|row| row.id);
    shown.truncate(room);
    let hidden = rows.len() - shown.len();
    for (at, row) in shown.iter().enumerate() {
        let text = line(&|column| cell(column, row, cx));
        let style = match row.state {
            RowState::Done => styles.quiet(),
            RowState::Queued { .. } => styles.warning(),
            _ => Style::new(),
        };
        paint::text(buffer, paint::row(inner, 1 + at as u16), 0, &text, style);
    }
    if hidden > 0 && shown.len() + 1 < usize::from(inner.height) {
        let text = format!("   and {hidden} more");
        paint::text(
            buffer,
            paint::row(inner, 1 + shown.len() as u16),
            0,
            &text,
            styles.quiet(),
        );
    }
}

/// A row's state in at most 17 cells.
fn state_of(row: &RowSnapshot) -> String {
    match row.state {
        RowState::Queued { for_kv: true } => format!("queued {} KV", format::seconds(row.queued_ms)),
        RowState::Queued { for_kv: false } => format!("queued {}", format::seconds(row.queued_ms)),
        RowState::Prefill { done, total } => {
            format!(
                "prefill {}/{}",
                format::count(done as u64),
                format::count(total as u64)
            )
        }
        RowState::Decode => "decode".into(),
        RowState::Done => "done".into(),
    }
}

fn cell(column: Column, row: &RowSnapshot, cx: &Context) -> String {
    let waits = matches!(row.state, RowState::Queued { .. });
    let known = |count: usize| {
        if waits {
            format::NONE.into()
        } else {
            format::count(count as u64)
        }
    };
    match column {
        C::Id => row.id.to_string(),
        C::Pane => pane_of(row, cx),
        C::State => state_of(row),
        C::Prompt if row.prompt == 0 => format::NONE.into(),
        C::Prompt => format::count(row.prompt as u64),
        C::Cached => known(row.cached),
        C::Generated => known(row.generated),
        C::Rate => format::rate(row.tokens_per_s),
        C::Ttft => row.ttft_ms.map_or(format::NONE.into(), format::seconds),
        C::Kv if waits => format!("need {}", format::bytes(row.kv_reserved)),
        C::Kv => format!(
            "{}/{}",
            format::bytes(row.kv_used),
            format::bytes(row.kv_reserved)
        ),
    }
}

/// The pane that a row belongs to, by its session.
fn pane_of(row: &RowSnapshot, cx: &Context) -> String {
    let Some(session) = &row.session else {
        return format::NONE.into();
    };
    let pane = cx
        .state
        .panes()
        .iter()
        .find(|(_, pane)| pane.session.to_string() == *session);
    match pane {
        Some((id, pane)) => format!("{id} {}", sanitize(&pane.title)),
        None => "closed".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_never_take_more_than_the_width_and_state_stays() {
        for width in 22..200 {
            let columns = columns(width);
            let taken: usize = columns.iter().map(|(_, w)| w + 1).sum::<usize>() - 1;
            assert!(taken <= width, "{taken} of {width}");
            assert!(columns.iter().any(|(column, _)| *column == C::State));
        }
        assert_eq!(columns(78).len(), 9, "an 80 column screen has all of them");
    }
}
