//! Rows of activations on their way into a product: normalized, summed by groups, and packed by register tiles.

use std::ops::Range;

use crate::digits::{self, RECORD};
use crate::shared::SharedMut;
use crate::simd::{SUM_LANES, Simd, for_isa};
use crate::team::Worker;
use crate::weights::BLOCK;
use crate::{Isa, reference};

/// Inputs whose sum is kept: the smallest group of quantized weights.
pub(crate) const SUM_BLOCK: usize = SUM_LANES;

/// Elements below which one thread prepares the rows before the others are called.
const SMALL: usize = 8192;

/// The same where they become whole numbers, which takes longer.
const SMALL_DIGITS: usize = 3072;

/// Inputs that a thread takes of a tile at once, where they are only packed, and tiles are few.
const CHUNK: usize = 256;

/// Tiles, for each thread, from which each is taken whole.
const MANY_TILES: usize = 4;

/// The phase in which rows are prepared.
const CLAIM_TILES: usize = 0;

/// Root-mean-square normalization: `x / sqrt(mean(x²) + eps) · weight`. The squares are summed by fused multiply-adds into 16
/// lanes, which are added by halves.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a> {
    /// `[features]`.
    pub weight: &'a [f32],
    /// Keeps rows of zeros finite.
    pub eps: f32,
}

/// Rows that a product takes: `[rows, features]`, normalized first if there is a norm.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    x: &'a [f32],
    rows: usize,
    features: usize,
    norm: Option<Norm<'a>>,
}

impl<'a> Input<'a> {
    /// Rows of `features` each.
    ///
    /// # Panics
    /// If `x` is not made of whole rows, or the norm's weight has not one element for each feature.
    pub fn new(x: &'a [f32], features: usize, norm: Option<Norm<'a>>) -> Self {
        assert!(
            features > 0 && x.len().is_multiple_of(features),
            "rows of {features} in {}",
            x.len()
        );
        if let Some(norm) = norm {
            assert_eq!(norm.weight.len(), features, "the norm's weight");
        }
        Self {
            x,
            rows: x.len() / features,
            features,
            norm,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn features(&self) -> usize {
        self.features
    }

    pub(crate) fn row(&self, row: usize) -> &'a [f32] {
        &self.x[row * self.features..][..self.features]
    }

    pub(crate) fn norm(&self) -> Option<Norm<'a>> {
        self.norm
    }
}

/// Memory that kernels use while they run, kept between runs.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Tiles of rows, one after the other: `[inputs][rows of the tile]` each.
    packed: Vec<f32>,
    /// `[rows][inputs / 16]`.
    sums: Vec<f32>,
    /// `[rows][inputs / 32][RECORD]`, see [`digits`].
    digits: Vec<u32>,
    /// The rows of a tile, normalized, for each thread.
    normed: Vec<f32>,
}

/// What of the rows a product reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forms {
    /// As floats.
    pub floats: bool,
    /// As whole numbers.
    pub digits: bool,
    /// With the sums of their digits.
    pub digit_sums: bool,
}

/// How rows are cut into register tiles: as even as can be, none larger than the instructions allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiles {
    rows: usize,
    count: usize,
    most: usize,
}

impl Tiles {
    pub(crate) fn new(rows: usize, most: usize) -> Self {
        Self {
            rows,
            count: rows.div_ceil(most),
            most,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The first row of a tile; of the one past the last, the number of rows.
    pub(crate) fn start(&self, tile: usize) -> usize {
        tile * (self.rows / self.count) + tile.min(self.rows % self.count)
    }

    pub(crate) fn rows(&self, tile: usize) -> Range<usize> {
        self.start(tile)..self.start(tile + 1)
    }
}

/// Runs `$body` with the constant `$rows` of a tile of `$count` rows.
macro_rules! with_rows {
    ($simd:ident, $count:expr, |$rows:ident| $body:expr) => {
        $crate::rows::with_rows!(@match $simd, $count, $rows, $body, [1 2 3 4 5 6], [7 8 9 10 11 12])
    };
    (@match $simd:ident, $count:expr, $rows:ident, $body:expr, [$($few:literal)*], [$($many:literal)*]) => {
        match $count {
            $($few => { const $rows: usize = $few; $body })*
            $($many if $simd::TILE_ROWS > 6 => { const $rows: usize = $many; $body })*
            rows => unreachable!("a tile of {rows} rows"),
        }
    };
}
pub(crate) use with_rows;

/// Rows that are prepared, or will be by the first call of [`packed`](Self::packed) of all members.
pub(crate) struct Prepared<'a> {
    isa: Isa,
    input: Input<'a>,
    tiles: Tiles,
    /// Inputs that are taken of a tile at once.
    chunk: usize,
    forms: Forms,
    done: bool,
    direct: bool,
    packed: SharedMut<'a, f32>,
    sums: SharedMut<'a, f32>,
    digits: SharedMut<'a, u32>,
    normed: SharedMut<'a, f32>,
}

/// Prepared rows.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    /// Tile `t` begins at `start(t) · inputs`.
    pub x: *const f32,
    /// `[rows][inputs / 16]`; what is past the last whole block is left out.
    pub sums: *const f32,
    /// `[rows][inputs / 32][RECORD]`, see [`digits`].
    #[cfg_attr(
        not(target_arch = "x86_64"),
        allow(dead_code, reason = "vectors that multiply bytes alone read it")
    )]
    pub digits: *const u32,
    pub inputs: usize,
    pub tiles: Tiles,
}

impl Scratch {
    /// Sets the rows up; few of them are prepared at once.
    pub(crate) fn prepare<'a>(
        &'a mut self,
        isa: Isa,
        threads: usize,
        input: Input<'a>,
        tiles: Tiles,
        forms: Forms,
    ) -> Prepared<'a> {
        let (rows, features) = (input.rows(), input.features());
        // A lone row needs no other order than it has.
        let direct = !forms.floats || rows == 1 && input.norm().is_none();
        let digits = rows * features.div_ceil(BLOCK) * RECORD;
        grow(&mut self.packed, if direct { 0 } else { rows * features });
        grow(
            &mut self.sums,
            if forms.floats {
                rows * (features / SUM_BLOCK)
            } else {
                0
            },
        );
        grow(&mut self.digits, if forms.digits { digits } else { 0 });
        let normed = input.norm().map_or(0, |_| tiles.most() * features);
        grow(&mut self.normed, threads * normed);
        // A norm needs whole rows.
        let whole = input.norm().is_some() || tiles.count() >= MANY_TILES * threads;
        let mut prepared = Prepared {
            isa,
            input,
            tiles,
            chunk: if whole { features } else { CHUNK },
            forms,
            done: false,
            direct,
            packed: SharedMut::new(&mut self.packed),
            sums: SharedMut::new(&mut self.sums),
            digits: SharedMut::new(&mut self.digits),
            normed: SharedMut::new(&mut self.normed),
        };
        if rows * features <= if forms.digits { SMALL_DIGITS } else { SMALL } {
            for piece in 0..prepared.pieces() {
                prepared.piece(piece, 0);
            }
            prepared.done = true;
        }
        prepared
    }
}

impl Prepared<'_> {
    /// Prepares rows together with the other members, unless that is done.
    pub(crate) fn packed(&self, worker: &Worker<'_>) -> Packed {
        if !self.done {
            loop {
                let piece = worker.claim(CLAIM_TILES);
                if piece >= self.pieces() {
                    break;
                }
                self.piece(piece, worker.index());
                worker.finish(CLAIM_TILES, 1);
            }
            worker.wait_for(CLAIM_TILES, self.pieces());
        }
        let whole = |memory: &SharedMut<'_, f32>| memory.start().cast_const();
        Packed {
            x: if self.direct {
                self.input.row(0).as_ptr()
            } else {
                whole(&self.packed)
            },
            sums: whole(&self.sums),
            digits: self.digits.start().cast_const(),
            inputs: self.input.features(),
            tiles: self.tiles,
        }
    }

    /// Parts of a tile that are prepared apart.
    fn parts(&self) -> usize {
        self.input.features().div_ceil(self.chunk)
    }

    fn pieces(&self) -> usize {
        self.tiles.count() * self.parts()
    }

    fn piece(&self, piece: usize, thread: usize) {
        let (tile, part) = (piece / self.parts(), piece % self.parts());
        let (features, rows) = (self.input.features(), self.tiles.rows(tile));
        let columns = part * self.chunk..((part + 1) * self.chunk).min(features);
        let mut x = &self.input.x[rows.start * features..rows.end * features];
        if let Some(norm) = self.input.norm() {
            let start = thread * self.tiles.most() * features;
            // SAFETY: a thread's part is its own.
            let normed = unsafe { self.normed.slice(start..start + x.len()) };
            // SAFETY: both have as many elements, the norm has a row's; the instructions are the team's.
            unsafe { normalize(self.isa, x, norm, normed) };
            x = normed;
        }
        if self.forms.digits {
            let record = features.div_ceil(BLOCK) * RECORD;
            let part = columns.start / BLOCK * RECORD..columns.end.div_ceil(BLOCK) * RECORD;
            for (row, x) in rows.clone().zip(x.chunks(features)) {
                // SAFETY: each part of a row is prepared by one thread, and its records are its own; the instructions are there where
                // products are of integers.
                unsafe {
                    let records = self
                        .digits
                        .slice(row * record + part.start..row * record + part.end);
                    digits::write(&x[columns.clone()], self.forms.digit_sums, records.as_mut_ptr());
                }
            }
        }
        if !self.forms.floats {
            return;
        }
        let blocks = features / SUM_BLOCK;
        let sums = columns.start / SUM_BLOCK..(columns.end / SUM_BLOCK).min(blocks);
        for (row, x) in rows.clone().zip(x.chunks(features)) {
            // SAFETY: each part of a tile is prepared by one thread, and its blocks are its own; the instructions are the team's.
            unsafe {
                let sums = self
                    .sums
                    .slice(row * blocks + sums.start..row * blocks + sums.end);
                block_sums(self.isa, &x[columns.clone()], sums);
            }
        }
        if self.direct {
            return;
        }
        let packed = rows.start * features + columns.start * rows.len();
        // SAFETY: as above; its place is its own.
        let packed = unsafe { self.packed.slice(packed..packed + columns.len() * rows.len()) };
        pack(x, features, columns, rows.len(), packed);
    }
}

/// Some columns of rows `[rows][features]` to `[columns][rows]`.
fn pack(x: &[f32], features: usize, columns: Range<usize>, rows: usize, to: &mut [f32]) {
    macro_rules! by_rows {
        ($($n:literal)*) => {
            match rows {
                $($n => pack_rows::<$n>(x, features, columns, to),)*
                _ => unreachable!("a tile of {rows} rows"),
            }
        };
    }
    by_rows!(1 2 3 4 5 6 7 8 9 10 11 12);
}

fn pack_rows<const R: usize>(x: &[f32], features: usize, columns: Range<usize>, to: &mut [f32]) {
    let rows: [&[f32]; R] = std::array::from_fn(|row| &x[row * features..][columns.clone()]);
    for (k, to) in to.as_chunks_mut::<R>().0.iter_mut().enumerate() {
        for (to, row) in to.iter_mut().zip(rows) {
            // SAFETY: there are as many chunks as columns, and a row has all of them.
            *to = unsafe { *row.get_unchecked(k) };
        }
    }
}

/// Makes a buffer that is kept between runs long enough.
pub(crate) fn grow<T: Copy + Default>(memory: &mut Vec<T>, len: usize) {
    if memory.len() < len {
        memory.resize(len, T::default());
    }
}

/// The sum of squares, in 16 lanes.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn squares<S: Simd>(x: &[f32]) -> f32 {
    // SAFETY: promised by the caller.
    let [sum] = unsafe { squares_of_rows::<S, 1>(x) };
    sum
}

/// The same of each of some rows, one after the other in `x`: no sum waits for another.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
unsafe fn squares_of_rows<S: Simd, const R: usize>(x: &[f32]) -> [f32; R] {
    let len = x.len() / R;
    let whole = len / SUM_LANES * SUM_LANES;
    let wide = SUM_LANES / S::LANES;
    let mut squares = [0.0; R];
    // SAFETY: 16 elements from each offset lie within a row, or in the copy of its rest; the instructions are promised.
    unsafe {
        let mut sums = [[S::splat(0.0); 4]; R];
        let mut at = 0;
        while at < whole {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (i, sum) in sums.iter_mut().take(wide).enumerate() {
                    let v = S::load(x.as_ptr().add(row * len + at + i * S::LANES));
                    *sum = S::fma(v, v, *sum);
                }
            }
            at += SUM_LANES;
        }
        for (row, (sums, squares)) in sums.iter().zip(&mut squares).enumerate() {
            let mut rest = [0.0f32; SUM_LANES];
            rest[..len - whole].copy_from_slice(&x[row * len + whole..(row + 1) * len]);
            let mut lanes = [0.0f32; SUM_LANES];
            for (i, sum) in sums.iter().take(wide).enumerate() {
                let v = S::load(rest.as_ptr().add(i * S::LANES));
                S::store(lanes.as_mut_ptr().add(i * S::LANES), S::fma(v, v, *sum));
            }
            *squares = S::sum16(lanes.as_ptr());
        }
    }
    squares
}

/// Rows whose squares are summed at once.
const AT_ONCE: usize = 4;

/// Has something done with the scale of each row's norm.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn with_scales<S: Simd>(x: &[f32], norm: Norm<'_>, mut work: impl FnMut(usize, f32)) {
    let features = norm.weight.len();
    for (index, rows) in x.chunks(AT_ONCE * features).enumerate() {
        let mut squares = [0.0; AT_ONCE];
        // SAFETY: promised by the caller.
        unsafe {
            if rows.len() == AT_ONCE * features {
                squares = squares_of_rows::<S, AT_ONCE>(rows);
            } else {
                for (row, squares) in rows.chunks(features).zip(&mut squares) {
                    *squares = self::squares::<S>(row);
                }
            }
        }
        for (row, squares) in squares.iter().take(rows.len() / features).enumerate() {
            let scale = reference::rms_scale(*squares, features, norm.eps);
            work(index * AT_ONCE + row, scale);
        }
    }
}

for_isa! {
    /// Normalizes rows of as many elements as the norm has; both slices are as long.
    pub(crate) unsafe fn normalize(x: &[f32], norm: Norm<'_>, to: &mut [f32]) = normalize_with
}

#[inline(always)]
unsafe fn normalize_with<S: Simd>(x: &[f32], norm: Norm<'_>, to: &mut [f32]) {
    let features = norm.weight.len();
    // SAFETY: promised by the caller.
    unsafe {
        with_scales::<S>(x, norm, |row, scale| {
            let row = row * features..(row + 1) * features;
            scale_row::<S>(&x[row.clone()], scale, norm, &mut to[row]);
        });
    }
}

/// A row by its scale and the norm's weight.
#[inline(always)]
unsafe fn scale_row<S: Simd>(x: &[f32], scale: f32, norm: Norm<'_>, to: &mut [f32]) {
    // SAFETY: the vectors lie within the slices; the instructions are promised.
    unsafe {
        let factor = S::splat(scale);
        let mut at = 0;
        while at + S::LANES <= x.len() {
            let v = S::mul(S::load(x.as_ptr().add(at)), factor);
            S::store(
                to.as_mut_ptr().add(at),
                S::mul(v, S::load(norm.weight.as_ptr().add(at))),
            );
            at += S::LANES;
        }
        while at < x.len() {
            to[at] = x[at] * scale * norm.weight[at];
            at += 1;
        }
    }
}

for_isa! {
    /// The sums of blocks of 16, by halves, as many as `sums` takes.
    pub(crate) unsafe fn block_sums(x: &[f32], sums: &mut [f32]) = block_sums_with
}

#[inline(always)]
unsafe fn block_sums_with<S: Simd>(x: &[f32], sums: &mut [f32]) {
    for (block, sum) in x.chunks_exact(SUM_BLOCK).zip(sums) {
        // SAFETY: a block has 16 elements; the instructions are promised.
        *sum = unsafe { S::sum16(block.as_ptr()) };
    }
}
