//! An answer's parts in rows: what the model thought, which tools it called, what it says.

use std::borrow::Cow;

use ratatui::style::Style;

use super::format;
use super::styles::Styles;
use super::wrap::{RowKind, Wrapped};
use crate::chat::{Thought, Turn};
use crate::text::spans::{Span, Spanned, tool_calls};

/// A part of an answer, with its rows: a blank one before all but the first, a headline, and its text unless that is
/// folded away.
#[derive(Debug, Clone)]
pub(super) struct Part {
    span: Span,
    lead: usize,
    head: Option<String>,
    text: Wrapped,
    folded: bool,
}

/// One of its rows.
pub(super) struct PartRow<'a> {
    pub text: &'a str,
    pub style: Style,
    /// Whether more text would go behind it.
    pub last: bool,
}

impl Part {
    /// Rows, the blank one before it included.
    pub fn rows(&self) -> usize {
        self.above() + if self.folded { 0 } else { self.text.len() }
    }

    /// Rows above its text.
    fn above(&self) -> usize {
        self.lead + usize::from(self.head.is_some())
    }

    /// Where a row begins in its text; `None` for one above it.
    pub fn offset_of(&self, row: usize) -> Option<usize> {
        let row = row.checked_sub(self.above())?;
        (!self.folded).then(|| self.text.row_start(row))
    }

    /// The row of a place in its text, or its first one that isn't blank.
    pub fn row_of(&self, offset: Option<usize>) -> usize {
        match offset {
            Some(offset) if !self.folded => self.above() + self.text.row_at(offset),
            _ => self.lead,
        }
    }

    /// A row to paint.
    pub fn row(&self, row: usize, styles: &Styles) -> Option<PartRow<'_>> {
        let at = row.checked_sub(self.lead)?;
        let plain = |text, style| PartRow {
            text,
            style,
            last: false,
        };
        if let (0, Some(head)) = (at, &self.head) {
            return Some(plain(head, styles.quiet()));
        }
        let at = row.checked_sub(self.above()).filter(|_| !self.folded)?;
        let (kind, text) = self.text.row(at)?;
        let style = match (self.span, kind) {
            (Span::Thinking, _) | (Span::Answer, RowKind::Fence) => styles.quiet(),
            (Span::ToolCall, _) | (Span::Answer, RowKind::Code) => styles.code(),
            (Span::Answer, RowKind::Text) => Style::new(),
        };
        Some(PartRow {
            text,
            style,
            last: at + 1 == self.text.len(),
        })
    }
}

/// A stretch of an answer that is shown as one.
struct Section<'a> {
    span: Span,
    text: Cow<'a, str>,
    /// Whether nothing will be added to it.
    closed: bool,
}

/// Brings `parts` up to date with a turn's answer; only what is new is wrapped. Thoughts that have ended are folded,
/// unless `unfolded`.
pub(super) fn update(parts: &mut Vec<Part>, turn: &Turn, width: usize, unfolded: bool, styles: &Styles) {
    let sections = sections(&turn.answer, turn.is_running());
    parts.truncate(sections.len());
    let mut thoughts = turn.thoughts.iter();
    for (at, section) in sections.iter().enumerate() {
        let thought = match section.span {
            Span::Thinking => thoughts.next(),
            Span::Answer | Span::ToolCall => None,
        };
        let known = parts.get_mut(at).filter(|part| part.span == section.span);
        let grows =
            |part: &Part| section.span != Span::ToolCall && section.text.len() >= part.text.source_len();
        match known {
            Some(part) if grows(part) => part.text.append(&section.text),
            _ => {
                let part = Part {
                    span: section.span,
                    lead: usize::from(at > 0),
                    head: None,
                    text: Wrapped::new(&section.text, width),
                    folded: false,
                };
                match parts.get_mut(at) {
                    Some(other) => *other = part,
                    None => parts.push(part),
                }
            }
        }
        if let Some(part) = parts.get_mut(at) {
            part.head = headline(section, thought, styles);
            part.folded = section.span == Span::Thinking && section.closed && !unfolded;
        }
    }
}

fn headline(section: &Section<'_>, thought: Option<&Thought>, styles: &Styles) -> Option<String> {
    match section.span {
        Span::Answer => None,
        Span::ToolCall => Some("tool call (not run)".to_owned()),
        Span::Thinking if !section.closed => Some(format!("{} thinking", styles.pick("◍", "*"))),
        Span::Thinking => {
            let took = thought.map_or(String::new(), |thought| {
                let unit = if thought.tokens == 1 { "token" } else { "tokens" };
                let seconds = format::seconds(thought.ms as f64);
                format!(" for {seconds}, {} {unit}", thought.tokens)
            });
            Some(format!("{} thought{took}", styles.pick("◌", "o")))
        }
    }
}

fn sections(answer: &Spanned, running: bool) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let (mut raw, mut shown) = (String::new(), String::new());
    let mut runs = answer.runs().peekable();
    while let Some(run) = runs.next() {
        let last = runs.peek().is_none();
        if run.span == Span::ToolCall {
            raw.push_str(run.text);
            if !run.marker {
                shown.push_str(run.text);
            }
            if runs.peek().is_some_and(|next| next.span == Span::ToolCall) {
                continue;
            }
            let text = readable(&raw, &shown);
            raw.clear();
            shown.clear();
            sections.push(Section {
                span: run.span,
                text: Cow::Owned(text),
                closed: !(last && running),
            });
            continue;
        }
        let text = trimmed(run.text);
        if !run.marker && !text.is_empty() {
            sections.push(Section {
                span: run.span,
                text: Cow::Borrowed(text),
                closed: !(last && running),
            });
        }
    }
    sections
}

/// A call's name and arguments, a call a line; where they can't be read, what the model wrote.
fn readable(raw: &str, shown: &str) -> String {
    match tool_calls(raw) {
        Some(calls) => calls
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
        None => trimmed(shown).to_owned(),
    }
}

/// Text without the empty lines around it; grows at its end alone, as the answer itself does.
fn trimmed(text: &str) -> &str {
    text.trim_start_matches(['\n', '\r']).trim_end()
}
