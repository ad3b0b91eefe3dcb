//! Lists to choose from: which line is selected, and the window that they are shown in.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::ui::cells;
use crate::ui::keymap::{Action, Motion};
use crate::ui::keys::Keymap;
use crate::ui::paint::{self, Piece};
use crate::ui::styles::Styles;
use crate::ui::wrap::wrap_line;

/// The most columns of a window.
const WIDTH: u16 = 76;
/// Columns beside it, of both sides together, that are worth being seen.
const RIM: u16 = 24;
/// Columns of what is read out instead of shown: there, no line is cut.
pub(in crate::ui) const READ_OUT: u16 = 2000;
/// Lines that a page key moves by.
const PAGE: usize = 10;

/// Which line of a list is selected, and which is the first that is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    at: usize,
    top: usize,
}

impl Selection {
    /// The selected line, from 0.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Takes an action that moves the selection among `count` lines; whether it was one. Up and down go round the ends.
    pub fn key(&mut self, action: Option<Action>, count: usize) -> bool {
        let last = count.saturating_sub(1);
        self.at = match action {
            Some(Action::Move(Motion::Up)) => self.at.checked_sub(1).unwrap_or(last),
            Some(Action::Move(Motion::Down)) if self.at >= last => 0,
            Some(Action::Move(Motion::Down)) => self.at + 1,
            Some(Action::PageUp) => self.at.saturating_sub(PAGE),
            Some(Action::PageDown) => (self.at + PAGE).min(last),
            Some(Action::Top) => 0,
            Some(Action::Bottom) => last,
            _ => return false,
        };
        true
    }

    /// Selects a line.
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    /// Keeps the selection within `count` lines.
    pub fn keep(&mut self, count: usize) {
        self.at = self.at.min(count.saturating_sub(1));
    }

    /// The first line to show so that the selected one is among `height` of them.
    pub fn top(&mut self, height: usize) -> usize {
        self.top = self.top.min(self.at).max((self.at + 1).saturating_sub(height));
        self.top
    }
}

/// Where nothing is written that has ends itself, Home and End go to those of the list.
pub(in crate::ui) fn ends(action: Option<Action>, written: &str) -> Option<Action> {
    match action {
        Some(Action::Move(Motion::LineStart)) if written.is_empty() => Some(Action::Top),
        Some(Action::Move(Motion::LineEnd)) if written.is_empty() => Some(Action::Bottom),
        action => action,
    }
}

/// Empties the window of a list over `area`, with room for so many rows if there is, and gives the room inside.
pub(in crate::ui) fn window(
    buffer: &mut Buffer,
    area: Rect,
    rows: usize,
    title: &[Piece],
    styles: &Styles,
) -> Rect {
    let width = width(area);
    let height = u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2);
    let height = height
        .min(area.height.saturating_sub(area.height / 6))
        .max(area.height.min(8));
    let window = placed(area, width, height);
    paint::clear(buffer, window, styles);
    let title = fitted(title, usize::from(width).saturating_sub(2));
    paint::boxed(buffer, window, &title, styles, true)
}

/// A title whose last piece names keys: those that have no room are left out, how to close it last of all.
pub(in crate::ui) fn fitted(title: &[Piece], room: usize) -> Vec<Piece> {
    let mut title = title.to_vec();
    while title.iter().map(|piece| cells::width(&piece.text)).sum::<usize>() > room {
        let Some(keys) = title.last_mut() else { break };
        let mut words: Vec<&str> = keys.text.trim_end().split(", ").collect();
        if words.len() == 1 {
            // The name alone is cut where it is painted.
            if title.len() > 1 {
                title.pop();
            }
            break;
        }
        words.remove(words.len() - 2);
        keys.text = format!("{} ", words.join(", "));
    }
    title
}

/// Keys and what they do, for a title and for the footer where that has no room for them.
pub(in crate::ui) fn keys(keymap: &Keymap, known: &[(Action, &str)]) -> String {
    let words: Vec<String> = known
        .iter()
        .filter_map(|(action, word)| Some(format!("{} {word}", keymap.written(*action)?)))
        .collect();
    format!("{} ", words.join(", "))
}

/// Says at the lower border which line of how many is selected, where not all of them are in sight.
pub(in crate::ui) fn count(
    buffer: &mut Buffer,
    inner: Rect,
    rows: u16,
    (at, count): (usize, usize),
    styles: &Styles,
) {
    if count <= usize::from(rows) || inner.width == READ_OUT - 2 {
        return;
    }
    let text = format!(" {}/{count} ", at + 1);
    let width = text.len() as u16;
    let row = Rect {
        x: inner.right().saturating_sub(width + 1),
        y: inner.bottom(),
        width,
        height: 1,
    };
    if inner.width > width && row.y < buffer.area.bottom() {
        paint::text(buffer, row, 0, &text, styles.quiet());
    }
}

/// Rows that a list's window leaves free below it at least.
pub(in crate::ui) fn rows_below(area: Rect) -> u16 {
    let free = (area.height / 6).min(area.height.saturating_sub(8));
    free - free / 3
}

/// Rows that a text takes at the end of a window: as many as it needs, up to half of it.
pub(in crate::ui) fn foot_rows(inner: Rect, text: &str) -> u16 {
    let width = usize::from(inner.width).saturating_sub(2);
    let most = usize::from(inner.height / 2).max(1);
    wrap_line(text, width).len().clamp(1, most) as u16
}

/// Writes text into these rows.
pub(in crate::ui) fn foot(buffer: &mut Buffer, inner: Rect, text: &str, style: Style, styles: &Styles) {
    let width = usize::from(inner.width).saturating_sub(2);
    let lines = wrap_line(text, width);
    let rows = lines.len().min(usize::from(foot_rows(inner, text)));
    for (at, line) in lines.into_iter().take(rows).enumerate() {
        let row = paint::row(inner, inner.height.saturating_sub((rows - at) as u16));
        paint::clear(buffer, row, styles);
        // The last one has all that is left.
        let rest = if at + 1 == rows {
            &text[line.start..]
        } else {
            &text[line]
        };
        paint::text(buffer, row, 1, &cells::shorten(rest, width, styles.cut()), style);
    }
}

/// Columns of a window.
pub(in crate::ui) fn width(area: Rect) -> u16 {
    width_of(WIDTH, area)
}

/// So many columns, or the whole width where only a rim of chopped text would be left beside it.
pub(in crate::ui) fn width_of(columns: u16, area: Rect) -> u16 {
    if area.width < columns.saturating_add(RIM) || area.width == READ_OUT {
        area.width
    } else {
        columns
    }
}

/// Where a window of a size that fits into `area` lies: in the middle, and a little above it.
pub(in crate::ui) fn placed(area: Rect, width: u16, height: u16) -> Rect {
    Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 3,
        width,
        height,
    }
}

/// Paints a line of a list; the selected one is marked over its whole width.
pub(in crate::ui) fn line(buffer: &mut Buffer, row: Rect, pieces: &[Piece], selected: bool, styles: &Styles) {
    paint::pieces(buffer, row, pieces);
    if selected {
        buffer.set_style(row.intersection(buffer.area), Style::new().patch(styles.chip()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::paint::plain;

    #[test]
    fn home_and_end_are_the_lists_where_nothing_is_written() {
        let [home, end] = [Motion::LineStart, Motion::LineEnd].map(|motion| Some(Action::Move(motion)));
        assert_eq!(
            (ends(home, ""), ends(end, "")),
            (Some(Action::Top), Some(Action::Bottom))
        );
        assert_eq!((ends(home, "x"), ends(end, "x")), (home, end));
        assert_eq!(ends(Some(Action::Help), ""), Some(Action::Help));
    }

    #[test]
    fn keys_that_have_no_room_in_a_title_are_left_out_whole_and_how_to_close_it_last() {
        let title = [
            plain(" models "),
            plain("Enter takes it, ^X deletes, Esc closes "),
        ];
        let text = |room| -> String {
            let pieces = fitted(&title, room).into_iter();
            pieces.map(|piece| piece.text).collect()
        };
        assert_eq!(text(60), " models Enter takes it, ^X deletes, Esc closes ");
        assert_eq!(text(40), " models Enter takes it, Esc closes ");
        assert_eq!(text(30), " models Esc closes ");
        assert_eq!(text(10), " models ");
        assert_eq!(text(0), " models ");
    }

    #[test]
    fn a_window_leaves_the_rows_below_it_free_that_it_says() {
        for height in 10..80 {
            let area = Rect::new(0, 0, 80, height);
            let mut buffer = Buffer::empty(area);
            let styles = Styles::new(crate::ui::styles::ColorMode::Off, true);
            let inner = window(&mut buffer, area, usize::MAX, &[], &styles);
            assert_eq!(height - (inner.bottom() + 1), rows_below(area), "{height}");
        }
    }

    #[test]
    fn the_selection_goes_round_the_ends_and_stays_in_sight() {
        let mut selection = Selection::default();
        assert!(selection.key(Some(Action::Move(Motion::Up)), 30));
        assert_eq!((selection.at(), selection.top(5)), (29, 25));
        assert!(selection.key(Some(Action::Move(Motion::Down)), 30));
        assert_eq!((selection.at(), selection.top(5)), (0, 0));
        assert!(selection.key(Some(Action::PageDown), 30));
        assert_eq!((selection.at(), selection.top(5)), (10, 6));
        assert!(selection.key(Some(Action::PageUp), 30));
        assert!(!selection.key(Some(Action::Help), 30));
        assert!(selection.key(Some(Action::Move(Motion::Down)), 0));
        assert_eq!(selection.at(), 0);
        selection.key(Some(Action::Bottom), 30);
        selection.keep(3);
        assert_eq!(selection.at(), 2);
    }
}
