//! Thinking and calls of tools on the screen.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::engine::{self, FinishReason, RequestId};
use mlx_chat::text::spans::Span::{self, Answer, Thinking, ToolCall};
use mlx_chat::text::spans::Spanned;

use super::support::*;

fn says(chats: &mut Chats, request: RequestId, parts: &[(Span, bool, &str)]) {
    let mut text = Spanned::default();
    for (span, marker, part) in parts {
        text.push(*span, *marker, part);
    }
    let event = engine::Event::Token {
        index: 0,
        token: 0,
        text,
        logprob: None,
    };
    chats.engine(request, event);
}

/// A conversation whose answer thinks.
fn thinking() -> (Keyboard, RequestId) {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "why?");
    let thought = [(Thinking, true, "<think>"), (Thinking, false, "\nLet me see.\n")];
    says(&mut chats, request, &thought);
    (Keyboard::new(chats), request)
}

#[test]
fn a_thought_is_read_as_it_streams_and_a_line_once_it_has_ended() {
    let (mut keyboard, request) = thinking();
    let open = keyboard.screen();
    assert!(
        open.contains("◍ thinking") && open.contains("Let me see."),
        "{open}"
    );
    let ends = [(Thinking, true, "</think>"), (Answer, false, "\n\nBecause.")];
    says(&mut keyboard.chats, request, &ends);
    let closed = keyboard.screen();
    assert!(
        closed.contains("◌ thought for") && closed.contains("2 tokens"),
        "{closed}"
    );
    assert!(
        !closed.contains("Let me see.") && closed.contains("Because."),
        "{closed}"
    );
    assert!(!closed.contains("think>"), "{closed}");
}

#[test]
fn thoughts_are_unfolded_and_folded_again_by_a_key() {
    let (mut keyboard, request) = thinking();
    says(
        &mut keyboard.chats,
        request,
        &[(Thinking, true, "</think>"), (Answer, false, "Because.")],
    );
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    for shown in [true, false] {
        keyboard.press(KeyModifiers::CONTROL, KeyCode::Char('t'));
        let screen = keyboard.screen();
        assert_eq!(screen.contains("Let me see."), shown, "{screen}");
        assert!(
            screen.contains("Because.") && screen.contains("thought for"),
            "{screen}"
        );
    }
}

#[test]
fn a_call_of_a_tool_shows_its_name_and_arguments() {
    let (mut keyboard, request) = thinking();
    let call = "\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n";
    says(
        &mut keyboard.chats,
        request,
        &[
            (Thinking, true, "</think>"),
            (ToolCall, true, "<tool_call>"),
            (ToolCall, false, call),
        ],
    );
    says(&mut keyboard.chats, request, &[(ToolCall, true, "</tool_call>")]);
    let screen = keyboard.screen();
    assert!(
        screen.contains("tool call (not run)") && screen.contains(r#"weather {"city":"Bern"}"#),
        "{screen}"
    );
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    assert!(!keyboard.screen().contains("the answer is empty"));
}

#[test]
fn a_call_that_cannot_be_read_is_shown_as_it_is() {
    let (mut keyboard, request) = thinking();
    says(
        &mut keyboard.chats,
        request,
        &[
            (Thinking, true, "</think>"),
            (ToolCall, true, "<tool_call>"),
            (ToolCall, false, "{\"name\": \x1b[2J"),
        ],
    );
    keyboard.chats.finishes(request, FinishReason::Length, None);
    let screen = keyboard.screen();
    assert!(screen.contains("{\"name\": ␛[2J"), "{screen}");
}

#[test]
fn an_answer_that_only_thought_is_called_empty() {
    let (mut keyboard, request) = thinking();
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    let screen = keyboard.screen();
    assert!(
        screen.contains("the answer is empty") && screen.contains("thought for"),
        "{screen}"
    );
}

#[test]
fn thoughts_draw_at_every_small_size() {
    let (mut keyboard, request) = thinking();
    says(
        &mut keyboard.chats,
        request,
        &[
            (Thinking, true, "</think>"),
            (Answer, false, "Because."),
            (ToolCall, false, "{}"),
        ],
    );
    for unfolds in [false, true] {
        for width in 0..46 {
            for height in 0..16 {
                let mut view = view(ascii());
                text(&mut view, &keyboard.chats.state, width, height);
                if unfolds {
                    view.pane(keyboard.chats.state.focused())
                        .transcript
                        .toggle_thoughts();
                    text(&mut view, &keyboard.chats.state, width, height);
                }
            }
        }
    }
}
