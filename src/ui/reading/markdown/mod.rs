//! Answers as Markdown, in rows: CommonMark and tables, laid out block by block.
//!
//! A block that nothing can change any more is kept as it is laid out, so that a token costs the last block alone; what
//! is drawn of a text that streams is what is drawn of as much text at once. Model text is untrusted: HTML is shown as
//! text, addresses are shown and never followed, and everything is made safe on its way to a row.

mod code;
mod ink;
mod layout;
mod segment;
mod table;

use std::collections::BTreeMap;
use std::ops::Range;

pub use code::{Code, chain};
use ink::Sheet;
pub use ink::{Drawn, Ink};
use layout::Laid;
use segment::Block;

use crate::ui::styles::Styles;
use crate::ui::wrap::Place;

/// Bytes from which on a block is cut, so that none takes too long.
const LIMIT: usize = 16 << 10;

/// A block in rows.
#[derive(Debug, Clone)]
struct Segment {
    block: Block,
    /// Blank rows before it.
    lead: usize,
    laid: Laid,
}

impl Segment {
    fn rows(&self) -> usize {
        self.lead + self.laid.sheet.rows.len()
    }
}

/// What a row is, for who paints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind<'a> {
    /// Text, which [`Row::pieces`] give.
    Text,
    /// The line above a block of code, which has no text but its margin: the block's number, from 0.
    Head(usize, &'a Code),
    /// A piece of a line of code.
    Code {
        /// The block.
        code: &'a Code,
        /// The line's number, from 0.
        line: usize,
        /// Where in the line it begins.
        from: usize,
    },
}

/// A row to paint or to search.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    sheet: Option<(&'a Sheet, &'a ink::Row)>,
    /// What it is.
    pub kind: Kind<'a>,
}

impl<'a> Row<'a> {
    /// The whole row.
    pub fn text(&self) -> &'a str {
        self.sheet
            .map_or("", |(sheet, row)| &sheet.text[row.start..row.end])
    }

    /// Bytes of it that are marks of lists and quotes.
    pub fn margin(&self) -> usize {
        self.sheet.map_or(0, |(_, row)| row.content - row.start)
    }

    /// Whether it goes on with the line of the row before, and then whether a space stood between.
    pub fn joins(&self) -> Option<bool> {
        self.sheet.and_then(|(_, row)| row.joins)
    }

    /// Which lines of it are drawn.
    pub fn drawn(&self) -> Option<Drawn> {
        match self.sheet?.1.kind {
            ink::Kind::Drawn(drawn) => Some(drawn),
            ink::Kind::Text | ink::Kind::Head(_) | ink::Kind::Code { .. } => None,
        }
    }

    /// Its pieces with their looks.
    pub fn pieces(&self) -> impl Iterator<Item = (&'a str, Ink)> {
        self.sheet.into_iter().flat_map(|(sheet, row)| sheet.pieces(row))
    }
}

/// A Markdown text wrapped to a width; grows cheaply when text is appended.
#[derive(Debug, Clone)]
pub struct Document {
    width: usize,
    limit: usize,
    styles: Styles,
    segments: Vec<Segment>,
    /// For each segment, the row and the number of the block of code behind it.
    ends: Vec<(usize, usize)>,
    source_len: usize,
    /// What labels stand for.
    addresses: BTreeMap<String, String>,
    laid: usize,
    read: usize,
}

impl Document {
    /// Lays `source` out in `width` cells (at least 1).
    pub fn new(source: &str, width: usize, styles: &Styles) -> Self {
        Self::with_limit(source, width, styles, LIMIT)
    }

    /// The same with another length from which on blocks are cut, in bytes.
    pub fn with_limit(source: &str, width: usize, styles: &Styles, limit: usize) -> Self {
        let mut document = Self {
            width: width.max(1),
            limit: limit.max(1),
            styles: *styles,
            segments: Vec::new(),
            ends: Vec::new(),
            source_len: 0,
            addresses: BTreeMap::new(),
            laid: 0,
            read: 0,
        };
        document.append(source);
        document
    }

    /// Bytes of the source that are laid out.
    pub fn source_len(&self) -> usize {
        self.source_len
    }

    /// How often a block was laid out so far.
    pub fn laid_out(&self) -> usize {
        self.laid
    }

    /// Bytes that were read so far to find blocks.
    pub fn bytes_read(&self) -> usize {
        self.read
    }

    /// Takes a source that begins with the text laid out so far; blocks that are sure are left alone.
    pub fn append(&mut self, source: &str) {
        if source.len() <= self.source_len {
            return;
        }
        let kept = self
            .segments
            .iter()
            .take_while(|segment| !segment.block.open)
            .count();
        let mut old = self.segments.split_off(kept).into_iter().peekable();
        let last = self.segments.last().map(|segment| &segment.block);
        let from = last.map_or(0, |block| block.source.end);
        let head = last.and_then(Block::goes_on);
        let mut defines = false;
        for block in segment::blocks(source, from, head, self.limit, &mut self.read) {
            while let Some(gone) = old.next_if(|old| old.block.source.start < block.source.start) {
                defines |= !gone.laid.definitions.is_empty();
            }
            let known = old.next_if(|old| old.block.is_same(&block));
            let laid = match known {
                Some(known) => known.laid,
                None => self.lay_out(source, &block),
            };
            defines |= !laid.definitions.is_empty();
            self.segments.push(Segment { block, lead: 0, laid });
        }
        defines |= old.any(|gone| !gone.laid.definitions.is_empty());
        self.source_len = source.len();
        let first = if defines && self.readdress(source) {
            0
        } else {
            kept
        };
        self.count(first);
    }

    fn lay_out(&mut self, source: &str, block: &Block) -> Laid {
        self.laid += 1;
        let address = |label: &str| self.addresses.get(label).cloned();
        let part = |range: Range<usize>| source.get(range).unwrap_or_default();
        let head = block.continues().map_or("", part);
        let start = block.source.start;
        let text = segment::under(head, part(block.source.clone()));
        let places = (start.saturating_sub(head.len()), start);
        layout::lay_out(&text, places, self.width, &self.styles, address)
    }

    /// Looks up what labels stand for; where that has changed, lays out anew what names any.
    fn readdress(&mut self, source: &str) -> bool {
        let mut addresses = BTreeMap::new();
        for (label, to) in self.segments.iter().flat_map(|segment| &segment.laid.definitions) {
            addresses.entry(label.clone()).or_insert_with(|| to.clone());
        }
        if addresses == self.addresses {
            return false;
        }
        self.addresses = addresses;
        for at in 0..self.segments.len() {
            if self.segments[at].laid.asks {
                let block = self.segments[at].block.clone();
                self.segments[at].laid = self.lay_out(source, &block);
            }
        }
        true
    }

    /// Counts rows and blocks of code from a segment on.
    fn count(&mut self, first: usize) {
        self.ends.truncate(first);
        for at in first..self.segments.len() {
            let (rows, code) = self.ends.last().copied().unwrap_or_default();
            let cut = at
                .checked_sub(1)
                .is_some_and(|before| self.segments[before].block.cut);
            let segment = &mut self.segments[at];
            // A later piece of a table has its head once more, and stands apart.
            let joins = cut && segment.block.continues().is_none();
            segment.lead = usize::from(rows > 0 && !joins && !segment.laid.sheet.rows.is_empty());
            self.ends
                .push((rows + segment.rows(), code + segment.laid.code.len()));
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ends.last().map_or(0, |(rows, _)| *rows)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The blocks of code, in order.
    pub fn code(&self) -> impl DoubleEndedIterator<Item = &Code> {
        self.segments.iter().flat_map(|segment| &segment.laid.code)
    }

    /// How many blocks of code there are.
    pub fn code_len(&self) -> usize {
        self.ends.last().map_or(0, |(_, code)| *code)
    }

    /// A segment by its number, with the row and block of code that it begins with.
    fn segment(&self, at: usize) -> Option<(&Segment, usize, usize)> {
        let (row, code) = at
            .checked_sub(1)
            .and_then(|before| self.ends.get(before))
            .copied()
            .unwrap_or_default();
        Some((self.segments.get(at)?, row, code))
    }

    /// A row, if there is such a row.
    pub fn row(&self, at: usize) -> Option<Row<'_>> {
        let (segment, start, numbered) = self.segment(self.ends.partition_point(|(end, _)| *end <= at))?;
        let Some(at) = (at - start).checked_sub(segment.lead) else {
            return Some(Row {
                sheet: None,
                kind: Kind::Text,
            });
        };
        let row = segment.laid.sheet.rows.get(at)?;
        let code = |block: usize| segment.laid.code.get(block);
        let kind = match row.kind {
            ink::Kind::Text | ink::Kind::Drawn(_) => Kind::Text,
            ink::Kind::Head(block) => Kind::Head(numbered + block, code(block)?),
            ink::Kind::Code { block, line, from } => Kind::Code {
                code: code(block)?,
                line,
                from,
            },
        };
        Some(Row {
            sheet: Some((&segment.laid.sheet, row)),
            kind,
        })
    }

    /// Where in the source a row comes from; rows follow the source.
    fn source_of(&self, at: usize) -> usize {
        let Some((segment, start, _)) = self.segment(self.ends.partition_point(|(end, _)| *end <= at)) else {
            return self.source_len;
        };
        let row = (at - start).checked_sub(segment.lead);
        let row = row.and_then(|at| segment.laid.sheet.rows.get(at));
        row.map_or(segment.block.source.start, |row| row.source)
    }

    /// The place of a row: stays the same while text is appended, and finds it in another width.
    pub fn place_of(&self, at: usize) -> Place {
        let source = self.source_of(at);
        let same = (0..at)
            .rev()
            .take_while(|before| self.source_of(*before) == source);
        Place {
            at: source,
            nth: same.count(),
        }
    }

    /// The row of a place.
    pub fn row_of(&self, place: Place) -> usize {
        let segment = self
            .segments
            .partition_point(|segment| segment.block.source.start <= place.at);
        let Some((segment, start, _)) = segment.checked_sub(1).and_then(|at| self.segment(at)) else {
            return 0;
        };
        let rows = &segment.laid.sheet.rows;
        let behind = start + segment.lead + rows.partition_point(|row| row.source <= place.at);
        let last = behind.saturating_sub(1).min(self.len().saturating_sub(1));
        if self.source_of(last) != place.at {
            return last;
        }
        let first = (0..last)
            .rev()
            .take_while(|before| self.source_of(*before) == place.at);
        (last - first.count() + place.nth).min(last)
    }
}
