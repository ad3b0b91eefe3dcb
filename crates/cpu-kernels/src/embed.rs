//! Rows of packed weights as floats: embeddings are looked up so, and never unpacked as a whole.

use crate::shared::SharedMut;
use crate::weights::{BLOCK, Float, PANEL, Quants, Storage, Weights, place, planes};
use crate::{Isa, Team, reference};

/// Elements below which one thread does all.
const SMALL: usize = 16384;

/// Looks up tokens: `out` is `[tokens, inputs]`, each row the output of that index ([`Weights::copy_output`]), multiplied by `factor` if
/// there is one (Gemma's models ask for `sqrt(inputs)`).
///
/// # Panics
/// If a token is not below the number of outputs, or `out` has another length.
pub fn embed(team: &Team, weights: &Weights, tokens: &[u32], factor: Option<f32>, out: &mut [f32]) {
    let inputs = weights.inputs();
    assert_eq!(out.len(), tokens.len() * inputs, "elements of the output");
    let look_up = |token: u32, to: &mut [f32]| {
        let output = token as usize;
        if team.isa() == Isa::Portable {
            assert!(
                output < weights.outputs(),
                "output {output} of {}",
                weights.outputs()
            );
            reference::copy_output(weights, output, to);
        } else {
            weights.copy_output(output, to);
        }
        if let Some(factor) = factor {
            for element in to {
                *element *= factor;
            }
        }
    };
    if out.len() < SMALL {
        for (at, &token) in tokens.iter().enumerate() {
            look_up(token, &mut out[at * inputs..(at + 1) * inputs]);
        }
        return;
    }
    let out = SharedMut::new(out);
    team.run(|worker| {
        while let Some((at, &token)) = {
            let at = worker.claim(0);
            tokens.get(at).map(|token| (at, token))
        } {
            // SAFETY: each row is claimed once.
            look_up(token, unsafe { out.slice(at * inputs..(at + 1) * inputs) });
        }
    });
}

impl Weights {
    /// Copies the elements of one output, `[inputs]`, as float32: `quant · scale + bias`, each operation rounded once.
    ///
    /// # Panics
    /// If there is no such output, or `to` has not as many elements as there are inputs.
    pub fn copy_output(&self, output: usize, to: &mut [f32]) {
        assert!(output < self.outputs(), "output {output} of {}", self.outputs());
        assert_eq!(to.len(), self.inputs(), "the length of an output");
        let (panel, lane) = (self.panel(output / PANEL), output % PANEL);
        match self.storage() {
            Storage::Dense(Float::F32) => copy_dense(Float::F32, panel, lane, to),
            Storage::Dense(Float::F16) => copy_dense(Float::F16, panel, lane, to),
            Storage::Dense(Float::Bf16) => copy_dense(Float::Bf16, panel, lane, to),
            Storage::Affine(quants) => {
                let records = quants.records();
                let center = if quants.centered { quants.center() } else { 0.0 };
                let run = quants.group.min(BLOCK);
                for (index, to) in to.chunks_mut(BLOCK).enumerate() {
                    let codes = unpack_lane(&panel[records.block_of(index * BLOCK)..], quants, lane);
                    for (part, (to, codes)) in to.chunks_mut(run).zip(codes.chunks(run)).enumerate() {
                        let (scale, bias) = self.scale(output, (index * BLOCK + part * run) / quants.group);
                        for (to, &code) in to.iter_mut().zip(codes) {
                            *to = (f32::from(code) - center) * scale + bias;
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn copy_dense(float: Float, panel: &[u8], lane: usize, to: &mut [f32]) {
    for (k, to) in to.iter_mut().enumerate() {
        *to = float.read(panel, k * PANEL + lane);
    }
}

/// One lane's quants of a block.
fn unpack_lane(block: &[u8], quants: Quants, lane: usize) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    let (mut below, mut rest) = (0, block);
    for &width in planes(quants.bits) {
        let (plane, others) = rest.split_at(width * BLOCK * PANEL / 8);
        rest = others;
        match width {
            1 => unpack_plane::<1>(plane, lane, below, &mut codes),
            2 => unpack_plane::<2>(plane, lane, below, &mut codes),
            4 => unpack_plane::<4>(plane, lane, below, &mut codes),
            _ => unpack_plane::<8>(plane, lane, below, &mut codes),
        }
        below += width;
    }
    codes
}

/// Adds one lane's bits of a plane to quants, from bit `below` on.
#[inline(always)]
fn unpack_plane<const WIDTH: usize>(plane: &[u8], lane: usize, below: usize, codes: &mut [u8; BLOCK]) {
    let mut words = [0u32; WIDTH];
    for (word, lanes) in words.iter_mut().zip(plane.chunks_exact(PANEL * 4)) {
        let at = lane * 4;
        *word = u32::from_le_bytes([lanes[at], lanes[at + 1], lanes[at + 2], lanes[at + 3]]);
    }
    for (k, code) in codes.iter_mut().enumerate() {
        let (word, shift) = place(WIDTH, k);
        *code |= ((words[word] >> shift & ((1 << WIDTH) - 1)) << below) as u8;
    }
}
