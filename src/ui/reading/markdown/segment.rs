//! Where a text's blocks begin and end, so that each can be laid out by itself and kept.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

use super::maths::mask;

/// What is read beyond CommonMark.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES;

/// A block on the outermost level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// From the block before on, through its last line.
    pub source: Range<usize>,
    /// Whether more text may still make another block of it.
    pub open: bool,
    /// Whether it was cut since it is too long: what follows belongs to it.
    pub cut: bool,
}

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

/// The blocks of `text` from `from` on, which is where a block begins. One that is longer than `limit` bytes is cut.
/// `read` grows by the bytes that were read for them.
pub(super) fn blocks(text: &str, from: usize, limit: usize, read: &mut usize) -> Vec<Block> {
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
        match blocks_to_cut(window, at, limit, (settled, window.len() == text.len()), &mut out) {
            Next::Done => break,
            Next::At(next) => (at, times) = (next, WINDOW),
            Next::More => times *= CODE,
        }
    }
    out
}

/// Adds blocks up to one that has to be cut, which it ends. Where the text isn't `whole`, its last block is left for the
/// next time, which begins there.
fn blocks_to_cut(
    text: &str,
    from: usize,
    limit: usize,
    (settled, whole): (usize, bool),
    out: &mut Vec<Block>,
) -> Next {
    let masked = mask(&text[from..]);
    let mut start = from;
    let mut depth = 0;
    let mut known: Vec<(usize, Range<usize>, bool)> = Vec::new();
    for (event, range) in Parser::new_ext(&masked.text, OPTIONS).into_offset_iter() {
        if depth == 0 && !matches!(event, Event::End(_)) {
            let end = line_end(text, from + range.end);
            let fenced = matches!(event, Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))));
            let code = fenced && text[start..(from + range.start).max(start)].trim().is_empty();
            if end > start {
                known.push((from + range.start, start..end, code));
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
        known.push((start, start..text.len(), false));
    }
    // All of it is one block, of code, which may be longer.
    if let ([(_, source, true)], false) = (&known[..], whole)
        && source.len() <= limit.saturating_mul(CODE)
    {
        return Next::More;
    }
    let rest = if whole || known.len() < 2 {
        None
    } else {
        known.pop()
    };
    for (index, (_, source, code)) in known.iter().enumerate() {
        let limit = if *code { limit.saturating_mul(CODE) } else { limit };
        if let Some(end) = cut_of(text, source, limit, settled) {
            out.push(Block {
                source: source.start..end,
                open: false,
                cut: true,
            });
            return Next::At(end);
        }
        let next = known.get(index + 1).or(rest.as_ref()).map(|(begins, ..)| *begins);
        out.push(Block {
            source: source.clone(),
            open: next.is_none_or(|next| next >= settled),
            cut: false,
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
