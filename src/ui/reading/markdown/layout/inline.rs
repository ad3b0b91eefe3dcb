//! Text within a block: emphasis, code, links, formulas, breaks.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Tag, TagEnd};

use super::super::ink::{Ink, Line};
use super::Setter;
use crate::text::formula::Part;

impl Setter<'_> {
    /// The text that the parser was given, as it was before formulas were hidden.
    pub(super) fn original<'t>(&self, text: &'t str, range: &Range<usize>) -> Cow<'t, str> {
        self.masked.original(self.source, text, range)
    }

    /// Adds text to the last line, its formulas readable.
    fn text(&mut self, text: &str, range: &Range<usize>, ink: Ink, lines: &mut Vec<Line>) {
        let text = self.original(text, range).into_owned();
        let parts = match self.reads_formulas {
            true => self.masked.parts(self.source, &text, range, &mut self.shown_to),
            false => None,
        };
        let Some(parts) = parts else {
            return push(lines, &text, ink, self.base + range.start);
        };
        for part in parts {
            match part {
                Part::Text(at) => push(lines, &self.source[at.clone()], ink, self.base + at.start),
                Part::Formula {
                    start, lines: read, ..
                } => {
                    for (number, line) in read.iter().enumerate() {
                        if number > 0 {
                            lines.push(Line::default());
                        }
                        push(lines, line, ink, self.base + start);
                    }
                }
            }
        }
    }

    /// Whether text between tildes is struck out: of two each; one alone means about so many.
    fn is_struck(&self, range: &Range<usize>) -> bool {
        let written = self.source.get(range.clone()).unwrap_or_default();
        written.starts_with("~~")
    }

    /// What stands around such text.
    fn strike_mark(&self, struck: bool) -> &'static str {
        if struck { self.styles.strike_mark() } else { "~" }
    }

    /// Lines of text: more than one where lines are broken on purpose.
    pub(super) fn inline(&mut self, base: Ink) -> Vec<Line> {
        let mut lines = vec![Line::default()];
        let mut inks = vec![base];
        let mut links: Vec<(String, usize, bool)> = Vec::new();
        while let Some((event, range)) = self.events.get(self.at).cloned() {
            let ink = inks.last().copied().unwrap_or_default();
            let source = self.base + range.start;
            let Some(line) = lines.last_mut() else { break };
            match event {
                Event::Text(text) => self.text(&text, &range, ink, &mut lines),
                Event::Code(text) => {
                    let marks = self.styles.code_mark();
                    let ink = Ink { code: true, ..ink };
                    line.push(marks, ink, source);
                    line.push(&self.original(&text, &range), ink, source);
                    line.push(marks, ink, source);
                }
                Event::SoftBreak if range.end <= self.shown_to => {}
                Event::SoftBreak if !self.breaks_formula(&range) => line.push(" ", ink, source),
                Event::SoftBreak | Event::HardBreak => lines.push(Line::default()),
                Event::InlineHtml(tag) if is_break(&tag) => match self.in_table {
                    // A cell is one line before it is wrapped.
                    true => line.push(" ", ink, source),
                    false => lines.push(Line::default()),
                },
                Event::InlineHtml(text) | Event::Html(text) => {
                    line.push(&self.original(&text, &range), ink, source);
                }
                Event::Start(Tag::Emphasis) => inks.push(Ink {
                    emphasis: true,
                    ..ink
                }),
                Event::Start(Tag::Strong) => inks.push(Ink { strong: true, ..ink }),
                Event::Start(Tag::Strikethrough) => {
                    let struck = self.is_struck(&range);
                    line.push(self.strike_mark(struck), ink, source);
                    inks.push(Ink { struck, ..ink });
                }
                Event::End(TagEnd::Strikethrough) => {
                    let struck = self.is_struck(&range);
                    inks.pop();
                    line.push(
                        self.strike_mark(struck),
                        inks.last().copied().unwrap_or(base),
                        source,
                    );
                }
                Event::Start(Tag::Link {
                    link_type, dest_url, ..
                }) => {
                    let to = self.original(&dest_url, &range).into_owned();
                    let bare = matches!(link_type, LinkType::Autolink | LinkType::Email);
                    links.push((to, line.text.len(), bare));
                    inks.push(Ink { link: true, ..ink });
                }
                Event::Start(Tag::Image { dest_url, .. }) => {
                    let to = self.original(&dest_url, &range).into_owned();
                    let next = self.events.get(self.at + 1).map(|(event, _)| event);
                    let says = next != Some(&Event::End(TagEnd::Image));
                    line.push(if says { "[image: " } else { "[image" }, ink, source);
                    links.push((to, line.text.len(), false));
                    inks.push(ink);
                }
                Event::End(TagEnd::Emphasis | TagEnd::Strong) => {
                    inks.pop();
                }
                Event::End(end @ (TagEnd::Link | TagEnd::Image)) => {
                    inks.pop();
                    let ink = inks.last().copied().unwrap_or(base);
                    let Some((to, begins, bare)) = links.pop() else {
                        self.at += 1;
                        continue;
                    };
                    let source = self.base + range.end.saturating_sub(1);
                    let says = line.text.get(begins..).unwrap_or_default();
                    let told = bare || to.is_empty() || says == to;
                    if end == TagEnd::Image {
                        line.push("]", ink, source);
                    }
                    if !told {
                        let quiet = Ink { quiet: true, ..ink };
                        line.push(&format!(" ({to})"), quiet, source);
                    }
                }
                Event::Start(_) | Event::End(_) | Event::Rule => break,
                _ => {}
            }
            self.at += 1;
        }
        lines
    }

    /// Whether a line end is within a formula on lines of its own, or next to one.
    fn breaks_formula(&self, end: &Range<usize>) -> bool {
        let near = |display: &Range<usize>| {
            let before = self.source.get(end.end..display.start);
            let inside = display.start <= end.end && end.start <= display.end;
            // Blanks and marks of quotes stand before it.
            inside || before.is_some_and(|text| text.len() < 8 && text.trim_matches([' ', '>']).is_empty())
        };
        self.masked.displays.iter().any(near)
    }
}

fn push(lines: &mut [Line], text: &str, ink: Ink, source: usize) {
    if let Some(line) = lines.last_mut() {
        line.push(text, ink, source);
    }
}

/// Whether a tag only ends a line.
fn is_break(tag: &str) -> bool {
    let name = tag
        .trim_start_matches('<')
        .trim_end_matches('>')
        .trim_end_matches('/');
    name.trim().eq_ignore_ascii_case("br")
}
