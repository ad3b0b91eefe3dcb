//! Lines for a screen reader, instead of a screen: what is new is written below what was written before, and nothing is
//! painted again but the line of the draft, which stands last.
//!
//! There are no boxes, marks that move, nor two columns: one pane's conversation as it was written, and states as words.
//! What lies on top is told line by line; as its selection moves, the line that it is on.

use std::collections::BTreeMap;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use crate::chat::{EngineStatus, PaneId, Phase, RecordId, SessionId, State, Status, Turn};
use crate::text::spans::Span;
use crate::ui::overlay::help;
use crate::ui::pane::{one_line, took};
use crate::ui::reading::reader::Asked;
use crate::ui::reading::transcript::Point;
use crate::ui::sanitize::sanitize;
use crate::ui::view::{Screen, View};
use crate::ui::writing::folds::Folded;
use crate::ui::{cells, chrome};

/// Bytes of a line that is still being written from which on its sentences are told.
const SENTENCES: usize = 80;
/// Bytes from which on a line is told up to a space.
const WORDS: usize = 240;
/// Rows of the room in which the help is laid out.
const TALL: u16 = 400;

/// The first line of what is told of the engine.
const ENGINE: &str = "engine; Esc goes back";

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
    turns: BTreeMap<RecordId, Told>,
    /// What each pane was last said to do.
    states: BTreeMap<PaneId, String>,
    notices: Vec<String>,
    engine: String,
    hint: Option<String>,
    /// The lines of what lies on top.
    top: Vec<String>,
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
        aloud.tell_focus(state, &mut new);
        aloud.tell_turns(self, state, &mut new);
        aloud.tell_row(self, state, &mut new);
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
                    Asked::Copy => "copy code",
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
                let mut name = match (state.broadcast(), self.reading) {
                    (_, true) => "reading".to_owned(),
                    (true, _) => "to all".to_owned(),
                    _ => format!("to {}", state.focused()),
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
            for text in new {
                out.push_str(text);
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

    /// What lies on top: its lines once, then those that changed; notices and questions.
    fn tell_top(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        // The engine's figures never rest: they are told as they are when one looks.
        let looked = view.screen == Screen::Dashboard && self.top.first().is_some_and(|line| line == ENGINE);
        let lines = match looked && view.help.is_none() && view.overlay.is_none() {
            true => self.top.clone(),
            false => top(view, state),
        };
        let bare = |line: &String| line.trim_start_matches("selected: ").to_owned();
        let before: Vec<String> = self.top.iter().map(bare).collect();
        for line in &lines {
            let told = if line.starts_with("selected: ") {
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
        let notices: Vec<String> = state
            .notices()
            .iter()
            .map(|notice| one_line(&notice.text))
            .collect();
        new.extend(
            notices
                .iter()
                .filter(|text| !self.notices.contains(text))
                .cloned(),
        );
        self.notices = notices;
        let hint = view.hint();
        if hint != self.hint {
            new.extend(hint.clone());
        }
        self.hint = hint;
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

    /// The pane that has the focus, when it is another one.
    fn tell_focus(&mut self, state: &State, new: &mut Vec<String>) {
        let (id, pane) = (state.focused(), state.focused_pane());
        if self.focus == Some((id, pane.session)) {
            return;
        }
        self.focus = Some((id, pane.session));
        self.turns.clear();
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

    /// What is new in the conversation.
    fn tell_turns(&mut self, view: &View, state: &State, new: &mut Vec<String>) {
        let pane = state.focused_pane();
        // Only turns at the end change.
        let unsaid = |turn: &&Turn| {
            let told = self.turns.get(&turn.record);
            told.is_none_or(|told| told.state != words(turn)) || turn.is_running()
        };
        let begin = pane.turns.iter().rev().take_while(unsaid).count();
        for turn in &pane.turns[pane.turns.len() - begin..] {
            let told = self.turns.entry(turn.record).or_insert_with(|| {
                new.push(String::new());
                tell_text("you: ", turn.prompt.trim_end(), new);
                Told::default()
            });
            let now = words(turn);
            let changed = now != told.state;
            // That it answers goes before the answer, how it ended behind it.
            if changed && turn.is_running() {
                new.push(now.clone());
            }
            tell_answer(told, turn, view.shows_thoughts(), new);
            if changed && !turn.is_running() {
                new.push(now.clone());
            }
            told.state = now;
        }
        if let Some(queued) = pane.queued.as_ref().filter(|_| begin == 0) {
            let waits = format!("waits: {}", one_line(queued));
            if self.row.as_ref() != Some(&waits) {
                new.push(waits.clone());
                self.row = Some(waits);
            }
        }
    }

    /// While one reads: the first row of what a screen would show, or the place that was found.
    fn tell_row(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        if !view.reading && view.ask.is_none() {
            return;
        }
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
        if self.row.as_ref() != Some(&line) && !line.trim().is_empty() {
            new.push(line.trim().to_owned());
            self.row = Some(line);
        }
    }
}

/// A turn of before: nothing of it is told again.
fn skipped(turn: &Turn) -> Told {
    Told {
        bytes: turn
            .answer
            .runs()
            .filter(|run| !run.marker)
            .map(|run| run.text.len())
            .sum(),
        state: words(turn),
        ..Told::default()
    }
}

/// What a turn does or did, in words.
fn words(turn: &Turn) -> String {
    match &turn.status {
        Status::Submitting { .. } => "queued".into(),
        Status::Streaming { stopping: true, .. } => "stopping".into(),
        Status::Streaming { phase, .. } => match phase {
            Phase::Queued => "queued".into(),
            Phase::Prefill { .. } => "reading the prompt".into(),
            Phase::Decode => "answering".into(),
        },
        Status::Done { truncated, stats } => {
            let end = match truncated {
                Some(why) => format!("cut off: {}", one_line(why)),
                None => "done".to_owned(),
            };
            took(stats, &end).unwrap_or(end)
        }
        Status::Stopped { stats } => stats
            .as_ref()
            .and_then(|stats| took(stats, "stopped"))
            .unwrap_or_else(|| "stopped".into()),
        Status::Failed { message, .. } => format!("failed: {}", one_line(message)),
    }
}

/// A text's lines, the first one behind a word.
fn tell_text(word: &str, text: &str, new: &mut Vec<String>) {
    for (at, line) in text.split('\n').enumerate() {
        let word = if at == 0 { word } else { "" };
        new.push(format!("{word}{}", safe(line)));
    }
}

fn safe(line: &str) -> String {
    let line = line.trim_end_matches('\r').replace('\t', "    ");
    sanitize(&line).into_owned()
}

/// What came to an answer since: whole lines, and whole sentences of a long one.
fn tell_answer(told: &mut Told, turn: &Turn, thoughts: bool, new: &mut Vec<String>) {
    // An answer that goes on has lost what was held back.
    told.bytes = told.bytes.min(turn.answer.len());
    let mut passed = 0;
    for run in turn.answer.runs().filter(|run| !run.marker) {
        let end = passed + run.text.len();
        if end > told.bytes {
            let rest = run
                .text
                .get(told.bytes.saturating_sub(passed)..)
                .unwrap_or_default();
            if told.span != Some(run.span) && !rest.trim().is_empty() {
                flush(told, new);
                new.push(match run.span {
                    Span::Answer => "answer:".to_owned(),
                    Span::Thinking => "thinking".to_owned(),
                    Span::ToolCall => "tool call, not run:".to_owned(),
                });
                told.span = Some(run.span);
            }
            if told.span == Some(run.span) && (run.span != Span::Thinking || thoughts) {
                told.pending.push_str(rest);
            }
            told.bytes = end;
        }
        passed = end;
    }
    while let Some(at) = told.pending.find('\n') {
        let line: String = told.pending.drain(..=at).collect();
        new.push(safe(line.trim_end_matches('\n')));
    }
    if told.pending.len() > SENTENCES {
        let ends = [". ", "! ", "? ", "。", "！", "？"];
        let sentence = ends
            .iter()
            .filter_map(|end| Some(told.pending.rfind(end)? + end.len()))
            .max();
        let word = told
            .pending
            .rfind(' ')
            .map(|at| at + 1)
            .filter(|_| told.pending.len() > WORDS);
        if let Some(at) = sentence.or(word) {
            let line: String = told.pending.drain(..at).collect();
            new.push(safe(line.trim_end()));
        }
    }
    if !turn.is_running() {
        flush(told, new);
    }
}

fn flush(told: &mut Told, new: &mut Vec<String>) {
    let rest = std::mem::take(&mut told.pending);
    if !rest.trim().is_empty() {
        new.push(safe(rest.trim_end()));
    }
}

/// The lines of what lies on top; none where nothing does.
fn top(view: &mut View, state: &State) -> Vec<String> {
    let width = view.size.0.max(40);
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, view.size.1.max(10)));
    let area = buffer.area;
    if view.help.is_some() {
        buffer = Buffer::empty(Rect::new(0, 0, width, TALL));
        help::draw(
            &mut buffer,
            Rect::new(0, 0, width, TALL),
            0,
            &view.keymap,
            &view.styles,
        );
    } else if view.overlay.is_some() {
        view.draw_on_top(&mut buffer, area, state);
    } else if view.screen == Screen::Dashboard {
        chrome::header(
            &mut buffer,
            Rect { height: 1, ..area },
            (state, &view.going),
            (0, 0),
            &view.keymap,
            &view.styles,
        );
        let mut lines = told_rows(&buffer);
        lines.insert(0, ENGINE.to_owned());
        return lines;
    } else {
        return Vec::new();
    }
    told_rows(&buffer)
}

/// A buffer's rows as lines: without what only draws, and the selected one with a word.
fn told_rows(buffer: &Buffer) -> Vec<String> {
    let mut lines = Vec::new();
    for (y, line) in crate::ui::view::to_text(buffer).lines().enumerate() {
        let drawn = |c: char| matches!(c, '─' | '│' | '┌' | '┐' | '└' | '┘' | '|' | '+' | '-' | ' ');
        let text = line.trim_matches(drawn);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.chars().any(char::is_alphanumeric) {
            continue;
        }
        let cells = (buffer.area.left()..buffer.area.right()).filter_map(|x| buffer.cell((x, y as u16)));
        let reversed = cells
            .filter(|cell| cell.modifier.contains(Modifier::REVERSED))
            .count();
        let word = if reversed > 8 { "selected: " } else { "" };
        lines.push(format!("{word}{text}"));
    }
    lines
}
