//! One block in rows: what the parser says of it, set in a width.

use std::ops::Range;

use pulldown_cmark::{BrokenLink, CodeBlockKind, CowStr, Event, HeadingLevel, Parser, Tag, TagEnd};

use super::code::Code;
use super::ink::{Drawn, Ink, Kind, Line, Row, Sheet};
use super::segment::OPTIONS;
use super::table;
use crate::text::formula::{Masked, mask};
use crate::ui::cells;
use crate::ui::styles::Styles;
use crate::ui::wrap::{show, wrap_line};

mod inline;

/// Columns that text has at least, whatever stands before it.
const LEAST: usize = 12;

/// A block that was laid out.
#[derive(Debug, Clone, Default)]
pub(super) struct Laid {
    pub sheet: Sheet,
    pub code: Vec<Code>,
    /// Addresses that other blocks may name, by their labels.
    pub definitions: Vec<(String, String)>,
    /// Whether it has brackets that an address elsewhere would make a link of.
    pub asks: bool,
}

/// What stands before the rows of a quote or a list's item.
struct Margin {
    first: String,
    rest: String,
    begun: bool,
}

/// What lays a block out.
pub(super) struct Setter<'a> {
    source: &'a str,
    masked: &'a Masked<'a>,
    base: usize,
    floor: usize,
    width: usize,
    styles: &'a Styles,
    events: Vec<(Event<'a>, Range<usize>)>,
    at: usize,
    /// What stands before is shown already.
    shown_to: usize,
    in_table: bool,
    /// Whether formulas are shown by signs beyond ASCII.
    reads_formulas: bool,
    margins: Vec<Margin>,
    laid: Laid,
}

/// A label as labels are compared.
pub(super) fn label(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// A closure as the parser calls it.
fn callback<'i, F>(call: F) -> F
where
    F: FnMut(BrokenLink<'i>) -> Option<(CowStr<'i>, CowStr<'i>)>,
{
    call
}

/// Lays a block out. `base` is its place in the whole source, and `floor` where what is its own begins, behind the head of
/// a table that it goes on with; `address` knows what labels stand for elsewhere.
pub(super) fn lay_out<'s>(
    source: &'s str,
    (base, floor): (usize, usize),
    width: usize,
    styles: &'s Styles,
    address: impl Fn(&str) -> Option<String>,
) -> Laid {
    let masked = mask(source);
    let mut asks = false;
    let callback = callback(|link| {
        asks = true;
        let found = address(&label(&link.reference))?;
        Some((CowStr::from(found), CowStr::from("")))
    });
    let parser =
        Parser::new_with_broken_link_callback(&masked.text, OPTIONS, Some(callback)).into_offset_iter();
    let mut definitions: Vec<(Range<usize>, String, String)> = parser
        .reference_definitions()
        .iter()
        .map(|(name, link)| (link.span.clone(), label(name), link.dest.to_string()))
        .collect();
    definitions.sort_by_key(|(span, ..)| span.start);
    let events: Vec<_> = parser.collect();
    let mut setter = Setter {
        source,
        masked: &masked,
        base,
        floor,
        width,
        styles,
        events,
        at: 0,
        shown_to: 0,
        in_table: false,
        reads_formulas: !styles.pick("√", "").is_empty(),
        margins: Vec::new(),
        laid: Laid::default(),
    };
    let begins = setter.events.first().map_or(usize::MAX, |(_, range)| range.start);
    let (before, after): (Vec<_>, Vec<_>) = definitions.iter().partition(|(span, ..)| span.start < begins);
    setter.definitions(&before);
    if !before.is_empty() && !setter.events.is_empty() {
        setter.blank();
    }
    setter.blocks(true);
    if !after.is_empty() && !setter.events.is_empty() {
        setter.blank();
    }
    setter.definitions(&after);
    let mut laid = setter.laid;
    laid.definitions = definitions.into_iter().map(|(_, name, to)| (name, to)).collect();
    laid.asks = asks;
    laid
}

impl<'a> Setter<'a> {
    /// Addresses for labels aren't part of the text, but nothing is hidden.
    fn definitions(&mut self, definitions: &[&(Range<usize>, String, String)]) {
        for (span, ..) in definitions {
            let mut line = Line::default();
            let text = self.source.get(span.clone()).unwrap_or_default().trim();
            line.push(text, Ink::QUIET, self.base + span.start);
            self.flow(&line);
        }
    }

    /// Blocks up to the end of what holds them; with blank rows between them, where they are `spaced`.
    fn blocks(&mut self, spaced: bool) {
        let mut first = true;
        while let Some((event, _)) = self.events.get(self.at) {
            if let Event::End(_) = event {
                return;
            }
            if !first && spaced {
                self.blank();
            }
            first = false;
            self.block();
        }
    }

    fn block(&mut self) {
        let Some((event, range)) = self.events.get(self.at).cloned() else {
            return;
        };
        let Event::Start(tag) = event else {
            match event {
                Event::Rule => {
                    self.at += 1;
                    let mark = self.styles.pick("─", "-").repeat(self.room());
                    let kind = Kind::Drawn(Drawn::Break);
                    self.row_at(self.base + range.start, kind, |sheet| {
                        sheet.push(&mark, Ink::QUIET)
                    });
                }
                // The text of an item of a dense list has no paragraph around it.
                _ => self.paragraph(Ink::default(), None),
            }
            return;
        };
        match tag {
            Tag::Paragraph => {
                self.at += 1;
                self.paragraph(Ink::default(), None);
                self.at += 1;
            }
            Tag::Heading { level, .. } => {
                self.at += 1;
                self.paragraph(Ink::STRONG, Some(level));
                self.at += 1;
            }
            Tag::BlockQuote(_) => {
                self.at += 1;
                let bar = self.styles.pick("│ ", "> ").to_owned();
                self.within(bar.clone(), bar, |setter| setter.blocks(true));
                self.at += 1;
            }
            Tag::CodeBlock(kind) => self.code(&kind, &range),
            Tag::List(first) => self.list(first),
            Tag::Table(alignments) => {
                let rows = self.table_rows();
                table::set(self, &rows, &alignments);
            }
            Tag::HtmlBlock => self.html(),
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. } => {
                self.paragraph(Ink::default(), None);
            }
            // What isn't switched on doesn't come; if it did, its text would be shown.
            _ => {
                self.at += 1;
                self.blocks(true);
                self.at += 1;
            }
        }
    }

    fn list(&mut self, first: Option<u64>) {
        self.at += 1;
        let items = self.items();
        let loose = items.iter().any(|(_, loose)| *loose);
        let last = first.map(|first| first.saturating_add(items.len().saturating_sub(1) as u64));
        let digits = last.map_or(0, |last| last.to_string().len());
        let mut number = first;
        let mut begun = false;
        while let Some((Event::Start(Tag::Item), range)) = self.events.get(self.at) {
            let source = self.base + range.start;
            if begun && loose {
                self.blank();
            }
            begun = true;
            let task = self.task();
            let mark = match &mut number {
                Some(number) => {
                    let mark = format!("{number:>digits$}. {}", task.unwrap_or_default());
                    *number = number.saturating_add(1);
                    mark
                }
                None if task.is_some() => task.unwrap_or_default().to_owned(),
                None => self.styles.pick("• ", "- ").to_owned(),
            };
            let rest = " ".repeat(cells::width(&mark));
            self.at += 1;
            self.within(mark, rest, |setter| {
                let before = setter.laid.sheet.rows.len();
                setter.blocks(loose);
                if setter.laid.sheet.rows.len() == before {
                    setter.row_at(source, Kind::Text, |_| {});
                }
            });
            self.at += 1;
        }
        self.at += 1;
    }

    /// The box of the item that is being read, where it is a task: open or done.
    fn task(&self) -> Option<&'static str> {
        let mut inside = self.events.get(self.at + 1..)?.iter().map(|(event, _)| event);
        let first = inside.next()?;
        let marker = match first {
            Event::Start(Tag::Paragraph) => inside.next()?,
            other => other,
        };
        match marker {
            Event::TaskListMarker(true) => Some(self.styles.pick("☑ ", "[x] ")),
            Event::TaskListMarker(false) => Some(self.styles.pick("☐ ", "[ ] ")),
            _ => None,
        }
    }

    /// The items of the list that is being read: where each begins, and whether its text is set apart.
    fn items(&self) -> Vec<(usize, bool)> {
        let mut items = Vec::new();
        let mut depth = 0;
        for (at, (event, _)) in self.events.iter().enumerate().skip(self.at) {
            match event {
                Event::Start(tag) => {
                    if depth == 0 && *tag == Tag::Item {
                        items.push((at, false));
                    }
                    if depth == 1
                        && *tag == Tag::Paragraph
                        && let Some((_, loose)) = items.last_mut()
                    {
                        *loose = true;
                    }
                    depth += 1;
                }
                Event::End(_) if depth == 0 => break,
                Event::End(_) => depth -= 1,
                _ => {}
            }
        }
        items
    }

    fn html(&mut self) {
        self.at += 1;
        while let Some((event, range)) = self.events.get(self.at).cloned() {
            self.at += 1;
            match event {
                Event::End(TagEnd::HtmlBlock) => break,
                Event::Html(text) | Event::Text(text) => {
                    let text = self.original(&text, &range).into_owned();
                    let mut at = range.start;
                    for piece in text.split_inclusive('\n') {
                        let mut line = Line::default();
                        line.push(
                            &show(piece.trim_end_matches('\n')),
                            Ink::default(),
                            self.base + at,
                        );
                        at += piece.len();
                        self.flow(&line);
                    }
                }
                _ => {}
            }
        }
    }

    fn code(&mut self, kind: &CodeBlockKind<'_>, range: &Range<usize>) {
        self.at += 1;
        let mut code = match kind {
            CodeBlockKind::Fenced(info) => {
                // It stands on the first line: what is said below may be like it.
                let block = self.source.get(range.clone()).unwrap_or_default();
                let first = block.split_inclusive('\n').next().unwrap_or_default();
                Code::new(&self.original(info, &(range.start..range.start + first.len())))
            }
            CodeBlockKind::Indented => Code::default(),
        };
        let block = self.laid.code.len();
        let mut places = Vec::new();
        while let Some((event, range)) = self.events.get(self.at).cloned() {
            self.at += 1;
            match event {
                Event::End(_) => break,
                Event::Text(text) => {
                    let mut at = range.start;
                    for piece in self.original(&text, &range).split_inclusive('\n') {
                        if code.source.is_empty() || code.source.ends_with('\n') {
                            places.push((code.source.len(), at));
                        }
                        code.source.push_str(piece);
                        at += piece.len();
                    }
                }
                _ => {}
            }
        }
        self.row_at(self.base + range.start, Kind::Head(block), |_| {});
        for (at, place) in places {
            let line = code.source[at..]
                .split('\n')
                .next()
                .unwrap_or_default()
                .to_owned();
            let number = code.push_line(&line);
            let shown = code.line(number).to_owned();
            let mut last = 0;
            for (index, part) in wrap_line(&shown, self.room()).into_iter().enumerate() {
                let spaced = part.start > last;
                last = part.end;
                let kind = Kind::Code {
                    block,
                    line: number,
                    from: part.start,
                };
                let source = self.base + place + part.start.min(line.len());
                self.row_at(source, kind, |sheet| sheet.push(&shown[part], Ink::default()));
                self.joined(index, spaced);
            }
        }
        if is_closed(kind, self.source.get(range.clone()).unwrap_or_default()) {
            let mark = self.styles.pick("─", "-").repeat(self.room());
            let source = self.base + range.end.saturating_sub(1).max(range.start);
            let kind = Kind::Drawn(Drawn::End);
            self.row_at(source, kind, |sheet| sheet.push(&mark, Ink::QUIET));
        }
        self.laid.code.push(code);
    }

    fn table_rows(&mut self) -> Vec<Vec<Line>> {
        self.at += 1;
        self.in_table = true;
        let mut rows: Vec<Vec<Line>> = Vec::new();
        while let Some((event, _)) = self.events.get(self.at).cloned() {
            match event {
                Event::Start(Tag::TableHead | Tag::TableRow) => rows.push(Vec::new()),
                Event::Start(Tag::TableCell) => {
                    self.at += 1;
                    let ink = if rows.len() > 1 {
                        Ink::default()
                    } else {
                        Ink::STRONG
                    };
                    let lines = self.inline(ink);
                    if let Some(row) = rows.last_mut() {
                        row.push(lines.into_iter().next().unwrap_or_default());
                    }
                }
                Event::End(TagEnd::Table) => {
                    self.at += 1;
                    self.in_table = false;
                    break;
                }
                _ => {}
            }
            self.at += 1;
        }
        rows
    }

    /// Text up to the end of what holds it, or to a block within that.
    fn paragraph(&mut self, ink: Ink, level: Option<HeadingLevel>) {
        let lines = self.inline(ink);
        let mark = level.map(|level| format!("{} ", "#".repeat(level as usize)));
        match mark {
            Some(mark) => {
                let rest = " ".repeat(mark.len());
                self.within(mark, rest, |setter| {
                    lines.iter().for_each(|line| setter.flow(line))
                });
            }
            None => lines.iter().for_each(|line| self.flow(line)),
        }
    }

    /// Columns that are left for text.
    pub(super) fn room(&self) -> usize {
        let taken: usize = self.margins.iter().map(|margin| cells::width(&margin.rest)).sum();
        let least = LEAST.min(self.width.div_ceil(2));
        self.width.saturating_sub(taken).max(least)
    }

    /// How the screen looks.
    pub(super) fn styles(&self) -> &'a Styles {
        self.styles
    }

    fn within(&mut self, first: String, rest: String, inner: impl FnOnce(&mut Self)) {
        self.margins.push(Margin {
            first,
            rest,
            begun: false,
        });
        inner(self);
        self.margins.pop();
    }

    /// A blank row, with the marks of the quotes that it is in.
    pub(super) fn blank(&mut self) {
        let source = self.laid.sheet.rows.last().map_or(self.floor, |row| row.source);
        self.row_at(source, Kind::Text, |_| {});
    }

    /// A row: its margin, and what `fill` puts behind it.
    pub(super) fn row_at(&mut self, source: usize, kind: Kind, fill: impl FnOnce(&mut Sheet)) {
        let mut margin = String::new();
        for part in &mut self.margins {
            margin.push_str(if part.begun { &part.rest } else { &part.first });
            part.begun = true;
        }
        // Where there is no room for all, the innermost marks are left.
        let spare = self.width - self.room().min(self.width);
        while cells::width(&margin) > spare {
            margin.remove(0);
        }
        let sheet = &mut self.laid.sheet;
        let start = sheet.text.len();
        sheet.push(&margin, Ink::QUIET);
        let content = sheet.text.len();
        fill(sheet);
        let mut end = sheet.text.len();
        if end == content && kind == Kind::Text {
            end = start + sheet.text[start..end].trim_end().len();
        }
        let last = sheet.rows.last().map_or(self.floor, |row| row.source);
        sheet.rows.push(Row {
            start,
            content: content.min(end),
            end,
            source: source.max(last).min(self.base + self.source.len()),
            kind,
            joins: None,
        });
    }

    /// Has the last row go on with the line of the row before it, unless it is the line's first.
    fn joined(&mut self, index: usize, spaced: bool) {
        if index > 0
            && let Some(row) = self.laid.sheet.rows.last_mut()
        {
            row.joins = Some(spaced);
        }
    }

    /// A line in rows.
    pub(super) fn flow(&mut self, line: &Line) {
        let mut last = 0;
        let begins = self.laid.sheet.rows.last().map_or(self.floor, |row| row.source);
        for (index, range) in wrap_line(&line.text, self.room()).into_iter().enumerate() {
            let spaced = range.start > last;
            last = range.end;
            let source = line.source_of(range.start, begins);
            self.row_at(source, Kind::Text, |sheet| {
                for (piece, ink) in line.inks(range) {
                    sheet.push(&line.text[piece], ink);
                }
            });
            self.joined(index, spaced);
        }
    }
}

/// Whether a block of code has come to its end: more of it may follow else.
fn is_closed(kind: &CodeBlockKind<'_>, text: &str) -> bool {
    if kind.is_indented() {
        return true;
    }
    let marks = |line: &str| {
        let line = line.trim_start_matches([' ', '>', '\t']);
        let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let count = mark.map_or(0, |mark| line.chars().take_while(|c| *c == mark).count());
        (mark, count, line.trim_end().chars().count())
    };
    let mut lines = text.trim_end_matches(['\n', '\r']).lines();
    // The fence that opens may stand behind a list's mark: the parser's range begins with it.
    let (open, wanted, _) = marks(lines.next().unwrap_or_default());
    let Some(last) = lines.next_back() else {
        return false;
    };
    let (mark, count, all) = marks(last);
    open.is_some() && mark == open && count >= wanted && count == all
}
