//! Queries and keys: normalized, turned and scaled; keys and values on their way into a row's buffer.

use std::ops::Range;

use super::quantize::Encoded;
use super::{Attention, Call, MOST_FEATURES, PANEL_POSITIONS, Row};
use crate::rows::{Norm, normalize};
use crate::simd::Simd;

/// Room for a head's features.
#[repr(align(64))]
pub(super) struct Features(pub [f32; MOST_FEATURES]);

impl Features {
    pub(super) fn new() -> Self {
        Self([0.0; MOST_FEATURES])
    }
}

/// Prepares one head of a token: `to` has as many features.
#[inline(always)]
pub(super) unsafe fn prepare_head<S: Simd>(
    call: &Call<'_>,
    norm: Option<Norm<'_>>,
    token: usize,
    scale: Option<f32>,
    x: &[f32],
    to: &mut [f32],
) {
    match norm {
        // SAFETY: the slices have `key_dim` elements; the instructions are promised.
        Some(norm) => unsafe { normalize(call.isa, x, norm, to) },
        None => to.copy_from_slice(x),
    }
    // SAFETY: promised by the caller.
    unsafe {
        turn::<S>(call.attention, token, to);
        if let Some(scale) = scale {
            let factor = S::splat(scale);
            let mut at = 0;
            while at + S::LANES <= to.len() {
                let place = to.as_mut_ptr().add(at);
                S::store(place, S::mul(S::load(place), factor));
                at += S::LANES;
            }
            for feature in &mut to[at..] {
                *feature *= scale;
            }
        }
    }
}

#[inline(always)]
unsafe fn turn<S: Simd>(attention: &Attention<'_>, token: usize, x: &mut [f32]) {
    let Some(rope) = attention.rope else { return };
    let pairs = rope.pairs;
    let cos = &rope.cos[token * pairs..][..pairs];
    let sin = &rope.sin[token * pairs..][..pairs];
    let (first, rest) = x.split_at_mut(pairs);
    let second = &mut rest[..pairs];
    let mut at = 0;
    while at + S::LANES <= pairs {
        // SAFETY: all four have `pairs` elements; the instructions are promised.
        unsafe {
            let (to_a, to_b) = (first.as_mut_ptr().add(at), second.as_mut_ptr().add(at));
            let (a, b) = (S::load(to_a), S::load(to_b));
            let (cos, sin) = (S::load(cos.as_ptr().add(at)), S::load(sin.as_ptr().add(at)));
            let negative = S::mul(S::mul(b, sin), S::splat(-1.0));
            S::store(to_a, S::fma(a, cos, negative));
            S::store(to_b, S::fma(b, cos, S::mul(a, sin)));
        }
        at += S::LANES;
    }
    for i in at..pairs {
        let (a, b) = (first[i], second[i]);
        first[i] = a.mul_add(cos[i], -(b * sin[i]));
        second[i] = b.mul_add(cos[i], a * sin[i]);
    }
}

/// Writes keys and values of some tokens of a segment and some heads.
#[inline(always)]
pub(super) unsafe fn write_heads<S: Simd>(
    call: &Call<'_>,
    row: usize,
    heads: Range<usize>,
    tokens: Range<usize>,
) {
    let (attention, row) = (call.attention, &call.rows[row]);
    let kv = attention.kv;
    let mut features = Features::new();
    let features = &mut features.0[..kv.key_dim];
    for token in tokens {
        let position = row.start + token;
        let token = row.first_token + token;
        let x = &call.qkv[token * attention.width()..][..attention.width()];
        let keys = &x[attention.heads * kv.key_dim..];
        let values = &keys[kv.heads * kv.key_dim..];
        for head in heads.clone() {
            let key = &keys[head * kv.key_dim..][..kv.key_dim];
            let value = &values[head * kv.value_dim..][..kv.value_dim];
            // SAFETY: the position lies in the buffer, and no other thread writes or reads it now; the instructions are promised.
            unsafe {
                prepare_head::<S>(call, attention.key_norm, token, None, key, features);
                let Some(floats) = &row.floats else {
                    encode::<S>(call, row, head, position, features, value);
                    continue;
                };
                let to = floats.start().add(kv.key_at(floats.capacity, head, position));
                for (d, feature) in features.iter().enumerate() {
                    *to.add(d * PANEL_POSITIONS) = *feature;
                }
                let to = floats.start().add(kv.value_at(floats.capacity, head, position));
                std::ptr::copy_nonoverlapping(value.as_ptr(), to, kv.value_dim);
            }
        }
    }
}

/// Writes a key and a value as codes.
#[inline(always)]
unsafe fn encode<S: Simd>(
    call: &Call<'_>,
    row: &Row<'_>,
    head: usize,
    position: usize,
    key: &[f32],
    value: &[f32],
) {
    let (Some(layout), Some(codes)) = (call.attention.code_layout(), &row.codes) else {
        return;
    };
    let slot = position % PANEL_POSITIONS;
    // SAFETY: the position lies in the buffer, and no other thread has its panel of this head; the instructions are promised.
    unsafe {
        let panel = codes.start().add(layout.panel_at(codes.capacity, head, position));
        Encoded::new::<S>(layout.codes, key).put_key(&layout, panel, slot);
        Encoded::new::<S>(layout.codes, value).put_value(&layout, panel, slot);
    }
}

/// Writes the keys and values of some tokens of a segment, all heads, from floats to codes.
#[inline(always)]
pub(super) unsafe fn store_heads<S: Simd>(call: &Call<'_>, row: usize, tokens: Range<usize>) {
    let row = &call.rows[row];
    let Some(floats) = &row.floats else { return };
    let kv = call.attention.kv;
    let (mut key, mut value) = (Features::new(), Features::new());
    let (key, value) = (&mut key.0[..kv.key_dim], &mut value.0[..kv.value_dim]);
    for position in row.start + tokens.start..row.start + tokens.end {
        for head in 0..kv.heads {
            // SAFETY: the position lies in both buffers, which nobody writes but this thread in this panel; the instructions
            // are promised.
            unsafe {
                let from = floats.start().add(kv.key_at(floats.capacity, head, position));
                for (d, feature) in key.iter_mut().enumerate() {
                    *feature = *from.add(d * PANEL_POSITIONS);
                }
                let from = floats.start().add(kv.value_at(floats.capacity, head, position));
                std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), kv.value_dim);
                encode::<S>(call, row, head, position, key, value);
            }
        }
    }
}
