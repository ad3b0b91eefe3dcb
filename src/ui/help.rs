//! The keys, drawn from their table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::keymap::{BINDINGS, Group};
use super::paint::{self, Piece, piece, plain};
use super::styles::Styles;

/// Columns of the keys' names.
const NAMES: usize = 11;

/// The lines of the help.
fn lines(styles: &Styles) -> Vec<Vec<Piece>> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(vec![piece(group.title(), styles.strong())]);
        lines.extend(
            BINDINGS
                .iter()
                .filter(|binding| binding.group == group)
                .map(|binding| {
                    vec![
                        piece(format!("{:<NAMES$}", binding.name), styles.key()),
                        plain(binding.help),
                    ]
                }),
        );
    }
    lines
}

/// Draws the help over the screen, from its line `top` on; gives the greatest `top` that makes sense.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, top: usize, styles: &Styles) -> usize {
    let lines = lines(styles);
    let width = area.width.min(76);
    let height = area.height.min(lines.len() as u16 + 2);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let window = Rect { x, y, width, height };
    paint::clear(buffer, window);
    let title = [
        plain(" keys "),
        piece("Esc closes, Up and Down scroll ", styles.quiet()),
    ];
    let inner = paint::boxed(buffer, window, &title, styles, true);
    let last = lines.len().saturating_sub(usize::from(inner.height));
    let top = top.min(last);
    for (y, line) in lines.iter().skip(top).take(usize::from(inner.height)).enumerate() {
        paint::pieces(
            buffer,
            Rect {
                x: inner.x + 1,
                width: inner.width.saturating_sub(1),
                ..paint::row(inner, y as u16)
            },
            line,
        );
    }
    last
}
