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
/// `ln(1 + e) = 2s + 2s³ · P(s²)` with `s = e / (2 + e)`: the coefficients of the inverse hyperbolic tangent's series, the highest
/// first. For `e <= 1`, the error of the series is below 2^-28.
pub(crate) const LOG_ODD: [f32; 7] = [
    1.0 / 15.0,
    1.0 / 13.0,
    1.0 / 11.0,
    1.0 / 9.0,
    1.0 / 7.0,
    1.0 / 5.0,
    1.0 / 3.0,
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

/// `ln(1 + e^x)`, as `max(x, 0) + ln(1 + e^-|x|)`.
///
/// # Safety
/// The CPU has the instructions.
#[inline(always)]
pub(crate) unsafe fn softplus<S: Simd>(x: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let zero = S::splat(0.0);
        let e = exp::<S>(S::sub(zero, S::max(x, S::sub(zero, x))));
        let s = S::div(e, S::add(S::splat(2.0), e));
        let t = S::mul(s, s);
        let mut p = S::splat(LOG_ODD[0]);
        let mut i = 1;
        while i < LOG_ODD.len() {
            p = S::fma(p, t, S::splat(LOG_ODD[i]));
            i += 1;
        }
        let twice = S::add(s, s);
        S::add(S::max(x, zero), S::fma(S::mul(twice, t), p, twice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::for_isa;
    use crate::{Isa, reference};

    for_isa! {
        /// `exp` of 16 numbers, `sigmoid` of them, `softplus` of them.
        unsafe fn all16(x: &[f32; 16], to: &mut [[f32; 16]; 3]) = all16_with
    }

    #[inline(always)]
    unsafe fn all16_with<S: Simd>(x: &[f32; 16], to: &mut [[f32; 16]; 3]) {
        for at in (0..16).step_by(S::LANES) {
            // SAFETY: the vectors lie within the arrays; the instructions are promised.
            unsafe {
                let x = S::load(x.as_ptr().add(at));
                S::store(to[0].as_mut_ptr().add(at), exp::<S>(x));
                S::store(to[1].as_mut_ptr().add(at), sigmoid::<S>(x));
                S::store(to[2].as_mut_ptr().add(at), softplus::<S>(x));
            }
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
    fn softplus_and_sigmoid_are_within_a_few_units_of_the_last_place() {
        for x in domain() {
            let e = f64::from(x).exp();
            let functions = [
                ("softplus", reference::softplus(x), e.ln_1p()),
                ("sigmoid", reference::sigmoid(x), e / (1.0 + e)),
            ];
            for (name, found, exact) in functions {
                let ulp = f64::from(f32::from_bits(found.to_bits() + 1) - found);
                let error = (f64::from(found) - exact).abs() / ulp;
                assert!(error <= 4.0, "{name}({x}) is {found}, off by {error} units");
            }
        }
    }

    #[test]
    fn softplus_of_what_is_large_is_that_and_of_what_is_small_nothing() {
        assert_eq!(reference::softplus(1e4), 1e4);
        assert_eq!(reference::softplus(f32::INFINITY), f32::INFINITY);
        for x in [-1e4, f32::NEG_INFINITY] {
            assert_eq!(reference::softplus(x), 0.0, "{x}");
        }
    }

    #[test]
    fn functions_have_the_same_bits_on_every_instruction_set() {
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
        type Scalar = fn(f32) -> f32;
        let scalar: [(&str, Scalar); 3] = [
            ("exp", reference::exp),
            ("sigmoid", reference::sigmoid),
            ("softplus", reference::softplus),
        ];
        let numbers: Vec<f32> = special.into_iter().chain(domain().step_by(7)).collect();
        for isa in Isa::available().into_iter().filter(|isa| *isa != Isa::Portable) {
            for chunk in numbers.chunks_exact(16) {
                let (x, mut found): ([f32; 16], _) = (chunk.try_into().unwrap(), [[0.0; 16]; 3]);
                // SAFETY: the instructions are there.
                unsafe { all16(isa, &x, &mut found) };
                for ((name, scalar), found) in scalar.iter().zip(found) {
                    for (x, found) in x.into_iter().zip(found) {
                        assert_eq!(found.to_bits(), scalar(x).to_bits(), "{isa}: {name}({x})");
                    }
                }
            }
        }
    }
}
