//! One head of one row: its convolution, and its recurrence.

use super::{Call, LENGTH_EPS};
use crate::attention::MOST_FEATURES;
use crate::linear::Activation;
use crate::math;
use crate::reference::{self, length_scale};
use crate::rows::{normalize, squares};
use crate::simd::{SUM_LANES, Simd, for_isa};

/// Tokens whose gates are computed at once.
const GATES: usize = SUM_LANES;

/// Values whose rows of the state are taken in together.
const ROWS: usize = 4;

/// The most vectors that 16 lanes take.
const MOST_WIDE: usize = 4;

for_isa! {
    /// Convolves one head of queries, keys or values of all a segment's tokens, and keeps what the next ones will see.
    pub(super) unsafe fn convolve_head(call: &Call<'_>, row: usize, head: usize) = convolve_head_with
}

#[inline(always)]
unsafe fn convolve_head_with<S: Simd>(call: &Call<'_>, row: usize, head: usize) {
    let (net, row) = (call.net, &call.rows[row]);
    let shape = net.shape;
    let (conv, width, held) = (shape.conv_features(), shape.width(), shape.held());
    let features = shape.conv_head(head);
    let (first, dim) = (features.start, features.len());
    // SAFETY: promised by the caller: all of a head's features lie within the slices, and are its own.
    unsafe {
        let state = row.state.start().add(first);
        let new = call.projected.as_ptr().add(row.first_token * width + first);
        let weights = net.conv.as_ptr().add(first);
        // The inputs of the convolution: what is held, then the new tokens.
        let input = |at: usize| match at.checked_sub(held) {
            None => state.add(at * conv).cast_const(),
            Some(token) => new.add(token * width),
        };
        for token in 0..row.tokens {
            let start = (row.first_token + token) * conv + first;
            let to = call.convolved.slice(start..start + dim);
            let mut at = 0;
            while at + S::LANES <= dim {
                let mut sum = S::splat(0.0);
                for tap in 0..shape.kernel {
                    let x = S::load(input(token + tap).add(at));
                    sum = S::fma(x, S::load(weights.add(tap * conv + at)), sum);
                }
                S::store(to.as_mut_ptr().add(at), math::silu::<S>(sum));
                at += S::LANES;
            }
            while at < dim {
                let mut sum = 0.0f32;
                for tap in 0..shape.kernel {
                    sum = (*input(token + tap).add(at)).mul_add(*weights.add(tap * conv + at), sum);
                }
                to[at] = reference::activate(Activation::Silu, sum);
                at += 1;
            }
            if let Some(factor) = shape.length(head) {
                let factor = length_scale(squares::<S>(to), LENGTH_EPS) * factor;
                scale::<S>(to, factor);
            }
        }
        for at in 0..held {
            let from = input(row.tokens + at);
            // Later inputs are moved to earlier places.
            std::ptr::copy(from, state.add(at * conv), dim);
        }
    }
}

#[inline(always)]
unsafe fn scale<S: Simd>(x: &mut [f32], factor: f32) {
    let mut at = 0;
    while at + S::LANES <= x.len() {
        // SAFETY: the vector lies within the slice; the instructions are promised.
        unsafe {
            let place = x.as_mut_ptr().add(at);
            S::store(place, S::mul(S::load(place), S::splat(factor)));
        }
        at += S::LANES;
    }
    for x in &mut x[at..] {
        *x *= factor;
    }
}

for_isa! {
    /// Takes all a segment's tokens into the state of one head of values, and puts out what they get.
    pub(super) unsafe fn recur_head(call: &Call<'_>, row: usize, head: usize) = recur_head_with
}

#[inline(always)]
unsafe fn recur_head_with<S: Simd>(call: &Call<'_>, row: usize, head: usize) {
    let (net, row) = (call.net, &call.rows[row]);
    let shape = net.shape;
    let (conv, width) = (shape.conv_features(), shape.width());
    let (key_dim, value_dim) = (shape.key_dim, shape.value_dim);
    let [query, key] = shape.query_and_key(head);
    let value = shape.conv_head(2 * shape.key_heads + head).start;
    let mut gates = Gates::default();
    let mut y = [0.0f32; MOST_FEATURES];
    let mut normed = [0.0f32; MOST_FEATURES];
    let (y, normed) = (&mut y[..value_dim], &mut normed[..value_dim]);
    // SAFETY: promised by the caller: everything of a token and a head lies within the slices; what is written is its own.
    unsafe {
        let matrix = row.state.slice(shape.matrix(head)).as_mut_ptr();
        for token in 0..row.tokens {
            let index = row.first_token + token;
            if token % GATES == 0 {
                let count = (row.tokens - token).min(GATES);
                gates.fill::<S>(call, head, index, count);
            }
            let convolved = call.convolved.start().add(index * conv).cast_const();
            let step = Step {
                query: convolved.add(query),
                key: convolved.add(key),
                key_dim,
                decay: gates.decay[token % GATES],
                beta: gates.beta[token % GATES],
            };
            let values = convolved.add(value);
            let mut at = 0;
            while at + ROWS <= value_dim {
                let state = matrix.add(at * key_dim);
                take::<S, ROWS>(&step, state, values.add(at), y.as_mut_ptr().add(at));
                at += ROWS;
            }
            while at < value_dim {
                let state = matrix.add(at * key_dim);
                take::<S, 1>(&step, state, values.add(at), y.as_mut_ptr().add(at));
                at += 1;
            }
            normalize(call.isa, y, net.norm, normed);
            let start = (index * shape.value_heads + head) * value_dim;
            let z = &call.projected[index * width + conv + head * value_dim..][..value_dim];
            gate::<S>(normed, z, call.out.slice(start..start + value_dim));
        }
    }
}

/// What some tokens' states are multiplied by, and how much of a value is taken in.
#[derive(Default)]
struct Gates {
    decay: [f32; GATES],
    beta: [f32; GATES],
}

impl Gates {
    /// Those of `count` tokens of a head.
    #[inline(always)]
    unsafe fn fill<S: Simd>(&mut self, call: &Call<'_>, head: usize, first: usize, count: usize) {
        let (net, shape) = (call.net, call.net.shape);
        let rate = -reference::exp(net.a_log[head]);
        for token in 0..count {
            let gates = &call.projected[(first + token) * shape.width()..][..shape.width()];
            let gates = &gates[shape.conv_features() + shape.value_features()..];
            self.beta[token] = gates[head];
            self.decay[token] = gates[shape.value_heads + head] + net.dt_bias[head];
        }
        for at in (0..GATES).step_by(S::LANES) {
            // SAFETY: the vectors lie within the arrays; the instructions are promised.
            unsafe {
                let beta = self.beta.as_mut_ptr().add(at);
                S::store(beta, math::sigmoid::<S>(S::load(beta)));
                let decay = self.decay.as_mut_ptr().add(at);
                let log = S::mul(S::splat(rate), math::softplus::<S>(S::load(decay)));
                S::store(decay, math::exp::<S>(log));
            }
        }
    }
}

/// One token of one head.
struct Step {
    query: *const f32,
    key: *const f32,
    key_dim: usize,
    decay: f32,
    beta: f32,
}

/// Takes `R` values into their rows of the state, `[R, key_dim]`, and puts out what the query gets of them.
#[inline(always)]
unsafe fn take<S: Simd, const R: usize>(step: &Step, state: *mut f32, values: *const f32, y: *mut f32) {
    let (wide, dim) = (SUM_LANES / S::LANES, step.key_dim);
    let whole = dim / SUM_LANES * SUM_LANES;
    let mut lanes = [0.0f32; SUM_LANES];
    let mut taken = [0.0f32; R];
    // SAFETY: promised by the caller.
    unsafe {
        let decay = S::splat(step.decay);
        let mut sums = [[S::splat(0.0); MOST_WIDE]; R];
        for at in (0..whole).step_by(SUM_LANES) {
            for i in 0..wide {
                let place = at + i * S::LANES;
                let key = S::load(step.key.add(place));
                for r in 0..R {
                    let old = S::mul(S::load(state.add(r * dim + place)), decay);
                    sums[r][i] = S::fma(old, key, sums[r][i]);
                }
            }
        }
        for r in 0..R {
            for i in 0..wide {
                S::store(lanes.as_mut_ptr().add(i * S::LANES), sums[r][i]);
            }
            for j in whole..dim {
                let old = *state.add(r * dim + j) * step.decay;
                lanes[j - whole] = old.mul_add(*step.key.add(j), lanes[j - whole]);
            }
            taken[r] = (*values.add(r) - S::sum16(lanes.as_ptr())) * step.beta;
        }
        let mut sums = [[S::splat(0.0); MOST_WIDE]; R];
        for at in (0..whole).step_by(SUM_LANES) {
            for i in 0..wide {
                let place = at + i * S::LANES;
                let (key, query) = (S::load(step.key.add(place)), S::load(step.query.add(place)));
                for r in 0..R {
                    let to = state.add(r * dim + place);
                    let new = S::fma(key, S::splat(taken[r]), S::mul(S::load(to), decay));
                    S::store(to, new);
                    sums[r][i] = S::fma(new, query, sums[r][i]);
                }
            }
        }
        for r in 0..R {
            for i in 0..wide {
                S::store(lanes.as_mut_ptr().add(i * S::LANES), sums[r][i]);
            }
            for j in whole..dim {
                let to = state.add(r * dim + j);
                *to = (*step.key.add(j)).mul_add(taken[r], *to * step.decay);
                lanes[j - whole] = (*to).mul_add(*step.query.add(j), lanes[j - whole]);
            }
            *y.add(r) = S::sum16(lanes.as_ptr());
        }
    }
}

/// `x · silu(z)`; all slices have as many elements.
#[inline(always)]
unsafe fn gate<S: Simd>(x: &[f32], z: &[f32], to: &mut [f32]) {
    let mut at = 0;
    while at + S::LANES <= to.len() {
        // SAFETY: the vectors lie within the slices; the instructions are promised.
        unsafe {
            let silu = math::silu::<S>(S::load(z.as_ptr().add(at)));
            let gated = S::mul(S::load(x.as_ptr().add(at)), silu);
            S::store(to.as_mut_ptr().add(at), gated);
        }
        at += S::LANES;
    }
    for at in at..to.len() {
        to[at] = x[at] * reference::activate(Activation::Silu, z[at]);
    }
}
