//! What commands and keys answer at once: what can't be, what is there already, what a word can become.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::{RowState, Snapshot};

use super::support::*;

fn alt(keyboard: &mut Keyboard, c: char) {
    keyboard.press(KeyModifiers::ALT, KeyCode::Char(c));
}

#[test]
fn what_no_model_could_do_is_told_when_it_is_set() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let mut says = |line: &str| {
        keyboard.chats.tell(Event::Draft(Draft::at_end(line)));
        keyboard.code(KeyCode::Enter);
        let said = keyboard.chats.told().text.clone();
        keyboard.chats.tell(Event::ClearDraft);
        said
    };
    assert!(says("/max-tokens 99999999").contains("room for 8192 tokens"));
    assert!(says("/temperature 1e9").contains("0 to 10"));
    says("/thinking on");
    let mut told = keyboard.chats.state.told().map(|told| told.text.clone());
    assert!(told.any(|text| text.contains("has no switch")));
    assert_eq!(keyboard.chats.state.focused_pane().settings.max_tokens, None);
}

#[test]
fn a_preset_of_ones_own_is_deleted_after_a_question_and_none_is_saved_over() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let folder = keyboard.folder.path().join("presets");
    keyboard.view.presets = folder.clone();
    let run = |keyboard: &mut Keyboard, line: &str| {
        keyboard.chats.tell(Event::Draft(Draft::at_end(line)));
        keyboard.code(KeyCode::Enter);
    };
    run(&mut keyboard, "/save-preset mine");
    assert!(folder.join("mine.toml").exists());
    run(&mut keyboard, "/save-preset mine");
    assert!(keyboard.chats.told().text.contains("is there already"));
    run(&mut keyboard, "/save-preset precise");
    assert!(keyboard.chats.told().text.contains("comes with the program"));
    alt(&mut keyboard, 'p');
    keyboard.type_text("precise");
    keyboard.code(KeyCode::Delete);
    assert!(
        keyboard
            .screen()
            .contains("precise comes with the program, and stays")
    );
    keyboard.ctrl('u');
    keyboard.type_text("mine");
    keyboard.code(KeyCode::Delete);
    assert!(
        keyboard.screen().contains("Delete preset mine? y deletes"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Char('n'));
    assert!(folder.join("mine.toml").exists());
    keyboard.code(KeyCode::Delete);
    keyboard.code(KeyCode::Char('y'));
    assert!(!folder.join("mine.toml").exists());
    assert!(!keyboard.screen().contains("mine.toml"), "{}", keyboard.screen());
}

#[test]
fn a_preset_of_ones_own_gets_another_name() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let folder = keyboard.folder.path().join("presets");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("mine.toml"), "[mine]\nseed = 7\n").unwrap();
    keyboard.view.presets = folder.clone();
    alt(&mut keyboard, 'p');
    keyboard.type_text("precise");
    keyboard.ctrl('r');
    assert!(
        keyboard
            .screen()
            .contains("precise comes with the program, and stays")
    );
    keyboard.ctrl('u');
    keyboard.type_text("mine");
    keyboard.ctrl('r');
    assert!(
        keyboard.screen().contains("new name> mine"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Esc);
    assert!(
        keyboard.screen().contains("preset> mine"),
        "Esc gives the new name up alone"
    );
    keyboard.ctrl('r');
    keyboard.ctrl('u');
    keyboard.type_text("ours");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.told().text,
        "preset \"mine\" is now called \"ours\""
    );
    let written = std::fs::read_to_string(folder.join("mine.toml")).unwrap();
    assert_eq!(written, "[ours]\nseed = 7\n");
    keyboard.ctrl('u');
    assert!(keyboard.screen().contains("ours"), "{}", keyboard.screen());
}

#[test]
fn a_pane_that_is_not_there_and_a_title_are_told() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, '9');
    assert_eq!(keyboard.chats.told().text, "there is no pane 9");
    for (line, told) in [
        ("/title", "pane 1: no title yet"),
        ("/title \"Two words\"", ""),
        ("/title", "pane 1: title: Two words"),
    ] {
        keyboard.chats.tell(Event::Draft(Draft::at_end(line)));
        keyboard.code(KeyCode::Enter);
        if !told.is_empty() {
            assert_eq!(keyboard.chats.told().text, told);
        }
    }
}

#[test]
fn a_presets_name_and_a_files_are_completed_where_a_command_takes_one() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("/preset prec");
    assert!(keyboard.screen().contains("│ precise "), "{}", keyboard.screen());
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), "/preset precise");
    keyboard.ctrl('u');
    let folder = keyboard.folder.path().to_owned();
    std::fs::create_dir(folder.join("two words")).unwrap();
    std::fs::write(folder.join("two words/conversations.json"), "[]").unwrap();
    let folder = folder.display();
    keyboard
        .chats
        .tell(Event::Draft(Draft::at_end(format!("/import {folder}/two"))));
    keyboard.screen();
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), format!("/import \"{folder}/two words/"));
    keyboard.screen();
    keyboard.type_text("con");
    keyboard.code(KeyCode::Tab);
    let whole = format!("/import \"{folder}/two words/conversations.json\"");
    assert_eq!(keyboard.draft(), whole);
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "");
}

#[test]
fn a_command_with_a_path_runs_as_it_is_written() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "hi");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    let folder = keyboard.folder.path().to_owned();
    std::fs::write(folder.join("out.md.old"), "").unwrap();
    keyboard.type_text(&format!("/export {}/out.md", folder.display()));
    keyboard.code(KeyCode::Enter);
    assert!(folder.join("out.md").exists(), "{}", keyboard.screen());
    assert!(keyboard.chats.told().text.contains("out.md"));
}

#[test]
fn a_search_is_stepped_through_only_where_there_is_one() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "one word");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    alt(&mut keyboard, 'v');
    assert!(!keyboard.screen().contains("n next"), "{}", keyboard.screen());
    keyboard.type_text("/word");
    let screen = keyboard.screen();
    assert!(screen.contains("Enter keeps, Esc gives up"), "{screen}");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("n next"), "{}", keyboard.screen());
}

#[test]
fn answers_are_compared_in_the_order_of_their_panes() {
    let mut keyboard = Keyboard::new(Chats::ready(3));
    for number in 1..=3 {
        let request = keyboard.chats.send(number, "why?");
        keyboard.chats.finishes(request, FinishReason::Stop, None);
    }
    keyboard.chats.tell(Event::Focus(pane(2)));
    let answers = keyboard.chats.state.comparison().answers;
    let panes: Vec<u8> = answers.iter().map(|answer| answer.pane.get()).collect();
    assert_eq!(panes, [1, 2, 3]);
}

#[test]
fn rows_that_have_no_room_on_the_engines_screen_are_counted() {
    let mut chats = Chats::ready(1);
    let rows = (0..9).map(|id| row(id, 1, RowState::Done)).collect();
    chats.tell(Event::Snapshot(std::sync::Arc::new(Snapshot { rows, ..ready() })));
    let mut keyboard = Keyboard::new(chats);
    keyboard.code(KeyCode::F(2));
    let screen = keyboard.screen();
    let shown = screen.lines().filter(|line| line.contains(" done ")).count();
    assert!(
        shown < 9 && screen.contains(&format!("and {} more", 9 - shown)),
        "{screen}"
    );
}
