//! What holds of the screen whatever is pressed, pasted, clicked and answered, in whatever order.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::Look;
use mlx_chat::ui::keymap::BINDINGS;
use mlx_chat::ui::keys::Keymap;
use mlx_chat::ui::mouse::MouseMode;
use mlx_chat::ui::view::View;
use proptest::prelude::*;

use super::support::*;

/// Texts that are typed, pasted, or said by a model: commands, wide and joined characters, blocks that stay open, and
/// what would steer a terminal.
const TEXTS: &[&str] = &[
    "a story",
    "/",
    "/set ",
    "/temperature 9",
    "/nothing",
    "/new",
    "/find story",
    "@",
    "//x",
    "日本語 👩‍👩‍👧 e\u{301}",
    "\u{202e}evil\u{1b}[2J\u{7}\u{9b}31m",
    "one\ntwo\r\n\tthree\n",
    "```rust\nfn main() {\n",
    "| a | b |\n|---|---|\n| 1 | 2 | 3 |\n",
    "> quoted\n- a\n  1. b\n\n$x^2$ [l](http://x.y)\n\n",
];

/// Sizes of the screen, from none on.
const SIZES: &[(u16, u16)] = &[
    (0, 0),
    (1, 1),
    (19, 4),
    (20, 5),
    (40, 10),
    (80, 24),
    (120, 40),
    (200, 50),
];

/// Something that happens; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Op {
    Bound(usize),
    Letter(char),
    Text(usize),
    Paste(usize),
    Said(usize, usize),
    Ended(usize, usize),
    Resized(usize),
    Mouse(usize, u16, u16),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..BINDINGS.len()).prop_map(Op::Bound),
        4 => prop::char::range(' ', '~').prop_map(Op::Letter),
        3 => (0..TEXTS.len()).prop_map(Op::Text),
        1 => (0..TEXTS.len()).prop_map(Op::Paste),
        4 => (0..4_usize, 0..TEXTS.len()).prop_map(|(row, text)| Op::Said(row, text)),
        2 => (0..4_usize, 0..5_usize).prop_map(|(row, reason)| Op::Ended(row, reason)),
        1 => (0..SIZES.len()).prop_map(Op::Resized),
        2 => (0..5_usize, 0..200_u16, 0..50_u16).prop_map(|(kind, x, y)| Op::Mouse(kind, x, y)),
    ]
}

fn take(keyboard: &mut Keyboard, op: &Op, size: &mut (u16, u16), seen: u16) {
    const REASONS: [FinishReason; 5] = [
        FinishReason::Stop,
        FinishReason::Length,
        FinishReason::Cancelled,
        FinishReason::Rejected,
        FinishReason::Error,
    ];
    let row = |keyboard: &Keyboard, n: usize| {
        let rows = &keyboard.chats.submitted;
        rows.len().checked_sub(1 + n).map(|at| rows[at])
    };
    match *op {
        Op::Bound(at) => {
            if let Some((modifiers, code)) = BINDINGS[at].keys.first() {
                keyboard.now += Duration::from_millis(200);
                keyboard.burst(*modifiers, *code);
            }
        }
        Op::Letter(c) => {
            keyboard.now += Duration::from_millis(200);
            keyboard.burst(KeyModifiers::NONE, KeyCode::Char(c));
        }
        Op::Text(at) => {
            keyboard.now += Duration::from_millis(200);
            for c in TEXTS[at].chars().filter(|c| !c.is_control()) {
                keyboard.burst(KeyModifiers::NONE, KeyCode::Char(c));
            }
        }
        Op::Paste(at) => {
            let settled = keyboard.view.settle(&keyboard.chats.state);
            keyboard.react(settled);
            let reactions = keyboard.view.paste(TEXTS[at], &keyboard.chats.state);
            keyboard.react(reactions);
        }
        Op::Said(n, text) => {
            if let Some(request) = row(keyboard, n) {
                keyboard.chats.says(request, TEXTS[text]);
            }
        }
        Op::Ended(n, reason) => {
            if let Some(request) = row(keyboard, n) {
                keyboard.chats.finishes(request, REASONS[reason], Some(TEXTS[10]));
            }
        }
        Op::Resized(at) => *size = SIZES[at],
        Op::Mouse(kind, column, row) => {
            let kind = [
                MouseEventKind::Down(MouseButton::Left),
                MouseEventKind::Drag(MouseButton::Left),
                MouseEventKind::Up(MouseButton::Left),
                MouseEventKind::ScrollUp,
                MouseEventKind::ScrollDown,
            ][kind];
            let event = MouseEvent {
                kind,
                column: column % seen.max(1),
                row,
                modifiers: KeyModifiers::NONE,
            };
            let settled = keyboard.view.settle(&keyboard.chats.state);
            keyboard.react(settled);
            let reactions = keyboard.view.mouse(&event, &keyboard.chats.state);
            keyboard.react(reactions);
        }
    }
}

/// Draws the screen, which holds nothing that steers a terminal, and has its cursor within.
fn look(view: &mut View, chats: &Chats, (width, height): (u16, u16)) -> Result<(), TestCaseError> {
    let (buffer, cursor) = draw(view, &chats.state, width, height);
    prop_assert!(cursor.is_none_or(|(x, y)| x < width && y < height), "{cursor:?}");
    for cell in buffer.content() {
        let steers =
            |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        prop_assert!(!cell.symbol().contains(steers), "{:?}", cell.symbol());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_screen_is_drawn_whatever_happens(
        (vim, reader) in any::<(bool, bool)>(),
        ops in prop::collection::vec(op(), 1..100),
    ) {
        let mut keyboard = Keyboard::new(Chats::ready(2));
        let look_of = Look::new(color(), Keymap::default());
        keyboard.view.take_look(Look { vim, mouse: MouseMode::Full, ..look_of });
        keyboard.view.looks.screen_reader.turn(reader);
        let mut size = (80, 24);
        for op in &ops {
            let seen = size.0;
            take(&mut keyboard, op, &mut size, seen);
            keyboard.screen();
            look(&mut keyboard.view, &keyboard.chats, size)?;
            if let (_, Some(lines)) = keyboard.view.lines(&keyboard.chats.state, size, false) {
                let lines = String::from_utf8(lines).unwrap();
                prop_assert!(!lines.contains(['\u{7}', '\u{202e}', '\u{9b}']) && !lines.contains("\u{1b}]"), "{lines:?}");
            }
        }
    }
}
