//! Attention's definition in plain loops.

use crate::attention::{Attention, BLOCK, Segment};
use crate::reference::{exp, largest, normalize, sum16};
use crate::rows::Norm;
use crate::simd::SUM_LANES;

/// What blocks of positions amount to for one query: the largest score, the sum of weights relative to it, and the sum of
/// weighted values.
struct Partial {
    most: f32,
    sum: f32,
    values: Vec<f32>,
}

/// Writes the new keys and values, then attends. The arguments have been checked.
pub(crate) fn attend(attention: &Attention<'_>, qkv: &[f32], segments: &mut [Segment<'_>], out: &mut [f32]) {
    let kv = attention.kv;
    let (width, group) = (attention.width(), attention.heads / kv.heads);
    let mut token = 0;
    for segment in segments {
        for index in 0..segment.tokens {
            let row = &qkv[(token + index) * width..][..width];
            let keys = &row[attention.heads * kv.key_dim..];
            let values = &keys[kv.heads * kv.key_dim..];
            for head in 0..kv.heads {
                let position = segment.start + index;
                let key = &keys[head * kv.key_dim..][..kv.key_dim];
                let key = turned(attention, attention.key_norm, token + index, key);
                let at = kv.key_at(segment.kv.len(), head, position);
                for (d, feature) in key.iter().enumerate() {
                    segment.kv[at + d * crate::attention::PANEL_POSITIONS] = *feature;
                }
                let at = kv.value_at(segment.kv.len(), head, position);
                let value = &values[head * kv.value_dim..][..kv.value_dim];
                segment.kv[at..at + kv.value_dim].copy_from_slice(value);
            }
        }
        for index in 0..segment.tokens {
            for head in 0..attention.heads {
                let query = &qkv[(token + index) * width + head * kv.key_dim..][..kv.key_dim];
                let mut query = turned(attention, attention.query_norm, token + index, query);
                for feature in &mut query {
                    *feature *= attention.scale;
                }
                let to =
                    &mut out[((token + index) * attention.heads + head) * kv.value_dim..][..kv.value_dim];
                look(
                    attention,
                    segment.kv,
                    head / group,
                    segment.start + index,
                    &query,
                    to,
                );
            }
        }
        token += segment.tokens;
    }
}

/// A query or key, normalized and turned.
fn turned(attention: &Attention<'_>, norm: Option<Norm<'_>>, token: usize, x: &[f32]) -> Vec<f32> {
    let mut x = match norm {
        Some(norm) => normalize(x, norm),
        None => x.to_vec(),
    };
    if let Some(rope) = attention.rope {
        for i in 0..rope.pairs {
            let (cos, sin) = (rope.cos[token * rope.pairs + i], rope.sin[token * rope.pairs + i]);
            let (a, b) = (x[i], x[i + rope.pairs]);
            x[i] = a.mul_add(cos, -(b * sin));
            x[i + rope.pairs] = b.mul_add(cos, a * sin);
        }
    }
    x
}

/// What the query at a position sees.
fn look(attention: &Attention<'_>, kv: &[f32], head: usize, position: usize, query: &[f32], to: &mut [f32]) {
    let first = attention.first_visible(position);
    let mut state: Option<Partial> = None;
    for block in first / BLOCK..=position / BLOCK {
        let seen = first.max(block * BLOCK)..(position + 1).min((block + 1) * BLOCK);
        let partial = one_block(attention, kv, head, seen, query);
        state = Some(match state {
            None => partial,
            Some(state) => merge(&state, &partial),
        });
    }
    if let Some(state) = state {
        let factor = 1.0 / state.sum;
        for (to, value) in to.iter_mut().zip(&state.values) {
            *to = value * factor + 0.0;
        }
    }
}

fn one_block(
    attention: &Attention<'_>,
    kv: &[f32],
    head: usize,
    seen: std::ops::Range<usize>,
    query: &[f32],
) -> Partial {
    let layout = attention.kv;
    let (mut key, mut value) = (vec![0.0; layout.key_dim], vec![0.0; layout.value_dim]);
    let mut scores = Vec::new();
    for position in seen.clone() {
        layout.copy_key(kv, head, position, &mut key);
        let features = query.iter().zip(&key);
        scores.push(features.fold(0.0f32, |sum, (q, k)| q.mul_add(*k, sum)));
    }
    let most = largest(&scores);
    let mut lanes = [0.0f32; SUM_LANES];
    let mut values = vec![0.0f32; layout.value_dim];
    for (position, score) in seen.zip(scores) {
        let weight = exp(score - most);
        lanes[position % SUM_LANES] += weight;
        layout.copy_value(kv, head, position, &mut value);
        for (sum, value) in values.iter_mut().zip(&value) {
            *sum = weight.mul_add(*value, *sum);
        }
    }
    Partial {
        most,
        sum: sum16(&lanes),
        values,
    }
}

fn merge(state: &Partial, block: &Partial) -> Partial {
    let most = if state.most > block.most {
        state.most
    } else {
        block.most
    };
    let (old, new) = (exp(state.most - most), exp(block.most - most));
    let values = state.values.iter().zip(&block.values);
    Partial {
        most,
        sum: state.sum.mul_add(old, block.sum * new),
        values: values.map(|(a, b)| b.mul_add(new, a * old)).collect(),
    }
}
