//! The picker of models.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::ui::models::{Answer, Facts, Fetching, Fit, Inventory, Listed, Place, Wish};
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::models::{Fetch, ModelPicker};
use mlx_chat::ui::worker::Done;

use super::shelf::{Shelf, facts, listed};
use super::support::*;

/// A keyboard over four models, of which `alpha` is in use, and the prompt cache; the picker is open.
pub fn picking() -> Keyboard {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let shelf = Shelf::new(&[]);
    {
        let mut inventory = shelf.inventory.lock().unwrap();
        let mut alpha = listed("alpha-1b", Place::Installed);
        (alpha.in_use, alpha.default) = (true, true);
        let mut delta = listed("delta", Place::Remote);
        (delta.unfinished, delta.facts) = (5 << 20, Some(facts(Fit::Whole)));
        inventory.models = vec![
            alpha,
            listed("beta-70b", Place::Cached),
            listed("gamma", Place::Elsewhere),
            delta,
        ];
        (inventory.prompt_files, inventory.prompt_bytes) = (3, 40 << 20);
        let mut known = shelf.facts.lock().unwrap();
        known.insert("alpha-1b".into(), facts(Fit::Whole));
        known.insert("beta-70b".into(), facts(Fit::UpTo(900)));
    }
    keyboard.models = shelf;
    keyboard.view.going.current = Some("alpha-1b".into());
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    keyboard
}

fn picker(keyboard: &Keyboard) -> &ModelPicker {
    match &keyboard.view.overlay {
        Some(Overlay::Models(picker)) => picker,
        other => panic!("{other:?}"),
    }
}

fn line_of(screen: &str, name: &str) -> String {
    let line = screen.lines().find(|line| line.contains(name));
    line.unwrap_or_else(|| panic!("no {name} in {screen}")).to_owned()
}

#[test]
fn models_are_listed_with_place_size_weights_and_whether_they_fit() {
    let mut keyboard = picking();
    assert_eq!(
        picker(&keyboard).shown(),
        ["alpha-1b", "beta-70b", "gamma", "delta"]
    );
    let screen = keyboard.screen();
    for (name, parts) in [
        ("alpha-1b ", ["*", "installed", "98M", "Q4_K", "fits"]),
        ("beta-70b ", ["", "hub cache", "98M", "Q4_K", "to 900 tok"]),
        ("gamma ", ["", "your file", "98M", "not readable", ""]),
        ("delta ", ["", "begun", "98M", "Q4_K", "fits"]),
        ("prompt cache", ["", "on disk", "40M", "3 files", ""]),
    ] {
        let line = line_of(&screen, name);
        assert!(parts.iter().all(|part| line.contains(part)), "{name}: {line}");
    }
    for part in [
        "the default model; 98M weights + 180M KV for ",
        " tokens, 12G free",
    ] {
        assert!(screen.contains(part), "{screen}");
    }
    assert!(screen.contains("3 on this machine, 294M"), "{screen}");
}

#[test]
fn on_a_narrow_screen_name_size_and_whether_it_fits_are_whole_and_the_rest_stands_below() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let shelf = Shelf::new(&[]);
    let unsupported = Fit::Unsupported("no such kind".into());
    let fits = [Fit::Whole, Fit::UpTo(131_072), Fit::No, unsupported];
    {
        let mut inventory = shelf.inventory.lock().unwrap();
        let mut known = shelf.facts.lock().unwrap();
        for (number, fit) in fits.into_iter().enumerate() {
            let name = format!("seventeen-cells-{number}");
            known.insert(name.clone(), facts(fit));
            inventory.models.push(listed(&name, Place::Cached));
        }
        let name = "somebody/a-name-of-many-letters";
        inventory.models.push(listed(name, Place::Installed));
    }
    keyboard.models = shelf;
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 40, 14);
    for (number, fit) in ["fits", "to 131k tok", "too large", "unsupported"]
        .into_iter()
        .enumerate()
    {
        let line = line_of(&screen, &format!("   seventeen-cells-{number} "));
        let rest = line.split_once(&format!("-{number} ")).unwrap().1;
        let rest: Vec<&str> = rest.trim_end_matches('│').split_whitespace().collect();
        assert_eq!(rest.join(" "), format!("98M {fit}"), "{screen}");
    }
    assert!(screen.contains("│ hub cache; 98M weights"), "{screen}");
    (0..4).for_each(|_| keyboard.code(KeyCode::Down));
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 40, 14);
    let line = line_of(&screen, "   somebody/");
    assert!(line.contains("…   98M"), "{screen}");
    assert!(
        screen.contains("│ somebody/a-name-of-many-letters; in"),
        "{screen}"
    );
    // Where there are rows enough, it is whole.
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 40, 24);
    let below = line_of(&screen, "│ somebody/a-name-of-many-letters; ");
    let next = screen.split_once(&below).unwrap().1;
    assert!(next.starts_with("\n│ installed"), "{screen}");
}

#[test]
fn letters_find_a_model_and_enter_takes_it() {
    let mut keyboard = picking();
    keyboard.type_text("bt70");
    assert_eq!(picker(&keyboard).shown(), ["beta-70b"]);
    keyboard.code(KeyCode::Enter);
    let name = "beta-70b".to_owned();
    assert_eq!(keyboard.wishes, [Wish::Use { name, stop: false }]);
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn a_model_that_is_not_here_is_downloaded_while_the_list_stays_open() {
    let mut keyboard = picking();
    keyboard.type_text("delta");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.wishes, [Wish::Fetch("delta".into())]);
    let mut fetch = Fetch::new("delta");
    let fetching = |done| Fetching {
        stage: "downloading".into(),
        done,
        total: 100 << 20,
    };
    fetch.take(fetching(0), Duration::from_secs(1));
    fetch.take(fetching(20 << 20), Duration::from_secs(3));
    keyboard.view.going.fetch = Some(fetch);
    let line = line_of(&keyboard.screen(), "delta: ");
    for part in ["20%", "20M of 100M", "10M/s", "8 s left"] {
        assert!(line.contains(part), "{line}");
    }
    // One at a time; Esc stops it and leaves the list.
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.screen().contains("being downloaded already"));
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.wishes.last(), Some(&Wish::StopFetch));
    picker(&keyboard);
    // The key that opens the list closes it, too, and the download goes on.
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    assert!(keyboard.view.overlay.is_none());
    assert!(
        keyboard.screen().contains("gets delta 20%"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn a_model_is_deleted_after_a_question_that_enter_does_not_answer() {
    let mut keyboard = picking();
    keyboard.type_text("beta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("Delete beta-70b, 98M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.code(KeyCode::Enter);
    assert!(keyboard.models.log().is_empty());
    keyboard.type_text("n");
    assert!(
        !keyboard.screen().contains("Delete beta"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('x');
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["remove beta-70b"]);
    assert_eq!(picker(&keyboard).shown(), [""; 0], "the list is read again");
    assert_eq!(keyboard.chats.told().text, "deleted beta-70b");
}

#[test]
fn what_is_in_use_or_somebodys_own_is_not_deleted() {
    for (letters, why) in [("alpha", "it is in use"), ("gamma", "a file of your own")] {
        let mut keyboard = picking();
        keyboard.type_text(letters);
        keyboard.ctrl('x');
        assert!(keyboard.screen().contains(why), "{}", keyboard.screen());
        keyboard.type_text("y");
        assert!(keyboard.models.log().is_empty());
    }
}

#[test]
fn what_the_list_told_is_among_the_messages() {
    let mut keyboard = picking();
    keyboard.type_text("alpha");
    keyboard.ctrl('x');
    keyboard.code(KeyCode::Esc);
    keyboard.code(KeyCode::F(9));
    let screen = keyboard.screen();
    assert!(
        screen.contains("alpha-1b: it is in use: change to another model first"),
        "{screen}"
    );
    assert!(keyboard.chats.state.notices().is_empty(), "it is told once");
}

#[test]
fn a_name_that_is_not_listed_is_looked_for() {
    let mut keyboard = picking();
    keyboard.type_text("nobody");
    assert!(keyboard.screen().contains("3 on this machine"));
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(
        screen.contains("none of these is called nobody: a repository is called owner/name"),
        "{screen}"
    );
    keyboard.ctrl('u');
    keyboard.type_text("owner/name");
    let screen = keyboard.screen();
    assert!(screen.contains("Enter looks for owner/name"), "{screen}");
    keyboard.models.log().clear();
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(screen.contains("there is no model owner/name"), "{screen}");
    assert_eq!(keyboard.wishes, []);
    // One that can be had is downloaded while the list stays.
    keyboard
        .models
        .inventory
        .lock()
        .unwrap()
        .models
        .push(listed("other/model", Place::Remote));
    keyboard.ctrl('u');
    keyboard.type_text("other/model");
    assert_eq!(picker(&keyboard).shown(), [""; 0], "the list is of before");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.wishes, [Wish::Fetch("other/model".into())]);
    picker(&keyboard);
    // One that is here is taken.
    keyboard
        .models
        .inventory
        .lock()
        .unwrap()
        .models
        .push(listed("my/folder", Place::Elsewhere));
    keyboard.ctrl('u');
    keyboard.type_text("my/folder");
    keyboard.code(KeyCode::Enter);
    let name = "my/folder".to_owned();
    assert_eq!(keyboard.wishes.last(), Some(&Wish::Use { name, stop: false }));
    assert!(keyboard.view.overlay.is_none());
}

#[test]
fn a_model_without_a_chat_template_is_marked() {
    let mut keyboard = picking();
    keyboard.code(KeyCode::Esc);
    for (name, fit) in [("alpha-1b", Fit::Whole), ("beta-70b", Fit::UpTo(900))] {
        let mut facts = facts(fit);
        facts.template = Some(false);
        keyboard.models.facts.lock().unwrap().insert(name.into(), facts);
    }
    keyboard.press(KeyModifiers::ALT, KeyCode::Char('m'));
    let screen = keyboard.screen();
    assert!(line_of(&screen, "alpha-1b ").contains("no template"), "{screen}");
    assert!(line_of(&screen, "beta-70b ").contains("to 900 tok"), "{screen}");
    assert!(screen.contains("no chat template; "), "{screen}");
    keyboard.code(KeyCode::Down);
    assert!(keyboard.screen().contains("no chat template; "));
}

#[test]
fn a_model_on_its_way_is_not_deleted() {
    let mut keyboard = picking();
    keyboard.view.going.to = Some("beta-70b".into());
    keyboard.type_text("beta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("it is in use"),
        "{}",
        keyboard.screen()
    );
}

#[test]
fn what_a_download_left_is_deleted_and_counted() {
    let mut keyboard = picking();
    keyboard.type_text("delta");
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("Delete delta, 5.0M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["remove delta"]);
}

#[test]
fn the_prompt_caches_files_are_deleted_after_a_question() {
    let mut keyboard = picking();
    keyboard.type_text("prompt");
    keyboard.code(KeyCode::Enter);
    assert!(
        keyboard.screen().contains("only be deleted"),
        "{}",
        keyboard.screen()
    );
    keyboard.ctrl('x');
    assert!(
        keyboard.screen().contains("prompt cache's files, 40M?"),
        "{}",
        keyboard.screen()
    );
    keyboard.type_text("y");
    assert_eq!(keyboard.models.log(), ["clear prompts"]);
    assert!(!keyboard.screen().contains("3 files"), "{}", keyboard.screen());
}

#[test]
fn what_becomes_of_answers_is_asked_before_a_model_comes() {
    for (key, stop) in [('f', Some(false)), ('s', Some(true)), ('n', None)] {
        let mut keyboard = picking();
        keyboard.chats.send(1, "a long story");
        keyboard.type_text("beta");
        keyboard.code(KeyCode::Enter);
        let screen = keyboard.screen();
        assert!(screen.contains("An answer still streams."), "{screen}");
        assert!(screen.contains("f or Enter lets them finish first"), "{screen}");
        assert!(keyboard.wishes.is_empty());
        keyboard.type_text(&key.to_string());
        let name = "beta-70b".to_owned();
        let wishes: Vec<Wish> = stop.map(|stop| Wish::Use { name, stop }).into_iter().collect();
        assert_eq!(keyboard.wishes, wishes, "{key}");
        assert!(keyboard.view.overlay.is_none());
    }
}

#[test]
fn a_command_takes_a_model_by_its_name_downloads_it_or_opens_the_list() {
    let mut keyboard = picking();
    keyboard.code(KeyCode::Esc);
    let mut command = |line: &str| {
        keyboard.chats.tell(Event::Draft(Draft::at_end(line)));
        keyboard.code(KeyCode::Enter);
        std::mem::take(&mut keyboard.wishes)
    };
    let name = "gamma".to_owned();
    assert_eq!(command("/model gamma"), [Wish::Use { name, stop: false }]);
    assert_eq!(command("/model delta"), [Wish::Fetch("delta".into())]);
    picker(&keyboard);
    keyboard.code(KeyCode::Esc);
    keyboard.chats.tell(Event::Draft(Draft::at_end("/model nobody")));
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.wishes, []);
    assert!(keyboard.chats.told().text.contains("there is no model nobody"));
    keyboard.chats.tell(Event::Draft(Draft::at_end("/model")));
    keyboard.code(KeyCode::Enter);
    picker(&keyboard);
}

#[test]
fn the_picker_is_drawn_at_any_size() {
    let mut keyboard = picking();
    keyboard.chats.send(1, "a long story");
    for asks in [false, true] {
        if asks {
            keyboard.type_text("beta");
            keyboard.code(KeyCode::Enter);
        }
        for width in 0..90 {
            for height in 0..16 {
                text(&mut keyboard.view, &keyboard.chats.state, width, height);
            }
        }
    }
}

#[test]
fn what_the_worker_found_takes_no_overlay_away_that_was_opened_meanwhile() {
    let mut keyboard = picking();
    keyboard.code(KeyCode::Esc);
    keyboard.chats.send(1, "a long story");
    let found = |keyboard: &mut Keyboard, name: &str, here| {
        let done = Done::Models(Answer::Found(name.to_owned(), Ok(here)));
        let reactions = keyboard.view.take_done(done, &keyboard.chats.state);
        keyboard.react(reactions);
        keyboard.screen()
    };
    keyboard.ctrl('p');
    keyboard.type_text("the");
    assert!(!found(&mut keyboard, "beta-70b", true).contains("still streams"));
    assert!(found(&mut keyboard, "delta", false).contains("the"));
    assert!(matches!(keyboard.view.overlay, Some(Overlay::Palette(_))));
    assert_eq!(keyboard.wishes, [Wish::Fetch("delta".into())]);
    // What was to be asked is asked when nothing lies on top any more.
    keyboard.code(KeyCode::Esc);
    let screen = keyboard.screen();
    assert!(screen.contains("An answer still streams."), "{screen}");
    keyboard.type_text("f");
    let name = "beta-70b".to_owned();
    assert_eq!(keyboard.wishes[1..], [Wish::Use { name, stop: false }]);
}

#[test]
fn what_is_known_of_models_is_read_again_with_the_list_and_the_selection_stays() {
    let mut keyboard = picking();
    assert!(line_of(&keyboard.screen(), "beta-70b").contains("to 900 tok"));
    let other = facts(Fit::UpTo(77));
    keyboard
        .models
        .facts
        .lock()
        .unwrap()
        .insert("beta-70b".into(), other);
    keyboard.models.facts.lock().unwrap().remove("alpha-1b");
    keyboard.type_text("delta");
    keyboard.ctrl('x');
    keyboard.type_text("y");
    (0..5).for_each(|_| keyboard.code(KeyCode::Backspace));
    assert!(line_of(&keyboard.screen(), "beta-70b").contains("to 77 tok"));
    assert!(line_of(&keyboard.screen(), "alpha-1b").contains("not readable"));
    // One more comes before the selected one.
    keyboard.code(KeyCode::Down);
    keyboard.code(KeyCode::Down);
    let mut inventory = keyboard.models.inventory.lock().unwrap().clone();
    inventory.models.insert(0, listed("aaa", Place::Installed));
    let done = Done::Models(Answer::Listed(Ok(inventory)));
    let reactions = keyboard.view.take_done(done, &keyboard.chats.state);
    keyboard.react(reactions);
    keyboard.ctrl('x');
    let screen = keyboard.screen();
    assert!(screen.contains("gamma: it is a file of your own"), "{screen}");
}

#[test]
fn a_scripted_engine_says_what_is_known_and_no_zeros() {
    let mut keyboard = picking();
    let scripted = Listed {
        bytes: None,
        facts: Some(Facts {
            quantization: "scripted".into(),
            context: 4096,
            ..Facts::default()
        }),
        ..listed("calm", Place::Elsewhere)
    };
    let inventory = Inventory {
        models: vec![scripted],
        ..Inventory::default()
    };
    let done = Done::Models(Answer::Listed(Ok(inventory)));
    let reactions = keyboard.view.take_done(done, &keyboard.chats.state);
    keyboard.react(reactions);
    let screen = keyboard.screen();
    let about = line_of(&screen, "scripted, up to");
    assert!(about.contains("096 tokens"), "{screen}");
    assert!(
        !screen.contains("weights") && !screen.contains("free"),
        "{screen}"
    );
    assert!(screen.contains("1 on this machine; * is in use"), "{screen}");
}
