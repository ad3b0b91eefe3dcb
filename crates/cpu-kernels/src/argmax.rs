//! The most likely token.

use std::ops::Range;

use crate::shared::SharedMut;
use crate::simd::{Simd, for_isa};
use crate::{Isa, Team, reference};

/// Columns of a piece of work.
const PIECE: usize = 16384;

/// Columns whose maximum is known before their indices are looked at.
const RUN: usize = 512;

/// Of each row of `[rows, columns]`, the index of the largest element, of equal ones the first. NaN is never the largest; 0 if
/// there is nothing else.
///
/// # Panics
/// If `logits` is not made of as many rows of `columns` as `out` has elements.
pub fn argmax(team: &Team, logits: &[f32], columns: usize, out: &mut [u32]) {
    assert!(
        u32::try_from(columns).is_ok_and(|columns| columns > 0),
        "{columns} columns"
    );
    assert_eq!(logits.len(), out.len() * columns, "logits");
    let isa = team.isa();
    if isa == Isa::Portable {
        for (row, out) in logits.chunks_exact(columns).zip(out) {
            *out = reference::argmax(row) as u32;
        }
        return;
    }
    let pieces = columns.div_ceil(PIECE);
    let mut found = vec![Best::NONE; out.len() * pieces];
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
    for (out, found) in out.iter_mut().zip(found.chunks_exact(pieces)) {
        let mut best = Best::NONE;
        for found in found {
            if found.value > best.value || best.index == Best::NONE.index {
                best = *found;
            }
        }
        *out = if best.index == Best::NONE.index {
            0
        } else {
            best.index
        };
    }
}

/// The largest element of some columns.
#[derive(Clone, Copy)]
struct Best {
    value: f32,
    index: u32,
}

impl Best {
    /// Of no columns, or none that are numbers.
    const NONE: Self = Self {
        value: f32::NEG_INFINITY,
        index: u32::MAX,
    };
}

for_isa! {
    /// Searches some columns of a row.
    unsafe fn search(row: &[f32], columns: Range<usize>, best: &mut Best) = search_with
}

#[inline(always)]
unsafe fn search_with<S: Simd>(row: &[f32], columns: Range<usize>, best: &mut Best) {
    for start in columns.clone().step_by(RUN) {
        let run = &row[start..(start + RUN).min(columns.end)];
        // SAFETY: promised by the caller.
        let largest = unsafe { largest::<S>(run) };
        // Minus infinity wins over nothing.
        if (largest > best.value || best.index == Best::NONE.index)
            && let Some(at) = run.iter().position(|&x| x == largest)
        {
            *best = Best {
                value: largest,
                index: (start + at) as u32,
            };
        }
    }
}

/// The largest of some elements, minus infinity if there is none.
#[inline(always)]
unsafe fn largest<S: Simd>(run: &[f32]) -> f32 {
    // SAFETY: whole steps lie within the slice; the instructions are promised.
    unsafe {
        let least = S::splat(f32::NEG_INFINITY);
        let mut most = [least; 4];
        let mut steps = run.chunks_exact(4 * S::LANES);
        for step in &mut steps {
            for (i, most) in most.iter_mut().enumerate() {
                // The second operand is kept unless the first is greater: NaN is not.
                *most = S::max(S::load(step.as_ptr().add(i * S::LANES)), *most);
            }
        }
        let [a, b, c, d] = most;
        let vector = S::max_lane(S::max(S::max(a, b), S::max(c, d)));
        let rest = steps.remainder().iter();
        rest.fold(vector, |most, &x| if x > most { x } else { most })
    }
}
