//! The same blocks, however a text comes.

use proptest::prelude::*;

use super::*;

fn of(text: &str, limit: usize) -> Vec<Block> {
    blocks(text, 0, None, limit, &mut 0)
}

/// Sources of the blocks of a text.
fn sources(text: &str, limit: usize) -> Vec<&str> {
    let blocks = of(text, limit).into_iter();
    blocks.map(|block| &text[block.source]).collect()
}

/// Has a text come byte by byte, each time from behind the blocks that were closed, and all at once.
fn same_however_it_comes(text: &str, limit: usize) {
    let mut closed: Vec<Block> = Vec::new();
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let last = closed.last();
        let from = last.map_or(0, |block| block.source.end);
        let head = last.and_then(Block::goes_on);
        let more = blocks(&text[..end], from, head, limit, &mut 0);
        let grown: Vec<Block> = closed.iter().cloned().chain(more).collect();
        assert_eq!(grown, of(&text[..end], limit), "{:?} by {limit}", &text[..end]);
        closed = grown.into_iter().take_while(|block| !block.open).collect();
    }
}

#[test]
fn a_text_is_cut_alike_however_it_comes() {
    let title = "- a\n\n[a]: /b\n\"t\nu\nv\nw\"\n\nx\ny\n";
    for text in [
        // A return by itself, which the parser takes for the end of a line.
        "- \r* \n\r\n]: http://x",
        "- \r<!-- ```rust\n\n -->\r\n- ",
        // Lines of which only the beginning is there when the block has to be cut.
        "aaaa \r\n<div>\naaaaaa   aaaaaa [a]: /b| a | b |\n  - ",
        "aaa 1.  -->- ***aaaaa \naa \n\r\n[a]\r\na aaaaaa &amp;aaa   | a | b |\n    - ",
        "## aaaaaa `a aa \n\n| a | b |\naaa 👩‍👩‍👧0 aa \n  ` ",
        "aa\nlong enough | a\n|-|-|\n| b | c |\n\nd\ne\n",
        "```\\[`## 1. ]: http://x\\]\n\n\n\n\n\n",
        // What goes on behind blank lines.
        "- a\n\n\n\n\n  b\n\nc\nd\n",
        "    a\n\n\n\n\n    b\n\nc\nd\n",
        // An item that has nothing in it yet.
        "> -|-\n-\n  \n\nb\n\nc\nd\n",
        "> -|-\n  \n\na\n",
        "- \n \n\n-|-\n",
        "- a\n\n\r\n- b c\n",
        "```\n1. | a | b |$$\n> [a]: /b\"\n\n> | a | b |\r\n> 1. $$\n\n- $$\r\n<div>\r\n",
        // A list that ends with a line that is indented.
        "- x\n\n a\nb\n\nc\nd\n",
        // Behind an address a line reads on as a paragraph does; a title takes lines back.
        "- a\n\n[a]: /b\n    code\nb\n\nc\nd\n",
        "[a]: /b\n\"t | u\n-|-\n2. foo\nbar\nx\"\n\ny\nz\n",
        title,
        // A formula that goes on behind the end of the item that it is in.
        "- ```\n  $$\na\n<div>\nb\n\nc\nd\n",
        // Tables that are cut.
        "a | b\n-|-\n| c | d |\n| e | f |\n| g | h |\n\ni\nj\n",
    ] {
        for limit in [4, 12, 40, 1 << 14] {
            same_however_it_comes(text, limit);
        }
    }
}

#[test]
fn a_block_ends_before_the_line_that_ends_it() {
    assert_eq!(sources("- x\n\n a\nb\n", 40), ["- x\n", "\n a\nb\n"]);
    assert_eq!(
        sources("- a\n\n[a]: /b\n    c\nd\n\ne\n", 80),
        ["- a\n", "\n[a]: /b\n    c\nd\n", "\ne\n"]
    );
}

#[test]
fn nothing_is_left_out_behind_a_short_line() {
    let text = format!("a\n{}", "word ".repeat(1000));
    assert_eq!(sources(&text, 40).concat(), text);
    let text = format!("a\n{}b", "\n".repeat(1000));
    assert_eq!(sources(&text, 40).concat(), text);
}

/// Of what lines are made, marks first.
const MARKS: [&str; 22] = [
    "",
    "",
    "",
    " ",
    "  ",
    "    ",
    "- ",
    "-",
    "1. ",
    "2. ",
    "> ",
    "# ",
    "```",
    "~~~",
    "$$",
    "\\[",
    "<div>",
    "<!-- ",
    "<b>",
    "| a | b |",
    "[a]: /b",
    "\"",
];
const TEXTS: [&str; 20] = [
    "",
    "",
    "",
    "a",
    "b c",
    "|-|-|",
    "-|-",
    "===",
    "---",
    "-->",
    "```",
    "$$",
    "\\]",
    "\"",
    "]: /c",
    "[d",
    "x | y",
    "\r",
    "`",
    "some more words",
];

fn document() -> impl Strategy<Value = String> {
    let part = |parts: &'static [&'static str]| proptest::sample::select(parts);
    let end = proptest::sample::select(&["\n", "\n", "\n", "\n\n", "\r\n"][..]);
    let line = (part(&MARKS), part(&MARKS), part(&TEXTS), end);
    let line = line.prop_map(|(first, second, text, end)| format!("{first}{second}{text}{end}"));
    proptest::collection::vec(line, 0..12).prop_map(|lines| lines.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_are_the_same_however_their_text_comes(
        text in document(),
        limit in prop_oneof![Just(4usize), Just(12), Just(40), Just(1 << 14)],
    ) {
        same_however_it_comes(&text, limit);
        prop_assert_eq!(sources(&text, limit).concat(), text);
    }
}
