//! Widths in terminal cells: the same measure that the painter uses, by grapheme.

use std::cell::Cell;

use ratatui::buffer::CellWidth;
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Cells that a tab takes in a draft; in answers it goes to the next multiple of this.
pub const TAB: usize = 4;

thread_local! {
    /// Whether characters whose width is ambiguous (Greek, Cyrillic, boxes, …) take two cells. One thread draws.
    static WIDE: Cell<bool> = const { Cell::new(false) };
}

/// Has characters whose width is ambiguous take two cells on this thread, as terminals for Chinese, Japanese and Korean can
/// be set to; or one again. What was laid out before has to be laid out anew.
pub fn set_wide(wide: bool) {
    WIDE.set(wide);
}

/// Whether characters whose width is ambiguous take two cells.
pub fn is_wide() -> bool {
    WIDE.get()
}

/// Cells that one grapheme takes; control characters but the tab take none, as they are never painted.
pub fn grapheme_width(grapheme: &str) -> usize {
    if grapheme == "\t" {
        return TAB;
    }
    if grapheme.contains(char::is_control) {
        0
    } else if is_wide() && !grapheme.is_ascii() {
        grapheme.width_cjk().max(usize::from(grapheme.cell_width()))
    } else {
        usize::from(grapheme.cell_width())
    }
}

/// Cells that a line of text takes.
pub fn width(text: &str) -> usize {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return text.len();
    }
    text.graphemes(true).map(grapheme_width).sum()
}

/// The longest beginning of `text` that takes at most `cells`.
pub fn prefix(text: &str, cells: usize) -> &str {
    let mut used = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        used += grapheme_width(grapheme);
        if used > cells {
            return &text[..at];
        }
    }
    text
}

/// `text` without its last grapheme.
pub fn without_last(text: &str) -> &str {
    let last = text.grapheme_indices(true).next_back();
    last.map_or("", |(at, _)| &text[..at])
}

/// `text` in at most `cells`, with `mark` at its end where something was left out.
pub fn shorten(text: &str, cells: usize, mark: &str) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let room = cells.saturating_sub(width(mark));
    if room == 0 {
        return prefix(text, cells).to_owned();
    }
    format!("{}{mark}", prefix(text, room))
}

/// `text` in exactly `cells`, cut or filled with spaces at its end.
pub fn pad(text: &str, cells: usize, mark: &str) -> String {
    let mut out = shorten(text, cells, mark);
    let used = width(&out);
    out.extend(std::iter::repeat_n(' ', cells.saturating_sub(used)));
    out
}

/// `text` in exactly `cells`, cut or filled with spaces at its beginning.
pub fn pad_left(text: &str, cells: usize, mark: &str) -> String {
    let cut = shorten(text, cells, mark);
    let mut out = " ".repeat(cells.saturating_sub(width(&cut)));
    out.push_str(&cut);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_count_cells_and_not_characters() {
        for (text, cells) in [
            ("abc", 3),
            ("日本", 4),
            ("e\u{301}", 1),
            ("👨‍👩‍👧", 2),
            ("", 0),
            ("a\u{7}b", 2),
        ] {
            assert_eq!(width(text), cells, "{text:?}");
        }
    }

    #[test]
    fn cutting_never_splits_a_grapheme_nor_exceeds_the_room() {
        let text = "aé日👨‍👩‍👧e\u{301}z";
        for cells in 0..12 {
            for mark in ["…", "~", "..."] {
                assert!(width(&shorten(text, cells, mark)) <= cells);
                assert_eq!(width(&pad(text, cells, mark)), cells);
                assert_eq!(width(&pad_left(text, cells, mark)), cells);
            }
            assert!(text.starts_with(prefix(text, cells)));
        }
    }
}
