//! Where one reads stays where it is.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::engine::{FinishReason, RequestId};

use super::support::*;

/// A pane whose answer has 200 numbered lines and goes on.
fn long() -> (Keyboard, RequestId) {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "count");
    let lines: String = (0..200)
        .map(|n| format!("line {n} of many, and it is long enough to wrap when narrow  \n"))
        .collect();
    chats.says(request, &lines);
    (Keyboard::new(chats), request)
}

/// The first row inside the pane.
fn first(screen: &str) -> String {
    screen.lines().nth(2).unwrap().trim_matches('│').trim().to_owned()
}

#[test]
fn new_text_is_followed_until_one_scrolls_up() {
    let (mut keyboard, request) = long();
    assert!(keyboard.screen().contains("line 199 "));
    keyboard.chats.says(request, "the very last line");
    assert!(keyboard.screen().contains("the very last line"));
}

#[test]
fn what_one_reads_does_not_move_while_text_streams_nor_at_its_end() {
    let (mut keyboard, request) = long();
    keyboard.code(KeyCode::PageUp);
    let before = first(&keyboard.screen());
    for n in 0..50 {
        keyboard.chats.says(request, &format!("new {n}  \n"));
        assert_eq!(first(&keyboard.screen()), before);
    }
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    let screen = keyboard.screen();
    assert_eq!(first(&screen), before);
    // And how the answer ended.
    assert!(screen.contains("51 new lines ↓ End"), "{screen}");
}

#[test]
fn another_width_makes_nothing_new() {
    let (mut keyboard, request) = long();
    keyboard.screen();
    keyboard.code(KeyCode::PageUp);
    assert!(!keyboard.screen().contains("new line"));
    for width in [41, 120, 44] {
        let screen = text(&mut keyboard.view, &keyboard.chats.state, width, 24);
        assert!(!screen.contains("new line"), "{width}: {screen}");
    }
    keyboard.chats.says(request, "more  \n");
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 44, 24);
    assert!(screen.contains("1 new line "), "{screen}");
}

#[test]
fn end_follows_again_and_the_mark_goes() {
    let (mut keyboard, request) = long();
    keyboard.code(KeyCode::PageUp);
    keyboard.chats.says(request, "more  \nand more  \n");
    assert!(keyboard.screen().contains("new lines"));
    keyboard.code(KeyCode::End);
    let screen = keyboard.screen();
    assert!(
        !screen.contains("new lines") && screen.contains("and more"),
        "{screen}"
    );
    keyboard.chats.says(request, "once more");
    assert!(keyboard.screen().contains("once more"));
}

#[test]
fn scrolling_down_to_the_end_follows_again() {
    let (mut keyboard, request) = long();
    keyboard.code(KeyCode::PageUp);
    keyboard.code(KeyCode::PageDown);
    keyboard.chats.says(request, "newest");
    assert!(keyboard.screen().contains("newest"));
}

#[test]
fn lines_are_no_longer_new_once_they_were_seen() {
    let (mut keyboard, request) = long();
    keyboard.code(KeyCode::PageUp);
    let lines: String = (0..30).map(|n| format!("new {n}  \n")).collect();
    keyboard.chats.says(request, &lines);
    assert!(keyboard.screen().contains(" 30 new lines"));
    keyboard.code(KeyCode::PageDown);
    keyboard.code(KeyCode::PageDown);
    let screen = keyboard.screen();
    assert!(
        screen.contains("new lines") && !screen.contains(" 30 new lines"),
        "{screen}"
    );
}

#[test]
fn what_one_reads_stays_on_top_at_every_other_size() {
    let (mut keyboard, _) = long();
    for _ in 0..5 {
        keyboard.code(KeyCode::PageUp);
    }
    let before = first(&keyboard.screen());
    let number = before.split(' ').nth(1).unwrap().to_owned();
    for (width, height) in [(40, 10), (120, 40), (61, 17), (200, 50), (80, 24)] {
        let screen = text(&mut keyboard.view, &keyboard.chats.state, width, height);
        assert!(
            first(&screen).contains(&format!("line {number} ")),
            "{width}x{height}\n{screen}"
        );
    }
}

#[test]
fn every_row_can_be_reached_from_the_first_to_the_last() {
    let (mut keyboard, _) = long();
    keyboard.press(KeyModifiers::CONTROL, KeyCode::Home);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..210 {
        let screen = keyboard.screen();
        seen.extend(
            screen
                .lines()
                .filter_map(|l| l.split("line ").nth(1)?.split(' ').next()?.parse::<u32>().ok()),
        );
        keyboard.press(KeyModifiers::CONTROL, KeyCode::Down);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
}

#[test]
fn home_and_end_scroll_with_an_empty_draft_and_move_the_caret_else() {
    let (mut keyboard, _) = long();
    keyboard.code(KeyCode::Home);
    assert_eq!(first(&keyboard.screen()), "› count");
    keyboard.code(KeyCode::End);
    keyboard.type_text("abc");
    keyboard.code(KeyCode::Home);
    assert_eq!(keyboard.caret(), 0);
    assert!(keyboard.screen().contains("line 199 "));
}

#[test]
fn sending_a_prompt_goes_to_the_end() {
    let (mut keyboard, request) = long();
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    keyboard.code(KeyCode::PageUp);
    keyboard.type_text("next");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("› next"));
}

#[test]
fn the_screen_shows_what_is_kept_when_an_answer_ends() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "q");
    let answer = "Some *text*.\n\n```rust\nfn main() {}\n```\n\n| a |\n|---|\n| b |\n\nThe end of it.";
    let mut keyboard = Keyboard::new(chats);
    for c in answer.chars() {
        keyboard.chats.says(request, &c.to_string());
        let screen = keyboard.screen();
        let fresh = text(&mut view(no_color()), &keyboard.chats.state, 80, 24);
        assert_eq!(screen, fresh, "what came before leaves no trace");
    }
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    let screen = keyboard.screen();
    for line in [
        "Some text.",
        "rust ─",
        "[1] copy",
        "fn main() {}",
        "│a ",
        "│b ",
        "The end of it.",
    ] {
        assert!(screen.contains(line), "{line:?} in\n{screen}");
    }
    assert!(!screen.contains('▍'));
}
