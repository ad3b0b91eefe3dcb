//! Text with its looks, and rows of it: what a block is laid out into.

use std::ops::Range;

use crate::ui::sanitize::sanitize;

/// How a piece of text is meant; [`crate::ui::styles::Styles::ink`] says how that looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ink {
    /// Stands out: strong text, headings, a table's head.
    pub strong: bool,
    /// Emphasized.
    pub emphasis: bool,
    /// Struck out.
    pub struck: bool,
    /// Code.
    pub code: bool,
    /// Leads somewhere.
    pub link: bool,
    /// Stands back: marks of lists and quotes, addresses, lines.
    pub quiet: bool,
}

impl Ink {
    /// What stands back.
    pub const QUIET: Self = Self {
        strong: false,
        emphasis: false,
        struck: false,
        code: false,
        link: false,
        quiet: true,
    };
    /// What stands out.
    pub const STRONG: Self = Self {
        strong: true,
        emphasis: false,
        struck: false,
        code: false,
        link: false,
        quiet: false,
    };
}

/// A line before it is wrapped: text made safe, how it is meant, and where in the source it comes from.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    pub text: String,
    runs: Vec<(usize, Ink)>,
    /// Places in the text, each with its place in the source; both grow.
    anchors: Vec<(usize, usize)>,
}

impl Line {
    /// Appends a piece that comes from a place of the source.
    pub fn push(&mut self, text: &str, ink: Ink, source: usize) {
        if text.is_empty() {
            return;
        }
        self.anchors.push((self.text.len(), source));
        let clean = sanitize(text);
        if clean.contains(['\n', '\t']) {
            self.text.push_str(&clean.replace(['\n', '\t'], " "));
        } else {
            self.text.push_str(&clean);
        }
        push_run(&mut self.runs, self.text.len(), ink);
    }

    /// Appends another line.
    pub fn extend(&mut self, other: &Self) {
        let base = self.text.len();
        self.text.push_str(&other.text);
        for (end, ink) in &other.runs {
            push_run(&mut self.runs, base + end, *ink);
        }
        let anchors = other.anchors.iter();
        self.anchors
            .extend(anchors.map(|(text, source)| (base + text, *source)));
    }

    /// Whether there is nothing to see.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Where in the source a place comes from, or where something near it does.
    pub fn source_of(&self, at: usize, otherwise: usize) -> usize {
        let before = self.anchors.partition_point(|(text, _)| *text <= at);
        match before.checked_sub(1).and_then(|index| self.anchors.get(index)) {
            Some((text, source)) => {
                let next = self.anchors.get(before).map_or(usize::MAX, |(_, source)| *source);
                source.saturating_add(at - text).min(next.max(*source))
            }
            None => otherwise,
        }
    }

    /// The looks within a range, in order.
    pub fn inks(&self, range: Range<usize>) -> impl Iterator<Item = (Range<usize>, Ink)> {
        inks(&self.runs, range)
    }
}

/// Adds the end of a piece; neighbours of one look are one.
fn push_run(runs: &mut Vec<(usize, Ink)>, end: usize, ink: Ink) {
    match runs.last_mut() {
        Some((last, of)) if *of == ink => *last = end,
        _ => runs.push((end, ink)),
    }
}

fn inks(runs: &[(usize, Ink)], range: Range<usize>) -> impl Iterator<Item = (Range<usize>, Ink)> {
    let first = runs.partition_point(|(end, _)| *end <= range.start);
    let mut start = range.start;
    runs[first..].iter().map_while(move |(end, ink)| {
        let piece = start..(*end).min(range.end);
        start = piece.end;
        (!piece.is_empty()).then_some((piece, *ink))
    })
}

/// What a row of a sheet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text in its looks.
    Text,
    /// The line above a block of code, which is written when it is painted.
    Head(usize),
    /// Code: which block's, which of its lines, and where in that line it begins.
    Code { block: usize, line: usize, from: usize },
    /// Text with lines that are drawn.
    Drawn(Drawn),
}

/// Lines that are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drawn {
    /// The one below a block of code.
    End,
    /// One that parts what is above it from what is below.
    Break,
    /// Those between cells of a table.
    Cells,
    /// The one below a table's head.
    Head,
}

/// A row: a piece of the sheet's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub start: usize,
    /// Behind the marks of lists and quotes.
    pub content: usize,
    pub end: usize,
    pub source: usize,
    pub kind: Kind,
    /// Whether it goes on with the line of the row before, and whether a space stood between.
    pub joins: Option<bool>,
}

/// Rows with their text and looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sheet {
    pub text: String,
    runs: Vec<(usize, Ink)>,
    pub rows: Vec<Row>,
}

impl Sheet {
    /// Appends text to the row in the making.
    pub fn push(&mut self, text: &str, ink: Ink) {
        if !text.is_empty() {
            self.text.push_str(text);
            push_run(&mut self.runs, self.text.len(), ink);
        }
    }

    /// A row's pieces with their looks.
    pub fn pieces(&self, row: &Row) -> impl Iterator<Item = (&str, Ink)> {
        inks(&self.runs, row.start..row.end).map(|(range, ink)| (&self.text[range], ink))
    }
}
