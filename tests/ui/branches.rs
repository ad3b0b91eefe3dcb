//! The keys of a conversation's branches and of panes that come back, and how siblings look.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::engine::FinishReason;

use super::support::*;

const ALT: KeyModifiers = KeyModifiers::ALT;

/// A pane with an answer that was given twice.
fn twice() -> Keyboard {
    let mut chats = Chats::ready(1);
    let first = chats.send(1, "why?");
    chats.says(first, "because");
    chats.finishes(first, FinishReason::Stop, None);
    let mut keyboard = Keyboard::new(chats);
    keyboard.code(KeyCode::F(5));
    let second = *keyboard.chats.submitted.last().unwrap();
    keyboard.chats.says(second, "who knows");
    keyboard.chats.finishes(second, FinishReason::Stop, None);
    keyboard
}

fn alt(keyboard: &mut Keyboard, code: KeyCode) -> String {
    keyboard.press(ALT, code);
    keyboard.screen()
}

#[test]
fn an_answer_once_more_is_marked_and_the_first_one_is_a_key_away() {
    let mut keyboard = twice();
    let screen = keyboard.screen();
    assert!(
        screen.contains("‹2/2›") && screen.contains("who knows"),
        "{screen}"
    );
    assert!(
        screen.contains("Alt-Up and Alt-Down show the other versions."),
        "{screen}"
    );
    let screen = alt(&mut keyboard, KeyCode::Up);
    assert!(screen.contains("‹1/2›") && screen.contains("because"), "{screen}");
    assert!(!screen.contains("who knows"), "{screen}");
    let screen = alt(&mut keyboard, KeyCode::Down);
    assert!(
        screen.contains("‹2/2›") && screen.contains("who knows"),
        "{screen}"
    );
}

#[test]
fn that_a_greedy_answer_stays_the_same_is_told_with_the_key_that_changes_that() {
    let keyboard = twice();
    let told: Vec<_> = keyboard.chats.state.told().collect();
    assert_eq!(told.len(), 1);
    let mut keyboard = keyboard;
    keyboard.code(KeyCode::F(9));
    let screen = keyboard.screen();
    assert!(
        screen.contains("nothing is drawn at random in pane 1"),
        "{screen}"
    );
    assert!(screen.contains("Alt-s gives it"), "{screen}");
}

#[test]
fn the_marker_stands_above_its_prompt_and_has_an_ascii_twin() {
    let keyboard = twice();
    for (styles, expected) in [(no_color(), "‹2/2›\n› why?"), (ascii(), "<2/2>\n> why?")] {
        let screen = text(&mut view(styles), &keyboard.chats.state, 80, 24);
        let inside: Vec<&str> = screen
            .lines()
            .map(|line| line.trim_matches(['│', '|', ' ']))
            .collect();
        assert!(inside.join("\n").contains(expected), "{screen}");
    }
}

#[test]
fn a_prompt_is_edited_in_the_draft_and_the_composer_says_so() {
    let mut keyboard = twice();
    keyboard.type_text("later");
    let screen = alt(&mut keyboard, KeyCode::Char('e'));
    assert_eq!(keyboard.draft(), "why?");
    assert!(
        screen.contains("edits prompt 1") && screen.contains("(Esc gives it up)"),
        "{screen}"
    );
    keyboard.type_text("!");
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.draft(), "later");
    assert!(!keyboard.screen().contains("edits prompt"));
    keyboard.code(KeyCode::Up);
    assert_eq!(keyboard.draft(), "why?!", "what was given up is in the history");
}

#[test]
fn an_edited_prompt_is_sent_by_enter_as_a_sibling() {
    let mut keyboard = twice();
    alt(&mut keyboard, KeyCode::Char('e'));
    keyboard.type_text("!");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(screen.contains("‹3/3›") && screen.contains("› why?!"), "{screen}");
    assert_eq!(keyboard.draft(), "");
}

#[test]
fn another_branch_is_drawn_anew_from_where_it_begins() {
    let mut chats = Chats::ready(1);
    for prompt in ["one", "two", "three", "four"] {
        let request = chats.send(1, prompt);
        chats.says(request, &format!("to {prompt}"));
        chats.finishes(request, FinishReason::Stop, None);
    }
    let mut keyboard = Keyboard::new(chats);
    for _ in 0..3 {
        alt(&mut keyboard, KeyCode::Char('e'));
    }
    assert_eq!(keyboard.draft(), "two");
    keyboard.type_text("!");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(screen.contains("to one") && screen.contains("two!"), "{screen}");
    assert!(
        !screen.contains("three") && !screen.contains("to two"),
        "{screen}"
    );
}

#[test]
fn panes_are_forked_closed_reopened_and_moved_by_keys() {
    let mut keyboard = twice();
    keyboard.code(KeyCode::F(6));
    let state = &keyboard.chats.state;
    assert_eq!((state.panes().len(), state.focused()), (2, pane(2)));
    assert_eq!(state.focused_pane().turns[0].answer, "who knows");
    let fork = state.focused_pane().session;
    keyboard.press(ALT | KeyModifiers::SHIFT, KeyCode::Left);
    assert_eq!(keyboard.chats.state.pane(pane(1)).unwrap().session, fork);
    keyboard.code(KeyCode::F(8));
    assert_eq!(keyboard.chats.state.panes().len(), 1);
    alt(&mut keyboard, KeyCode::Char('u'));
    assert_eq!(keyboard.chats.state.focused_pane().session, fork);
    keyboard.press(ALT | KeyModifiers::SHIFT, KeyCode::Right);
    assert_eq!(keyboard.chats.state.pane(pane(2)).unwrap().session, fork);
}

#[test]
fn a_fork_ends_with_the_message_that_is_selected_and_one_writes_there() {
    let mut chats = Chats::ready(1);
    for prompt in ["one", "two"] {
        let request = chats.send(1, prompt);
        chats.says(request, "an answer");
        chats.finishes(request, FinishReason::Stop, None);
    }
    for (selected, prompts, draft) in [("[[", 1, "two"), ("[[[", 1, ""), ("[[[[", 0, "one")] {
        let mut keyboard = Keyboard::new(chats.clone());
        alt(&mut keyboard, KeyCode::Char('v'));
        keyboard.type_text(selected);
        keyboard.code(KeyCode::F(6));
        let pane = keyboard.chats.state.focused_pane();
        assert_eq!(
            (pane.turns.len(), pane.draft.text()),
            (prompts, draft),
            "{selected}"
        );
        keyboard.type_text("!");
        assert_eq!(keyboard.draft(), format!("{draft}!"));
    }
}

#[test]
fn what_has_no_other_version_says_so() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let screen = alt(&mut keyboard, KeyCode::Up);
    assert!(screen.contains("there is no other version here"), "{screen}");
}
