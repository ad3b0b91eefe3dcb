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

/// `1 / (1 + e^-x)`.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let e = exp::<S>(S::sub(S::splat(0.0), x));
        S::div(S::splat(1.0), S::add(S::splat(1.0), e))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::for_isa;
    use crate::{Isa, reference};

    for_isa! {
        /// `exp` of 16 numbers.
        unsafe fn exp16(x: &[f32; 16], to: &mut [f32; 16]) = exp16_with
    }

    #[inline(always)]
    unsafe fn exp16_with<S: Simd>(x: &[f32; 16], to: &mut [f32; 16]) {
        for at in (0..16).step_by(S::LANES) {
            // SAFETY: the vectors lie within the arrays; the instructions are promised.
            unsafe { S::store(to.as_mut_ptr().add(at), exp::<S>(S::load(x.as_ptr().add(at)))) };
        }
    }

    /// Numbers from the whole domain, close to each other.
    fn domain() -> impl Iterator<Item = f32> {
        let steps = 400_000;
        let most = f64::from(EXP_MOST - EXP_LEAST);
        (0..=steps).map(move |i| (f64::from(EXP_LEAST) + most * f64::from(i) / f64::from(steps)) as f32)
    }

    #[test]
    fn exp_is_within_two_units_of_the_last_place() {
        for x in domain() {
            let exact = f64::from(x).exp();
            let found = reference::exp(x);
            let ulp = f64::from(f32::from_bits(found.to_bits() + 1) - found);
            let error = (f64::from(found) - exact).abs() / ulp;
            assert!(error <= 2.0, "exp({x}) is {found}, off by {error} units");
        }
    }

    #[test]
    fn exp_of_zero_is_one_and_of_what_is_too_small_or_no_number_zero() {
        assert_eq!(reference::exp(0.0).to_bits(), 1.0f32.to_bits());
        assert_eq!(reference::exp(-0.0).to_bits(), 1.0f32.to_bits());
        for x in [-87.001, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(reference::exp(x).to_bits(), 0, "{x}");
        }
    }

    #[test]
    fn exp_has_the_same_bits_on_every_instruction_set() {
        let special = [
            0.0,
            -0.0,
            f32::NAN,
            f32::NEG_INFINITY,
            f32::INFINITY,
            -1e9,
            1e9,
            -87.5,
        ];
        let numbers: Vec<f32> = special.into_iter().chain(domain().step_by(7)).collect();
        for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Portable) {
            for chunk in numbers.chunks_exact(16) {
                let (x, mut found): ([f32; 16], _) = (chunk.try_into().unwrap(), [0.0; 16]);
                // SAFETY: the instructions are there.
                unsafe { exp16(isa, &x, &mut found) };
                for (x, found) in x.into_iter().zip(found) {
                    assert_eq!(found.to_bits(), reference::exp(x).to_bits(), "{isa}: exp({x})");
                }
            }
        }
    }
}
