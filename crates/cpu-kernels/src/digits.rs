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

/// Writes some blocks of a row; sums of digits only where quants are centered.
///
/// # Safety
/// The CPU has AVX-512 (F, BW, VL, VNNI); `x` ends where the row does, or at a whole block, and `to` has room for its records.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma")]
pub(crate) unsafe fn write(x: &[f32], centered: bool, to: *mut u32) {
    use std::arch::x86_64::*;

    use crate::rows::SUM_BLOCK;

    // SAFETY: a block's record has RECORD words, a block that is not whole is copied to where it has room, the rest as promised.
    unsafe {
        let magnitude = _mm512_set1_epi32(i32::MAX);
        // Of each eight inputs the even ones first, and of each four the bytes by digits.
        let inputs = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        let bytes = _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1);
        let bytes = _mm512_broadcast_i32x4(bytes);
        let words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let carry = _mm512_set1_epi32(0x8080);
        let mut rest = [0.0f32; BLOCK];
        for (index, mut block) in x.chunks(BLOCK).enumerate() {
            if block.len() < BLOCK {
                rest[..block.len()].copy_from_slice(block);
                block = &rest;
            }
            let to = to.add(index * RECORD);
            let first = _mm512_loadu_ps(block.as_ptr());
            let second = _mm512_loadu_ps(block.as_ptr().add(SUM_BLOCK));
            let largest = _mm512_max_epu32(
                _mm512_and_si512(_mm512_castps_si512(first), magnitude),
                _mm512_and_si512(_mm512_castps_si512(second), magnitude),
            );
            let (step, inverse) = steps(_mm512_reduce_max_epu32(largest));
            let finite = if step.is_nan() { 0 } else { u16::MAX };
            let mut sums = [_mm512_setzero_si512(); 2];
            for (half, x) in [first, second].into_iter().enumerate() {
                let scaled = _mm512_mul_ps(x, _mm512_set1_ps(inverse));
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
                    sums[half] = _mm512_dpbusd_epi32(sums[half], _mm512_set1_epi8(1), digits);
                }
            }
            // Both halves added up by halves, as `sum16` does.
            let sum = _mm512_add_ps(
                _mm512_shuffle_f32x4::<0b01_00_01_00>(first, second),
                _mm512_shuffle_f32x4::<0b11_10_11_10>(first, second),
            );
            let sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4::<0b10_11_00_01>(sum, sum));
            let sum = _mm512_add_ps(sum, _mm512_permute_ps::<0b01_00_11_10>(sum));
            let sum = _mm512_add_ps(sum, _mm512_permute_ps::<0b10_11_00_01>(sum));
            let first = _mm512_cvtss_f32(sum);
            let second = _mm_cvtss_f32(_mm512_extractf32x4_ps::<2>(sum));
            *to.add(STEP) = step.to_bits();
            *to.add(SUMS) = first.to_bits();
            *to.add(SUMS + 1) = second.to_bits();
            *to.add(SUMS + 2) = (first + second).to_bits();
            if centered {
                // Of the high, the middle and the low digits: the sum of the first half, that of the second, and so again.
                let sums = _mm512_add_epi32(
                    _mm512_unpacklo_epi32(sums[0], sums[1]),
                    _mm512_unpackhi_epi32(sums[0], sums[1]),
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

/// There is nothing that would read them.
///
/// # Safety
/// None is asked for.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) unsafe fn write(_: &[f32], _: bool, _: *mut u32) {
    unreachable!("no vectors multiply bytes here");
}
