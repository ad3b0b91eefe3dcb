//! Every screen at fixed sizes, as pictures that are kept, and at every small size without a panic.

use std::sync::Arc;

use crossterm::event::KeyCode;
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::telemetry::{EngineState, Snapshot};
use mlx_chat::engine::{self, FinishReason};
use mlx_chat::ui::cells;
use mlx_chat::ui::overlay::Overlay;
use mlx_chat::ui::overlay::help::Help;
use mlx_chat::ui::reading::reader::{Ask, Asked};
use mlx_chat::ui::styles::Styles;
use mlx_chat::ui::view::{Screen, View};

use super::overlays::after;
use super::support::*;

const SIZES: [(u16, u16); 5] = [(20, 5), (40, 10), (80, 24), (120, 40), (200, 50)];

pub fn check(name: &str, styles: Styles, chats: &Chats, prepare: impl Fn(&mut View)) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (width, height) in SIZES {
            let mut view = view(styles);
            view.take_samples(&steps(300));
            prepare(&mut view);
            let (buffer, cursor) = draw(&mut view, &chats.state, width, height);
            let picture = match styles == color() {
                true => styled(&buffer),
                false => mlx_chat::ui::view::to_text(&buffer),
            };
            let cursor = cursor.map_or("no cursor".to_owned(), |(x, y)| format!("cursor {x},{y}"));
            insta::assert_snapshot!(format!("{name}_{width}x{height}"), format!("{picture}{cursor}"));
        }
    });
}

fn dashboard(view: &mut View) {
    view.screen = Screen::Dashboard;
}

#[test]
fn chat_in_color() {
    check("chat_color", color(), &working(2), |_| {});
}

#[test]
fn chat_without_color() {
    check("chat_no_color", no_color(), &working(2), |_| {});
}

#[test]
fn chat_in_ascii() {
    check("chat_ascii", ascii(), &working(2), |_| {});
}

#[test]
fn chat_with_four_panes() {
    check("chat_four", no_color(), &working(4), |_| {});
}

#[test]
fn chat_with_nine_panes() {
    check("chat_nine", no_color(), &working(9), |_| {});
}

#[test]
fn dashboard_in_color() {
    check("dashboard_color", color(), &working(4), dashboard);
}

#[test]
fn dashboard_without_color() {
    check("dashboard_no_color", no_color(), &working(4), dashboard);
}

#[test]
fn dashboard_in_ascii() {
    check("dashboard_ascii", ascii(), &working(4), dashboard);
}

#[test]
fn help_over_the_chat() {
    check("help", no_color(), &working(2), |view| {
        view.help = Some(Help::default())
    });
}

const READING: &str = "# Title\n\nSome *emphasis*, **strong** text, `code`, a [link](http://a.b) and ![a cat](c.png).\n\n\
    1. one\n2. two\n   - deep\n\n> quoted\n> words\n\n| name | rate |\n|:-----|-----:|\n| a | 1.5 |\n| **b** | 20 |\n\n\
    ```python\ndef f(x):\n    return x  # done\n```\n\n---\n\nSo $a_1 * b_2$ <b>holds</b>.";

/// An answer with one of everything, and one reads it.
fn markdown() -> Chats {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "show everything");
    chats.says(request, READING);
    chats.finishes(request, FinishReason::Stop, None);
    chats
}

#[test]
fn markdown_in_color() {
    check("markdown_color", color(), &markdown(), |_| {});
}

#[test]
fn markdown_without_color() {
    check("markdown_no_color", no_color(), &markdown(), |_| {});
}

#[test]
fn markdown_in_ascii() {
    check("markdown_ascii", ascii(), &markdown(), |_| {});
}

#[test]
fn reading_with_a_search_and_a_selection() {
    let chats = markdown();
    check("reading", color(), &chats, |view| {
        view.reading = true;
        // Rows are known from the first frame on.
        draw(view, &chats.state, 80, 24);
        let transcript = &mut view.pane(pane(1)).transcript;
        transcript.select(false);
        transcript.find("o");
    });
}

#[test]
fn the_line_that_asks_for_a_block_of_code() {
    check("asking", no_color(), &markdown(), |view| {
        view.ask = Some(Ask {
            asked: Asked::Copy,
            text: "1".into(),
        });
    });
}

fn loading() -> Chats {
    let mut chats = Chats::new(2);
    let state = EngineState::Loading {
        stage: "reading the weights".into(),
        done: 44 * MIB,
        total: 98 * MIB,
    };
    chats.tell(Event::Snapshot(Arc::new(Snapshot {
        state,
        ..Snapshot::loading("")
    })));
    chats.tell(Event::Draft(Draft::new("hello there", 11)));
    chats.tell(Event::Submit);
    chats
}

fn failed() -> Chats {
    let mut chats = loading();
    let state = EngineState::Failed("weights.gguf is cut off at 12 of 98 MB: download it again".into());
    chats.tell(Event::Snapshot(Arc::new(Snapshot {
        state,
        ..Snapshot::loading("")
    })));
    chats
}

/// Answers that ended in every way there is.
fn ended() -> Chats {
    let mut chats = Chats::ready(2);
    let first = chats.send(1, "one");
    chats.says(first, "It was cut");
    chats.finishes(first, FinishReason::Length, None);
    let second = chats.send(1, "two");
    chats.says(second, "It was stopp");
    chats.finishes(second, FinishReason::Cancelled, None);
    let third = chats.send(1, "three");
    chats.finishes(
        third,
        FinishReason::Rejected,
        Some("the prompt takes 9000 tokens, the model 8192: shorten it"),
    );
    let other = chats.send(2, "four");
    chats.says(other, "Half an answ");
    chats.finishes(other, FinishReason::Error, Some("the forward failed"));
    chats.tell(Event::DismissNotices);
    chats.tell(Event::ToggleBroadcast);
    chats
}

#[test]
fn loading_shows_progress_and_the_prompt_that_waits() {
    check("loading", no_color(), &loading(), |_| {});
}

#[test]
fn a_failed_engine_says_why_and_what_to_do() {
    check("failed", no_color(), &failed(), |_| {});
}

#[test]
fn ends_of_answers_are_told_apart() {
    check("ended", no_color(), &ended(), |_| {});
}

#[test]
fn an_engine_that_did_nothing_yet_shows_no_figures() {
    let chats = Chats::ready(2);
    let mut view = view(no_color());
    view.screen = Screen::Dashboard;
    let screen = text(&mut view, &chats.state, 120, 40);
    assert!(
        screen.contains("p50 -") && screen.contains("no steps yet") && screen.contains("- no requests"),
        "{screen}"
    );
    assert!(!screen.contains("NaN") && !screen.contains("inf"), "{screen}");
}

#[test]
fn a_kv_budget_that_nobody_asked_for_is_called_the_default() {
    for default in [false, true] {
        let mut snapshot = busy();
        snapshot.info.default_kv_budget = default;
        let mut chats = Chats::ready(2);
        chats.tell(Event::Snapshot(Arc::new(snapshot)));
        let mut view = view(no_color());
        view.screen = Screen::Dashboard;
        let screen = text(&mut view, &chats.state, 120, 40);
        assert_eq!(screen.contains("(default)"), default, "{screen}");
    }
}

#[test]
fn what_lies_on_top_draws_at_every_small_size() {
    for keys in ["^", "^xyzzy", "^/seed x$", "^/s!!!", "/"] {
        for styles in [color(), ascii()] {
            let mut view = view(styles);
            after(keys)(&mut view);
            let mut chats = working(2);
            chats.tell(Event::Draft(Draft::at_end("/t")));
            for width in 0..=45 {
                for height in 0..=15 {
                    let (_, cursor) = draw(&mut view, &chats.state, width, height);
                    assert!(cursor.is_none_or(|(x, y)| x < width && y < height));
                }
            }
            view.overlay = Some(Overlay::Leave);
            for width in 0..=45 {
                for height in 0..=15 {
                    draw(&mut view, &chats.state, width, height);
                }
            }
        }
    }
}

#[test]
fn every_screen_at_every_small_size_draws_without_a_panic() {
    for chats in [
        working(2),
        working(4),
        loading(),
        failed(),
        ended(),
        Chats::new(1),
        Chats::new(9),
    ] {
        for styles in [color(), ascii()] {
            for screen in [Screen::Chat, Screen::Dashboard] {
                for help in [None, Some(Help::default()), Some(Help::at(usize::MAX / 2))] {
                    let mut view = view(styles);
                    view.take_samples(&steps(60));
                    (view.screen, view.help) = (screen, help.clone());
                    for width in 0..=45 {
                        for height in 0..=15 {
                            view.help = help.clone();
                            let (_, cursor) = draw(&mut view, &chats.state, width, height);
                            assert!(cursor.is_none_or(|(x, y)| x < width && y < height));
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn larger_sizes_draw_without_a_panic() {
    for chats in [working(4), ended(), Chats::new(9)] {
        let mut view = view(color());
        view.take_samples(&steps(600));
        for width in (46..260).step_by(9) {
            for height in (5..80).step_by(5) {
                for screen in [Screen::Chat, Screen::Dashboard] {
                    view.screen = screen;
                    draw(&mut view, &chats.state, width, height);
                }
            }
        }
    }
}

#[test]
fn ascii_screens_hold_nothing_but_ascii_of_the_interface() {
    let mut chats = Chats::ready(3);
    let request = chats.send(2, "plain prompt");
    chats.says(request, "plain answer\n```\ncode\n```\n");
    chats.tell(Event::Snapshot(Arc::new(busy())));
    for screen in [Screen::Chat, Screen::Dashboard] {
        for (width, height) in SIZES {
            let mut view = view(ascii());
            view.take_samples(&steps(300));
            view.screen = screen;
            let screen = text(&mut view, &chats.state, width, height);
            assert!(screen.is_ascii(), "{screen}");
        }
    }
}

#[test]
fn the_terminals_own_colors_are_left_alone() {
    for screen in [Screen::Chat, Screen::Dashboard] {
        let mut view = view(color());
        view.take_samples(&steps(300));
        view.screen = screen;
        let (buffer, _) = draw(&mut view, &working(4).state, 200, 50);
        use ratatui::style::Color;
        let hard = [
            Color::White,
            Color::Black,
            Color::Yellow,
            Color::Gray,
            Color::DarkGray,
        ];
        for cell in buffer.content() {
            assert_eq!(cell.bg, Color::Reset);
            assert!(!hard.contains(&cell.fg) && !matches!(cell.fg, Color::Rgb(..) | Color::Indexed(_)));
        }
    }
}

#[test]
fn text_of_the_model_cannot_steer_the_terminal() {
    let hostile = "\x1b]52;c;aGk=\x07\x1b[2J\u{9b}31m\u{202e}evil\r\x08";
    let mut chats = Chats::ready(2);
    let request = chats.send(1, hostile);
    chats.says(request, hostile);
    let mut info = busy();
    info.info.model = hostile.into();
    info.rows[0].session = Some(hostile.into());
    chats.tell(Event::Snapshot(Arc::new(info)));
    chats.tell(Event::Draft(Draft::new(hostile, 0)));
    let other = chats.send(2, "x");
    chats.finishes(other, FinishReason::Error, Some(hostile));
    for screen in [Screen::Chat, Screen::Dashboard] {
        let mut view = view(color());
        view.screen = screen;
        let (buffer, _) = draw(&mut view, &chats.state, 200, 50);
        for cell in buffer.content() {
            let bad =
                |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            assert!(!cell.symbol().contains(bad), "{:?}", cell.symbol());
        }
    }
}

#[test]
fn a_wide_emoji_beside_the_border_does_not_move_it() {
    let mut chats = Chats::ready(2);
    let request = chats.send(1, "x");
    for text in ["☺️", "👩‍👩‍👧", "日", "e\u{301}", "🇨🇭"] {
        chats.says(request, &text.repeat(200));
    }
    let mut view = view(no_color());
    let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
    for y in 2..17 {
        for x in [0, 39, 40, 79] {
            assert_eq!(buffer.cell((x, y)).unwrap().symbol(), "│", "at {x},{y}");
        }
    }
}

#[test]
fn the_cursor_stands_at_the_caret_while_text_streams() {
    let mut keyboard = Keyboard::new(working(2));
    keyboard.code(KeyCode::Left);
    let before = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24).1;
    keyboard
        .chats
        .says(mlx_chat::engine::RequestId(17), "more and more");
    let after = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24).1;
    assert_eq!(before, Some((25, 19)));
    assert_eq!(before, after);
}

/// What a screen of one pane shows.
fn shown(chats: &Chats) -> String {
    let (buffer, _) = draw(&mut view(no_color()), &chats.state, 80, 24);
    mlx_chat::ui::view::to_text(&buffer)
}

#[test]
fn a_stop_while_a_prompt_is_read_is_shown_at_once() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "a long one");
    let (prompt_tokens, cached_tokens) = (5000, 0);
    chats.engine(
        request,
        engine::Event::Admitted {
            prompt_tokens,
            cached_tokens,
        },
    );
    assert!(shown(&chats).contains("prefill 0/5000"));
    chats.tell(Event::Stop);
    let text = shown(&chats);
    assert!(
        !text.contains("prefill") && text.matches("stopping").count() == 2,
        "{text}"
    );
}

#[test]
fn what_cut_an_answer_off_is_said_under_it() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "one");
    chats.says(request, "It was");
    let full = "prompt and answer fill the model's 8192 positions";
    chats.finishes(request, FinishReason::Length, Some(full));
    assert!(shown(&chats).contains(&format!("cut off: {full}")));
}

#[test]
fn a_long_name_of_a_model_is_cut_and_takes_no_room_of_the_figures() {
    for (name, wide) in [
        ("an-organization/a-model-of-many-letters", false),
        ("千問の大きな言語模型の長い名前", true),
    ] {
        let mut chats = Chats::ready(1);
        let mut snapshot = busy();
        snapshot.info.model = name.into();
        chats.tell(Event::Snapshot(Arc::new(snapshot)));
        for (width, figures) in [
            (40, &["3 run 1 queued", "KV 30%"][..]),
            (80, &["3 run 1 queued", "122 tok/s", "KV 30% (resv 95%)"][..]),
        ] {
            for styles in [no_color(), ascii()] {
                let screen = text(&mut view(styles), &chats.state, width, 24);
                let first = screen.lines().next().unwrap();
                let shown = first.split("  ").next().unwrap().trim();
                let begins = shown.strip_suffix(styles.cut());
                let begins = begins.unwrap_or_else(|| panic!("{first} has no whole mark"));
                assert!(name.starts_with(begins), "{first}");
                // A third of the row, but for half a wide character.
                let room = usize::from(width) / 3;
                let taken = cells::width(shown);
                assert!(taken <= room && taken + usize::from(wide) >= room, "{first}");
                for figure in figures {
                    assert!(first.contains(figure), "{first}");
                }
            }
        }
    }
}
