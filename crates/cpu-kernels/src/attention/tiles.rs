//! Register tiles: some queries by some vectors of positions, or of features of values, over one block of positions.

use std::ops::Range;

use super::quantize::CodePanels;
use super::{BLOCK, MOST_FEATURES, PANEL_POSITIONS};
use crate::math;
use crate::rows::with_rows;
use crate::simd::{SUM_LANES, Simd, prefetch_far};

/// Floats from one query of a tile to the next: constant, so that their addresses need one register, and not a power of 2,
/// so that they don't fall on the same lines of the cache.
pub(super) const QUERY_STRIDE: usize = MOST_FEATURES + 16;

/// One block of positions of one head.
pub(super) struct Block {
    /// The keys of its first panel, `[key_dim][32]`.
    pub keys: *const f32,
    /// Floats to those of the next panel.
    pub key_panel: usize,
    /// The values of its first panel, `[32][value_stride]`.
    pub values: *const f32,
    /// Floats to those of the next panel.
    pub value_panel: usize,
    pub key_dim: usize,
    pub value_stride: usize,
    /// Where the values are still codes: they become floats when the keys, in the same memory, aren't needed any more.
    pub late: Option<CodePanels>,
    /// Floats to the block that is taken next, so that it can be prefetched.
    pub ahead: isize,
    /// Panels of it that will be read.
    pub ahead_panels: usize,
}

/// Rows up to which memory is the limit: it is worth prefetching, and reading in order.
pub(super) const PREFETCH_ROWS: usize = 4;

/// Queries of a register tile, and what has come of them.
pub(super) struct Tile {
    /// `[rows][QUERY_STRIDE]`.
    pub queries: *const f32,
    /// `[rows][BLOCK]`, overwritten.
    pub scores: *mut f32,
    /// Sums of weighted values of a block, `[PREFETCH_ROWS][MOST_FEATURES]`, overwritten.
    pub sums: *mut f32,
    /// The largest scores, then the sums of weights: `[SUM_LANES]` each.
    pub state: *mut f32,
    /// `[rows][value_stride]`.
    pub values: *mut f32,
}

/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = 12;

/// Takes a block into the state of a tile's rows; `seen` says which of its positions each sees.
///
/// # Safety
/// The instructions are there; there are `seen.len()` rows, as many as a tile may have; what is seen has been written.
#[inline(always)]
pub(super) unsafe fn take_block<S: Simd>(tile: &Tile, block: &Block, seen: &[Range<usize>]) {
    // SAFETY: promised by the caller.
    unsafe {
        with_rows!(S, seen.len(), |ROWS| take_rows::<S, ROWS>(tile, block, seen));
    }
}

/// Vectors of a row that are computed at once: as many as there are registers for.
const fn vectors<S: Simd>(rows: usize, most: usize) -> bool {
    rows * most <= S::TILE_ROWS * S::TILE_VECS
}

#[inline(always)]
unsafe fn take_rows<S: Simd, const R: usize>(tile: &Tile, block: &Block, seen: &[Range<usize>]) {
    let start = seen.iter().map(|seen| seen.start).min().unwrap_or(0);
    let end = seen.iter().map(|seen| seen.end).max().unwrap_or(0);
    if start >= end {
        return;
    }
    // Whole panels: what nobody sees is masked.
    let from = start / PANEL_POSITIONS * PANEL_POSITIONS;
    let to = end.next_multiple_of(PANEL_POSITIONS);
    // SAFETY: promised by the caller: a block has all its panels.
    unsafe {
        let mut at = from;
        while at < to {
            let left = (to - at) / S::LANES;
            at += S::LANES
                * if vectors::<S>(R, 8) && left >= 8 {
                    scores::<S, R, 8>(tile, block, at)
                } else if vectors::<S>(R, 4) && left >= 4 {
                    scores::<S, R, 4>(tile, block, at)
                } else {
                    scores::<S, R, 2>(tile, block, at)
                };
        }
        let factors = weigh::<S, R>(tile, seen, from..to);
        if let Some(codes) = &block.late {
            let panels = from / PANEL_POSITIONS..to / PANEL_POSITIONS;
            codes.values::<S>(panels, block.values.cast_mut());
        }
        let seen = start..end;
        if R > PREFETCH_ROWS {
            all_values::<S, R>(tile, block, seen.clone(), seen, &factors);
            return;
        }
        // What comes from memory is read in order.
        for panel in (from..to).step_by(PANEL_POSITIONS) {
            let part = start.max(panel)..end.min(panel + PANEL_POSITIONS);
            all_values::<S, R>(tile, block, seen.clone(), part, &factors);
        }
    }
}

/// Takes in the values of a part of the positions that are seen of a block.
#[inline(always)]
unsafe fn all_values<S: Simd, const R: usize>(
    tile: &Tile,
    block: &Block,
    seen: Range<usize>,
    part: Range<usize>,
    factors: &Factors,
) {
    let columns = block.value_stride / S::LANES;
    let pass = Pass {
        first: part.start == seen.start,
        last: part.end == seen.end,
        positions: part,
    };
    let mut at = 0;
    while at < columns {
        let left = columns - at;
        // SAFETY: promised by the caller.
        at += unsafe {
            if vectors::<S>(R, 8) && left >= 8 {
                values::<S, R, 8>(tile, block, &pass, at * S::LANES, factors)
            } else if vectors::<S>(R, 4) && left >= 4 {
                values::<S, R, 4>(tile, block, &pass, at * S::LANES, factors)
            } else if left >= 2 {
                values::<S, R, 2>(tile, block, &pass, at * S::LANES, factors)
            } else {
                values::<S, R, 1>(tile, block, &pass, at * S::LANES, factors)
            }
        };
    }
}

/// Positions of a block whose values are taken in at once; what came before is in the tile's sums.
struct Pass {
    positions: Range<usize>,
    first: bool,
    last: bool,
}

/// Scores of `V` vectors of positions from `at` on; returns `V`.
#[inline(always)]
unsafe fn scores<S: Simd, const R: usize, const V: usize>(tile: &Tile, block: &Block, at: usize) -> usize {
    let per_panel = PANEL_POSITIONS / S::LANES;
    // SAFETY: promised by the caller.
    unsafe {
        let keys = block
            .keys
            .add(at / PANEL_POSITIONS * block.key_panel + at % PANEL_POSITIONS);
        let mut sums = [[S::splat(0.0); V]; R];
        for d in 0..block.key_dim {
            let mut vector = [S::splat(0.0); V];
            for (v, vector) in vector.iter_mut().enumerate() {
                let within = v / per_panel * block.key_panel + v % per_panel * S::LANES;
                let from = keys.add(within + d * PANEL_POSITIONS);
                *vector = S::load(from);
                if R <= PREFETCH_ROWS
                    && v * S::LANES % 16 == 0
                    && at / PANEL_POSITIONS + v / per_panel < block.ahead_panels
                {
                    prefetch_far(from.wrapping_offset(block.ahead).cast());
                }
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let query = S::splat(*tile.queries.add(row * QUERY_STRIDE + d));
                for (sum, vector) in sums.iter_mut().zip(&vector) {
                    *sum = S::fma(query, *vector, *sum);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                S::store(tile.scores.add(row * BLOCK + at + v * S::LANES), *sum);
            }
        }
    }
    V
}

/// What a state and a block are multiplied by when they are merged.
#[repr(align(64))]
pub(super) struct Factors {
    old: [f32; SUM_LANES],
    new: [f32; SUM_LANES],
}

/// Turns scores into weights, and merges their maxima and sums into the state.
#[inline(always)]
unsafe fn weigh<S: Simd, const R: usize>(
    tile: &Tile,
    seen: &[Range<usize>],
    computed: Range<usize>,
) -> Factors {
    let mut most = Lanes([f32::NEG_INFINITY; SUM_LANES]);
    let mut total = Lanes([0.0; SUM_LANES]);
    // SAFETY: promised by the caller.
    unsafe {
        for (row, seen) in seen.iter().enumerate().take(R) {
            let scores = tile.scores.add(row * BLOCK);
            for position in computed.start..seen.start.min(computed.end) {
                *scores.add(position) = f32::NEG_INFINITY;
            }
            for position in seen.end.max(computed.start)..computed.end {
                *scores.add(position) = f32::NEG_INFINITY;
            }
            let mut largest = S::splat(f32::NEG_INFINITY);
            for at in computed.clone().step_by(S::LANES) {
                // The second operand is kept unless the first is greater: NaN is not.
                largest = S::max(S::load(scores.add(at)), largest);
            }
            most.0[row] = S::max_lane(largest);
        }
        for row in 0..R {
            let scores = tile.scores.add(row * BLOCK);
            let largest = S::splat(most.0[row]);
            let mut sums = [S::splat(0.0); 4];
            for at in computed.clone().step_by(SUM_LANES) {
                for (i, sum) in sums.iter_mut().take(SUM_LANES / S::LANES).enumerate() {
                    let place = scores.add(at + i * S::LANES);
                    let weight = math::exp::<S>(S::sub(S::load(place), largest));
                    S::store(place, weight);
                    *sum = S::add(*sum, weight);
                }
            }
            let mut lanes = Lanes([0.0; SUM_LANES]);
            for (i, sum) in sums.iter().take(SUM_LANES / S::LANES).enumerate() {
                S::store(lanes.0.as_mut_ptr().add(i * S::LANES), *sum);
            }
            total.0[row] = S::sum16(lanes.0.as_ptr());
        }
        merge_sums::<S>(tile.state, most.0.as_ptr(), total.0.as_ptr())
    }
}

#[repr(align(64))]
struct Lanes([f32; SUM_LANES]);

/// Merges maxima and sums of blocks, `[SUM_LANES]` each, into a state; returns the factors for values. Where a state is new
/// (`most` minus infinity, all else 0), it becomes the block's; a block that nothing is seen of is just so, and changes nothing.
#[inline(always)]
pub(super) unsafe fn merge_sums<S: Simd>(state: *mut f32, most: *const f32, total: *const f32) -> Factors {
    let mut factors = Factors {
        old: [0.0; SUM_LANES],
        new: [0.0; SUM_LANES],
    };
    for at in (0..SUM_LANES).step_by(S::LANES) {
        // SAFETY: promised by the caller.
        unsafe {
            let (to_most, to_sum) = (state.add(at), state.add(SUM_LANES + at));
            let (old_most, new_most) = (S::load(to_most), S::load(most.add(at)));
            let larger = S::max(old_most, new_most);
            let old = math::exp::<S>(S::sub(old_most, larger));
            let new = math::exp::<S>(S::sub(new_most, larger));
            let block = S::mul(S::load(total.add(at)), new);
            S::store(to_sum, S::fma(S::load(to_sum), old, block));
            S::store(to_most, larger);
            S::store(factors.old.as_mut_ptr().add(at), old);
            S::store(factors.new.as_mut_ptr().add(at), new);
        }
    }
    factors
}

/// Merges `V` vectors of weighted values from a column on into the state; returns `V`.
#[inline(always)]
unsafe fn values<S: Simd, const R: usize, const V: usize>(
    tile: &Tile,
    block: &Block,
    pass: &Pass,
    column: usize,
    factors: &Factors,
) -> usize {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sums = [[S::splat(0.0); V]; R];
        if R <= PREFETCH_ROWS && !pass.first {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = S::load(tile.sums.add(row * MOST_FEATURES + column + v * S::LANES));
                }
            }
        }
        let seen = &pass.positions;
        let mut position = seen.start;
        while position < seen.end {
            let panel = position / PANEL_POSITIONS;
            let end = ((panel + 1) * PANEL_POSITIONS).min(seen.end);
            let values = block.values.add(panel * block.value_panel + column);
            let mut from = values.add(position % PANEL_POSITIONS * block.value_stride);
            let mut weights = tile.scores.add(position).cast_const();
            for _ in position..end {
                let mut vector = [S::splat(0.0); V];
                for (v, vector) in vector.iter_mut().enumerate() {
                    let from = from.add(v * S::LANES);
                    *vector = S::load(from);
                    if R <= PREFETCH_ROWS && v * S::LANES % 16 == 0 && panel < block.ahead_panels {
                        prefetch_far(from.wrapping_offset(block.ahead).cast());
                    }
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let weight = S::splat(*weights.add(row * BLOCK));
                    for (sum, vector) in sums.iter_mut().zip(&vector) {
                        *sum = S::fma(weight, *vector, *sum);
                    }
                }
                from = from.wrapping_add(block.value_stride);
                weights = weights.wrapping_add(1);
            }
            position = end;
        }
        if R <= PREFETCH_ROWS && !pass.last {
            for (row, sums) in sums.iter().enumerate() {
                for (v, sum) in sums.iter().enumerate() {
                    S::store(tile.sums.add(row * MOST_FEATURES + column + v * S::LANES), *sum);
                }
            }
            return V;
        }
        for (row, sums) in sums.iter().enumerate() {
            let to = tile.values.add(row * block.value_stride + column);
            merge_values::<S, V>(to, sums, factors, row);
        }
    }
    V
}

#[inline(always)]
unsafe fn merge_values<S: Simd, const V: usize>(
    to: *mut f32,
    block: &[S::F; V],
    factors: &Factors,
    row: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let (old, new) = (S::splat(factors.old[row]), S::splat(factors.new[row]));
        for (v, block) in block.iter().enumerate() {
            let place = to.add(v * S::LANES);
            S::store(place, S::fma(*block, new, S::mul(S::load(place), old)));
        }
    }
}

/// Merges a block's values of some rows, `[rows][value_stride]`, into a state.
#[inline(always)]
pub(super) unsafe fn merge_rows<S: Simd>(
    to: *mut f32,
    from: *const f32,
    rows: usize,
    value_stride: usize,
    factors: &Factors,
) {
    for row in 0..rows {
        for at in (0..value_stride).step_by(S::LANES) {
            // SAFETY: promised by the caller.
            unsafe {
                let at = row * value_stride + at;
                merge_values::<S, 1>(to.add(at), &[S::load(from.add(at))], factors, row);
            }
        }
    }
}
