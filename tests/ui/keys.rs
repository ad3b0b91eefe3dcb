//! What keys and pastes do.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Event, NoticeKind, Status};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::view::Screen;

use super::support::*;

const NONE: KeyModifiers = KeyModifiers::NONE;

#[test]
fn typed_text_is_sent_by_enter() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.type_text("hello");
    assert_eq!(keyboard.draft(), "hello");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "");
    assert_eq!(keyboard.chats.submitted.len(), 1);
    assert!(keyboard.screen().contains("› hello"));
}

#[test]
fn every_newline_key_begins_a_line_and_sends_nothing() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("a");
    keyboard.ctrl('j');
    keyboard.press(KeyModifiers::ALT, KeyCode::Enter);
    keyboard.press(KeyModifiers::SHIFT, KeyCode::Enter);
    keyboard.type_text("b");
    assert_eq!(keyboard.draft(), "a\n\n\nb");
    assert!(keyboard.chats.submitted.is_empty());
}

#[test]
fn a_paste_never_sends() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let reactions = keyboard
        .view
        .paste("first\nsecond\r\nthird\n", &keyboard.chats.state);
    keyboard.react(reactions);
    assert_eq!(keyboard.draft(), "first\nsecond\nthird\n");
    assert!(keyboard.chats.submitted.is_empty());
}

#[test]
fn a_paste_that_is_not_marked_never_sends_its_inner_lines() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for c in "first\rsecond\r\rthird\r".chars() {
        let code = if c == '\r' {
            KeyCode::Enter
        } else {
            KeyCode::Char(c)
        };
        keyboard.burst(NONE, code);
    }
    keyboard.screen();
    assert_eq!(keyboard.draft(), "first\nsecond\n\nthird\n");
    assert!(keyboard.chats.submitted.is_empty());
}

#[test]
fn one_line_with_its_enter_in_a_burst_is_sent_once_nothing_follows() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for c in "hello".chars() {
        keyboard.burst(NONE, KeyCode::Char(c));
    }
    keyboard.burst(NONE, KeyCode::Enter);
    assert!(keyboard.chats.submitted.is_empty());
    assert!(keyboard.view.burst.due().is_some());
    let reactions = keyboard.view.settle(&keyboard.chats.state);
    keyboard.react(reactions);
    assert_eq!(keyboard.chats.submitted.len(), 1);
    assert_eq!(keyboard.chats.state.focused_pane().turns[0].prompt, "hello");
}

#[test]
fn a_key_after_a_burst_sends_it_first() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.burst(NONE, KeyCode::Char('a'));
    keyboard.burst(NONE, KeyCode::Enter);
    keyboard.burst(NONE, KeyCode::Tab);
    assert_eq!(keyboard.chats.submitted.len(), 1);
    assert_eq!(keyboard.chats.state.focused(), pane(2));
    assert_eq!(keyboard.chats.state.pane(pane(1)).unwrap().turns.len(), 1);
}

/// What ^C does in a state.
#[derive(Debug, PartialEq)]
enum Effect {
    Clears,
    Stops,
    Arms,
    Quits,
}

fn interrupt(keyboard: &mut Keyboard) -> Effect {
    let (draft, stopped) = (keyboard.draft().to_owned(), keyboard.chats.cancelled.len());
    keyboard.ctrl('c');
    match () {
        () if keyboard.chats.state.quitting() => Effect::Quits,
        () if keyboard.draft() != draft => Effect::Clears,
        () if keyboard.chats.cancelled.len() > stopped => Effect::Stops,
        () => Effect::Arms,
    }
}

#[test]
fn interrupting_clears_then_stops_then_asks_then_quits() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    let request = keyboard.chats.send(1, "go on");
    keyboard.chats.says(request, "text");
    keyboard.type_text("draft");
    assert_eq!(interrupt(&mut keyboard), Effect::Clears);
    assert_eq!(interrupt(&mut keyboard), Effect::Stops);
    assert_eq!(
        interrupt(&mut keyboard),
        Effect::Arms,
        "an answer is asked to stop once"
    );
    assert!(keyboard.screen().contains("Press ^C once more to quit"));
    assert_eq!(interrupt(&mut keyboard), Effect::Quits);
}

#[test]
fn a_cleared_draft_comes_back_with_up() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("precious");
    assert_eq!(interrupt(&mut keyboard), Effect::Clears);
    keyboard.code(KeyCode::Up);
    assert_eq!(keyboard.draft(), "precious");
}

#[test]
fn the_second_press_counts_for_a_second_and_other_keys_end_it() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    assert_eq!(interrupt(&mut keyboard), Effect::Arms);
    keyboard.now += std::time::Duration::from_secs(1);
    assert_eq!(interrupt(&mut keyboard), Effect::Arms, "too late");
    keyboard.code(KeyCode::Left);
    assert!(!keyboard.screen().contains("once more"));
    assert_eq!(interrupt(&mut keyboard), Effect::Arms);
    assert_eq!(interrupt(&mut keyboard), Effect::Quits);
}

#[test]
fn interrupting_works_while_the_model_loads_and_on_the_dashboard() {
    let mut keyboard = Keyboard::new(Chats::new(1));
    keyboard.type_text("waits");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.chats.state.focused_pane().queued.is_some());
    assert_eq!(
        interrupt(&mut keyboard),
        Effect::Clears,
        "the prompt that waits returns to the draft"
    );
    assert_eq!(keyboard.draft(), "waits");
    keyboard.code(KeyCode::F(2));
    assert_eq!(
        interrupt(&mut keyboard),
        Effect::Arms,
        "a draft that isn't seen stays"
    );
    assert_eq!(interrupt(&mut keyboard), Effect::Quits);
}

#[test]
fn control_d_quits_with_an_empty_draft_and_deletes_else() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("ab");
    keyboard.press(KeyModifiers::CONTROL, KeyCode::Char('a'));
    keyboard.ctrl('d');
    assert_eq!(keyboard.draft(), "b");
    keyboard.ctrl('d');
    assert!(!keyboard.chats.state.quitting());
    keyboard.ctrl('d');
    assert!(keyboard.chats.state.quitting());
}

#[test]
fn escape_closes_what_lies_on_top_before_it_stops_an_answer() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "go on");
    keyboard.chats.says(request, "text");
    keyboard.code(KeyCode::F(2));
    keyboard.code(KeyCode::F(1));
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.help.is_none() && keyboard.view.screen == Screen::Dashboard);
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.screen == Screen::Chat && keyboard.chats.cancelled.is_empty());
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.chats.cancelled, [request]);
    keyboard.chats.finishes(request, FinishReason::Cancelled, None);
    let turn = &keyboard.chats.state.focused_pane().turns[0];
    assert!(matches!(turn.status, Status::Stopped { .. }) && turn.answer == "text");
}

#[test]
fn control_d_with_a_draft_says_what_quits() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("ab");
    keyboard.ctrl('d');
    assert_eq!(keyboard.draft(), "ab");
    let told = &keyboard.chats.told().text;
    assert_eq!(told, "^D quits once the draft is empty: ^C clears it");
    for key in [
        (KeyModifiers::NONE, KeyCode::F(2)),
        (KeyModifiers::ALT, KeyCode::Char('v')),
    ] {
        keyboard.press(key.0, key.1);
        keyboard.ctrl('d');
        let told = &keyboard.chats.told().text;
        assert_eq!(told, "^D quits once the draft is empty: Esc goes back to it");
        keyboard.code(KeyCode::Esc);
    }
    assert_eq!((keyboard.draft(), keyboard.chats.state.quitting()), ("ab", false));
}

#[test]
fn a_page_of_the_help_is_a_screen_less_a_line() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.code(KeyCode::F(1));
    let rows = |screen: &str| -> Vec<String> { screen.lines().map(str::to_owned).collect() };
    let before = rows(&keyboard.screen());
    keyboard.code(KeyCode::PageDown);
    let after = rows(&keyboard.screen());
    assert_eq!(before[22], after[1], "the last line is the first one now");
    keyboard.code(KeyCode::PageUp);
    assert_eq!(rows(&keyboard.screen()), before);
}

#[test]
fn panes_are_reached_by_tab_and_by_number() {
    let mut keyboard = Keyboard::new(Chats::ready(3));
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.chats.state.focused(), pane(2));
    keyboard.press(KeyModifiers::SHIFT, KeyCode::BackTab);
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('3'));
    assert_eq!(keyboard.chats.state.focused(), pane(3));
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('9'));
    assert_eq!(keyboard.chats.state.focused(), pane(3), "there is no pane 9");
    keyboard.code(KeyCode::F(4));
    assert_eq!(keyboard.chats.state.focused(), pane(4));
    keyboard.code(KeyCode::F(8));
    assert_eq!(keyboard.chats.state.panes().len(), 3);
}

#[test]
fn each_pane_keeps_its_own_draft() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.type_text("one");
    keyboard.code(KeyCode::Tab);
    keyboard.type_text("two");
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), "one");
}

#[test]
fn broadcast_is_shown_and_sends_to_all_panes() {
    let mut keyboard = Keyboard::new(Chats::ready(3));
    keyboard.code(KeyCode::F(3));
    assert!(keyboard.screen().contains("to all 3 panes"));
    keyboard.type_text("hi");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.submitted.len(), 3);
    keyboard.code(KeyCode::F(3));
    assert!(keyboard.screen().contains("to 1 hi"));
}

#[test]
fn zoom_shows_the_focused_pane_alone() {
    let mut keyboard = Keyboard::new(working(2));
    assert!(keyboard.screen().contains("same, but in one sentence"));
    keyboard.code(KeyCode::F(7));
    let screen = keyboard.screen();
    assert!(
        !screen.contains("same, but") && screen.contains("+1 pane "),
        "{screen}"
    );
}

#[test]
fn history_goes_back_and_forth_and_gives_the_draft_back() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for prompt in ["one", "two"] {
        let request = keyboard.chats.send(1, prompt);
        keyboard.chats.finishes(request, FinishReason::Stop, None);
    }
    keyboard.type_text("draft");
    let mut seen = Vec::new();
    for code in [
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Down,
    ] {
        keyboard.code(code);
        seen.push(keyboard.draft().to_owned());
    }
    assert_eq!(seen, ["two", "one", "one", "two", "draft"]);
    assert_eq!(keyboard.caret(), 5);
    // Who stays at an older prompt, or sends it, finds the draft in the history.
    keyboard.code(KeyCode::Up);
    keyboard.type_text("!");
    assert_eq!(keyboard.draft(), "two!");
    keyboard.code(KeyCode::Up);
    assert_eq!(keyboard.draft(), "draft");
    keyboard.ctrl('c');
    keyboard.code(KeyCode::Up);
    keyboard.code(KeyCode::Up);
    assert_eq!(keyboard.draft(), "draft");
}

#[test]
fn up_and_down_move_within_a_draft_of_several_rows_first() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "earlier");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    keyboard.type_text("a");
    keyboard.ctrl('j');
    keyboard.type_text("b");
    keyboard.code(KeyCode::Up);
    assert_eq!((keyboard.draft(), keyboard.caret()), ("a\nb", 1));
    keyboard.code(KeyCode::Up);
    assert_eq!(keyboard.draft(), "earlier");
    keyboard.code(KeyCode::Down);
    assert_eq!(keyboard.draft(), "a\nb");
}

#[test]
fn the_composer_grows_with_its_draft_and_scrolls_then() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for n in 0..20 {
        keyboard.type_text(&n.to_string());
        keyboard.ctrl('j');
    }
    let screen = keyboard.screen();
    assert!(screen.contains("│19") && !screen.contains("│3 "), "{screen}");
    assert!(screen.contains("21/21"), "{screen}");
    let (_, cursor) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    assert_eq!(cursor, Some((1, 19)));
}

#[test]
fn freezing_holds_the_figures_and_not_the_engine() {
    let mut keyboard = Keyboard::new(working(2));
    keyboard.code(KeyCode::F(2));
    keyboard.code(KeyCode::Char(' '));
    let mut later = busy();
    later.steps = 20_000;
    keyboard.chats.tell(Event::Snapshot(std::sync::Arc::new(later)));
    let frozen = keyboard.screen();
    assert!(
        frozen.contains("view frozen") && frozen.contains("step 18442"),
        "{frozen}"
    );
    keyboard.code(KeyCode::Char(' '));
    let live = keyboard.screen();
    assert!(live.contains("live") && live.contains("step 20000"), "{live}");
    assert_eq!(
        keyboard.draft(),
        "write a test for inv_freq",
        "space isn't typed there"
    );
}

#[test]
fn suspending_is_asked_for_by_control_z() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.ctrl('z');
    assert!(keyboard.suspended);
}

#[test]
fn the_help_names_every_key_of_the_table() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.code(KeyCode::F(1));
    let help = text(&mut keyboard.view, &keyboard.chats.state, 120, 220);
    for binding in mlx_chat::ui::keymap::BINDINGS {
        assert!(
            help.contains(binding.help) && help.contains(binding.name),
            "{}",
            binding.name
        );
    }
    assert!(
        help.contains("/new-conversation clear"),
        "a long name and what it is for are kept apart"
    );
    keyboard.code(KeyCode::F(1));
    assert!(keyboard.view.help.is_none());
}

#[test]
fn the_help_is_searched() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.code(KeyCode::F(1));
    keyboard.type_text("/UNDO pane");
    let help = |keyboard: &mut Keyboard| text(&mut keyboard.view, &keyboard.chats.state, 100, 30);
    let found = help(&mut keyboard);
    assert!(found.contains("undo takes it back"), "{found}");
    assert!(
        found.contains("/ UNDO pane") && !found.contains("Enter"),
        "{found}"
    );
    keyboard.view.paste("qq", &keyboard.chats.state);
    assert!(help(&mut keyboard).contains("nothing matches"));
    keyboard.code(KeyCode::Esc);
    assert!(help(&mut keyboard).contains("/ searches"));
    keyboard.type_text("q");
    assert!(keyboard.view.help.is_none());
    assert!(keyboard.chats.state.focused_pane().draft.is_blank());
}

#[test]
fn a_message_leaves_the_way_to_the_keys_in_sight_and_none_comes_back_after_another() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for text in ["an older warning", &"a newer one ".repeat(20)] {
        let (kind, text) = (NoticeKind::Warning, text.to_owned());
        keyboard.chats.tell(Event::Notice { kind, text });
    }
    let screen = keyboard.screen();
    let footer = screen.lines().last().unwrap();
    assert!(
        footer.contains("a newer one") && footer.ends_with("F1 help"),
        "{footer}"
    );
    keyboard.ctrl('c');
    assert!(keyboard.screen().contains("once more to quit"));
    keyboard.code(KeyCode::Left);
    let screen = keyboard.screen();
    assert!(screen.contains("Enter send"), "the keys are back: {screen}");
}
