//! A session in a pseudo-terminal whose screens README shows. `scripts/record_screens.sh` writes them there.

use std::path::Path;

use crate::screen::Start;

/// What plays the session has to set for README to be written instead of read.
const RECORD: &str = "MLX_CHAT_RECORD";

/// The session's screens, by the names that README calls them by.
fn session() -> Vec<(&'static str, String)> {
    let mut screens = Vec::new();
    let mut screen = Start::script("readme").open();
    screen.wait_for("ready");
    screen.send("\x1bOR"); // F3
    screen.wait_for("to all 2 panes");
    screen.send("Why do rivers wind?\r");
    screen.wait("both are answered", |text| {
        text.matches("first after").count() == 2
    });
    screen.send("\x1bOR");
    screen.wait_for("to 1 Why do rivers wind?");
    screen.send("As a loop, please\r");
    screen.wait_for("[1] copy");
    screen.wait("the batch is empty", |text| {
        text.contains("0 run") && text.matches("first after").count() == 3
    });
    screen.send("And in one w");
    screen.wait_for("│And in one w");
    screen.wait("the hint about equal answers has gone", |text| {
        text.contains("Enter send")
    });
    screen.settle();
    screens.push(("chat", screen.text()));
    screen.send("\x1bOQ"); // F2
    screen.wait_for("step phases");
    screen.settle();
    screens.push(("engine", screen.text()));
    screen.send("\x1b");
    screen.wait_for("│And in one w");
    screen.send("\x10pane");
    screen.wait_for("> pane");
    screen.settle();
    screens.push(("menu", screen.text()));
    screen.send("\x1b");
    screen.wait("the palette is closed", |text| !text.contains(" commands "));
    screen.send("\x03");
    screen.quit();
    screens
}

fn readme() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")
}

/// Where README shows a screen.
fn shown(text: &str, name: &str) -> std::ops::Range<usize> {
    let mark = format!("<!-- screen: {name} -->\n```text\n");
    let start = text
        .find(&mark)
        .unwrap_or_else(|| panic!("README has no {mark:?}"))
        + mark.len();
    let length = text[start..].find("```").expect("the block ends");
    start..start + length
}

/// A screen without what differs from one run to the next: figures, bars, and the room that they take.
fn steady(screen: &str) -> Vec<String> {
    let figure = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '%' | '-');
    let bar = |c: char| matches!(c, '▓' | '█' | '▒' | '░' | '▁'..='▇' | '↑' | ' ' | '─' | '│');
    let mut lines = Vec::new();
    for line in screen.trim_end().lines() {
        let words = line.split(bar).map(|word| {
            let unit = word.trim_matches(figure);
            // Of what has figures, only its letters are the same, and not even its unit.
            if word.contains(figure) && unit.len() < 4 {
                "#"
            } else {
                word
            }
        });
        lines.push(
            words
                .filter(|word| !word.is_empty() && *word != "#")
                .collect::<Vec<_>>()
                .join(" "),
        );
    }
    lines
}

#[test]
fn readme_shows_what_the_session_gives() {
    let mut text = std::fs::read_to_string(readme()).unwrap();
    let screens = session();
    for (name, screen) in &screens {
        println!("{name}:\n{screen}\n");
        if std::env::var_os(RECORD).is_some() {
            let trimmed: Vec<&str> = screen.lines().map(str::trim_end).collect();
            let range = shown(&text, name);
            text.replace_range(range, &(trimmed.join("\n").trim_end().to_owned() + "\n"));
        } else {
            assert_eq!(
                steady(&text[shown(&text, name)]),
                steady(screen),
                "{name}: scripts/record_screens.sh writes the screens anew"
            );
        }
    }
    if std::env::var_os(RECORD).is_some() {
        std::fs::write(readme(), text).unwrap();
    }
}
