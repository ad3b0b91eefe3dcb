//! The conversation in lines: what was said, as it was written, and what became of it.

use super::{Aloud, Told};
use crate::chat::{Phase, State, Status, Turn};
use crate::text::spans::Span;
use crate::ui::keymap::Action;
use crate::ui::pane::{goes_on, one_line, only_read, put_aside, took};
use crate::ui::view::View;

/// Bytes of a line that is still being written from which on its sentences are told.
const SENTENCES: usize = 80;
/// Bytes from which on a line is told up to a space.
const WORDS: usize = 240;

impl Aloud {
    /// Another branch than before: which version it is, and the turn with which it begins to differ.
    pub(super) fn tell_branch(&mut self, state: &State, new: &mut Vec<String>) {
        let pane = state.focused_pane();
        let now: Vec<_> = pane.turns.iter().map(|turn| turn.record).collect();
        let before = std::mem::replace(&mut self.shown, now);
        let same = before
            .iter()
            .zip(&self.shown)
            .take_while(|(before, now)| before == now)
            .count();
        if same == before.len() {
            return;
        }
        let Some(turn) = pane.turns.get(same) else {
            new.push(match pane.turns.last() {
                Some(last) => format!("back to: {}", one_line(&last.prompt)),
                None => "back to the beginning".to_owned(),
            });
            return;
        };
        let (place, of) = pane.tree.siblings(&pane.turns, same);
        new.push(format!("version {place} of {of}"));
        let after = &pane.turns[same + 1..];
        self.turns.remove(&turn.record);
        if let Some((last, between)) = after.split_last() {
            self.tell_turn(turn, new);
            match between.len() {
                0 => {}
                1 => new.push("one turn more, then the last one".to_owned()),
                count => new.push(format!("{count} turns more, then the last one")),
            }
            for turn in between {
                self.turns.insert(turn.record, skipped(turn));
            }
            self.turns.remove(&last.record);
        }
    }

    /// That thoughts are told in full, or no more; then those of the last answer.
    pub(super) fn tell_thoughts(&mut self, view: &mut View, state: &State, new: &mut Vec<String>) {
        let unfolded = view.pane(state.focused()).transcript.shows_thoughts();
        if std::mem::replace(&mut self.thoughts, unfolded) == unfolded {
            return;
        }
        if !unfolded {
            new.push("thoughts are told by a word".to_owned());
            return;
        }
        new.push("thoughts are told in full".to_owned());
        let ended = |turn: &&Turn| !turn.is_running();
        let Some(turn) = state.focused_pane().turns.last().filter(ended) else {
            return;
        };
        let thoughts = turn.answer.of(Span::Thinking);
        if !thoughts.trim().is_empty() {
            tell_text("thinking: ", thoughts.trim(), new);
        }
    }

    /// What can be done now that couldn't before: what a screen says below the last turn.
    pub(super) fn tell_ways(&mut self, view: &View, state: &State, new: &mut Vec<String>) {
        let ways = ways(view, state, self.thoughts);
        new.extend(ways.iter().filter(|way| !self.ways.contains(way)).cloned());
        self.ways = ways;
    }

    /// What is new in the conversation.
    pub(super) fn tell_turns(&mut self, state: &State, new: &mut Vec<String>) {
        let pane = state.focused_pane();
        // Only turns at the end change.
        let unsaid = |turn: &&Turn| {
            let told = self.turns.get(&turn.record);
            told.is_none_or(|told| told.state != words(turn)) || turn.is_running()
        };
        let begin = pane.turns.iter().rev().take_while(unsaid).count();
        for turn in &pane.turns[pane.turns.len() - begin..] {
            self.tell_turn(turn, new);
        }
        let queued = pane.queued.as_ref().filter(|_| begin == 0);
        let waits = queued.map(|queued| format!("waits: {}", one_line(&queued.text)));
        if waits != self.waits {
            new.extend(waits.clone());
        }
        self.waits = waits;
    }

    /// What is new in a turn.
    fn tell_turn(&mut self, turn: &Turn, new: &mut Vec<String>) {
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
        tell_answer(told, turn, self.thoughts, new);
        if changed && !turn.is_running() {
            new.push(now.clone());
        }
        told.state = now;
    }
}

/// What can be done in the focused pane beyond writing.
fn ways(view: &View, state: &State, unfolded: bool) -> Vec<String> {
    let pane = state.focused_pane();
    let key = |action| view.keymap.written(action);
    let mut ways = Vec::new();
    if let (Some(key), Some(escape)) = (key(Action::Stop), view.going.escape_in(pane)) {
        ways.push(format!("{key} {}", escape.words()));
    }
    ways.extend(only_read(pane, &view.keymap));
    ways.extend(goes_on(pane, state, &view.keymap));
    ways.extend(put_aside(pane, &view.keymap));
    let thought = pane
        .turns
        .last()
        .is_some_and(|turn| !turn.is_running() && !turn.answer.of(Span::Thinking).trim().is_empty());
    if let Some(key) = key(Action::Thoughts).filter(|_| thought && !unfolded) {
        ways.push(format!("{key} tells thoughts in full"));
    }
    ways
}

/// A turn of before: nothing of it is told again.
pub(super) fn skipped(turn: &Turn) -> Told {
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
pub(super) fn words(turn: &Turn) -> String {
    match &turn.status {
        Status::Submitting { .. } => "queued".into(),
        Status::Streaming { stopping: true, .. } => "stopping".into(),
        Status::Streaming { phase, .. } => match phase {
            Phase::Queued => "queued".into(),
            Phase::Prefill { .. } => "reading the prompt".into(),
            Phase::Decode => "answering".into(),
        },
        Status::Done { .. } | Status::Stopped { .. } | Status::Failed { .. } => ended(turn),
    }
}

/// How a turn ended, in words; nothing while it goes on.
pub(super) fn ended(turn: &Turn) -> String {
    match &turn.status {
        Status::Submitting { .. } | Status::Streaming { .. } => String::new(),
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
        new.push(format!("{word}{}", untabbed(line)));
    }
}

fn untabbed(line: &str) -> String {
    line.trim_end_matches('\r').replace('\t', "    ")
}

/// What came to an answer since: whole lines, and whole sentences of a long one.
pub(super) fn tell_answer(told: &mut Told, turn: &Turn, thoughts: bool, new: &mut Vec<String>) {
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
        new.push(untabbed(line.trim_end_matches('\n')));
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
            new.push(untabbed(line.trim_end()));
        }
    }
    if !turn.is_running() {
        flush(told, new);
    }
}

fn flush(told: &mut Told, new: &mut Vec<String>) {
    let rest = std::mem::take(&mut told.pending);
    if !rest.trim().is_empty() {
        new.push(untabbed(rest.trim_end()));
    }
}
