//! Markdown that a model wrote as HTML that can do nothing: a few tags for how it looks, and links that say where they
//! lead. Markup of its own is text, pictures are links (a page that is opened fetches nothing), and other addresses are text.

use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

/// What is read beyond CommonMark. Formulas are read so that their marks are no emphasis; they stay as they were written.
const OPTIONS: Options = Options::ENABLE_TABLES.union(Options::ENABLE_MATH);

/// What a link may begin with.
const SCHEMES: [&str; 3] = ["http://", "https://", "mailto:"];

/// A text's blocks as HTML; everything else in it is escaped.
pub(super) fn markup(text: &str) -> String {
    let text = clean(text);
    let mut page = String::with_capacity(text.len() * 2);
    let mut links = Links::default();
    let events = Parser::new_ext(&text, OPTIONS).filter_map(|event| links.tame(event));
    html::push_html(&mut page, events);
    page
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
    /// What is written in place of an event.
    fn tame<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        Some(match event {
            Event::Html(text) | Event::InlineHtml(text) | Event::Text(text) => {
                Event::Text(clean(&text).into())
            }
            Event::InlineMath(text) => Event::Text(format!("${}$", clean(&text)).into()),
            Event::DisplayMath(text) => Event::Text(format!("$${}$$", clean(&text)).into()),
            Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
            Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
            Event::Start(Tag::Heading { level, .. }) => Event::Start(Tag::Heading {
                level: lower(level),
                id: None,
                classes: Vec::new(),
                attrs: Vec::new(),
            }),
            Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
            Event::Start(Tag::Link {
                link_type, dest_url, ..
            }) => return self.begin(link_type, dest_url),
            Event::Start(Tag::Image { dest_url, .. }) => return self.begin(LinkType::Inline, dest_url),
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
