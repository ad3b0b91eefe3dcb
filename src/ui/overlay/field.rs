//! A line to write in, at the top of what lies over the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::ui::keymap::{Action, Motion};
use crate::ui::paint;
use crate::ui::sanitize::sanitize;
use crate::ui::styles::Styles;
use crate::ui::writing::editor::Editor;
use crate::ui::{cells, keymap::typed};
use crossterm::event::KeyEvent;

/// A line of text with a caret.
#[derive(Debug, Clone, Default)]
pub struct Field(Editor);

impl Field {
    /// A line that holds a text, the caret at its end.
    pub fn new(text: &str) -> Self {
        let mut field = Self::default();
        field.insert(text);
        field
    }

    /// What is in it.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// Puts text at the caret; line ends and tabs become spaces.
    pub fn insert(&mut self, text: &str) {
        let spaced: String = text
            .replace("\r\n", "\n")
            .chars()
            .map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c })
            .collect();
        self.0.insert(&spaced);
    }

    /// Takes a key that edits: what it asks for, or what it types. Whether the text is another one now.
    pub fn key(&mut self, key: &KeyEvent, action: Option<Action>) -> bool {
        let before = self.text().to_owned();
        match action {
            Some(Action::Move(Motion::Up | Motion::Down)) => {}
            Some(Action::Move(motion)) => {
                self.0.go(motion, usize::MAX, &mut None);
            }
            Some(Action::Delete(motion)) => self.0.delete(motion),
            Some(Action::LeaveOrDelete) => self.0.delete(Motion::Right),
            Some(_) => {}
            None => {
                if let Some(c) = typed(key) {
                    self.insert(c.encode_utf8(&mut [0; 4]));
                }
            }
        }
        self.text() != before
    }

    /// Draws the line with a mark before it, so that the caret is seen, and gives the caret's cell. An empty one shows a
    /// hint.
    pub(in crate::ui) fn draw(
        &self,
        buffer: &mut Buffer,
        row: Rect,
        mark: &str,
        hint: &str,
        styles: &Styles,
    ) -> Option<Position> {
        if row.is_empty() {
            return None;
        }
        let start = paint::text(buffer, row, 0, mark, styles.key());
        let room = usize::from(row.width.saturating_sub(start)).saturating_sub(1);
        let text = sanitize(self.text());
        if text.is_empty() {
            paint::text(buffer, row, start + 1, hint, styles.quiet());
        }
        let caret = cells::width(&sanitize(&self.text()[..self.0.caret()]));
        let mut hidden = 0;
        let mut shown: &str = &text;
        while caret - hidden.min(caret) > room && !shown.is_empty() {
            let first = cells::prefix(shown, 2).len().max(1);
            let first = shown.ceil_char_boundary(first);
            hidden += cells::width(&shown[..first]);
            shown = &shown[first..];
        }
        paint::text(buffer, row, start, shown, ratatui::style::Style::new());
        let x = start + u16::try_from(caret.saturating_sub(hidden)).unwrap_or(u16::MAX);
        Some(Position {
            x: row.x + x.min(row.width - 1),
            y: row.y,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::styles::ColorMode;

    fn drawn(field: &Field, width: u16) -> (String, Option<Position>) {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, 1));
        let row = buffer.area;
        let styles = Styles::new(ColorMode::Off, true);
        let caret = field.draw(&mut buffer, row, "> ", "hint", &styles);
        (crate::ui::view::to_text(&buffer).trim_end().to_owned(), caret)
    }

    #[test]
    fn a_long_line_shows_its_caret() {
        let field = Field::new("0123456789");
        assert_eq!(
            drawn(&field, 20),
            ("> 0123456789".into(), Some(Position { x: 12, y: 0 }))
        );
        let (text, caret) = drawn(&field, 8);
        assert_eq!(text, "> 6789");
        assert_eq!(caret, Some(Position { x: 6, y: 0 }));
        assert_eq!(drawn(&Field::default(), 12).0, ">  hint");
    }

    #[test]
    fn pasted_lines_become_one() {
        assert_eq!(Field::new("a\r\nb\tc\n").text(), "a b c ");
    }

    #[test]
    fn every_width_is_drawn() {
        for width in 0..12 {
            drawn(&Field::new("日本語テキスト"), width);
        }
    }
}
