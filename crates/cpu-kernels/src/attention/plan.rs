//! How a call's work is cut into pieces, the largest first.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Attention, BLOCK, PANEL_POSITIONS, Row};
use crate::Isa;

/// Register tiles of the largest item: they share what they read of keys and values in the second-level cache.
const MOST_TILES: usize = 8;

/// Rows of the largest item.
pub(super) const MOST_ROWS: usize = MOST_TILES * 12;

/// Pieces for each thread that there should be, so that all get done at about the same time.
const PIECES: usize = 4;

/// What reading a position costs, in rows that are multiplied with it.
const READ_COST: usize = 4;

/// Queries of one row that share a key head, over a range of blocks.
#[derive(Debug)]
pub(super) struct Item {
    /// Which segment.
    pub row: usize,
    /// Which head of keys and values.
    pub head: usize,
    /// Pairs of a token and one of the query heads that share the key head: `token · group + query head`.
    pub pairs: Range<usize>,
    pub blocks: Range<usize>,
    /// It writes the segment's keys and values of its head first: nobody else needs them.
    pub writes: bool,
    /// Where the blocks' partial results go, if they are merged later.
    pub partials: Option<usize>,
    cost: usize,
}

/// Positions of a segment whose keys and values are written at once: those of one panel.
#[derive(Debug)]
pub(super) struct Write {
    pub row: usize,
    /// Counted from the segment's first token.
    pub tokens: Range<usize>,
}

/// Partial results that are merged.
#[derive(Debug)]
pub(super) struct Merge {
    pub row: usize,
    pub head: usize,
    pub pairs: Range<usize>,
    pub blocks: usize,
    pub partials: usize,
}

/// All pieces of a call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// What is written before anything else is done.
    pub writes: Vec<Write>,
    pub items: Vec<Item>,
    pub merges: Vec<Merge>,
    /// What goes from floats to codes when all else is done.
    pub stores: Vec<Write>,
    /// Floats of all partial results.
    pub partials: usize,
}

/// Floats of a block's partial result for some pairs: maxima and sums `[16]` each, then values.
pub(super) fn partial_floats(pairs: usize, value_stride: usize) -> usize {
    32 + pairs * value_stride
}

/// A segment's tokens, those of each panel by themselves.
fn by_panels(to: &mut Vec<Write>, index: usize, row: &Row<'_>) {
    let mut token = 0;
    while token < row.tokens {
        let left = PANEL_POSITIONS - (row.start + token) % PANEL_POSITIONS;
        let end = (token + left).min(row.tokens);
        to.push(Write {
            row: index,
            tokens: token..end,
        });
        token = end;
    }
}

/// A run of pairs of one segment, as yet for any head.
struct Part {
    pairs: Range<usize>,
    blocks: Range<usize>,
    cost: usize,
}

impl Plan {
    pub(super) fn make(&mut self, isa: Isa, threads: usize, attention: &Attention<'_>, rows: &[Row<'_>]) {
        self.writes.clear();
        self.items.clear();
        self.merges.clear();
        self.stores.clear();
        self.partials = 0;
        let (heads, group) = (attention.kv.heads, attention.heads / attention.kv.heads);
        let tile = isa.tile_rows();
        let tiles: usize = rows.iter().map(|row| (row.tokens * group).div_ceil(tile)).sum();
        let item_rows = (tiles * heads / (threads * PIECES * 2)).clamp(1, MOST_TILES) * tile;
        let parts = |row: &Row<'_>| (row.tokens * group).div_ceil(item_rows);
        let part = |row: &Row<'_>, index: usize| {
            let (pairs, parts) = (row.tokens * group, parts(row));
            let pairs = index * pairs / parts..(index + 1) * pairs / parts;
            let position = |pair: usize| row.start + pair / group;
            let middle = position((pairs.start + pairs.end) / 2);
            let first = attention.first_visible(position(pairs.start));
            Part {
                cost: (pairs.len() + READ_COST) * (middle + 1 - attention.first_visible(middle)),
                blocks: first / BLOCK..position(pairs.end - 1) / BLOCK + 1,
                pairs,
            }
        };
        let costs = |row| (0..parts(row)).map(|index| part(row, index).cost).sum::<usize>();
        let total = rows.iter().map(costs).sum::<usize>() * heads;
        let target = total / (threads * PIECES) + 1;
        for (index, row) in rows.iter().enumerate() {
            if row.floats.is_some() && row.codes.is_some() {
                by_panels(&mut self.stores, index, row);
            }
            for at in 0..parts(row) {
                let part = part(row, at);
                let ranges = if threads > 1 && part.pairs.len() <= tile {
                    part.cost.div_ceil(target).min(part.blocks.len())
                } else {
                    1
                };
                let last = part.blocks.start + (ranges - 1) * part.blocks.len() / ranges;
                // Where a ring wraps, the first block may hold the slots of new positions, though nobody sees them there.
                let wraps = row.start + row.tokens > row.capacity();
                let own = parts(row) == 1 && (ranges == 1 || row.start / BLOCK >= last && !wraps);
                if !own && at == 0 {
                    by_panels(&mut self.writes, index, row);
                }
                for head in 0..heads {
                    self.push(attention, index, head, &part, ranges, own);
                }
            }
        }
        self.items.sort_by_key(|item| Reverse(item.cost));
    }

    /// Adds a part's items for one head: one for each range of blocks.
    fn push(
        &mut self,
        attention: &Attention<'_>,
        row: usize,
        head: usize,
        part: &Part,
        ranges: usize,
        own: bool,
    ) {
        let floats = partial_floats(part.pairs.len(), attention.kv.value_stride());
        let (first, blocks) = (part.blocks.start, part.blocks.len());
        for range in 0..ranges {
            let start = range * blocks / ranges;
            self.items.push(Item {
                row,
                head,
                pairs: part.pairs.clone(),
                blocks: first + start..first + (range + 1) * blocks / ranges,
                writes: own && range == ranges - 1,
                partials: (ranges > 1).then_some(self.partials + start * floats),
                cost: part.cost / ranges,
            });
        }
        if ranges > 1 {
            self.merges.push(Merge {
                row,
                head,
                pairs: part.pairs.clone(),
                blocks,
                partials: self.partials,
            });
            self.partials += blocks * floats;
        }
    }
}
