//! What is read while one reads: its keys, the row that one came to, the message that is selected.

use super::Aloud;
use crate::chat::State;
use crate::ui::cells;
use crate::ui::keymap::{Action, Reading};
use crate::ui::pane::one_line;
use crate::ui::reading::reader::said;
use crate::ui::reading::transcript::Point;
use crate::ui::view::View;

/// Cells of a message that are told when it is selected.
const BEGINNING: usize = 240;
/// The keys that are told when one begins to read: those that can't be guessed.
const KEYS: [(Reading, &str); 9] = [
    (Reading::Up, "a line up"),
    (Reading::Down, "a line down"),
    (Reading::PreviousMessage, "the message before"),
    (Reading::NextMessage, "the message after"),
    (Reading::CopyMessage, "copies it"),
    (Reading::Copy, "copies code"),
    (Reading::Search, "searches"),
    (Reading::Write, "writes again"),
    (Reading::Bottom, "to the end"),
];

impl Aloud {
    /// While one reads: what its keys do, once; then the message that is selected, else the row that one came to.
    pub(super) fn tell_reading(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        if std::mem::replace(&mut self.reading, view.reading) != view.reading && view.reading {
            new.push(keys(view));
        }
        let selected = view.pane(state.focused()).transcript.selected();
        let another = std::mem::replace(&mut self.selected, selected) != selected;
        if !view.reading && view.ask.is_none() {
            return;
        }
        let row = row(view, state);
        let turns = &state.focused_pane().turns;
        let message = selected.filter(|_| another);
        if let Some((message, (turn, what))) = message.and_then(|it| Some((it, it.among(turns)?))) {
            let text = cells::shorten(&one_line(&said(message, turn)), BEGINNING, view.styles.cut());
            new.push(format!("{what}: {text}"));
        } else if self.row.as_ref() != Some(&row) && !row.is_empty() {
            new.push(row.clone());
        }
        // What a screen would show from there on was not asked for.
        self.row = Some(row);
    }
}

/// The keys, as they are set.
fn keys(view: &View) -> String {
    let told = KEYS.iter().filter_map(|(reading, what)| {
        let key = view.keymap.written(Action::Reading(*reading))?;
        Some(format!("{key} {what}"))
    });
    format!("reading: {}", told.collect::<Vec<_>>().join(", "))
}

/// The first row of what a screen would show, or the place that was found.
fn row(view: &mut View, state: &State) -> String {
    let transcript = &view.pane(state.focused()).transcript;
    let found = transcript.search().map(|(_, at, count)| match (at, count) {
        (_, 0) => "not found".to_owned(),
        (at, count) => format!("{at} of {count}"),
    });
    let row = transcript.hit_row().unwrap_or(transcript.top());
    let (from, to) = (
        Point { row, column: 0 },
        Point {
            row,
            column: usize::MAX,
        },
    );
    let text = transcript.text_between(from, to);
    let line = [found.unwrap_or_default(), text].join(" ");
    line.trim().to_owned()
}
