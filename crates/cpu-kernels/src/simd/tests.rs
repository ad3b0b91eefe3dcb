//! Every operation is what its scalar definition says, on every instruction set.

use super::Simd;
use crate::Isa;

/// 16 numbers, in any number of vectors.
type Numbers = [f32; 16];

/// An operation on numbers, with its name and definition.
struct Found {
    name: &'static str,
    expected: Numbers,
    found: Numbers,
}

for_isa! {
    /// Runs all operations on floats.
    unsafe fn floats(a: &Numbers, b: &Numbers, c: &Numbers, to: &mut Vec<Found>) = floats_with
}

#[inline(always)]
unsafe fn floats_with<S: Simd>(a: &Numbers, b: &Numbers, c: &Numbers, to: &mut Vec<Found>) {
    macro_rules! check {
        ($name:literal, |$x:ident, $y:ident, $z:ident| $vector:expr, $scalar:expr) => {
            let mut found = [0.0; 16];
            for at in (0..16).step_by(S::LANES) {
                // SAFETY: the vectors lie within the arrays; the instructions are promised.
                unsafe {
                    let $x = S::load(a.as_ptr().add(at));
                    let $y = S::load(b.as_ptr().add(at));
                    let $z = S::load(c.as_ptr().add(at));
                    let _ = ($y, $z);
                    S::store(found.as_mut_ptr().add(at), $vector);
                }
            }
            let scalar: fn(f32, f32, f32) -> f32 = $scalar;
            let expected = std::array::from_fn(|i| scalar(a[i], b[i], c[i]));
            to.push(Found {
                name: $name,
                expected,
                found,
            });
        };
    }
    check!("add", |x, y, _z| S::add(x, y), |x, y, _| x + y);
    check!("sub", |x, y, _z| S::sub(x, y), |x, y, _| x - y);
    check!("mul", |x, y, _z| S::mul(x, y), |x, y, _| x * y);
    check!("div", |x, y, _z| S::div(x, y), |x, y, _| x / y);
    check!("fma", |x, y, z| S::fma(x, y, z), |x, y, z| x.mul_add(y, z));
    check!("round", |x, _y, _z| S::round(x), |x, _, _| x.round_ties_even());
    // The second operand, unless the first is greater or smaller: for NaN and zeros of either sign, too.
    check!("max", |x, y, _z| S::max(x, y), |x, y, _| if x > y {
        x
    } else {
        y
    });
    check!("min", |x, y, _z| S::min(x, y), |x, y, _| if x < y {
        x
    } else {
        y
    });
    check!("where_ge", |x, y, z| S::where_ge(x, y, z), |x, y, z| if x >= y {
        z
    } else {
        0.0
    });
}

for_isa! {
    /// Runs all operations on integers, and those that give one number.
    unsafe fn integers(words: &[u32; 16], to: &mut Vec<Found>) = integers_with
}

#[inline(always)]
unsafe fn integers_with<S: Simd>(words: &[u32; 16], to: &mut Vec<Found>) {
    macro_rules! check {
        ($name:literal, |$at:ident, $x:ident| $vector:expr, |$i:ident| $scalar:expr) => {
            let mut found = [0.0; 16];
            for $at in (0..16).step_by(S::LANES) {
                // SAFETY: as above.
                unsafe {
                    let $x = S::load_words(words.as_ptr().add($at));
                    let _ = $x;
                    S::store(found.as_mut_ptr().add($at), $vector);
                }
            }
            to.push(Found {
                name: $name,
                expected: std::array::from_fn(|$i| $scalar as f32),
                found,
            });
        };
    }
    let bytes: [u8; 17] = std::array::from_fn(|i| 255 - (i * i) as u8);
    // At an odd address.
    let from = bytes[1..].as_ptr();
    check!(
        "load_bytes",
        |at, _x| S::to_float(S::load_bytes(from.add(at))),
        |i| bytes[i + 1]
    );
    for by in [0, 1, 7, 24, 31] {
        check!(
            "shift_right",
            |_at, x| S::to_float(S::and(S::shift_right(x, by), 0xff_ffff)),
            |i| (words[i] >> by & 0xff_ffff)
        );
        check!(
            "shift_left",
            |_at, x| S::to_float(S::shift_right(S::shift_left(x, by), 8)),
            |i| ((words[i] << by) >> 8)
        );
    }
    check!(
        "or",
        |_at, x| S::to_float(S::or(S::and(x, 0xf0), S::shift_right(x, 28))),
        |i| (words[i] & 0xf0 | words[i] >> 28)
    );
    check!("nibble", |_at, x| S::nibble(x), |i| (words[i] & 15));
    let powers: Numbers = std::array::from_fn(|i| [-127.0, -126.0, -1.0, 0.0, 1.0, 127.0][i % 6]);
    check!(
        "pow2",
        |at, _x| S::pow2(S::load(powers.as_ptr().add(at))),
        |i| if powers[i] < -126.0 { 0.0 } else { powers[i].exp2() }
    );
    for largest in 0..16 {
        let numbers: Numbers = std::array::from_fn(|i| {
            if i == largest {
                -0.5
            } else {
                [f32::NEG_INFINITY, -1.0 - i as f32][i % 2]
            }
        });
        check!(
            "max_lane",
            |at, _x| S::splat(S::max_lane(S::load(numbers.as_ptr().add(at)))),
            |i| {
                let first = i / S::LANES * S::LANES;
                numbers[first..first + S::LANES]
                    .iter()
                    .fold(f32::NEG_INFINITY, |a, &b| a.max(b))
            }
        );
    }
    let numbers: Numbers = std::array::from_fn(|i| 1.1f32.powi((i * i) as i32));
    check!("sum16", |_at, _x| S::splat(S::sum16(numbers.as_ptr())), |_i| {
        crate::reference::sum16(&numbers)
    });
}

fn vectors() -> impl Iterator<Item = Isa> {
    Isa::available().into_iter().filter(|isa| *isa != Isa::Portable)
}

fn agree(isa: Isa, results: &[Found]) {
    assert!(!results.is_empty());
    for Found {
        name,
        expected,
        found,
    } in results
    {
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(
                same,
                "{isa}: {name} gives {found:e} in lane {i}, not {expected:e}"
            );
        }
    }
}

#[test]
fn operations_on_floats_round_once_and_treat_nan_alike() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        2.5,
        0.3,
        -0.3,
        f32::MIN_POSITIVE / 4.0,
        -1e-45,
        3e38,
        -3e38,
        8_388_609.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
    ];
    for isa in vectors() {
        let mut results = Vec::new();
        // Each with each, in every lane, and a third.
        for turn in 0..16 {
            let b = std::array::from_fn(|i| special[(i + turn) % 16]);
            let c = std::array::from_fn(|i| special[(i * 5 + turn) % 16]);
            // SAFETY: the instructions are there.
            unsafe { floats(isa, &special, &b, &c, &mut results) };
        }
        agree(isa, &results);
    }
}

#[test]
fn operations_on_integers_are_those_of_words() {
    let words = std::array::from_fn(|i| 0x9e37_79b9u32.wrapping_mul(i as u32 * 2 + 1));
    for isa in vectors() {
        let mut results = Vec::new();
        // SAFETY: the instructions are there.
        unsafe { integers(isa, &words, &mut results) };
        agree(isa, &results);
    }
}
