//! Every state at every size in every color mode: what has to be the same among them, and what must not be.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::FinishReason;
use mlx_chat::engine::telemetry::{EngineState, Snapshot};
use mlx_chat::ui::Look;
use mlx_chat::ui::keys::Keymap;
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::styles::theme::{Theme, Themes};
use mlx_chat::ui::styles::{ColorMode, Styles};
use mlx_chat::ui::view::{Screen, View, to_text};
use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::support::*;

const SIZES: [(u16, u16); 5] = [(20, 5), (40, 10), (80, 24), (120, 40), (200, 50)];

const STATES: [&str; 14] = [
    "empty",
    "streaming",
    "queued",
    "thinking",
    "error",
    "code and table",
    "dashboard",
    "help",
    "palette",
    "picker",
    "themes",
    "leaving",
    "loading",
    "vim",
];

const CODE: &str = "Some **strong** words and `code`.\n\n| name | rate |\n|---|--:|\n| a | 1.5 |\n\n\
    ```rust\nfn main() {} // done\n```\n";

fn chats(state: &str) -> Chats {
    match state {
        "empty" | "vim" => Chats::ready(2),
        "thinking" => {
            let mut chats = Chats::ready(2);
            let request = chats.send(1, "think");
            chats.thinks(request, "Step by step: one, two.", "Done.");
            let open = chats.send(2, "think on");
            let mut text = mlx_chat::text::spans::Spanned::default();
            text.push(mlx_chat::text::spans::Span::Thinking, false, "I wonder");
            let (index, token, logprob) = (0, 0, None);
            chats.engine(
                open,
                mlx_chat::engine::Event::Token {
                    index,
                    token,
                    text,
                    logprob,
                },
            );
            chats
        }
        "error" => {
            let mut chats = Chats::ready(2);
            let request = chats.send(1, "four");
            chats.says(request, "Half an answ");
            chats.finishes(request, FinishReason::Error, Some("the forward failed"));
            chats
        }
        "code and table" => {
            let mut chats = Chats::ready(1);
            let request = chats.send(1, "show");
            chats.says(request, CODE);
            chats.finishes(request, FinishReason::Stop, None);
            chats
        }
        "loading" => {
            let mut chats = Chats::new(2);
            let state = EngineState::Loading {
                stage: "reading the weights".into(),
                done: 44 * MIB,
                total: 98 * MIB,
            };
            let loading = Snapshot::loading("");
            chats.tell(Event::Snapshot(Arc::new(Snapshot { state, ..loading })));
            chats.tell(Event::Draft(Draft::at_end("hello there")));
            chats.tell(Event::Submit);
            chats
        }
        "queued" => {
            let mut chats = working(2);
            chats.tell(Event::Focus(pane(2)));
            chats
        }
        _ => working(4),
    }
}

/// A view of a state in these looks, after the keys that lead there.
fn view_of(state: &str, look: Look) -> (Chats, View) {
    let mut keyboard = Keyboard::new(chats(state));
    keyboard.view = view(look.styles);
    keyboard.view.take_samples(&steps(300));
    keyboard.view.take_look(look);
    keyboard.screen();
    match state {
        "dashboard" => keyboard.view.screen = Screen::Dashboard,
        "help" => keyboard.code(KeyCode::F(1)),
        "palette" => {
            keyboard.ctrl('p');
            keyboard.type_text("pane");
        }
        "picker" => keyboard.ctrl('o'),
        "themes" => keyboard.press(KeyModifiers::ALT, KeyCode::Char('t')),
        "leaving" => keyboard.view.overlay = Some(Overlay::Leave),
        "vim" => {
            keyboard.press(KeyModifiers::ALT, KeyCode::Char('i'));
            keyboard.type_text("some words");
            keyboard.code(KeyCode::Esc);
            keyboard.type_text("2d");
            keyboard.chats.tell(Event::DismissNotices);
        }
        _ => {}
    }
    (keyboard.chats, keyboard.view)
}

/// A theme in which every role has a color of its own.
fn theme() -> Theme {
    let mut theme = Theme::default();
    for (at, (_, key, _)) in mlx_chat::ui::styles::theme::ROLES.iter().enumerate() {
        theme.set(key, &format!("#{:02x}4080", at * 8)).unwrap();
    }
    theme
}

/// The looks that are told apart.
fn looks() -> [(&'static str, Look); 5] {
    let look = |mode, ascii| Look::new(Styles::new(mode, ascii), Keymap::default());
    let themed = |mode| Look {
        themes: Themes::new(vec![("mine".into(), theme())]),
        theme: "mine".into(),
        ..look(mode, false)
    };
    [
        ("sixteen", look(ColorMode::Sixteen, false)),
        ("truecolor", themed(ColorMode::True)),
        ("256", themed(ColorMode::Indexed)),
        ("none", look(ColorMode::Off, false)),
        ("ascii", look(ColorMode::Off, true)),
    ]
}

fn has_rgb(color: Color) -> bool {
    matches!(color, Color::Rgb(..))
}

/// The text without the marks that stand for code where there is no color, and without what differs in looks.
fn words(buffer: &Buffer) -> Vec<String> {
    let text = to_text(buffer);
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn every_state_says_the_same_at_every_size_in_all_colors() {
    for state in STATES {
        for (width, height) in SIZES {
            let mut pictures = Vec::new();
            for (name, look) in looks() {
                let (chats, mut view) = view_of(state, look);
                let (buffer, cursor) = draw(&mut view, &chats.state, width, height);
                assert!(
                    cursor.is_none_or(|(x, y)| x < width && y < height),
                    "{state} {name}"
                );
                pictures.push((name, buffer, cursor));
            }
            let [sixteen, truecolor, indexed, none, ascii] = &pictures[..] else {
                panic!("five looks");
            };
            let place = format!("{state} at {width}x{height}");
            // Colors change no character. The list of themes names those that there are.
            if state != "themes" {
                assert_eq!(to_text(&sixteen.1), to_text(&truecolor.1), "{place}");
                assert_eq!(sixteen.2, none.2, "{place}: the cursor");
            }
            assert_eq!(to_text(&truecolor.1), to_text(&indexed.1), "{place}");
            if !["code and table", "themes"].contains(&state) {
                assert_eq!(words(&sixteen.1), words(&none.1), "{place}");
            }
            for cell in sixteen.1.content() {
                assert!(!has_rgb(cell.fg) && cell.bg == Color::Reset, "{place}");
            }
            for cell in none.1.content().iter().chain(ascii.1.content()) {
                assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{place}");
            }
            for (at, cell) in truecolor.1.content().iter().enumerate() {
                let left = at.checked_sub(1).map(|left| truecolor.1.content()[left].symbol());
                let covered = left.is_some_and(|left| mlx_chat::ui::cells::width(left) > 1);
                assert!(
                    covered || has_rgb(cell.fg) && has_rgb(cell.bg),
                    "{place}: {cell:?}"
                );
            }
            for cell in indexed.1.content() {
                assert!(!has_rgb(cell.fg) && !has_rgb(cell.bg), "{place}");
            }
            let strange = ascii.1.content().iter().filter(|cell| !cell.symbol().is_ascii());
            let of_the_model = strange.filter(|cell| !"日本語も👩‍👩‍👧".contains(cell.symbol()));
            assert_eq!(of_the_model.count(), 0, "{place}: {}", to_text(&ascii.1));
        }
    }
}

#[test]
fn every_state_draws_at_every_small_size_in_all_colors() {
    for state in STATES {
        for (name, look) in looks() {
            if name == "256" || name == "none" {
                continue;
            }
            let (chats, mut view) = view_of(state, look);
            for width in 0..=45 {
                for height in 0..=15 {
                    let (_, cursor) = draw(&mut view, &chats.state, width, height);
                    assert!(
                        cursor.is_none_or(|(x, y)| x < width && y < height),
                        "{state} {name}"
                    );
                }
            }
        }
    }
}

#[test]
fn states_that_no_other_picture_shows() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for state in ["empty", "thinking", "error", "themes", "vim"] {
            for (width, height) in SIZES {
                let (chats, mut view) = view_of(state, looks()[0].1.clone());
                let (buffer, cursor) = draw(&mut view, &chats.state, width, height);
                let cursor = cursor.map_or("no cursor".to_owned(), |(x, y)| format!("cursor {x},{y}"));
                let name = format!("state_{state}_{width}x{height}");
                insta::assert_snapshot!(name, format!("{}{cursor}", styled(&buffer)));
            }
        }
    });
}
