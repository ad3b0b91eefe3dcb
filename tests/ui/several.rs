//! What concerns how panes answer, and several of them: settings, presets, who takes part, comparison, private panes.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Event, Origins, Parameter, Source, Sources, Write};
use mlx_chat::engine::FinishReason;

use super::picker::store_talk;
use super::support::*;

const ALT: KeyModifiers = KeyModifiers::ALT;

fn alt(keyboard: &mut Keyboard, c: char) {
    keyboard.press(ALT, KeyCode::Char(c));
}

fn line<'a>(screen: &'a str, word: &str) -> &'a str {
    let found = screen.lines().find(|line| line.contains(word));
    found.unwrap_or_else(|| panic!("no {word:?} in\n{screen}"))
}

#[test]
fn the_settings_show_each_value_and_where_it_comes_from() {
    let mut chats = Chats::ready(1);
    let origins = Origins::new([
        (Parameter::Temperature, "--temperature".to_owned()),
        (Parameter::TopK, "config.toml:3".to_owned()),
    ]);
    chats.state = chats.state.with_origins(origins);
    let mut keyboard = Keyboard::new(chats);
    keyboard.type_text("/settings");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(screen.contains("settings of pane 1"), "{screen}");
    assert!(line(&screen, "temperature").contains("0 (greedy)"));
    assert!(line(&screen, "temperature").contains("--temperature"));
    assert!(line(&screen, "top-k").contains("config.toml:3"));
    assert!(line(&screen, "max-tokens").contains("auto (1024)"));
    assert!(line(&screen, "seed").contains("default"));
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn a_setting_is_changed_and_put_back_from_the_screen() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    alt(&mut keyboard, 's');
    keyboard.code(KeyCode::Down);
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("temperature> 0"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('u');
    keyboard.type_text("warm");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("takes a number, like 0.7"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('u');
    keyboard.type_text("0.5");
    keyboard.code(KeyCode::Enter);
    let pane = keyboard.chats.state.focused_pane();
    assert_eq!(pane.settings.sampling.temperature, 0.5);
    assert_eq!(pane.sources.of(Parameter::Temperature), &Source::Set);
    assert!(line(&keyboard.screen(), "temperature ").contains("set here"));
    keyboard.code(KeyCode::Delete);
    let pane = keyboard.chats.state.focused_pane();
    assert_eq!(pane.settings.sampling.temperature, 0.0);
    assert_eq!(pane.sources.of(Parameter::Temperature), &Source::Start);
}

#[test]
fn one_setting_is_reset_by_delete_all_by_alt_r_and_each_change_can_be_taken_back() {
    let mut chats = Chats::ready(1);
    let mut settings = chats.state.focused_pane().settings.clone();
    settings.system = Some("be brief".into());
    settings.sampling.temperature = 0.5;
    settings.sampling.top_k = 7;
    chats.tell(Event::Configure(settings));
    let mut keyboard = Keyboard::new(chats);
    let now = |keyboard: &Keyboard| {
        let settings = &keyboard.chats.state.focused_pane().settings;
        (
            settings.system.is_some(),
            settings.sampling.temperature,
            settings.sampling.top_k,
        )
    };
    alt(&mut keyboard, 's');
    let screen = keyboard.screen();
    assert!(
        screen.contains("Delete resets one, Alt-r all, Esc closes"),
        "{screen}"
    );
    assert!(screen.contains("^_ takes a change back"), "{screen}");
    keyboard.code(KeyCode::Down);
    keyboard.code(KeyCode::Delete);
    assert_eq!(now(&keyboard), (true, 0.0, 7));
    alt(&mut keyboard, 'r');
    assert_eq!(now(&keyboard), (false, 0.0, 0));
    keyboard.ctrl('_');
    assert_eq!(now(&keyboard), (true, 0.0, 7));
    keyboard.ctrl('_');
    assert_eq!(now(&keyboard), (true, 0.5, 7));
    // What only deletes a part of a text has no meaning here.
    for c in ['w', 'k', 'u'] {
        keyboard.ctrl(c);
    }
    assert_eq!(now(&keyboard), (true, 0.5, 7));
    keyboard.ctrl('_');
    let screen = keyboard.screen();
    assert!(screen.contains("is left to take back"), "{screen}");
}

#[test]
fn a_setting_that_the_conversation_had_is_reset_though_its_value_is_the_same() {
    let mut chats = Chats::ready(1);
    let mut sources = Sources::default();
    sources.put(Parameter::TopP, Source::Stored);
    let settings = chats.state.focused_pane().settings.clone();
    chats.tell(Event::ConfigureAs { settings, sources });
    let mut keyboard = Keyboard::new(chats);
    alt(&mut keyboard, 's');
    for _ in 0..2 {
        keyboard.code(KeyCode::Down);
    }
    let source = |keyboard: &mut Keyboard| {
        let screen = keyboard.screen();
        line(&screen, "top-p ")
            .split_whitespace()
            .last()
            .unwrap()
            .to_owned()
    };
    assert!(
        keyboard.screen().contains("it had it when it was opened"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Enter);
    keyboard.ctrl('u');
    keyboard.type_text("0.3");
    keyboard.code(KeyCode::Enter);
    assert!(line(&keyboard.screen(), "top-p ").contains("set here"));
    keyboard.ctrl('_');
    assert!(line(&keyboard.screen(), "top-p ").contains("this conversation"));
    keyboard.code(KeyCode::Delete);
    assert!(
        !line(&keyboard.screen(), "top-p ").contains("conversation"),
        "{}",
        source(&mut keyboard)
    );
    keyboard.code(KeyCode::Delete);
    assert!(
        keyboard.screen().contains("as in new panes already"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn a_system_prompt_of_several_lines_is_edited_on_one_and_keeps_them() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let mut settings = keyboard.chats.state.focused_pane().settings.clone();
    settings.system = Some("be\nbrief".into());
    keyboard.chats.tell(Event::Configure(settings));
    alt(&mut keyboard, 's');
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("system> be\\nbrief"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("!");
    let reactions = keyboard.view.paste("\nand kind", &keyboard.chats.state);
    keyboard.react(reactions);
    keyboard.code(KeyCode::Enter);
    let system = keyboard.chats.state.focused_pane().settings.system.clone();
    assert_eq!(system.as_deref(), Some("be\nbrief!\nand kind"));
}

#[test]
fn thinking_is_turned_by_a_key() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 's');
    for _ in 0..7 {
        keyboard.code(KeyCode::Down);
    }
    let mut seen = Vec::new();
    for _ in 0..3 {
        keyboard.code(KeyCode::Enter);
        seen.push(keyboard.chats.state.focused_pane().settings.thinking);
    }
    assert_eq!(seen, [Some(true), Some(false), None]);
}

#[test]
fn the_seed_of_a_random_answer_is_shown_with_the_settings() {
    let mut chats = Chats::ready(1);
    let mut settings = chats.state.focused_pane().settings.clone();
    settings.sampling.temperature = 0.8;
    chats.tell(Event::Configure(settings));
    let request = chats.send(1, "hi");
    chats.finishes(request, FinishReason::Stop, None);
    let seed = chats.state.focused_pane().turns[0].seed.unwrap();
    let mut keyboard = Keyboard::new(chats);
    alt(&mut keyboard, 's');
    assert!(line(&keyboard.screen(), "seed").contains(&format!("auto (last: {seed})")));
}

#[test]
fn a_preset_is_picked_by_letters_and_by_name_and_settings_are_saved_as_one() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.view.presets = keyboard.folder.path().join("presets");
    alt(&mut keyboard, 'p');
    let screen = keyboard.screen();
    assert!(
        screen.contains("precise") && screen.contains("translator"),
        "{screen}"
    );
    keyboard.type_text("creat");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.overlay.is_none());
    let pane = keyboard.chats.state.focused_pane();
    assert_eq!(pane.settings.sampling.temperature, 1.0);
    assert_eq!(
        pane.sources.of(Parameter::MinP),
        &Source::Preset("creative".into())
    );
    alt(&mut keyboard, 's');
    assert!(line(&keyboard.screen(), "min-p").contains("preset creative"));
    keyboard.code(KeyCode::Esc);
    keyboard.type_text("/save-preset my own");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("preset \"my own\" is saved"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("/preset precise");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().settings.sampling.temperature,
        0.0
    );
    keyboard.type_text("/preset my own");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().settings.sampling.temperature,
        1.0
    );
    keyboard.type_text("/preset nobody");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard
            .chats
            .told()
            .text
            .contains("there is no preset \"nobody\"")
    );
}

#[test]
fn a_bad_preset_file_is_told_where_presets_are_picked() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.view.presets = keyboard.folder.path().to_owned();
    std::fs::write(keyboard.folder.path().join("mine.toml"), "[x]\nwarmth = 1\n").unwrap();
    alt(&mut keyboard, 'p');
    let screen = keyboard.screen();
    assert!(
        screen.contains("mine.toml:2: preset \"x\": warmth: there is no setting"),
        "{screen}"
    );
    assert!(screen.contains("precise"));
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
