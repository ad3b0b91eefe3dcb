//! Where a text's blocks begin and end, so that each can be laid out by itself and kept.
//!
//! What is found must be the same however the text came. So nothing is closed or cut before the text up to there says that
//! it will be, whatever follows, and where reading a block by itself could find another one than reading on does, the text
//! is always read anew from there.

use std::borrow::Cow;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

use crate::text::formula::mask;

/// What is read beyond CommonMark.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS);

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

impl Sort {
    fn head(&self) -> Option<Range<usize>> {
        match self {
            Self::Table(head) => Some(head.clone()),
            Self::Code | Self::Other => None,
        }
    }

    /// Bytes from which on it is cut.
    fn limit(&self, limit: usize) -> usize {
        match self {
            Self::Code => limit.saturating_mul(CODE),
            Self::Table(_) | Self::Other => limit,
        }
    }
}

/// A text from a place on, as the parser is given it.
struct Seen<'a> {
    /// As long as the text.
    text: &'a str,
    /// Where it begins.
    from: usize,
    /// Behind what is sure: each line before it is of the block that it is of now, whatever follows.
    settled: usize,
}

impl Seen<'_> {
    fn part(&self, range: Range<usize>) -> &str {
        let at = |place: usize| place.saturating_sub(self.from).min(self.text.len());
        &self.text[at(range.start)..at(range.end).max(at(range.start))]
    }
}

/// Between a label and its address.
const NAMED: &str = "]:";
/// How many times its limit a block of code may take before it is cut.
const CODE: usize = 16;
/// How many times the limit is read at once: more than any block that isn't cut, apart from code and blank lines.
const WINDOW: usize = 4;

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
    // A piece has a character at least.
    let limit = limit.max(4);
    let (mut at, mut times) = (from, WINDOW);
    while at < text.len() {
        // However much there is, only so much of it is read for a block, so that a long text is read once in all.
        let end = at.saturating_add(limit.saturating_mul(times)).min(text.len());
        let window = &text[..text.floor_char_boundary(end)];
        *read += window.len() - at;
        let open = window.len() == text.len();
        match read_on(window, (at, head.as_ref()), limit, open, &mut out) {
            Some(next) => {
                (at, times) = (next, WINDOW);
                head = out.last().and_then(Block::goes_on);
            }
            None if open => break,
            None => times = times.saturating_mul(WINDOW),
        }
    }
    out
}

/// Adds the blocks that are sure, and with `open` the others, too. Says where to read on: where what comes next has to be
/// read by itself, else, without `open`, behind the blocks that are sure if there is any.
fn read_on(
    text: &str,
    (from, head): (usize, Option<&Range<usize>>),
    limit: usize,
    open: bool,
    out: &mut Vec<Block>,
) -> Option<usize> {
    let above = head.map_or("", |head| &text[head.clone()]);
    let (lines, settled) = lines_of(&text[from..], limit);
    let whole = under(above, &lines);
    let masked = mask(&whole);
    let seen = Seen {
        text: &masked.text[above.len()..],
        from,
        settled: from + settled,
    };
    let place = |at: usize| from + at.saturating_sub(above.len());
    let in_formula = |end: usize| {
        let within = |range: &Range<usize>| place(range.start) < end && end < place(range.end);
        masked.displays.iter().any(within)
    };
    let known = outermost(&masked.text, &seen, (above.len(), head));
    let mut done = from;
    for (index, (source, sort)) in known.iter().enumerate() {
        if let Some(end) = cut_of(text, &seen, source, sort.limit(limit)) {
            let head = sort.head();
            // A row that is cut itself doesn't go on as one.
            let between = text[..end].ends_with('\n') && end >= head.as_ref().map_or(0, |head| head.end);
            out.push(Block {
                source: source.start..end,
                open: false,
                cut: true,
                head: head.filter(|_| between),
            });
            return Some(end);
        }
        let names = *sort != Sort::Code && seen.part(source.clone()).contains(NAMED);
        if !is_closed(&seen, source, names) {
            if open {
                out.extend(
                    known[index..]
                        .iter()
                        .map(|(source, sort)| left_open(source, sort)),
                );
                return None;
            }
            break;
        }
        done = source.end;
        out.push(Block {
            open: false,
            ..left_open(source, sort)
        });
        // Behind the address of a label, and within a formula, a line is read in another way than by itself.
        if names || in_formula(done) {
            return Some(done);
        }
    }
    (done > from).then_some(done)
}

/// A block that isn't cut, and may grow.
fn left_open(source: &Range<usize>, sort: &Sort) -> Block {
    Block {
        source: source.clone(),
        open: true,
        cut: false,
        head: sort.head().filter(|head| head.end <= source.start),
    }
}

/// Lines as they are read, and behind which of them all is sure: of two lines at the end nothing is, since a line may yet
/// make a heading or a table of the one before. A line that is longer than the limit is cut wherever it stands, and must
/// not say another thing when more of it is there: it is read as plain text, and is sure.
fn lines_of(text: &str, limit: usize) -> (Cow<'_, str>, usize) {
    let mut out = String::new();
    let (mut at, mut settled) = (0, 0);
    for line in text.split_inclusive('\n') {
        let body = line.strip_suffix('\n').unwrap_or(line);
        let body = body.strip_suffix('\r').unwrap_or(body);
        let next = at + line.len();
        if body.len() > limit {
            let blanks = body.len() - body.trim_start_matches([' ', '\t']).len();
            let kept = blanks.min(limit);
            out.push_str(&text[out.len()..at + kept]);
            out.extend(std::iter::repeat_n('x', body.len() - kept));
            // A `\r` at the text's end may yet be of the line's end.
            settled = if line.ends_with('\n') {
                next
            } else {
                at + body.len()
            };
        } else if line.ends_with('\n') {
            settled = at;
        }
        at = next;
    }
    if out.is_empty() {
        return (text.into(), settled);
    }
    out.push_str(&text[out.len()..]);
    (out.into(), settled)
}

/// All blocks on the outermost level, one behind the other; what is left at the end is one, too.
fn outermost(
    masked: &str,
    seen: &Seen<'_>,
    (above, head): (usize, Option<&Range<usize>>),
) -> Vec<(Range<usize>, Sort)> {
    let place = |at: usize| seen.from + at.saturating_sub(above);
    let end_of_text = seen.from + seen.text.len();
    let mut known: Vec<(Range<usize>, Sort)> = Vec::new();
    let mut start = seen.from;
    let (mut depth, mut in_list) = (0, false);
    for (event, range) in Parser::new_ext(masked, OPTIONS).into_offset_iter() {
        let begins = place(range.start);
        let first = seen.part(start..begins).trim().is_empty();
        in_list &= depth > 0;
        let found = match (depth, &event) {
            // A list is as long as its items: to the parser, an address behind it may belong to it.
            (0, Event::Start(Tag::List(_))) => None,
            (0, Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_)))) if first => Some(Sort::Code),
            (0, Event::Start(Tag::Table(_))) if range.start < above => {
                Some(Sort::Table(head.cloned().unwrap_or_default()))
            }
            (0, Event::Start(Tag::Table(_))) if first => {
                let rows = seen.part(begins..end_of_text);
                Some(Sort::Table(begins..begins + two_lines(rows)))
            }
            (0, _) | (1, Event::Start(Tag::Item)) => Some(Sort::Other),
            _ => None,
        };
        let end = |sort: &Sort| {
            let source = seen.part(start..place(range.end));
            // Blank lines behind what isn't code are of what comes next: whether they are of it turns out with that.
            let body = match sort {
                Sort::Code => source.len(),
                Sort::Table(_) | Sort::Other => source.trim_end().len(),
            };
            seen.from + line_end(seen.text, start + body - seen.from)
        };
        if let Some(sort) = found
            && let end = end(&sort)
            && end > start
        {
            match known.last_mut() {
                Some((source, _)) if in_list => source.end = end,
                _ => known.push((start..end, sort)),
            }
            in_list = depth == 1;
            start = end;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    if start < end_of_text {
        known.push((start..end_of_text, Sort::Other));
    }
    known
}

/// Whether a block is over: something of another stands behind it, in a line that is sure. What `names` an address ends
/// with a blank line, as a title may yet follow that takes what looked like blocks with it.
fn is_closed(seen: &Seen<'_>, source: &Range<usize>, names: bool) -> bool {
    let is_blank = |text: &str| text.trim().is_empty();
    if is_blank(seen.part(source.end..seen.settled)) {
        return false;
    }
    let body = source.start + seen.part(source.clone()).trim_end().len();
    let mut behind = seen.part(body..seen.settled).split_inclusive('\n').skip(1);
    !names || behind.any(is_blank)
}

/// Where a block that is too long is cut: at the end of a line of the outermost level, else of a word.
fn cut_of(text: &str, seen: &Seen<'_>, source: &Range<usize>, limit: usize) -> Option<usize> {
    // Blank lines at its end are of it only if more of it stands behind them.
    let sure = seen.part(source.start..source.end.min(seen.settled)).trim_end();
    let body = sure.trim_start().len();
    if body <= limit {
        return None;
    }
    let first = source.start + sure.len() - body;
    let text = &text[first..];
    let window = &text[..text.floor_char_boundary(limit)];
    let outermost = window.match_indices('\n').rev().find(|(at, _)| {
        let next = &text[at + 1..];
        *at > limit / 2 && !next.starts_with([' ', '\t', '\n', '\r'])
    });
    let word = || window.rfind(' ').filter(|at| *at > limit / 2);
    let end = outermost
        .map(|(at, _)| at)
        .or_else(word)
        .map_or(window.len(), |at| at + 1);
    Some(first + end)
}

/// A text below the head of the table that it goes on with.
pub(super) fn under<'a>(head: &str, text: &'a str) -> Cow<'a, str> {
    match head {
        "" => text.into(),
        head => format!("{head}{text}").into(),
    }
}

/// Bytes of two lines.
fn two_lines(text: &str) -> usize {
    text.split_inclusive('\n').take(2).map(str::len).sum()
}

/// Behind the line that holds the byte before `at`.
fn line_end(text: &str, at: usize) -> usize {
    if at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n') {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |end| at + end + 1)
}

#[cfg(test)]
mod tests;
