//! The one wrapping: what is counted is what is painted, at every width, however the text came in.

use mlx_chat::ui::cells;
use mlx_chat::ui::wrap::{RowKind, Wrapped, wrap_line};
use proptest::prelude::*;

/// Texts that widths go wrong with.
const CORPUS: [&str; 15] = [
    "",
    "plain words and some more of them, with punctuation.",
    "averyveryverylongwordthatdoesnotfitanywhereatall and after",
    "日本語のテキストは単語の間に空白がありません。全角記号「」も。",
    "混ぜた mixed テキスト text と words",
    "👩‍👩‍👧‍👦 family 👨🏽‍🚀 astronaut 🇨🇭🇯🇵 flags",
    "☺️ ❤️ ⚠️ variation selectors ✈️✈️✈️",
    "e\u{301}a\u{308}\u{323} combining o\u{302}\u{301}",
    "ｶﾞｷﾞｸﾞ halfwidth",
    "   leading and   inner    spaces   ",
    "\tindented\twith\ttabs",
    "عربي ثم English ثم עברית",
    "한국어 텍스트 각",
    "a\u{200b}b\u{feff}c\u{ad}d zero widths",
    "spaces      \u{feff}before        \u{200b}a zero width",
];

fn rows(text: &str, width: usize) -> Vec<String> {
    Wrapped::new(text, width)
        .rows()
        .map(|(_, row)| row.to_owned())
        .collect()
}

#[test]
fn no_row_is_wider_than_asked_for() {
    for text in CORPUS {
        // A halfwidth letter with its sound mark counts as three cells at most.
        for width in 3..=80 {
            for row in rows(text, width) {
                assert!(cells::width(&row) <= width, "{row:?} in {width}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_but_spaces_at_breaks() {
    let solid = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    for text in CORPUS {
        for width in 1..=80 {
            assert_eq!(
                solid(&rows(text, width).concat()),
                solid(text),
                "{text:?} in {width}"
            );
        }
    }
}

#[test]
fn words_stay_whole_where_they_fit() {
    assert_eq!(rows("hello big world", 9), ["hello big", "world"]);
    assert_eq!(rows("hello big world", 8), ["hello", "big", "world"]);
    assert_eq!(
        rows("an incomprehensible word", 8),
        ["an", "incompre", "hensible", "word"]
    );
    assert_eq!(rows("日本語 ab", 4), ["日本", "語", "ab"]);
    assert_eq!(rows("a\n\nb\n", 4), ["a", "", "b", ""]);
    assert_eq!(rows("  code", 10), ["  code"]);
    assert_eq!(rows("a\tb", 10), ["a   b"]);
    assert_eq!(rows("x\r\ny", 10), ["x", "y"]);
}

#[test]
fn lines_within_fences_are_code() {
    let wrapped = Wrapped::new("text\n```rust\nlet x;\n```\nmore", 20);
    let kinds: Vec<RowKind> = wrapped.rows().map(|(kind, _)| kind).collect();
    use RowKind::*;
    assert_eq!(kinds, [Text, Fence, Code, Fence, Text]);
}

#[test]
fn a_fence_that_comes_in_pieces_is_one() {
    let text = "a\n```\nb\n```\nc";
    for width in [1, 2, 3, 10] {
        let mut grown = Wrapped::new("", width);
        for end in 0..=text.len() {
            grown.append(&text[..end]);
        }
        let whole = Wrapped::new(text, width);
        assert!(grown.rows().eq(whole.rows()));
    }
}

#[test]
fn text_of_one_line_and_of_a_megabyte_grows_without_being_wrapped_again() {
    let mut text = "word ".repeat(200_000);
    let mut wrapped = Wrapped::new(&text, 60);
    let before = wrapped.len();
    for _ in 0..1000 {
        text.push_str("more ");
        wrapped.append(&text);
    }
    assert_eq!(wrapped.len(), Wrapped::new(&text, 60).len());
    assert!(wrapped.len() > before);
}

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-z]{1,12}",
        3 => Just(" ".to_owned()),
        1 => Just("\n".to_owned()),
        1 => Just("\t".to_owned()),
        1 => Just("```".to_owned()),
        2 => proptest::sample::select(CORPUS.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => "\\PC{1,4}",
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_that_grows_is_wrapped_as_if_it_came_whole(text in text(), width in 1usize..40, cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12)) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let mut grown = Wrapped::new("", width);
        for end in ends {
            grown.append(&text[..end]);
        }
        let whole = Wrapped::new(&text, width);
        prop_assert_eq!(grown.rows().collect::<Vec<_>>(), whole.rows().collect::<Vec<_>>());
    }

    #[test]
    fn rows_follow_each_other_and_are_never_too_wide(line in "\\PC{0,60}", width in 4usize..40) {
        let mut last = 0;
        for row in wrap_line(&line, width) {
            prop_assert!(row.start >= last && row.end >= row.start);
            prop_assert!(line[last..row.start].chars().all(|c| c == ' '), "only spaces are left out");
            prop_assert!(cells::width(&line[row.clone()]) <= width);
            last = row.end;
        }
        prop_assert!(line[last..].chars().all(|c| c == ' '));
    }

    #[test]
    fn a_row_is_found_by_its_place(text in text(), width in 1usize..40) {
        let wrapped = Wrapped::new(&text, width);
        for row in 0..wrapped.len() {
            prop_assert_eq!(wrapped.row_of(wrapped.place_of(row)), row);
        }
    }
}
