//! Quantized keys and values in a panel of an own buffer: as `cpu_kernels::attention::CodeLayout` says.
//!
//! Words of the keys' codes `[key_dim]` runs, scales `[groups, PANEL]`, biases; of the values' codes `[PANEL, value_dim / 32]`
//! runs, scales `[PANEL, groups]`, biases. A run is 32 codes: of 8 bits, a byte each; of 4 bits, byte `i` holds code `i` below
//! code `i + 16`.

use std::ops::Range;

use super::{KvQuantization, KvShape, PANEL};

/// Codes of a run.
const RUN: usize = 32;

/// Where things are in a panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct CodePanel {
    shape: KvShape,
    by: KvQuantization,
}

impl CodePanel {
    pub(super) fn new(shape: KvShape, by: KvQuantization) -> Self {
        Self { shape, by }
    }

    fn key_groups(&self) -> usize {
        self.shape.key_dim / self.by.group_size
    }

    fn value_groups(&self) -> usize {
        self.shape.value_dim / self.by.group_size
    }

    /// Where the values' codes begin.
    fn values(&self) -> usize {
        self.by.words(PANEL * self.shape.key_dim) + 2 * self.key_groups() * PANEL
    }

    /// Words of one slot's value: its codes, its scales, its biases.
    fn value_words(&self, slot: usize) -> [Range<usize>; 3] {
        let (each, groups) = (self.by.words(self.shape.value_dim), self.value_groups());
        let codes = self.values() + slot * each;
        let scales = self.values() + PANEL * each + slot * groups;
        let biases = scales + PANEL * groups;
        [
            codes..codes + each,
            scales..scales + groups,
            biases..biases + groups,
        ]
    }

    /// Words of one slot's scales and biases of keys.
    fn key_factors(&self, slot: usize) -> impl Iterator<Item = usize> + use<> {
        let scales = self.by.words(PANEL * self.shape.key_dim);
        (0..2 * self.key_groups()).map(move |at| scales + at * PANEL + slot)
    }

    /// The bits of one slot's code in a run: which word, and where in it.
    fn place(&self, slot: usize) -> (usize, u32) {
        let (byte, shift) = match self.by.bits {
            4 => (slot % 16, slot / 16 * 4),
            _ => (slot, 0),
        };
        (byte / 4, u32::try_from(byte % 4 * 8 + shift).unwrap_or(0))
    }

    fn code(&self, run: &[u32], slot: usize) -> u32 {
        let (word, shift) = self.place(slot);
        run[word] >> shift & self.mask()
    }

    fn mask(&self) -> u32 {
        (1 << self.by.bits) - 1
    }

    /// Copies one slot from panel to panel; the others stay.
    pub(super) fn copy_slot(&self, slot: usize, from: &[u32], to: &mut [u32]) {
        let (word, shift) = self.place(slot);
        let (mask, run) = (self.mask() << shift, self.by.words(RUN));
        for d in 0..self.shape.key_dim {
            let at = d * run + word;
            to[at] = to[at] & !mask | from[at] & mask;
        }
        for at in self.key_factors(slot) {
            to[at] = from[at];
        }
        for words in self.value_words(slot) {
            to[words.clone()].copy_from_slice(&from[words]);
        }
    }

    /// One slot's key as floats.
    pub(super) fn key(&self, panel: &[u32], slot: usize) -> Vec<f32> {
        let factors: Vec<f32> = self
            .key_factors(slot)
            .map(|at| f32::from_bits(panel[at]))
            .collect();
        let (scales, biases) = factors.split_at(self.key_groups());
        let element = |d: usize| {
            let code = self.code(&panel[d * self.by.words(RUN)..], slot);
            let group = d / self.by.group_size;
            (code as f32).mul_add(scales[group], biases[group])
        };
        (0..self.shape.key_dim).map(element).collect()
    }

    /// One slot's value as floats.
    pub(super) fn value(&self, panel: &[u32], slot: usize) -> Vec<f32> {
        let [codes, scales, biases] = self.value_words(slot).map(|words| &panel[words]);
        let element = |d: usize| {
            let code = self.code(&codes[d / RUN * self.by.words(RUN)..], d % RUN);
            let group = d / self.by.group_size;
            (code as f32).mul_add(f32::from_bits(scales[group]), f32::from_bits(biases[group]))
        };
        (0..self.shape.value_dim).map(element).collect()
    }
}
