//! An answer's parts in rows: what the model thought, which tools it called, what it says.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::chat::{Thought, Turn};
use crate::text::spans::{Span, Spanned, tool_calls};
use crate::ui::reading::highlight::{Highlights, Tokens};
use crate::ui::reading::markdown::{self, Code, Document, Drawn};
use crate::ui::styles::Styles;
use crate::ui::wrap::{Place, RowKind, Wrapped};
use crate::ui::{cells, format, paint};

/// A part of an answer, with its rows: a blank one before all but the first, a headline, and its text unless that is
/// folded away.
#[derive(Debug, Clone)]
pub(in crate::ui) struct Part {
    span: Span,
    lead: usize,
    head: Option<String>,
    text: Text,
    folded: bool,
}

/// A part's text in rows.
#[derive(Debug, Clone)]
enum Text {
    /// As it was written.
    Raw(Wrapped),
    /// As Markdown.
    Set(Document),
}

/// How answers are to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::ui) struct Shape {
    /// Columns.
    pub width: usize,
    /// Whether thoughts that have ended are shown in full.
    pub unfolded: bool,
    /// Whether answers are shown as they were written.
    pub raw: bool,
}

/// A row's text, for who looks for something in it.
pub(in crate::ui) struct Readable<'a> {
    /// The whole row.
    pub text: &'a str,
    /// Bytes of it that are no text of the answer.
    pub margin: usize,
    /// Whether it goes on with the line of the row before, and then whether a space stood between.
    pub joins: Option<bool>,
    /// Which lines of it are drawn.
    pub drawn: Option<Drawn>,
}

impl Text {
    fn new(text: &str, span: Span, shape: Shape, styles: &Styles) -> Self {
        if span == Span::Answer && !shape.raw {
            Self::Set(Document::new(text, shape.width, styles))
        } else {
            Self::Raw(Wrapped::new(text, shape.width))
        }
    }

    fn append(&mut self, text: &str) {
        match self {
            Self::Raw(wrapped) => wrapped.append(text),
            Self::Set(document) => document.append(text),
        }
    }

    fn source_len(&self) -> usize {
        match self {
            Self::Raw(wrapped) => wrapped.source_len(),
            Self::Set(document) => document.source_len(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Raw(wrapped) => wrapped.len(),
            Self::Set(document) => document.len(),
        }
    }
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

    /// The place of a row in its text; `None` for one above it.
    pub fn place_of(&self, row: usize) -> Option<Place> {
        let row = row.checked_sub(self.above())?;
        (!self.folded).then(|| match &self.text {
            Text::Raw(wrapped) => wrapped.place_of(row),
            Text::Set(document) => document.place_of(row),
        })
    }

    /// The row of a place in its text, or its first one that isn't blank.
    pub fn row_of(&self, place: Option<Place>) -> usize {
        match (place, &self.text) {
            (Some(place), Text::Raw(wrapped)) if !self.folded => self.above() + wrapped.row_of(place),
            (Some(place), Text::Set(document)) if !self.folded => self.above() + document.row_of(place),
            _ => self.lead,
        }
    }

    /// Its blocks of code.
    pub fn code(&self) -> impl Iterator<Item = &Code> {
        let document = match &self.text {
            Text::Set(document) => Some(document),
            Text::Raw(_) => None,
        };
        document.into_iter().flat_map(Document::code)
    }

    /// How many blocks of code it has.
    pub fn code_len(&self) -> usize {
        match &self.text {
            Text::Set(document) => document.code_len(),
            Text::Raw(_) => 0,
        }
    }

    /// Whether a row is the headline of a thought.
    pub fn is_thought_head(&self, row: usize) -> bool {
        self.span == Span::Thinking && self.head.is_some() && row == self.lead
    }

    /// The block of code, from 0, above which a row stands.
    pub fn code_head(&self, row: usize) -> Option<usize> {
        let at = row.checked_sub(self.above()).filter(|_| !self.folded)?;
        match &self.text {
            Text::Raw(_) => None,
            Text::Set(document) => match document.row(at)?.kind {
                markdown::Kind::Head(number, _) => Some(number),
                markdown::Kind::Text | markdown::Kind::Code { .. } => None,
            },
        }
    }

    /// A row's text; none above the text.
    pub fn readable(&self, row: usize) -> Option<Readable<'_>> {
        let at = row.checked_sub(self.above()).filter(|_| !self.folded)?;
        match &self.text {
            Text::Raw(wrapped) => wrapped.row(at).map(|(_, text)| Readable {
                text,
                margin: 0,
                joins: wrapped.joins(at),
                drawn: None,
            }),
            Text::Set(document) => document.row(at).map(|row| Readable {
                text: row.text(),
                margin: row.margin(),
                joins: row.joins(),
                drawn: row.drawn(),
            }),
        }
    }

    /// Paints a row; gives the column behind it where more text would go on from there. `numbered` blocks of code came
    /// before the part.
    pub fn draw(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        row: usize,
        numbered: usize,
        highlights: &mut Highlights,
        styles: &Styles,
    ) -> Option<u16> {
        let at = row.checked_sub(self.lead)?;
        if let (0, Some(head)) = (at, &self.head) {
            paint::text(buffer, area, 0, head, styles.quiet());
            return None;
        }
        let at = row.checked_sub(self.above()).filter(|_| !self.folded)?;
        let column = match &self.text {
            Text::Raw(wrapped) => {
                let (kind, text) = wrapped.row(at)?;
                let style = match (self.span, kind) {
                    (Span::Thinking, _) | (Span::Answer, RowKind::Fence) => styles.quiet(),
                    (Span::ToolCall, _) | (Span::Answer, RowKind::Code) => styles.code(),
                    (Span::Answer, RowKind::Text) => Style::new(),
                };
                paint::text(buffer, area, 0, text, style)
            }
            Text::Set(document) => {
                let row = document.row(at)?;
                let mut column = 0;
                for (piece, ink) in row.pieces() {
                    column = paint::text(buffer, area, column, piece, styles.ink(ink));
                }
                match row.kind {
                    markdown::Kind::Text => {}
                    markdown::Kind::Head(number, code) => {
                        code_head(buffer, area, column, numbered + number + 1, code, styles);
                        column = area.width;
                    }
                    markdown::Kind::Code { code, line, from } if styles.has_color() => {
                        let tokens = highlights.tokens(code, line).unwrap_or_default();
                        color(buffer, area, &row, from, &tokens, styles);
                    }
                    markdown::Kind::Code { .. } => {}
                }
                column
            }
        };
        (at + 1 == self.text.len()).then_some(column)
    }
}

/// Colors a piece of a line of code that was painted, which begins `from` bytes into the line.
fn color(
    buffer: &mut Buffer,
    area: Rect,
    row: &markdown::Row<'_>,
    from: usize,
    tokens: &Tokens,
    styles: &Styles,
) {
    let (margin, text) = row.text().split_at(row.margin());
    let left = cells::width(margin);
    let mut begins = 0;
    for (end, token) in tokens.iter() {
        let start = begins.max(from) - from;
        begins = *end;
        let Some(piece) = text.get(start..end.saturating_sub(from).min(text.len())) else {
            continue;
        };
        let column = left + cells::width(&text[..start]);
        paint::text(buffer, area, column as u16, piece, styles.token(*token));
    }
}

/// The line above a block of code: its language, and the number to copy it by.
fn code_head(buffer: &mut Buffer, area: Rect, column: u16, number: usize, code: &Code, styles: &Styles) {
    let room = usize::from(area.width.saturating_sub(column));
    let mut end = format!(" [{number}] copy");
    if room < end.len() + 2 {
        end = format!("[{number}]");
    }
    let name = cells::shorten(&code.language, room.saturating_sub(end.len() + 2), styles.cut());
    let mut start = if name.is_empty() { name } else { format!("{name} ") };
    let fill = room.saturating_sub(cells::width(&start) + end.len());
    start.push_str(&styles.pick("─", "-").repeat(fill));
    let column = paint::text(buffer, area, column, &start, styles.quiet());
    paint::text(buffer, area, column, &end, styles.quiet());
}

/// A stretch of an answer that is shown as one.
struct Section<'a> {
    span: Span,
    text: Cow<'a, str>,
    /// Whether nothing will be added to it.
    closed: bool,
}

/// Brings `parts` up to date with a turn's answer; only what is new is laid out. Thoughts that have ended are folded,
/// unless the shape has them unfolded.
pub(in crate::ui) fn update(parts: &mut Vec<Part>, turn: &Turn, shape: Shape, styles: &Styles) {
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
                    text: Text::new(&section.text, section.span, shape, styles),
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
            part.folded = section.span == Span::Thinking && section.closed && !shape.unfolded;
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
