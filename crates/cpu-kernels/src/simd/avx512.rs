//! AVX-512F.

use std::arch::x86_64::*;

use super::Simd;
use crate::Isa;

#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// SAFETY of all functions: the trait's callers promise the instructions and valid pointers.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one promise covers all, above")]
impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const ISA: Isa = Isa::Avx512;
    const TILE_VECS: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: __m512) {
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn div(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn min(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn round(x: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    unsafe fn pow2(n: __m512) -> __m512 {
        unsafe {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        }
    }
    #[inline(always)]
    unsafe fn where_ge(x: __m512, bound: __m512, a: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GE_OQ>(x, bound), a) }
    }
    #[inline(always)]
    unsafe fn load_words(from: *const u32) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u8) -> __m512i {
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn shift_right(x: __m512i, by: u32) -> __m512i {
        unsafe { _mm512_srl_epi32(x, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    unsafe fn shift_left(x: __m512i, by: u32) -> __m512i {
        unsafe { _mm512_sll_epi32(x, _mm_cvtsi32_si128(by as i32)) }
    }
    #[inline(always)]
    unsafe fn and(x: __m512i, mask: u32) -> __m512i {
        unsafe { _mm512_and_si512(x, _mm512_set1_epi32(mask as i32)) }
    }
    #[inline(always)]
    unsafe fn or(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_or_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn to_float(x: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(x) }
    }
    #[inline(always)]
    unsafe fn nibble(x: __m512i) -> __m512 {
        unsafe {
            // A permutation looks at the lowest four bits of each index only.
            let table = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0,
            );
            _mm512_permutexvar_ps(x, table)
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
    #[inline(always)]
    unsafe fn sum16(from: *const f32) -> f32 {
        unsafe {
            let x = _mm256_add_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8)));
            super::avx2::sum8(x)
        }
    }
    #[inline(always)]
    unsafe fn max_lane(x: __m512) -> f32 {
        unsafe { _mm512_reduce_max_ps(x) }
    }
}
