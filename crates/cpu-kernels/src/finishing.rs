//! What becomes of the output of an attention or of a block: gated, or normalized and added to the residual.

use crate::rows::{Norm, with_scales};
use crate::shared::SharedMut;
use crate::simd::{Simd, for_isa};
use crate::{Isa, Team, math, reference};

/// Elements below which one thread does all.
const SMALL: usize = 16384;

/// Rows that a thread adds at once.
const ROWS: usize = 4;

/// Elements that a thread gates at once.
const PIECE: usize = 4096;

/// Rows of a block's output, normalized and added to the residual: `to + norm(x)`, both `[rows, features]` of as
/// many features as the norm has.
///
/// # Panics
/// If the slices differ in length, or are not made of whole rows.
pub fn add_normalized(team: &Team, x: &[f32], norm: Norm<'_>, to: &mut [f32]) {
    let features = norm.weight.len();
    assert!(
        features > 0 && x.len().is_multiple_of(features),
        "rows of {features} in {}",
        x.len()
    );
    assert_eq!(to.len(), x.len(), "elements of the residual");
    let isa = team.isa();
    // Few rows are shared one by one.
    let rows = if x.len() < ROWS * team.size() * features {
        1
    } else {
        ROWS
    };
    let piece = rows * features;
    by_pieces(team, piece, to, |index, to| {
        let x = &x[index * piece..][..to.len()];
        if isa == Isa::Portable {
            let rows = x.chunks(features).flat_map(|row| reference::normalize(row, norm));
            for (to, x) in to.iter_mut().zip(rows) {
                *to += x;
            }
        } else {
            // SAFETY: both are as long; the instructions are the team's.
            unsafe { add_rows(isa, x, norm, to) };
        }
    });
}

/// Multiplies every element by the sigmoid of its gate: `to · 1 / (1 + e^-gate)`.
///
/// # Panics
/// If the slices differ in length.
pub fn multiply_by_sigmoid(team: &Team, gates: &[f32], to: &mut [f32]) {
    assert_eq!(gates.len(), to.len(), "gates");
    let isa = team.isa();
    by_pieces(team, PIECE, to, |piece, to| {
        let gates = &gates[piece * PIECE..][..to.len()];
        if isa == Isa::Portable {
            for (to, gate) in to.iter_mut().zip(gates) {
                *to *= reference::sigmoid(*gate);
            }
        } else {
            // SAFETY: as many gates as elements; the instructions are the team's.
            unsafe { gate_piece(isa, gates, to) };
        }
    });
}

/// Runs through pieces of so many elements, the last of which may be shorter.
fn by_pieces(team: &Team, piece: usize, to: &mut [f32], run: impl Fn(usize, &mut [f32]) + Sync) {
    if to.len() <= SMALL {
        for (index, to) in to.chunks_mut(piece).enumerate() {
            run(index, to);
        }
        return;
    }
    let len = to.len();
    let to = SharedMut::new(to);
    team.run(|worker| {
        loop {
            let index = worker.claim(0);
            let start = index * piece;
            if start >= len {
                break;
            }
            // SAFETY: each piece is claimed once.
            run(index, unsafe { to.slice(start..(start + piece).min(len)) });
        }
    });
}

for_isa! {
    /// Adds rows, normalized; both are as long.
    unsafe fn add_rows(x: &[f32], norm: Norm<'_>, to: &mut [f32]) = add_rows_with
}

#[inline(always)]
unsafe fn add_rows_with<S: Simd>(x: &[f32], norm: Norm<'_>, to: &mut [f32]) {
    let features = norm.weight.len();
    // SAFETY: the vectors lie within a row; the instructions are promised.
    unsafe {
        with_scales::<S>(x, norm, |row, scale| {
            let row = row * features..(row + 1) * features;
            let (x, to) = (&x[row.clone()], &mut to[row]);
            let mut at = 0;
            while at + S::LANES <= features {
                let scaled = S::mul(S::load(x.as_ptr().add(at)), S::splat(scale));
                let normed = S::mul(scaled, S::load(norm.weight.as_ptr().add(at)));
                let to = to.as_mut_ptr().add(at);
                S::store(to, S::add(S::load(to), normed));
                at += S::LANES;
            }
            for at in at..features {
                to[at] += x[at] * scale * norm.weight[at];
            }
        });
    }
}

for_isa! {
    /// Gates a piece; both slices have as many elements.
    unsafe fn gate_piece(gates: &[f32], to: &mut [f32]) = gate_piece_with
}

#[inline(always)]
unsafe fn gate_piece_with<S: Simd>(gates: &[f32], to: &mut [f32]) {
    let whole = to.len() / S::LANES * S::LANES;
    // SAFETY: whole vectors lie within both slices, the rest is copied to where a vector has room; the instructions are
    // promised.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            let place = to.as_mut_ptr().add(at);
            let gate = math::sigmoid::<S>(S::load(gates.as_ptr().add(at)));
            S::store(place, S::mul(S::load(place), gate));
        }
        let mut rest = [0.0f32; 16];
        let left = to.len() - whole;
        rest[..left].copy_from_slice(&gates[whole..]);
        let gate = math::sigmoid::<S>(S::load(rest.as_ptr()));
        S::store(rest.as_mut_ptr(), gate);
        for (to, gate) in to[whole..].iter_mut().zip(rest) {
            *to *= gate;
        }
    }
}
