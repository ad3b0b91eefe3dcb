//! Matrices of tiny floats with a tiny scale for each group: mxfp4, nvfp4, mxfp8.

use super::Affine;
use crate::gguf::pack;
use crate::nn::Microscaling;

/// An element is the float of its code times the float of its group's scale.
///
/// Codes of four bits are a sign, an exponent of two bits and a significand of one (E2M1: 0, ½, 1, 1½, 2, 3, 4, 6); those of
/// eight a sign, an exponent of four bits and a significand of three (E4M3), as are the scales of nvfp4. Scales of the other
/// modes are powers of two, `2^(byte − 127)`. As in MLX, no code stands for a NaN: 127 is 480 in E4M3.
#[derive(Debug, Clone, PartialEq)]
pub struct Microscaled {
    /// Rows: outputs.
    pub rows: usize,
    /// Columns: inputs; a multiple of the mode's group size.
    pub cols: usize,
    /// The kinds of codes and scales.
    pub mode: Microscaling,
    /// `[rows, cols · bits / 32]`: the lowest bits of each word first.
    pub packed: Vec<u32>,
    /// `[rows, cols / group_size]`.
    pub scales: Vec<u8>,
}

/// Magnitudes of E2M1, doubled.
const DOUBLED: [u8; 8] = [0, 1, 2, 3, 4, 6, 8, 12];

/// What quants of the affine form are reduced by: five bits hold −12..=12 so.
const CENTRE: u8 = 16;

fn e4m3(byte: u8) -> f32 {
    let (exponent, significand) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let magnitude = match exponent {
        0 => significand * 2.0_f32.powi(-9),
        _ => (8.0 + significand) * 2.0_f32.powi(exponent - 10),
    };
    if byte & 0x80 == 0 { magnitude } else { -magnitude }
}

fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0040_0000),
        // The last stands for infinity here: no finite product is left either way.
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

impl Microscaled {
    fn scale(&self, byte: u8) -> f32 {
        match self.mode {
            Microscaling::Nvfp4 => e4m3(byte),
            Microscaling::Mxfp4 | Microscaling::Mxfp8 => e8m0(byte),
        }
    }

    /// Codes, row by row.
    fn codes(&self) -> impl Iterator<Item = u8> {
        let bits = self.mode.bits();
        let mask = (1_u32 << bits) - 1;
        let places = (0..32).step_by(bits);
        self.packed
            .iter()
            .flat_map(move |word| places.clone().map(move |at| (word >> at & mask) as u8))
    }

    /// Every element in float32, exactly.
    pub(super) fn dequantized(&self) -> Vec<f32> {
        let value = |code: u8| match self.mode {
            Microscaling::Mxfp8 => e4m3(code),
            Microscaling::Mxfp4 | Microscaling::Nvfp4 => {
                let magnitude = f32::from(DOUBLED[usize::from(code & 7)]) / 2.0;
                if code & 8 == 0 { magnitude } else { -magnitude }
            }
        };
        let mut codes = self.codes();
        let mut elements = Vec::with_capacity(self.rows * self.cols);
        for &scale in &self.scales {
            let scale = self.scale(scale);
            let group = codes.by_ref().take(self.mode.group_size());
            elements.extend(group.map(|code| value(code) * scale));
        }
        elements
    }

    /// As quants of five bits, exactly (but for the sign of a zero). `None` for codes of eight bits, whose range is too wide,
    /// for rows that don't fill words of such quants, and where a group reaches beyond finite numbers.
    pub(super) fn to_affine(&self) -> Option<Affine> {
        const BITS: usize = 5;
        let fills = (self.cols * BITS).is_multiple_of(32);
        if self.mode == Microscaling::Mxfp8 || !fills {
            return None;
        }
        let scales: Vec<f32> = self.scales.iter().map(|&scale| self.scale(scale) / 2.0).collect();
        let biases: Vec<f32> = scales.iter().map(|scale| scale * -f32::from(CENTRE)).collect();
        if !scales.iter().all(|scale| (scale * 32.0).is_finite()) {
            return None;
        }
        let mut packed = Vec::with_capacity(self.rows * self.cols * BITS / 32);
        let mut quants = self.codes().map(|code| {
            let magnitude = DOUBLED[usize::from(code & 7)];
            if code & 8 == 0 {
                CENTRE + magnitude
            } else {
                CENTRE - magnitude
            }
        });
        for _ in 0..self.rows {
            let row: Vec<u8> = quants.by_ref().take(self.cols).collect();
            pack(&row, BITS, &mut packed);
        }
        Some(Affine {
            rows: self.rows,
            cols: self.cols,
            bits: BITS,
            group_size: self.mode.group_size(),
            packed,
            scales,
            biases,
        })
    }
}
