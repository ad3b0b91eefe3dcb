//! What settings change on the screen: keys, colors, bell, thoughts.

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::engine;
use mlx_chat::ui::app::App;
use mlx_chat::ui::keys::{Change, Keymap};
use mlx_chat::ui::styles::{ColorMode, Styles};
use mlx_chat::ui::{Look, Reload};
use tokio::sync::mpsc;

use super::stand::*;
use super::support::*;

fn look(action: &str, keys: &[&str]) -> Look {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let action = action.to_owned();
    let (keymap, troubles) = Keymap::with(&[Change { action, keys }]);
    assert_eq!(troubles, []);
    Look::new(no_color(), keymap)
}

#[test]
fn footer_help_and_titles_show_the_keys_that_apply() {
    let mut keyboard = Keyboard::new(Chats::ready(2));
    keyboard.view.take_look(look("broadcast", &["ctrl-b", "f12"]));
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 120, 40);
    assert!(
        screen.contains("^B to all") && screen.contains("(^B broadcast)"),
        "{screen}"
    );
    assert!(!screen.contains("F3"), "{screen}");
    keyboard.code(KeyCode::F(3));
    assert!(!keyboard.chats.state.broadcast());
    keyboard.ctrl('b');
    assert!(keyboard.chats.state.broadcast());
    keyboard.code(KeyCode::F(1));
    let help = text(&mut keyboard.view, &keyboard.chats.state, 120, 120);
    assert!(
        help.contains("send prompts to all panes, or to one again (also F12)"),
        "{help}"
    );
}

#[test]
fn an_action_without_keys_is_on_no_screen() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.view.take_look(look("help", &[]));
    keyboard.code(KeyCode::F(1));
    assert!(keyboard.view.help.is_none());
    let screen = text(&mut keyboard.view, &keyboard.chats.state, 120, 40);
    assert!(!screen.contains("F1") && !screen.contains("help"), "{screen}");
}

#[test]
fn a_remapped_interrupt_is_named_where_it_is_asked_for_again() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    keyboard.view.take_look(look("interrupt", &["ctrl-q"]));
    keyboard.press(KeyModifiers::CONTROL, KeyCode::Char('q'));
    assert!(keyboard.screen().contains("Press ^Q once more to quit"));
}

#[test]
fn settings_that_change_are_on_the_next_frame_and_wrong_ones_are_told() {
    let (sender, reloads) = mpsc::unbounded_channel();
    let prepare = |app: &mut App| app.follow_settings(reloads);
    on_stand_with(ready(), prepare, |stand| async move {
        stand.pass(100).await;
        let calm = stand.screen.draws();
        stand.pass(3_600_000).await;
        assert_eq!(
            stand.screen.draws(),
            calm,
            "nothing is drawn while nothing changes"
        );
        assert!(stand.screen.contents().contains('┌'));
        let changed = Look {
            styles: Styles::new(ColorMode::Off, true),
            ..look("dashboard", &["f12"])
        };
        let told = |look: Option<Look>, wrong: &[&str]| Reload {
            look,
            wrong: wrong.iter().map(|why| (*why).to_owned()).collect(),
        };
        sender.send(told(Some(changed), &[])).unwrap();
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(screen.contains("F12 engine") && !screen.contains('┌'), "{screen}");
        let wrong = "config.toml:3: it is wrong";
        sender.send(told(None, &[wrong])).unwrap();
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(screen.contains(wrong) && !screen.contains('┌'), "{screen}");
        stand.hands.code(KeyCode::F(12));
        stand.pass(100).await;
        assert!(stand.screen.contents().contains("step phases"), "the keys stayed");
        stand.hands.code(KeyCode::F(12));
        stand.pass(100).await;
        // What is not wrong counts.
        sender
            .send(told(
                Some(look("dashboard", &["f11"])),
                &["config.toml:4: so is this"],
            ))
            .unwrap();
        stand.pass(100).await;
        let screen = stand.screen.contents();
        assert!(screen.contains("so is this") && screen.contains('┌'), "{screen}");
        stand.hands.code(KeyCode::F(11));
        stand.pass(100).await;
        assert!(stand.screen.contents().contains("step phases"));
    });
}

#[test]
fn the_bell_rings_unless_it_is_off() {
    for (bell, rings) in [(true, true), (false, false)] {
        let prepare = |app: &mut App| {
            app.view().take_look(Look {
                bell,
                ..look("zoom", &["f7"])
            });
        };
        on_stand_with(ready(), prepare, |stand| async move {
            stand.pass(100).await;
            for _ in 0..8 {
                // The tenth pane is refused.
                stand.hands.code(KeyCode::F(4));
                stand.pass(100).await;
            }
            let frames = stand.screen.0.borrow().frames.concat();
            assert_eq!(frames.contains(&0x07), rings, "{bell}");
        });
    }
}

#[test]
fn the_bell_rings_for_an_answers_end_where_settings_say_so() {
    for bell_when_done in [true, false] {
        let prepare = |app: &mut App| {
            app.view().take_look(Look {
                bell: false,
                bell_when_done,
                ..look("zoom", &["f7"])
            });
        };
        on_stand_with(ready(), prepare, |stand| async move {
            stand.pass(100).await;
            stand.hands.text("hi");
            stand.hands.code(KeyCode::Enter);
            stand.pass(100).await;
            stand.engine.says(0, "hello");
            stand.pass(100).await;
            let rang = || stand.screen.0.borrow().frames.concat().contains(&0x07);
            assert!(!rang());
            let end = engine::Event::Finish(finish(engine::FinishReason::Stop, None));
            stand.engine.tell(0, end);
            stand.pass(100).await;
            assert_eq!(rang(), bell_when_done);
        });
    }
}

#[test]
fn thoughts_are_shown_in_full_from_the_beginning_where_settings_say_so() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "why?");
    chats.thinks(request, "Let me see.", "Because.");
    for thoughts in [true, false] {
        let mut keyboard = Keyboard::new(Chats::ready(1));
        keyboard.chats = Chats {
            state: chats.state.clone(),
            submitted: Vec::new(),
            cancelled: Vec::new(),
            writes: Vec::new(),
        };
        keyboard.view = view(no_color());
        keyboard.view.take_look(Look {
            thoughts,
            ..look("zoom", &["f7"])
        });
        assert_eq!(keyboard.screen().contains("Let me see."), thoughts);
        keyboard.view.take_look(Look {
            thoughts: !thoughts,
            ..look("zoom", &["f7"])
        });
        assert_eq!(keyboard.screen().contains("Let me see."), !thoughts, "and anew");
    }
}
