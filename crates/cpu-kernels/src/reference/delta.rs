//! The gated delta rule's definition in plain loops.

use crate::delta::{DeltaNet, DeltaShape, LENGTH_EPS, Segment};
use crate::linear::Activation;
use crate::reference::{activate, exp, length_scale, normalize, sigmoid, softplus, squares, sum16};
use crate::simd::SUM_LANES;

/// Takes the tokens in, one after the other. The arguments have been checked.
pub(crate) fn update(net: &DeltaNet<'_>, projected: &[f32], segments: &mut [Segment<'_>], out: &mut [f32]) {
    let shape = net.shape;
    let mut projected = projected.chunks(shape.width());
    let mut out = out.chunks_mut(shape.value_features());
    for segment in segments {
        let tokens = projected.by_ref().take(segment.tokens);
        for (projected, out) in tokens.zip(out.by_ref()) {
            take(net, projected, segment.state, out);
        }
    }
}

/// One token.
fn take(net: &DeltaNet<'_>, projected: &[f32], state: &mut [f32], out: &mut [f32]) {
    let shape = net.shape;
    let DeltaShape {
        value_heads,
        key_dim,
        value_dim,
        ..
    } = shape;
    let (joined, rest) = projected.split_at(shape.conv_features());
    let (z, gates) = rest.split_at(shape.value_features());
    let (b, a) = gates.split_at(value_heads);
    let convolved = convolve(net, joined, state);
    for head in 0..value_heads {
        let decay = exp(-exp(net.a_log[head]) * softplus(a[head] + net.dt_bias[head]));
        let beta = sigmoid(b[head]);
        let [query, key] = shape.query_and_key(head).map(|at| &convolved[at..at + key_dim]);
        let values = &convolved[shape.conv_head(2 * shape.key_heads + head)];
        let rows = state[shape.matrix(head)].chunks_mut(key_dim);
        let y: Vec<f32> = rows
            .zip(values)
            .map(|(row, value)| {
                for s in &mut *row {
                    *s *= decay;
                }
                let taken = (value - dot(row, key)) * beta;
                for (s, key) in row.iter_mut().zip(key) {
                    *s = key.mul_add(taken, *s);
                }
                dot(row, query)
            })
            .collect();
        let places = head * value_dim..(head + 1) * value_dim;
        let gated = normalize(&y, net.norm).into_iter().zip(&z[places.clone()]);
        for (to, (y, z)) in out[places].iter_mut().zip(gated) {
            *to = y * activate(Activation::Silu, *z);
        }
    }
}

/// A token's queries, keys and values behind the convolution; it is held for the next tokens.
fn convolve(net: &DeltaNet<'_>, joined: &[f32], state: &mut [f32]) -> Vec<f32> {
    let (shape, features) = (net.shape, joined.len());
    let held = &mut state[..shape.held() * features];
    let inputs: Vec<f32> = held.iter().chain(joined).copied().collect();
    held.copy_from_slice(&inputs[features..]);
    let mut convolved: Vec<f32> = (0..features)
        .map(|feature| {
            let taps = inputs.iter().zip(net.conv).skip(feature).step_by(features);
            let sum = taps.fold(0.0f32, |sum, (x, weight)| x.mul_add(*weight, sum));
            activate(Activation::Silu, sum)
        })
        .collect();
    for head in 0..shape.conv_heads() {
        if let Some(factor) = shape.length(head) {
            let x = &mut convolved[shape.conv_head(head)];
            let factor = length_scale(squares(x), LENGTH_EPS) * factor;
            for x in x {
                *x *= factor;
            }
        }
    }
    convolved
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; SUM_LANES];
    for (j, (a, b)) in a.iter().zip(b).enumerate() {
        lanes[j % SUM_LANES] = a.mul_add(*b, lanes[j % SUM_LANES]);
    }
    sum16(&lanes)
}
