//! Activations as whole numbers: what products of bytes multiply with quants without any rounding.
//!
//! The inputs of a block of 32 share a step, the largest magnitude among them divided by [`MOST`]. An input counts as the nearest
//! multiple of the step, so that it is off by less than 3 · 2⁻²⁴ of that largest one, roundings of the step included. The multiple is
//! written in three digits of 256, each a signed byte: `X = (d₂ · 256 + d₁) · 256 + d₀`.
//!
//! A row is `[blocks][RECORD]` words: the digits, bytes by fours, the step, sums of the inputs as floats, and sums of the digits. They
//! are as many as the inputs of its blocks.

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "vectors that multiply bytes alone read the layout")
)]

use crate::weights::BLOCK;

/// What the largest input of a block becomes: three signed bytes hold 8,355,711, and two roundings may add some.
pub(crate) const MOST: f32 = 8_355_708.0;

/// A block whose largest input is smaller than this counts as zero: the inverse of its step would not be a number.
const LEAST: f32 = 1e-30;

/// Words of a row's block.
pub(crate) const RECORD: usize = 32;

/// Words of digits: eight of high ones, of middle ones, of low ones. Of each eight inputs the even ones are a word, the odd ones the
/// next, as [`place`](crate::weights::place) has it.
pub(crate) const DIGITS: usize = 24;

/// The step, float32.
pub(crate) const STEP: usize = DIGITS;

/// Sums of inputs, float32: of the first half of the block, of the second, of both.
pub(crate) const SUMS: usize = STEP + 1;

/// Sums of `d₂ · 256 + d₁`, negative: of the first half of the block, and of both.
pub(crate) const HIGH: usize = SUMS + 3;

/// Sums of `d₀`, negative: of the first half of the block, and of both.
pub(crate) const LOW: usize = HIGH + 2;

/// A block of inputs as whole numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole {
    /// What 1 stands for.
    pub step: f32,
    /// The multiples.
    pub values: [i32; BLOCK],
}

impl Whole {
    /// Rounds up to 32 inputs. If one is not a finite number, nothing that is computed with the step is.
    pub fn new(x: &[f32]) -> Self {
        let largest = x.iter().map(|x| x.to_bits() & !(1 << 31)).max().unwrap_or(0);
        let mut values = [0; BLOCK];
        let (step, inverse) = steps(largest);
        if !step.is_nan() {
            for (value, x) in values.iter_mut().zip(x) {
                *value = (x * inverse).round_ties_even() as i32;
            }
        }
        Self { step, values }
    }
}

/// A block's step and its inverse, from the bits of its largest magnitude.
#[inline(always)]
fn steps(largest: u32) -> (f32, f32) {
    let most = f32::from_bits(largest);
    if !most.is_finite() {
        (f32::NAN, 0.0)
    } else if most < LEAST {
        (0.0, 0.0)
    } else {
        (most / MOST, MOST / most)
    }
}

/// The digits of a multiple, the high one first, the others as what is left of them: `d₁` is `d₂ · 256 + d₁`.
pub(crate) fn split(value: i32) -> [i32; 3] {
    let middle = (value + 128) >> 8;
    [(middle + 128) >> 8, middle, value]
}

/// Blocks whose steps and sums are computed together.
#[cfg(target_arch = "x86_64")]
const TOGETHER: usize = 4;

/// Writes some blocks of a row; sums of digits only where quants are centered.
///
/// # Safety
/// The CPU has AVX-512 (F, BW, VL, VNNI); `x` ends where the row does, or at a whole block, and `to` has room for its records.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
pub(crate) unsafe fn write(x: &[f32], centered: bool, to: *mut u32) {
    let mut rest = [0.0f32; TOGETHER * BLOCK];
    for (index, x) in x.chunks(TOGETHER * BLOCK).enumerate() {
        let mut from = x.as_ptr();
        if x.len() < rest.len() {
            rest[..x.len()].copy_from_slice(x);
            from = rest.as_ptr();
        }
        let count = x.len().div_ceil(BLOCK);
        // SAFETY: as many inputs as are read lie at `from`; the rest as promised.
        unsafe { write_blocks(from, count, centered, to.add(index * TOGETHER * RECORD)) };
    }
}

/// Writes the first `count` of [`TOGETHER`] blocks.
///
/// # Safety
/// As for [`write`]; all of the blocks can be read.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
unsafe fn write_blocks(x: *const f32, count: usize, centered: bool, to: *mut u32) {
    use std::arch::x86_64::*;

    use crate::rows::SUM_BLOCK;

    // SAFETY: a block's record has RECORD words, the rest as promised.
    unsafe {
        let mut halves = [[_mm512_setzero_ps(); 2]; TOGETHER];
        for (block, halves) in halves.iter_mut().enumerate() {
            let x = x.add(block * BLOCK);
            *halves = [_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(SUM_BLOCK))];
        }
        let (steps, inverses, finite) = steps_together(&halves);
        let sums = sums_together(&halves);
        // Of each eight inputs the even ones first, and of each four the bytes by digits.
        let inputs = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        let bytes = _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1);
        let bytes = _mm512_broadcast_i32x4(bytes);
        let words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let carry = _mm512_set1_epi32(0x8080);
        for (block, halves) in halves.iter().enumerate().take(count) {
            let to = to.add(block * RECORD);
            let finite = if finite >> block & 1 == 1 { u16::MAX } else { 0 };
            let mut of_digits = [_mm512_setzero_si512(); 2];
            for (half, x) in halves.iter().enumerate() {
                let scaled = _mm512_mul_ps(*x, _mm512_set1_ps(inverses[block]));
                let value = _mm512_maskz_cvtps_epi32(finite, scaled);
                // The carries of both lower digits at once; what they add to these is the sign's bit, which is turned back.
                let digits = _mm512_xor_si512(_mm512_add_epi32(value, carry), carry);
                let digits = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(inputs, digits), bytes);
                let digits = _mm512_permutexvar_epi32(words, digits);
                let to = to.add(half * 4).cast::<__m128i>();
                _mm_storeu_si128(to, _mm512_castsi512_si128(digits));
                _mm_storeu_si128(to.add(2), _mm512_extracti32x4_epi32::<1>(digits));
                _mm_storeu_si128(to.add(4), _mm512_extracti32x4_epi32::<2>(digits));
                if centered {
                    of_digits[half] = _mm512_dpbusd_epi32(of_digits[half], _mm512_set1_epi8(1), digits);
                }
            }
            let [first, second] = sums[block];
            *to.add(STEP) = steps[block].to_bits();
            *to.add(SUMS) = first.to_bits();
            *to.add(SUMS + 1) = second.to_bits();
            *to.add(SUMS + 2) = (first + second).to_bits();
            if centered {
                // Of the high, the middle and the low digits: the sum of the first half, that of the second, and so again.
                let sums = _mm512_add_epi32(
                    _mm512_unpacklo_epi32(of_digits[0], of_digits[1]),
                    _mm512_unpackhi_epi32(of_digits[0], of_digits[1]),
                );
                let sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32::<0b01_00_11_10>(sums));
                let high = _mm_add_epi32(
                    _mm_slli_epi32::<8>(_mm512_castsi512_si128(sums)),
                    _mm512_extracti32x4_epi32::<1>(sums),
                );
                let [high, low] = [high, _mm512_extracti32x4_epi32::<2>(sums)].map(|halves| {
                    let both = _mm_add_epi32(halves, _mm_shuffle_epi32::<0b10_11_00_01>(halves));
                    _mm_unpacklo_epi32(halves, both)
                });
                let sums = _mm_sub_epi32(_mm_setzero_si128(), _mm_unpacklo_epi64(high, low));
                _mm_storeu_si128(to.add(HIGH).cast(), sums);
            }
        }
    }
}

/// The steps of blocks and their inverses, as [`steps`] has them; and a bit for each block whose inputs are all finite.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
fn steps_together(
    halves: &[[std::arch::x86_64::__m512; 2]; TOGETHER],
) -> ([f32; TOGETHER], [f32; TOGETHER], u8) {
    use std::arch::x86_64::*;

    let magnitude = _mm512_set1_epi32(i32::MAX);
    let of_block = |[first, second]: &[__m512; 2]| {
        _mm512_max_epu32(
            _mm512_and_si512(_mm512_castps_si512(*first), magnitude),
            _mm512_and_si512(_mm512_castps_si512(*second), magnitude),
        )
    };
    let [a, b, c, d] = [
        of_block(&halves[0]),
        of_block(&halves[1]),
        of_block(&halves[2]),
        of_block(&halves[3]),
    ];
    let ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let all = _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let all = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    let largest = _mm_max_epu32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
    let finite = _mm_cmplt_epu32_mask(largest, _mm_set1_epi32(f32::INFINITY.to_bits() as i32));
    let most = _mm_castsi128_ps(largest);
    let counts = finite & _mm_cmp_ps_mask::<_CMP_GE_OQ>(most, _mm_set1_ps(LEAST));
    let step = _mm_maskz_div_ps(counts, most, _mm_set1_ps(MOST));
    let step = _mm_mask_mov_ps(_mm_set1_ps(f32::NAN), finite, step);
    let inverse = _mm_maskz_div_ps(counts, _mm_set1_ps(MOST), most);
    let [mut steps, mut inverses] = [[0.0; TOGETHER]; 2];
    // SAFETY: there is room for four.
    unsafe {
        _mm_storeu_ps(steps.as_mut_ptr(), step);
        _mm_storeu_ps(inverses.as_mut_ptr(), inverse);
    }
    (steps, inverses, finite)
}

/// The sums of blocks' halves, each added up by halves, as `sum16` does.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
fn sums_together(halves: &[[std::arch::x86_64::__m512; 2]; TOGETHER]) -> [[f32; 2]; TOGETHER] {
    use std::arch::x86_64::*;

    // Of each block eight sums of its first half, then of its second.
    let of_block = |[first, second]: &[__m512; 2]| {
        _mm512_add_ps(
            _mm512_shuffle_f32x4::<0b01_00_01_00>(*first, *second),
            _mm512_shuffle_f32x4::<0b11_10_11_10>(*first, *second),
        )
    };
    let of_two = |one: &[__m512; 2], other: &[__m512; 2]| {
        let (one, other) = (of_block(one), of_block(other));
        _mm512_castps_pd(_mm512_add_ps(
            _mm512_shuffle_f32x4::<0b10_00_10_00>(one, other),
            _mm512_shuffle_f32x4::<0b11_01_11_01>(one, other),
        ))
    };
    let (ab, cd) = (of_two(&halves[0], &halves[1]), of_two(&halves[2], &halves[3]));
    let sums = _mm512_add_ps(
        _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)),
        _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)),
    );
    let sums = _mm512_add_ps(sums, _mm512_permute_ps::<0b10_11_00_01>(sums));
    let mut all = [0.0f32; 16];
    // SAFETY: there is room for sixteen.
    unsafe { _mm512_storeu_ps(all.as_mut_ptr(), sums) };
    std::array::from_fn(|block| {
        let first = 8 * (block % 2) + block / 2 * 2;
        [all[first], all[first + 4]]
    })
}

/// There is nothing that would read them.
///
/// # Safety
/// None is asked for.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn write(_: &[f32], _: bool, _: *mut u32) {
    unreachable!("no vectors multiply bytes here");
}
