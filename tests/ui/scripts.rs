//! Scripts of all directions and widths: nothing is added, lost or moved.

use mlx_chat::chat::{Draft, Event};
use mlx_chat::ui::Look;
use mlx_chat::ui::cells;
use mlx_chat::ui::keys::Keymap;
use mlx_chat::ui::wrap::Wrapped;
use ratatui::buffer::Buffer;

use super::support::*;

const BIDI: [&str; 5] = [
    "مرحبا بالعالم، كيف الحال؟",
    "שלום עולם (abc) 123",
    "mixed: العربية and עברית in one line, 42%",
    "\u{200f}right\u{200e}left\u{61c}mark",
    "پژوهش‌های تازه", // with a zero-width non-joiner
];

/// The rows of a screen's room as one text, without what is blank.
fn letters(buffer: &Buffer) -> String {
    let text = mlx_chat::ui::view::to_text(buffer);
    text.chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '│' | '─'))
        .collect()
}

#[test]
fn text_from_right_to_left_reaches_the_cells_as_it_was_written() {
    for text in BIDI {
        for styles in [no_color(), color()] {
            let mut chats = Chats::ready(1);
            let request = chats.send(1, text);
            chats.says(request, text);
            chats.tell(Event::Draft(Draft::at_end(text)));
            let mut view = view(styles);
            let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
            let wanted: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            // Marks of no width stay with the letter before them, or have no cell at a row's beginning.
            let bare = |text: &str| text.replace(['\u{200e}', '\u{200f}', '\u{61c}', '\u{200c}'], "");
            let shown = bare(&letters(&buffer));
            assert!(shown.matches(&bare(&wanted)).count() >= 3, "{text}: {shown}");
        }
    }
}

#[test]
fn wrapping_keeps_every_character_of_any_direction_in_its_order() {
    for text in BIDI {
        for width in 1..40 {
            let wrapped = Wrapped::new(text, width);
            let joined: String = wrapped.rows().map(|(_, row)| row.replace(' ', "")).collect();
            assert_eq!(joined, text.replace(' ', ""), "{width}");
        }
    }
}

#[test]
fn what_would_turn_the_rest_of_a_line_around_is_shown_and_does_not() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, "a\u{202e}b\u{2066}c\u{2069}d");
    let shown = letters(&draw(&mut view(no_color()), &chats.state, 80, 24).0);
    assert!(shown.contains("a\u{fffd}b\u{fffd}c\u{fffd}d"), "{shown}");
}

/// A view that takes characters of ambiguous width for two cells.
fn wide(look: impl FnOnce(&mut Look)) -> mlx_chat::ui::view::View {
    let mut view = view(ascii());
    let mut wanted = Look::new(ascii(), Keymap::default());
    wanted.wide = true;
    look(&mut wanted);
    view.take_look(wanted);
    view
}

#[test]
fn ambiguous_characters_take_two_cells_where_that_is_asked_for() {
    let text = "±°αβγДЖ…①★";
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, &text.repeat(12));
    let mut view = wide(|_| {});
    assert_eq!(cells::width(text), 2 * text.chars().count());
    let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
    for y in 2..17 {
        for x in [0, 79] {
            assert_eq!(buffer.cell((x, y)).unwrap().symbol(), "|", "at {x},{y}");
        }
    }
    let row = mlx_chat::ui::view::to_text(&buffer);
    let row = row.lines().find(|line| line.contains("αβγ")).unwrap();
    assert_eq!(row.matches(|c| text.contains(c)).count(), 39, "{row}");
    cells::set_wide(false);
    assert_eq!(cells::width(text), text.chars().count());
}

#[test]
fn a_wide_row_is_written_so_that_each_character_stands_in_its_place() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, "α b");
    let mut view = wide(|_| {});
    let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
    let blank = Buffer::empty(buffer.area);
    let diff = blank.diff(&buffer);
    let alpha = diff.iter().find(|(.., cell)| cell.symbol() == "α").unwrap();
    let b = diff
        .iter()
        .find(|(_, y, cell)| *y == alpha.1 && cell.symbol() == "b")
        .unwrap();
    assert_eq!(b.0 - alpha.0, 3);
    assert!(
        !diff.iter().any(|(x, y, _)| (*x, *y) == (alpha.0 + 1, alpha.1)),
        "its second cell is its own"
    );
    cells::set_wide(false);
}
