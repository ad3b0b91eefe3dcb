//! A conversation as Markdown.

use std::fmt::Write;

use super::pane::Status;
use super::replay::Conversation;
use crate::text::spans::{Run, Span, Spanned};

/// The whole conversation, its text raw: what goes to a terminal must be sanitized.
pub fn to_markdown(conversation: &Conversation) -> String {
    let title = if conversation.title.is_empty() {
        "Conversation"
    } else {
        &conversation.title
    };
    let mut text = format!("# {title}\n\n");
    let mut facts = vec![format!("session {}", conversation.session)];
    if !conversation.model.is_empty() {
        facts.push(format!("model {}", conversation.model));
    }
    if let Some(created) = conversation.created {
        facts.push(format!("begun {created:.0}"));
    }
    put(&mut text, format_args!("_{}_\n", facts.join(" · ")));
    if let Some(system) = conversation
        .settings
        .system
        .as_deref()
        .filter(|system| !system.is_empty())
    {
        put(&mut text, format_args!("\n## System\n\n{}\n", system.trim_end()));
    }
    for turn in &conversation.turns {
        put(
            &mut text,
            format_args!("\n## User\n\n{}\n\n## Assistant\n", turn.prompt.trim_end()),
        );
        for part in parts(&turn.answer) {
            let body = part.text.trim();
            match part.span {
                Span::Answer => put(&mut text, format_args!("\n{body}\n")),
                Span::Thinking => put(&mut text, format_args!("\n> _Thinking:_\n>\n{}\n", quoted(body))),
                Span::ToolCall => put(&mut text, format_args!("\n_Tool call:_\n\n{}\n", indented(body))),
            }
        }
        match &turn.status {
            Status::Submitting { .. } | Status::Streaming { .. } => text.push_str("\n_(still answering)_\n"),
            Status::Done {
                truncated: Some(_), ..
            } => text.push_str("\n_(cut off at the limit of tokens)_\n"),
            Status::Done { .. } if turn.answer.is_empty() => text.push_str("\n_(empty answer)_\n"),
            Status::Done { .. } => {}
            Status::Stopped { .. } => text.push_str("\n_(stopped)_\n"),
            Status::Failed { message, .. } => put(&mut text, format_args!("\n_(failed: {message})_\n")),
        }
    }
    text
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
