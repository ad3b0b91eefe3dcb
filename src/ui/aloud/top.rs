//! What lies on top, in lines: told when it opens, then what changed of it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::turns::{ended, tell_answer};
use super::{Aloud, Told};
use crate::chat::State;
use crate::ui::chrome;
use crate::ui::overlay::compare::Heard;
use crate::ui::overlay::models::{Fetch, Going};
use crate::ui::overlay::{Overlay, help, select};
use crate::ui::pane::one_line;
use crate::ui::told;
use crate::ui::view::{Screen, View};

/// The first line of what is told of the engine.
const ENGINE: &str = "engine; Esc goes back";
/// The word before a selected line.
const SELECTED: &str = "selected: ";
/// Columns of a progress line: enough for all that it can say.
const PROGRESS: usize = 120;

impl Aloud {
    /// What lies on top: its lines once, then those that changed; notices and questions.
    pub(super) fn tell_top(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        self.tell_fetch(view, new);
        match view.overlay {
            Some(Overlay::Compare(_)) if view.help.is_none() => self.tell_compared(view, state, new),
            _ => self.tell_lines(view, state, new),
        }
        let notices: Vec<String> = state
            .notices()
            .iter()
            .map(|notice| told::text(notice, &view.keymap))
            .collect();
        let untold = notices.iter().filter(|text| !self.notices.contains(text));
        new.extend(untold.cloned());
        self.notices = notices;
        let hint = view.hint();
        if hint != self.hint {
            new.extend(hint.clone());
        }
        self.hint = hint;
    }

    fn tell_lines(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        // The engine's figures never rest: they are told as they are when one looks.
        let looked = view.screen == Screen::Dashboard && self.top.first().is_some_and(|line| line == ENGINE);
        let lines = match looked && view.help.is_none() && view.overlay.is_none() {
            true => self.top.clone(),
            false => self.top(view, state),
        };
        let bare = |line: &String| line.trim_start_matches(SELECTED).to_owned();
        let before: Vec<String> = self.top.iter().map(bare).collect();
        for line in &lines {
            let told = if line.starts_with(SELECTED) {
                self.top.contains(line)
            } else {
                before.contains(line)
            };
            if !told {
                new.push(line.clone());
            }
        }
        if lines.is_empty() && !self.top.is_empty() {
            new.push("closed".to_owned());
        }
        self.top = lines;
    }

    /// The lines of what lies on top; none where nothing does.
    fn top(&self, view: &mut View, state: &State) -> Vec<String> {
        let height = view.size.1.max(10);
        if let Some(help) = &view.help {
            return help::told(help, &view.keymap, &view.styles);
        }
        if view.overlay.is_some() {
            let mut buffer = Buffer::empty(Rect::new(0, 0, select::READ_OUT, height));
            let area = buffer.area;
            // A download goes on by small steps, which nobody wants to hear.
            let fetch = std::mem::replace(&mut view.going.fetch, self.fetch.clone());
            view.draw_on_top(&mut buffer, area, state);
            view.going.fetch = fetch;
            return told_rows(&buffer);
        }
        if view.screen == Screen::Dashboard {
            let mut buffer = Buffer::empty(Rect::new(0, 0, select::READ_OUT, 1));
            let row = buffer.area;
            let of = (state, &view.going);
            chrome::header(&mut buffer, row, of, (0, 0), &view.keymap, &view.styles);
            let mut lines = told_rows(&buffer);
            lines.insert(0, ENGINE.to_owned());
            return lines;
        }
        Vec::new()
    }

    /// A download: that it begins, and each tenth of it. How it ended is told by a message or a question.
    fn tell_fetch(&mut self, view: &View, new: &mut Vec<String>) {
        let Going { fetch, .. } = &view.going;
        if fetch.as_ref().map(tenth) == self.fetch.as_ref().map(tenth) {
            return;
        }
        self.fetch = fetch.clone();
        // The picker of models has it among its lines.
        if let Some(fetch) = fetch
            && !matches!(view.overlay, Some(Overlay::Models(_)))
        {
            let progress = without_gauge(&fetch.progress(PROGRESS, &view.styles));
            new.push(format!("download of {}: {progress}", one_line(&fetch.name)));
        }
    }

    /// Answers side by side: one after the other, each with its pane, and again the one that is selected.
    fn tell_compared(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        let Some(Overlay::Compare(compare)) = &mut view.overlay else {
            return;
        };
        compare.follow(state);
        let keys = compare.keys(&view.keymap);
        let opens = self.top.first() != Some(&keys);
        let mut lines = vec![keys.clone()];
        if opens {
            new.push(keys);
        }
        for heard in compare.heard() {
            let head = head_of(&heard);
            if !self.top.contains(&head) {
                new.push(head.clone());
                tell_text(&heard, new);
            }
            if heard.selected {
                let selected = format!("{SELECTED}{head}");
                if !self.top.contains(&selected) {
                    new.push(selected.clone());
                    // When all were told just now, it isn't told twice.
                    if !opens && self.top.contains(&head) {
                        tell_text(&heard, new);
                    }
                }
                lines.push(selected);
            }
            lines.push(head);
        }
        self.top = lines;
    }
}

/// How far a download is, as far as that is worth a line.
fn tenth(fetch: &Fetch) -> (String, Option<u64>) {
    let (done, total) = (fetch.fetching.done, fetch.fetching.total);
    let tenth = done.min(total).saturating_mul(10).checked_div(total);
    (fetch.name.clone(), tenth)
}

/// Which answer it is, where, and how it ended.
fn head_of(heard: &Heard<'_>) -> String {
    let Heard { number, of, pane, .. } = heard;
    let how = match heard.turn.is_running() {
        true => "answering".to_owned(),
        false => format!("{}, {}", ended(heard.turn), heard.how),
    };
    format!("answer {number} of {of}, pane {pane}, {}: {how}", heard.title)
}

/// An answer that has come to its end, as it was written.
fn tell_text(heard: &Heard<'_>, new: &mut Vec<String>) {
    if !heard.turn.is_running() {
        tell_answer(&mut Told::default(), heard.turn, false, new);
    }
}

/// A buffer's rows as lines: without what only draws, and the selected one with a word.
fn told_rows(buffer: &Buffer) -> Vec<String> {
    let mut lines = Vec::new();
    for (y, line) in crate::ui::view::to_text(buffer).lines().enumerate() {
        let drawn = |c: char| matches!(c, '─' | '│' | '┌' | '┐' | '└' | '┘' | '|' | '+' | '-' | ' ');
        let text = without_gauge(line.trim_matches(drawn));
        if !text.chars().any(char::is_alphanumeric) {
            continue;
        }
        let cells = (buffer.area.left()..buffer.area.right()).filter_map(|x| buffer.cell((x, y as u16)));
        let reversed = cells
            .filter(|cell| cell.modifier.contains(Modifier::REVERSED))
            .count();
        let word = if reversed > 8 { SELECTED } else { "" };
        lines.push(format!("{word}{text}"));
    }
    lines
}

/// A line without a gauge, whose share stands behind it, and with single spaces.
fn without_gauge(line: &str) -> String {
    let is_gauge = |word: &&str| {
        let inside = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inside.is_some_and(|inside| inside.chars().all(|c| matches!(c, '#' | '·' | '.')))
    };
    let words: Vec<&str> = line.split_whitespace().filter(|word| !is_gauge(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_is_not_read_out() {
        assert_eq!(without_gauge("beta:  [###·······]   25%  1.0G"), "beta: 25% 1.0G");
        assert_eq!(without_gauge("[##........] 20%"), "20%");
        assert_eq!(without_gauge("[Pasted 2] a[1]"), "[Pasted 2] a[1]");
    }
}
