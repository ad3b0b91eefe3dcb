//! Tables: columns as wide as their cells where there is room, narrower ones whose cells wrap, else a line per cell.

use pulldown_cmark::Alignment;

use super::ink::{Drawn, Ink, Kind, Line, Sheet};
use super::layout::Setter;
use crate::ui::cells;
use crate::ui::wrap::wrap_line;

/// Columns of a cell at least, unless it needs fewer.
const LEAST: usize = 6;
/// Columns between two cells.
const GAP: usize = 3;

/// Sets a table of which the first row is its head.
pub(super) fn set(setter: &mut Setter<'_>, rows: &[Vec<Line>], alignments: &[Alignment]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let Some(widths) = widths(rows, columns, setter.room()) else {
        return stacked(setter, rows);
    };
    for (number, row) in rows.iter().enumerate() {
        cells_of(setter, row, &widths, alignments);
        if number == 0 {
            let line = setter.styles().pick("─", "-");
            let cross = setter.styles().pick("─┼─", "-+-");
            let marks: Vec<String> = widths.iter().map(|width| line.repeat(*width)).collect();
            let source = row.first().map_or(0, |cell| cell.source_of(usize::MAX, 0));
            setter.row_at(source, Kind::Drawn(Drawn::Head), |sheet| {
                sheet.push(&marks.join(cross), Ink::QUIET)
            });
        }
    }
}

/// How wide columns are in `room`; none where they would be too narrow to read.
fn widths(rows: &[Vec<Line>], columns: usize, room: usize) -> Option<Vec<usize>> {
    let wide = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cells::width(&cell.text))
            .max()
            .unwrap_or(0)
            .clamp(1, room.max(1))
    };
    let mut widths: Vec<usize> = (0..columns).map(wide).collect();
    let room = room.checked_sub(GAP * columns.saturating_sub(1))?;
    let least: usize = widths.iter().map(|width| LEAST.min(*width)).sum();
    if least > room {
        return None;
    }
    let mut over = widths.iter().sum::<usize>().saturating_sub(room);
    while over > 0 {
        let widest = widths.iter_mut().max_by_key(|width| **width)?;
        *widest -= 1;
        over -= 1;
    }
    Some(widths)
}

/// A row of cells, in as many rows as its highest cell has.
fn cells_of(setter: &mut Setter<'_>, row: &[Line], widths: &[usize], alignments: &[Alignment]) {
    let gap = setter.styles().pick(" │ ", " | ");
    let blank = Line::default();
    let wrapped: Vec<_> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| {
            let cell = row.get(column).unwrap_or(&blank);
            (cell, wrap_line(&cell.text, *width))
        })
        .collect();
    let height = wrapped.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0);
    for at in 0..height {
        let first = wrapped
            .iter()
            .find_map(|(cell, rows)| Some((cell, rows.get(at)?.start)));
        let source = first.map_or(0, |(cell, start)| cell.source_of(start, 0));
        setter.row_at(source, Kind::Drawn(Drawn::Cells), |sheet| {
            for (column, ((cell, rows), width)) in wrapped.iter().zip(widths).enumerate() {
                let part = rows.get(at).cloned().unwrap_or(0..0);
                let spare = width.saturating_sub(cells::width(&cell.text[part.clone()]));
                let left = match alignments.get(column) {
                    Some(Alignment::Right) => spare,
                    Some(Alignment::Center) => spare / 2,
                    _ => 0,
                };
                if column > 0 {
                    sheet.push(gap, Ink::QUIET);
                }
                fill(sheet, left);
                for (piece, ink) in cell.inks(part) {
                    sheet.push(&cell.text[piece], ink);
                }
                if column + 1 < widths.len() {
                    fill(sheet, spare - left);
                }
            }
        });
    }
}

fn fill(sheet: &mut Sheet, cells: usize) {
    sheet.push(&" ".repeat(cells), Ink::default());
}

/// A line for each cell, after its column's name.
fn stacked(setter: &mut Setter<'_>, rows: &[Vec<Line>]) {
    let Some((head, body)) = rows.split_first() else {
        return;
    };
    if body.is_empty() {
        head.iter().for_each(|cell| setter.flow(cell));
    }
    for (number, row) in body.iter().enumerate() {
        if number > 0 {
            setter.blank();
        }
        for (column, cell) in row.iter().enumerate() {
            let mut line = Line::default();
            if let Some(name) = head.get(column).filter(|name| !name.is_blank()) {
                let source = cell.source_of(0, 0);
                line.push(&format!("{}: ", name.text), Ink::STRONG, source);
            }
            line.extend(cell);
            setter.flow(&line);
        }
    }
}
