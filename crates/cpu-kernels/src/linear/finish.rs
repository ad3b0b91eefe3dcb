//! What becomes of a panel's totals.

use std::ops::Range;

use crate::math;
use crate::simd::{Simd, for_isa};
use crate::weights::PANEL;

/// What a gate's values go through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU in its tanh approximation.
    GeluTanh,
}

/// How totals become outputs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Finish<'a> {
    /// `total + bias`, where there is one; then what the output held is added, if asked for.
    Add {
        /// `[outputs]`.
        bias: Option<&'a [f32]>,
        adds: bool,
    },
    /// `activation(first total + its bias) · (second total + its bias)`.
    Gate {
        /// `[2 · outputs]`.
        bias: Option<&'a [f32]>,
        activation: Activation,
    },
}

pub(super) struct FinishArgs<'a> {
    /// `[rows][PANEL]` each; the second is for gates.
    pub totals: [*const f32; 2],
    /// Which rows of the output.
    pub rows: Range<usize>,
    /// The panel's first column.
    pub column: usize,
    /// Columns that exist.
    pub lanes: usize,
    /// Columns of the output.
    pub stride: usize,
    pub finish: Finish<'a>,
    pub to: *mut f32,
}

for_isa! {
    /// Writes a panel's columns of some rows.
    pub(super) unsafe fn finish_rows(args: &FinishArgs<'_>) = finish_rows_with
}

#[inline(always)]
unsafe fn finish_rows_with<S: Simd>(args: &FinishArgs<'_>) {
    // SAFETY: promised by the caller.
    unsafe {
        for (index, row) in args.rows.clone().enumerate() {
            let totals = args.totals.map(|totals| totals.add(index * PANEL));
            let at = row * args.stride + args.column;
            if args.lanes == PANEL {
                write::<S>(args, totals, args.to.add(at));
            } else {
                ragged::<S>(args, totals, at);
            }
        }
    }
}

/// A whole panel's columns of a row.
#[inline(always)]
unsafe fn write<S: Simd>(args: &FinishArgs<'_>, totals: [*const f32; 2], to: *mut f32) {
    // SAFETY: promised by the caller.
    unsafe {
        for lane in (0..PANEL).step_by(S::LANES) {
            let total = S::load(totals[0].add(lane));
            let value = match args.finish {
                Finish::Add { bias, adds } => {
                    let mut value = total;
                    if let Some(bias) = bias {
                        value = S::add(value, S::load(bias.as_ptr().add(args.column + lane)));
                    }
                    if adds {
                        value = S::add(S::load(to.add(lane)), value);
                    }
                    value
                }
                Finish::Gate { bias, activation } => {
                    let mut pair = [total, S::load(totals[1].add(lane))];
                    if let Some(bias) = bias {
                        let from = bias.as_ptr().add(args.column + lane);
                        pair[0] = S::add(pair[0], S::load(from));
                        pair[1] = S::add(pair[1], S::load(from.add(args.stride)));
                    }
                    gate::<S>(activation, pair[0], pair[1])
                }
            };
            S::store(to.add(lane), value);
        }
    }
}

#[inline(always)]
unsafe fn gate<S: Simd>(activation: Activation, gate: S::F, up: S::F) -> S::F {
    // SAFETY: promised by the caller.
    unsafe {
        let active = match activation {
            Activation::Silu => math::silu::<S>(gate),
            Activation::GeluTanh => math::gelu_tanh::<S>(gate),
        };
        S::mul(active, up)
    }
}

/// The same for the last panel, where some columns don't exist.
#[inline(always)]
unsafe fn ragged<S: Simd>(args: &FinishArgs<'_>, totals: [*const f32; 2], at: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        match args.finish {
            Finish::Add { bias, adds } => {
                for lane in 0..args.lanes {
                    let mut value = *totals[0].add(lane);
                    if let Some(bias) = bias {
                        value += bias[args.column + lane];
                    }
                    let to = args.to.add(at + lane);
                    *to = if adds { *to + value } else { value };
                }
            }
            Finish::Gate { bias, activation } => {
                let mut pair = [[0.0f32; PANEL]; 2];
                for (half, pair) in pair.iter_mut().enumerate() {
                    for (lane, value) in pair.iter_mut().enumerate().take(args.lanes) {
                        *value = *totals[half].add(lane);
                        if let Some(bias) = bias {
                            *value += bias[half * args.stride + args.column + lane];
                        }
                    }
                }
                for lane in (0..PANEL).step_by(S::LANES) {
                    let [first, second] = pair.each_ref().map(|half| S::load(half.as_ptr().add(lane)));
                    S::store(
                        pair[0].as_mut_ptr().add(lane),
                        gate::<S>(activation, first, second),
                    );
                }
                for (lane, value) in pair[0].iter().enumerate().take(args.lanes) {
                    *args.to.add(at + lane) = *value;
                }
            }
        }
    }
}
