//! AVX2 with FMA and F16C.

use std::arch::x86_64::*;

use super::Simd;
use crate::Isa;

#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// The sum of 8 floats, by halves.
///
/// # Safety
/// The CPU has AVX.
#[inline(always)]
pub(super) unsafe fn sum8(x: __m256) -> f32 {
    // SAFETY: promised by the caller.
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        let x = _mm_add_ss(x, _mm_shuffle_ps::<1>(x, x));
        _mm_cvtss_f32(x)
    }
}

// SAFETY of all functions: the trait's callers promise the instructions and valid pointers.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one promise covers all, above")]
impl Simd for Avx2 {
    type F = __m256;
    type I = __m256i;
    const ISA: Isa = Isa::Avx2;
    const TILE_VECS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m256) {
        unsafe { _mm256_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(x: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m256) -> __m256 {
        unsafe {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn where_ge(x: __m256, bound: __m256, a: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(x, bound), a) }
    }
    #[inline(always)]
    unsafe fn load_words(from: *const u32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m256i {
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())) }
    }
    #[inline(always)]
    unsafe fn shift_right(x: __m256i, by: u32) -> __m256i {
        unsafe { _mm256_srl_epi32(x, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    unsafe fn shift_left(x: __m256i, by: u32) -> __m256i {
        unsafe { _mm256_sll_epi32(x, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    unsafe fn and(x: __m256i, mask: u32) -> __m256i {
        unsafe { _mm256_and_si256(x, _mm256_set1_epi32(mask as i32)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_or_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn to_float(x: __m256i) -> __m256 {
        unsafe { _mm256_cvtepi32_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m256 {
        unsafe {
            let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn sum16(from: *const f32) -> f32 {
        unsafe { sum8(_mm256_add_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)))) }
    }
    #[inline(always)]
    unsafe fn max_lane(x: __m256) -> f32 {
        unsafe {
            let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
            let x = _mm_max_ss(x, _mm_shuffle_ps::<1>(x, x));
            _mm_cvtss_f32(x)
        }
    }
}
