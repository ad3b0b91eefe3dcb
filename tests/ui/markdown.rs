//! Answers as Markdown: what is shown of each construct, at every width, however the text came in.

use mlx_chat::ui::cells;
use mlx_chat::ui::reading::markdown::{Document, Kind};
use mlx_chat::ui::styles::Styles;
use proptest::prelude::*;

use super::support::{Chats, ascii, color, draw, no_color, view};

/// A document's rows as a screen shows them; the line above code as `# language [number]`.
fn rows_of(document: &Document) -> Vec<String> {
    let row = |at| {
        let row = document.row(at).unwrap();
        match row.kind {
            Kind::Head(number, code) => format!("{}# {} [{}]", row.text(), code.language, number + 1),
            _ => row.text().to_owned(),
        }
    };
    (0..document.len()).map(row).collect()
}

fn in_style(source: &str, width: usize, styles: &Styles) -> Vec<String> {
    rows_of(&Document::new(source, width, styles))
}

fn rows(source: &str, width: usize) -> Vec<String> {
    in_style(source, width, &color())
}

#[test]
fn a_line_end_within_a_paragraph_is_a_space() {
    assert_eq!(
        rows("one\ntwo\n\nthree  \nfour\\\nfive", 40),
        ["one two", "", "three", "four", "five"]
    );
}

#[test]
fn headings_keep_their_marks_and_stand_out() {
    let document = Document::new("# One\ntext\n\n## Two *it*\nSet\n===", 40, &color());
    assert_eq!(
        rows_of(&document),
        ["# One", "", "text", "", "## Two it", "", "# Set"]
    );
    let pieces: Vec<_> = document
        .row(0)
        .unwrap()
        .pieces()
        .map(|(text, ink)| (text, ink.strong))
        .collect();
    assert_eq!(pieces, [("# ", false), ("One", true)]);
}

#[test]
fn text_between_two_tildes_is_struck_out_and_about_so_many_is_not() {
    use ratatui::style::Modifier;
    for (styles, shown) in [
        (color(), "not this, but ~5 ~a~"),
        (no_color(), "~~not~~ this, but ~5 ~a~"),
    ] {
        let mut chats = Chats::ready(1);
        let request = chats.send(1, "hi");
        chats.says(request, "~~not~~ this, but ~5 ~a~");
        let mut view = view(styles);
        let (buffer, _) = draw(&mut view, &chats.state, 80, 24);
        let screen = mlx_chat::ui::view::to_text(&buffer);
        assert!(screen.contains(shown), "{screen}");
        let struck = buffer
            .content()
            .iter()
            .filter(|cell| cell.modifier.contains(Modifier::CROSSED_OUT));
        assert_eq!(struck.count(), if shown.starts_with('~') { 0 } else { 3 });
    }
}

#[test]
fn emphasis_code_and_links_have_looks_of_their_own() {
    let document = Document::new("a *b* **c** `d` [e](http://f) ***g***", 60, &color());
    let row = document.row(0).unwrap();
    assert_eq!(row.text(), "a b c d e (http://f) g");
    let looks: Vec<_> = row
        .pieces()
        .filter(|(text, _)| !text.trim().is_empty())
        .map(|(text, ink)| (text.trim(), ink.emphasis, ink.strong, ink.code, ink.link))
        .collect();
    assert_eq!(
        looks,
        [
            ("a", false, false, false, false),
            ("b", true, false, false, false),
            ("c", false, true, false, false),
            ("d", false, false, true, false),
            ("e", false, false, false, true),
            ("(http://f)", false, false, false, false),
            ("g", true, true, false, false),
        ]
    );
}

#[test]
fn without_color_code_keeps_its_backticks() {
    assert_eq!(in_style("use `x` here", 40, &no_color()), ["use `x` here"]);
    assert_eq!(in_style("use ``a`b`` here", 40, &color()), ["use a`b here"]);
}

#[test]
fn text_and_address_of_a_link_are_readable() {
    assert_eq!(rows("[a](http://b 'title')", 40), ["a (http://b)"]);
    assert_eq!(rows("<http://b>", 40), ["http://b"]);
    assert_eq!(rows("[http://b](http://b)", 40), ["http://b"]);
    assert_eq!(rows("[a](http://b?x=$1&y=$2$)", 40), ["a (http://b?x=$1&y=$2$)"]);
}

#[test]
fn an_image_is_its_text_and_its_address() {
    assert_eq!(
        rows("see ![a *cat*](http://c.png)!", 60),
        ["see [image: a cat] (http://c.png)!"]
    );
    assert_eq!(rows("![](x.png)", 60), ["[image] (x.png)"]);
}

#[test]
fn addresses_that_come_later_make_links_of_what_stood_before() {
    let text = "see [the page][p] and [p]\n\nmore\n\n[P]: http://x";
    let shown = [
        "see the page (http://x) and p (http://x)",
        "",
        "more",
        "",
        "[P]: http://x",
    ];
    assert_eq!(rows(text, 60), shown);
    let mut grown = Document::new("", 60, &color());
    for end in 0..=text.len() {
        grown.append(&text[..end]);
    }
    assert_eq!(rows_of(&grown), shown);
    assert_eq!(rows("see [nothing] and [x][y]", 60), ["see [nothing] and [x][y]"]);
}

#[test]
fn lists_keep_their_numbers_and_their_depth() {
    assert_eq!(
        rows("- one\n- two\n  - deep\n    1. deeper\n- three", 40),
        ["• one", "• two", "  • deep", "    1. deeper", "• three"]
    );
    assert_eq!(rows("9. nine\n10. ten", 40), [" 9. nine", "10. ten"]);
    assert_eq!(
        rows("1. one\n\n   more\n2. two", 40),
        ["1. one", "", "   more", "", "2. two"]
    );
    assert_eq!(in_style("* a\n* b", 40, &ascii()), ["- a", "- b"]);
    let tasks = "- [ ] open\n- [x] done\n- [] none\n- `[ ]` code";
    assert_eq!(rows(tasks, 40), ["☐ open", "☑ done", "• [] none", "• [ ] code"]);
    assert_eq!(
        in_style("- [ ] open\n\n  more\n- [x] done", 40, &ascii()),
        ["[ ] open", "", "    more", "", "[x] done"]
    );
    assert_eq!(rows("1. [ ] one\n2. two", 40), ["1. ☐ one", "2. two"]);
    assert_eq!(rows("- a word that wraps", 10), ["• a word", "  that", "  wraps"]);
    assert_eq!(rows("- a\n-\n- c", 10), ["• a", "•", "• c"]);
}

#[test]
fn quotes_have_a_bar_on_every_row() {
    assert_eq!(
        rows("> one\n> two\n>\n> - three\n>> deep", 40),
        ["│ one two", "│", "│ • three", "│", "│ │ deep"]
    );
    assert_eq!(in_style("> a", 40, &ascii()), ["> a"]);
}

#[test]
fn a_rule_is_a_line() {
    assert_eq!(rows("a\n\n---\n\nb", 5), ["a", "", "─────", "", "b"]);
    assert_eq!(in_style("***", 4, &ascii()), ["----"]);
}

const TABLE: &str = "| name | what it is |\n|:--|--:|\n| a | first |\n| `bb` | **second** one |";

#[test]
fn tables_have_columns_as_wide_as_their_cells() {
    assert_eq!(
        rows(TABLE, 40),
        [
            "name │ what it is",
            "─────┼───────────",
            "a    │      first",
            "bb   │ second one"
        ]
    );
    assert_eq!(in_style("|a|\n|-|\n|b|", 40, &ascii()), ["a", "-", "b"]);
}

#[test]
fn cells_wrap_where_a_table_is_too_wide() {
    assert_eq!(
        rows(TABLE, 14),
        [
            "name │ what it",
            "     │      is",
            "─────┼────────",
            "a    │   first",
            "bb   │  second",
            "     │     one"
        ]
    );
}

#[test]
fn a_table_without_room_for_columns_is_a_line_for_each_cell() {
    assert_eq!(
        rows(TABLE, 12),
        [
            "name: a",
            "what it is:",
            "first",
            "",
            "name: bb",
            "what it is:",
            "second one"
        ]
    );
}

#[test]
fn code_has_a_numbered_head_and_its_bytes() {
    let source = "text\n\n```python title=x\ndef f():\n\treturn 1\n```\n\n~~~\nplain\n~~~\n";
    let document = Document::new(source, 40, &color());
    assert_eq!(
        rows_of(&document),
        [
            "text",
            "",
            "# python [1]",
            "def f():",
            "    return 1",
            &"─".repeat(40),
            "",
            "#  [2]",
            "plain",
            &"─".repeat(40)
        ]
    );
    let code: Vec<&str> = document.code().map(|code| code.source.as_str()).collect();
    assert_eq!(code, ["def f():\n\treturn 1\n", "plain\n"]);
}

#[test]
fn the_language_of_code_is_what_its_first_line_says() {
    let text = "```x\n$$日本x\n```";
    assert_eq!(rows(text, 20)[..2], ["# x [1]", "$$日本x"]);
    assert_eq!(rows("```x\n$$日本", 20), ["# x [1]", "$$日本"]);
}

#[test]
fn code_in_a_list_is_copied_without_the_lists_indent() {
    let document = Document::new(
        "1. do\n\n   ```sh\n   a\n     b\n   ```\n\n> ```\n> x\n> ```",
        30,
        &color(),
    );
    let code: Vec<&str> = document.code().map(|code| code.source.as_str()).collect();
    assert_eq!(code, ["a\n  b\n", "x\n"]);
    assert_eq!(rows_of(&document)[2..5], ["   # sh [1]", "   a", "     b"]);
}

#[test]
fn code_that_has_not_ended_has_no_line_below() {
    assert_eq!(rows("```c\nint x;", 20), ["# c [1]", "int x;"]);
    assert_eq!(rows("```c\nint x;\n``", 20), ["# c [1]", "int x;", "``"]);
    assert_eq!(rows("```c\nint x;\n```", 20).len(), 3);
    assert_eq!(rows("````\n```\n````", 20).len(), 3);
}

#[test]
fn long_lines_of_code_wrap_and_lose_nothing() {
    assert_eq!(
        rows("```\nlet number = compute();\n```", 14)[1..3],
        ["let number =", "compute();"]
    );
}

#[test]
fn html_is_text() {
    assert_eq!(rows("a <b>c</b>", 40), ["a <b>c</b>"]);
    assert_eq!(
        rows("<div>\n<p>x</p>\n</div>\n\ny", 40),
        ["<div>", "<p>x</p>", "</div>", "", "y"]
    );
    assert_eq!(rows("&lt;i&gt; &amp; &eacute;", 40), ["<i> & é"]);
}

#[test]
fn maths_are_shown_by_signs() {
    assert_eq!(
        rows(
            r"so $a_1 * b_2 * c$ and \(x_i \leq y^2\) hold, *not* $$\frac{a}{2}$$",
            60
        ),
        ["so a₁ * b₂ * c and xᵢ ≤ y² hold, not a/2"]
    );
    assert_eq!(
        rows(
            "see\n\\[\n\\begin{aligned}\na_1 &= *b* \\\\\n&= c_2\n\\end{aligned}\n\\]\nand *more*",
            60
        ),
        ["see", "a₁ = *b*", "= c₂", "and more"]
    );
    assert_eq!(rows("it costs $5 and *not* $10", 60), ["it costs $5 and not $10"]);
    assert_eq!(rows("| $|a_1|$ | b |\n|-|-|\n| 1 | 2 |", 60)[0], "|a₁| │ b");
}

#[test]
fn maths_of_items_and_quotes_are_shown_by_signs() {
    for (text, shown) in [
        ("- $$\n  a_1\n  $$\n- b", vec!["• a₁", "• b"]),
        ("- $$\na_1\n$$\n- b", vec!["• a₁", "• b"]),
        (
            "9. so\n10. \\[\n    \\frac{a}{2} \\\\\n    *b*\n    \\]\n    and",
            vec![" 9. so", "10. a/2", "    *b*", "    and"],
        ),
        (
            "1. so\n   - this:\n\n     $$\n     x^2\n     $$",
            vec!["1. so", "   • this:", "", "     x²"],
        ),
        (
            "> see\n> $$\n> \\frac{a}{2} \\leq b > c\n> $$\n> and *more*",
            vec!["│ see", "│ a/2 ≤ b > c", "│ and more"],
        ),
        ("> > \\[\n> > x_1\n> > \\]", vec!["│ │ x₁"]),
        ("> - $$\n>   x_1\n>   $$\n\nend", vec!["│ • x₁", "", "end"]),
    ] {
        assert_eq!(rows(text, 40), shown, "{text}");
    }
    // What isn't known is whole, line by line, and takes nothing of what follows with it.
    assert_eq!(
        rows("> \\[\n> \\strange_1\n> \\]\n> end", 40),
        [r"│ \[", r"│ \strange_1", r"│ \]", "│ end"]
    );
    assert_eq!(
        rows("- $$ is a *process*\n- b\n\n# c", 40),
        ["• $$ is a *process*", "• b", "", "# c"]
    );
    // Code has its marks of formulas.
    assert_eq!(rows("- a\n\n      $$\n      b", 40)[3..5], ["  $$", "  b"]);
}

#[test]
fn maths_that_are_not_known_are_left_as_they_are_written() {
    for text in [
        r"so $\strange{a_1} * b_2 * c$ holds",
        r"$$a_1 * \strange * c$$",
        r"\[ \begin{pmatrix} a & b \\ c & d \end{pmatrix} \]",
        r"$$a_1 * b",
    ] {
        assert_eq!(rows(text, 60), [text]);
    }
    assert_eq!(
        rows("see\n\\[\n\\strange_1 = *b*\n= c_2\n\\]\nand *more*", 60),
        ["see", r"\[", r"\strange_1 = *b*", "= c_2", r"\]", "and more"]
    );
    let text = r"so $a_1 * b_2$ and \(x\)";
    assert_eq!(in_style(text, 60, &ascii()), [text], "ASCII has no such signs");
}

#[test]
fn a_tag_that_ends_a_line_ends_it() {
    assert_eq!(rows("one<br>two<br />three", 40), ["one", "two", "three"]);
    assert_eq!(rows("|a|\n|-|\n|one<br>two|", 40), ["a", "───────", "one two"]);
}

#[test]
fn a_table_that_is_cut_goes_on_under_its_head() {
    let row = |n: usize| format!("| name {n} | value {n} |\n");
    let mut text = "| name | value |\n|:--|--:|\n".to_owned();
    text.extend((0..60).map(row));
    let document = Document::with_limit(&text, 40, &color(), 400);
    let rows = rows_of(&document);
    let heads = rows
        .iter()
        .filter(|row| row.starts_with("name ") && row.ends_with("│    value"));
    assert!(heads.count() > 2, "{rows:#?}");
    for n in 0..60 {
        let cells = |row: &&String| {
            let mut cells = row.split('│');
            cells
                .next()
                .is_some_and(|cell| cell.trim() == format!("name {n}"))
                && cells
                    .next()
                    .is_some_and(|cell| cell.trim() == format!("value {n}"))
        };
        assert_eq!(rows.iter().filter(cells).count(), 1, "row {n} of {rows:#?}");
    }
    text.push_str("\nThe end.\n");
    let document = Document::with_limit(&text, 40, &color(), 400);
    assert_eq!(rows_of(&document).last().unwrap(), "The end.");
    for at in 0..document.len() {
        assert_eq!(document.row_of(document.place_of(at)), at);
    }
}

#[test]
fn nothing_of_an_answer_steers_the_terminal() {
    let hostile =
        "a\x1b[2J `b\x07` [c](d\u{9b}) \u{202e}\n\n```x\x1b\n\x1b]52;c;\x07\n```\n\n|\x1b|\n|-|\n|\x08|";
    for row in rows(hostile, 30) {
        assert!(
            !row.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{row:?}"
        );
    }
}

#[test]
fn a_token_lays_out_the_last_block_alone() {
    let mut text: String = (0..2000)
        .map(|n| format!("Paragraph {n} of *many*.\n\n"))
        .collect();
    let mut document = Document::new(&text, 60, &color());
    for _ in 0..200 {
        text.push_str("word ");
        let before = document.laid_out();
        document.append(&text);
        assert!(document.laid_out() <= before + 1);
    }
}

#[test]
fn a_block_without_end_is_laid_out_in_pieces() {
    let mut text = "word ".repeat(100_000);
    let mut document = Document::new(&text, 60, &color());
    assert_eq!(document.len(), Document::new(&text, 60, &color()).len());
    text.push_str("end");
    let before = document.laid_out();
    document.append(&text);
    assert_eq!(document.laid_out(), before + 1);
    let all: String = rows_of(&document).join(" ");
    assert_eq!(all.split_whitespace().count(), 100_001);
}

#[test]
fn a_line_without_end_behind_a_short_one_is_shown_whole() {
    let text = format!("a\n{}", "word ".repeat(100_000));
    let all: String = rows_of(&Document::new(&text, 60, &color())).join(" ");
    assert_eq!(all.split_whitespace().count(), 100_001);
}

/// Pieces of which Markdown is made.
const PIECES: [&str; 56] = [
    "\n",
    "\n\n",
    "\n",
    " ",
    "  ",
    "    ",
    "- ",
    "* ",
    "1. ",
    "23) ",
    "> ",
    "# ",
    "## ",
    "***",
    "---",
    "===",
    "```",
    "```rust\n",
    "~~~",
    "`",
    "*",
    "**",
    "_",
    "[",
    "](",
    ")",
    "![",
    "]: http://x",
    "[a]",
    "[a]: /b",
    "<b>",
    "</b>",
    "<!-- ",
    " -->",
    "|",
    "|-|-|",
    "| a | b |\n",
    "|:-|-:|\n",
    "$",
    "$$",
    "\\[",
    "\\]",
    "\\(",
    "\\",
    "&amp;",
    "\t",
    "\r\n",
    "日本",
    "👩‍👩‍👧",
    "e\u{301}",
    "\x1b[2J",
    "plain words",
    "x",
    "longerwordthatmaynotfit",
    "http://a.b/c",
    "<div>\n",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        8 => proptest::sample::select(PIECES.to_vec()).prop_map(str::to_owned),
        3 => "[a-z]{1,6} ",
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..32).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_of_a_prefix_is_what_is_shown_of_it_alone(
        text in text(),
        width in 1usize..40,
        limit in prop_oneof![Just(12usize), Just(40), Just(1 << 14)],
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..16),
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        ends.push(text.len());
        ends.sort_unstable();
        let mut grown = Document::with_limit("", width, &color(), limit);
        for end in ends {
            grown.append(&text[..end]);
            let whole = Document::with_limit(&text[..end], width, &color(), limit);
            prop_assert_eq!(rows_of(&grown), rows_of(&whole), "of {:?}", &text[..end]);
            prop_assert!(grown.code().eq(whole.code()));
            for at in 0..grown.len() {
                let looks = |document: &Document| document.row(at).unwrap().pieces().map(|(_, ink)| ink).collect::<Vec<_>>();
                prop_assert_eq!(looks(&grown), looks(&whole));
            }
        }
    }

    #[test]
    fn no_row_is_wider_than_asked_for(text in text(), width in 4usize..50) {
        for row in rows(&text, width) {
            // The line above code is made to fit when it is painted.
            prop_assert!(row.contains("# ") || cells::width(&row) <= width, "{:?} in {}", row, width);
        }
    }

    #[test]
    fn no_word_is_lost(text in text(), width in 1usize..50) {
        let solid = |text: &str| text.chars().filter(|c| c.is_ascii_lowercase()).collect::<String>();
        let shown = solid(&rows(&text, width).concat());
        let whole = solid(&rows(&text, 10_000).concat());
        // A narrow table repeats the names of its columns.
        let table = text.contains('|');
        prop_assert!(table || shown == whole, "{:?} and {:?}", shown, whole);
    }

    #[test]
    fn a_row_is_found_by_its_place(text in text(), width in 1usize..40, other in 1usize..40) {
        let document = Document::new(&text, width, &color());
        for at in 0..document.len() {
            prop_assert_eq!(document.row_of(document.place_of(at)), at);
        }
        let reflowed = Document::new(&text, other, &color());
        for at in 0..document.len() {
            prop_assert!(reflowed.row_of(document.place_of(at)) < reflowed.len().max(1));
        }
        prop_assert!(document.row(document.len()).is_none());
    }
}

#[test]
fn a_paragraph_of_megabytes_is_read_once_and_not_again_for_each_piece() {
    let word = "some words ";
    for text in [
        word.repeat(200_000),
        "日".repeat(700_000),
        format!("{word}\n").repeat(100_000),
    ] {
        let mut document = Document::new(&text, 80, &no_color());
        // A piece is looked at with what stands behind it, up to a bound.
        let read = document.bytes_read();
        assert!(read < 16 * text.len(), "{read} of {}", text.len());
        let shown: String = rows_of(&document).concat();
        assert_eq!(shown.matches('s').count(), text.matches('s').count());
        let longer = format!("{text}more");
        document.append(&longer);
        assert!(
            document.bytes_read() - read < 1 << 18,
            "a token reads the last piece alone"
        );
    }
}
