//! Where a text's blocks begin and end, so that each can be laid out by itself and kept.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

use super::maths::mask;

/// What is read beyond CommonMark.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH);

/// A block on the outermost level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// From the block before on, through its last line.
    pub source: Range<usize>,
    /// Whether more text may still make another block of it.
    pub open: bool,
    /// Whether it was cut since it is too long: what follows belongs to it.
    pub cut: bool,
    /// Of a table in pieces: its head, two lines that a later piece has nowhere in its own source.
    pub head: Option<Range<usize>>,
}

impl Block {
    /// The head of the table of which it is a later piece.
    pub fn continues(&self) -> Option<Range<usize>> {
        self.head.clone().filter(|head| head.end <= self.source.start)
    }

    /// Whether it is laid out as another one.
    pub fn is_same(&self, other: &Self) -> bool {
        self.source == other.source && self.continues() == other.continues()
    }

    /// The head of the table that goes on behind it.
    pub fn goes_on(&self) -> Option<Range<usize>> {
        self.head.clone().filter(|_| self.cut)
    }
}

/// What a block is, as far as that says how it is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sort {
    Code,
    /// A table, with its head.
    Table(Range<usize>),
    Other,
}

/// A block that was read: where its text begins, its source, what it is.
type Known = (usize, Range<usize>, Sort);

/// How many times its limit a block of code may take before it is cut.
const CODE: usize = 16;
/// How many times the limit is read at once: more than any block that isn't cut, apart from code.
const WINDOW: usize = 4;

/// How it goes on.
enum Next {
    /// There is no more.
    Done,
    /// From here.
    At(usize),
    /// From the same place, with more text to look at.
    More,
}

/// The blocks of `text` from `from` on, which is where a block begins, or the table with this `head` goes on. One that is
/// longer than `limit` bytes is cut. `read` grows by the bytes that were read for them.
pub(super) fn blocks(
    text: &str,
    from: usize,
    mut head: Option<Range<usize>>,
    limit: usize,
    read: &mut usize,
) -> Vec<Block> {
    let mut out: Vec<Block> = Vec::new();
    // Only what stands on whole lines, and one line further on, is sure: the next line may make a table of a line.
    let before = |end: usize| text[..end].rfind('\n');
    let settled = before(text.len()).and_then(before).map_or(0, |end| end + 1);
    let (mut at, mut times) = (from, WINDOW);
    while at < text.len() {
        // However much there is, only so much of it is read for a block, so that a long text is read once in all.
        let end = at
            .saturating_add(limit.max(4).saturating_mul(times))
            .min(text.len());
        let window = &text[..text.floor_char_boundary(end)];
        *read += window.len() - at;
        let sure = (settled, window.len() == text.len());
        match blocks_to_cut(window, (at, head.as_ref()), limit, sure, &mut out) {
            Next::Done => break,
            Next::At(next) => {
                (at, times) = (next, WINDOW);
                head = out.last().and_then(Block::goes_on);
            }
            Next::More => times *= CODE,
        }
    }
    out
}

/// Adds blocks up to one that has to be cut, which it ends. Where the text isn't `whole`, its last block is left for the
/// next time, which begins there.
fn blocks_to_cut(
    text: &str,
    (from, head): (usize, Option<&Range<usize>>),
    limit: usize,
    (settled, whole): (usize, bool),
    out: &mut Vec<Block>,
) -> Next {
    let above = head.map_or("", |head| &text[head.clone()]);
    let whole_source = under(above, &text[from..]);
    let masked = mask(&whole_source);
    let place = |at: usize| from + at.saturating_sub(above.len());
    let mut start = from;
    let mut depth = 0;
    let mut known: Vec<Known> = Vec::new();
    for (event, range) in Parser::new_ext(&masked.text, OPTIONS).into_offset_iter() {
        if depth == 0 && !matches!(event, Event::End(_)) {
            let (begins, end) = (place(range.start), line_end(text, place(range.end)));
            let first = text[start..begins.max(start)].trim().is_empty();
            let sort = match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) if first => Sort::Code,
                Event::Start(Tag::Table(_)) if range.start < above.len() => {
                    Sort::Table(head.cloned().unwrap_or_default())
                }
                Event::Start(Tag::Table(_)) => Sort::Table(begins..two_lines(text, begins)),
                _ => Sort::Other,
            };
            if end > start {
                known.push((begins, start..end, sort));
                start = end;
            }
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    if start < text.len() {
        known.push((start, start..text.len(), Sort::Other));
    }
    // All of it is one block, of code, which may be longer.
    if let ([(_, source, Sort::Code)], false) = (&known[..], whole)
        && source.len() <= limit.saturating_mul(CODE)
    {
        return Next::More;
    }
    let rest = if whole || known.len() < 2 {
        None
    } else {
        known.pop()
    };
    for (index, (_, source, sort)) in known.iter().enumerate() {
        let limit = match sort {
            Sort::Code => limit.saturating_mul(CODE),
            Sort::Table(_) | Sort::Other => limit,
        };
        let head = match sort {
            Sort::Table(head) => Some(head.clone()),
            Sort::Code | Sort::Other => None,
        };
        if let Some(end) = cut_of(text, source, limit, settled) {
            // A row that is cut itself doesn't go on as one.
            let between = text[..end].ends_with('\n') && end >= source_of_rows(&head);
            out.push(Block {
                source: source.start..end,
                open: false,
                cut: true,
                head: head.filter(|_| between),
            });
            return Next::At(end);
        }
        let next = known.get(index + 1).or(rest.as_ref()).map(|(begins, ..)| *begins);
        out.push(Block {
            source: source.clone(),
            open: next.is_none_or(|next| next >= settled),
            cut: false,
            head: head.filter(|head| head.end <= source.start),
        });
    }
    rest.map_or(Next::Done, |(_, source, _)| Next::At(source.start))
}

/// Where a block that is too long is cut: at the end of a line of the outermost level, else of a word.
fn cut_of(text: &str, source: &Range<usize>, limit: usize, settled: usize) -> Option<usize> {
    let first = source.start + leading(&text[source.clone()]);
    let first_line = text[first..source.end].find('\n');
    let first_line = first_line.map_or(source.end, |end| first + end + 1);
    // The block's last lines may yet turn out to be of another.
    let sure = first_line.max(settled.min(source.end)).min(source.end);
    if sure - source.start <= limit {
        return None;
    }
    let window = &text[source.start..text.floor_char_boundary(source.start + limit)];
    let outermost = window.match_indices('\n').rev().find(|(at, _)| {
        let next = &text[source.start + at + 1..];
        *at > limit / 2 && !next.starts_with([' ', '\t', '\n', '\r'])
    });
    let word = || window.rfind(' ').filter(|at| *at > limit / 2);
    let end = outermost
        .map(|(at, _)| at)
        .or_else(word)
        .map_or(window.len(), |at| at + 1);
    (end > 0).then_some(source.start + end)
}

/// A text below the head of the table that it goes on with.
pub(super) fn under<'a>(head: &str, text: &'a str) -> Cow<'a, str> {
    match head {
        "" => text.into(),
        head => format!("{head}{text}").into(),
    }
}

/// Behind a table's head.
fn source_of_rows(head: &Option<Range<usize>>) -> usize {
    head.as_ref().map_or(0, |head| head.end)
}

/// Behind the line that a place is in, and the one after it.
fn two_lines(text: &str, at: usize) -> usize {
    let lines = text[at..].split_inclusive('\n').take(2);
    at + lines.map(str::len).sum::<usize>()
}

/// Bytes of blank lines at the beginning.
fn leading(text: &str) -> usize {
    let body = text.trim_start();
    text.len() - body.len()
}

/// Behind the line that holds the byte before `at`.
fn line_end(text: &str, at: usize) -> usize {
    if at > 0 && text.as_bytes().get(at - 1) == Some(&b'\n') {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}
