//! What is told, on the screen: whole, or with the way to the whole of it.

use crossterm::event::KeyCode;
use mlx_chat::chat::{Event, NoticeKind, Report};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::keys::{Change, Keymap};
use mlx_chat::ui::overlay::Overlay;

use super::support::*;

fn tell(keyboard: &mut Keyboard, kind: NoticeKind, text: &str) {
    let text = text.to_owned();
    keyboard.chats.tell(Event::Notice { kind, text });
}

/// A message of so many words that differ.
fn words(count: usize) -> String {
    let words: Vec<String> = (1..=count).map(|n| format!("word{n}")).collect();
    words.join(" ")
}

#[test]
fn what_is_longer_than_a_row_takes_those_of_the_engines_figures() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    tell(&mut keyboard, NoticeKind::Warning, &words(22));
    let screen = keyboard.screen();
    let rows: Vec<&str> = screen.lines().collect();
    assert!(
        rows[21].contains("▲ word1 ") && rows[23].contains("word22"),
        "{screen}"
    );
    assert!(
        rows[23].ends_with("F1 help") && !screen.contains("F9"),
        "{screen}"
    );
    assert!(rows[20].starts_with('└'), "the composer is as it was: {screen}");
    for word in words(22).split(' ') {
        assert!(screen.contains(word), "{word}: {screen}");
    }
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.screen().contains("step"), "{}", keyboard.screen());
}

#[test]
fn the_keys_of_what_is_entered_are_seen_though_something_was_told() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for (key, seen) in [('v', "y copy"), ('p', "presets"), ('s', "settings of pane 1")] {
        tell(&mut keyboard, NoticeKind::Warning, "an older word");
        assert!(keyboard.screen().contains("an older word"));
        keyboard.type_text("i");
        assert!(keyboard.screen().contains("an older word") || key == 'v');
        keyboard.press(crossterm::event::KeyModifiers::ALT, KeyCode::Char(key));
        let screen = keyboard.screen();
        assert!(
            screen.contains(seen) && !screen.contains("an older word"),
            "{screen}"
        );
        keyboard.code(KeyCode::Esc);
    }
}

#[test]
fn what_has_no_room_shows_the_key_to_all_of_it() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let long = words(60);
    tell(&mut keyboard, NoticeKind::Error, &long);
    let screen = keyboard.screen();
    assert!(
        screen.contains("F9 all F1 help") && !screen.contains("word60"),
        "{screen}"
    );
    keyboard.code(KeyCode::F(9));
    let list = text(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    for word in long.split(' ') {
        assert!(list.contains(word), "{word}: {list}");
    }
    keyboard.code(KeyCode::F(9));
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn messages_of_the_same_moment_are_shown_together() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for text in ["the first of them", "the second of them", "the third of them"] {
        tell(&mut keyboard, NoticeKind::Info, text);
    }
    let screen = keyboard.screen();
    assert!(
        screen.contains("the first") && screen.contains("the third") && !screen.contains("F9"),
        "{screen}"
    );
    tell(&mut keyboard, NoticeKind::Info, "the fourth of them");
    let screen = keyboard.screen();
    assert!(
        screen.contains("the fourth") && screen.contains("F9 all"),
        "{screen}"
    );
    assert!(!screen.contains("the first"), "{screen}");
}

#[test]
fn the_list_of_messages_scrolls_and_begins_with_the_newest() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.type_text("/messages");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("nothing was told yet"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Esc);
    for number in 1..=60 {
        tell(&mut keyboard, NoticeKind::Info, &format!("message {number:02}"));
    }
    keyboard.code(KeyCode::F(9));
    let screen = keyboard.screen();
    assert!(
        screen.contains("message 60") && !screen.contains("message 01"),
        "{screen}"
    );
    keyboard.code(KeyCode::Down);
    assert!(!keyboard.screen().lines().nth(2).unwrap().contains("message 60"));
    keyboard.code(KeyCode::End);
    assert!(keyboard.screen().contains("message 01"), "{}", keyboard.screen());
    keyboard.code(KeyCode::Home);
    assert!(keyboard.screen().contains("message 60"));
    assert!(matches!(keyboard.view.overlay, Some(Overlay::Messages(_))));
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn messages_are_whole_at_every_size_or_lead_to_the_list() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    tell(&mut keyboard, NoticeKind::Info, "an older one");
    tell(&mut keyboard, NoticeKind::Warning, &words(14));
    for on_top in [false, true] {
        if on_top {
            keyboard.code(KeyCode::F(9));
            keyboard.code(KeyCode::F(9));
            keyboard.ctrl('p');
        }
        for width in 0..130 {
            for height in 0..45 {
                let screen = text(&mut keyboard.view, &keyboard.chats.state, width, height);
                let whole = screen.contains("word14");
                if width >= 40 && height >= 10 && !on_top {
                    assert!(whole || screen.contains("F9 all"), "{width}x{height}: {screen}");
                }
            }
        }
    }
}

#[test]
fn why_nothing_is_saved_stays_in_the_last_row_until_it_is() {
    // No space left on the device; a file system that is only read.
    for number in [28, 30] {
        let why = std::io::Error::from_raw_os_error(number).to_string();
        let mut keyboard = Keyboard::new(Chats::ready(1));
        let message = format!("log.jsonl: {why}");
        keyboard.chats.tell(Event::Writer(Report::Failing { message }));
        for (width, height) in [(80, 24), (120, 40), (40, 10)] {
            keyboard.chats.tell(Event::DismissNotices);
            let screen = text(&mut keyboard.view, &keyboard.chats.state, width, height);
            let last = screen.lines().last().unwrap();
            let whole = format!("✗ not saved: log.jsonl: {why}");
            let seen = last.trim_start().split("  ").next().unwrap();
            match width {
                40 => {
                    let (begins, _) = seen.split_once('…').unwrap();
                    assert!(
                        whole.starts_with(begins) && begins.contains(" log.jsonl:"),
                        "{screen}"
                    );
                }
                _ => assert_eq!(seen, whole, "{screen}"),
            }
            assert!(screen.contains("NOT SAVED"), "{screen}");
        }
        // What is told meanwhile goes first, and the reason comes back.
        tell(&mut keyboard, NoticeKind::Info, "something else");
        let screen = keyboard.screen();
        assert!(screen.contains("something else") && !screen.contains("not saved:"));
        keyboard.chats.tell(Event::DismissNotices);
        assert!(keyboard.screen().contains("not saved:"));
        keyboard.chats.tell(Event::Writer(Report::Recovered));
        keyboard.chats.tell(Event::DismissNotices);
        let screen = keyboard.screen();
        assert!(
            !screen.contains("not saved") && !screen.contains("NOT SAVED"),
            "{screen}"
        );
    }
}

#[test]
fn a_preset_is_asked_for_by_name_though_a_file_of_presets_is_broken() {
    for (bytes, line) in [
        (&b"[mine\ntop_k = 7\n"[..], 1),
        (&b"[mine]\ntop_k = 7\n\xff\n"[..], 3),
    ] {
        let mut keyboard = Keyboard::new(Chats::ready(1));
        let folder = keyboard.folder.path().join("presets");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("mine.toml"), bytes).unwrap();
        keyboard.view.presets = folder;
        let before = keyboard.chats.state.focused_pane().settings.clone();
        keyboard.type_text("/preset mine");
        keyboard.code(KeyCode::Enter);
        let told = keyboard.chats.told();
        let start = format!("there is no preset \"mine\" (mine.toml:{line}: ");
        assert_eq!(told.kind, NoticeKind::Warning);
        assert!(
            told.text.starts_with(&start) && told.text.contains("there are assistant, precise"),
            "{}",
            told.text
        );
        assert_eq!(keyboard.chats.state.focused_pane().settings, before);
        // One of the program's own is applied, and what is broken told with it.
        keyboard.type_text("/preset creative");
        keyboard.code(KeyCode::Enter);
        assert_ne!(keyboard.chats.state.focused_pane().settings, before);
        let told: Vec<&str> = keyboard
            .chats
            .state
            .notices()
            .iter()
            .map(|n| n.text.as_str())
            .collect();
        assert!(
            told.iter()
                .any(|text| text.contains("pane 1 is as preset \"creative\"")),
            "{told:?}"
        );
        let broken = format!("mine.toml:{line}: ");
        assert!(told.iter().any(|text| text.starts_with(&broken)), "{told:?}");
    }
}

#[test]
fn what_is_wrong_with_presets_is_told_whole() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let folder = keyboard.folder.path().join("presets");
    std::fs::create_dir(&folder).unwrap();
    keyboard.view.presets = folder.clone();
    let file = "[mine]\ntop_k = 7\ntemprature = 1\nseed = 'x'\n[other]\n";
    std::fs::write(folder.join("mine.toml"), file).unwrap();
    keyboard.type_text("/presets");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(screen.contains("mine") && screen.contains("other"), "{screen}");
    // On several rows of the list's foot.
    let spaced = screen.replace(['│', '\n'], " ");
    let spaced = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        spaced.contains("mine.toml:3: preset \"mine\": temprature: there is no setting"),
        "{screen}"
    );
    assert!(
        spaced.contains("max_tokens, thinking, stop_at (and 1 more: F9 lists all)"),
        "{screen}"
    );
    keyboard.code(KeyCode::Esc);
    keyboard.type_text("/preset mine");
    keyboard.code(KeyCode::Enter);
    let sampling = keyboard.chats.state.focused_pane().settings.sampling;
    assert_eq!((sampling.top_k, sampling.seed), (7, None));
    keyboard.code(KeyCode::F(9));
    let list = keyboard.screen();
    assert!(
        list.contains("mine.toml:4: preset \"mine\": seed: seed takes a number"),
        "{list}"
    );
}

#[test]
fn a_conversation_that_is_full_says_so_and_what_helps_by_the_keys_that_count() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "tell me all");
    chats.says(request, "all of it");
    let end = mlx_chat::engine::Finish {
        prompt_tokens: 8000,
        generated_tokens: 192,
        ..finish(
            FinishReason::Length,
            Some("prompt and answer fill the model's 8192 positions"),
        )
    };
    chats.engine(request, mlx_chat::engine::Event::Finish(end));
    let mut keyboard = Keyboard::new(chats);
    let screen = keyboard.screen();
    let told = words_of(&screen);
    assert!(
        told.contains(
            "The conversation is full, 8192 of 8192 tokens: /new begins another, Alt-e edits an earlier prompt."
        ),
        "{screen}"
    );
    assert!(!screen.contains("Alt-n"), "{screen}");
    let (keymap, _) = Keymap::with(&[Change {
        action: "edit_prompt".into(),
        keys: vec!["ctrl-n".into()],
    }]);
    keyboard.view.keymap = keymap;
    let request = keyboard.chats.send(1, "and more");
    let end = mlx_chat::engine::Finish {
        prompt_tokens: 8200,
        ..finish(FinishReason::Rejected, Some("too long"))
    };
    keyboard
        .chats
        .engine(request, mlx_chat::engine::Event::Finish(end));
    let screen = keyboard.screen();
    let told = words_of(&screen);
    assert!(
        told.contains("not answered: the conversation is full: 8200 of 8192 tokens with this prompt"),
        "{screen}"
    );
    assert!(
        told.contains("/new begins another, ^N edits an earlier prompt"),
        "{screen}"
    );
    assert_eq!(
        told.matches("begins another").count(),
        2,
        "once in the pane, once below: {screen}"
    );
    assert_eq!(keyboard.draft(), "and more");
}

/// What a screen says, without its borders and wraps.
fn words_of(screen: &str) -> String {
    let spaced = screen.replace(['│', '\n'], " ");
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}
