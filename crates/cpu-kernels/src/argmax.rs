//! The most likely token.

use std::ops::Range;

use crate::shared::SharedMut;
use crate::simd::{SUM_LANES, Simd, for_isa};
use crate::{Isa, Team, reference};

/// Columns of a piece of work.
const PIECE: usize = 16384;

/// Columns whose maximum is known before their indices are looked at.
const RUN: usize = 512;

/// Of each row of `[rows, columns]`: the index of the largest element, of equal ones the first, and that element. NaN is
/// never the largest, but where a row holds one, the element is said to be NaN; the index is 0 if there is nothing else.
///
/// # Panics
/// If `logits` is not made of as many rows of `columns` as `out` and `largest` have elements.
pub fn argmax(team: &Team, logits: &[f32], columns: usize, out: &mut [u32], largest: &mut [f32]) {
    assert!(
        u32::try_from(columns).is_ok_and(|columns| columns > 0),
        "{columns} columns"
    );
    assert_eq!(logits.len(), out.len() * columns, "logits");
    assert_eq!(largest.len(), out.len(), "largest");
    let isa = team.isa();
    let each = out.iter_mut().zip(largest);
    if isa == Isa::Portable {
        for (row, (out, largest)) in logits.chunks_exact(columns).zip(each) {
            let index = reference::argmax(row);
            *out = index as u32;
            *largest = if holds_nan(row) { f32::NAN } else { row[index] };
        }
        return;
    }
    let pieces = columns.div_ceil(PIECE);
    let mut found = vec![Best::NONE; each.len() * pieces];
    let count = found.len();
    let piece = |index: usize| {
        let (row, start) = (index / pieces, index % pieces * PIECE);
        let range = start..(start + PIECE).min(columns);
        let mut best = Best::NONE;
        // SAFETY: the instructions are the team's.
        unsafe { search(isa, &logits[row * columns..][..columns], range, &mut best) };
        best
    };
    if logits.len() <= PIECE {
        for (index, found) in found.iter_mut().enumerate() {
            *found = piece(index);
        }
    } else {
        let found = SharedMut::new(&mut found);
        team.run(|worker| {
            loop {
                let index = worker.claim(0);
                if index >= count {
                    break;
                }
                // SAFETY: each piece is claimed once.
                unsafe { found.slice(index..index + 1).fill(piece(index)) };
            }
        });
    }
    for ((out, largest), found) in each.zip(found.chunks_exact(pieces)) {
        let mut best = Best::NONE;
        for found in found {
            if found.value > best.value || best.index == Best::NONE.index {
                best = *found;
            }
        }
        let broken = found.iter().any(|piece| piece.nan);
        *largest = if broken { f32::NAN } else { best.value };
        *out = if best.index == Best::NONE.index {
            0
        } else {
            best.index
        };
    }
}

fn holds_nan(x: &[f32]) -> bool {
    x.iter().any(|x| x.is_nan())
}

/// The largest element of some columns.
#[derive(Clone, Copy)]
struct Best {
    value: f32,
    index: u32,
    /// Whether one of them is no number.
    nan: bool,
}

impl Best {
    /// Of no columns, or none that are numbers.
    const NONE: Self = Self {
        value: f32::NEG_INFINITY,
        index: u32::MAX,
        nan: false,
    };
}

for_isa! {
    /// Searches some columns of a row.
    unsafe fn search(row: &[f32], columns: Range<usize>, best: &mut Best) = search_with
}

#[inline(always)]
unsafe fn search_with<S: Simd>(row: &[f32], columns: Range<usize>, best: &mut Best) {
    // SAFETY: promised by the caller; the lanes fit.
    unsafe {
        let mut zeros = S::splat(0.0);
        for start in columns.clone().step_by(RUN) {
            let run = &row[start..(start + RUN).min(columns.end)];
            let largest = largest::<S>(run, &mut zeros);
            // Minus infinity wins over nothing.
            if (largest > best.value || best.index == Best::NONE.index)
                && let Some(at) = run.iter().position(|&x| x == largest)
            {
                best.value = largest;
                best.index = (start + at) as u32;
            }
        }
        let mut lanes = [0.0; SUM_LANES];
        S::store(lanes.as_mut_ptr(), zeros);
        // Infinities leave one, too.
        best.nan = holds_nan(&lanes) && holds_nan(&row[columns]);
    }
}

/// The largest of some elements, minus infinity if there is none. Elements that are not finite leave NaN in `zeros`.
#[inline(always)]
unsafe fn largest<S: Simd>(run: &[f32], zeros: &mut S::F) -> f32 {
    // SAFETY: whole steps lie within the slice; the instructions are promised.
    unsafe {
        let (least, nothing) = (S::splat(f32::NEG_INFINITY), S::splat(0.0));
        let mut most = [least; 4];
        let mut products = [*zeros, nothing, nothing, nothing];
        let mut steps = run.chunks_exact(4 * S::LANES);
        for step in &mut steps {
            for (i, (most, product)) in most.iter_mut().zip(&mut products).enumerate() {
                let x = S::load(step.as_ptr().add(i * S::LANES));
                // The second operand is kept unless the first is greater: NaN is not.
                *most = S::max(x, *most);
                *product = S::fma(x, nothing, *product);
            }
        }
        let [a, b, c, d] = most;
        let vector = S::max_lane(S::max(S::max(a, b), S::max(c, d)));
        let rest = steps.remainder();
        let odd = rest.iter().fold(0.0, |product, &x| x.mul_add(0.0, product));
        let [a, b, c, d] = products;
        *zeros = S::add(S::add(S::add(a, b), S::add(c, d)), S::splat(odd));
        rest.iter()
            .fold(vector, |most, &x| if x > most { x } else { most })
    }
}
