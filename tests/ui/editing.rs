//! The composer's editor.

use mlx_chat::ui::cells;
use mlx_chat::ui::keymap::Motion;
use mlx_chat::ui::writing::editor::{Editor, Layout};
use proptest::prelude::*;

fn go(editor: &mut Editor, motion: Motion) -> bool {
    editor.go(motion, 20, &mut None)
}

#[test]
fn motion_and_deletion_go_by_what_is_seen_as_one_character() {
    for character in ["é", "e\u{301}", "日", "👩‍👩‍👧", "🇨🇭", "☺️", "각"] {
        let text = format!("a{character}b");
        let mut editor = Editor::new(&*text, 1);
        go(&mut editor, Motion::Right);
        assert_eq!(editor.caret(), 1 + character.len(), "{character:?}");
        go(&mut editor, Motion::Left);
        assert_eq!(editor.caret(), 1);
        editor.delete(Motion::Right);
        assert_eq!(editor.text(), "ab");
    }
}

#[test]
fn words_are_skipped_and_deleted_whole() {
    let mut editor = Editor::new("one two, three", 14);
    go(&mut editor, Motion::WordLeft);
    assert_eq!(editor.caret(), 9);
    go(&mut editor, Motion::WordLeft);
    assert_eq!(editor.caret(), 4);
    go(&mut editor, Motion::WordRight);
    assert_eq!(editor.caret(), 7);
    editor.delete(Motion::WordLeft);
    assert_eq!(editor.text(), "one , three");
}

#[test]
fn lines_are_cut_at_the_caret_and_an_empty_cut_joins_them() {
    let mut editor = Editor::new("first\nsecond", 8);
    editor.delete(Motion::LineStart);
    assert_eq!((editor.text(), editor.caret()), ("first\ncond", 6));
    editor.delete(Motion::LineEnd);
    assert_eq!(editor.text(), "first\n");
    editor.delete(Motion::LineStart);
    assert_eq!((editor.text(), editor.caret()), ("first", 5));
}

#[test]
fn vertical_motion_keeps_its_column_over_short_rows() {
    let mut editor = Editor::new("long line here\nab\nanother line", 10);
    let mut goal = None;
    assert!(editor.go(Motion::Down, 40, &mut goal));
    assert_eq!(editor.caret(), 17);
    assert!(editor.go(Motion::Down, 40, &mut goal));
    assert_eq!(editor.caret(), 28);
    assert!(!editor.go(Motion::Down, 40, &mut goal));
    assert!(editor.go(Motion::Up, 40, &mut goal));
    assert!(editor.go(Motion::Up, 40, &mut goal));
    assert_eq!(editor.caret(), 10);
    assert!(!editor.go(Motion::Up, 40, &mut goal));
}

#[test]
fn pasted_line_ends_are_one_kind_and_controls_are_left_out() {
    let mut editor = Editor::default();
    editor.insert("a\r\nb\rc\x1b[31m\x07\td");
    assert_eq!(editor.text(), "a\nb\nc[31m\td");
}

#[test]
fn a_large_paste_is_taken_whole() {
    let text = "some words in a line\n".repeat(50_000);
    let mut editor = Editor::new("before  after", 7);
    editor.insert(&text);
    assert_eq!(editor.text().len(), 13 + text.len());
    assert_eq!(Layout::new(editor.text(), 78).height(), 50_001);
}

#[test]
fn a_word_that_begins_within_a_character_is_passed_with_it() {
    let text = "a \u{d4e}日 b";
    let mut goal = None;
    for (from, motion, to) in [
        (8, Motion::WordLeft, 2),
        (2, Motion::WordRight, 8),
        (8, Motion::Left, 2),
    ] {
        let mut editor = Editor::new(text, from);
        editor.go(motion, 40, &mut goal);
        assert_eq!(editor.caret(), to, "{motion:?} from {from}");
    }
}

fn motion() -> impl Strategy<Value = Motion> {
    use Motion::*;
    proptest::sample::select(vec![
        Left, Right, WordLeft, WordRight, LineStart, LineEnd, Up, Down,
    ])
}

#[derive(Debug, Clone)]
enum Step {
    Insert(String),
    Go(Motion),
    Delete(Motion),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        "\\PC{0,3}|\n|👩‍👩‍👧|\u{200d}|\u{301}|🇨|日|\u{d4e}|\u{600}|a b".prop_map(Step::Insert),
        motion().prop_map(Step::Go),
        motion().prop_map(Step::Delete),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_caret_stays_between_graphemes_and_on_a_row(steps in proptest::collection::vec(step(), 0..40), width in 1usize..30) {
        use unicode_segmentation::UnicodeSegmentation;
        let mut editor = Editor::default();
        let mut goal = None;
        for step in steps {
            match step {
                Step::Insert(text) => editor.insert(&text),
                Step::Go(motion) => { editor.go(motion, width, &mut goal); }
                Step::Delete(motion) => editor.delete(motion),
            }
            let text = editor.text();
            let between = editor.caret() == text.len() || text.grapheme_indices(true).any(|(at, _)| at == editor.caret());
            prop_assert!(between, "{:?} at {}", text, editor.caret());
            let layout = Layout::new(text, width);
            let (row, column) = layout.place(text, editor.caret());
            prop_assert!(row < layout.height() && column <= width.max(1));
        }
    }

    #[test]
    fn what_was_typed_can_be_deleted_again(before in "[a-z日 \n]{0,20}", typed in "[a-z日é \n]{0,20}", at in any::<proptest::sample::Index>()) {
        let at = before.floor_char_boundary(at.index(before.len() + 1));
        let mut editor = Editor::new(&*before, at);
        let start = editor.caret();
        for c in typed.chars() {
            editor.insert(&c.to_string());
        }
        for _ in typed.chars() {
            editor.delete(Motion::Left);
        }
        prop_assert_eq!((editor.text(), editor.caret()), (&*before, start));
    }

    #[test]
    fn rows_of_a_draft_hold_all_of_it(text in "[a-z日 \t\n]{0,60}", width in 2usize..30) {
        let layout = Layout::new(&text, width);
        let mut seen = String::new();
        for row in 0..layout.height() {
            let range = layout.row(row).unwrap();
            prop_assert!(cells::width(&text[range.clone()]) <= width.max(cells::TAB));
            seen.push_str(&text[range]);
        }
        let solid = |text: &str| text.chars().filter(|c| !matches!(c, ' ' | '\n')).collect::<String>();
        prop_assert_eq!(solid(&seen), solid(&text));
    }
}
