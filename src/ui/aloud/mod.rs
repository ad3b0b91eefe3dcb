//! Lines for a screen reader, instead of a screen: what is new is written below what was written before, and nothing is
//! painted again but the line of the draft, which stands last.
//!
//! There are no boxes, marks that move, nor two columns: one pane's conversation as it was written, and states as words.
//! What lies on top is told line by line; as its selection moves, the line that it is on.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::{EngineStatus, PaneId, RecordId, SessionId, State};
use crate::text::spans::Span;
use crate::ui::cells;
use crate::ui::overlay::models::Fetch;
use crate::ui::pane::one_line;
use crate::ui::reading::reader::Asked;
use crate::ui::reading::transcript::Message;
use crate::ui::sanitize::sanitize;
use crate::ui::view::View;
use crate::ui::writing::composer::{along, recipients, too_long};
use crate::ui::writing::folds::Folded;

mod reading;
mod top;
mod turns;

use turns::{skipped, words};

/// Stands for a draft that was told to be too long.
const TOO_LONG: &str = "too long";

/// What was told of a turn.
#[derive(Debug, Clone, Default)]
struct Told {
    /// Bytes of its answer.
    bytes: usize,
    span: Option<Span>,
    /// The line that has not come to its end.
    pending: String,
    state: String,
}

/// What was told so far.
#[derive(Debug, Clone, Default)]
pub struct Aloud {
    /// Whether the terminal shows lines now.
    on: bool,
    focus: Option<(PaneId, SessionId)>,
    /// The turns of the branch that was shown last.
    shown: Vec<RecordId>,
    turns: BTreeMap<RecordId, Told>,
    /// Whether thoughts of the focused pane are told in full.
    thoughts: bool,
    /// To whom prompts go.
    recipients: String,
    /// What was said to be possible.
    ways: Vec<String>,
    /// A download as it was told last.
    fetch: Option<Fetch>,
    /// What each pane was last said to do.
    states: BTreeMap<PaneId, String>,
    notices: Vec<String>,
    engine: String,
    hint: Option<String>,
    /// The lines of what lies on top.
    top: Vec<String>,
    /// What was told of the files that the draft mentions, and that it is too long.
    draft: Vec<String>,
    /// The prompt that waits, as it was told.
    waits: Option<String>,
    /// Whether one reads.
    reading: bool,
    /// The message that is selected.
    selected: Option<Message>,
    /// The line that is read.
    row: Option<String>,
    /// The line of the draft as it stands on the screen, and the caret's column.
    line: (String, usize),
}

impl View {
    /// What is to be written to a terminal of this size, if lines are wanted; it is told once. The first of two says
    /// whether the terminal's other screen, of lines that stay, is to be shown from now on. `anew`: the draft's line is gone.
    pub fn lines(
        &mut self,
        state: &State,
        (width, height): (u16, u16),
        anew: bool,
    ) -> (Option<bool>, Option<Vec<u8>>) {
        let wanted = *self.looks.screen_reader.now();
        let turned = (wanted != self.aloud.on).then_some(wanted);
        if !wanted {
            self.aloud = Aloud::default();
            return (turned, None);
        }
        // What is laid out, scrolled and looked for is what a screen would show.
        let mut buffer = Buffer::empty(Rect::new(0, 0, width.max(1), height.max(1)));
        self.draw(&mut buffer, state);
        let mut aloud = std::mem::take(&mut self.aloud);
        aloud.on = true;
        if anew {
            aloud.line = Default::default();
        }
        let mut new = Vec::new();
        aloud.tell_top(self, state, &mut new);
        aloud.tell_states(state, &mut new);
        aloud.tell_focus(self, state, &mut new);
        aloud.tell_branch(state, &mut new);
        aloud.tell_thoughts(self, state, &mut new);
        aloud.tell_turns(state, &mut new);
        aloud.tell_ways(self, state, &mut new);
        aloud.tell_reading(self, state, &mut new);
        aloud.tell_draft(self, state, &mut new);
        let line = self.line_of_the_draft(state, usize::from(width));
        let bytes = aloud.written(&new, line);
        self.aloud = aloud;
        (turned, Some(bytes))
    }

    /// The line in which one writes, no wider than the screen, and the column of the caret.
    fn line_of_the_draft(&self, state: &State, width: usize) -> (String, usize) {
        let (name, text, caret) = match &self.ask {
            Some(ask) => {
                let name = match ask.asked {
                    Asked::Search => "search",
                    Asked::Copy => "copy",
                };
                (name.to_owned(), sanitize(&ask.text).into_owned(), ask.text.len())
            }
            None => {
                let draft = &state.focused_pane().draft;
                let folded = Folded::new(draft.text(), draft.pastes());
                let at = folded.shown(draft.cursor());
                let before = folded.text().get(..at).unwrap_or_default();
                let start = before.rfind('\n').map_or(0, |end| end + 1);
                let line = folded.text()[start..].split('\n').next().unwrap_or_default();
                let mut name = match self.reading {
                    true => "reading".to_owned(),
                    false => recipients(state),
                };
                if *self.looks.vim.now() {
                    name.push_str(&format!(" {}", self.vim.shown().to_lowercase()));
                }
                let lines = folded.text().split('\n').count();
                if lines > 1 {
                    name.push_str(&format!(" line {} of {lines}", before.matches('\n').count() + 1));
                }
                let clean = |text: &str| sanitize(&text.replace('\t', " ")).into_owned();
                (name, clean(line), clean(&line[..at - start]).len())
            }
        };
        let name = format!("{name}: ");
        let room = width.saturating_sub(cells::width(&name) + 1).max(1);
        let (mut text, mut caret) = (text, caret);
        // Its caret is seen.
        while cells::width(text.get(..caret).unwrap_or_default()) > room {
            let first = text.chars().next().map_or(1, char::len_utf8);
            text.drain(..first);
            caret = caret.saturating_sub(first);
        }
        let column = cells::width(&name) + cells::width(text.get(..caret).unwrap_or_default());
        (format!("{name}{}", cells::prefix(&text, room)), column)
    }
}

impl Aloud {
    /// The lines, and the line of the draft below them; the less the better.
    fn written(&mut self, new: &[String], line: (String, usize)) -> Vec<u8> {
        let mut out = String::new();
        let end = |(text, column): &(String, usize)| cells::width(text) == *column;
        let added = line.0.strip_prefix(&self.line.0);
        if !new.is_empty() {
            out.push_str("\r\x1b[J");
            // Whoever made a line: nothing in it is a command.
            for text in new {
                out.push_str(&sanitize(text));
                out.push_str("\r\n");
            }
        }
        match added {
            _ if new.is_empty() && line == self.line => {}
            // What is typed at the end is written, and nothing else.
            Some(added) if new.is_empty() && !self.line.0.is_empty() && end(&self.line) && end(&line) => {
                out.push_str(added);
            }
            _ if new.is_empty() && line.0 == self.line.0 => {}
            _ => out.push_str(&format!("\r\x1b[K{}", line.0)),
        }
        if line != self.line || !new.is_empty() {
            if !end(&line) || line.0 == self.line.0 {
                out.push_str(&format!("\x1b[{}G", line.1 + 1));
            }
            out.push_str("\x1b[?25h");
        }
        self.line = line;
        out.into_bytes()
    }

    /// What the engine and the panes do, when that is another thing than before.
    fn tell_states(&mut self, state: &State, new: &mut Vec<String>) {
        let engine = match state.engine() {
            EngineStatus::Loading { stage, .. } => format!("loading the model: {}", one_line(stage)),
            EngineStatus::Ready => "the model is ready".to_owned(),
            EngineStatus::Failed(why) => format!("the engine failed: {}", one_line(why)),
        };
        if engine != self.engine {
            new.push(engine.clone());
            self.engine = engine;
        }
        self.states.retain(|id, _| state.panes().contains_key(id));
        for (id, pane) in state.panes() {
            let now = pane.turns.last().map(words).unwrap_or_default();
            let before = self.states.insert(*id, now.clone());
            // The focused pane's is told where its answer stands.
            if *id != state.focused() && !now.is_empty() && before.is_some_and(|before| before != now) {
                new.push(format!("pane {id}: {now}"));
            }
        }
    }

    /// What goes along with the draft, and that there is no room for it: once, though the figures go on.
    fn tell_draft(&mut self, view: &View, state: &State, new: &mut Vec<String>) {
        let files = view.attached.seen();
        let mut now: Vec<String> = files
            .iter()
            .filter_map(|(path, seen)| along(path, seen))
            .collect();
        let told = std::mem::take(&mut self.draft);
        new.extend(now.iter().filter(|text| !told.contains(text)).cloned());
        if let Some(text) = too_long(state, files) {
            if told.last().is_none_or(|last| last != TOO_LONG) {
                new.push(text);
            }
            now.push(TOO_LONG.to_owned());
        }
        self.draft = now;
    }

    /// The pane that has the focus, when it is another one.
    fn tell_focus(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        let (id, pane) = (state.focused(), state.focused_pane());
        let recipients = recipients(state);
        let before = std::mem::replace(&mut self.recipients, recipients.clone());
        if self.focus == Some((id, pane.session)) {
            if recipients != before {
                new.push(match pane.edited() {
                    Some(turn) => format!("prompt {} is edited", turn + 1),
                    None => format!("prompts go {recipients}"),
                });
            }
            return;
        }
        self.focus = Some((id, pane.session));
        self.shown.clear();
        self.turns.clear();
        self.ways.clear();
        self.thoughts = view.pane(id).transcript.shows_thoughts();
        let title = match one_line(&pane.title) {
            title if title.is_empty() => "a new conversation".to_owned(),
            title => title,
        };
        let private = if pane.private { ", private" } else { "" };
        new.push(format!("pane {id} of {}{private}: {title}", state.panes().len()));
        let before = pane.turns.len().saturating_sub(1);
        if before > 0 {
            new.push(format!("{before} turns before the last one"));
        }
        for turn in &pane.turns[..before] {
            self.turns.insert(turn.record, skipped(turn));
        }
    }
}
