//! What concerns how panes answer, and several of them: who takes part, comparison, private panes.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Event, Write};
use mlx_chat::engine::FinishReason;

use super::picker::store_talk;
use super::support::*;

const ALT: KeyModifiers = KeyModifiers::ALT;

pub fn alt(keyboard: &mut Keyboard, c: char) {
    keyboard.press(ALT, KeyCode::Char(c));
}

#[test]
fn who_takes_part_is_marked_and_told_in_the_composer() {
    let mut keyboard = Keyboard::new(Chats::ready(3));
    keyboard.code(KeyCode::F(3));
    assert!(keyboard.screen().contains("to all 3 panes"));
    let marks = |keyboard: &mut Keyboard| {
        let screen = text(&mut keyboard.view, &keyboard.chats.state, 160, 30);
        screen.matches('»').count()
    };
    assert_eq!(marks(&mut keyboard), 3);
    keyboard.code(KeyCode::Tab);
    alt(&mut keyboard, 'j');
    assert_eq!(marks(&mut keyboard), 2);
    assert!(
        keyboard.screen().contains("to panes 1, 3"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("hi");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.submitted.len(), 2);
}

#[test]
fn panes_that_would_answer_alike_are_told_when_broadcast_begins() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.code(KeyCode::F(3));
    assert!(
        keyboard.screen().contains("all panes will answer alike"),
        "{}",
        keyboard.screen()
    );
}

/// Two panes that answered the same prompt.
fn answered() -> Keyboard {
    let mut chats = Chats::ready(2);
    for (number, answer) in [(1, "the short one"), (2, "the long and winding one")] {
        let request = chats.send(number, "which way?");
        chats.says(request, answer);
        chats.finishes(request, FinishReason::Stop, None);
    }
    chats.tell(Event::Focus(pane(1)));
    Keyboard::new(chats)
}

#[test]
fn answers_stand_side_by_side_and_one_is_kept() {
    let mut keyboard = answered();
    alt(&mut keyboard, 'c');
    let screen = keyboard.screen();
    assert!(
        screen.contains("the short one") && screen.contains("the long and winding one"),
        "{screen}"
    );
    assert!(
        screen.contains("keeps it") && screen.contains("1 of 2"),
        "{screen}"
    );
    keyboard.code(KeyCode::Right);
    assert!(keyboard.screen().contains("2 of 2"));
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.overlay.is_none());
    assert_eq!(keyboard.chats.state.focused(), pane(2));
    assert!(keyboard.chats.state.pane(pane(1)).unwrap().turns.is_empty());
    let screen = keyboard.screen();
    assert!(screen.contains("Alt-Down shows them again"), "{screen}");
    keyboard.press(ALT, KeyCode::Char('1'));
    keyboard.press(ALT, KeyCode::Down);
    assert!(keyboard.screen().contains("the short one"), "nothing is lost");
}

#[test]
fn a_comparison_needs_two_answers_and_is_written_to_a_file() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 'c');
    assert!(keyboard.view.overlay.is_none());
    assert!(keyboard.chats.told().text.contains("no answer here yet"));
    let mut keyboard = answered();
    let file = keyboard.folder.path().join("both.md");
    keyboard.type_text(&format!("/export-comparison {}", file.display()));
    keyboard.code(KeyCode::Enter);
    let written = std::fs::read_to_string(file).unwrap();
    assert!(
        written.contains("the short one") && written.contains("winding"),
        "{written}"
    );
}

#[test]
fn the_new_overlays_draw_at_every_size() {
    for open in ['s', 'p', 'c'] {
        let mut keyboard = answered();
        alt(&mut keyboard, open);
        assert!(keyboard.view.overlay.is_some());
        for width in 0..90 {
            for height in 0..28 {
                draw(&mut keyboard.view, &keyboard.chats.state, width, height);
            }
        }
    }
}

#[test]
fn an_answer_that_was_cut_off_says_how_it_goes_on() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "count");
    chats.says(request, "one two");
    chats.finishes(request, FinishReason::Length, None);
    let mut keyboard = Keyboard::new(chats);
    assert!(
        keyboard.screen().contains("Alt-n has the answer go on."),
        "{}",
        keyboard.screen()
    );
    alt(&mut keyboard, 'n');
    let request = *keyboard.chats.submitted.last().unwrap();
    assert!(keyboard.chats.state.focused_pane().running().is_some());
    // It may have gone on and ended before anything is drawn.
    keyboard.chats.says(request, " three");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    let screen = keyboard.screen();
    assert!(
        screen.contains("one two three") && !screen.contains("go on"),
        "{screen}"
    );
    let mut other = Keyboard::new(Chats::ready(1));
    other.type_text("/continue");
    other.code(KeyCode::Enter);
    assert!(
        other
            .chats
            .told()
            .text
            .contains("no answer here that was cut off")
    );
}

#[test]
fn that_an_answer_goes_on_is_said_of_the_last_one_alone_and_of_a_stopped_one_too() {
    let mut chats = Chats::ready(1);
    for (prompt, end) in [
        ("one", FinishReason::Length),
        ("two", FinishReason::Stop),
        ("three", FinishReason::Cancelled),
    ] {
        let request = chats.send(1, prompt);
        chats.says(request, "some");
        chats.finishes(request, end, None);
        let hints = text(&mut view(no_color()), &chats.state, 80, 40)
            .matches("Alt-n has the answer go on.")
            .count();
        assert_eq!(hints, usize::from(end != FinishReason::Stop), "{prompt}");
    }
    let mut keyboard = Keyboard::new(chats);
    alt(&mut keyboard, 'n');
    assert!(keyboard.chats.state.focused_pane().running().is_some());
}

#[test]
fn a_new_conversation_is_begun_by_words_that_newcomers_use() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "old");
    chats.says(request, "an old answer");
    chats.finishes(request, FinishReason::Stop, None);
    let mut keyboard = Keyboard::new(chats);
    keyboard.type_text("/new");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(!screen.contains("an old answer"), "{screen}");
    let told = "a new conversation in pane 1; the one before is kept: Alt-u reopens it";
    assert!(screen.contains(told), "{screen}");
    alt(&mut keyboard, 'u');
    assert!(keyboard.screen().contains("an old answer"));
    keyboard.ctrl('p');
    keyboard.type_text("new chat");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.chats.state.focused_pane().turns.is_empty());
}

#[test]
fn a_pane_that_is_closed_while_it_answers_says_that_the_answer_is_stopped() {
    let mut chats = Chats::ready(2);
    chats.send(1, "long");
    let mut keyboard = Keyboard::new(chats);
    keyboard.code(KeyCode::F(8));
    let screen = keyboard.screen();
    let told = "pane 1 is closed, its answer is stopped: Alt-u reopens it";
    assert!(screen.contains(told), "{screen}");
    assert_eq!(keyboard.chats.cancelled.len(), 1);
}

#[test]
fn what_is_put_aside_names_the_way_there_and_back() {
    let mut chats = Chats::ready(2);
    chats.tell(Event::ToggleBroadcast);
    chats.tell(Event::Draft(mlx_chat::chat::Draft::at_end("why?")));
    chats.tell(Event::Submit);
    for request in chats.submitted.clone() {
        chats.says(request, "because");
        chats.finishes(request, FinishReason::Stop, None);
    }
    let mut keyboard = Keyboard::new(chats);
    alt(&mut keyboard, 'c');
    keyboard.code(KeyCode::Right);
    keyboard.code(KeyCode::Enter);
    let told = keyboard.screen();
    assert!(told.contains("the answer of pane 2 is kept"), "{told}");
    keyboard.press(ALT, KeyCode::Char('1'));
    let aside = "aside: Alt-Down shows them again";
    let back = "Alt-Up puts the prompt and its";
    assert!(keyboard.screen().contains(aside), "{}", keyboard.screen());
    keyboard.press(ALT, KeyCode::Down);
    let screen = keyboard.screen();
    assert!(screen.contains(back) && !screen.contains(aside), "{screen}");
    keyboard.press(ALT, KeyCode::Up);
    let screen = keyboard.screen();
    assert!(screen.contains(aside) && !screen.contains(back), "{screen}");
}

#[test]
fn where_there_is_nothing_to_compare_the_keys_that_change_that_are_named() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    alt(&mut keyboard, 'c');
    let told = keyboard.chats.told().text.clone();
    assert!(told.contains("no answer here yet: F3 sends"), "{told}");
    let request = keyboard.chats.send(1, "why?");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    alt(&mut keyboard, 'c');
    let told = keyboard.chats.told().text.clone();
    assert!(told.contains("F5 has it answered once more, F3 sends"), "{told}");
}

#[test]
fn a_private_pane_is_marked_and_writes_nothing() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 'q');
    let screen = keyboard.screen();
    assert!(
        screen.contains("2 private") || screen.contains("2* private"),
        "{screen}"
    );
    assert!(screen.contains("Private: nothing of it is kept."), "{screen}");
    keyboard.chats.writes.clear();
    keyboard.type_text("a secret");
    keyboard.code(KeyCode::Enter);
    let records = |write: &Write| matches!(write, Write::Records { .. });
    assert!(!keyboard.chats.writes.iter().any(records));
    // Nor does another editor get a file of it.
    alt(&mut keyboard, 'g');
    assert!(keyboard.chats.told().text.contains("goes to no file"));
}

#[test]
fn leaving_asks_where_a_private_pane_would_be_lost() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 'q');
    keyboard.type_text("a secret");
    keyboard.press(ALT, KeyCode::Char('1'));
    keyboard.press(KeyModifiers::CONTROL, KeyCode::Char('d'));
    let screen = keyboard.screen();
    assert!(screen.contains("Nothing of a private pane is kept."), "{screen}");
}

#[test]
fn closing_a_pane_tells_how_to_reopen_it() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.code(KeyCode::F(8));
    assert!(keyboard.screen().contains("pane 1 is closed: Alt-u reopens it"));
    alt(&mut keyboard, 'u');
    assert_eq!(
        keyboard.chats.state.panes().len(),
        2,
        "though nothing was said in it"
    );
}

#[test]
fn a_moved_pane_keeps_its_place_of_reading() {
    let mut chats = Chats::ready(2);
    let request = chats.send(1, "long");
    chats.says(request, &"a line\n\n".repeat(60));
    chats.finishes(request, FinishReason::Stop, None);
    let mut keyboard = Keyboard::new(chats);
    keyboard.code(KeyCode::PageUp);
    let top = keyboard.view.pane(pane(1)).transcript.top();
    keyboard.press(ALT.union(KeyModifiers::SHIFT), KeyCode::Right);
    assert_eq!(keyboard.chats.state.focused(), pane(2));
    let transcript = &keyboard.view.pane(pane(2)).transcript;
    assert!(!transcript.follows());
    assert_eq!(transcript.top(), top);
}

#[test]
fn a_deleted_conversation_is_brought_back_after_the_picker_closed() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let talk = store_talk(&mut keyboard.store, 1, "Rivers", "why?", "banks");
    alt(&mut keyboard, 'o');
    keyboard.ctrl('x');
    assert!(keyboard.screen().contains("later Alt-k"), "{}", keyboard.screen());
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.store.load(talk).is_err());
    assert!(
        keyboard
            .screen()
            .contains("\"Rivers\" is deleted: Alt-k brings it back"),
        "{}",
        keyboard.screen()
    );
    alt(&mut keyboard, 'k');
    assert!(keyboard.store.load(talk).is_ok());
    assert!(keyboard.screen().contains("\"Rivers\" is there again"));
}

#[test]
fn conversations_are_imported_from_the_screen() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("talks.jsonl");
    let talk = |number: usize| {
        format!(
            r#"[{{"role": "user", "content": "hello {number}"}}, {{"role": "assistant", "content": "hi"}}]"#
        )
    };
    let talks: Vec<String> = (0..230).map(talk).collect();
    std::fs::write(&file, talks.join("\n")).unwrap();
    keyboard.type_text(&format!("/import {}", file.display()));
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.store.list().unwrap().sessions.len(), 230);
    let told = |keyboard: &Keyboard| -> Vec<String> {
        let notices = keyboard.chats.state.notices().iter();
        notices.map(|notice| notice.text.clone()).collect()
    };
    // How far it was is no news any more.
    assert_eq!(told(&keyboard), ["imported 230 conversations; Alt-o lists them"]);
    // The same file once more, with one that is new.
    std::fs::write(&file, format!("{}\n{}", talks.join("\n"), talk(230))).unwrap();
    keyboard.type_text(&format!("/import {}", file.display()));
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.store.list().unwrap().sessions.len(), 231);
    let text = "imported 1 conversation; imported before, and left as they are: 230; Alt-o lists them";
    assert_eq!(told(&keyboard).last().unwrap(), text);
    keyboard.type_text(&format!("/import {}", file.display()));
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        told(&keyboard).last().unwrap(),
        "all 231 were imported before: nothing is new"
    );
    std::fs::write(&file, "{").unwrap();
    keyboard.type_text(&format!("/import {}", file.display()));
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.chats.told().text.contains("can't import"));
    // What is no file may never end.
    keyboard.type_text(&format!("/import {}", keyboard.folder.path().display()));
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.chats.told().text.contains("no regular file"));
}
