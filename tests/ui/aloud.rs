//! Lines for a screen reader: what is told, once, and what is not.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyModifiers};
use mlx_chat::chat::{Draft, Event};
use mlx_chat::engine::{self, FinishReason};
use mlx_chat::ui::models::Fetching;
use mlx_chat::ui::overlay::models::{Escape, Fetch};
use mlx_chat::ui::writing::attach::Seen;

use super::support::*;

/// A keyboard whose view writes lines, and the terminal that they are written to.
struct Reader {
    keyboard: Keyboard,
    terminal: vt100::Parser,
    /// All that was ever written.
    bytes: Vec<u8>,
}

impl Reader {
    fn new(chats: Chats) -> Self {
        let mut keyboard = Keyboard::new(chats);
        keyboard.view.looks.screen_reader.turn(true);
        let terminal = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 200);
        let mut reader = Self {
            keyboard,
            terminal,
            bytes: Vec::new(),
        };
        reader.frame();
        reader
    }

    /// What the next frame writes.
    fn frame(&mut self) -> String {
        let typed = self.keyboard.view.flush_typed(&self.keyboard.chats.state);
        self.keyboard.react(typed);
        let (_, lines) = self
            .keyboard
            .view
            .lines(&self.keyboard.chats.state, (80, 24), false);
        let bytes = lines.unwrap();
        self.terminal.process(&bytes);
        self.bytes.extend(&bytes);
        String::from_utf8(bytes).unwrap()
    }

    fn screen(&self) -> String {
        self.terminal.screen().contents()
    }

    fn code(&mut self, code: KeyCode) -> String {
        self.press(KeyModifiers::NONE, code)
    }

    fn press(&mut self, modifiers: KeyModifiers, code: KeyCode) -> String {
        self.keyboard.now += Duration::from_millis(200);
        self.keyboard.burst(modifiers, code);
        self.frame()
    }
}

#[test]
fn an_answer_is_told_in_whole_lines_and_sentences_once() {
    let mut reader = Reader::new(Chats::ready(1));
    let request = reader.keyboard.chats.send(1, "why?");
    let told = reader.frame();
    assert!(told.contains("you: why?\r\n"), "{told:?}");
    reader.keyboard.chats.engine(
        request,
        engine::Event::Admitted {
            prompt_tokens: 4,
            cached_tokens: 0,
        },
    );
    reader.keyboard.chats.says(request, "First line\nand");
    let told = reader.frame();
    assert!(
        told.contains("answering\r\nanswer:\r\nFirst line\r\n") && !told.contains("and"),
        "{told:?}"
    );
    reader.keyboard.chats.says(
        request,
        " then a rather long sentence that goes on and on until it comes to its end. More",
    );
    let told = reader.frame();
    assert!(told.contains("and then a rather") && told.contains("its end.\r\n") && !told.contains("More"));
    assert_eq!(reader.frame(), "", "nothing is told twice");
    reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    let told = reader.frame();
    assert!(told.contains("More\r\ndone, 128 tokens in"), "{told:?}");
    assert_eq!(
        String::from_utf8_lossy(&reader.bytes)
            .matches("First line")
            .count(),
        1
    );
    let screen = reader.screen();
    assert!(!screen.contains(['│', '─', '┌', '▍', '◍']), "{screen}");
    assert!(
        screen.trim_end().ends_with("to 1:"),
        "the draft's line stands last: {screen}"
    );
}

#[test]
fn a_typed_character_writes_itself_alone() {
    let mut reader = Reader::new(Chats::ready(1));
    assert_eq!(reader.code(KeyCode::Char('h')), "h\x1b[?25h");
    assert_eq!(reader.code(KeyCode::Char('i')), "i\x1b[?25h");
    assert!(reader.screen().contains("to 1: hi"));
    assert_eq!(reader.terminal.screen().cursor_position().1, 8);
    reader.code(KeyCode::Left);
    assert_eq!(reader.terminal.screen().cursor_position().1, 7);
    reader.code(KeyCode::Char('日'));
    assert!(reader.screen().contains("to 1: h日i"));
    assert_eq!(reader.terminal.screen().cursor_position().1, 9);
    reader.code(KeyCode::Backspace);
    assert!(reader.screen().contains("to 1: hi"), "{}", reader.screen());
}

#[test]
fn a_draft_of_several_lines_shows_the_line_of_its_caret_and_its_number() {
    let mut reader = Reader::new(Chats::ready(1));
    let long = format!("first\n{}end", "word ".repeat(40));
    reader.keyboard.chats.tell(Event::Draft(Draft::at_end(long)));
    reader.frame();
    let screen = reader.screen();
    let line = screen.lines().last().unwrap();
    assert!(
        line.starts_with("to 1 line 2 of 2: ") && line.ends_with("end"),
        "{line}"
    );
    assert!(line.len() < 80);
}

#[test]
fn states_of_other_panes_are_told_as_words() {
    let mut reader = Reader::new(Chats::ready(2));
    let request = reader.keyboard.chats.send(2, "x");
    reader.keyboard.chats.tell(Event::Focus(pane(1)));
    reader.frame();
    reader.keyboard.chats.says(request, "not told here");
    let told = reader.frame();
    assert!(
        told.contains("pane 2: answering") && !told.contains("not told here"),
        "{told:?}"
    );
    reader
        .keyboard
        .chats
        .finishes(request, FinishReason::Length, None);
    assert!(reader.frame().contains("pane 2: cut off"));
    reader.keyboard.chats.tell(Event::Focus(pane(2)));
    let told = reader.frame();
    assert!(
        told.contains("pane 2 of 2: x") && told.contains("not told here"),
        "{told:?}"
    );
}

#[test]
fn what_lies_on_top_is_told_by_the_selected_line() {
    let mut reader = Reader::new(Chats::ready(1));
    let told = reader.press(KeyModifiers::CONTROL, KeyCode::Char('p'));
    assert!(
        told.contains("commands") && told.contains("selected: send"),
        "{told}"
    );
    let told = reader.code(KeyCode::Down);
    assert!(told.contains("selected: newline"), "{told}");
    assert!(told.matches("\r\n").count() <= 2, "and little else: {told:?}");
    assert!(reader.code(KeyCode::Esc).contains("closed"));
    let told = reader.code(KeyCode::F(1));
    assert!(
        told.contains("send the prompt") && told.contains("/quit"),
        "all of the help at once"
    );
    reader.code(KeyCode::Esc);
    let told = reader.code(KeyCode::F(2));
    assert!(
        told.contains("engine; Esc goes back") && told.contains("0 queued"),
        "{told}"
    );
    reader
        .keyboard
        .chats
        .tell(Event::Snapshot(std::sync::Arc::new(busy())));
    assert_eq!(
        reader.frame(),
        "",
        "figures that change are not told again and again"
    );
}

#[test]
fn text_of_the_model_can_not_steer_the_lines() {
    let mut reader = Reader::new(Chats::ready(1));
    let hostile = "\x1b]52;c;aGk=\x07\x1b[2J\u{9b}31m\u{202e}evil\x08\n";
    let request = reader.keyboard.chats.send(1, hostile);
    reader.keyboard.chats.says(request, hostile);
    reader.keyboard.chats.tell(Event::Draft(Draft::at_end(hostile)));
    let told = reader.frame();
    let ours = ["\x1b[J", "\x1b[K", "\x1b[?25h"];
    let rest = ours
        .iter()
        .fold(told, |told, sequence| told.replace(sequence, ""));
    let rest = regex_free(&rest);
    assert!(
        !rest.contains(['\x1b', '\x07', '\x08', '\u{9b}', '\u{202e}']),
        "{rest:?}"
    );
}

/// Without the sequence that places the caret.
fn regex_free(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("\x1b[") {
        out.push_str(before);
        let digits = behind.trim_start_matches(|c: char| c.is_ascii_digit());
        match digits.strip_prefix('G') {
            Some(after) => rest = after,
            None => {
                out.push('\x1b');
                rest = behind;
            }
        }
    }
    out + rest
}

#[test]
fn reading_tells_the_row_that_one_came_to() {
    let mut reader = Reader::new(Chats::ready(1));
    let request = reader.keyboard.chats.send(1, "x");
    let lines: Vec<String> = (0..60).map(|n| format!("line {n}")).collect();
    reader.keyboard.chats.says(request, &lines.join("\n\n"));
    reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    reader.frame();
    reader.press(KeyModifiers::ALT, KeyCode::Char('v'));
    let told = reader.code(KeyCode::Char('g'));
    assert!(told.contains("x\r\n") && told.contains("reading:"), "{told:?}");
    reader.press(KeyModifiers::CONTROL, KeyCode::Char('f'));
    for c in "line 33".chars() {
        reader.code(KeyCode::Char(c));
    }
    assert!(reader.screen().contains("1 of 1 line 33"), "{}", reader.screen());
}

#[test]
fn reading_tells_its_keys_and_each_message_that_is_selected() {
    let mut reader = Reader::new(Chats::ready(1));
    for number in 1..=4 {
        let request = reader.keyboard.chats.send(1, &format!("question {number}"));
        let answer = format!("**said** {number}\n\n{}", "and on ".repeat(99));
        reader.keyboard.chats.says(request, &answer);
        reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    }
    reader.frame();
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('v'));
    let keys = "[ the message before, ] the message after, Y copies it";
    assert!(told.contains("reading: ") && told.contains(keys), "{told:?}");
    let told = reader.code(KeyCode::Char('['));
    assert!(told.contains("answer 4 of 4: **said** 4 and on"), "{told:?}");
    assert!(
        told.contains("…\r\n") && told.len() < 400,
        "its beginning: {told:?}"
    );
    let told = reader.code(KeyCode::Char('['));
    assert!(told.contains("prompt 4 of 4: question 4\r\n"), "{told:?}");
    let told = reader.code(KeyCode::Char('['));
    assert!(told.contains("answer 3 of 4: **said** 3"), "{told:?}");
    assert!(!told.contains(keys), "once: {told:?}");
    assert_eq!(reader.frame(), "");
    reader.code(KeyCode::Char('i'));
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('v'));
    assert!(told.contains(keys) && !told.contains("3 of 4"), "{told:?}");
}

#[test]
fn every_size_and_state_is_told_without_a_panic() {
    for chats in [working(4), Chats::new(1), Chats::ready(9)] {
        for (width, height) in [(0, 0), (1, 1), (5, 2), (20, 5), (40, 10), (200, 50)] {
            let mut keyboard = Keyboard::new(Chats::new(1));
            keyboard.view.looks.screen_reader.turn(true);
            for key in [
                KeyCode::Null,
                KeyCode::F(1),
                KeyCode::Esc,
                KeyCode::F(2),
                KeyCode::Esc,
            ] {
                keyboard.burst(KeyModifiers::NONE, key);
                keyboard.view.lines(&chats.state, (width, height), false);
            }
        }
    }
}

/// A keyboard with two panes that were asked the same and have answered.
fn answered_twice() -> Reader {
    let mut chats = Chats::ready(2);
    for (number, answer) in [(1, "Sand.\n\nAnd water."), (2, "They don't.")] {
        let request = chats.send(number, "why?");
        chats.says(request, answer);
        chats.finishes(request, FinishReason::Stop, None);
    }
    chats.tell(Event::Focus(pane(1)));
    Reader::new(chats)
}

#[test]
fn a_comparison_is_told_answer_after_answer_each_with_its_pane() {
    let mut reader = answered_twice();
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('c'));
    let place = |text: &str| {
        told.find(text)
            .unwrap_or_else(|| panic!("no {text:?} in {told:?}"))
    };
    let order = [
        "2 answers; Left and Right select, Enter keeps one, Esc closes\r\n",
        "answer 1 of 2, pane 1, why?: done, 128 tokens",
        "Sand.\r\n",
        "And water.\r\n",
        "selected: answer 1 of 2",
        "answer 2 of 2, pane 2, why?: done, 128 tokens",
        "They don't.\r\n",
    ];
    let places: Vec<usize> = order.iter().map(|text| place(text)).collect();
    assert!(places.is_sorted(), "{told:?}");
    assert_eq!(reader.frame(), "");
    let told = reader.code(KeyCode::Right);
    assert!(
        told.contains("selected: answer 2 of 2, pane 2") && told.contains("They don't."),
        "the one that is selected is told again: {told:?}"
    );
    assert!(!told.contains("Sand"), "{told:?}");
    assert!(reader.code(KeyCode::Esc).contains("closed"));
}

#[test]
fn an_answer_of_a_comparison_that_streams_is_told_when_it_has_ended() {
    let mut reader = answered_twice();
    let request = reader.keyboard.chats.send(2, "and?");
    reader.keyboard.chats.says(request, "Half");
    let other = reader.keyboard.chats.send(1, "and?");
    reader.keyboard.chats.says(other, "Whole.");
    reader.keyboard.chats.finishes(other, FinishReason::Stop, None);
    reader.frame();
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('c'));
    assert!(told.contains("answer 2 of 2, pane 2, why?: answering") && !told.contains("Half"));
    reader.keyboard.chats.says(request, " and half");
    assert_eq!(reader.frame(), "", "what grows is not told piece by piece");
    reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    let told = reader.frame();
    assert_eq!(told.matches("Half and half").count(), 1, "{told:?}");
    assert!(!told.contains("Whole"), "{told:?}");
}

#[test]
fn a_download_is_told_at_its_beginning_at_each_tenth_and_no_more() {
    for picker in [false, true] {
        let mut reader = Reader::new(Chats::ready(1));
        if picker {
            reader.keyboard = super::models::picking();
            reader.keyboard.view.looks.screen_reader.turn(true);
            reader.frame();
        }
        let mut fetch = Fetch::new("delta");
        reader.keyboard.view.going.fetch = Some(fetch.clone());
        assert!(reader.frame().contains("delta: asking for it"));
        let mut lines = Vec::new();
        for percent in 0..=100u64 {
            let fetching = Fetching {
                stage: "downloading".into(),
                done: percent << 20,
                total: 100 << 20,
            };
            fetch.take(fetching, Duration::from_secs(percent));
            reader.keyboard.view.going.fetch = Some(fetch.clone());
            let told = reader.frame();
            if !told.is_empty() {
                assert!(!told.contains(['#', '[']) || told.contains("\x1b["), "{told:?}");
                lines.push(told);
            }
        }
        assert_eq!(lines.len(), 11, "{lines:?}");
        assert!(lines[3].contains("delta: 30% 30M of 100M"), "{lines:?}");
    }
}

#[test]
fn a_version_that_is_shown_again_is_told_again() {
    let mut reader = answered_twice();
    let told = reader.code(KeyCode::F(5));
    assert!(
        told.contains("version 2 of 2") && told.contains("you: why?"),
        "{told:?}"
    );
    let request = *reader.keyboard.chats.submitted.last().unwrap();
    reader.keyboard.chats.says(request, "Another one.");
    reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    reader.frame();
    let told = reader.press(KeyModifiers::ALT, KeyCode::Up);
    assert!(
        told.contains("version 1 of 2") && told.contains("And water."),
        "{told:?}"
    );
    let told = reader.press(KeyModifiers::ALT, KeyCode::Down);
    assert!(
        told.contains("version 2 of 2") && told.contains("Another one."),
        "{told:?}"
    );
    assert_eq!(reader.frame(), "");
}

#[test]
fn that_thoughts_are_told_in_full_is_told_and_those_of_the_last_answer() {
    let mut reader = Reader::new(Chats::ready(1));
    let request = reader.keyboard.chats.send(1, "think");
    reader.keyboard.chats.thinks(request, "Step by step.", "Done.");
    reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    let told = reader.frame();
    assert!(
        told.contains("thinking") && !told.contains("Step by step"),
        "{told:?}"
    );
    assert_eq!(told.matches("^T tells thoughts in full").count(), 1, "{told:?}");
    let told = reader.press(KeyModifiers::CONTROL, KeyCode::Char('t'));
    assert!(
        told.contains("thoughts are told in full") && told.contains("thinking: Step by step."),
        "{told:?}"
    );
    let request = reader.keyboard.chats.send(1, "more");
    reader.keyboard.chats.thinks(request, "On and on.", "Done.");
    assert!(reader.frame().contains("On and on."), "and those that come");
    let told = reader.press(KeyModifiers::CONTROL, KeyCode::Char('t'));
    assert!(told.contains("thoughts are told by a word"), "{told:?}");
}

#[test]
fn what_escape_leads_back_to_is_told_and_how_an_answer_goes_on() {
    let mut reader = Reader::new(Chats::ready(1));
    reader.keyboard.view.going.escape = Some(Escape::Back("alpha".into()));
    assert!(reader.frame().contains("Esc goes back to alpha"));
    assert_eq!(reader.frame(), "");
    reader.keyboard.view.going.escape = None;
    let request = reader.keyboard.chats.send(1, "x");
    reader.keyboard.chats.says(request, "One");
    reader
        .keyboard
        .chats
        .finishes(request, FinishReason::Length, None);
    assert!(reader.frame().contains("Alt-n has the answer go on"));
}

#[test]
fn the_line_says_to_whom_prompts_go() {
    let mut reader = Reader::new(Chats::ready(3));
    let told = reader.code(KeyCode::F(3));
    assert!(told.contains("prompts go to all 3 panes\r\n"), "{told:?}");
    assert!(reader.screen().contains("to all 3 panes:"), "{}", reader.screen());
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('j'));
    assert!(told.contains("prompts go to panes"), "{told:?}");
    assert!(reader.screen().contains("to panes "), "{}", reader.screen());
    let told = reader.code(KeyCode::F(3));
    assert!(
        told.contains("prompts go to 3\r\n") || told.contains("prompts go to 1\r\n"),
        "{told:?}"
    );
}

#[test]
fn that_a_prompt_is_edited_is_told_and_which_one_and_that_it_is_no_more() {
    let mut reader = Reader::new(Chats::ready(1));
    for prompt in ["first", "second"] {
        let request = reader.keyboard.chats.send(1, prompt);
        reader.keyboard.chats.finishes(request, FinishReason::Stop, None);
    }
    reader.frame();
    let edit = |reader: &mut Reader| reader.press(KeyModifiers::ALT, KeyCode::Char('e'));
    let told = edit(&mut reader);
    assert!(told.contains("prompt 2 is edited\r\n"), "{told:?}");
    assert!(
        reader.screen().ends_with("1 edits prompt 2: second"),
        "{}",
        reader.screen()
    );
    let told = edit(&mut reader);
    assert!(told.contains("prompt 1 is edited\r\n"), "{told:?}");
    assert!(
        reader.screen().ends_with("1 edits prompt 1: first"),
        "{}",
        reader.screen()
    );
    assert_eq!(reader.frame(), "", "once");
    let told = reader.code(KeyCode::Esc);
    assert!(
        told.contains("prompts go to 1\r\n") && !told.contains("is edited"),
        "{told:?}"
    );
}

#[test]
fn lines_of_what_lies_on_top_are_told_whole() {
    let mut reader = Reader::new(Chats::ready(1));
    let system = "a rather long system prompt ".repeat(20);
    let mut settings = reader.keyboard.chats.state.focused_pane().settings.clone();
    settings.system = Some(system.trim().to_owned());
    reader.keyboard.chats.tell(Event::Configure(settings));
    let told = reader.press(KeyModifiers::ALT, KeyCode::Char('s'));
    assert!(told.contains(system.trim()) && !told.contains('…'), "{told:?}");
    reader.code(KeyCode::Esc);
    let told = reader.press(KeyModifiers::CONTROL, KeyCode::Char('p'));
    assert!(
        told.contains("stop close what lies on top, give up an edit, or stop the answer Esc\r\n"),
        "{told:?}"
    );
    reader.code(KeyCode::Esc);
    let told = reader.code(KeyCode::F(1));
    let long = told.lines().any(|line| line.len() > 80);
    assert!(long && !told.contains('…'), "{told:?}");
}

#[test]
fn what_goes_along_with_a_draft_is_told_once_and_that_it_is_too_long() {
    let mut reader = Reader::new(Chats::ready(1));
    let text = |words: usize| format!("@notes.txt {}", "word ".repeat(words));
    let draft = |reader: &mut Reader, words: usize| {
        let draft = Event::Draft(Draft::at_end(text(words)));
        reader.keyboard.chats.tell(draft);
        let Reader { keyboard, .. } = reader;
        keyboard.view.wants(&keyboard.chats.state);
    };
    draft(&mut reader, 1);
    let (bytes, lines) = (2210, 98);
    let goes = ("notes.txt".to_owned(), Seen::Goes { bytes, lines });
    reader.keyboard.view.attached.take_seen(vec![goes]);
    let told = reader.frame();
    assert!(told.contains("+ notes.txt 2.2K, 98 lines\r\n"), "{told:?}");
    assert!(!told.contains("too long"), "{told:?}");
    draft(&mut reader, 9000);
    let told = reader.frame();
    assert!(told.contains("too long: about 9"), "{told:?}");
    assert!(!told.contains("notes.txt 2.2K"), "{told:?}");
    draft(&mut reader, 9100);
    assert!(!reader.frame().contains("too long"));
    draft(&mut reader, 1);
    reader.frame();
    draft(&mut reader, 9000);
    assert!(reader.frame().contains("too long: about 9"));
}
