//! Themes, the mouse and vim's keys, as a person meets them.

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::FinishReason;
use mlx_chat::ui::Look;
use mlx_chat::ui::input::Reaction;
use mlx_chat::ui::keys::Keymap;
use mlx_chat::ui::mouse::MouseMode;
use mlx_chat::ui::styles::theme::{Background, Theme, Themes};
use mlx_chat::ui::styles::{ColorMode, Styles};
use ratatui::style::Color;

use super::support::*;

/// Two themes of a color each.
fn themes() -> Themes {
    let theme = |text: &str, background: &str| {
        let mut theme = Theme::default();
        theme.set("text", text).unwrap();
        theme.set("background", background).unwrap();
        theme
    };
    Themes::new(vec![
        ("dark".into(), theme("#eeeeee", "#111111")),
        ("light".into(), theme("#111111", "#eeeeee")),
    ])
}

fn look() -> Look {
    Look {
        themes: themes(),
        ..Look::new(Styles::new(ColorMode::True, false), Keymap::default())
    }
}

fn keyboard(look: Look) -> Keyboard {
    let mut keyboard = Keyboard::new(working(2));
    keyboard.view.take_look(look);
    keyboard.screen();
    keyboard
}

/// What the screen's last cell stands on.
fn background(keyboard: &mut Keyboard) -> Color {
    let (buffer, _) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    buffer.cell((79, 23)).unwrap().bg
}

const LIGHT: Color = Color::Rgb(0xee, 0xee, 0xee);
const DARK: Color = Color::Rgb(0x11, 0x11, 0x11);

fn alt(keyboard: &mut Keyboard, c: char) {
    keyboard.press(KeyModifiers::ALT, KeyCode::Char(c));
}

#[test]
fn a_theme_shows_itself_while_it_is_selected_and_escape_goes_back() {
    let mut keyboard = keyboard(look());
    assert_eq!(background(&mut keyboard), Color::Reset);
    alt(&mut keyboard, 't');
    assert!(keyboard.screen().contains("the terminal's own colors"));
    keyboard.code(KeyCode::Down);
    keyboard.code(KeyCode::Down);
    assert_eq!(background(&mut keyboard), DARK);
    keyboard.code(KeyCode::Char('j'));
    assert_eq!(background(&mut keyboard), LIGHT);
    keyboard.code(KeyCode::Esc);
    assert_eq!(background(&mut keyboard), Color::Reset);
    assert!(!keyboard.screen().contains("the terminal's own colors"));
}

#[test]
fn a_chosen_theme_stays_until_the_setting_says_another() {
    let mut keyboard = keyboard(look());
    alt(&mut keyboard, 't');
    keyboard.code(KeyCode::Up);
    keyboard.code(KeyCode::Enter);
    assert_eq!(background(&mut keyboard), LIGHT);
    let file = keyboard.folder.path().join("config.toml");
    let told = &keyboard.chats.told().text;
    assert!(
        told.starts_with("theme light is kept in ") && told.contains("config.toml"),
        "{told}"
    );
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept, "[interface]\ntheme = \"light\"\n");
    let other = Look {
        bell: false,
        ..look()
    };
    keyboard.view.take_look(other);
    assert_eq!(background(&mut keyboard), LIGHT, "another setting was changed");
    let theme = "dark".to_owned();
    keyboard.view.take_look(Look { theme, ..look() });
    assert_eq!(background(&mut keyboard), DARK);
}

#[test]
fn what_is_switched_counts_until_one_leaves_or_has_it_kept() {
    let mut keyboard = keyboard(look());
    alt(&mut keyboard, 'w');
    let told = &keyboard.chats.told().text;
    assert!(
        told.ends_with("until you leave: /keep-switches keeps it"),
        "{told}"
    );
    let file = keyboard.folder.path().join("config.toml");
    assert!(!file.exists());
    keyboard.ctrl('u');
    keyboard.type_text("/keep-switches");
    keyboard.code(KeyCode::Enter);
    let told = &keyboard.chats.told().text;
    assert!(
        told.starts_with("mouse wheel is kept in ") && told.ends_with("config.toml"),
        "{told}"
    );
    let kept = std::fs::read_to_string(&file).unwrap();
    assert_eq!(kept, "[interface]\nmouse = \"wheel\"\n");
}

#[test]
fn what_a_flag_gave_is_not_kept_and_what_decides_again_is_told() {
    let decided = vec![
        ("vim", "--vim".to_owned()),
        ("mouse", "MLX_CHAT_INTERFACE_MOUSE".to_owned()),
        ("theme", "--theme".to_owned()),
    ];
    let mut keyboard = keyboard(Look {
        vim: true,
        decided,
        ..look()
    });
    let keep = |keyboard: &mut Keyboard| {
        keyboard.ctrl('u');
        keyboard.type_text("/keep-switches");
        keyboard.code(KeyCode::Enter);
        keyboard.chats.told().text.clone()
    };
    let told = keep(&mut keyboard);
    assert!(
        told.ends_with("as the settings have them: nothing is to be kept"),
        "{told}"
    );
    let file = keyboard.folder.path().join("config.toml");
    assert!(!file.exists());
    alt(&mut keyboard, 'w');
    let told = keep(&mut keyboard);
    assert!(
        told.ends_with("; MLX_CHAT_INTERFACE_MOUSE counts before that, where it is given"),
        "{told}"
    );
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "[interface]\nmouse = \"wheel\"\n"
    );
}

#[test]
fn auto_follows_what_is_known_of_the_terminal() {
    for (known, is) in [
        (None, DARK),
        (Some(Background::Light), LIGHT),
        (Some(Background::Dark), DARK),
    ] {
        let mut keyboard = keyboard(Look {
            theme: "auto".into(),
            background: known,
            ..look()
        });
        assert_eq!(background(&mut keyboard), is);
        let asks = keyboard.view.looks.bytes(false);
        assert_eq!(
            asks.is_empty(),
            known.is_some(),
            "the terminal is asked once, if it has to be"
        );
        assert!(keyboard.view.looks.bytes(true).is_empty());
    }
}

#[test]
fn themes_leave_sixteen_colors_and_none_as_they_are() {
    for mode in [ColorMode::Sixteen, ColorMode::Off] {
        let mut keyboard = keyboard(Look {
            theme: "light".into(),
            styles: Styles::new(mode, false),
            ..look()
        });
        assert_eq!(background(&mut keyboard), Color::Reset);
        alt(&mut keyboard, 't');
        assert!(keyboard.screen().contains("shows its own colors alone"));
    }
}

#[test]
fn no_cell_of_any_window_is_left_out_of_a_theme() {
    let mut keyboard = keyboard(Look {
        theme: "light".into(),
        ..look()
    });
    for keys in ["help", "palette", "themes", "sessions", "reading", "dashboard"] {
        match keys {
            "help" => keyboard.code(KeyCode::F(1)),
            "palette" => keyboard.ctrl('p'),
            "themes" => alt(&mut keyboard, 't'),
            "sessions" => keyboard.ctrl('o'),
            "reading" => keyboard.ctrl('f'),
            _ => keyboard.code(KeyCode::F(2)),
        }
        let (buffer, _) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
        let bare = buffer.content().iter().enumerate().filter(|(at, cell)| {
            let left = at.checked_sub(1).map(|left| &buffer.content()[left]);
            let covered = left.is_some_and(|left| mlx_chat::ui::cells::width(left.symbol()) > 1);
            cell.bg == Color::Reset && !covered
        });
        assert_eq!(bare.count(), 0, "{keys}");
        keyboard.code(KeyCode::Esc);
    }
}

fn mouse(keyboard: &mut Keyboard, kind: MouseEventKind, column: u16, row: u16) -> Vec<Reaction> {
    let event = MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    };
    let reactions = keyboard.view.settle(&keyboard.chats.state);
    keyboard.react(reactions);
    let reactions = keyboard.view.mouse(&event, &keyboard.chats.state);
    keyboard.react(reactions.clone());
    keyboard.screen();
    reactions
}

fn click(keyboard: &mut Keyboard, column: u16, row: u16) -> Vec<Reaction> {
    let mut out = mouse(keyboard, MouseEventKind::Down(MouseButton::Left), column, row);
    out.extend(mouse(
        keyboard,
        MouseEventKind::Up(MouseButton::Left),
        column,
        row,
    ));
    out
}

fn copied(reactions: &[Reaction]) -> Option<&str> {
    reactions.iter().find_map(|reaction| match reaction {
        Reaction::Copy { text, .. } => Some(text.as_str()),
        _ => None,
    })
}

fn with_mouse(mouse: MouseMode) -> Look {
    Look { mouse, ..look() }
}

/// Where a text stands on the screen.
fn place(keyboard: &mut Keyboard, text: &str) -> (u16, u16) {
    let screen = keyboard.screen();
    let (row, line) = screen
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains(text))
        .unwrap();
    let column = mlx_chat::ui::cells::width(&line[..line.find(text).unwrap()]);
    (column as u16, row as u16)
}

#[test]
fn the_mouse_is_the_terminals_unless_it_is_asked_for() {
    let mut keyboard = keyboard(look());
    assert!(
        keyboard.view.looks.bytes(true).is_empty(),
        "nothing is told to the terminal"
    );
    let other = place(&mut keyboard, "same, but");
    assert!(click(&mut keyboard, other.0, other.1).is_empty());
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    alt(&mut keyboard, 'w');
    assert_eq!(*keyboard.view.looks.mouse.now(), MouseMode::Wheel);
    let told = String::from_utf8(keyboard.view.looks.bytes(false)).unwrap();
    assert!(told.contains("?1000h") && told.contains("?1006h") && !told.contains("?1002h"));
    assert!(keyboard.view.looks.bytes(false).is_empty());
    assert!(
        !keyboard.view.looks.bytes(true).is_empty(),
        "a terminal that was left forgot"
    );
    alt(&mut keyboard, 'w');
    alt(&mut keyboard, 'w');
    assert_eq!(*keyboard.view.looks.mouse.now(), MouseMode::Off);
    let told = String::from_utf8(keyboard.view.looks.bytes(false)).unwrap();
    assert!(told.contains("?1000l") && told.contains("?1006l"));
}

#[test]
fn the_wheel_scrolls_the_pane_under_the_pointer() {
    for mode in [MouseMode::Wheel, MouseMode::Full] {
        let mut keyboard = keyboard(with_mouse(mode));
        let request = mlx_chat::engine::RequestId(17);
        keyboard.chats.says(request, &"more lines\n\n".repeat(30));
        keyboard.screen();
        let room = keyboard.view.places.panes[0].1;
        let top = keyboard.view.pane(pane(1)).transcript.top();
        mouse(&mut keyboard, MouseEventKind::ScrollUp, room.x + 3, room.y + 3);
        assert_eq!(keyboard.view.pane(pane(1)).transcript.top(), top - 3);
        let other = keyboard.view.places.panes[1].1;
        mouse(&mut keyboard, MouseEventKind::ScrollUp, other.x, other.y);
        assert_eq!(
            keyboard.view.pane(pane(1)).transcript.top(),
            top - 3,
            "the other pane was meant"
        );
        mouse(&mut keyboard, MouseEventKind::ScrollDown, room.x, room.y);
        assert!(keyboard.view.pane(pane(1)).transcript.follows());
        assert_eq!(keyboard.chats.state.focused(), pane(1));
    }
}

#[test]
fn the_wheel_moves_what_lies_on_top() {
    let mut keyboard = keyboard(with_mouse(MouseMode::Wheel));
    keyboard.code(KeyCode::F(1));
    mouse(&mut keyboard, MouseEventKind::ScrollDown, 10, 10);
    assert_eq!(keyboard.view.help.as_ref().map(|help| help.top), Some(3));
    keyboard.code(KeyCode::Esc);
    alt(&mut keyboard, 't');
    mouse(&mut keyboard, MouseEventKind::ScrollUp, 10, 10);
    assert_eq!(background(&mut keyboard), LIGHT);
}

#[test]
fn a_click_chooses_a_pane_and_sets_the_caret() {
    let mut keyboard = keyboard(with_mouse(MouseMode::Full));
    let (column, row) = place(&mut keyboard, "same, but");
    click(&mut keyboard, column, row);
    assert_eq!(keyboard.chats.state.focused(), pane(2));
    let (column, row) = place(&mut keyboard, "explain");
    click(&mut keyboard, column, row);
    assert_eq!(keyboard.chats.state.focused(), pane(1));
    let (column, row) = place(&mut keyboard, "write a test");
    click(&mut keyboard, column + 6, row);
    assert_eq!(keyboard.caret(), 6);
    click(&mut keyboard, 70, row);
    assert_eq!(keyboard.caret(), keyboard.draft().len());
}

#[test]
fn a_click_on_the_line_above_code_copies_it_and_on_a_thought_unfolds_it() {
    let mut keyboard = keyboard(with_mouse(MouseMode::Full));
    keyboard.chats = Chats::ready(1);
    let request = keyboard.chats.send(1, "x");
    keyboard.chats.thinks(
        request,
        "a secret thought",
        "first\n\n```sh\nls -l\n```\n\n```sh\npwd\n```\n",
    );
    let (column, row) = place(&mut keyboard, "[2] copy");
    let reactions = click(&mut keyboard, column, row);
    assert_eq!(copied(&reactions), Some("pwd\n"));
    assert!(!keyboard.screen().contains("a secret thought"));
    let (column, row) = place(&mut keyboard, "thought");
    click(&mut keyboard, column, row);
    assert!(keyboard.screen().contains("a secret thought"));
}

#[test]
fn what_is_dragged_over_is_copied_without_borders_and_wraps() {
    let mut keyboard = keyboard(with_mouse(MouseMode::Full));
    let (column, row) = place(&mut keyboard, "RoPE rotates");
    let room = keyboard.view.places.panes[0].1;
    mouse(
        &mut keyboard,
        MouseEventKind::Down(MouseButton::Left),
        column,
        row,
    );
    mouse(
        &mut keyboard,
        MouseEventKind::Drag(MouseButton::Left),
        room.right() + 5,
        row + 4,
    );
    let reactions = mouse(
        &mut keyboard,
        MouseEventKind::Up(MouseButton::Left),
        room.right() + 5,
        row + 4,
    );
    let text = copied(&reactions).unwrap();
    assert!(
        text.starts_with("RoPE rotates each query/key pair by an angle that grows with"),
        "{text:?}"
    );
    assert!(!text.contains(['│', '\n']), "{text:?}");
    let (buffer, _) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    let marked = buffer.cell((column, row)).unwrap().modifier;
    assert!(
        marked.contains(ratatui::style::Modifier::REVERSED),
        "it stays marked"
    );
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.view.marked.is_none());
    assert!(
        keyboard.chats.cancelled.is_empty(),
        "Esc did not stop the answer, too"
    );
}

#[test]
fn what_is_drawn_around_code_and_tables_and_how_an_answer_ended_is_not_copied() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "code");
    chats.thinks(
        request,
        "a thought",
        "Look:\n\n```sh\nls -l\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n\nend",
    );
    chats.finishes(request, FinishReason::Stop, None);
    let mut keyboard = Keyboard::new(chats);
    keyboard.view.take_look(with_mouse(MouseMode::Full));
    let mut drag = |from: &str, to: &str| {
        let (from, to) = (place(&mut keyboard, from), place(&mut keyboard, to));
        let held = MouseButton::Left;
        mouse(&mut keyboard, MouseEventKind::Down(held), from.0, from.1);
        mouse(&mut keyboard, MouseEventKind::Drag(held), to.0 + 30, to.1);
        let reactions = mouse(&mut keyboard, MouseEventKind::Up(held), to.0 + 30, to.1);
        copied(&reactions).unwrap_or_default().to_owned()
    };
    let whole = drag("Look:", "stop, ");
    let lines: Vec<&str> = whole.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines[..5],
        ["Look:", "ls -l", "a | b", "--|--", "1 | 2"],
        "{whole}"
    );
    assert!(
        lines[5].chars().all(|c| c == '-') && lines[6..] == ["end"],
        "{whole}"
    );
    assert!(!whole.contains("\n\n\n"), "{whole}");
    assert!(drag("stop, ", "stop, ").starts_with("stop, 128 tokens"));
}

#[test]
fn without_copy_on_select_the_interrupt_key_copies_and_nothing_else() {
    let mut keyboard = keyboard(Look {
        copy_on_select: false,
        ..with_mouse(MouseMode::Full)
    });
    let (column, row) = place(&mut keyboard, "RoPE");
    mouse(
        &mut keyboard,
        MouseEventKind::Down(MouseButton::Left),
        column,
        row,
    );
    mouse(
        &mut keyboard,
        MouseEventKind::Drag(MouseButton::Left),
        column + 3,
        row,
    );
    let reactions = mouse(
        &mut keyboard,
        MouseEventKind::Up(MouseButton::Left),
        column + 3,
        row,
    );
    assert_eq!(copied(&reactions), None);
    let key = crossterm::event::KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    let reactions = keyboard.view.key(&key, &keyboard.chats.state, keyboard.now);
    assert_eq!(copied(&reactions), Some("RoPE"));
    assert_eq!(reactions.len(), 1, "the draft stays");
}

#[test]
fn a_mouse_over_what_lies_on_top_and_at_every_place_breaks_nothing() {
    for (width, height) in [(80, 24), (41, 11), (10, 3), (200, 50)] {
        let mut keyboard = keyboard(with_mouse(MouseMode::Full));
        for opened in [KeyCode::Null, KeyCode::F(1), KeyCode::F(2)] {
            keyboard.code(opened);
            draw(&mut keyboard.view, &keyboard.chats.state, width, height);
            for column in (0..width + 4).step_by(3) {
                for row in 0..height + 3 {
                    for kind in [
                        MouseEventKind::Down(MouseButton::Left),
                        MouseEventKind::Drag(MouseButton::Left),
                        MouseEventKind::ScrollUp,
                        MouseEventKind::Up(MouseButton::Left),
                        MouseEventKind::Moved,
                    ] {
                        let event = MouseEvent {
                            kind,
                            column: column ^ (row % 7),
                            row,
                            modifiers: KeyModifiers::NONE,
                        };
                        keyboard.view.mouse(&event, &keyboard.chats.state);
                    }
                }
                draw(&mut keyboard.view, &keyboard.chats.state, width, height);
            }
            keyboard.code(KeyCode::Esc);
        }
    }
}

fn vim() -> Keyboard {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    alt(&mut keyboard, 'i');
    keyboard
}

#[test]
fn what_is_written_in_one_go_is_one_change_of_vims() {
    let mut keyboard = vim();
    keyboard.type_text("one two three");
    keyboard.code(KeyCode::Esc);
    for keys in ["0cwXYZ and more", "Onew", "ggcGzz", "Athe end"] {
        keyboard.type_text(keys);
        keyboard.code(KeyCode::Esc);
        keyboard.type_text("u");
        assert_eq!(keyboard.draft(), "one two three", "{keys}");
    }
    keyboard.type_text("u");
    assert_ne!(keyboard.draft(), "one two three");
}

#[test]
fn vims_keys_edit_the_draft_and_the_mode_is_shown() {
    let mut keyboard = vim();
    assert!(keyboard.screen().contains("INSERT"));
    keyboard.type_text("one two three");
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.screen().contains("NORMAL"));
    keyboard.type_text("bdb");
    assert_eq!(keyboard.draft(), "one three");
    keyboard.type_text("2");
    assert!(keyboard.screen().contains("NORMAL 2"));
    keyboard.type_text("u");
    assert_eq!(keyboard.draft(), "one two ");
    keyboard.ctrl('r');
    assert_eq!(keyboard.draft(), "one two three");
    keyboard.type_text("A!");
    assert_eq!(keyboard.draft(), "one two three!");
    keyboard.code(KeyCode::Enter);
    assert_eq!(keyboard.draft(), "", "Enter sends");
    assert!(keyboard.screen().contains("INSERT"));
    alt(&mut keyboard, 'i');
    assert!(!keyboard.screen().contains("INSERT"));
}

#[test]
fn escape_goes_from_the_top_down_with_vims_keys() {
    let mut keyboard = vim();
    let request = keyboard.chats.send(1, "x");
    keyboard.chats.says(request, "word");
    keyboard.type_text("/t");
    assert!(keyboard.screen().contains("/temperature"));
    keyboard.code(KeyCode::Esc);
    assert!(!keyboard.screen().contains("/temperature"), "the list goes first");
    assert!(keyboard.screen().contains("INSERT"));
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.screen().contains("NORMAL"));
    keyboard.type_text("2d");
    keyboard.code(KeyCode::Esc);
    assert!(keyboard.chats.cancelled.is_empty());
    keyboard.code(KeyCode::Esc);
    assert_eq!(keyboard.chats.cancelled, [request], "only then the answer stops");
}

#[test]
fn rows_and_history_are_reached_by_vims_keys() {
    let mut keyboard = vim();
    let request = keyboard.chats.send(1, "said before");
    keyboard
        .chats
        .finishes(request, mlx_chat::engine::FinishReason::Stop, None);
    keyboard.type_text("new");
    keyboard.code(KeyCode::Esc);
    keyboard.type_text("k");
    assert_eq!(keyboard.draft(), "said before");
    keyboard.type_text("j");
    assert_eq!(keyboard.draft(), "new");
}

#[test]
fn other_keys_count_among_vims_commands() {
    let mut keyboard = vim();
    keyboard.code(KeyCode::Esc);
    keyboard.type_text("q/Z");
    assert_eq!(keyboard.draft(), "", "a key that is no command types nothing");
    keyboard.ctrl('p');
    assert!(keyboard.screen().contains(" commands "));
    keyboard.type_text("dd");
    assert!(
        keyboard.screen().contains("> dd"),
        "what lies on top takes keys as ever"
    );
}

#[test]
fn a_burst_without_marks_becomes_a_chip_and_a_typed_text_does_not() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    for _ in 0..12 {
        for c in "line".chars() {
            keyboard.now += std::time::Duration::from_millis(1);
            keyboard.burst(KeyModifiers::NONE, KeyCode::Char(c));
        }
        keyboard.now += std::time::Duration::from_millis(1);
        keyboard.burst(KeyModifiers::NONE, KeyCode::Enter);
        // A frame in between is no end.
        keyboard.screen();
    }
    keyboard.now += std::time::Duration::from_millis(1);
    keyboard.burst(KeyModifiers::NONE, KeyCode::Char('x'));
    let screen = keyboard.screen();
    assert!(screen.contains("[Pasted 13 lines]"), "{screen}");
    assert_eq!(keyboard.draft(), "line\n".repeat(12) + "x");
    keyboard.code(KeyCode::Backspace);
    assert_eq!(keyboard.draft(), "", "it is one character");
    keyboard.chats.tell(Event::Draft(Draft::default()));
    keyboard.type_text(&"word ".repeat(250));
    assert!(!keyboard.screen().contains("[Pasted"), "a person typed it");
}
