//! Markdown that a model wrote as HTML that can do nothing: a few tags for how it looks, and links that say where they
//! lead. Markup of its own is text, pictures are links (a page that is opened fetches nothing), and other addresses are text.

use std::ops::Range;

use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

use super::html::escaped;
use crate::text::formula::{Masked, Part, mask};

/// What is read beyond CommonMark.
const OPTIONS: Options = Options::ENABLE_TABLES;

/// What a link may begin with.
const SCHEMES: [&str; 3] = ["http://", "https://", "mailto:"];

/// A text's blocks as HTML; everything else in it is escaped.
pub(super) fn markup(text: &str) -> String {
    let text = clean(text);
    let masked = mask(&text);
    let mut writer = Writer {
        source: &text,
        masked: &masked,
        links: Links::default(),
        in_code: false,
        shown_to: 0,
        events: Vec::new(),
    };
    for (event, range) in Parser::new_ext(&masked.text, OPTIONS).into_offset_iter() {
        writer.take(event, range);
    }
    let mut page = String::with_capacity(text.len() * 2);
    html::push_html(&mut page, writer.events.into_iter());
    page
}

/// What is written of a text whose formulas were hidden from the parser.
struct Writer<'a> {
    source: &'a str,
    masked: &'a Masked<'a>,
    links: Links,
    in_code: bool,
    /// Up to where the source is written: a formula may go over several lines.
    shown_to: usize,
    events: Vec<Event<'a>>,
}

impl<'a> Writer<'a> {
    fn take(&mut self, event: Event<'a>, range: Range<usize>) {
        let original = |text: &str| clean(&self.masked.original(self.source, text, &range));
        let event = match event {
            Event::Text(text) if !self.in_code => return self.text(&text, &range),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                Event::Text(original(&text).into())
            }
            Event::Code(text) => Event::Code(original(&text).into()),
            Event::SoftBreak if range.end <= self.shown_to => return,
            Event::Start(Tag::Link {
                link_type, dest_url, ..
            }) => {
                let address = original(&dest_url).into();
                return self.events.extend(self.links.begin(link_type, address));
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                let address = original(&dest_url).into();
                return self.events.extend(self.links.begin(LinkType::Inline, address));
            }
            event => event,
        };
        match event {
            Event::Start(Tag::CodeBlock(_)) => self.in_code = true,
            Event::End(TagEnd::CodeBlock) => self.in_code = false,
            _ => {}
        }
        self.events.extend(self.links.tame(event));
    }

    /// Text, its formulas readable, each with how it was written as its title.
    fn text(&mut self, text: &str, range: &Range<usize>) {
        let text = self.masked.original(self.source, text, range).into_owned();
        let parts = self.masked.parts(self.source, &text, range, &mut self.shown_to);
        let Some(parts) = parts else {
            return self.events.push(Event::Text(clean(&text).into()));
        };
        self.events.extend(parts.into_iter().map(|part| match part {
            Part::Text(at) => Event::Text(self.source[at].into()),
            Part::Formula { written, lines, .. } => {
                let (tex, lines) = (escaped(written.trim()), escaped(&lines.join("\n")));
                let span = format!("<span class=\"formula\" title=\"{tex}\">{lines}</span>");
                Event::InlineHtml(span.into())
            }
        }));
    }
}

/// Without characters that no page may hold, which an entity can bring in, too.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let safe = |c: char| {
        if c.is_control() && !matches!(c, '\n' | '\t') {
            '\u{fffd}'
        } else {
            c
        }
    };
    text.chars().map(safe).collect()
}

/// The links and pictures that are open.
#[derive(Default)]
struct Links {
    /// For each, the address that its text is followed by; none where it has become a link.
    open: Vec<Option<String>>,
}

impl Links {
    /// What is written in place of an event that is neither text nor the beginning of a link.
    fn tame<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        Some(match event {
            Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
            Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
            Event::Start(Tag::Heading { level, .. }) => Event::Start(Tag::Heading {
                level: lower(level),
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            }),
            Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
            Event::End(TagEnd::Link | TagEnd::Image) => match self.open.pop()? {
                None => Event::End(TagEnd::Link),
                Some(address) => Event::Text(format!(" ({})", clean(&address)).into()),
            },
            other => other,
        })
    }

    fn begin<'a>(&mut self, link_type: LinkType, address: CowStr<'a>) -> Option<Event<'a>> {
        let within = self.open.contains(&None);
        let follows = link_type == LinkType::Email || {
            let address = address.to_ascii_lowercase();
            SCHEMES.iter().any(|scheme| address.starts_with(scheme))
        };
        // Links hold no links.
        if within || !follows {
            self.open.push(Some(address.into_string()));
            return None;
        }
        self.open.push(None);
        Some(Event::Start(Tag::Link {
            link_type,
            dest_url: address,
            title: CowStr::from(""),
            id: CowStr::from(""),
        }))
    }
}

/// A heading below those of the page itself.
fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        _ => HeadingLevel::H6,
    }
}
