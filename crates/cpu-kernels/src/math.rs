//! Elementary functions over vectors, by the same operations in every width.

use crate::simd::Simd;

/// Below this, `exp` is 0: where its result would leave the normal numbers.
pub(crate) const EXP_LEAST: f32 = -87.0;
/// Above this, `exp` is as at this.
pub(crate) const EXP_MOST: f32 = 88.0;
pub(crate) const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2, split so that its product with a small integer is exact (Cody and Waite).
pub(crate) const LN_2_HIGH: f32 = 0.693_359_4;
pub(crate) const LN_2_LOW: f32 = -2.121_944_4e-4;
/// `exp(r) ≈ 1 + r + r² · P(r)` for `|r| <= ln 2 / 2`: Taylor's coefficients from r² to r⁷, the highest first. The error of
/// the series is below 2^-27.
pub(crate) const EXP_TAYLOR: [f32; 6] = [
    1.0 / 5040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
];
/// `gelu(x) ≈ x · sigmoid(2u)` with `u = sqrt(2 / π) · (x + 0.044715 x³)` (Hendrycks and Gimpel 2016): its two factors.
pub(crate) const GELU_OUTER: f32 = 1.595_769_2;
pub(crate) const GELU_CUBIC: f32 = 0.044_715;

/// `e^x`; 0 below [`EXP_LEAST`], for minus infinity, too.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let least = S::splat(EXP_LEAST);
        let inside = S::min(S::max(x, least), S::splat(EXP_MOST));
        let n = S::round(S::mul(inside, S::splat(LOG2_E)));
        let r = S::fma(n, S::splat(-LN_2_HIGH), inside);
        let r = S::fma(n, S::splat(-LN_2_LOW), r);
        let mut p = S::splat(EXP_TAYLOR[0]);
        let mut i = 1;
        while i < EXP_TAYLOR.len() {
            p = S::fma(p, r, S::splat(EXP_TAYLOR[i]));
            i += 1;
        }
        let y = S::add(S::splat(1.0), S::fma(S::mul(r, r), p, r));
        S::where_ge(x, least, S::mul(y, S::pow2(n)))
    }
}

/// `x / (1 + e^-x)`.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let e = exp::<S>(S::sub(S::splat(0.0), x));
        S::div(x, S::add(S::splat(1.0), e))
    }
}

/// GELU with the tanh approximation.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let cubic = S::fma(S::mul(S::splat(GELU_CUBIC), S::mul(x, x)), x, x);
        let e = exp::<S>(S::mul(S::splat(-GELU_OUTER), cubic));
        S::div(x, S::add(S::splat(1.0), e))
    }
}
