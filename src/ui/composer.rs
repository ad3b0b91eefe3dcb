//! The composer: the focused pane's draft in a box, with the terminal's own cursor at the caret.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::cells;
use super::editor::Layout;
use super::keymap::Action;
use super::keys::Keymap;
use super::paint::{self, Piece, piece};
use super::pane::one_line;
use super::sanitize::sanitize;
use super::styles::Styles;
use crate::chat::{Access, Draft, State};

/// What is kept between frames.
#[derive(Debug, Clone, Default)]
pub struct ComposerView {
    /// The first row that is shown.
    top: usize,
    /// The draft that was last laid out, and how.
    laid: Option<(String, usize, Layout)>,
}

impl ComposerView {
    /// Columns of the draft's rows on a screen of this width: the caret has one more.
    pub fn text_width(screen: usize) -> usize {
        screen.saturating_sub(3).max(1)
    }

    /// The draft in rows of `width`; laid out again only when one of them changed.
    pub fn layout(&mut self, text: &str, width: usize) -> &Layout {
        let fresh = self
            .laid
            .as_ref()
            .is_some_and(|(known, at, _)| *at == width && known == text);
        if !fresh {
            self.laid = None;
        }
        let (_, _, layout) = self
            .laid
            .get_or_insert_with(|| (text.to_owned(), width, Layout::new(text, width)));
        layout
    }

    /// Draws the composer and gives the cell of the caret.
    pub(super) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let inner = paint::boxed(buffer, area, &title(state, area, keymap, styles), styles, true);
        if inner.is_empty() {
            return None;
        }
        let draft = &state.focused_pane().draft;
        let height = usize::from(inner.height);
        let top = self.top;
        let layout = self.layout(draft.text(), Self::text_width(usize::from(area.width)));
        let (row, column) = layout.place(draft.text(), draft.cursor());
        let top = top
            .min(row)
            .max((row + 1).saturating_sub(height))
            .min(layout.height().saturating_sub(height));
        for y in 0..inner.height {
            let Some(range) = layout.row(top + usize::from(y)) else {
                break;
            };
            let text = shown(&draft.text()[range]);
            paint::text(
                buffer,
                paint::row(inner, y),
                0,
                &text,
                ratatui::style::Style::new(),
            );
        }
        if draft.text().is_empty() {
            let hint = if state.focused_pane().access == Access::ReadOnly {
                "read-only"
            } else {
                ""
            };
            paint::text(buffer, paint::row(inner, 0), 1, hint, styles.quiet());
        }
        let more = (layout.height() > height).then(|| format!(" {}/{} ", row + 1, layout.height()));
        self.top = top;
        if let Some(more) = more {
            let foot = Rect {
                x: inner.x,
                y: area.bottom().saturating_sub(1),
                width: inner.width,
                height: 1,
            };
            let column = inner.width.saturating_sub(more.len() as u16);
            paint::text(buffer, foot, column, &more, styles.quiet());
        }
        let x = inner.x + (column as u16).min(inner.width - 1);
        Some(Position {
            x,
            y: inner.y + (row - top) as u16,
        })
    }
}

/// A row of a draft as it is painted.
fn shown(row: &str) -> String {
    let tabs = row.replace('\t', &" ".repeat(cells::TAB));
    sanitize(&tabs).into_owned()
}

/// To whom a prompt goes, and how to change it.
fn title(state: &State, area: Rect, keymap: &Keymap, styles: &Styles) -> Vec<Piece> {
    let room = usize::from(area.width.saturating_sub(2));
    let hint = |does: &str| {
        let key = keymap.written(Action::Broadcast);
        key.map_or_else(String::new, |key| format!("({key} {does}) "))
    };
    let edited = state.focused_pane().edited();
    let (to, hint) = if let Some(turn) = edited {
        let to = format!(" {} edits prompt {}", state.focused(), turn + 1);
        let key = keymap.written(Action::Stop);
        (
            to,
            key.map_or_else(String::new, |key| format!("({key} gives it up) ")),
        )
    } else if state.broadcast() {
        (format!(" to all {} panes ", state.panes().len()), hint("to one"))
    } else {
        (
            format!(
                " to {} {}",
                state.focused(),
                one_line(&state.focused_pane().title)
            ),
            hint("broadcast"),
        )
    };
    let to = cells::shorten(to.trim_end(), room.saturating_sub(hint.len() + 1), styles.cut());
    let style = if state.broadcast() || edited.is_some() {
        styles.warning()
    } else {
        styles.strong()
    };
    vec![piece(format!("{to} "), style), piece(hint, styles.quiet())]
}

/// Whether there is something in a draft, blank or not.
pub(super) fn is_empty(draft: &Draft) -> bool {
    draft.text().is_empty()
}
