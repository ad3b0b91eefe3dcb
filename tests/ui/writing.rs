//! Writing of prompts: changes taken back, large pastes, files that go along, the person's own editor.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event, Kind, Write, replay};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::keymap::Motion;
use mlx_chat::ui::writing::editor::Editor;

use super::support::*;

const ALT: KeyModifiers = KeyModifiers::ALT;

fn paste(keyboard: &mut Keyboard, text: &str) {
    let reactions = keyboard.view.paste(text, &keyboard.chats.state);
    keyboard.react(reactions);
    keyboard.screen();
}

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn changes_are_taken_back_and_made_again() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("one two");
    keyboard.ctrl('w');
    assert_eq!(keyboard.draft(), "one ");
    keyboard.ctrl('_');
    assert_eq!((keyboard.draft(), keyboard.caret()), ("one two", 7));
    // Terminals send ^_ as ^7.
    keyboard.ctrl('7');
    assert_eq!(keyboard.draft(), "one ");
    keyboard.press(ALT, KeyCode::Char('z'));
    assert_eq!(keyboard.draft(), "one two");
    keyboard.ctrl('c');
    keyboard.ctrl('/');
    assert_eq!(keyboard.draft(), "one two", "a draft that was cleared comes back");
}

#[test]
fn what_was_sent_is_not_taken_back() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.type_text("sent");
    keyboard.code(KeyCode::Enter);
    keyboard.ctrl('_');
    assert_eq!(keyboard.draft(), "");
    keyboard.code(KeyCode::Tab);
    keyboard.type_text("other");
    keyboard.code(KeyCode::Tab);
    keyboard.ctrl('_');
    assert_eq!(keyboard.draft(), "", "each pane has its own past");
}

#[test]
fn words_are_deleted_in_both_directions() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("one two three");
    keyboard.ctrl('a');
    keyboard.press(ALT, KeyCode::Char('d'));
    assert_eq!(keyboard.draft(), " two three");
    keyboard.press(ALT, KeyCode::Char('f'));
    keyboard.press(ALT, KeyCode::Backspace);
    assert_eq!(keyboard.draft(), "  three");
}

#[test]
fn a_large_paste_is_a_word_that_is_sent_in_full() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("see ");
    let text = lines(2114);
    paste(&mut keyboard, &text);
    keyboard.type_text(" please");
    let screen = keyboard.screen();
    assert!(screen.contains("see [Pasted 2 114 lines] please"), "{screen}");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().turns[0].prompt,
        format!("see {text} please")
    );
    assert_eq!(keyboard.draft(), "");
}

#[test]
fn a_large_paste_is_passed_and_deleted_as_one() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("a");
    let text = lines(20);
    paste(&mut keyboard, &text);
    keyboard.type_text("b");
    let end = text.len() + 1;
    for (code, caret) in [(KeyCode::Left, end), (KeyCode::Left, 1), (KeyCode::Right, end)] {
        keyboard.code(code);
        assert_eq!(keyboard.caret(), caret);
    }
    keyboard.code(KeyCode::Home);
    assert_eq!(
        keyboard.caret(),
        0,
        "line ends within the paste are none of the draft's"
    );
    keyboard.code(KeyCode::End);
    keyboard.code(KeyCode::Left);
    keyboard.code(KeyCode::Backspace);
    assert_eq!((keyboard.draft(), keyboard.caret()), ("ab", 1));
    keyboard.ctrl('_');
    assert!(
        keyboard.screen().contains("a[Pasted 20 lines]b"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Left);
    keyboard.code(KeyCode::Delete);
    assert_eq!(keyboard.draft(), "ab");
}

#[test]
fn small_pastes_are_text_like_any_other() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, "one\ntwo");
    assert!(keyboard.screen().contains("│one") && !keyboard.screen().contains("Pasted"));
    assert!(keyboard.chats.state.focused_pane().draft.pastes().is_empty());
}

#[test]
fn pastes_stay_folded_in_the_log_of_drafts() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, &"x".repeat(1200));
    let draft = keyboard.chats.state.focused_pane().draft.clone();
    assert!(draft.pastes().iter().eq([&(0..1200)]));
    let mut records = Vec::new();
    for write in &keyboard.chats.writes {
        if let Write::Records { records: more, .. } = write {
            records.extend(more.iter().cloned());
        }
    }
    assert!(
        records
            .iter()
            .any(|record| matches!(&record.kind, Kind::Draft { pastes, .. } if pastes.len() == 1))
    );
    let lines: Vec<String> = records.iter().map(|record| record.to_line().unwrap()).collect();
    let read = lines
        .iter()
        .map(|line| mlx_chat::chat::Record::from_line(line.as_bytes()).unwrap());
    assert_eq!(replay(session(1), read).draft, draft);
}

#[test]
fn pastes_that_a_log_tells_wrong_are_left_out() {
    let draft = Draft::new("aébc", 2).with_pastes([0..1, 0..1, 2..3, 3..9, 4..4, 3..4]);
    assert_eq!(draft.pastes(), [0..1, 3..4]);
    let draft = Draft::new("abcd", 2).with_pastes(std::iter::once(1..4));
    assert_eq!(draft.cursor(), 4, "the caret is in none of them");
    let mut draft = Draft::at_end("abcd").with_pastes(std::iter::once(1..3));
    draft.put_back(Draft::at_end("xyz").with_pastes(std::iter::once(0..2)));
    assert_eq!((draft.text(), draft.cursor()), ("xyz\n\nabcd", 9));
    assert!(draft.pastes().iter().eq([&(0..2), &(6..8)]));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_caret_is_never_within_a_paste(steps in proptest::collection::vec((0u8..5, 0u8..8), 0..40), width in 1usize..40) {
        use Motion::*;
        let motions = [Left, Right, WordLeft, WordRight, LineStart, LineEnd, Up, Down];
        let mut editor = Editor::default();
        for (step, motion) in steps {
            match step {
                0 => editor.insert_paste(&lines(12)),
                1 => editor.insert("wörd e\u{301} "),
                2 => editor.insert("\n"),
                3 => editor.delete(motions[usize::from(motion)]),
                _ => { editor.go(motions[usize::from(motion)], width, &mut None); }
            }
            let draft = editor.clone().into_draft();
            proptest::prop_assert_eq!(draft.cursor(), editor.caret());
            for paste in draft.pastes() {
                proptest::prop_assert_eq!(&draft.text()[paste.clone()], &lines(12));
            }
        }
    }
}

#[test]
fn a_megabyte_is_pasted_and_edited() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let text = "some words in a line\n".repeat(50_000);
    paste(&mut keyboard, &text);
    keyboard.type_text("and more");
    assert!(
        keyboard.screen().contains("[Pasted 50 000 lines]and more"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn a_mentioned_file_goes_along_and_is_shown_before() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("a.rs");
    std::fs::write(&file, "fn a() {}\n").unwrap();
    let line = format!("review @{}", file.display());
    paste(&mut keyboard, &line);
    let screen = keyboard.screen();
    assert!(screen.contains("a.rs 10B, 1 line "), "{screen}");
    keyboard.code(KeyCode::Enter);
    let prompt = keyboard.chats.state.focused_pane().turns[0].prompt.clone();
    assert_eq!(
        prompt,
        format!("{line}\n\n{}:\n```rs\nfn a() {{}}\n```", file.display())
    );
    assert_eq!(keyboard.draft(), "");
}

#[test]
fn a_paste_stays_a_word_through_the_history() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, &lines(20));
    keyboard.ctrl('c');
    assert_eq!(keyboard.draft(), "");
    keyboard.code(KeyCode::Up);
    assert!(
        keyboard.screen().contains("│[Pasted 20 lines]"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Enter);
    let request = *keyboard.chats.submitted.last().unwrap();
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    for key in [KeyCode::Up, KeyCode::Char('e')] {
        let modifiers = if key == KeyCode::Up {
            KeyModifiers::NONE
        } else {
            ALT
        };
        keyboard.press(modifiers, key);
        assert!(
            keyboard.screen().contains("│[Pasted 20 lines]"),
            "{}",
            keyboard.screen()
        );
    }
}

#[test]
fn a_file_goes_along_once_with_a_prompt_that_is_edited() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("a.rs");
    std::fs::write(&file, "fn a() {}\n").unwrap();
    let line = format!("review @{}", file.display());
    paste(&mut keyboard, &line);
    keyboard.code(KeyCode::Enter);
    let request = *keyboard.chats.submitted.last().unwrap();
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    keyboard.press(ALT, KeyCode::Char('e'));
    assert_eq!(keyboard.draft(), line);
    keyboard.type_text(" now");
    keyboard.code(KeyCode::Enter);
    let prompt = keyboard.chats.state.focused_pane().turns[0].prompt.clone();
    assert!(prompt.starts_with(&format!("{line} now\n\n")), "{prompt}");
    assert_eq!(prompt.matches("fn a()").count(), 1, "{prompt}");
}

#[test]
fn a_draft_for_which_there_is_no_room_is_marked_while_it_is_written() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, &"word ".repeat(8000));
    assert!(!keyboard.screen().contains("too long"), "{}", keyboard.screen());
    paste(&mut keyboard, &"word ".repeat(200));
    let screen = keyboard.screen();
    assert!(
        screen.contains("▲ too long: about 8200 of 8192 tokens "),
        "{screen}"
    );
    keyboard.ctrl('c');
    // A file counts with its size.
    let file = keyboard.folder.path().join("long");
    std::fs::write(&file, "x".repeat(50_000)).unwrap();
    paste(&mut keyboard, &format!("@{}", file.display()));
    let screen = keyboard.screen();
    assert!(screen.contains("▲ too long: about 10"), "{screen}");
}

#[test]
fn a_file_that_cannot_go_along_stops_the_prompt() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("z.bin");
    std::fs::write(&file, b"\0\0").unwrap();
    let line = format!("@{}", file.display());
    paste(&mut keyboard, &line);
    assert!(
        keyboard.screen().contains("it is binary"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), line);
    assert!(keyboard.chats.submitted.is_empty());
    assert!(keyboard.chats.told().text.contains("nothing was sent"));
}

#[test]
fn an_at_without_a_file_is_text() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, "ask @nobody-of-this-name");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().turns[0].prompt,
        "ask @nobody-of-this-name"
    );
}

#[test]
fn a_draft_that_changed_while_its_files_were_read_is_not_sent() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    paste(&mut keyboard, "ask @nobody");
    let mut view = std::mem::replace(&mut keyboard.view, view(no_color()));
    let key = crossterm::event::KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
    keyboard.now += std::time::Duration::from_secs(1);
    let mut reactions = view.key(&key, &keyboard.chats.state, keyboard.now);
    let Some(mlx_chat::ui::input::Reaction::Work(job)) = reactions.pop() else {
        panic!()
    };
    keyboard.chats.tell(Event::Draft(Draft::at_end("another")));
    let done = mlx_chat::ui::worker::carry_out(job, &keyboard.store);
    let reactions = view.take_done(done, &keyboard.chats.state);
    keyboard.react(reactions);
    assert!(keyboard.chats.submitted.is_empty());
    assert!(
        keyboard.screen().contains("the draft changed"),
        "{}",
        keyboard.screen()
    );
    assert_eq!(keyboard.draft(), "another");
}

#[test]
fn paths_are_completed_folder_by_folder() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    let root = keyboard.folder.path().display().to_string();
    for name in ["sources", "sources/my notes"] {
        std::fs::create_dir(keyboard.folder.path().join(name)).unwrap();
    }
    for name in ["sources/lib.rs", "sources/.hidden", "sources/my notes/b.txt"] {
        std::fs::write(keyboard.folder.path().join(name), "x").unwrap();
    }
    paste(&mut keyboard, &format!("@{root}/sou"));
    assert!(keyboard.screen().contains("sources/"), "{}", keyboard.screen());
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), format!("@{root}/sources/"));
    let screen = keyboard.screen();
    assert!(
        screen.contains("lib.rs") && !screen.contains(".hidden"),
        "{screen}"
    );
    keyboard.type_text("note");
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), format!("@\"{root}/sources/my notes/"));
    keyboard.type_text("b");
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), format!("@\"{root}/sources/my notes/b.txt\" "));
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.chats.state.focused(), pane(2));
}

#[test]
fn the_draft_goes_to_the_persons_editor_and_comes_back() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("draft");
    keyboard.press(ALT, KeyCode::Char('g'));
    assert!(keyboard.outside);
    let reactions = keyboard
        .view
        .take_edited(Ok("new\r\ntext".into()), &keyboard.chats.state);
    keyboard.react(reactions);
    assert_eq!(keyboard.draft(), "new\ntext");
    keyboard.ctrl('_');
    assert_eq!(keyboard.draft(), "draft");
    let reactions = keyboard
        .view
        .take_edited(Err("\"vi\" ended with 1".into()), &keyboard.chats.state);
    keyboard.react(reactions);
    assert_eq!(keyboard.draft(), "draft");
    assert!(keyboard.screen().contains("ended with 1"));
}

#[test]
fn a_refused_prompt_comes_back_as_it_was_typed_and_sends_its_files_again() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let file = keyboard.folder.path().join("a.txt");
    std::fs::write(&file, "content").unwrap();
    let typed = format!("@{}", file.display());
    paste(&mut keyboard, &typed);
    keyboard.code(KeyCode::Enter);
    let request = *keyboard.chats.submitted.last().unwrap();
    keyboard
        .chats
        .finishes(request, FinishReason::Rejected, Some("too long"));
    assert_eq!((keyboard.draft(), keyboard.caret()), (&*typed, typed.len()));
    let screen = keyboard.screen();
    assert!(
        screen.contains("too long; the prompt is in the draft again"),
        "{screen}"
    );
    keyboard.code(KeyCode::Enter);
    let prompt = &keyboard.chats.state.focused_pane().turns[1].prompt;
    assert_eq!(prompt.matches("content").count(), 1, "{prompt}");
}
