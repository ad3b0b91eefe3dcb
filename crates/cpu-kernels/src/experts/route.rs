//! From a router's logits to those that are chosen, and sums of what they put out.

use super::Choice;
use crate::math;
use crate::reference;
use crate::simd::{SUM_LANES, Simd, for_isa};

for_isa! {
    /// Logits to probabilities.
    pub(super) unsafe fn softmax_row(row: &mut [f32]) = softmax_row_with
}

#[inline(always)]
unsafe fn softmax_row_with<S: Simd>(row: &mut [f32]) {
    let most = reference::largest(row);
    let mut lanes = [0.0f32; SUM_LANES];
    for chunk in row.chunks_mut(SUM_LANES) {
        let mut x = [f32::NEG_INFINITY; SUM_LANES];
        x[..chunk.len()].copy_from_slice(chunk);
        for at in (0..SUM_LANES).step_by(S::LANES) {
            // SAFETY: the vectors lie within the arrays; the instructions are promised.
            unsafe {
                let e = math::exp::<S>(S::sub(S::load(x.as_ptr().add(at)), S::splat(most)));
                S::store(x.as_mut_ptr().add(at), e);
            }
        }
        for (lane, x) in lanes.iter_mut().zip(x).take(chunk.len()) {
            *lane += x;
        }
        chunk.copy_from_slice(&x[..chunk.len()]);
    }
    // SAFETY: there are 16 lanes; the instructions are promised.
    let sum = unsafe { S::sum16(lanes.as_ptr()) };
    for x in row {
        *x /= sum;
    }
}

/// The largest probabilities, the lowest index where they are equal; what is no number comes last.
pub(crate) fn choose(probabilities: &[f32], renormalize: bool, choices: &mut [Choice]) {
    let value = |index: usize| {
        let p = probabilities[index];
        if p.is_nan() { f32::NEG_INFINITY } else { p }
    };
    let mut held = 0;
    for expert in 0..probabilities.len() {
        let p = value(expert);
        let place = choices[..held].partition_point(|choice| value(choice.expert) >= p);
        if place == choices.len() {
            continue;
        }
        held = (held + 1).min(choices.len());
        choices[place..held].rotate_right(1);
        choices[place] = Choice {
            expert,
            weight: probabilities[expert],
        };
    }
    if renormalize {
        let sum = choices.iter().fold(0.0f32, |sum, choice| sum + choice.weight);
        for choice in choices {
            choice.weight /= sum;
        }
    }
}

for_isa! {
    /// `sigmoid` of each.
    pub(super) unsafe fn sigmoid_rows(x: &mut [f32]) = sigmoid_rows_with
}

#[inline(always)]
unsafe fn sigmoid_rows_with<S: Simd>(x: &mut [f32]) {
    let mut chunks = x.chunks_exact_mut(S::LANES);
    for chunk in &mut chunks {
        // SAFETY: a chunk is a vector; the instructions are promised.
        unsafe { S::store(chunk.as_mut_ptr(), math::sigmoid::<S>(S::load(chunk.as_ptr()))) };
    }
    for x in chunks.into_remainder() {
        *x = reference::sigmoid(*x);
    }
}

for_isa! {
    /// `total = fma(x, weight, total)`; both have as many elements.
    pub(super) unsafe fn add_rows(x: &[f32], weight: f32, total: &mut [f32]) = add_rows_with
}

#[inline(always)]
unsafe fn add_rows_with<S: Simd>(x: &[f32], weight: f32, total: &mut [f32]) {
    let mut at = 0;
    while at + S::LANES <= total.len() {
        // SAFETY: the vectors lie within the slices; the instructions are promised.
        unsafe {
            let to = total.as_mut_ptr().add(at);
            let x = S::load(x.as_ptr().add(at));
            S::store(to, S::fma(x, S::splat(weight), S::load(to)));
        }
        at += S::LANES;
    }
    for at in at..total.len() {
        total[at] = x[at].mul_add(weight, total[at]);
    }
}

for_isa! {
    /// `x + total`, to `x`; both have as many elements.
    pub(super) unsafe fn add_totals(totals: &[f32], x: &mut [f32]) = add_totals_with
}

#[inline(always)]
unsafe fn add_totals_with<S: Simd>(totals: &[f32], x: &mut [f32]) {
    let mut at = 0;
    while at + S::LANES <= x.len() {
        // SAFETY: the vectors lie within the slices; the instructions are promised.
        unsafe {
            let to = x.as_mut_ptr().add(at);
            S::store(to, S::add(S::load(to), S::load(totals.as_ptr().add(at))));
        }
        at += S::LANES;
    }
    for at in at..x.len() {
        x[at] += totals[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(probabilities: &[f32], count: usize, renormalize: bool) -> Vec<(usize, f32)> {
        let mut choices = vec![Choice::default(); count];
        choose(probabilities, renormalize, &mut choices);
        choices
            .iter()
            .map(|choice| (choice.expert, choice.weight))
            .collect()
    }

    #[test]
    fn the_largest_are_chosen_and_of_equal_ones_the_lowest() {
        let found = chosen(&[0.1, 0.3, 0.1, 0.3, 0.2], 4, false);
        assert_eq!(found, [(1, 0.3), (3, 0.3), (4, 0.2), (0, 0.1)]);
        assert_eq!(chosen(&[0.25; 4], 2, true), [(0, 0.5), (1, 0.5)]);
    }

    #[test]
    fn what_is_no_number_is_chosen_last() {
        let found = chosen(&[f32::NAN, 0.5, f32::NAN, 0.25], 3, false);
        assert_eq!((found[0], found[1], found[2].0), ((1, 0.5), (3, 0.25), 0));
        assert!(found[2].1.is_nan());
    }
}
