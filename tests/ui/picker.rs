//! The picker of stored conversations.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Access, Event, Kind, Record, RecordId, SessionId, Settings, Store};
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::picker::{Picker, Step};
use mlx_chat::ui::worker::{self, Done, Job};

use super::support::*;

/// A conversation of one prompt and its answer, in the store.
pub fn store_talk(store: &mut Store, number: u32, title: &str, prompt: &str, answer: &str) -> SessionId {
    let session = SessionId::from_bits(u128::from(number) + 1000);
    let time = at() + jiff::SignedDuration::from_secs(i64::from(number));
    let kinds = [
        Kind::Session {
            version: 1,
            session,
            model: "tiny".into(),
            settings: Settings::default(),
        },
        Kind::Title { title: title.into() },
        Kind::User {
            text: prompt.into(),
            typed: None,
            turn: 1,
            seed: None,
        },
        Kind::Delta {
            text: answer.into(),
            span: mlx_chat::text::spans::Span::Answer,
            marker: false,
        },
        Kind::Finish {
            reason: mlx_chat::chat::End::Stop,
            stop_reason: None,
            message: None,
            stats: None,
            thoughts: Vec::new(),
            turn: 1,
            title: title.into(),
            tokens: None,
            marks: Default::default(),
        },
    ];
    let record = |(id, kind): (usize, Kind)| Record {
        id: RecordId(id as u64),
        parent: match id {
            0 => None,
            1 | 2 => Some(RecordId(0)),
            _ => Some(RecordId(2)),
        },
        at: time,
        kind,
    };
    let records: Vec<Record> = kinds.into_iter().enumerate().map(record).collect();
    store.append(session, &records).unwrap();
    store.release(session);
    session
}

/// A keyboard over a store with three conversations, the picker open.
fn picking(panes: u8) -> (Keyboard, [SessionId; 3]) {
    let mut keyboard = Keyboard::new(Chats::ready(panes));
    let talks = [
        store_talk(
            &mut keyboard.store,
            1,
            "Rope scaling",
            "explain rope",
            "angles rotate",
        ),
        store_talk(
            &mut keyboard.store,
            2,
            "Rivers",
            "why do rivers wind?",
            "the banks erode",
        ),
        store_talk(
            &mut keyboard.store,
            3,
            "Haiku about caches",
            "a haiku",
            "keys wait in silence",
        ),
    ];
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    (keyboard, talks)
}

fn picker(keyboard: &Keyboard) -> &Picker {
    match &keyboard.view.overlay {
        Some(Overlay::Sessions(picker)) => picker,
        other => panic!("{other:?}"),
    }
}

#[test]
fn conversations_are_listed_newest_first_and_found_by_letters_of_their_titles() {
    let (mut keyboard, talks) = picking(1);
    assert_eq!(picker(&keyboard).shown(), [talks[2], talks[1], talks[0]]);
    assert!(keyboard.screen().contains("3 of 3"), "{}", keyboard.screen());
    keyboard.type_text("ropsc");
    assert_eq!(picker(&keyboard).shown(), [talks[0]]);
    assert!(keyboard.screen().contains("1 of 3"), "{}", keyboard.screen());
    keyboard.ctrl('u');
    assert_eq!(picker(&keyboard).shown().len(), 3);
    keyboard.type_text("xyzzy");
    keyboard.code(KeyCode::Enter);
    assert!(
        matches!(keyboard.view.overlay, Some(Overlay::Sessions(_))),
        "there is nothing to open"
    );
}

#[test]
fn a_conversation_opens_in_the_pane_where_nothing_has_begun() {
    let (mut keyboard, talks) = picking(2);
    keyboard.type_text("rivers");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.overlay.is_none());
    let state = &keyboard.chats.state;
    assert_eq!((state.panes().len(), state.focused()), (2, pane(1)));
    let shown = state.focused_pane();
    assert_eq!((shown.session, &shown.access), (talks[1], &Access::Write));
    assert_eq!(shown.turns[0].answer, "the banks erode");
    assert!(keyboard.screen().contains("the banks erode"));
}

#[test]
fn a_conversation_opens_in_a_new_pane_beside_others_and_is_focused_where_it_is_open() {
    let (mut keyboard, talks) = picking(1);
    keyboard.code(KeyCode::Enter);
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    assert!(keyboard.screen().contains("pane 1"), "{}", keyboard.screen());
    keyboard.type_text("rope");
    keyboard.code(KeyCode::Enter);
    let panes: Vec<SessionId> = keyboard
        .chats
        .state
        .panes()
        .values()
        .map(|pane| pane.session)
        .collect();
    assert_eq!(panes, [talks[2], talks[0]]);
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    keyboard.type_text("haiku");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    assert_eq!(keyboard.chats.state.panes().len(), 2);
}

#[test]
fn tab_searches_what_was_said() {
    let (mut keyboard, talks) = picking(1);
    keyboard.code(KeyCode::Tab);
    assert!(keyboard.screen().contains("text>"), "{}", keyboard.screen());
    keyboard.type_text("SILENCE wait");
    assert_eq!(picker(&keyboard).shown(), [talks[2]]);
    let screen = keyboard.screen();
    assert!(
        screen.contains("keys wait in silence") && screen.contains("1 hit"),
        "{screen}"
    );
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.state.focused_pane().session, talks[2]);
}

#[test]
fn an_answer_to_an_older_question_is_passed_over() {
    let (mut picker, _) = Picker::new();
    let key = crossterm::event::KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE);
    let state = Chats::ready(1).state;
    picker.key(&key, Some(mlx_chat::ui::keymap::Action::SearchText), &state);
    let steps = picker.insert("new");
    let [Step::Work(Job::Search { number, .. })] = &steps[..] else {
        panic!("{steps:?}");
    };
    let hit = |session| mlx_chat::chat::store::Hit {
        session,
        title: "t".into(),
        marks: Default::default(),
        place: mlx_chat::chat::store::Place::Title,
        at: at(),
        line: "t".into(),
    };
    let found = |n| mlx_chat::chat::store::Found {
        hits: vec![hit(session(n))],
        notes: Vec::new(),
    };
    picker.take_found(number - 1, Ok(found(1)));
    assert_eq!(picker.shown(), []);
    picker.take_found(*number, Ok(found(2)));
    assert_eq!(picker.shown(), [session(2)]);
}

#[test]
fn what_is_struck_out_goes_when_the_picker_closes_unless_it_is_taken_back() {
    let (mut keyboard, talks) = picking(1);
    for _ in 0..2 {
        keyboard.ctrl('x');
        keyboard.code(KeyCode::Down);
    }
    let screen = keyboard.screen();
    assert!(
        screen.contains("2 deleted when this closes; ^_ takes the last one back"),
        "{screen}"
    );
    assert!(keyboard.store.load(talks[2]).is_ok(), "nothing is gone yet");
    keyboard.ctrl('_');
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.store.load(talks[2]).is_err());
    assert!(keyboard.store.load(talks[1]).is_ok() && keyboard.store.load(talks[0]).is_ok());
}

#[test]
fn what_is_open_in_a_pane_cannot_be_deleted() {
    let (mut keyboard, talks) = picking(1);
    keyboard.code(KeyCode::Enter);
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    keyboard.ctrl('x');
    assert!(
        keyboard
            .screen()
            .contains("it is open in pane 1: close that first"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.store.load(talks[2]).is_ok());
}

#[test]
fn a_conversation_gets_another_title() {
    let (mut keyboard, talks) = picking(1);
    keyboard.ctrl('r');
    assert!(
        keyboard.screen().contains("new title> Haiku about caches"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Esc);
    keyboard.ctrl('r');
    keyboard.ctrl('u');
    keyboard.type_text("Poems");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("Poems"), "{}", keyboard.screen());
    assert_eq!(keyboard.store.load(talks[2]).unwrap().title, "Poems");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.state.focused_pane().title, "Poems");
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    keyboard.type_text("poems");
    keyboard.ctrl('r');
    keyboard.type_text("!");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().title,
        "Poems!",
        "the pane that shows it, too"
    );
}

#[test]
fn a_closed_pane_comes_back_as_it_was() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.type_text("unsent");
    let closed = keyboard.chats.state.focused_pane().session;
    keyboard.code(KeyCode::F(8));
    keyboard.chats.tell(Event::OpenStored { session: closed });
    assert_eq!(keyboard.draft(), "unsent");
}

#[test]
fn nine_panes_have_no_room_for_another_conversation() {
    let (mut keyboard, talks) = picking(9);
    keyboard.code(KeyCode::Esc);
    for number in 1..=9 {
        keyboard.chats.send(number, "hello");
    }
    keyboard.chats.tell(Event::OpenStored { session: talks[0] });
    assert!(
        keyboard.screen().contains("9 panes already"),
        "{}",
        keyboard.screen()
    );
    assert!(keyboard.chats.state.pane_with(talks[0]).is_none());
}

#[test]
fn thousands_of_conversations_are_listed_searched_and_scrolled() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for number in 0..3000 {
        let answer = if number % 1000 == 7 {
            "a rare pearl"
        } else {
            "sand"
        };
        store_talk(
            &mut keyboard.store,
            number,
            &format!("Talk {number}"),
            "prompt",
            answer,
        );
    }
    // The worker's own thread answers, as in the program.
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let jobs = worker::start(keyboard.store.reader(), keyboard.models.clone(), tell).unwrap();
    let (mut picker, list) = Picker::new();
    jobs.send(list).unwrap();
    let Some(Done::Listed(listing)) = told.blocking_recv() else {
        panic!()
    };
    picker.take_list(listing);
    assert_eq!(picker.shown().len(), 3000);
    picker.insert("2999");
    assert_eq!(picker.shown(), [SessionId::from_bits(3999)]);
    for (number, text) in [(1, "sand"), (2, "pear"), (3, "rare pearl")] {
        let limit = 200;
        let text = text.to_owned();
        jobs.send(Job::Search { number, text, limit }).unwrap();
    }
    loop {
        let Some(Done::Found { number, found }) = told.blocking_recv() else {
            panic!()
        };
        if number == 3 {
            let hits: Vec<u128> = [2007, 1007, 7].to_vec();
            let sessions: Vec<SessionId> = found.unwrap().hits.iter().map(|hit| hit.session).collect();
            assert_eq!(
                sessions,
                hits.iter()
                    .map(|n| SessionId::from_bits(n + 1000))
                    .collect::<Vec<_>>()
            );
            break;
        }
    }
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    assert!(
        keyboard.screen().contains("3 000 of 3 000"),
        "{}",
        keyboard.screen()
    );
    keyboard.press(KeyModifiers::CONTROL, KeyCode::End);
    assert!(keyboard.screen().contains("Talk 0 "), "{}", keyboard.screen());
}

#[test]
fn the_picker_draws_at_every_size() {
    let (mut keyboard, _) = picking(1);
    keyboard.code(KeyCode::Tab);
    keyboard.type_text("rivers");
    for _ in 0..2 {
        for width in 0..90 {
            for height in 0..30 {
                draw(&mut keyboard.view, &keyboard.chats.state, width, height);
            }
        }
        keyboard.code(KeyCode::Tab);
    }
}

#[test]
fn conversations_of_one_title_are_told_apart_by_their_last_prompts() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for (number, title, prompt) in [
        (1, "scaling of ropes", "what of YaRN?"),
        (
            2,
            "scaling of ropes",
            "and of linear scaling, which came first as far as I know?",
        ),
        (3, "another", "something else"),
        (4, "scaling of ropes", "scaling of ropes"),
    ] {
        store_talk(&mut keyboard.store, number, title, prompt, "yes");
    }
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
    let screen = keyboard.screen();
    for line in [
        "│ scaling of ropes  what of YaRN? ",
        "│ scaling of ropes  and of linear scaling, wh",
        "│ another                         ",
        "│ scaling of ropes                ",
    ] {
        assert!(screen.contains(line), "{line}: {screen}");
    }
    let narrow = text(&mut keyboard.view, &keyboard.chats.state, 40, 10);
    assert!(narrow.contains("scaling of ropes  what of YaRN?"), "{narrow}");
}
