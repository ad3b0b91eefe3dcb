//! The command palette, slash commands, and the question before leaving.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::NoticeKind;
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::keymap::{Action, BINDINGS, Scope};
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::palette::{Choice, Palette};
use mlx_chat::ui::view::Screen;

use super::support::*;

const NONE: KeyModifiers = KeyModifiers::NONE;

fn open(chats: Chats) -> Keyboard {
    let mut keyboard = Keyboard::new(chats);
    keyboard.ctrl('p');
    assert!(keyboard.view.overlay.is_some());
    keyboard
}

#[test]
fn the_palette_has_every_action_with_the_key_that_it_has() {
    let chats = Chats::ready(9);
    let palette = Palette::new(
        &view(no_color()).keymap,
        &chats.state,
        std::path::Path::new("/c/config.toml"),
    );
    let found: Vec<Choice> = palette.found().collect();
    for binding in BINDINGS.iter().filter(|b| {
        let on_top = [Scope::Sessions, Scope::Models, Scope::Settings, Scope::Presets];
        !on_top.contains(&b.scope)
    }) {
        assert!(
            found.contains(&Choice::Act(binding.action)),
            "{:?}",
            binding.action
        );
    }
    for number in 1..=9 {
        assert!(found.contains(&Choice::Act(Action::Pane(number))));
    }
    let mut keyboard = open(chats);
    keyboard.type_text("open a pane");
    let screen = keyboard.screen();
    let line = screen.lines().find(|line| line.contains("new pane")).unwrap();
    assert!(line.contains("open a pane") && line.contains("F4"), "{screen}");
}

#[test]
fn what_is_chosen_in_the_palette_is_done_and_the_palette_goes() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.type_text("newpane");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.overlay.is_none());
    assert_eq!(keyboard.chats.state.panes().len(), 2);
    assert_eq!(keyboard.draft(), "", "nothing of it was typed into the prompt");
}

#[test]
fn words_find_what_is_meant_by_them_first() {
    for (words, first) in [
        ("exit", "leave or delete"),
        ("undo close", "reopen pane"),
        ("stats", "dashboard"),
        ("speed", "dashboard"),
        ("unpin", "sessions"),
        ("language", "/system"),
        ("new chat", "new pane"),
        ("config", "config"),
        ("config file", "config"),
        ("settings file", "config"),
        ("keybindings", "config"),
        ("zoom", "zoom"),
        ("close", "close pane"),
    ] {
        let mut keyboard = open(Chats::ready(1));
        keyboard.type_text(words);
        let screen = keyboard.screen();
        let top: Vec<&str> = screen.lines().skip(3).take(3).collect();
        let of_two = words == "keybindings";
        let found = top.iter().take(if of_two { 3 } else { 1 });
        let found = found.filter(|line| line.starts_with(&format!("│ {first} ")));
        assert_eq!(found.count(), 1, "{words}: {screen}");
    }
}

#[test]
fn the_settings_file_is_named_in_the_palette_and_opened_by_it() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.type_text("config file");
    let screen = keyboard.screen();
    assert!(screen.contains("config.toml"), "{screen}");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.config);
}

#[test]
fn a_line_of_the_palette_is_chosen_by_arrows() {
    let mut keyboard = open(Chats::ready(3));
    keyboard.type_text("pane 3");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.chats.state.focused(), pane(3));
    keyboard.ctrl('p');
    for code in [KeyCode::Up, KeyCode::Up, KeyCode::Down, KeyCode::Down] {
        keyboard.code(code);
    }
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.overlay.is_none());
    keyboard.ctrl('p');
    keyboard.type_text("pane");
    let lines = |keyboard: &mut Keyboard| {
        let screen = keyboard.screen();
        let lines = screen.lines().filter(|line| line.starts_with('│'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = lines(&mut keyboard);
    keyboard.code(KeyCode::Down);
    assert_eq!(before, lines(&mut keyboard), "the selection is no text");
    assert!(
        keyboard.screen().contains("─ 2/"),
        "but where it is is told: {}",
        keyboard.screen()
    );
    keyboard.ctrl('p');
    assert!(keyboard.view.overlay.is_none(), "its own key closes it");
}

#[test]
fn the_palettes_line_is_edited_like_a_draft() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.type_text("zoom xyzzy");
    assert!(keyboard.screen().contains("nothing matches"));
    keyboard.ctrl('w');
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.chats.state.zoomed());
}

#[test]
fn a_paste_into_the_palette_runs_nothing() {
    let mut keyboard = open(Chats::ready(1));
    let reactions = keyboard.view.paste("new\npane\n", &keyboard.chats.state);
    keyboard.react(reactions);
    assert!(keyboard.view.overlay.is_some() && keyboard.chats.state.panes().len() == 1);
    keyboard.code(KeyCode::Esc);
    keyboard.ctrl('p');
    for c in "zoom\rnew\r".chars() {
        let code = if c == '\r' {
            KeyCode::Enter
        } else {
            KeyCode::Char(c)
        };
        keyboard.burst(NONE, code);
    }
    assert!(keyboard.view.overlay.is_some() && !keyboard.chats.state.zoomed());
    assert!(keyboard.screen().contains("> zoom new"), "{}", keyboard.screen());
}

#[test]
fn an_action_of_another_screen_goes_there_first() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.type_text("freeze");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.screen == Screen::Dashboard && keyboard.view.frozen.is_some());
    keyboard.ctrl('p');
    keyboard.type_text("zoom");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.screen == Screen::Chat && keyboard.chats.state.zoomed());
}

#[test]
fn slash_commands_run_in_the_palette_and_tell_what_is_wrong() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.type_text("temper");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("> /temperature"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("hot");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("takes a number"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('w');
    keyboard.type_text("0.5");
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.view.overlay.is_none());
    assert_eq!(
        keyboard.chats.state.focused_pane().settings.sampling.temperature,
        0.5
    );
}

#[test]
fn a_slash_command_in_the_composer_is_carried_out_and_sends_nothing() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.code(KeyCode::Tab);
    keyboard.type_text("/system Answer in French.");
    keyboard.code(KeyCode::Enter);
    let state = &keyboard.chats.state;
    assert_eq!(
        state.focused_pane().settings.system.as_deref(),
        Some("Answer in French.")
    );
    assert_eq!(
        state.pane(pane(1)).unwrap().settings.system,
        None,
        "the other pane keeps its own"
    );
    assert_eq!((keyboard.draft(), keyboard.chats.submitted.len()), ("", 0));
    assert!(
        keyboard
            .screen()
            .contains("pane 2: system prompt: Answer in French., from the next prompt on")
    );
    keyboard.code(KeyCode::Up);
    assert_eq!(
        keyboard.draft(),
        "/system Answer in French.",
        "it is in the history"
    );
}

#[test]
fn settings_of_a_pane_reach_its_requests() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for line in [
        "/seed 7",
        "/top-p 0.9",
        "/max-tokens 33",
        "/thinking off",
        "/title My talk",
    ] {
        keyboard.type_text(line);
        keyboard.code(KeyCode::Enter);
        assert_eq!(keyboard.draft(), "", "{line}");
    }
    let pane = keyboard.chats.state.focused_pane();
    let settings = &pane.settings;
    assert_eq!((settings.sampling.seed, settings.sampling.top_p), (Some(7), 0.9));
    assert_eq!((settings.max_tokens, settings.thinking), (Some(33), Some(false)));
    assert_eq!(pane.title, "My talk");
}

#[test]
fn a_command_that_is_wrong_says_so_and_stays() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for (line, part) in [
        ("/temperature hot", "takes a number"),
        ("/xyzzy 1", "there is no command /xyzzy"),
    ] {
        keyboard.type_text(line);
        keyboard.code(KeyCode::Enter);
        assert_eq!(keyboard.draft(), line);
        assert!(keyboard.screen().contains(part), "{}", keyboard.screen());
        assert_eq!(keyboard.chats.told().kind, NoticeKind::Warning);
        keyboard.ctrl('c');
    }
    assert!(keyboard.chats.submitted.is_empty());
}

#[test]
fn text_that_begins_with_a_slash_can_be_sent() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for (typed, sent) in [
        ("//system is a word", "/system is a word"),
        ("/etc/hosts?", "/etc/hosts?"),
    ] {
        keyboard.type_text(typed);
        keyboard.code(KeyCode::Enter);
        let turn = keyboard.chats.state.focused_pane().turns.last().unwrap();
        assert_eq!(turn.prompt, sent);
        assert_eq!(keyboard.draft(), "");
        let request = *keyboard.chats.submitted.last().unwrap();
        keyboard.chats.finishes(request, FinishReason::Stop, None);
    }
}

#[test]
fn a_refused_text_with_two_slashes_stays_as_it_was_written() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.chats.send(1, "first");
    keyboard.chats.send(1, "waits");
    keyboard.type_text("//x");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "//x");
}

#[test]
fn commands_are_completed_by_tab_and_by_enter() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.type_text("/tem");
    assert!(
        keyboard.screen().contains("/temperature N"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Tab);
    assert_eq!(keyboard.draft(), "/temperature ");
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    keyboard.ctrl('c');
    keyboard.type_text("/temperature");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("pane 1: temperature 0 (greedy)"),
        "one that is written out tells"
    );
    keyboard.type_text("/thin");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "/thinking ");
    keyboard.code(KeyCode::Down);
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "");
    assert_eq!(keyboard.chats.state.focused_pane().settings.thinking, Some(false));
    keyboard.type_text("/zoo");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.chats.state.zoomed(),
        "what takes nothing is done at once"
    );
    keyboard.code(KeyCode::Tab);
    assert_eq!(
        keyboard.chats.state.focused(),
        pane(2),
        "without a list, Tab goes to the next pane"
    );
}

#[test]
fn escape_puts_the_list_away_before_it_stops_an_answer() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "go on");
    keyboard.chats.says(request, "text");
    keyboard.type_text("/te");
    keyboard.code(KeyCode::Esc);
    assert!(!keyboard.screen().contains("/temperature") && keyboard.chats.cancelled.is_empty());
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.chats.cancelled, [request]);
}

#[test]
fn a_conversation_is_exported_from_the_composer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.md");
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let line = format!("/export {}", path.display());
    keyboard.type_text(&line);
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), line, "there is nothing yet");
    keyboard.ctrl('c');
    let request = keyboard.chats.send(1, "a question");
    keyboard.chats.says(request, "an answer");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    keyboard.type_text(&line);
    keyboard.code(KeyCode::Enter);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("a question") && text.contains("an answer"),
        "{text}"
    );
    assert!(keyboard.chats.told().text.contains("talk.md"));
}

#[test]
fn leaving_while_answers_stream_asks_once() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    let request = keyboard.chats.send(2, "go on");
    keyboard.chats.says(request, "text");
    keyboard.code(KeyCode::Tab);
    for stays in [KeyCode::Esc, KeyCode::Char('n')] {
        keyboard.ctrl('d');
        assert!(
            keyboard.screen().contains("An answer still streams."),
            "{}",
            keyboard.screen()
        );
        assert!(!keyboard.chats.state.quitting());
        keyboard.code(KeyCode::Char('x'));
        keyboard.code(stays);
        assert!(keyboard.view.overlay.is_none() && keyboard.chats.cancelled.is_empty());
    }
    assert_eq!(keyboard.draft(), "");
    keyboard.ctrl('d');
    for not_offered in [KeyCode::Enter, KeyCode::Char(' ')] {
        keyboard.code(not_offered);
        keyboard.ctrl('d');
        assert!(
            !keyboard.chats.state.quitting(),
            "a key pressed twice by mistake doesn't leave"
        );
    }
    keyboard.code(KeyCode::Char('y'));
    assert!(keyboard.chats.state.quitting());
}

#[test]
fn every_way_to_leave_asks_and_takes_yes() {
    for yes in ["y", "^C"] {
        for way in ["^C^C", "/quit", "palette"] {
            let mut keyboard = Keyboard::new(Chats::ready(2));
            let request = keyboard.chats.send(2, "go on");
            keyboard.chats.says(request, "text");
            keyboard.code(KeyCode::Tab);
            match way {
                "^C^C" => (0..2).for_each(|_| keyboard.ctrl('c')),
                "/quit" => {
                    keyboard.type_text("/quit");
                    keyboard.code(KeyCode::Enter);
                }
                _ => {
                    keyboard.ctrl('p');
                    keyboard.type_text("/quit");
                    keyboard.code(KeyCode::Enter);
                }
            }
            assert!(matches!(keyboard.view.overlay, Some(Overlay::Leave)), "{way}");
            match yes {
                "y" => keyboard.code(KeyCode::Char('y')),
                _ => keyboard.ctrl('c'),
            }
            assert!(keyboard.chats.state.quitting(), "{way} {yes}");
        }
    }
}

#[test]
fn leaving_asks_nothing_where_nothing_streams() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    let request = keyboard.chats.send(1, "go on");
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    keyboard.ctrl('d');
    assert!(keyboard.chats.state.quitting());
}

#[test]
fn the_help_lies_over_the_palette_and_names_the_commands() {
    let mut keyboard = open(Chats::ready(1));
    keyboard.code(KeyCode::F(1));
    assert!(keyboard.screen().contains(" keys "));
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.overlay.is_some() && keyboard.view.help.is_none());
    keyboard.code(KeyCode::Esc);
    keyboard.code(KeyCode::F(1));
    let help = text(&mut keyboard.view, &keyboard.chats.state, 120, 220);
    for part in [
        "@path",
        "//  ",
        "gg G",
        "Comparing answers",
        "In the list of settings",
        "/config",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in mlx_chat::ui::slash::COMMANDS {
        assert!(help.contains(&format!("/{}", command.name)), "{}", command.name);
    }
}

#[test]
fn a_pane_that_finished_behind_another_is_marked_even_where_it_is_not_shown() {
    let mut keyboard = Keyboard::new(Chats::ready(4));
    let request = keyboard.chats.send(4, "go on");
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('1'));
    assert!(!keyboard.screen().contains("new"), "{}", keyboard.screen());
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    assert!(
        keyboard.screen().contains("+2 panes •1 new"),
        "{}",
        keyboard.screen()
    );
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('4'));
    assert!(!keyboard.screen().contains("•1 new"));
}

#[test]
fn what_ends_in_a_pane_that_is_in_view_is_not_marked_then_nor_later() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    let request = keyboard.chats.send(2, "go on");
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('1'));
    keyboard.chats.finishes(request, FinishReason::Stop, None);
    assert!(!keyboard.screen().contains('•'), "{}", keyboard.screen());
    keyboard.code(KeyCode::F(7));
    let screen = keyboard.screen();
    assert!(screen.contains("+1 pane ") && !screen.contains("new"), "{screen}");
}

#[test]
fn a_title_warns_when_the_context_is_nearly_full() {
    let mut chats = Chats::ready(1);
    for (tokens, warns) in [(6000, false), (6964, true)] {
        let mut snapshot = ready();
        let mut row = row(17, 1, mlx_chat::engine::telemetry::RowState::Decode);
        (row.prompt, row.generated) = (tokens, 0);
        if chats.submitted.is_empty() {
            chats.send(1, "hello");
        }
        snapshot.rows = vec![row];
        chats.tell(mlx_chat::chat::Event::Snapshot(std::sync::Arc::new(snapshot)));
        let screen = text(&mut view(no_color()), &chats.state, 80, 24);
        assert!(screen.contains(&format!("{tokens}/8192")), "{screen}");
        assert_eq!(screen.contains(&format!("▲{tokens}/8192")), warns, "{screen}");
    }
}

#[test]
fn motions_are_found_in_the_palette_too() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("one two");
    keyboard.ctrl('p');
    keyboard.type_text("delete word left");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "one ");
}

#[test]
fn the_words_of_a_newcomer_lead_to_what_is_meant() {
    for (word, name) in [
        ("retry", "regenerate"),
        ("new chat", "new conversation"),
        ("new conversation", "new conversation"),
        ("clear", "new conversation"),
        ("fork", "fork pane"),
        ("branch", "fork pane"),
        ("light", "themes"),
        ("archive", "sessions"),
        ("pin", "sessions"),
        ("rename", "sessions"),
        ("delete", "sessions"),
        ("exit", "leave or delete"),
        ("cache", "models"),
        ("memory", "dashboard"),
        ("download", "models"),
        ("export", "/export"),
        ("system", "/system"),
    ] {
        let mut keyboard = Keyboard::new(Chats::ready(2));
        keyboard.ctrl('p');
        keyboard.type_text(word);
        let screen = keyboard.screen();
        assert!(
            screen.lines().any(|line| line.starts_with(&format!("│ {name} "))),
            "{word} leads to {name}: {screen}"
        );
    }
}

#[test]
fn a_setting_is_reset_by_auto_and_an_empty_title_is_refused() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for setting in ["temperature", "top-p", "top-k", "min-p"] {
        let before = keyboard.chats.state.focused_pane().settings.clone();
        for value in ["0.5", "auto"] {
            let value = if setting == "top-k" && value == "0.5" {
                "7"
            } else {
                value
            };
            keyboard.type_text(&format!("/{setting} {value}"));
            keyboard.code(KeyCode::Enter);
            let same = keyboard.chats.state.focused_pane().settings == before;
            assert_eq!(same, value == "auto", "{setting} {value}");
        }
        let told = &keyboard.chats.told().text;
        assert!(
            told.contains(setting) && told.contains("as in new panes"),
            "{told}"
        );
    }
    keyboard.type_text("/title \"\"");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.chats.told().text.contains("/title takes a title"),
        "{:?}",
        keyboard.chats.told()
    );
    assert_eq!(keyboard.draft(), "/title \"\"");
}
