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
        let letter = grapheme.chars().next().is_some_and(is_ambiguous_letter);
        let least = grapheme.width_cjk().max(usize::from(letter) * 2);
        least.max(usize::from(grapheme.cell_width()))
    } else {
        usize::from(grapheme.cell_width())
    }
}

/// Whether a grapheme is joined from several code points: terminals differ in how many cells they give it.
pub fn is_joined(grapheme: &str) -> bool {
    grapheme.len() > 1 && grapheme.chars().nth(1).is_some()
}

/// Cells that the code points of a grapheme take where a terminal doesn't join them.
pub fn parts_width(grapheme: &str) -> usize {
    let mut bytes = [0; 4];
    let parts = grapheme.chars();
    parts
        .map(|part| grapheme_width(part.encode_utf8(&mut bytes)))
        .sum()
}

/// Letters and signs of Latin, Greek and Cyrillic whose width is ambiguous (Unicode Standard Annex 11), which terminals
/// draw two cells wide where they draw ambiguous ones so, though the library takes letters for narrow; ends included.
const LETTERS: [(char, char); 58] = [
    ('\u{a1}', '\u{a1}'),
    ('\u{a4}', '\u{a4}'),
    ('\u{a7}', '\u{a8}'),
    ('\u{aa}', '\u{aa}'),
    ('\u{ae}', '\u{ae}'),
    ('\u{b0}', '\u{b4}'),
    ('\u{b6}', '\u{ba}'),
    ('\u{bc}', '\u{bf}'),
    ('\u{c6}', '\u{c6}'),
    ('\u{d0}', '\u{d0}'),
    ('\u{d7}', '\u{d8}'),
    ('\u{de}', '\u{e1}'),
    ('\u{e6}', '\u{e6}'),
    ('\u{e8}', '\u{ea}'),
    ('\u{ec}', '\u{ed}'),
    ('\u{f0}', '\u{f0}'),
    ('\u{f2}', '\u{f3}'),
    ('\u{f7}', '\u{fa}'),
    ('\u{fc}', '\u{fc}'),
    ('\u{fe}', '\u{fe}'),
    ('\u{101}', '\u{101}'),
    ('\u{111}', '\u{111}'),
    ('\u{113}', '\u{113}'),
    ('\u{11b}', '\u{11b}'),
    ('\u{126}', '\u{127}'),
    ('\u{12b}', '\u{12b}'),
    ('\u{131}', '\u{133}'),
    ('\u{138}', '\u{138}'),
    ('\u{13f}', '\u{142}'),
    ('\u{144}', '\u{144}'),
    ('\u{148}', '\u{14b}'),
    ('\u{14d}', '\u{14d}'),
    ('\u{152}', '\u{153}'),
    ('\u{166}', '\u{167}'),
    ('\u{16b}', '\u{16b}'),
    ('\u{1ce}', '\u{1ce}'),
    ('\u{1d0}', '\u{1d0}'),
    ('\u{1d2}', '\u{1d2}'),
    ('\u{1d4}', '\u{1d4}'),
    ('\u{1d6}', '\u{1d6}'),
    ('\u{1d8}', '\u{1d8}'),
    ('\u{1da}', '\u{1da}'),
    ('\u{1dc}', '\u{1dc}'),
    ('\u{251}', '\u{251}'),
    ('\u{261}', '\u{261}'),
    ('\u{2c4}', '\u{2c4}'),
    ('\u{2c7}', '\u{2c7}'),
    ('\u{2c9}', '\u{2cb}'),
    ('\u{2cd}', '\u{2cd}'),
    ('\u{2d0}', '\u{2d0}'),
    ('\u{2d8}', '\u{2db}'),
    ('\u{2dd}', '\u{2df}'),
    ('\u{391}', '\u{3a9}'),
    ('\u{3b1}', '\u{3c1}'),
    ('\u{3c3}', '\u{3c9}'),
    ('\u{401}', '\u{401}'),
    ('\u{410}', '\u{44f}'),
    ('\u{451}', '\u{451}'),
];

fn is_ambiguous_letter(c: char) -> bool {
    let at = LETTERS.partition_point(|(_, last)| *last < c);
    LETTERS.get(at).is_some_and(|(first, _)| *first <= c)
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
    fn ambiguous_letters_are_wide_where_that_is_asked_for_and_others_never() {
        set_wide(true);
        for (text, cells) in [
            ("ä", 1),
            ("é", 2),
            ("e\u{301}", 1),
            ("Ж", 2),
            ("a", 1),
            ("日", 2),
            ("…", 2),
            ("ω", 2),
            ("ו", 1),
        ] {
            assert_eq!(width(text), cells, "{text}");
        }
        set_wide(false);
        assert_eq!(width("éЖ…ω"), 4);
        assert!(LETTERS.windows(2).all(|pair| pair[0].1 < pair[1].0));
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
