//! The kernels' definitions in plain loops: what runs without vector instructions, and what the others must equal to the bit.

pub(crate) mod attention;
pub(crate) mod delta;
pub(crate) mod experts;

use crate::Arithmetic;
use crate::digits::{Whole, split};
use crate::linear::{AWAY, Activation, Finish};
use crate::math::{
    EXP_LEAST, EXP_MOST, EXP_TAYLOR, GELU_CUBIC, GELU_OUTER, LN_2_HIGH, LN_2_LOW, LOG_ODD, LOG2_E,
};
use crate::rows::{Input, Norm, SUM_BLOCK};
use crate::simd::SUM_LANES;
use crate::weights::{BLOCK, Quants, Storage, Weights};

/// `1 / sqrt(mean + eps)` of a sum of squares.
pub(crate) fn rms_scale(squares: f32, features: usize, eps: f32) -> f32 {
    1.0 / (squares / features as f32 + eps).sqrt()
}

/// The sum of 16 values: halves are added until one is left.
pub(crate) fn sum16(values: &[f32]) -> f32 {
    let mut lanes = values.to_vec();
    while lanes.len() > 1 {
        let (low, high) = lanes.split_at(lanes.len() / 2);
        lanes = low.iter().zip(high).map(|(a, b)| a + b).collect();
    }
    lanes.first().copied().unwrap_or(0.0)
}

/// `1 / sqrt(sum + eps)` of a sum of squares: what brings a vector to length 1.
pub(crate) fn length_scale(squares: f32, eps: f32) -> f32 {
    1.0 / (squares + eps).sqrt()
}

/// The sum of squares, in 16 lanes.
pub(crate) fn squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; SUM_LANES];
    for (i, v) in x.iter().enumerate() {
        lanes[i % SUM_LANES] = v.mul_add(*v, lanes[i % SUM_LANES]);
    }
    sum16(&lanes)
}

pub(crate) fn normalize(x: &[f32], norm: Norm<'_>) -> Vec<f32> {
    let scale = rms_scale(squares(x), x.len(), norm.eps);
    x.iter().zip(norm.weight).map(|(v, w)| v * scale * w).collect()
}

pub(crate) fn exp(x: f32) -> f32 {
    if x.is_nan() || x < EXP_LEAST {
        return 0.0;
    }
    let inside = x.min(EXP_MOST);
    let n = (inside * LOG2_E).round_ties_even();
    let r = n.mul_add(-LN_2_HIGH, inside);
    let r = n.mul_add(-LN_2_LOW, r);
    let p = EXP_TAYLOR[1..]
        .iter()
        .fold(EXP_TAYLOR[0], |p, coefficient| p.mul_add(r, *coefficient));
    let y = 1.0 + (r * r).mul_add(p, r);
    y * f32::from_bits(((n as i32 + 127) as u32) << 23)
}

pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(0.0 - x))
}

pub(crate) fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + exp(0.0 - x)),
        Activation::GeluTanh => {
            let cubic = (GELU_CUBIC * (x * x)).mul_add(x, x);
            x / (1.0 + exp(-GELU_OUTER * cubic))
        }
    }
}

pub(crate) fn softplus(x: f32) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let e = exp(0.0 - larger(x, 0.0 - x));
    let s = e / (2.0 + e);
    let t = s * s;
    let p = LOG_ODD[1..]
        .iter()
        .fold(LOG_ODD[0], |p, coefficient| p.mul_add(t, *coefficient));
    let twice = s + s;
    larger(x, 0.0) + (twice * t).mul_add(p, twice)
}

/// The elements of one output.
pub(crate) fn copy_output(weights: &Weights, output: usize, to: &mut [f32]) {
    for (k, element) in to.iter_mut().enumerate() {
        let code = weights.code(output, k);
        *element = match weights.storage() {
            Storage::Dense(_) => code,
            Storage::Affine(quants) => {
                let (scale, bias) = weights.scale(output, k / quants.group);
                code * scale + bias
            }
        };
    }
}

/// The largest element; minus infinity where there is no number.
pub(crate) fn largest(x: &[f32]) -> f32 {
    x.iter()
        .fold(f32::NEG_INFINITY, |most, &x| if x > most { x } else { most })
}

/// The index of the largest element.
pub(crate) fn argmax(x: &[f32]) -> usize {
    let mut best: Option<(usize, f32)> = None;
    for (index, &value) in x.iter().enumerate() {
        if !value.is_nan() && best.is_none_or(|(_, best)| value > best) {
            best = Some((index, value));
        }
    }
    best.map_or(0, |(index, _)| index)
}

/// The total of one output for one row, by integers.
fn integer_total(x: &[f32], weights: &Weights, quants: Quants, output: usize) -> f32 {
    let mut total = 0.0f32;
    let piece = quants.group.min(BLOCK);
    for (index, block) in x.chunks(BLOCK).enumerate() {
        let whole = Whole::new(block);
        for (part, x) in block.chunks(piece).enumerate() {
            let start = index * BLOCK + part * piece;
            let (mut high, mut low) = (0i32, 0i32);
            for (k, value) in (start..start + x.len()).zip(&whole.values[part * piece..]) {
                let quant = weights.code(output, k) as i32;
                let [_, middle, _] = split(*value);
                high += middle * quant;
                low += (value - 256 * middle) * quant;
            }
            let (scale, bias) = weights.scale(output, start / quants.group);
            let sum = ((high - AWAY / 256) as f32).mul_add(256.0, (low + AWAY) as f32) * whole.step;
            total = sum.mul_add(scale, total);
            if !quants.centered {
                let sums = x.chunks(SUM_BLOCK).map(sum16);
                total = sums.reduce(|a, b| a + b).unwrap_or(0.0).mul_add(bias, total);
            }
        }
    }
    total
}

/// The total of one output for one row.
fn total(x: &[f32], weights: &Weights, output: usize, arithmetic: Arithmetic) -> f32 {
    let mut total = 0.0f32;
    match weights.storage() {
        Storage::Affine(quants) if arithmetic == Arithmetic::Integers => {
            return integer_total(x, weights, quants, output);
        }
        Storage::Dense(_) => {
            for (k, x) in x.iter().enumerate() {
                total = x.mul_add(weights.code(output, k), total);
            }
        }
        Storage::Affine(quants) => {
            for (group, x) in x.chunks(quants.group).enumerate() {
                let mut sum = 0.0f32;
                for (k, x) in x.iter().enumerate() {
                    sum = x.mul_add(weights.code(output, group * quants.group + k), sum);
                }
                let (scale, bias) = weights.scale(output, group);
                total = sum.mul_add(scale, total);
                if !quants.centered {
                    let sums = x.chunks(SUM_BLOCK).map(sum16);
                    let sum = sums.reduce(|a, b| a + b).unwrap_or(0.0);
                    total = sum.mul_add(bias, total);
                }
            }
        }
    }
    total
}

/// Products of all rows with one matrix, or with a gate and what it gates, to the columns from `column` on.
pub(crate) fn project(
    input: Input<'_>,
    weights: &[&Weights],
    column: usize,
    stride: usize,
    arithmetic: Arithmetic,
    finish: Finish<'_>,
    to: &mut [f32],
) {
    for row in 0..input.rows() {
        let x = match input.norm() {
            Some(norm) => normalize(input.row(row), norm),
            None => input.row(row).to_vec(),
        };
        for output in 0..weights[0].outputs() {
            let at = row * stride + column + output;
            let totals: Vec<f32> = weights
                .iter()
                .map(|matrix| total(&x, matrix, output, arithmetic))
                .collect();
            to[at] = match finish {
                Finish::Add { bias, adds } => {
                    let biased = bias.map_or(totals[0], |bias| totals[0] + bias[column + output]);
                    if adds { to[at] + biased } else { biased }
                }
                Finish::Gate { bias, activation } => {
                    let biased = |half: usize| {
                        bias.map_or(totals[half], |bias| {
                            totals[half] + bias[half * stride + column + output]
                        })
                    };
                    activate(activation, biased(0)) * biased(1)
                }
            };
        }
    }
}
