//! Products of quants and activations as whole numbers (see [`digits`](crate::digits)), by AVX-512's products of bytes.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::{AWAY, PanelTotals};
use crate::digits::{DIGITS, HIGH, LOW, RECORD, STEP, SUMS};
use crate::rows::Packed;
use crate::simd::prefetch;
use crate::weights::{BLOCK, Float, PANEL, Quants, Weights, place, planes};

/// The most rows of a tile: the sums of three digits, of two vectors, fill three quarters of the registers.
pub(super) const TILE_ROWS: usize = 4;

/// How far ahead of the arithmetic a panel is fetched, as for floats.
const AHEAD: usize = 4096;

/// Outputs of a vector.
const LANES: usize = 16;

/// Vectors of a panel.
const VECS: usize = PANEL / LANES;

/// Blocks of a panel that are unpacked at once.
const RUN: usize = 16;

/// Bytes of an unpacked block.
const UNPACKED: usize = BLOCK * PANEL;

/// Unpacked quants, as a panel of 8 bits has them: `[blocks][BLOCK / 4][PANEL]` words.
#[repr(align(64))]
struct Bytes(MaybeUninit<[u8; RUN * UNPACKED]>);

/// Some blocks of a panel and a tile of rows.
struct Args {
    quants: Quants,
    panel: *const u8,
    inputs: usize,
    blocks: Range<usize>,
    /// The quants of these blocks, if they have been unpacked.
    bytes: Option<*const u8>,
    /// Whether what follows in the panel is to be fetched.
    fetches: bool,
    /// `[rows][inputs / 32][RECORD]`.
    digits: *const u32,
    /// Up to [`TILE_ROWS`].
    rows: usize,
    /// `[rows][PANEL]`, added to.
    totals: *mut f32,
}

/// Tiles from which it takes less time to unpack quants of so many bits once than anew for each.
fn unpacks_from(bits: usize) -> usize {
    match bits {
        8 => usize::MAX,
        2 | 4 => 8,
        _ => 2,
    }
}

/// The totals of one panel of some tiles' rows.
pub(super) fn multiply(
    packed: &Packed,
    weights: &Weights,
    quants: Quants,
    panel: usize,
    span: Range<usize>,
    totals: &mut PanelTotals,
) {
    let (panel, inputs) = (weights.panel(panel).as_ptr(), weights.inputs());
    let blocks = inputs.div_ceil(BLOCK);
    let first = packed.tiles.start(span.start);
    let rows = packed.tiles.start(span.end) - first;
    // SAFETY: there is room for the rows of a block.
    unsafe { totals.0.as_mut_ptr().cast::<f32>().write_bytes(0, rows * PANEL) };
    let unpacks = span.len() >= unpacks_from(quants.bits);
    let mut bytes = Bytes(MaybeUninit::uninit());
    for start in (0..blocks).step_by(if unpacks { RUN } else { blocks }) {
        let run = start..if unpacks {
            (start + RUN).min(blocks)
        } else {
            blocks
        };
        let unpacked = unpacks.then(|| {
            // SAFETY: the panel has the layout of its storage, there is room for a run, and a team whose products are of integers has
            // the instructions.
            unsafe { unpack(quants, panel, run.clone(), bytes.0.as_mut_ptr().cast()) };
            bytes.0.as_ptr().cast::<u8>()
        });
        for tile in span.clone() {
            let rows = packed.tiles.rows(tile);
            // SAFETY: as above; the rows are prepared.
            unsafe {
                panel_totals(&Args {
                    quants,
                    panel,
                    inputs,
                    blocks: run.clone(),
                    bytes: unpacked,
                    fetches: !unpacks && tile == span.start,
                    digits: packed.digits.add(rows.start * blocks * RECORD),
                    rows: rows.len(),
                    totals: totals
                        .0
                        .as_mut_ptr()
                        .cast::<f32>()
                        .add((rows.start - first) * PANEL),
                });
            }
        }
    }
}

/// Makes the quants of some blocks bytes, as a panel of 8 bits has them.
///
/// # Safety
/// As for [`panel_totals`]; `to` has room for the blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn unpack(quants: Quants, panel: *const u8, blocks: Range<usize>, to: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe {
        match quants.bits {
            2 => unpack_bits::<2>(quants, panel, blocks, to),
            3 => unpack_bits::<3>(quants, panel, blocks, to),
            4 => unpack_bits::<4>(quants, panel, blocks, to),
            5 => unpack_bits::<5>(quants, panel, blocks, to),
            6 => unpack_bits::<6>(quants, panel, blocks, to),
            bits => unreachable!("{bits} bits are not unpacked"),
        }
    }
}

#[inline(always)]
unsafe fn unpack_bits<const BITS: usize>(
    quants: Quants,
    panel: *const u8,
    blocks: Range<usize>,
    to: *mut u8,
) {
    let records = quants.records();
    // SAFETY: promised by the caller.
    unsafe {
        for (index, block) in blocks.enumerate() {
            let at = panel.add(records.block_of(block * BLOCK));
            fetch_after(at, quants);
            let to = to.add(index * UNPACKED).cast::<u32>();
            for eight in 0..BLOCK / 8 {
                for odd in 0..2 {
                    for vec in 0..VECS {
                        let quants = bytes::<BITS>(at, 8 * eight + odd, vec * LANES);
                        let to = to.add((2 * eight + odd) * PANEL + vec * LANES);
                        _mm512_storeu_si512(to.cast(), quants);
                    }
                }
            }
        }
    }
}

/// Has what a panel holds some blocks after this one fetched.
#[inline(always)]
fn fetch_after(block: *const u8, quants: Quants) {
    let records = quants.records();
    let groups = (BLOCK / quants.group).max(1);
    for line in (0..records.block + records.group * groups).step_by(64) {
        prefetch(block.wrapping_add(AHEAD + line));
    }
}

/// The totals of some blocks of a panel for a tile of rows.
///
/// # Safety
/// The CPU has AVX-512's F, BW, VL and VNNI; the panel has the layout of its storage, rows that of [`digits`](crate::digits), and
/// totals has room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn panel_totals(args: &Args) {
    // SAFETY: promised by the caller.
    unsafe {
        match args.rows {
            1 => rows::<1>(args),
            2 => rows::<2>(args),
            3 => rows::<3>(args),
            4 => rows::<4>(args),
            count => unreachable!("a tile of {count} rows"),
        }
    }
}

#[inline(always)]
unsafe fn rows<const R: usize>(args: &Args) {
    // SAFETY: promised by the caller.
    unsafe {
        match (args.quants.centered, args.quants.group < BLOCK) {
            (false, false) => of_bits::<R, false, 1>(args),
            (false, true) => of_bits::<R, false, 2>(args),
            (true, false) => of_bits::<R, true, 1>(args),
            (true, true) => of_bits::<R, true, 2>(args),
        }
    }
}

#[inline(always)]
unsafe fn of_bits<const R: usize, const CENTERED: bool, const PIECES: usize>(args: &Args) {
    let bits = if args.bytes.is_some() { 8 } else { args.quants.bits };
    // SAFETY: promised by the caller.
    unsafe {
        match bits {
            2 => tile::<R, 2, CENTERED, PIECES>(args),
            3 => tile::<R, 3, CENTERED, PIECES>(args),
            4 => tile::<R, 4, CENTERED, PIECES>(args),
            5 => tile::<R, 5, CENTERED, PIECES>(args),
            6 => tile::<R, 6, CENTERED, PIECES>(args),
            _ => tile::<R, 8, CENTERED, PIECES>(args),
        }
    }
}

/// The same for each number below a count, as constants: sums that are indexed by anything else would live in memory.
macro_rules! unrolled {
    (vecs, |$at:ident| $body:expr) => { unrolled!(@ VECS, $at, $body, 0 1) };
    (digits, |$at:ident| $body:expr) => { unrolled!(@ 3, $at, $body, 0 1 2) };
    (rows $count:expr, |$at:ident| $body:expr) => { unrolled!(@ $count, $at, $body, 0 1 2 3) };
    (@ $count:expr, $at:ident, $body:expr, $($n:literal)*) => {{
        $(if $n < $count {
            const $at: usize = $n;
            $body
        })*
    }};
}

/// `PIECES` of a block have a scale of their own: two where groups are of 16.
#[inline(always)]
unsafe fn tile<const R: usize, const BITS: usize, const CENTERED: bool, const PIECES: usize>(args: &Args) {
    let (quants, records) = (args.quants, args.quants.records());
    let blocks = args.inputs.div_ceil(BLOCK);
    // SAFETY: promised by the caller.
    unsafe {
        let centre = _mm_cvtsi32_si128(quants.bits as i32 - 1);
        let high_start = _mm512_set1_epi32(-AWAY / 256);
        let low_start = _mm512_castps_si512(_mm512_set1_ps(AWAY as f32));
        for block in args.blocks.clone() {
            let at = match args.bytes {
                Some(bytes) => bytes.add((block - args.blocks.start) * UNPACKED),
                None => args.panel.add(records.block_of(block * BLOCK)),
            };
            if args.fetches {
                fetch_after(at, quants);
            }
            for piece in 0..PIECES {
                let start = block * BLOCK + piece * (BLOCK / PIECES);
                if start >= args.inputs {
                    break;
                }
                let words = |row: usize| args.digits.add((row * blocks + block) * RECORD);
                let eights = BLOCK / 8 / PIECES;
                let mut sums = [[[_mm512_setzero_si512(); 3]; VECS]; TILE_ROWS];
                unrolled!(rows R, |ROW| {
                    let (mut high, mut low) = (high_start, low_start);
                    if CENTERED {
                        // What the centre of the quants takes off.
                        let off_high = of_piece::<PIECES>(words(ROW).add(HIGH), piece);
                        let off_low = of_piece::<PIECES>(words(ROW).add(LOW), piece);
                        high = _mm512_add_epi32(high, _mm512_sll_epi32(off_high, centre));
                        low = _mm512_add_epi32(low, _mm512_sll_epi32(off_low, centre));
                    }
                    unrolled!(vecs, |VEC| {
                        sums[ROW][VEC] = [_mm512_setzero_si512(), high, low];
                    });
                });
                for eight in piece * eights..(piece + 1) * eights {
                    for odd in 0..2 {
                        let mut weights = [_mm512_setzero_si512(); VECS];
                        unrolled!(vecs, |VEC| {
                            weights[VEC] = bytes::<BITS>(at, 8 * eight + odd, VEC * LANES);
                        });
                        unrolled!(digits, |DIGIT| unrolled!(rows R, |ROW| {
                            let x = *words(ROW).add(DIGIT * (DIGITS / 3) + 2 * eight + odd);
                            let x = _mm512_set1_epi32(x as i32);
                            unrolled!(vecs, |VEC| {
                                let sum = &mut sums[ROW][VEC][DIGIT];
                                *sum = _mm512_dpbusd_epi32(*sum, weights[VEC], x);
                            });
                        }));
                    }
                }
                let scales = args.panel.add(records.scales_of(start, quants.group));
                let mut scale = [_mm512_setzero_ps(); VECS];
                let mut bias = [_mm512_setzero_ps(); VECS];
                unrolled!(vecs, |VEC| {
                    scale[VEC] = load(quants.scale, scales, VEC * LANES);
                    if !CENTERED {
                        bias[VEC] = load(quants.scale, scales.add(records.biases), VEC * LANES);
                    }
                });
                unrolled!(rows R, |ROW| {
                    let record = words(ROW);
                    let step = float(record.add(STEP));
                    let sum = float(record.add(if PIECES == 1 { SUMS + 2 } else { SUMS + piece }));
                    unrolled!(vecs, |VEC| {
                        let [top, middle, low] = sums[ROW][VEC];
                        let high = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32::<8>(top), middle));
                        let low = _mm512_castsi512_ps(low);
                        let value = _mm512_fmadd_ps(high, _mm512_set1_ps(256.0), low);
                        let value = _mm512_mul_ps(value, step);
                        let to = args.totals.add(ROW * PANEL + VEC * LANES);
                        let mut total = _mm512_fmadd_ps(value, scale[VEC], _mm512_loadu_ps(to));
                        if !CENTERED {
                            total = _mm512_fmadd_ps(sum, bias[VEC], total);
                        }
                        _mm512_storeu_ps(to, total);
                    });
                });
            }
        }
    }
}

/// A word in all lanes.
#[inline(always)]
unsafe fn word(from: *const u32) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe { _mm512_set1_epi32(*from as i32) }
}

/// The same, as a float.
#[inline(always)]
unsafe fn float(from: *const u32) -> __m512 {
    // SAFETY: promised by the caller.
    unsafe { _mm512_castsi512_ps(word(from)) }
}

/// The sum of a piece's digits, where those of a block's first half and of all of it are kept.
#[inline(always)]
unsafe fn of_piece<const PIECES: usize>(sums: *const u32, piece: usize) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe {
        match (PIECES, piece) {
            (1, _) => word(sums.add(1)),
            (_, 0) => word(sums),
            _ => _mm512_sub_epi32(word(sums.add(1)), word(sums)),
        }
    }
}

/// The quants of an input and of the three in whose byte it isn't, each a byte: of 16 outputs.
#[inline(always)]
unsafe fn bytes<const BITS: usize>(block: *const u8, input: usize, column: usize) -> __m512i {
    // SAFETY: promised by the caller.
    unsafe {
        let (mut below, mut plane) = (0usize, block.cast::<u32>());
        let mut quants = _mm512_setzero_si512();
        for &width in planes(BITS) {
            let (word, shift) = place(width, input);
            let words = _mm512_loadu_si512(plane.add(word * PANEL + column).cast());
            let shifted = _mm512_srl_epi32(words, _mm_cvtsi32_si128(shift as i32));
            let mask = _mm512_set1_epi8(((1u32 << width) - 1) as u8 as i8);
            let bits = if width == 8 {
                words
            } else {
                _mm512_and_si512(shifted, mask)
            };
            quants = _mm512_or_si512(quants, _mm512_sll_epi32(bits, _mm_cvtsi32_si128(below as i32)));
            below += width;
            plane = plane.add(width * PANEL);
        }
        quants
    }
}

#[inline(always)]
unsafe fn load(float: Float, from: *const u8, index: usize) -> __m512 {
    // SAFETY: promised by the caller.
    unsafe {
        match float {
            Float::F32 => _mm512_loadu_ps(from.cast::<f32>().add(index)),
            Float::F16 => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast::<u16>().add(index).cast())),
            Float::Bf16 => {
                let words = _mm256_loadu_si256(from.cast::<u16>().add(index).cast());
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)))
            }
        }
    }
}
