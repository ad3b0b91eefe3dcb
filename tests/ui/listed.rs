//! Stored conversations as they are listed: pinned, archived, open elsewhere; and what they take of the model's room.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Access, Event, Report, replay};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::overlay::Overlay;

use super::picker::store_talk;
use super::support::*;

fn alt(keyboard: &mut Keyboard, c: char) {
    keyboard.press(KeyModifiers::ALT, KeyCode::Char(c));
}

fn line<'a>(screen: &'a str, word: &str) -> &'a str {
    let found = screen.lines().find(|line| line.contains(word));
    found.unwrap_or_else(|| panic!("no {word:?} in\n{screen}"))
}

#[test]
fn conversations_are_pinned_and_archived_in_the_picker() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let old = store_talk(&mut keyboard.store, 1, "Rivers", "why?", "banks");
    let new = store_talk(&mut keyboard.store, 2, "Pearls", "why?", "oysters");
    let shown = |keyboard: &Keyboard| match &keyboard.view.overlay {
        Some(Overlay::Sessions(picker)) => picker.shown(),
        other => panic!("{other:?}"),
    };
    alt(&mut keyboard, 'o');
    assert_eq!(shown(&keyboard), [new, old]);
    keyboard.code(KeyCode::Down);
    alt(&mut keyboard, 'p');
    assert!(line(&keyboard.screen(), "Rivers").contains("pinned"));
    assert_eq!(shown(&keyboard), [old, new], "it is the first one at once");
    alt(&mut keyboard, 'h');
    assert!(
        line(&keyboard.screen(), "Rivers").contains("pinned, archived"),
        "and still selected"
    );
    assert_eq!(shown(&keyboard), [old, new], "it stays until the list closes");
    assert!(keyboard.screen().contains(" 2 of 2"), "{}", keyboard.screen());
    keyboard.code(KeyCode::Esc);
    alt(&mut keyboard, 'o');
    assert_eq!(shown(&keyboard), [new]);
    let screen = keyboard.screen();
    assert!(screen.contains("1 of 2; Alt-l lists 1 archived, too"), "{screen}");
    alt(&mut keyboard, 'l');
    assert_eq!(shown(&keyboard), [old, new]);
    assert!(line(&keyboard.screen(), "Rivers").contains("archived"));
    alt(&mut keyboard, 'h');
    assert!(!keyboard.store.load(old).unwrap().marks.archived);
}

#[test]
fn what_is_found_by_its_text_shows_how_it_is_listed_and_can_be_listed_otherwise() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let talk = store_talk(&mut keyboard.store, 1, "Rivers", "why?", "banks erode");
    alt(&mut keyboard, 'o');
    alt(&mut keyboard, 'h');
    keyboard.code(KeyCode::Esc);
    alt(&mut keyboard, 'o');
    keyboard.code(KeyCode::Tab);
    keyboard.type_text("erode");
    assert!(
        line(&keyboard.screen(), "banks erode").contains("archived"),
        "{}",
        keyboard.screen()
    );
    alt(&mut keyboard, 'h');
    alt(&mut keyboard, 'p');
    let marks = keyboard.store.load(talk).unwrap().marks;
    assert!(marks.pinned && !marks.archived);
    let screen = keyboard.screen();
    assert!(
        line(&screen, "banks erode").contains("pinned") && !line(&screen, "banks erode").contains("archived"),
        "{screen}"
    );
}

#[test]
fn a_row_shows_how_it_is_listed_beside_where_it_is_open() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    store_talk(&mut keyboard.store, 1, "Rivers", "why?", "banks erode");
    alt(&mut keyboard, 'o');
    keyboard.code(KeyCode::Enter);
    alt(&mut keyboard, 'o');
    alt(&mut keyboard, 'p');
    assert!(
        line(&keyboard.screen(), "Rivers").contains("pane 1, pinned"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn what_another_process_has_open_is_refused_when_it_is_struck_out_and_by_its_title() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let talk = store_talk(&mut keyboard.store, 1, "Rivers", "why?", "banks erode");
    let mut other = keyboard.store.reader();
    other.resume(talk).unwrap();
    alt(&mut keyboard, 'o');
    keyboard.ctrl('x');
    let screen = keyboard.screen();
    assert!(
        screen.contains("\"Rivers\" is open in another process: close it there first"),
        "{screen}"
    );
    assert!(!screen.contains("deleted when this closes"), "{screen}");
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.store.load(talk).is_ok());
    other.release(talk);
    alt(&mut keyboard, 'o');
    keyboard.ctrl('x');
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.store.load(talk).is_err());
}

#[test]
fn tokens_that_nobody_counted_are_estimated_and_told_so() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("talk.json");
    let talk =
        r#"[{"role": "user", "content": "0123456789"}, {"role": "assistant", "content": "0123456789"}]"#;
    std::fs::write(&file, talk).unwrap();
    keyboard.type_text(&format!("/import {}", file.display()));
    keyboard.code(KeyCode::Enter);
    alt(&mut keyboard, 'o');
    keyboard.code(KeyCode::Enter);
    let title = keyboard.screen().lines().nth(1).unwrap().to_owned();
    assert!(title.contains(" ~5/8192"), "{title}");
    // What a model counted is exact, another model's count is not.
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "hello");
    chats.says(request, "hi");
    chats.finishes(request, FinishReason::Stop, None);
    let counted = chats.state.focused_pane().clone();
    let shown = |model: &str| {
        let mut chats = Chats::new(1);
        chats.tell(Event::NewEngine {
            recommended: Default::default(),
        });
        chats.tell(Event::Snapshot(std::sync::Arc::new(ready())));
        let mut conversation = replay(session(50), []);
        conversation.turns.clone_from(&counted.turns);
        conversation.turns[0].at -= jiff::SignedDuration::from_secs(9);
        conversation.model = model.to_owned();
        chats.tell(Event::Writer(Report::Opened {
            conversation: Box::new(conversation),
            access: Access::Write,
        }));
        let mut keyboard = Keyboard::new(chats);
        keyboard.screen().lines().nth(1).unwrap().to_owned()
    };
    let own = ready().info.model;
    assert!(shown(&own).contains(" 540/8192"), "{}", shown(&own));
    assert!(shown("another").contains(" ~2/8192"), "{}", shown("another"));
}

#[test]
fn the_footer_of_a_conversation_that_is_only_read_names_no_key_to_send() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let footer = |keyboard: &mut Keyboard| keyboard.screen().lines().last().unwrap().to_owned();
    assert!(footer(&mut keyboard).contains("Enter send"));
    keyboard.chats.tell(Event::NewPane { session: session(50) });
    keyboard.chats.tell(Event::Writer(Report::Opened {
        conversation: Box::new(replay(session(3), [])),
        access: Access::Elsewhere,
    }));
    let shown = footer(&mut keyboard);
    assert!(!shown.contains("send") && shown.contains("F1 help"), "{shown}");
    // Its draft goes to the other pane.
    keyboard.chats.tell(Event::ToggleBroadcast);
    assert!(footer(&mut keyboard).contains("Enter send"));
}
