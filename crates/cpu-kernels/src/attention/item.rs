//! One piece of a call's work.

use std::ops::Range;

use super::plan::{Item, MOST_ROWS, Merge, Write, partial_floats};
use super::prepare::{prepare_head, store_heads, write_heads};
use super::quantize::CodePanels;
use super::tiles::{self, Block, PREFETCH_ROWS, QUERY_STRIDE, Tile, merge_rows, merge_sums, take_block};
use super::{Attention, BLOCK, Call, Held, MOST_FEATURES, PANEL_POSITIONS, Row};
use crate::rows::Tiles;
use crate::simd::{SUM_LANES, Simd, for_isa};

/// Floats of a tile's maxima and sums.
const STATE: usize = 2 * SUM_LANES;

/// Floats of a block's sums of values.
const SUMS: usize = PREFETCH_ROWS * MOST_FEATURES;

/// Floats of a cache line.
const LINE: usize = 16;

/// Floats that a thread needs.
pub(super) fn thread_floats(attention: &Attention<'_>) -> usize {
    let values = attention.kv.value_stride();
    let decoded = attention
        .codes
        .map_or(0, |_| BLOCK * (attention.kv.key_dim + values));
    LINE + tiles::MOST_ROWS * BLOCK + SUMS + MOST_ROWS * (QUERY_STRIDE + STATE + values) + decoded
}

/// A thread's memory.
struct Memory {
    /// `[tiles::MOST_ROWS][BLOCK]`.
    scores: *mut f32,
    /// `[PREFETCH_ROWS][MOST_FEATURES]`.
    sums: *mut f32,
    /// `[MOST_ROWS][QUERY_STRIDE]`.
    queries: *mut f32,
    /// `[tiles][STATE]`.
    states: *mut f32,
    /// `[MOST_ROWS][value_stride]`.
    values: *mut f32,
    /// A block's keys and values that are codes elsewhere: `[BLOCK][key_dim]`, `[BLOCK][value_stride]`.
    decoded: *mut f32,
}

impl Memory {
    fn new(memory: &mut [f32], value_stride: usize) -> Self {
        let offset = memory.as_ptr().align_offset(LINE * 4).min(LINE);
        let scores = memory[offset..].as_mut_ptr();
        let sums = scores.wrapping_add(tiles::MOST_ROWS * BLOCK);
        let queries = sums.wrapping_add(SUMS);
        let states = queries.wrapping_add(MOST_ROWS * QUERY_STRIDE);
        let values = states.wrapping_add(MOST_ROWS * STATE);
        Self {
            scores,
            sums,
            queries,
            states,
            values,
            decoded: values.wrapping_add(MOST_ROWS * value_stride),
        }
    }
}

for_isa! {
    /// Writes a panel's keys and values of all heads.
    pub(super) unsafe fn write_positions(call: &Call<'_>, write: &Write) = write_positions_with
}

#[inline(always)]
unsafe fn write_positions_with<S: Simd>(call: &Call<'_>, write: &Write) {
    let heads = 0..call.attention.kv.heads;
    // SAFETY: promised by the caller.
    unsafe { write_heads::<S>(call, write.row, heads, write.tokens.clone()) };
}

for_isa! {
    /// Turns a panel's keys and values of all heads into codes.
    pub(super) unsafe fn store_positions(call: &Call<'_>, store: &Write) = store_positions_with
}

#[inline(always)]
unsafe fn store_positions_with<S: Simd>(call: &Call<'_>, store: &Write) {
    // SAFETY: promised by the caller.
    unsafe { store_heads::<S>(call, store.row, store.tokens.clone()) };
}

for_isa! {
    /// Runs an item, and prefetches the one that will be run `next`; a thread's memory has [`thread_floats`].
    pub(super) unsafe fn run_item(
        call: &Call<'_>,
        item: &Item,
        next: Option<&Item>,
        memory: &mut [f32],
    ) = run_item_with
}

#[inline(always)]
unsafe fn run_item_with<S: Simd>(call: &Call<'_>, item: &Item, next: Option<&Item>, memory: &mut [f32]) {
    let (attention, row) = (call.attention, &call.rows[item.row]);
    let (kv, group) = (attention.kv, attention.heads / attention.kv.heads);
    let count = item.pairs.len();
    let stride = kv.value_stride();
    let memory = Memory::new(memory, stride);
    let tiles = Tiles::new(count, call.isa.tile_rows());
    let mut seen = [const { 0..0 }; MOST_ROWS];
    for (seen, pair) in seen.iter_mut().zip(item.pairs.clone()) {
        let position = row.start + pair / group;
        *seen = attention.first_visible(position)..position + 1;
    }
    // SAFETY: promised by the caller: the memory has room for all rows, the row's buffer holds all positions that are seen.
    unsafe {
        if item.writes {
            write_heads::<S>(call, item.row, item.head..item.head + 1, 0..row.tokens);
        }
        for (at, pair) in item.pairs.clone().enumerate() {
            let token = row.first_token + pair / group;
            let head = item.head * group + pair % group;
            let x = &call.qkv[token * attention.width() + head * kv.key_dim..][..kv.key_dim];
            let to = std::slice::from_raw_parts_mut(memory.queries.add(at * QUERY_STRIDE), kv.key_dim);
            prepare_head::<S>(call, attention.query_norm, token, Some(attention.scale), x, to);
        }
        let tile = |index: usize, partial: Option<*mut f32>| {
            let rows = tiles.rows(index);
            let state = partial.unwrap_or_else(|| memory.states.add(index * STATE));
            Tile {
                queries: memory.queries.add(rows.start * QUERY_STRIDE),
                scores: memory.scores,
                sums: memory.sums,
                state,
                values: partial.map_or_else(
                    || memory.values.add(rows.start * stride),
                    |partial| partial.add(STATE),
                ),
            }
        };
        if item.partials.is_none() {
            for index in 0..tiles.count() {
                reset(&tile(index, None), tiles.rows(index).len() * stride);
            }
        }
        for (at, index) in item.blocks.clone().enumerate() {
            let following = if index + 1 < item.blocks.end {
                Some((row, item.head, index + 1))
            } else {
                next.map(|next| (&call.rows[next.row], next.head, next.blocks.start))
            };
            let block = match &row.floats {
                Some(floats) => float_block(call, floats, item.head, index, following),
                None => {
                    let seen = seen[..count].iter().map(|seen| inside(seen, index));
                    let start = seen.clone().map(|seen| seen.start).min().unwrap_or(0);
                    let end = seen.map(|seen| seen.end).max().unwrap_or(0);
                    let panels = start / PANEL_POSITIONS..end.div_ceil(PANEL_POSITIONS);
                    let once = tiles.count() == 1;
                    code_block::<S>(
                        call,
                        row,
                        item.head,
                        index,
                        following,
                        panels,
                        once,
                        memory.decoded,
                    )
                }
            };
            let floats = partial_floats(count, stride);
            let partial = item.partials.map(|start| {
                let start = start + at * floats;
                call.partials.slice(start..start + floats).as_mut_ptr()
            });
            for index_of_tile in 0..tiles.count() {
                let tile = tile(index_of_tile, partial);
                let rows = tiles.rows(index_of_tile);
                if partial.is_some() {
                    reset(&tile, rows.len() * stride);
                }
                let mut within = [const { 0..0 }; tiles::MOST_ROWS];
                for (within, seen) in within.iter_mut().zip(&seen[rows.clone()]) {
                    *within = inside(seen, index);
                }
                take_block::<S>(&tile, &block, &within[..rows.len()]);
            }
        }
        if item.partials.is_none() {
            for index in 0..tiles.count() {
                let rows = tiles.rows(index);
                let pairs = item.pairs.start + rows.start..item.pairs.start + rows.end;
                finish::<S>(call, item.row, item.head, pairs, &tile(index, None));
            }
        }
    }
}

/// A row, a head and a block.
type Place<'a> = (&'a Row<'a>, usize, usize);

/// The positions that a row has from a block on, in panels of that block.
fn panels_from(row: &Row<'_>, block: usize) -> usize {
    let left = (row.start + row.tokens).saturating_sub(block * BLOCK);
    left.div_ceil(PANEL_POSITIONS).min(BLOCK / PANEL_POSITIONS)
}

/// A block that is read where it lies.
#[inline(always)]
fn float_block(
    call: &Call<'_>,
    floats: &Held<'_, f32>,
    head: usize,
    index: usize,
    following: Option<Place<'_>>,
) -> Block {
    let kv = call.attention.kv;
    let at = |floats: &Held<'_, f32>, head: usize, block: usize| {
        let panel = kv.panel_of(floats.capacity, head, block * BLOCK) * kv.panel();
        floats.start().cast_const().wrapping_add(panel)
    };
    let start = at(floats, head, index);
    let next = following.and_then(|(row, head, block)| {
        let next = at(row.floats.as_ref()?, head, block);
        Some((next, panels_from(row, block)))
    });
    let (following, ahead_panels) = next.unwrap_or((start, 0));
    Block {
        keys: start,
        key_panel: kv.panel(),
        values: start.wrapping_add(PANEL_POSITIONS * kv.key_dim),
        value_panel: kv.panel(),
        key_dim: kv.key_dim,
        value_stride: kv.value_stride(),
        late: None,
        ahead: (following as isize - start as isize) / size_of::<f32>() as isize,
        ahead_panels,
    }
}

/// A block of codes, of which some panels are needed, as floats. If it is looked at `once`, keys and values share their memory:
/// it stays in the first-level cache.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "one block of one head of one row, and where it goes"
)]
unsafe fn code_block<S: Simd>(
    call: &Call<'_>,
    row: &Row<'_>,
    head: usize,
    index: usize,
    following: Option<Place<'_>>,
    needed: Range<usize>,
    once: bool,
    to: *mut f32,
) -> Block {
    let kv = call.attention.kv;
    let at = |row: &Row<'_>, head: usize, block: usize| {
        let (layout, codes) = (call.attention.code_layout()?, row.codes.as_ref()?);
        let panel = layout.panel_at(codes.capacity, head, block * BLOCK);
        let first = codes.start().cast_const().wrapping_add(panel);
        Some(CodePanels { first, layout })
    };
    let codes = at(row, head, index);
    let values = if once {
        to
    } else {
        to.wrapping_add(BLOCK * kv.key_dim)
    };
    if let Some((row, head, block)) = following
        && let Some(codes) = at(row, head, block)
    {
        codes.prefetch(panels_from(row, block));
    }
    if let Some(codes) = &codes {
        // SAFETY: promised by the caller: what is needed is there, and there is room for a block.
        unsafe {
            codes.keys::<S>(needed.clone(), to);
            if !once {
                codes.values::<S>(needed, values);
            }
        }
    }
    Block {
        keys: to,
        key_panel: PANEL_POSITIONS * kv.key_dim,
        values,
        value_panel: PANEL_POSITIONS * kv.value_stride(),
        key_dim: kv.key_dim,
        value_stride: kv.value_stride(),
        late: codes.filter(|_| once),
        ahead: 0,
        ahead_panels: 0,
    }
}

/// What is seen of a block, counted from its start.
fn inside(seen: &Range<usize>, block: usize) -> Range<usize> {
    let start = block * BLOCK;
    let end = seen.end.clamp(start, start + BLOCK) - start;
    (seen.start.clamp(start, start + BLOCK) - start).min(end)..end
}

/// A state that nothing has been taken into.
#[inline(always)]
unsafe fn reset(tile: &Tile, values: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        std::slice::from_raw_parts_mut(tile.state, SUM_LANES).fill(f32::NEG_INFINITY);
        std::slice::from_raw_parts_mut(tile.state.add(SUM_LANES), SUM_LANES).fill(0.0);
        std::slice::from_raw_parts_mut(tile.values, values).fill(0.0);
    }
}

/// Divides by the sums of weights, and writes the results.
#[inline(always)]
unsafe fn finish<S: Simd>(call: &Call<'_>, row: usize, head: usize, pairs: Range<usize>, tile: &Tile) {
    let (attention, row) = (call.attention, &call.rows[row]);
    let (kv, group) = (attention.kv, attention.heads / attention.kv.heads);
    for (at, pair) in pairs.enumerate() {
        let token = row.first_token + pair / group;
        let head = head * group + pair % group;
        let start = (token * attention.heads + head) * kv.value_dim;
        // SAFETY: the outputs of a pair belong to one item; the tile has as many rows.
        unsafe {
            let to = call.out.slice(start..start + kv.value_dim);
            let factor = 1.0 / *tile.state.add(SUM_LANES + at);
            let from = tile.values.add(at * kv.value_stride());
            let mut column = 0;
            while column + S::LANES <= kv.value_dim {
                let scaled = S::mul(S::load(from.add(column)), S::splat(factor));
                S::store(to.as_mut_ptr().add(column), S::add(scaled, S::splat(0.0)));
                column += S::LANES;
            }
            for (d, to) in to.iter_mut().enumerate().skip(column) {
                *to = *from.add(d) * factor + 0.0;
            }
        }
    }
}

for_isa! {
    /// Merges what several items have found out about the same queries; a thread's memory has [`thread_floats`].
    pub(super) unsafe fn merge_item(call: &Call<'_>, merge: &Merge, memory: &mut [f32]) = merge_item_with
}

#[inline(always)]
unsafe fn merge_item_with<S: Simd>(call: &Call<'_>, merge: &Merge, memory: &mut [f32]) {
    let (rows, stride) = (merge.pairs.len(), call.attention.kv.value_stride());
    let memory = Memory::new(memory, stride);
    let floats = partial_floats(rows, stride);
    let tile = Tile {
        queries: memory.queries,
        scores: memory.scores,
        sums: memory.sums,
        state: memory.states,
        values: memory.values,
    };
    // SAFETY: promised by the caller: the partials are those of a register tile, and nobody writes them any more.
    unsafe {
        reset(&tile, rows * stride);
        for block in 0..merge.blocks {
            let start = merge.partials + block * floats;
            let from = call.partials.slice(start..start + floats).as_ptr();
            let factors = merge_sums::<S>(tile.state, from, from.add(SUM_LANES));
            merge_rows::<S>(tile.values, from.add(STATE), rows, stride, &factors);
        }
        finish::<S>(call, merge.row, merge.head, merge.pairs.clone(), &tile);
    }
}
