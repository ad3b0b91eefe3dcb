//! Reading: copy, search, selection, the raw view, colors of code, figures under answers.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::{self, FinishReason, RequestId};
use mlx_chat::ui::input::Reaction;
use mlx_chat::ui::keymap::Scope;
use mlx_chat::ui::reading::highlight::Highlights;

use super::stand::*;
use super::support::*;

const ANSWER: &str =
    "First:\n\n```python\ndef f():\n\treturn \"*a*\"\n```\n\nand *then*\n\n```sh\nls\n```\nThe end.\n";

/// A pane with an answer that has two blocks of code, and what is copied in it.
struct Reader {
    keyboard: Keyboard,
    copied: Vec<(String, String)>,
    told: Vec<String>,
}

impl Reader {
    fn new() -> Self {
        let mut chats = Chats::ready(1);
        let request = chats.send(1, "show *me*");
        chats.says(request, ANSWER);
        chats.finishes(request, FinishReason::Stop, None);
        Self::of(chats)
    }

    fn of(chats: Chats) -> Self {
        Self {
            keyboard: Keyboard::new(chats),
            copied: Vec::new(),
            told: Vec::new(),
        }
    }

    fn press(&mut self, modifiers: KeyModifiers, code: KeyCode) {
        let keyboard = &mut self.keyboard;
        keyboard.now += Duration::from_millis(200);
        let key = crossterm::event::KeyEvent::new(code, modifiers);
        let mut reactions = keyboard.view.before(&key, &keyboard.chats.state);
        reactions.extend(keyboard.view.key(&key, &keyboard.chats.state, keyboard.now));
        for reaction in reactions {
            match reaction {
                Reaction::Copy { what, text } => self.copied.push((what, text)),
                Reaction::Tell(text) => self.told.push(text),
                other => self.keyboard.react(vec![other]),
            }
        }
        self.keyboard.screen();
    }

    fn keys(&mut self, text: &str) {
        for c in text.chars() {
            let code = match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                c => KeyCode::Char(c),
            };
            self.press(KeyModifiers::NONE, code);
        }
    }

    fn alt(&mut self, c: char) {
        self.press(KeyModifiers::ALT, KeyCode::Char(c));
    }

    fn screen(&mut self) -> String {
        self.keyboard.screen()
    }
}

#[test]
fn single_keys_are_typed_until_one_reads_and_again_afterwards() {
    let mut reader = Reader::new();
    reader.keys("y/n");
    assert_eq!(reader.keyboard.draft(), "y/n");
    reader.alt('v');
    assert_eq!(reader.keyboard.view.scope(), Scope::Reading);
    let screen = reader.screen();
    assert!(
        screen.contains("reads 1 show") && screen.contains("y copy"),
        "{screen}"
    );
    reader.keys("jkxz");
    assert_eq!(reader.keyboard.draft(), "y/n", "nothing is typed");
    for leaves in ["i", "q", "\x1b", "\n"] {
        reader.keys(leaves);
        assert_eq!(reader.keyboard.view.scope(), Scope::Chat, "{leaves:?}");
        reader.alt('v');
    }
    reader.alt('v');
    reader.keys("!");
    assert_eq!(reader.keyboard.draft(), "y/n!");
}

#[test]
fn escape_while_reading_stops_no_answer() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, "needle");
    let mut reader = Reader::of(chats);
    reader.alt('v');
    reader.keys("/need\n");
    reader.keys("\x1b\x1b");
    assert!(
        reader.keyboard.chats.cancelled.is_empty(),
        "first the search goes, then reading"
    );
    reader.keys("\x1b");
    assert_eq!(reader.keyboard.chats.cancelled, [request]);
}

#[test]
fn a_block_of_code_is_copied_by_its_number_byte_for_byte() {
    let mut reader = Reader::new();
    reader.alt('v');
    reader.keys("y1y2");
    let expected = [
        ("code 1".to_owned(), "def f():\n\treturn \"*a*\"\n".to_owned()),
        ("code 2".to_owned(), "ls\n".to_owned()),
    ];
    assert_eq!(reader.copied, expected);
    reader.keys("y");
    assert!(reader.screen().contains("copy code 1 to 2"));
    reader.keys("7");
    assert_eq!(reader.told, ["there is no code 7 in this pane"]);
    assert_eq!(reader.copied.len(), 2);
}

#[test]
fn numbers_go_on_over_answers_and_are_those_on_the_screen() {
    let mut chats = Chats::ready(1);
    for n in 1..=12 {
        let request = chats.send(1, "x");
        chats.says(request, &format!("```\nblock {n}\n```"));
        chats.finishes(request, FinishReason::Stop, None);
    }
    let mut reader = Reader::of(chats);
    assert!(reader.screen().contains("[12] copy"));
    reader.alt('y');
    reader.keys("12");
    reader.alt('y');
    reader.keys("1\n");
    reader.alt('y');
    reader.keys("5");
    let texts: Vec<&str> = reader.copied.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["block 12\n", "block 1\n", "block 5\n"]);
    assert_eq!(reader.keyboard.view.scope(), Scope::Chat, "one writes as before");
}

#[test]
fn the_last_answer_is_copied_as_the_model_wrote_it() {
    let mut reader = Reader::new();
    reader.alt('y');
    reader.keys("y");
    reader.alt('v');
    reader.keys("Y");
    let answer = ("the last answer".to_owned(), ANSWER.trim_end().to_owned());
    assert_eq!(reader.copied, [answer.clone(), answer]);
}

#[test]
fn an_answer_without_code_is_copied_by_the_same_keys_and_without_its_thoughts() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.thinks(request, "hm", "\n\nyes **so**");
    let mut reader = Reader::of(chats);
    for keys in ["y", "\n"] {
        reader.alt('y');
        assert!(
            reader.screen().contains("copy (y: the last answer)"),
            "{}",
            reader.screen()
        );
        reader.keys(keys);
        let copied = reader.copied.pop();
        assert_eq!(
            copied,
            Some(("the last answer".to_owned(), "yes **so**".to_owned()))
        );
        assert_eq!(reader.keyboard.draft(), "");
    }
    let mut empty = Reader::of(Chats::ready(1));
    empty.alt('y');
    empty.keys("y");
    assert_eq!(empty.told, ["the last answer is empty: nothing was copied"]);
}

#[test]
fn messages_are_selected_and_marked_and_copied() {
    let mut reader = Reader::new();
    reader.alt('v');
    reader.keys("[");
    assert!(reader.screen().contains("▌First:"), "{}", reader.screen());
    reader.keys("[Y");
    let screen = reader.screen();
    assert!(
        screen.contains("▌› show *me*") && !screen.contains("▌First:"),
        "{screen}"
    );
    reader.keys("[]Y");
    let copied: Vec<_> = reader
        .copied
        .iter()
        .map(|(what, text)| (what.as_str(), text.as_str()))
        .collect();
    assert_eq!(
        copied,
        [
            ("prompt 1 of 1", "show *me*"),
            ("answer 1 of 1", ANSWER.trim_end())
        ]
    );
    reader.keys("i");
    assert!(!reader.screen().contains('▌'));
}

#[test]
fn the_raw_view_shows_what_the_model_wrote_and_keeps_the_place() {
    let mut reader = Reader::new();
    let set = reader.screen();
    assert!(set.contains("and then") && !set.contains("```"), "{set}");
    reader.alt('r');
    let raw = reader.screen();
    assert!(
        raw.contains("and *then*") && raw.contains("```python") && raw.contains(" raw "),
        "{raw}"
    );
    reader.alt('y');
    reader.keys("y");
    assert_eq!(
        reader.copied.len(),
        1,
        "nothing is numbered: the answer is copied"
    );
    reader.alt('r');
    assert_eq!(
        reader.screen().lines().take(16).collect::<Vec<_>>(),
        set.lines().take(16).collect::<Vec<_>>()
    );
}

/// A pane with an answer of many paragraphs.
fn long() -> (Reader, RequestId) {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "count");
    let text: String = (0..100).map(|n| format!("Paragraph {n} of many.\n\n")).collect();
    chats.says(request, &text);
    (Reader::of(chats), request)
}

fn first(screen: &str) -> String {
    screen.lines().nth(2).unwrap().trim_matches('│').trim().to_owned()
}

#[test]
fn a_search_goes_to_what_is_typed_and_counts_it() {
    let (mut reader, _) = long();
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    reader.keys("graph 1");
    let screen = reader.screen();
    assert!(
        screen.contains("search: 11 of 11") && screen.contains("Paragraph 19 of"),
        "{screen}"
    );
    reader.keys("2 ");
    let screen = reader.screen();
    assert!(
        screen.contains("search: 1 of 1 ") && screen.contains("Paragraph 12 of"),
        "{screen}"
    );
    reader.press(KeyModifiers::NONE, KeyCode::Backspace);
    reader.keys("x");
    assert!(reader.screen().contains("not found"));
    assert_eq!(reader.keyboard.draft(), "");
}

#[test]
fn next_and_previous_go_around_the_ends() {
    let (mut reader, _) = long();
    reader.alt('v');
    reader.keys("g/paragraph 3\n");
    let at = |reader: &mut Reader| {
        let screen = reader.screen();
        let count = screen.split(": paragraph 3 ").nth(1).unwrap();
        count.split(" (").next().unwrap().to_owned()
    };
    assert_eq!(at(&mut reader), "1 of 11");
    reader.keys("n");
    assert_eq!(at(&mut reader), "2 of 11");
    assert!(reader.screen().contains("Paragraph 30 "));
    reader.keys("NN");
    assert_eq!(at(&mut reader), "11 of 11");
    assert!(reader.screen().contains("Paragraph 39 "));
    reader.keys("n");
    assert_eq!(at(&mut reader), "1 of 11");
}

#[test]
fn a_search_that_is_given_up_goes_back_to_where_one_was() {
    let (mut reader, _) = long();
    let before = first(&reader.screen());
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    reader.keys("graph 5 ");
    assert_ne!(first(&reader.screen()), before);
    reader.keys("\x1b");
    assert_eq!(first(&reader.screen()), before);
    assert_eq!(reader.keyboard.view.scope(), Scope::Chat);
}

#[test]
fn what_one_found_does_not_move_while_text_streams() {
    let (mut reader, request) = long();
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    reader.keys("graph 5 of\n");
    let before = first(&reader.screen());
    for _ in 0..20 {
        reader
            .keyboard
            .chats
            .says(request, "Another paragraph 5 of them.\n\n");
        assert_eq!(first(&reader.screen()), before);
    }
    let screen = reader.screen();
    assert!(screen.contains("graph 5 of 1 of 21"), "{screen}");
    reader.keys("\x1b");
    assert_eq!(first(&reader.screen()), before, "nor when the search ends");
}

#[test]
fn what_one_found_on_the_last_page_is_held_too() {
    let (mut reader, request) = long();
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    reader.keys("graph 99 of\n");
    let before = first(&reader.screen());
    for _ in 0..20 {
        reader.screen();
        reader.keyboard.chats.says(request, "Another one.\n\n");
        assert_eq!(first(&reader.screen()), before);
    }
    assert!(reader.screen().contains("40 new lines"), "{}", reader.screen());
    reader.keys("G");
    assert_ne!(first(&reader.screen()), before);
}

#[test]
fn conversations_of_other_programs_have_no_figures_under_answers() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, "It was");
    let told = engine::Finish {
        generated_tokens: 0,
        ..finish(FinishReason::Stop, None)
    };
    chats.engine(request, engine::Event::Finish(told));
    let screen = Reader::of(chats).screen();
    assert!(
        !screen.contains("tok/s,") && !screen.contains("│stop"),
        "{screen}"
    );
}

#[test]
fn hits_are_marked_where_they_are() {
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "a needle");
    chats.says(request, "> some 日本 needle and\n> another Needle");
    let mut reader = Reader::of(chats);
    reader.alt('v');
    reader.keys("/needle\n");
    let (buffer, _) = draw(&mut reader.keyboard.view, &reader.keyboard.chats.state, 80, 24);
    let marked: Vec<String> = (2..8)
        .map(|y| {
            let cells = (1..79).map(|x| buffer.cell((x, y)).unwrap());
            let marked = cells.filter(|cell| cell.modifier.contains(ratatui::style::Modifier::REVERSED));
            marked.map(|cell| cell.symbol().to_owned()).collect()
        })
        .filter(|row: &String| !row.is_empty())
        .collect();
    assert_eq!(marked, ["needle", "needleNeedle"]);
}

#[test]
fn the_line_takes_a_paste_and_shows_its_end_with_the_cursor() {
    let (mut reader, _) = long();
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    let keyboard = &mut reader.keyboard;
    let reactions = keyboard
        .view
        .paste("Paragraph 7 \nno more", &keyboard.chats.state);
    keyboard.react(reactions);
    let (buffer, cursor) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    assert_eq!(cursor, Some((13, 19)));
    assert!(mlx_chat::ui::view::to_text(&buffer).contains("search: 1 of 1"));
    let reactions = keyboard.view.paste(&"日".repeat(100), &keyboard.chats.state);
    keyboard.react(reactions);
    let (_, cursor) = draw(&mut keyboard.view, &keyboard.chats.state, 80, 24);
    assert!(
        cursor.is_some_and(|(x, y)| (76..79).contains(&x) && y == 19),
        "{cursor:?}"
    );
    assert_eq!(reader.keyboard.draft(), "");
}

#[test]
fn figures_stand_under_an_answer() {
    let screen = Reader::new().screen();
    assert!(
        screen.contains("stop, 128 tokens in 2.2s, 64 tok/s, first after .21s"),
        "{screen}"
    );
    let mut chats = Chats::ready(1);
    let request = chats.send(1, "x");
    chats.says(request, "It was");
    chats.finishes(request, FinishReason::Length, None);
    let screen = Reader::of(chats).screen();
    assert!(
        screen.contains("cut off: ") && screen.contains("length, 128 tokens"),
        "{screen}"
    );
}

/// Colors that a thread looks for, and a way to wait for them.
fn highlights() -> (
    Highlights,
    std::sync::mpsc::Receiver<mlx_chat::ui::reading::highlight::Found>,
) {
    let (sender, found) = std::sync::mpsc::channel();
    (
        Highlights::start(move |found| sender.send(found).is_ok()).unwrap(),
        found,
    )
}

#[test]
fn code_has_the_terminals_colors_once_they_are_known() {
    let (colors, found) = highlights();
    let mut view = view(color());
    view.highlights = colors;
    let chats = Reader::new().keyboard.chats;
    let raw = styled(&draw(&mut view, &chats.state, 80, 24).0);
    for _ in 0..2 {
        view.highlights.take(found.recv().unwrap());
    }
    let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
    assert_ne!(styled(&buffer), raw);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("code_color_80x24", styled(&buffer)));
}

#[test]
fn without_color_code_is_not_even_read() {
    let (colors, found) = highlights();
    let mut view = view(no_color());
    view.highlights = colors;
    draw(&mut view, &Reader::new().keyboard.chats.state, 80, 24);
    drop(view);
    assert!(found.recv().is_err(), "the thread ended without a word");
}

#[test]
fn a_copy_is_sent_to_the_terminal_once_and_told() {
    on_stand(ready(), |stand| async move {
        stand.hands.text("hi");
        stand.pass(100).await;
        stand.hands.code(KeyCode::Enter);
        stand.pass(100).await;
        stand.engine.says(0, "hello *there*");
        stand.pass(100).await;
        let alt = |c| crossterm::event::KeyEvent::new(KeyCode::Char(c), KeyModifiers::ALT);
        stand.hands.give(crossterm::event::Event::Key(alt('y')));
        stand.pass(100).await;
        stand.hands.text("y");
        stand.pass(200).await;
        let bytes = String::from_utf8(stand.screen.0.borrow().frames.concat()).unwrap();
        assert_eq!(bytes.matches("\x1b]52;c;aGVsbG8gKnRoZXJlKg==\x1b\\").count(), 1);
        let screen = stand.screen.contents();
        assert!(
            screen.contains("13 bytes sent to the terminal's clipboard by OSC 52"),
            "{screen}"
        );
    });
}

#[test]
fn reading_draws_at_every_small_size() {
    for keys in ["", "[", "/a", "/paragraph\n", "y"] {
        for raw in [false, true] {
            let mut reader = Reader::new();
            reader.alt('v');
            reader.keys(keys);
            if raw {
                reader.alt('r');
            }
            for width in 0..46 {
                for height in 0..16 {
                    let state = &reader.keyboard.chats.state;
                    let (_, cursor) = draw(&mut reader.keyboard.view, state, width, height);
                    assert!(cursor.is_none_or(|(x, y)| x < width && y < height));
                }
            }
        }
    }
}

#[test]
fn keys_of_the_chat_count_while_one_reads() {
    let mut reader = Reader::of(Chats::ready(2));
    reader.alt('v');
    reader.press(KeyModifiers::NONE, KeyCode::Tab);
    assert_eq!(reader.keyboard.chats.state.focused(), pane(2));
    reader.alt('1');
    assert_eq!(reader.keyboard.chats.state.focused(), pane(1));
    reader.press(KeyModifiers::NONE, KeyCode::F(7));
    assert!(reader.keyboard.chats.state.zoomed());
    reader.keyboard.chats.tell(Event::Draft(Draft::new("kept", 0)));
    for key in [KeyCode::Delete, KeyCode::Backspace, KeyCode::Right] {
        reader.press(KeyModifiers::NONE, key);
    }
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('d'));
    assert_eq!((reader.keyboard.draft(), reader.keyboard.caret()), ("kept", 0));
}

#[test]
fn title_and_footer_say_the_same_of_escape_after_a_search() {
    let mut keyboard = Keyboard::new(Chats::ready(1));
    let request = keyboard.chats.send(1, "x");
    keyboard.chats.says(request, "a needle");
    keyboard.ctrl('f');
    keyboard.type_text("needle");
    keyboard.code(KeyCode::Enter);
    let screen = keyboard.screen();
    assert!(
        screen.contains("Esc ends search") && screen.contains("Esc end search"),
        "{screen}"
    );
    keyboard.code(KeyCode::Esc);
    let screen = keyboard.screen();
    assert!(
        screen.contains("Esc writes") && screen.contains("Esc write "),
        "{screen}"
    );
    keyboard.code(KeyCode::Esc);
    assert!(!keyboard.view.reading);
}
