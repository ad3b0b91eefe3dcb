//! Attention's definition in plain loops.

use crate::attention::{
    Attention, BLOCK, CAPACITY_STEP, CodeLayout, KvCodes, KvLayout, KvMut, PANEL_POSITIONS, Segment, place,
    scale_and_bias,
};
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

/// Keys and values of a row that can be read.
trait Kv {
    fn key(&self, head: usize, position: usize, to: &mut [f32]);
    fn value(&self, head: usize, position: usize, to: &mut [f32]);
}

struct Floats<'a>(KvLayout, &'a [f32]);

impl Kv for Floats<'_> {
    fn key(&self, head: usize, position: usize, to: &mut [f32]) {
        self.0.copy_key(self.1, head, position, to);
    }
    fn value(&self, head: usize, position: usize, to: &mut [f32]) {
        self.0.copy_value(self.1, head, position, to);
    }
}

struct Codes<'a>(CodeLayout, &'a [u32]);

impl Kv for Codes<'_> {
    fn key(&self, head: usize, position: usize, to: &mut [f32]) {
        self.0.copy_key(self.1, head, position, to);
    }
    fn value(&self, head: usize, position: usize, to: &mut [f32]) {
        self.0.copy_value(self.1, head, position, to);
    }
}

/// Writes the new keys and values, then attends. The arguments have been checked.
pub(crate) fn attend(attention: &Attention<'_>, qkv: &[f32], segments: &mut [Segment<'_>], out: &mut [f32]) {
    let (width, outputs) = (attention.width(), attention.heads * attention.kv.value_dim);
    let (mut qkv, mut out, mut token) = (qkv, out, 0);
    for segment in segments {
        let (x, rest) = qkv.split_at(segment.tokens * width);
        let (to, others) = std::mem::take(&mut out).split_at_mut(segment.tokens * outputs);
        let row = Row {
            attention,
            x,
            start: segment.start,
            first_token: token,
        };
        match (&mut segment.kv, attention.code_layout()) {
            (KvMut::Codes(words), Some(layout)) if segment.start == 0 => {
                let capacity = segment.tokens.next_multiple_of(CAPACITY_STEP);
                let mut floats = vec![0.0; attention.kv.floats(capacity)];
                row.write(&mut floats);
                row.look(&Floats(attention.kv, &floats), to);
                row.encode(layout, words);
            }
            (KvMut::Codes(words), Some(layout)) => {
                row.encode(layout, words);
                row.look(&Codes(layout, words), to);
            }
            (KvMut::Codes(_), None) => unreachable!("codes without their layout"),
            (KvMut::Floats(kv), _) => {
                row.write(kv);
                row.look(&Floats(attention.kv, kv), to);
            }
        }
        (qkv, out) = (rest, others);
        token += segment.tokens;
    }
}

/// A segment's tokens.
struct Row<'a> {
    attention: &'a Attention<'a>,
    x: &'a [f32],
    start: usize,
    first_token: usize,
}

impl Row<'_> {
    /// Every key and value: its head, its position, and the two.
    fn each(&self, mut take: impl FnMut(usize, usize, &[f32], &[f32])) {
        let (attention, kv) = (self.attention, self.attention.kv);
        for (index, row) in self.x.chunks_exact(attention.width()).enumerate() {
            let keys = &row[attention.heads * kv.key_dim..];
            let values = &keys[kv.heads * kv.key_dim..];
            for head in 0..kv.heads {
                let key = &keys[head * kv.key_dim..][..kv.key_dim];
                let key = turned(attention, attention.key_norm, self.first_token + index, key);
                let value = &values[head * kv.value_dim..][..kv.value_dim];
                take(head, self.start + index, &key, value);
            }
        }
    }

    fn write(&self, floats: &mut [f32]) {
        let kv = self.attention.kv;
        let capacity = kv.capacity(floats.len());
        self.each(|head, position, key, value| {
            let at = kv.key_at(capacity, head, position);
            for (d, feature) in key.iter().enumerate() {
                floats[at + d * PANEL_POSITIONS] = *feature;
            }
            let at = kv.value_at(capacity, head, position);
            floats[at..at + kv.value_dim].copy_from_slice(value);
        });
    }

    fn encode(&self, layout: CodeLayout, words: &mut [u32]) {
        let capacity = layout.capacity(words.len());
        let (parts, KvCodes { bits, group }) = (layout.parts(), layout.codes);
        self.each(|head, position, key, value| {
            let slot = position % PANEL_POSITIONS;
            let start = layout.panel_at(capacity, head, position);
            let panel = &mut words[start..][..layout.panel()];
            for (at, features) in key.chunks(group).enumerate() {
                let (scale, bias, codes) = quantized(features, bits);
                panel[parts.key_scales + at * PANEL_POSITIONS + slot] = scale.to_bits();
                panel[parts.key_biases + at * PANEL_POSITIONS + slot] = bias.to_bits();
                for (d, code) in codes.into_iter().enumerate() {
                    put(&mut panel[(at * group + d) * bits..], bits, slot, code);
                }
            }
            let groups = value.len() / group;
            for (at, features) in value.chunks(group).enumerate() {
                let (scale, bias, codes) = quantized(features, bits);
                panel[parts.value_scales + slot * groups + at] = scale.to_bits();
                panel[parts.value_biases + slot * groups + at] = bias.to_bits();
                for (d, code) in codes.into_iter().enumerate() {
                    let run = (slot * value.len() + at * group + d) / 32;
                    put(&mut panel[parts.values + run * bits..], bits, d % 32, code);
                }
            }
        });
    }

    fn look(&self, kv: &dyn Kv, out: &mut [f32]) {
        let (attention, dims) = (self.attention, self.attention.kv);
        let group = attention.heads / dims.heads;
        for (at, to) in out.chunks_exact_mut(dims.value_dim).enumerate() {
            let (index, head) = (at / attention.heads, at % attention.heads);
            let query = &self.x[index * attention.width() + head * dims.key_dim..][..dims.key_dim];
            let token = self.first_token + index;
            let mut query = turned(attention, attention.query_norm, token, query);
            for feature in &mut query {
                *feature *= attention.scale;
            }
            look(attention, kv, head / group, self.start + index, &query, to);
        }
    }
}

/// A group's scale, bias and codes.
fn quantized(x: &[f32], bits: usize) -> (f32, f32, Vec<u32>) {
    if x.iter().any(|x| !x.is_finite()) {
        return (f32::NAN, f32::NAN, vec![0; x.len()]);
    }
    let most = ((1u32 << bits) - 1) as f32;
    let least = x.iter().copied().fold(f32::INFINITY, f32::min);
    let (scale, bias) = scale_and_bias(least, largest(x), most);
    let code = |x: &f32| ((x - bias) / scale).round_ties_even().clamp(0.0, most) as u32;
    (scale, bias, x.iter().map(code).collect())
}

/// Puts a code into a run that begins where the words do.
fn put(words: &mut [u32], bits: usize, index: usize, code: u32) {
    let (word, shift) = place(bits, index);
    words[word] = words[word] & !(((1 << bits) - 1) << shift) | code << shift;
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
fn look(attention: &Attention<'_>, kv: &dyn Kv, head: usize, position: usize, query: &[f32], to: &mut [f32]) {
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
    kv: &dyn Kv,
    head: usize,
    seen: std::ops::Range<usize>,
    query: &[f32],
) -> Partial {
    let layout = attention.kv;
    let (mut key, mut value) = (vec![0.0; layout.key_dim], vec![0.0; layout.value_dim]);
    let mut scores = Vec::new();
    for position in seen.clone() {
        kv.key(head, position, &mut key);
        let features = query.iter().zip(&key);
        scores.push(features.fold(0.0f32, |sum, (q, k)| q.mul_add(*k, sum)));
    }
    let most = largest(&scores);
    let mut lanes = [0.0f32; SUM_LANES];
    let mut values = vec![0.0f32; layout.value_dim];
    for (position, score) in seen.zip(scores) {
        let weight = exp(score - most);
        lanes[position % SUM_LANES] += weight;
        kv.value(head, position, &mut value);
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
