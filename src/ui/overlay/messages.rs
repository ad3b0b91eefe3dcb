//! What was told lately, in full: the newest first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::State;
use crate::ui::chrome;
use crate::ui::keymap::{Action, Motion};
use crate::ui::keys::Keymap;
use crate::ui::overlay::picker::Step;
use crate::ui::overlay::select;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::styles::Styles;
use crate::ui::told;
use crate::ui::wrap::wrap_line;

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// The list, while it lies on top.
#[derive(Debug, Default)]
pub struct MessageList {
    /// The first row that is shown.
    top: usize,
}

impl MessageList {
    /// Takes a key.
    pub(in crate::ui) fn key(&mut self, action: Option<Action>) -> Vec<Step> {
        self.top = match action {
            Some(Action::Stop | Action::Interrupt | Action::Messages) => return vec![Step::Close],
            Some(Action::Move(Motion::Up) | Action::LineUp) => self.top.saturating_sub(1),
            Some(Action::Move(Motion::Down) | Action::LineDown) => self.top + 1,
            Some(Action::PageUp) => self.top.saturating_sub(PAGE),
            Some(Action::PageDown) => self.top + PAGE,
            Some(Action::Top | Action::Move(Motion::LineStart)) => 0,
            Some(Action::Bottom | Action::Move(Motion::LineEnd)) => usize::MAX / 2,
            _ => self.top,
        };
        Vec::new()
    }

    /// Draws the list over the screen.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
        keymap: &Keymap,
        styles: &Styles,
    ) {
        let close = keymap.written(Action::Stop).unwrap_or("Esc");
        let title = [
            plain(" messages, the newest first "),
            piece(format!("Up and Down scroll, {close} closes "), styles.quiet()),
        ];
        let width = usize::from(select::width(area).saturating_sub(4));
        let lines = lines(state, width, keymap, styles);
        let inner = select::window(buffer, area, lines.len(), &title, styles);
        let height = usize::from(inner.height);
        self.top = self.top.min(lines.len().saturating_sub(height));
        let last = (self.top + height).saturating_sub(1);
        select::count(buffer, inner, inner.height, (last, lines.len()), styles);
        for (y, line) in lines.iter().skip(self.top).take(height).enumerate() {
            let row = paint::row(inner, y as u16);
            let row = Rect {
                x: row.x + 1,
                width: row.width.saturating_sub(1),
                ..row
            };
            paint::pieces(buffer, row, std::slice::from_ref(line));
        }
    }
}

/// The rows of all messages; those that take several are set in behind the first.
fn lines(state: &State, width: usize, keymap: &Keymap, styles: &Styles) -> Vec<Piece> {
    let mut lines = Vec::new();
    for notice in state.told().rev() {
        let (mark, style) = chrome::mark(notice.kind, styles);
        let text = format!("{mark}{}", told::text(notice, keymap));
        for (at, row) in wrap_line(&text, width.saturating_sub(2)).into_iter().enumerate() {
            let indent = if at == 0 { "" } else { "  " };
            lines.push(piece(format!("{indent}{}", &text[row]), style));
        }
    }
    if lines.is_empty() {
        lines.push(piece("nothing was told yet", styles.quiet()));
    }
    lines
}
