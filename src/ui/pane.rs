//! One pane: its frame with what runs in it, and its conversation.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::{
    Access, EngineStatus, Pane, PaneId, Parameter, Phase, Refused, State, Stats, Status, Turn,
};
use crate::engine::telemetry::{RowSnapshot, RowState, Snapshot};
pub(super) use crate::text::sanitize::line_for_terminal as one_line;
use crate::text::spans::{Run, Span};
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::loading::LoadMeter;
use crate::ui::overlay::models::Going;
use crate::ui::paint::{self, Piece, piece};
use crate::ui::reading::highlight::Highlights;
use crate::ui::reading::transcript::{Note, Transcript};
use crate::ui::sanitize::sanitize;
use crate::ui::styles::Styles;
use crate::ui::{cells, format, told};

/// What a pane is drawn from, apart from itself.
pub(super) struct Context<'a> {
    pub state: &'a State,
    pub styles: &'a Styles,
    pub keymap: &'a Keymap,
    pub meter: &'a LoadMeter,
    pub going: &'a Going,
    /// Where the log file is, for messages.
    pub log_file: &'a str,
}

/// Draws a pane, and gives the room within its border.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    id: PaneId,
    pane: &Pane,
    view: &mut Transcript,
    highlights: &mut Highlights,
    cx: &Context,
) -> Rect {
    let focused = id == cx.state.focused();
    let raw = if view.is_raw() { "raw " } else { "" };
    let room = usize::from(area.width).saturating_sub(2 + raw.len());
    let mut title = title(id, pane, room, cx);
    title.push(piece(raw, cx.styles.quiet()));
    let inner = paint::boxed(buffer, area, &title, cx.styles, focused);
    let row = row_of(pane, cx.state.snapshot());
    let notes = |turn: &Turn| notes(turn, row, cx);
    let tail = tail(pane, usize::from(inner.width), cx);
    view.sync(
        pane,
        (usize::from(inner.width), usize::from(inner.height)),
        notes,
        tail,
        cx.styles,
    );
    view.draw(buffer, inner, highlights, cx.styles);
    let Some(rows) = view.selected_rows() else {
        return inner;
    };
    for y in 0..inner.height {
        if rows.contains(&(view.top() + usize::from(y))) {
            let edge = paint::row(Rect { width: 1, ..area }, y + 1);
            paint::text(buffer, edge, 0, cx.styles.pick("▌", ">"), cx.styles.strong());
        }
    }
    inner
}

/// The engine's row of a pane, if one is there that has not ended.
fn row_of<'a>(pane: &Pane, snapshot: &'a Snapshot) -> Option<&'a RowSnapshot> {
    let id = pane.request()?;
    snapshot.rows.iter().find(|row| row.id == id)
}

/// Number and name, state, tokens of the model's limit: ` 1 rope* decode 61t/s 540/8192 `. The name gives way.
fn title(id: PaneId, pane: &Pane, room: usize, cx: &Context) -> Vec<Piece> {
    let styles = cx.styles;
    let focused = id == cx.state.focused();
    let row = row_of(pane, cx.state.snapshot());
    let state = state_text(pane, row, cx.state);
    let (tokens, tokens_style) = tokens_text(pane, row, cx);
    let mark = if focused { "*" } else { "" };
    let takes_part = cx.state.broadcast() && pane.receives && pane.access == Access::Write;
    let mark = format!(
        "{mark}{}{}",
        if takes_part { styles.pick("»", ">") } else { "" },
        if pane.private { " private" } else { "" }
    );
    let fixed = 5 + cells::width(&state) + cells::width(&tokens) + cells::width(&mark);
    let name = cells::shorten(&sanitize(&pane.title), room.saturating_sub(fixed), styles.cut());
    let name = if name.is_empty() {
        String::new()
    } else {
        format!(" {name}")
    };
    let style = if focused { styles.strong() } else { styles.quiet() };
    vec![
        piece(format!(" {id}{name}{mark} "), style),
        piece(state, styles.good()),
        piece(format!(" {tokens} "), tokens_style),
    ]
}

/// What runs in a pane, in a few words.
fn state_text(pane: &Pane, row: Option<&RowSnapshot>, state: &State) -> String {
    match pane.running().map(|turn| &turn.status) {
        Some(Status::Streaming { stopping: true, .. } | Status::Submitting { stopping: true, .. }) => {
            "stopping".into()
        }
        Some(Status::Submitting { .. }) => "queued".into(),
        Some(Status::Streaming {
            phase: Phase::Queued, ..
        }) => match place_in_queue(row, state.snapshot()) {
            Some((at, _)) => format!("queued {at}"),
            None => "queued".into(),
        },
        Some(Status::Streaming {
            phase: Phase::Prefill { done, total },
            ..
        }) => {
            format!("prefill {done}/{total}")
        }
        Some(Status::Streaming {
            phase: Phase::Decode, ..
        }) => {
            format!("decode {}t/s", format::rate(row.and_then(|row| row.tokens_per_s)))
        }
        _ if pane.access != Access::Write => "read-only".into(),
        _ => match state.engine() {
            EngineStatus::Loading { .. } => "loading".into(),
            EngineStatus::Failed(_) => "failed".into(),
            EngineStatus::Ready => "ready".into(),
        },
    }
}

/// From which share of the model's limit on a conversation's tokens stand out, in percent.
const NEARLY_FULL: usize = 85;

/// Tokens that the conversation takes, of those that the model can take; about as many (`~`), where they were not counted.
fn tokens_text(pane: &Pane, row: Option<&RowSnapshot>, cx: &Context) -> (String, ratatui::style::Style) {
    let (limit, styles) = (cx.state.snapshot().info.context_length, cx.styles);
    let running = row.map(|row| row.prompt + row.generated).filter(|used| *used > 0);
    let Some((used, exact)) = running.map(|used| (used, true)).or_else(|| cx.state.taken(pane)) else {
        return match limit {
            0 => (format::NONE.into(), styles.quiet()),
            limit => (format!("{}/{limit}", format::NONE), styles.quiet()),
        };
    };
    let about = if exact { "" } else { "~" };
    match limit {
        0 => (format!("{about}{used}"), styles.quiet()),
        limit if used.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL) => {
            let mark = styles.pick("▲", "!");
            (format!("{mark}{about}{used}/{limit}"), styles.warning())
        }
        limit => (format!("{about}{used}/{limit}"), styles.quiet()),
    }
}

/// Which place of how many a row has in the queue.
fn place_in_queue(row: Option<&RowSnapshot>, snapshot: &Snapshot) -> Option<(usize, usize)> {
    let row = row?;
    let queued = || {
        snapshot
            .rows
            .iter()
            .filter(|row| matches!(row.state, RowState::Queued { .. }))
    };
    let at = queued().position(|other| other.id == row.id)?;
    Some((at + 1, queued().count()))
}

/// The lines under a turn: what it does while there is no text, how it ended where that wants a word.
fn notes(turn: &Turn, row: Option<&RowSnapshot>, cx: &Context) -> Vec<Note> {
    let styles = cx.styles;
    let quiet = |text: String| {
        vec![Note {
            text,
            style: styles.quiet(),
        }]
    };
    let waits = styles.pick("◌", "o");
    let works = styles.pick("◍", "*");
    match &turn.status {
        Status::Submitting { .. } => quiet(format!("{waits} on its way to the engine")),
        Status::Streaming { stopping: true, .. } => quiet(format!("{works} stopping")),
        Status::Streaming { .. } if says(turn, |run| !run.marker) => Vec::new(),
        Status::Streaming {
            phase: Phase::Queued, ..
        } => queue_notes(row, cx),
        Status::Streaming {
            phase: Phase::Prefill { done, total },
            ..
        } => {
            let cached = row.map_or(0, |row| row.cached);
            let cached = if cached > 0 {
                format!(", {cached} from cache")
            } else {
                String::new()
            };
            quiet(format!("{works} prefill {done}/{total}{cached}"))
        }
        Status::Streaming {
            phase: Phase::Decode, ..
        } => quiet(format!("{works} answering")),
        Status::Done {
            truncated: Some(why),
            stats,
        } => {
            let mut notes = vec![Note {
                text: format!("cut off: {}", one_line(why)),
                style: styles.warning(),
            }];
            notes.extend(took(stats, "length").map(quiet).unwrap_or_default());
            notes
        }
        Status::Done { stats, .. } => {
            let says = says(turn, |run| run.span != Span::Thinking && !run.marker);
            let mut notes = if says {
                Vec::new()
            } else {
                quiet("the answer is empty".into())
            };
            notes.extend(took(stats, "stop").map(quiet).unwrap_or_default());
            notes
        }
        Status::Stopped { stats } => {
            let took = stats.as_ref().and_then(|stats| took(stats, "stopped"));
            quiet(took.unwrap_or_else(|| "stopped".into()))
        }
        Status::Failed { message, refused } => {
            let what = if refused.is_some() {
                "not answered"
            } else {
                "failed"
            };
            let mut notes = vec![Note {
                text: format!("{what}: {}", one_line(message)),
                style: styles.error(),
            }];
            if *refused == Some(Refused::Full) {
                notes.extend(quiet(told::when_full(cx.keymap)));
            }
            // The prompt is in the draft again, where a command would be text.
            let lower = format!("lower {}", Parameter::MaxTokens.name());
            let settings = cx.keymap.written(Action::Settings);
            if let Some(key) = settings.filter(|_| message.contains(&lower)) {
                notes.extend(quiet(format!("{key} changes max-tokens")));
            }
            notes
        }
    }
}

/// How an answer ended, and what it took; conversations of other programs don't tell.
pub(super) fn took(stats: &Stats, end: &str) -> Option<String> {
    if stats.generated_tokens == 0 {
        return None;
    }
    let unit = if stats.generated_tokens == 1 {
        "token"
    } else {
        "tokens"
    };
    let first = stats.ttft_ms.unwrap_or(stats.queued_ms + stats.prefill_ms);
    let mut text = format!("{end}, {} {unit}", stats.generated_tokens);
    // Of an answer that ended because the program did, no time is known.
    if first + stats.decode_ms > 0.0 {
        text.push_str(&format!(" in {}", format::seconds(first + stats.decode_ms)));
    }
    let steps = stats.generated_tokens.saturating_sub(1);
    if steps > 0 && stats.decode_ms > 0.0 {
        let rate = steps as f64 * 1000.0 / stats.decode_ms;
        text.push_str(&format!(", {} tok/s", format::rate(Some(rate))));
    }
    if let Some(first) = stats.ttft_ms {
        text.push_str(&format!(", first after {}", format::seconds(first)));
    }
    Some(text)
}

/// Whether there is a word in the wanted parts of a turn's answer.
fn says(turn: &Turn, wanted: impl Fn(&Run<'_>) -> bool) -> bool {
    turn.answer
        .runs()
        .any(|run| wanted(&run) && !run.text.trim().is_empty())
}

fn queue_notes(row: Option<&RowSnapshot>, cx: &Context) -> Vec<Note> {
    let styles = cx.styles;
    let waits = styles.pick("◌", "o");
    let note = |text: String| Note {
        text,
        style: styles.quiet(),
    };
    let (Some(row), Some((at, of))) = (row, place_in_queue(row, cx.state.snapshot())) else {
        return vec![note(format!("{waits} queued"))];
    };
    let mut notes = vec![note(format!(
        "{waits} queued {at} of {of}, {}",
        format::seconds(row.queued_ms)
    ))];
    if row.state == (RowState::Queued { for_kv: true }) {
        notes.push(note(format!(
            "  waits for KV budget: needs {}",
            format::bytes(row.kv_reserved)
        )));
    }
    notes
}

/// What Esc does for the model that is on its way, in words.
fn escape(pane: &Pane, cx: &Context) -> Option<String> {
    let key = cx.keymap.written(Action::Stop)?;
    let escape = cx.going.escape_in(pane)?;
    Some(format!("  {key} {}.", escape.words()))
}

/// That the last answer, which was cut off, can go on, or that nothing can.
pub(super) fn goes_on(pane: &Pane, state: &State, keymap: &Keymap) -> Option<String> {
    let ready = *state.engine() == EngineStatus::Ready && pane.access == Access::Write;
    // A prompt that was refused for it says so already.
    let refused = |turn: &Turn| matches!(&turn.status, Status::Failed { refused, .. } if *refused == Some(Refused::Full));
    if pane.turns.last().is_some_and(refused) {
        return None;
    }
    if let Some(limit) = state.full(pane).filter(|_| ready) {
        let ways = told::when_full(keymap);
        return Some(format!("The conversation is full, {limit}: {ways}."));
    }
    let cut = pane.turns.last().is_some_and(Turn::can_go_on);
    let key = keymap.written(Action::Continue).filter(|_| ready && cut)?;
    Some(format!("{key} has the answer go on."))
}

/// What was put aside here for another pane's answer, and the way there and back.
pub(super) fn put_aside(pane: &Pane, keymap: &Keymap) -> Option<String> {
    if pane.running().is_some() {
        return None;
    }
    let last = pane.turns.last().map(|turn| turn.record);
    if pane.tree.shown_after(last).is_some() {
        let key = keymap.written(Action::NextSibling);
        let back = key.map_or(String::new(), |key| format!(": {key} shows them again"));
        return Some(format!("The last prompt and its answer are put aside{back}."));
    }
    let alone = |turn| pane.tree.siblings(&pane.turns, turn).1 == 1;
    let key = keymap.written(Action::PreviousSibling)?;
    if !(pane.back_to()?..pane.turns.len()).all(alone) {
        return None;
    }
    Some(format!("{key} puts the prompt and its answer aside again."))
}

/// Why the pane's conversation can only be read, and what may change that.
pub(super) fn only_read(pane: &Pane, keymap: &Keymap) -> Option<String> {
    match &pane.access {
        Access::Write => None,
        Access::Elsewhere => {
            let again = keymap
                .written(Action::Send)
                .map_or(String::new(), |key| format!(" {key} looks at once."));
            Some(format!(
                "Open in another process: what is said there is shown here, and prompts are taken once it has ended.{again}"
            ))
        }
        Access::Unwritable(why) => Some(format!(
            "{}: it can be read here, and takes no prompt.",
            one_line(why)
        )),
    }
}

/// The lines under the last turn: the model's loading or failure, a prompt that waits, a first hint.
fn tail(pane: &Pane, width: usize, cx: &Context) -> Vec<Note> {
    let styles = cx.styles;
    let note = |text: String| Note {
        text,
        style: styles.quiet(),
    };
    let mut out = Vec::new();
    match cx.state.engine() {
        EngineStatus::Loading { stage, done, total } => {
            let waits = styles.pick("◌", "o");
            out.push(note(format!("{waits} {}", sanitize(stage))));
            if let Some(progress) = cx.meter.progress(*done, *total, width, styles) {
                out.push(note(format!("  {progress}")));
            }
            out.push(note("  Prompts sent now are answered then.".into()));
            out.extend(escape(pane, cx).map(note));
        }
        EngineStatus::Failed(why) => {
            out.push(Note {
                text: format!("The engine failed: {}", one_line(why)),
                style: styles.error(),
            });
            let models = cx.keymap.written(Action::Models).unwrap_or("/model");
            out.push(note(format!(
                "Conversations and drafts are kept: {models} chooses a model, this one again or another."
            )));
            out.push(note(format!("More is in {}", sanitize(cx.log_file))));
        }
        EngineStatus::Ready if cx.going.waits && pane.running().is_none() => {
            let waits = styles.pick("◌", "o");
            let to = cx.going.to.as_deref().unwrap_or_default();
            out.push(note(format!(
                "{waits} {} comes when answers have ended.",
                one_line(to)
            )));
            out.push(note("  Prompts sent now are answered then.".into()));
            out.extend(escape(pane, cx).map(note));
        }
        EngineStatus::Ready if pane.turns.is_empty() && pane.queued.is_none() => {
            if pane.access == Access::Write {
                let key = |action| cx.keymap.written(action);
                let send = key(Action::Send).map_or(String::new(), |key| format!(", {key} sends it"));
                out.push(note(format!("Write a prompt below{send}.")));
                let keys = [
                    (Action::Help, "shows all keys"),
                    (Action::Palette, "every action"),
                ];
                let ways = keys
                    .iter()
                    .filter_map(|(action, word)| Some(format!("{} {word}", key(*action)?)));
                let ways: Vec<String> = ways.collect();
                if !ways.is_empty() {
                    out.push(note(format!("{}.", ways.join(", "))));
                }
                out.push(note("@ sends a file, / begins a command.".into()));
                if pane.private {
                    out.push(note("Private: nothing of it is kept.".into()));
                }
            }
        }
        EngineStatus::Ready => {}
    }
    out.extend(goes_on(pane, cx.state, cx.keymap).map(note));
    let versions = match pane.turns.len().checked_sub(1) {
        Some(at) => pane.tree.siblings(&pane.turns, at).1,
        None => 1,
    };
    let keys = (
        cx.keymap.written(Action::PreviousSibling),
        cx.keymap.written(Action::NextSibling),
    );
    if let (Some(before), Some(after)) = keys
        && versions > 1
        && pane.running().is_none()
    {
        out.push(note(format!("{before} and {after} show the other versions.")));
    }
    out.extend(put_aside(pane, cx.keymap).map(note));
    out.extend(only_read(pane, cx.keymap).map(note));
    if let Some(queued) = &pane.queued {
        let text = cells::shorten(&one_line(&queued.text), width.saturating_sub(8), styles.cut());
        out.push(Note {
            text: format!("waits: {text}"),
            style: styles.user(),
        });
    }
    out
}
