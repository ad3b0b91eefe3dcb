//! Register tiles: some rows by some vectors of a panel, over a run of inputs.

use std::ops::Range;

use super::RUN;
use super::unpack::group_sum;
use crate::rows::{Packed, SUM_BLOCK, with_rows};
use crate::simd::{Simd, for_isa};
use crate::weights::{PANEL, Storage};

/// A run of a panel's inputs, unpacked, and the rows to multiply it with.
pub(super) struct TileArgs<'a> {
    pub packed: &'a Packed,
    /// The tiles.
    pub span: Range<usize>,
    /// The inputs: whole groups.
    pub run: Range<usize>,
    /// `[run][PANEL]`; scales and biases of each group behind the room for the longest run.
    pub weights: *const f32,
    pub storage: Storage,
    /// `[rows of the span][PANEL]`.
    pub totals: *mut f32,
}

for_isa! {
    /// Takes a run into the totals of all rows of some tiles.
    pub(super) unsafe fn tile_run(args: &TileArgs<'_>) = tile_run_with
}

#[inline(always)]
unsafe fn tile_run_with<S: Simd>(args: &TileArgs<'_>) {
    let first = args.packed.tiles.start(args.span.start);
    for tile in args.span.clone() {
        let rows = args.packed.tiles.rows(tile);
        // SAFETY: promised by the caller.
        unsafe {
            with_rows!(S, rows.len(), |ROWS| tile_rows::<S, ROWS>(
                args, rows.start, first
            ));
        }
    }
}

/// The most vectors of a tile's row.
const MOST_VECS: usize = 4;

#[inline(always)]
unsafe fn tile_rows<S: Simd, const R: usize>(args: &TileArgs<'_>, start: usize, first: usize) {
    let inputs = args.packed.inputs;
    // SAFETY: the tile has `R` rows of `inputs`, and totals has room for the span's rows.
    unsafe {
        let x = args.packed.x.add(start * inputs + args.run.start * R);
        let totals = args.totals.add((start - first) * PANEL);
        let len = args.run.len();
        match args.storage {
            Storage::Dense(_) => {
                for column in (0..PANEL).step_by(S::TILE_VECS * S::LANES) {
                    let mut sums = [[S::splat(0.0); MOST_VECS]; R];
                    for (row, sums) in sums.iter_mut().enumerate() {
                        for (v, sum) in sums.iter_mut().take(S::TILE_VECS).enumerate() {
                            *sum = S::load(totals.add(row * PANEL + column + v * S::LANES));
                        }
                    }
                    accumulate::<S, R>(&mut sums, x, args.weights.add(column), len);
                    for (row, sums) in sums.iter().enumerate() {
                        for (v, sum) in sums.iter().take(S::TILE_VECS).enumerate() {
                            S::store(totals.add(row * PANEL + column + v * S::LANES), *sum);
                        }
                    }
                }
            }
            Storage::Affine(stored) => {
                for group in 0..len / stored.group {
                    let first = group * stored.group;
                    let mut row_sums = [0.0; R];
                    if !stored.centered {
                        for (row, sum) in row_sums.iter_mut().enumerate() {
                            let sums = args.packed.sums.add((start + row) * (inputs / SUM_BLOCK));
                            *sum = group_sum(sums, args.run.start + first, stored.group);
                        }
                    }
                    let (x, weights) = (x.add(first * R), args.weights.add(first * PANEL));
                    let scales = args.weights.add((RUN + 2 * group) * PANEL);
                    for column in (0..PANEL).step_by(S::TILE_VECS * S::LANES) {
                        let mut sums = [[S::splat(0.0); MOST_VECS]; R];
                        accumulate::<S, R>(&mut sums, x, weights.add(column), stored.group);
                        for v in 0..S::TILE_VECS {
                            let scale = S::load(scales.add(column + v * S::LANES));
                            let bias = S::load(scales.add(PANEL + column + v * S::LANES));
                            for row in 0..R {
                                let at = totals.add(row * PANEL + column + v * S::LANES);
                                let mut total = S::fma(sums[row][v], scale, S::load(at));
                                if !stored.centered {
                                    total = S::fma(S::splat(row_sums[row]), bias, total);
                                }
                                S::store(at, total);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `sums += x · weights` over `len` inputs, one after the other.
#[inline(always)]
unsafe fn accumulate<S: Simd, const R: usize>(
    sums: &mut [[S::F; MOST_VECS]; R],
    x: *const f32,
    weights: *const f32,
    len: usize,
) {
    // SAFETY: promised by the caller.
    unsafe {
        for k in 0..len {
            let mut vector = [S::splat(0.0); MOST_VECS];
            for (v, vector) in vector.iter_mut().take(S::TILE_VECS).enumerate() {
                *vector = S::load(weights.add(k * PANEL + v * S::LANES));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*x.add(k * R + row));
                for (sum, vector) in sums.iter_mut().zip(&vector).take(S::TILE_VECS) {
                    *sum = S::fma(x, *vector, *sum);
                }
            }
        }
    }
}
