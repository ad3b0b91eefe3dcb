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

/// Sums of `d₂ · 256 + d₁`: of the first half of the block, and of both.
pub(crate) const HIGH: usize = SUMS + 3;

/// Sums of `d₀`: of the first half of the block, and of both.
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
/// The CPU has AVX-512 (F, BW, VL); `x` ends where the row does, or at a whole block, and `to` has room for its records.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma")]
pub(crate) unsafe fn write(x: &[f32], centered: bool, to: *mut u32) {
    use std::arch::x86_64::*;

    use crate::rows::SUM_BLOCK;
    use crate::simd::{Avx512, Simd};

    // SAFETY: a block's record has RECORD words, masks keep loads within the row, the rest as promised.
    unsafe {
        let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        let magnitude = _mm512_set1_epi32(i32::MAX);
        let round = _mm512_set1_epi32(128);
        let mut rest = [0.0f32; BLOCK];
        for (index, mut block) in x.chunks(BLOCK).enumerate() {
            if block.len() < BLOCK {
                rest[..block.len()].copy_from_slice(block);
                block = &rest;
            }
            let to = to.add(index * RECORD);
            let halves = [0, SUM_BLOCK].map(|at| _mm512_loadu_ps(block.as_ptr().add(at)));
            let largest = halves.map(|half| _mm512_and_si512(_mm512_castps_si512(half), magnitude));
            let (step, inverse) = steps(_mm512_reduce_max_epu32(_mm512_max_epu32(largest[0], largest[1])));
            let finite = if step.is_nan() { 0 } else { u16::MAX };
            let (mut sums, mut high, mut low) = ([0.0f32; 2], [0i32; 2], [0i32; 2]);
            for (half, x) in halves.into_iter().enumerate() {
                let scaled = _mm512_mul_ps(x, _mm512_set1_ps(inverse));
                let value = _mm512_maskz_cvtps_epi32(finite, scaled);
                let middle = _mm512_srai_epi32::<8>(_mm512_add_epi32(value, round));
                let top = _mm512_srai_epi32::<8>(_mm512_add_epi32(middle, round));
                for (digit, digits) in [top, middle, value].into_iter().enumerate() {
                    let bytes = _mm_shuffle_epi8(_mm512_cvtepi32_epi8(digits), order);
                    _mm_storeu_si128(to.add(digit * DIGITS / 3 + half * 4).cast(), bytes);
                }
                sums[half] = Avx512::sum16(block.as_ptr().add(half * SUM_BLOCK));
                if centered {
                    high[half] = _mm512_reduce_add_epi32(middle);
                    low[half] = _mm512_reduce_add_epi32(value) - 256 * high[half];
                }
            }
            let words = [
                step.to_bits(),
                sums[0].to_bits(),
                sums[1].to_bits(),
                (sums[0] + sums[1]).to_bits(),
                high[0] as u32,
                (high[0] + high[1]) as u32,
                low[0] as u32,
                (low[0] + low[1]) as u32,
            ];
            to.add(STEP).cast::<[u32; RECORD - STEP]>().write_unaligned(words);
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
