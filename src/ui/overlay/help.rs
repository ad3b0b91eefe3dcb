//! The keys, drawn from their table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::ui::keymap::Group;
use crate::ui::keys::Keymap;
use crate::ui::overlay::select;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::slash::COMMANDS;
use crate::ui::styles::Styles;
use crate::ui::wrap::wrap_line;

/// Columns of the keys' names.
const NAMES: usize = 12;
/// Columns of slash commands with what they take.
const COMMAND_NAMES: usize = 24;

/// The lines of the help, in `width` cells.
fn lines(width: usize, keymap: &Keymap, styles: &Styles) -> Vec<Vec<Piece>> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(vec![piece(group.title(), styles.strong())]);
        for bound in keymap.bound().filter(|bound| bound.binding.group == group) {
            for (at, row) in wrap_line(&bound.help, width.saturating_sub(NAMES))
                .into_iter()
                .enumerate()
            {
                let name = if at == 0 { &bound.name[..] } else { "" };
                let name = piece(format!("{name:<NAMES$}"), styles.key());
                lines.push(vec![name, plain(bound.help[row].to_owned())]);
            }
        }
    }
    lines.push(Vec::new());
    lines.push(vec![
        piece("Commands", styles.strong()),
        piece(
            "  in a prompt's place; without a value, a setting tells it",
            styles.quiet(),
        ),
    ]);
    for command in COMMANDS {
        let name = format!("/{} {}", command.name, command.takes);
        for (at, row) in wrap_line(command.help, width.saturating_sub(COMMAND_NAMES))
            .into_iter()
            .enumerate()
        {
            let name = if at == 0 { name.as_str() } else { "" };
            let name = piece(format!("{name:<COMMAND_NAMES$}"), styles.key());
            lines.push(vec![name, plain(command.help[row].to_owned())]);
        }
    }
    lines
}

/// The help for who hears it: a line for each key and command, however long.
pub(in crate::ui) fn told(keymap: &Keymap, styles: &Styles) -> Vec<String> {
    let lines = lines(usize::MAX, keymap, styles).into_iter();
    let texts = lines.map(|line| line.into_iter().map(|piece| piece.text).collect::<String>());
    let words = texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut lines: Vec<String> = words.filter(|line| !line.is_empty()).collect();
    lines.insert(0, "keys; Esc closes".to_owned());
    lines
}

/// Draws the help over the screen, from its line `top` on; gives the greatest `top` that makes sense.
pub(in crate::ui) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    top: usize,
    keymap: &Keymap,
    styles: &Styles,
) -> usize {
    let width = select::width(area);
    let lines = lines(usize::from(width.saturating_sub(4)), keymap, styles);
    let height = area.height.min(lines.len() as u16 + 2);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let window = Rect { x, y, width, height };
    paint::clear(buffer, window, styles);
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
