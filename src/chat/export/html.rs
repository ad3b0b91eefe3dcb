//! A conversation as a page of HTML that needs nothing else.

use super::markup::markup;
use super::{ended, parts, put};
use crate::chat::answer::Turn;
use crate::chat::replay::Conversation;
use crate::text::spans::Span;

/// Readable on light and on dark, as the reader's system is.
pub(super) const STYLE: &str = "body{max-width:46rem;margin:2rem auto;padding:0 1rem;font:1rem/1.5 sans-serif;\
    color-scheme:light dark}article{overflow-wrap:anywhere}.plain{white-space:pre-wrap}\
    .formula{white-space:pre-line}.user{border-left:.25rem solid;padding-left:.75rem}.note{opacity:.7}\
    code,pre{font-family:ui-monospace,monospace;font-size:.9em}\
    pre{overflow-x:auto;padding:.5rem .75rem;border:1px solid #8888;border-radius:.25rem}pre code{font-size:1em}\
    table{border-collapse:collapse}th,td{border:1px solid #8888;padding:.25rem .5rem}\
    blockquote{margin-left:0;padding-left:.75rem;border-left:.25rem solid #8888}";

/// The branch that was shown last. Answers are set as Markdown; whatever else a text holds is escaped.
pub fn to_html(conversation: &Conversation) -> String {
    let title = escaped(super::title(conversation));
    let mut page = head(&title, STYLE);
    put(
        &mut page,
        format_args!(
            "<h1>{title}</h1>\n<p class=\"note\">{}</p>\n",
            escaped(&super::facts(conversation))
        ),
    );
    if let Some(system) = super::system(conversation) {
        put(
            &mut page,
            format_args!(
                "<h2>System</h2>\n<article class=\"plain\">{}</article>\n",
                escaped(system.trim_end())
            ),
        );
    }
    for turn in &conversation.turns {
        put(
            &mut page,
            format_args!(
                "<h2>User</h2>\n<article class=\"plain user\">{}</article>\n<h2>Assistant</h2>\n",
                escaped(turn.prompt.trim_end())
            ),
        );
        put_answer(&mut page, turn);
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A page up to its body; the title is escaped already.
pub(super) fn head(title: &str, style: &str) -> String {
    format!(
        "<!doctype html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    )
}

/// An answer's parts, and how it ended.
pub(super) fn put_answer(page: &mut String, turn: &Turn) {
    for part in parts(&turn.answer) {
        let body = escaped(part.text.trim());
        match part.span {
            Span::Answer => put(page, format_args!("<article>\n{}</article>\n", markup(part.text))),
            Span::Thinking => put(
                page,
                format_args!(
                    "<details><summary>Thinking</summary><article class=\"plain\">{body}</article></details>\n"
                ),
            ),
            Span::ToolCall => put(
                page,
                format_args!("<p class=\"note\">Tool call:</p>\n<pre>{body}</pre>\n"),
            ),
        }
    }
    if let Some(end) = ended(turn) {
        put(page, format_args!("<p class=\"note\">{}</p>\n", escaped(&end)));
    }
}

pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
