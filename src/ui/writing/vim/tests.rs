use super::*;
use crate::chat::Draft;

/// What a draft is after keys that are given as commands; `|` stands at the caret.
fn after(draft: &str, keys: &str) -> String {
    let mut vim = Vim {
        commands: true,
        ..Vim::default()
    };
    pressed(&mut vim, draft, keys)
}

fn pressed(vim: &mut Vim, draft: &str, keys: &str) -> String {
    let at = draft.find('|').unwrap();
    let mut editor = Editor::new(draft.replacen('|', "", 1), at);
    for c in keys.chars() {
        let esc = c == '\x1b';
        let code = if esc { KeyCode::Esc } else { KeyCode::Char(c) };
        let did = vim.key(&KeyEvent::new(code, KeyModifiers::NONE), esc, &mut editor);
        if did == Did::Nothing && !vim.commands() && !esc {
            editor.insert(&c.to_string());
        }
    }
    let mut text = editor.text().to_owned();
    text.insert(editor.caret(), '|');
    text
}

#[test]
fn motions_go_where_vim_goes() {
    for (draft, keys, expected) in [
        ("ab|c", "h", "a|bc"),
        ("|abc", "h", "|abc"),
        ("|abc", "l", "a|bc"),
        ("ab|c", "l", "ab|c"),
        ("a\n|b", "h", "a\n|b"),
        ("|one two", "w", "one |two"),
        ("|one, two", "w", "one|, two"),
        ("|one\n  two", "w", "one\n  |two"),
        ("|one\n\ntwo", "w", "one\n|\ntwo"),
        ("one two| x", "b", "one |two x"),
        ("one |two", "b", "|one two"),
        ("|one two", "e", "on|e two"),
        ("on|e two", "e", "one tw|o"),
        ("|a b c d", "3w", "a b c |d"),
        ("  ab|c", "0", "|  abc"),
        ("  ab|c", "^", "  |abc"),
        ("|abc", "$", "ab|c"),
        ("a\nb\n|c", "gg", "|a\nb\nc"),
        ("|a\nb\n  c", "G", "a\nb\n  |c"),
        ("|a\nb\nc", "2G", "a\n|b\nc"),
        ("|a\nb\nc", "10l", "|a\nb\nc"),
        ("|日本語 text", "l", "日|本語 text"),
        ("|e\u{301}x", "l", "e\u{301}|x"),
        ("|", "hlwbe$0^G", "|"),
    ] {
        assert_eq!(after(draft, keys), expected, "{draft:?} {keys}");
    }
}

#[test]
fn operators_take_what_vim_takes() {
    for (draft, keys, expected) in [
        ("a|bc", "x", "a|c"),
        ("ab|c", "x", "a|b"),
        ("|abcd", "3x", "|d"),
        ("|abcd", "9x", "|"),
        ("|one two", "dw", "|two"),
        ("one |two\nx", "dw", "one| \nx"),
        ("|a b c d", "2dw", "|c d"),
        ("|a b c d", "d2w", "|c d"),
        ("one |two", "db", "|two"),
        ("|one two", "de", "| two"),
        ("a\n|b\nc", "dd", "a\n|c"),
        ("a\nb\n|c", "dd", "a\n|b"),
        ("|a", "dd", "|"),
        ("|a\nb\nc", "2dd", "|c"),
        ("|a\nb\nc", "dj", "|c"),
        ("a\nb\n|c", "dk", "|a"),
        ("a\n|b\nc", "dG", "|a"),
        ("a\n|b\nc", "dgg", "|c"),
        ("ab|cd\nx", "D", "a|b\nx"),
        ("ab|cd\nx", "d$", "a|b\nx"),
        ("ab|cd", "d0", "|cd"),
        ("|one two", "cwx\x1b", "|x two"),
        ("ab|cd", "Cx\x1b", "ab|x"),
        ("a\n|b c\nd", "ccx\x1b", "a\n|x\nd"),
        ("|abc", "rx", "|xbc"),
        ("|abc", "2rx", "x|xc"),
        ("|a", "2rx", "|a"),
        ("|abc", "dxl", "a|bc"),
        ("|", "ddxD", "|"),
    ] {
        assert_eq!(after(draft, keys), expected, "{draft:?} {keys}");
    }
}

#[test]
fn what_was_taken_out_is_put_back() {
    for (draft, keys, expected) in [
        ("|ab", "xp", "b|a"),
        ("|one two", "dwP", "one| two"),
        ("|a\nb", "ddp", "b\n|a"),
        ("a\n|b", "yyP", "a\n|b\nb"),
        ("|a\nb", "yyp", "a\n|a\nb"),
        ("|one two", "yw$p", "one twoone| "),
        ("|ab", "x3p", "baa|a"),
        ("|ab", "p", "|ab"),
    ] {
        assert_eq!(after(draft, keys), expected, "{draft:?} {keys}");
    }
}

#[test]
fn writing_begins_where_vim_begins_it() {
    for (draft, keys, expected) in [
        ("a|b", "ix\x1b", "a|xb"),
        ("a|b", "ax\x1b", "ab|x"),
        ("  a|b", "Ix\x1b", "  |xab"),
        ("|ab\nc", "Ax\x1b", "ab|x\nc"),
        ("|ab\nc", "ox\x1b", "ab\n|x\nc"),
        ("ab\n|c", "Ox\x1b", "ab\n|x\nc"),
    ] {
        assert_eq!(after(draft, keys), expected, "{draft:?} {keys}");
    }
}

#[test]
fn escape_leaves_writing_then_forgets_and_then_is_nothing_of_vims() {
    let mut vim = Vim::default();
    let mut editor = Editor::new("ab", 2);
    let esc = KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!(vim.shown(), "INSERT");
    assert_eq!(vim.key(&esc, true, &mut editor), Did::Something);
    assert_eq!((vim.shown().as_str(), editor.caret()), ("NORMAL", 1));
    for c in ['2', 'd', '3'] {
        vim.key(
            &KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
            false,
            &mut editor,
        );
    }
    assert_eq!(vim.shown(), "NORMAL 2d3");
    assert_eq!(vim.key(&esc, true, &mut editor), Did::Something);
    assert_eq!(vim.shown(), "NORMAL");
    assert_eq!(vim.key(&esc, true, &mut editor), Did::Nothing);
    assert_eq!(editor.text(), "ab");
}

#[test]
fn rows_and_changes_are_for_the_view() {
    let mut vim = Vim {
        commands: true,
        ..Vim::default()
    };
    let mut editor = Editor::new("ab", 0);
    let mut key = |c, modifiers| vim.key(&KeyEvent::new(KeyCode::Char(c), modifiers), false, &mut editor);
    key('3', KeyModifiers::NONE);
    assert_eq!(key('j', KeyModifiers::NONE), Did::Go(Motion::Down, 3));
    assert_eq!(key('k', KeyModifiers::NONE), Did::Go(Motion::Up, 1));
    key('2', KeyModifiers::NONE);
    assert_eq!(key('u', KeyModifiers::NONE), Did::Undo(2));
    assert_eq!(key('r', KeyModifiers::CONTROL), Did::Redo(1));
    assert_eq!(
        key('p', KeyModifiers::CONTROL),
        Did::Nothing,
        "the palette is not vim's"
    );
}

#[test]
fn a_large_paste_is_one_character_and_one_line_for_every_command() {
    let paste = "x\n".repeat(600);
    let text = format!("a {paste}b\nc");
    let range = 2..2 + paste.len();
    let draft = Draft::new(text, 0).with_pastes([range]);
    for keys in [
        "dd", "wx", "wdd", "$dd", "w2x", "d$", "wcwq", "Gdgg", "yyp", "wylp", "wrx",
    ] {
        let mut vim = Vim {
            commands: true,
            ..Vim::default()
        };
        let mut editor = Editor::of(&draft);
        for c in keys.chars() {
            vim.key(
                &KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE),
                false,
                &mut editor,
            );
        }
        let rest = editor.text().matches("x\n").count();
        assert!(
            [0, 600, 1200].contains(&rest),
            "{keys}: {rest} lines of the paste are left"
        );
    }
}

#[test]
fn no_keys_break_a_draft() {
    let keys: Vec<char> = "hlwbe0$^gGxdcyDCpPuiaIAoOr23\x1b".chars().collect();
    let mut seed = 7_usize;
    for text in ["", "one two\n\n  three 日本 e\u{301}\n", "a", "\n\n"] {
        let mut vim = Vim::default();
        let mut editor = Editor::new(text, text.len());
        for _ in 0..20_000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let c = keys[(seed >> 33) % keys.len()];
            let esc = c == '\x1b';
            let code = if esc { KeyCode::Esc } else { KeyCode::Char(c) };
            if vim.key(&KeyEvent::new(code, KeyModifiers::NONE), esc, &mut editor) == Did::Nothing && !esc {
                editor.insert(&c.to_string());
            }
            if editor.text().len() > 5000 {
                editor = Editor::new(text, 0);
            }
            assert!(editor.text().is_char_boundary(editor.caret()));
        }
    }
}
