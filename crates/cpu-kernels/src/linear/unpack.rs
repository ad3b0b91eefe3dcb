//! From packed weights to floats: into a buffer for many rows, or straight into the sums of a few.

use std::ops::Range;

use super::RUN;
use crate::Isa;
use crate::rows::{Packed, SUM_BLOCK};
use crate::simd::{Simd, for_isa, prefetch};
use crate::weights::{BLOCK, Float, PANEL, Quants, Records, Storage, place, planes};

/// A panel of weights.
pub(super) struct UnpackArgs {
    pub storage: Storage,
    pub panel: *const u8,
    pub inputs: usize,
}

/// A panel that is multiplied with a few rows.
pub(super) struct FusedArgs<'a> {
    pub unpack: UnpackArgs,
    /// No more than [`fused_rows`], all in the first tile.
    pub rows: usize,
    pub packed: &'a Packed,
    /// `[rows][PANEL]`, written.
    pub totals: *mut f32,
}

/// Rows up to which [`fused_panel`] is to be used.
pub(super) fn fused_rows(isa: Isa, storage: Storage) -> usize {
    isa.fused_rows(matches!(storage, Storage::Affine(Quants { bits: 4 | 8, .. })))
}

/// Vectors of a panel with the narrowest lanes.
const MOST_VECS: usize = 8;

/// What becomes of an input's unpacked quants, or elements: those of all the panel's vectors, for input `k` of what is
/// unpacked.
trait Sink<S: Simd> {
    unsafe fn take(&mut self, k: usize, weights: [S::F; MOST_VECS]);
}

/// Writes `[inputs][PANEL]`.
struct Store(*mut f32);

impl<S: Simd> Sink<S> for Store {
    #[inline(always)]
    unsafe fn take(&mut self, k: usize, weights: [S::F; MOST_VECS]) {
        let mut v = 0;
        while v < PANEL / S::LANES {
            // SAFETY: the caller's buffer has room for all inputs.
            unsafe { S::store(self.0.add(k * PANEL + v * S::LANES), weights[v]) };
            v += 1;
        }
    }
}

/// Adds to the sums of `R` rows.
struct Accumulate<S: Simd, const R: usize> {
    /// `[inputs][R]`, at the first input.
    x: *const f32,
    sums: [[S::F; MOST_VECS]; R],
}

impl<S: Simd, const R: usize> Sink<S> for Accumulate<S, R> {
    #[inline(always)]
    unsafe fn take(&mut self, k: usize, weights: [S::F; MOST_VECS]) {
        let mut row = 0;
        while row < R {
            // SAFETY: the tile has `R` rows and the inputs.
            unsafe {
                let x = S::splat(*self.x.add(k * R + row));
                let mut v = 0;
                while v < PANEL / S::LANES {
                    self.sums[row][v] = S::fma(x, weights[v], self.sums[row][v]);
                    v += 1;
                }
            }
            row += 1;
        }
    }
}

/// Eight times the same, with the constants 0 to 7.
macro_rules! eight {
    ($j:ident => $body:block) => {{
        {
            const $j: u32 = 0;
            $body
        }
        {
            const $j: u32 = 1;
            $body
        }
        {
            const $j: u32 = 2;
            $body
        }
        {
            const $j: u32 = 3;
            $body
        }
        {
            const $j: u32 = 4;
            $body
        }
        {
            const $j: u32 = 5;
            $body
        }
        {
            const $j: u32 = 6;
            $body
        }
        {
            const $j: u32 = 7;
            $body
        }
    }};
}

/// Unpacks a range of inputs that begins and ends at a multiple of 8.
#[inline(always)]
unsafe fn quants<S: Simd, T: Sink<S>, const BITS: usize, const CENTERED: bool>(
    panel: *const u8,
    records: &Records,
    range: Range<usize>,
    sink: &mut T,
) {
    let vecs = PANEL / S::LANES;
    // SAFETY: the panel's layout is that of its storage.
    unsafe {
        let mut weights = [S::splat(0.0); MOST_VECS];
        let (low, high) = match *planes(BITS) {
            [low, high] => (low, high),
            [low, ..] => (low, 0),
            [] => unreachable!(),
        };
        let (low_mask, high_mask) = ((1u32 << low) - 1, (1u32 << high) - 1);
        for k in range.clone().step_by(8) {
            let (block, within) = (panel.add(records.block_of(k)), k % BLOCK);
            prefetch_ahead(block.add(within * BITS * PANEL / 8), BITS * PANEL);
            let lows = words::<S>(block.cast(), low, within);
            // Of 8 bits, odd inputs lie in words of their own.
            let others = if low == 8 {
                words::<S>(block.cast(), low, within + 1)
            } else {
                lows
            };
            let highs = if high > 0 {
                words::<S>(block.cast::<u32>().add(low * PANEL), high, within)
            } else {
                lows
            };
            eight!(J => {
                let [low_shift, high_shift] = [place(low, J as usize).1, place(high.max(1), J as usize).1];
                for (v, weights) in weights.iter_mut().take(vecs).enumerate() {
                    let from = if J.is_multiple_of(2) { lows[v] } else { others[v] };
                    let below = if J == 0 { from } else { S::shift_right(from, low_shift) };
                    let float = if BITS == 4 {
                        S::nibble(below)
                    } else if high == 0 {
                        S::to_float(S::and(below, low_mask))
                    } else {
                        let above = S::and(S::shift_right(highs[v], high_shift), high_mask);
                        S::to_float(S::or(S::and(below, low_mask), S::shift_left(above, low as u32)))
                    };
                    *weights = center::<S, BITS, CENTERED>(float);
                }
                sink.take(k - range.start + J as usize, weights);
            });
        }
    }
}

/// The words of a plane, of all lanes, that hold an input, shifted so that it lies where that of the first eight would.
#[inline(always)]
unsafe fn words<S: Simd>(plane: *const u32, width: usize, input: usize) -> [S::I; MOST_VECS] {
    let (word, shift) = place(width, input);
    let shift = shift - place(width, input % 8).1;
    // SAFETY: promised by the caller.
    unsafe {
        let from = plane.add(word * PANEL);
        let mut words = [S::load_words(from); MOST_VECS];
        for (v, words) in words.iter_mut().take(PANEL / S::LANES).enumerate() {
            let loaded = S::load_words(from.add(v * S::LANES));
            *words = if shift == 0 {
                loaded
            } else {
                S::shift_right(loaded, shift)
            };
        }
        words
    }
}

#[inline(always)]
unsafe fn center<S: Simd, const BITS: usize, const CENTERED: bool>(quants: S::F) -> S::F {
    if CENTERED {
        // SAFETY: promised by the caller.
        unsafe { S::sub(quants, S::splat((1 << (BITS - 1)) as f32)) }
    } else {
        quants
    }
}

#[inline(always)]
unsafe fn dense<S: Simd, T: Sink<S>>(float: Float, panel: *const u8, range: Range<usize>, sink: &mut T) {
    for k in range.clone() {
        // SAFETY: the panel has all inputs.
        unsafe {
            let row = panel.add(k * PANEL * float.bytes());
            prefetch_ahead(row, PANEL * float.bytes());
            let mut weights = [S::splat(0.0); MOST_VECS];
            for (v, weights) in weights.iter_mut().take(PANEL / S::LANES).enumerate() {
                *weights = load::<S>(float, row, v * S::LANES);
            }
            sink.take(k - range.start, weights);
        }
    }
}

#[inline(always)]
unsafe fn load<S: Simd>(float: Float, from: *const u8, index: usize) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        match float {
            Float::F32 => S::load(from.cast::<f32>().add(index)),
            Float::F16 => S::load_f16(from.cast::<u16>().add(index)),
            Float::Bf16 => S::load_bf16(from.cast::<u16>().add(index)),
        }
    }
}

/// Runs `$body` with the constants `$bits` and `$centered` of what is stored.
macro_rules! with_widths {
    ($quants:expr, |$bits:ident, $centered:ident| $body:expr) => {
        match ($quants.bits, $quants.centered) {
            (2, false) => {
                const $bits: usize = 2;
                const $centered: bool = false;
                $body
            }
            (2, true) => {
                const $bits: usize = 2;
                const $centered: bool = true;
                $body
            }
            (3, false) => {
                const $bits: usize = 3;
                const $centered: bool = false;
                $body
            }
            (3, true) => {
                const $bits: usize = 3;
                const $centered: bool = true;
                $body
            }
            (4, false) => {
                const $bits: usize = 4;
                const $centered: bool = false;
                $body
            }
            (4, true) => {
                const $bits: usize = 4;
                const $centered: bool = true;
                $body
            }
            (5, false) => {
                const $bits: usize = 5;
                const $centered: bool = false;
                $body
            }
            (5, true) => {
                const $bits: usize = 5;
                const $centered: bool = true;
                $body
            }
            (6, false) => {
                const $bits: usize = 6;
                const $centered: bool = false;
                $body
            }
            (6, true) => {
                const $bits: usize = 6;
                const $centered: bool = true;
                $body
            }
            (_, false) => {
                const $bits: usize = 8;
                const $centered: bool = false;
                $body
            }
            (_, true) => {
                const $bits: usize = 8;
                const $centered: bool = true;
                $body
            }
        }
    };
}

for_isa! {
    /// Unpacks a run of inputs: quants (centered, where they are) or elements `[run][PANEL]`; then, behind the room for the longest
    /// run, for each of its groups scales and biases, `[PANEL]` each.
    pub(super) unsafe fn unpack_run(args: &UnpackArgs, run: Range<usize>, to: *mut f32) = unpack_run_with
}

#[inline(always)]
unsafe fn unpack_run_with<S: Simd>(args: &UnpackArgs, run: Range<usize>, to: *mut f32) {
    let mut sink = Store(to);
    // SAFETY: promised by the caller.
    unsafe {
        match args.storage {
            Storage::Dense(Float::F32) => dense::<S, _>(Float::F32, args.panel, run, &mut sink),
            Storage::Dense(Float::F16) => dense::<S, _>(Float::F16, args.panel, run, &mut sink),
            Storage::Dense(Float::Bf16) => dense::<S, _>(Float::Bf16, args.panel, run, &mut sink),
            Storage::Affine(stored) => {
                let (first, groups) = (run.start / stored.group, run.len() / stored.group);
                with_widths!(stored, |BITS, CENTERED| quants::<S, _, BITS, CENTERED>(
                    args.panel,
                    &stored.records(),
                    run,
                    &mut sink
                ));
                for group in 0..groups {
                    for v in 0..PANEL / S::LANES {
                        let at = to.add((RUN + 2 * group) * PANEL + v * S::LANES);
                        let (scale, bias) = scales::<S>(args, stored, &stored.records(), first + group, v);
                        S::store(at, scale);
                        S::store(at.add(PANEL), bias);
                    }
                }
            }
        }
    }
}

/// A group's scales and biases of a vector of outputs; biases are 0 where none are stored.
#[inline(always)]
unsafe fn scales<S: Simd>(
    args: &UnpackArgs,
    stored: Quants,
    records: &Records,
    group: usize,
    v: usize,
) -> (S::F, S::F) {
    // SAFETY: promised by the caller.
    unsafe {
        let at = args
            .panel
            .add(records.scales_of(group * stored.group, stored.group));
        let scale = load::<S>(stored.scale, at, v * S::LANES);
        let bias = if stored.centered {
            S::splat(0.0)
        } else {
            load::<S>(stored.scale, at.add(records.biases), v * S::LANES)
        };
        (scale, bias)
    }
}

/// How far ahead of the arithmetic a panel is fetched: the hardware looks no further than a page of 4 KiB, and loses time at
/// the beginning of each.
const AHEAD: usize = 4096;

/// Fetches what comes [`AHEAD`] of some bytes.
#[inline(always)]
fn prefetch_ahead(from: *const u8, bytes: usize) {
    let mut at = 0;
    while at < bytes {
        prefetch(from.wrapping_add(AHEAD + at));
        at += 64;
    }
}

for_isa! {
    /// The totals of a panel for a few rows.
    pub(super) unsafe fn fused_panel(args: &FusedArgs<'_>) = fused_panel_with
}

#[inline(always)]
unsafe fn fused_panel_with<S: Simd>(args: &FusedArgs<'_>) {
    // SAFETY: promised by the caller.
    unsafe {
        match args.rows {
            1 => fused_rows_with::<S, 1>(args),
            2 => fused_rows_with::<S, 2>(args),
            3 if S::FUSED_ROWS >= 3 => fused_rows_with::<S, 3>(args),
            4 if S::FUSED_ROWS >= 4 => fused_rows_with::<S, 4>(args),
            rows if S::FUSED_ROWS >= 12 => match rows {
                5 => fused_usual::<S, 5>(args),
                6 => fused_usual::<S, 6>(args),
                7 => fused_usual::<S, 7>(args),
                8 => fused_usual::<S, 8>(args),
                9 => fused_usual::<S, 9>(args),
                10 => fused_usual::<S, 10>(args),
                11 => fused_usual::<S, 11>(args),
                12 => fused_usual::<S, 12>(args),
                rows => unreachable!("{rows} rows"),
            },
            rows => unreachable!("{rows} rows"),
        }
    }
}

#[inline(always)]
unsafe fn fused_rows_with<S: Simd, const R: usize>(args: &FusedArgs<'_>) {
    // SAFETY: promised by the caller.
    unsafe {
        match args.unpack.storage {
            Storage::Dense(Float::F32) => fused_dense::<S, R>(args, Float::F32),
            Storage::Dense(Float::F16) => fused_dense::<S, R>(args, Float::F16),
            Storage::Dense(Float::Bf16) => fused_dense::<S, R>(args, Float::Bf16),
            Storage::Affine(stored) => {
                with_widths!(stored, |BITS, CENTERED| fused_quants::<S, R, BITS, CENTERED>(
                    args, stored
                ));
            }
        }
    }
}

/// The same for the widths that most models have.
#[inline(always)]
unsafe fn fused_usual<S: Simd, const R: usize>(args: &FusedArgs<'_>) {
    let Storage::Affine(stored) = args.unpack.storage else {
        unreachable!("dense weights for {R} rows");
    };
    // SAFETY: promised by the caller.
    unsafe {
        match (stored.bits, stored.centered) {
            (4, false) => fused_quants::<S, R, 4, false>(args, stored),
            (4, true) => fused_quants::<S, R, 4, true>(args, stored),
            (8, false) => fused_quants::<S, R, 8, false>(args, stored),
            (8, true) => fused_quants::<S, R, 8, true>(args, stored),
            (bits, _) => unreachable!("{bits} bits for {R} rows"),
        }
    }
}

#[inline(always)]
unsafe fn fused_dense<S: Simd, const R: usize>(args: &FusedArgs<'_>, float: Float) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sink = Accumulate::<S, R> {
            x: args.packed.x,
            sums: [[S::splat(0.0); MOST_VECS]; R],
        };
        dense::<S, _>(float, args.unpack.panel, 0..args.unpack.inputs, &mut sink);
        write_totals::<S, R>(args.totals, &sink.sums);
    }
}

#[inline(always)]
unsafe fn write_totals<S: Simd, const R: usize>(to: *mut f32, totals: &[[S::F; MOST_VECS]; R]) {
    for (row, totals) in totals.iter().enumerate() {
        for (v, total) in totals.iter().take(PANEL / S::LANES).enumerate() {
            // SAFETY: promised by the caller.
            unsafe { S::store(to.add(row * PANEL + v * S::LANES), *total) };
        }
    }
}

#[inline(always)]
unsafe fn fused_quants<S: Simd, const R: usize, const BITS: usize, const CENTERED: bool>(
    args: &FusedArgs<'_>,
    stored: Quants,
) {
    let (inputs, group, records) = (args.unpack.inputs, stored.group, stored.records());
    let blocks = inputs / SUM_BLOCK;
    // SAFETY: promised by the caller.
    unsafe {
        let zero = S::splat(0.0);
        let mut totals = [[zero; MOST_VECS]; R];
        for index in 0..inputs / group {
            let start = index * group;
            let mut sink = Accumulate::<S, R> {
                x: args.packed.x.add(start * R),
                sums: [[zero; MOST_VECS]; R],
            };
            quants::<S, _, BITS, CENTERED>(args.unpack.panel, &records, start..start + group, &mut sink);
            let mut row_sums = [0.0; R];
            if !CENTERED {
                for (row, sum) in row_sums.iter_mut().enumerate() {
                    *sum = group_sum(args.packed.sums.add(row * blocks), start, group);
                }
            }
            for v in 0..PANEL / S::LANES {
                let (scale, bias) = scales::<S>(&args.unpack, stored, &records, index, v);
                for row in 0..R {
                    let total = S::fma(sink.sums[row][v], scale, totals[row][v]);
                    totals[row][v] = if CENTERED {
                        total
                    } else {
                        S::fma(S::splat(row_sums[row]), bias, total)
                    };
                }
            }
        }
        write_totals::<S, R>(args.totals, &totals);
    }
}

/// The sum of a row's inputs of a group, from the sums of its blocks.
///
/// # Safety
/// `sums` points to the row's.
#[inline(always)]
pub(super) unsafe fn group_sum(sums: *const f32, start: usize, group: usize) -> f32 {
    let first = start / SUM_BLOCK;
    // SAFETY: promised by the caller.
    unsafe {
        let mut sum = *sums.add(first);
        for block in 1..group / SUM_BLOCK {
            sum += *sums.add(first + block);
        }
        sum
    }
}
