//! A pane's settings and presets, on the screen.

use crossterm::event::KeyCode;
use mlx_chat::chat::{Event, Origins, Parameter, Source, Sources};
use mlx_chat::engine::FinishReason;

use super::several::alt;
use super::support::*;

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
fn a_word_for_none_is_no_text_that_one_writes_after() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 's');
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("system>  off"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("You are a pirate.");
    keyboard.code(KeyCode::Enter);
    let settings = &keyboard.chats.state.focused_pane().settings;
    assert_eq!(settings.system.as_deref(), Some("You are a pirate."));
    // What there is, is edited; nothing written means none again.
    keyboard.code(KeyCode::Enter);
    keyboard.type_text("!");
    keyboard.code(KeyCode::Enter);
    let settings = &keyboard.chats.state.focused_pane().settings;
    assert_eq!(settings.system.as_deref(), Some("You are a pirate.!"));
    keyboard.code(KeyCode::Enter);
    keyboard.ctrl('u');
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.state.focused_pane().settings.system, None);
    for _ in 0..5 {
        keyboard.code(KeyCode::Down);
    }
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("seed>  auto"), "{}", keyboard.screen());
    keyboard.type_text("42");
    keyboard.code(KeyCode::Enter);
    assert_eq!(
        keyboard.chats.state.focused_pane().settings.sampling.seed,
        Some(42)
    );
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
