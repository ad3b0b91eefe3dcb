//! Pictures of what lies over the screen, or above the composer.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::{EngineState, Snapshot};
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::models::Escape;
use mlx_chat::ui::view::View;
use mlx_chat::ui::writing::attach::Seen;

use super::picker::store_talk;
use super::screens::check;
use super::support::*;

/// A view after keys that are pressed one after the other.
pub fn after(keys: &'static str) -> impl Fn(&mut View) {
    move |view| {
        let mut keyboard = Keyboard::new(working(2));
        std::mem::swap(&mut keyboard.view, view);
        for c in keys.chars() {
            match c {
                '^' => keyboard.ctrl('p'),
                '$' => keyboard.code(KeyCode::Enter),
                '!' => keyboard.code(KeyCode::Down),
                c => keyboard.code(KeyCode::Char(c)),
            }
        }
        std::mem::swap(&mut keyboard.view, view);
    }
}

#[test]
fn the_palette_over_the_chat() {
    check("palette", no_color(), &working(2), after("^"));
    check("palette_color", color(), &working(2), after("^pane!"));
    check("palette_ascii", ascii(), &working(2), after("^/t"));
    check("palette_wrong", no_color(), &working(2), after("^/seed x$"));
}

#[test]
fn the_picker_over_the_chat() {
    let pick = |text: &'static str, by_text: bool| {
        move |view: &mut View| {
            let mut keyboard = Keyboard::new(working(2));
            for (number, title) in [
                (1, "Rope scaling"),
                (2, "Rivers wind 日本"),
                (3, "Haiku about caches"),
            ] {
                store_talk(
                    &mut keyboard.store,
                    number * 86_400,
                    title,
                    "explain it",
                    "keys wait in silence",
                );
            }
            std::mem::swap(&mut keyboard.view, view);
            keyboard.press(KeyModifiers::ALT, KeyCode::Char('o'));
            if by_text {
                keyboard.code(KeyCode::Tab);
            } else {
                keyboard.ctrl('x');
            }
            keyboard.type_text(text);
            std::mem::swap(&mut keyboard.view, view);
        }
    };
    check("picker", no_color(), &working(2), pick("", false));
    check("picker_color", color(), &working(2), pick("ri", false));
    check("picker_ascii", ascii(), &working(2), pick("wait", true));
}

/// What lies on top after Alt and a letter, and further keys, over these conversations.
fn with_alt(chats: fn() -> Chats, letter: char, keys: &'static [KeyCode]) -> impl Fn(&mut View) {
    move |view| {
        let mut keyboard = Keyboard::new(chats());
        std::mem::swap(&mut keyboard.view, view);
        keyboard.press(KeyModifiers::ALT, KeyCode::Char(letter));
        for code in keys {
            keyboard.code(*code);
        }
        std::mem::swap(&mut keyboard.view, view);
    }
}

#[test]
fn the_settings_of_a_pane() {
    let open = || with_alt(|| working(2), 's', &[KeyCode::Down, KeyCode::Enter]);
    check(
        "settings",
        no_color(),
        &working(2),
        with_alt(|| working(2), 's', &[]),
    );
    check("settings_color", color(), &working(2), open());
    check("settings_ascii", ascii(), &working(2), open());
}

#[test]
fn the_picker_of_presets() {
    let open = || with_alt(|| working(2), 'p', &[KeyCode::Char('r')]);
    check(
        "presets",
        no_color(),
        &working(2),
        with_alt(|| working(2), 'p', &[]),
    );
    check("presets_color", color(), &working(2), open());
}

/// Three panes that answered the same prompt.
fn compared() -> Chats {
    let mut chats = Chats::ready(3);
    let answers = [
        "Because **water** takes the outside.",
        "They don't: *they meander*.",
        "漢字 and more.",
    ];
    for (number, answer) in (1..).zip(answers) {
        let request = chats.send(number, "Why do rivers wind?");
        chats.says(request, answer);
        chats.finishes(request, FinishReason::Stop, None);
    }
    chats.tell(Event::Focus(pane(1)));
    chats
}

#[test]
fn answers_side_by_side() {
    let open = || with_alt(compared, 'c', &[KeyCode::Right]);
    check("compare", no_color(), &compared(), open());
    check("compare_color", color(), &compared(), open());
    check("compare_ascii", ascii(), &compared(), open());
}

#[test]
fn panes_that_take_part_and_private_ones() {
    let mut chats = compared();
    chats.tell(Event::NewPrivatePane { session: session(9) });
    chats.tell(Event::Focus(pane(2)));
    chats.tell(Event::ToggleBroadcast);
    chats.tell(Event::ToggleReceives);
    chats.tell(Event::DismissNotices);
    check("take_part", no_color(), &chats, |_| {});
    check("take_part_ascii", ascii(), &chats, |_| {});
}

#[test]
fn the_picker_of_models_and_the_question_before_a_change() {
    let pick = |keys: &'static str| {
        move |view: &mut View| {
            let mut keyboard = super::models::picking();
            std::mem::swap(&mut keyboard.view.overlay, &mut view.overlay);
            std::mem::swap(&mut keyboard.view.going, &mut view.going);
            std::mem::swap(&mut keyboard.view, view);
            keyboard.chats = working(2);
            match keys {
                "delete" => {
                    keyboard.type_text("beta");
                    keyboard.ctrl('x');
                }
                "change" => {
                    keyboard.type_text("beta");
                    keyboard.code(KeyCode::Enter);
                }
                _ => {}
            }
            std::mem::swap(&mut keyboard.view, view);
        }
    };
    check("models", no_color(), &working(2), pick(""));
    check("models_color", color(), &working(2), pick("delete"));
    check("models_ascii", ascii(), &working(2), pick("change"));
}

#[test]
fn a_model_on_its_way_says_how_far_it_is_and_what_escape_does() {
    let mut chats = working(1);
    let request = chats.submitted[0];
    chats.finishes(request, FinishReason::Stop, None);
    chats.tell(Event::Hold);
    let mut loading = Snapshot::loading("");
    loading.state = EngineState::Loading {
        stage: "beta-70b: loading the model".into(),
        done: 1 << 30,
        total: 4 << 30,
    };
    chats.tell(Event::Snapshot(Arc::new(loading)));
    let going = |view: &mut View| {
        view.going.to = Some("beta-70b".into());
        view.going.escape = Some(Escape::Back("alpha-1b".into()));
    };
    check("changing", no_color(), &chats, going);
}

#[test]
fn pastes_and_files_in_the_composer() {
    let mut chats = working(2);
    let text = format!("compare {}with @Cargo.toml", "x\n".repeat(2114));
    let paste = 8..8 + 2 * 2114;
    chats.tell(Event::Draft(Draft::at_end(text).with_pastes([paste])));
    let knows = |view: &mut View| {
        view.wants(&working(2).state);
        let mut chats = working(2);
        chats.tell(Event::Draft(Draft::at_end("@Cargo.toml @x.png")));
        view.wants(&chats.state);
        let goes = Seen::Goes {
            bytes: 2210,
            lines: 98,
        };
        let wrong = Seen::Wrong("it is binary".into());
        view.attached
            .take_seen(vec![("Cargo.toml".into(), goes), ("x.png".into(), wrong)]);
    };
    check("composer", no_color(), &chats, knows);
    check("composer_color", color(), &chats, knows);
}

#[test]
fn the_question_before_leaving() {
    check("leave", no_color(), &working(4), |view| {
        view.overlay = Some(Overlay::Leave)
    });
}

#[test]
fn slash_commands_above_the_composer() {
    let mut chats = working(2);
    chats.tell(Event::Draft(Draft::new("/t", 2)));
    check("slash", no_color(), &chats, |_| {});
    check("slash_color", color(), &chats, |_| {});
}
