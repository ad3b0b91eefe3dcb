//! Themes, the mouse, vim's keys and lines for a screen reader, with the real program.

use crate::screen::{Modes, Start};

/// On a terminal with all colors that tells nothing of its background by itself.
fn colorful() -> Start {
    let start = Start::script("calm").environment("COLORTERM", "truecolor");
    start.environment("COLORFGBG", "").environment("NO_COLOR", "")
}

#[test]
fn a_terminals_answer_decides_between_dark_and_light_and_types_nothing() {
    let mut screen = colorful().argument("--theme=auto").open();
    screen.wait_for_bytes("\x1b]11;?\x1b\\");
    screen.wait_for_bytes("48;2;27;30;36");
    screen.send("be\x1b]11;rgb:ffff/ffff/f0f0\x1b\\fore");
    screen.wait_for_bytes("48;2;251;250;247");
    screen.wait_for("│before");
    assert!(!screen.text().contains("rgb"));
    screen.send("\x03");
    screen.quit();
    screen.assert_restored();
}

#[test]
fn a_theme_is_chosen_on_the_screen_and_shows_itself_before() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config/mlx-chat/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "[interface]\nbell = false # at night\n").unwrap();
    let mut screen = colorful().home(home.path()).open();
    screen.wait_for("ready");
    assert!(!screen.bytes_contain("48;2;"));
    screen.send("\x1bt"); // Alt-t
    screen.wait_for("the terminal's own colors");
    screen.send("\x1b[A"); // Up, to the last one
    screen.wait_for_bytes("48;2;255;255;255");
    screen.send("\r");
    screen.wait_for("theme contrast-light is kept in ");
    screen.quit();
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        written,
        "[interface]\nbell = false # at night\ntheme = \"contrast-light\"\n"
    );
    let mut again = colorful().home(home.path()).open();
    again.wait_for_bytes("48;2;255;255;255");
    again.quit();
    screen.assert_restored();
}

#[test]
fn a_theme_of_ones_own_is_read_anew_when_it_is_saved_and_a_mistake_is_told() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("config/mlx-chat/themes");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("mine.toml"), "background = '#010203'\n").unwrap();
    let mut screen = colorful().home(home.path()).argument("--theme=mine").open();
    screen.wait_for_bytes("48;2;1;2;3");
    std::fs::write(folder.join("mine.toml"), "background = '#040506'\n# longer\n").unwrap();
    screen.wait_for_bytes("48;2;4;5;6");
    std::fs::write(folder.join("mine.toml"), "\nbackground = 'loud'\n").unwrap();
    screen.wait_for("themes/mine.toml:2: background: expected a color");
    screen.quit();
}

#[test]
fn reports_of_a_place_before_the_first_column_do_no_harm() {
    for mouse in ["off", "full"] {
        let mut screen = Start::script("calm").argument(&format!("--mouse={mouse}")).open();
        screen.wait_for("to 1");
        for odd in ["\x1b[<0;0;0M", "\x1b[M   ", "\x1b[0;0R", "\x1b[32;0;0M"] {
            screen.send(odd);
        }
        screen.send("still here");
        screen.wait_for("still here");
        screen.send("\x03");
        screen.quit();
        screen.assert_restored();
    }
}

#[test]
fn the_mouse_clicks_and_is_given_back() {
    let mut screen = Start::script("calm").argument("--mouse=full").open();
    screen.wait_for("to 1");
    screen.wait_for_bytes("\x1b[?1002h");
    assert!(screen.modes().mouse);
    screen.send("\x1b[<0;60;5M\x1b[<0;60;5m");
    screen.wait_for("to 2");
    screen.send("\x1bw"); // Alt-w
    screen.wait_for("mouse: the terminal's own");
    assert!(!screen.modes().mouse);
    screen.send("\x1bw");
    screen.wait_for("mouse: the wheel scrolls");
    assert!(screen.modes().mouse);
    screen.quit();
    screen.assert_restored();
}

#[test]
fn the_mouse_is_given_back_after_a_signal() {
    let mut screen = Start::script("calm").argument("--mouse=wheel").open();
    screen.wait_for_bytes("\x1b[?1000h");
    screen.signal("TERM");
    screen.exit_code();
    screen.assert_restored();
}

#[test]
fn vims_keys_edit_a_draft() {
    let mut screen = Start::script("calm").argument("--vim").open();
    screen.wait_for("INSERT");
    screen.send("one two three");
    screen.wait_for("│one two three");
    screen.send("\x1b");
    screen.wait_for("NORMAL");
    screen.send("bdb");
    screen.wait_for("│one three");
    screen.send("u");
    screen.wait_for("│one two three");
    screen.send("dd");
    screen.wait("the draft is empty", |text| !text.contains("│one"));
    screen.quit();
}

#[test]
fn a_screen_reader_gets_lines_on_the_screen_that_stays() {
    let start = Start::script("calm").argument("--screen-reader");
    let mut screen = start.size(80, 40).open();
    screen.wait_for("to 1:");
    assert!(!screen.modes().alternate);
    screen.send("some code\r");
    screen.wait_for("you: some code");
    screen.wait_for("That was the needle.");
    screen.wait_for("done,");
    assert!(!screen.text().contains(['│', '─']), "{}", screen.text());
    screen.send("\x1ba"); // Alt-a
    screen.wait_for("│› some code");
    assert!(screen.modes().alternate);
    screen.send("\x1ba");
    screen.wait("the lines are back", |text| {
        text.contains("to 1:") && !text.contains('│')
    });
    screen.quit();
    let gone = Modes {
        alternate: false,
        paste: false,
        hidden: false,
        mouse: false,
    };
    assert_eq!(screen.modes(), gone);
    assert!(
        screen.text().contains("That was the needle."),
        "what was told stays"
    );
}
