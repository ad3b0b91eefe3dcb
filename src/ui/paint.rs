//! Painting of cells: pieces of text in a row, boxes, gauges. Nothing here paints outside the room it is given.

use std::num::NonZeroU16;

use ratatui::buffer::{Buffer, CellDiffOption, CellWidth};
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Block, Borders, Clear, Widget};
use unicode_segmentation::UnicodeSegmentation;

use crate::ui::cells;
use crate::ui::styles::Styles;

/// A piece of text in one style.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// What it says.
    pub text: String,
    /// How it looks.
    pub style: Style,
}

/// A piece of text in a style.
pub fn piece(text: impl Into<String>, style: Style) -> Piece {
    Piece {
        text: text.into(),
        style,
    }
}

/// A piece of text as the terminal shows text.
pub fn plain(text: impl Into<String>) -> Piece {
    piece(text, Style::new())
}

/// Paints text at a column of a row, as far as the row goes; gives the column behind it.
pub fn text(buffer: &mut Buffer, row: Rect, column: u16, text: &str, style: Style) -> u16 {
    let row = row.intersection(buffer.area);
    if row.is_empty() || column >= row.width {
        return column;
    }
    let room = usize::from(row.width - column);
    if cells::is_wide() && !text.is_ascii() {
        return column + measured(buffer, Position::new(row.x + column, row.y), text, room, style);
    }
    let (x, _) = buffer.set_stringn(row.x + column, row.y, text, room, style);
    x - row.x
}

/// Paints text by our own measure, where it isn't the library's; gives the cells that it takes.
fn measured(buffer: &mut Buffer, at: Position, text: &str, room: usize, style: Style) -> u16 {
    let mut used = 0;
    for grapheme in text.graphemes(true) {
        let width = match grapheme {
            // It has no width of its own here.
            "\t" => 0,
            grapheme => cells::grapheme_width(grapheme),
        };
        if used + width > room {
            break;
        }
        for more in 0..width {
            let x = at.x + (used + more) as u16;
            let Some(cell) = buffer.cell_mut((x, at.y)) else {
                continue;
            };
            if more > 0 {
                cell.reset();
            } else {
                cell.set_symbol(grapheme).set_style(style);
                let forced = NonZeroU16::new(width as u16).filter(|_| cell.cell_width() as usize != width);
                cell.set_diff_option(forced.map_or(CellDiffOption::None, CellDiffOption::ForcedWidth));
            }
        }
        used += width;
    }
    used as u16
}

/// Paints pieces one after the other as far as they go.
pub fn pieces(buffer: &mut Buffer, row: Rect, pieces: &[Piece]) -> u16 {
    pieces.iter().fold(0, |column, piece| {
        text(buffer, row, column, &piece.text, piece.style)
    })
}

/// Paints groups of pieces with a gap between them; a group that doesn't fit whole is left out, and all behind it.
pub fn groups(buffer: &mut Buffer, row: Rect, gap: u16, groups: &[Vec<Piece>]) -> u16 {
    let mut column = 0;
    for group in groups.iter().filter(|group| !group.is_empty()) {
        let width: usize = group.iter().map(|piece| cells::width(&piece.text)).sum();
        let start = if column == 0 { 0 } else { column + gap };
        if usize::from(start) + width > usize::from(row.width) {
            break;
        }
        column = group.iter().fold(start, |column, piece| {
            text(buffer, row, column, &piece.text, piece.style)
        });
    }
    column
}

/// The `at`-th row of an area; empty below its end.
pub fn row(area: Rect, at: u16) -> Rect {
    let height = u16::from(at < area.height);
    Rect {
        y: area.y.saturating_add(at.min(area.height)),
        height,
        ..area
    }
}

/// Paints a box with a title (cut to fit) and gives the room inside.
pub fn boxed(buffer: &mut Buffer, area: Rect, title: &[Piece], styles: &Styles, focused: bool) -> Rect {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return area;
    }
    let block = Block::new()
        .borders(Borders::ALL)
        .border_set(styles.border())
        .border_style(styles.frame(focused));
    let inner = block.inner(area);
    block.render(area, buffer);
    let room = Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(2),
        height: 1,
        ..area
    };
    pieces(buffer, room, title);
    inner
}

/// Empties an area; a wide character that reaches into it goes whole.
pub fn clear(buffer: &mut Buffer, area: Rect, styles: &Styles) {
    let area = area.intersection(buffer.area);
    Clear.render(area, buffer);
    buffer.set_style(area, styles.base());
    let Some(x) = area.x.checked_sub(1) else { return };
    for y in area.top()..area.bottom() {
        if let Some(cell) = buffer
            .cell_mut((x, y))
            .filter(|cell| cells::width(cell.symbol()) > 1)
        {
            cell.set_symbol(" ").set_diff_option(CellDiffOption::None);
        }
    }
}

/// A gauge of `width` cells, its brackets included: parts of `whole`, each in its mark and style, in ascending order.
pub fn gauge(width: usize, parts: &[(u64, &str, Style)], whole: u64, styles: &Styles) -> Vec<Piece> {
    let room = width.saturating_sub(2);
    let mut out = vec![piece("[", styles.quiet())];
    let mut filled = 0;
    for (part, mark, style) in parts {
        let share = if whole == 0 {
            0.0
        } else {
            (*part as f64 / whole as f64).clamp(0.0, 1.0)
        };
        let mut end = (share * room as f64).round() as usize;
        if *part > 0 && whole > 0 {
            // What is there is seen.
            end = end.max(1).min(room);
        }
        if end > filled {
            out.push(piece(mark.repeat(end - filled), *style));
            filled = end;
        }
    }
    out.push(piece(styles.pick("·", ".").repeat(room - filled), styles.quiet()));
    out.push(piece("]", styles.quiet()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::styles::ColorMode;

    #[test]
    fn gauges_have_their_width_at_every_filling() {
        let styles = Styles::new(ColorMode::Off, true);
        for width in 2..30 {
            for used in 0..12 {
                for reserved in used..12 {
                    let parts = [(used, "#", Style::new()), (reserved, "=", Style::new())];
                    let text: String = gauge(width, &parts, 10, &styles)
                        .into_iter()
                        .map(|p| p.text)
                        .collect();
                    assert_eq!(text.len(), width, "{text}");
                    assert_eq!(text.contains('#'), used > 0 && width > 2, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_group_that_does_not_fit_is_left_out_whole() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 1));
        let row = buffer.area;
        groups(
            &mut buffer,
            row,
            2,
            &[vec![plain("abc")], vec![plain("defg")], vec![plain("h")]],
        );
        assert_eq!(buffer, Buffer::with_lines(["abc  defg "]));
    }
}
