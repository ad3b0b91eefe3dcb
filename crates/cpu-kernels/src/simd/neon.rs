//! AArch64's Advanced SIMD.

use std::arch::aarch64::*;

use super::Simd;
use crate::Isa;

#[derive(Clone, Copy)]
pub(crate) struct Neon;

// SAFETY of all functions: the trait's callers promise the instructions and valid pointers.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one promise covers all, above")]
impl Simd for Neon {
    type F = float32x4_t;
    type I = uint32x4_t;
    const ISA: Isa = Isa::Neon;
    const TILE_VECS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> float32x4_t {
        unsafe { vdupq_n_f32(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> float32x4_t {
        unsafe { vld1q_f32(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: float32x4_t) {
        unsafe { vst1q_f32(to, x) }
    }
    #[inline(always)]
    unsafe fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vaddq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vsubq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vmulq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vdivq_f32(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // As on x86: `b` unless `a` is greater, so that NaN is treated alike.
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t {
        unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    unsafe fn round(x: float32x4_t) -> float32x4_t {
        unsafe { vrndnq_f32(x) }
    }
    #[inline(always)]
    unsafe fn pow2(n: float32x4_t) -> float32x4_t {
        unsafe {
            let biased = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn where_ge(x: float32x4_t, bound: float32x4_t, a: float32x4_t) -> float32x4_t {
        unsafe { vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x, bound), vreinterpretq_u32_f32(a))) }
    }
    #[inline(always)]
    unsafe fn load_words(from: *const u32) -> uint32x4_t {
        unsafe { vld1q_u32(from) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> uint32x4_t {
        unsafe {
            let word = vdup_n_u32(from.cast::<u32>().read_unaligned());
            vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(word))))
        }
    }
    #[inline(always)]
    unsafe fn shift_right(x: uint32x4_t, by: u32) -> uint32x4_t {
        unsafe { vshlq_u32(x, vdupq_n_s32(-(by as i32))) }
    }
    #[inline(always)]
    unsafe fn shift_left(x: uint32x4_t, by: u32) -> uint32x4_t {
        unsafe { vshlq_u32(x, vdupq_n_s32(by as i32)) }
    }
    #[inline(always)]
    unsafe fn and(x: uint32x4_t, mask: u32) -> uint32x4_t {
        unsafe { vandq_u32(x, vdupq_n_u32(mask)) }
    }
    #[inline(always)]
    unsafe fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        unsafe { vorrq_u32(a, b) }
    }
    #[inline(always)]
    unsafe fn to_float(x: uint32x4_t) -> float32x4_t {
        unsafe { vcvtq_f32_u32(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> float32x4_t {
        // By integers, since Rust's half-precision vectors aren't stable: rebias the exponent, and mend subnormals by a
        // subtraction.
        unsafe {
            let half = vmovl_u16(vld1_u16(from));
            let sign = vshlq_n_u32::<16>(vandq_u32(half, vdupq_n_u32(0x8000)));
            let rest = vshlq_n_u32::<13>(vandq_u32(half, vdupq_n_u32(0x7fff)));
            let exponent = vandq_u32(rest, vdupq_n_u32(0x0f80_0000));
            let rebiased = vaddq_u32(rest, vdupq_n_u32(112 << 23));
            let special = vaddq_u32(rebiased, vdupq_n_u32(112 << 23));
            let tiny = vsubq_f32(
                vreinterpretq_f32_u32(vaddq_u32(rebiased, vdupq_n_u32(1 << 23))),
                vreinterpretq_f32_u32(vdupq_n_u32(113 << 23)),
            );
            let is_special = vceqq_u32(exponent, vdupq_n_u32(0x0f80_0000));
            let is_tiny = vceqq_u32(exponent, vdupq_n_u32(0));
            let magnitude = vbslq_u32(is_special, special, rebiased);
            let magnitude = vbslq_u32(is_tiny, vreinterpretq_u32_f32(tiny), magnitude);
            vreinterpretq_f32_u32(vorrq_u32(magnitude, sign))
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> float32x4_t {
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from))) }
    }
    #[inline(always)]
    unsafe fn sum16(from: *const f32) -> f32 {
        unsafe {
            let low = vaddq_f32(vld1q_f32(from), vld1q_f32(from.add(8)));
            let high = vaddq_f32(vld1q_f32(from.add(4)), vld1q_f32(from.add(12)));
            let four = vaddq_f32(low, high);
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        }
    }
    #[inline(always)]
    unsafe fn max_lane(x: float32x4_t) -> f32 {
        unsafe { vmaxvq_f32(x) }
    }
}
