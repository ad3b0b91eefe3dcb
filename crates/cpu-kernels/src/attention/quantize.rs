//! Keys and values on their way into codes, and out of them.

use super::codes::{CodeLayout, CodeParts, KvCodes, LEAST_SCALE, RUN, place};
use super::prepare::Features;
use super::{MOST_FEATURES, PANEL_POSITIONS};
use crate::simd::{Simd, prefetch_far};

/// The most groups of a key or a value.
const MOST_GROUPS: usize = MOST_FEATURES / 32;

/// A key or a value, quantized.
pub(super) struct Encoded {
    codes: [u8; MOST_FEATURES],
    scales: [f32; MOST_GROUPS],
    biases: [f32; MOST_GROUPS],
}

impl Encoded {
    /// Quantizes features, a multiple of a group.
    ///
    /// # Safety
    /// The CPU has the instructions.
    #[inline(always)]
    pub(super) unsafe fn new<S: Simd>(codes: KvCodes, x: &[f32]) -> Self {
        let mut encoded = Self {
            codes: [0; MOST_FEATURES],
            scales: [f32::NAN; MOST_GROUPS],
            biases: [f32::NAN; MOST_GROUPS],
        };
        let mut rounded = Features::new();
        for (at, group) in x.chunks_exact(codes.group).enumerate() {
            if group.iter().fold(false, |broken, x| broken | !x.is_finite()) {
                continue;
            }
            let rounded = &mut rounded.0[..codes.group];
            // SAFETY: both have as many elements as a group; the instructions are promised.
            let (scale, bias) = unsafe { group_codes::<S>(codes, group, rounded) };
            (encoded.scales[at], encoded.biases[at]) = (scale, bias);
            let to = &mut encoded.codes[at * codes.group..][..codes.group];
            for (to, rounded) in to.iter_mut().zip(rounded) {
                *to = *rounded as u8;
            }
        }
        encoded
    }

    /// Puts it as the key of a slot of a panel.
    ///
    /// # Safety
    /// The panel has the layout's words, and no other thread has it.
    #[inline(always)]
    pub(super) unsafe fn put_key(&self, layout: &CodeLayout, panel: *mut u32, slot: usize) {
        let KvCodes { bits, group } = layout.codes;
        let parts = layout.parts();
        let (word, shift) = place(bits, slot);
        let (byte, shift) = (word * 4 + shift / 8, shift % 8);
        // Of 4 bits, the neighbour in the byte stays.
        let kept = if bits == 4 { 0xf0 >> shift } else { 0 };
        // SAFETY: within the panel.
        unsafe {
            for (d, code) in self.codes.iter().enumerate().take(layout.kv.key_dim) {
                let to = panel.add(d * layout.codes.run_words()).cast::<u8>().add(byte);
                *to = *to & kept | code << shift;
            }
            for at in 0..layout.kv.key_dim / group {
                let to = panel.add(at * PANEL_POSITIONS + slot);
                *to.add(parts.key_scales) = self.scales[at].to_bits();
                *to.add(parts.key_biases) = self.biases[at].to_bits();
            }
        }
    }

    /// Puts it as the value of a slot of a panel.
    ///
    /// # Safety
    /// As for [`put_key`](Self::put_key).
    #[inline(always)]
    pub(super) unsafe fn put_value(&self, layout: &CodeLayout, panel: *mut u32, slot: usize) {
        let KvCodes { bits, group } = layout.codes;
        let (parts, dim) = (layout.parts(), layout.kv.value_dim);
        let run = layout.codes.run_words();
        // SAFETY: within the panel.
        unsafe {
            for (at, codes) in self.codes[..dim].chunks_exact(RUN).enumerate() {
                let to = panel
                    .add(parts.values + (slot * dim / RUN + at) * run)
                    .cast::<u8>();
                if bits == 4 {
                    for byte in 0..16 {
                        *to.add(byte) = codes[byte] | codes[byte + 16] << 4;
                    }
                } else {
                    std::ptr::copy_nonoverlapping(codes.as_ptr(), to, RUN);
                }
            }
            for at in 0..dim / group {
                let to = panel.add(slot * (dim / group) + at);
                *to.add(parts.value_scales) = self.scales[at].to_bits();
                *to.add(parts.value_biases) = self.biases[at].to_bits();
            }
        }
    }
}

/// Rounds a group's features to codes; gives its scale and bias.
#[inline(always)]
unsafe fn group_codes<S: Simd>(codes: KvCodes, x: &[f32], to: &mut [f32]) -> (f32, f32) {
    let most = codes.most();
    // SAFETY: a group is a multiple of 16; the instructions are promised.
    unsafe {
        let (mut largest, mut least) = (S::splat(f32::NEG_INFINITY), S::splat(f32::NEG_INFINITY));
        for at in (0..x.len()).step_by(S::LANES) {
            let x = S::load(x.as_ptr().add(at));
            largest = S::max(x, largest);
            least = S::max(S::mul(x, S::splat(-1.0)), least);
        }
        let (scale, bias) = scale_and_bias(-S::max_lane(least), S::max_lane(largest), most);
        for at in (0..x.len()).step_by(S::LANES) {
            let x = S::sub(S::load(x.as_ptr().add(at)), S::splat(bias));
            let code = S::round(S::div(x, S::splat(scale)));
            let code = S::min(S::max(code, S::splat(0.0)), S::splat(most));
            S::store(to.as_mut_ptr().add(at), code);
        }
        (scale, bias)
    }
}

/// Of a group with this least and this largest feature, both finite.
pub(crate) fn scale_and_bias(least: f32, largest: f32, most: f32) -> (f32, f32) {
    let below = least.abs() > largest.abs();
    let step = ((largest - least) / most).max(LEAST_SCALE);
    let (edge, scale) = if below { (least, step) } else { (largest, -step) };
    let codes = (edge / scale).round_ties_even();
    if codes == 0.0 {
        (scale, 0.0)
    } else {
        (edge / codes, edge)
    }
}

/// Panels of codes in a row, of one head.
#[derive(Clone, Copy)]
pub(super) struct CodePanels {
    pub first: *const u32,
    pub layout: CodeLayout,
}

impl CodePanels {
    /// Has them fetched.
    #[inline(always)]
    pub(super) fn prefetch(&self, panels: usize) {
        let words = panels * self.layout.panel();
        for word in (0..words).step_by(16) {
            prefetch_far(self.first.wrapping_add(word).cast());
        }
    }

    /// The keys of some panels as floats, `[key_dim][32]` each, to where such panels begin.
    ///
    /// # Safety
    /// The CPU has the instructions; there are such panels, and there is room for them.
    #[inline(always)]
    pub(super) unsafe fn keys<S: Simd>(&self, panels: std::ops::Range<usize>, to: *mut f32) {
        let (layout, parts) = (&self.layout, self.layout.parts());
        let dim = layout.kv.key_dim;
        for index in panels {
            // SAFETY: promised by the caller.
            unsafe {
                let panel = self.first.add(index * parts.end);
                let to = to.add(index * dim * PANEL_POSITIONS);
                if layout.codes.bits == 4 {
                    panel_keys::<S, 4>(layout, &parts, panel, to);
                } else {
                    panel_keys::<S, 8>(layout, &parts, panel, to);
                }
            }
        }
    }

    /// The values of some panels as floats, `[32][value_dim]` each, to where such panels begin.
    ///
    /// # Safety
    /// As for [`keys`](Self::keys).
    #[inline(always)]
    pub(super) unsafe fn values<S: Simd>(&self, panels: std::ops::Range<usize>, to: *mut f32) {
        let (layout, parts) = (&self.layout, self.layout.parts());
        let dim = layout.kv.value_dim;
        for index in panels {
            // SAFETY: promised by the caller.
            unsafe {
                let panel = self.first.add(index * parts.end);
                let to = to.add(index * dim * PANEL_POSITIONS);
                if layout.codes.bits == 4 {
                    panel_values::<S, 4>(layout, &parts, panel, to);
                } else {
                    panel_values::<S, 8>(layout, &parts, panel, to);
                }
            }
        }
    }
}

/// The vectors of codes that begin `at` in a run, and where they go in it: of 4 bits two with one load.
#[inline(always)]
unsafe fn unpack<S: Simd, const BITS: usize>(run: *const u8, at: usize) -> [S::F; 2] {
    // SAFETY: promised by the caller: within the run.
    unsafe {
        let bytes = S::load_bytes(run.add(at));
        if BITS == 4 {
            [S::nibble(bytes), S::to_float(S::shift_right(bytes, 4))]
        } else {
            [S::to_float(bytes), S::to_float(S::load_bytes(run.add(at + 16)))]
        }
    }
}

#[inline(always)]
unsafe fn panel_keys<S: Simd, const BITS: usize>(
    layout: &CodeLayout,
    parts: &CodeParts,
    panel: *const u32,
    to: *mut f32,
) {
    let group = layout.codes.group;
    for first in (0..layout.kv.key_dim).step_by(group) {
        let scales = first / group * PANEL_POSITIONS;
        for at in (0..16).step_by(S::LANES) {
            // SAFETY: promised by the caller: 32 scales, 32 biases, and codes of all features.
            unsafe {
                let factor = |part: usize| {
                    let from = panel.add(part + scales + at).cast::<f32>();
                    [S::load(from), S::load(from.add(16))]
                };
                let (scale, bias) = (factor(parts.key_scales), factor(parts.key_biases));
                for d in first..first + group {
                    let run = panel.add(d * RUN * BITS / 32).cast();
                    let codes = unpack::<S, BITS>(run, at);
                    let to = to.add(d * PANEL_POSITIONS + at);
                    S::store(to, S::fma(codes[0], scale[0], bias[0]));
                    S::store(to.add(16), S::fma(codes[1], scale[1], bias[1]));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn panel_values<S: Simd, const BITS: usize>(
    layout: &CodeLayout,
    parts: &CodeParts,
    panel: *const u32,
    to: *mut f32,
) {
    let (dim, group) = (layout.kv.value_dim, layout.codes.group);
    // Positions and groups of each: all lie one after the other.
    for at in 0..PANEL_POSITIONS * dim / group {
        // SAFETY: promised by the caller: a scale, a bias, and the codes of a group.
        unsafe {
            let factor = |part: usize| S::splat(f32::from_bits(*panel.add(part + at)));
            let (scale, bias) = (factor(parts.value_scales), factor(parts.value_biases));
            for run in (0..group).step_by(RUN) {
                let from = panel.add(parts.values + (at * group + run) * BITS / 32).cast();
                for within in (0..16).step_by(S::LANES) {
                    let codes = unpack::<S, BITS>(from, within);
                    let to = to.add(at * group + run + within);
                    S::store(to, S::fma(codes[0], scale, bias));
                    S::store(to.add(16), S::fma(codes[1], scale, bias));
                }
            }
        }
    }
}
