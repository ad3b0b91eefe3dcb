//! How quantized keys and values lie in memory.
//!
//! A group of a key's or a value's features has a scale and a bias in float32, and a code of some bits for each feature: the
//! feature is `fma(code, scale, bias)`. They are chosen as MLX's `quantize` does: of the least and the largest feature, the one
//! that is farther from 0 (the largest on a tie) is the *edge*; `scale = max((largest − least) / (2^bits − 1), 1e-7)`, negative
//! where the edge is the largest; `q = round(edge / scale)`; unless that is 0, the scale becomes `edge / q` and the bias the edge,
//! which is 0 else. A code is `round((feature − bias) / scale)`, halves to even, clamped to what the bits hold. A group with a
//! feature that is not finite has scale and bias NaN, so that what is broken shows.

use super::{CAPACITY_STEP, KvLayout, MOST_FEATURES, PANEL_POSITIONS};

/// How many bits keys and values have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvCodes {
    /// Of a code: 4 or 8.
    pub bits: usize,
    /// Features of a head that share a scale and a bias: 32, 64 or 128.
    pub group: usize,
}

/// Codes that lie together: those of the 32 positions of a panel, or of 32 features of a value. Of 4 bits, byte `i` holds code
/// `i` below code `i + 16`; of 8 bits, code `i`.
pub(super) const RUN: usize = PANEL_POSITIONS;

/// The least scale.
pub(crate) const LEAST_SCALE: f32 = 1e-7;

/// The quantized keys and values of one layer of one row: words `[heads, capacity / 32, panel]`.
///
/// A *panel* holds 32 positions: of their keys the codes, `[key_dim][32]`, the scales, `[groups][32]`, and the biases; of their
/// values the codes, `[32][value_dim]`, the scales, `[32][groups]`, and the biases. Positions have slots as in [`KvLayout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeLayout {
    /// Heads and features.
    pub kv: KvLayout,
    /// Bits and groups.
    pub codes: KvCodes,
}

/// Where the parts of a panel begin, in words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodeParts {
    pub key_scales: usize,
    pub key_biases: usize,
    pub values: usize,
    pub value_scales: usize,
    pub value_biases: usize,
    pub end: usize,
}

impl KvCodes {
    /// The largest code.
    pub(crate) fn most(self) -> f32 {
        ((1u32 << self.bits) - 1) as f32
    }

    /// Words of a run of 32 codes.
    pub(super) fn run_words(self) -> usize {
        RUN * self.bits / 32
    }
}

impl CodeLayout {
    /// Words of a panel.
    pub fn panel(&self) -> usize {
        self.parts().end
    }

    /// Words of a buffer for `capacity` positions, a multiple of [`CAPACITY_STEP`].
    pub fn words(&self, capacity: usize) -> usize {
        self.kv.heads * capacity.div_ceil(PANEL_POSITIONS) * self.panel()
    }

    /// Positions that a buffer of so many words holds.
    pub fn capacity(&self, words: usize) -> usize {
        words / (self.kv.heads * self.panel()).max(1) * PANEL_POSITIONS
    }

    pub(crate) fn parts(&self) -> CodeParts {
        let KvCodes { bits, group } = self.codes;
        let [keys, values] = [self.kv.key_dim, self.kv.value_dim].map(|dim| dim * bits * RUN / 32);
        let [key_groups, value_groups] =
            [self.kv.key_dim, self.kv.value_dim].map(|dim| dim / group * PANEL_POSITIONS);
        let key_scales = keys;
        let key_biases = key_scales + key_groups;
        let value_codes = key_biases + key_groups;
        let value_scales = value_codes + values;
        let value_biases = value_scales + value_groups;
        CodeParts {
            key_scales,
            key_biases,
            values: value_codes,
            value_scales,
            value_biases,
            end: value_biases + value_groups,
        }
    }

    /// Where a position's panel begins, in words.
    pub(crate) fn panel_at(&self, capacity: usize, head: usize, position: usize) -> usize {
        self.kv.panel_of(capacity, head, position) * self.panel()
    }

    /// Copies one position's key, `[key_dim]`, as floats.
    ///
    /// # Panics
    /// If there is no such head, or `to` has another length.
    pub fn copy_key(&self, words: &[u32], head: usize, position: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.kv.key_dim, "features of a key");
        let panel = self.panel_at(self.capacity(words.len()), head, position);
        let (panel, parts) = (&words[panel..][..self.panel()], self.parts());
        let (slot, KvCodes { bits, group }) = (position % PANEL_POSITIONS, self.codes);
        for (d, to) in to.iter_mut().enumerate() {
            let at = d / group * PANEL_POSITIONS + slot;
            let code = code(&panel[d * self.codes.run_words()..], bits, slot);
            *to = element(code, panel[parts.key_scales + at], panel[parts.key_biases + at]);
        }
    }

    /// Copies one position's value, `[value_dim]`, as floats.
    ///
    /// # Panics
    /// If there is no such head, or `to` has another length.
    pub fn copy_value(&self, words: &[u32], head: usize, position: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.kv.value_dim, "features of a value");
        let panel = self.panel_at(self.capacity(words.len()), head, position);
        let (panel, parts) = (&words[panel..][..self.panel()], self.parts());
        let (slot, KvCodes { bits, group }) = (position % PANEL_POSITIONS, self.codes);
        let (run, groups) = (self.codes.run_words(), to.len() / group);
        let codes = &panel[parts.values + slot * to.len() / RUN * run..];
        for (d, to) in to.iter_mut().enumerate() {
            let at = slot * groups + d / group;
            let code = code(&codes[d / RUN * run..], bits, d % RUN);
            *to = element(
                code,
                panel[parts.value_scales + at],
                panel[parts.value_biases + at],
            );
        }
    }

    pub(super) fn check(&self) {
        let KvCodes { bits, group } = self.codes;
        assert!([4, 8].contains(&bits), "codes of {bits} bits");
        assert!([32, 64, 128].contains(&group), "groups of {group}");
        for dim in [self.kv.key_dim, self.kv.value_dim] {
            assert!(
                dim <= MOST_FEATURES && dim.is_multiple_of(group),
                "{dim} features in groups of {group}"
            );
        }
    }

    pub(super) fn check_buffer(&self, words: usize) {
        let capacity = self.capacity(words);
        assert!(
            capacity.is_multiple_of(CAPACITY_STEP) && self.words(capacity) == words,
            "{words} words of keys and values"
        );
    }
}

/// Where a code of a run lies: its word, and how far to shift it.
pub(crate) fn place(bits: usize, index: usize) -> (usize, usize) {
    let (byte, shift) = if bits == 4 {
        (index % 16, index / 16 * 4)
    } else {
        (index, 0)
    };
    (byte / 4, byte % 4 * 8 + shift)
}

/// One code of a run that begins where the words do.
fn code(words: &[u32], bits: usize, index: usize) -> u32 {
    let (word, shift) = place(bits, index);
    words[word] >> shift & ((1 << bits) - 1)
}

fn element(code: u32, scale: u32, bias: u32) -> f32 {
    (code as f32).mul_add(f32::from_bits(scale), f32::from_bits(bias))
}
