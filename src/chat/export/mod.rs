//! A conversation as a document: Markdown, HTML, JSON.

mod comparison;
mod html;
mod json;
mod markup;

use std::fmt::Write;
use std::path::Path;

use html::to_html;
use json::to_json;

use super::answer::{Status, Turn};
use super::compare::Comparison;
use super::replay::Conversation;
use crate::text::spans::{Run, Span, Spanned};

/// A kind of document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// Markdown.
    #[default]
    Markdown,
    /// One JSON object.
    Json,
    /// A page that needs nothing else.
    Html,
}

impl ExportFormat {
    /// The one that the ending of a file's name tells.
    pub fn of_file(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "md" | "markdown" => Some(Self::Markdown),
            "json" => Some(Self::Json),
            "html" | "htm" => Some(Self::Html),
            _ => None,
        }
    }

    /// A conversation as such a document.
    pub fn document(self, conversation: &Conversation) -> String {
        match self {
            Self::Markdown => to_markdown(conversation),
            Self::Json => format!("{:#}\n", to_json(conversation)),
            Self::Html => to_html(conversation),
        }
    }

    /// Answers to the same prompt as such a document.
    pub fn comparison(self, comparison: &Comparison) -> String {
        match self {
            Self::Markdown => comparison::to_markdown(comparison),
            Self::Json => format!("{:#}\n", comparison::to_json(comparison)),
            Self::Html => comparison::to_html(comparison),
        }
    }
}

/// The branch that was shown last, its text raw: what goes to a terminal must be sanitized.
pub fn to_markdown(conversation: &Conversation) -> String {
    let mut text = format!("# {}\n\n_{}_\n", title(conversation), facts(conversation));
    if let Some(system) = system(conversation) {
        put(&mut text, format_args!("\n## System\n\n{}\n", system.trim_end()));
    }
    for turn in &conversation.turns {
        put(
            &mut text,
            format_args!("\n## User\n\n{}\n\n## Assistant\n", turn.prompt.trim_end()),
        );
        put_answer(&mut text, turn);
    }
    text
}

/// An answer's parts, and how it ended.
fn put_answer(text: &mut String, turn: &Turn) {
    for part in parts(&turn.answer) {
        let body = part.text.trim();
        match part.span {
            Span::Answer => put(text, format_args!("\n{body}\n")),
            Span::Thinking => put(text, format_args!("\n> _Thinking:_\n>\n{}\n", quoted(body))),
            Span::ToolCall => put(text, format_args!("\n_Tool call:_\n\n{}\n", indented(body))),
        }
    }
    if let Some(end) = ended(turn) {
        put(text, format_args!("\n_({end})_\n"));
    }
}

fn title(conversation: &Conversation) -> &str {
    match conversation.title.as_str() {
        "" => "Conversation",
        title => title,
    }
}

/// Name, model and time, on a line.
fn facts(conversation: &Conversation) -> String {
    let mut facts = vec![format!("session {}", conversation.session)];
    if !conversation.model.is_empty() {
        facts.push(format!("model {}", conversation.model));
    }
    if let Some(created) = conversation.created {
        facts.push(format!("begun {created:.0}"));
    }
    facts.join(" · ")
}

fn system(conversation: &Conversation) -> Option<&str> {
    let system = conversation.settings.system.as_deref();
    system.filter(|system| !system.is_empty())
}

/// How a turn ended, where that wants a word.
fn ended(turn: &Turn) -> Option<String> {
    Some(match &turn.status {
        Status::Submitting { .. } | Status::Streaming { .. } => "still answering".into(),
        Status::Done {
            truncated: Some(_), ..
        } => "cut off at the limit of tokens".into(),
        Status::Done { .. } if turn.answer.is_empty() => "empty answer".into(),
        Status::Done { .. } => return None,
        Status::Stopped { .. } => "stopped".into(),
        Status::Failed { message, .. } => format!("failed: {message}"),
    })
}

/// The parts of an answer that say something.
fn parts(answer: &Spanned) -> impl Iterator<Item = Run<'_>> {
    let shown = |run: &Run<'_>| !run.marker && !run.text.trim().is_empty();
    answer.runs().filter(shown)
}

/// Lines as a quotation.
fn quoted(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("> {line}")).collect();
    lines.join("\n")
}

/// Lines as code, whatever fences they hold.
fn indented(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// Writing to a string does not fail.
fn put(text: &mut String, piece: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(piece);
}
