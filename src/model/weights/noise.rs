//! Random matrices, which are made where they are needed.

use super::{Affine, Matrix};

/// A matrix `[rows, cols]` of elements between plus and minus `√(3 / cols)`, so that a product keeps the scale of its input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noise {
    /// Rows: outputs.
    pub rows: usize,
    /// Columns: inputs.
    pub cols: usize,
    /// What the elements follow from.
    pub seed: u64,
    /// Bits and group size, if it is to be quantized.
    pub affine: Option<(usize, usize)>,
}

impl Noise {
    /// The largest element.
    pub fn largest(&self) -> f32 {
        (3.0 / self.cols.max(1) as f32).sqrt()
    }

    /// On the host: elements, or quants that make them with their scales.
    pub fn made(&self) -> Matrix {
        let &Self { rows, cols, seed, .. } = self;
        let largest = self.largest();
        let mut words = Words(seed);
        let Some((bits, group_size)) = self.affine else {
            let element = |word: u32| (word as f32 / u32::MAX as f32 * 2.0 - 1.0) * largest;
            return Matrix::Dense {
                rows,
                cols,
                elements: words.by_ref().take(rows * cols).map(element).collect(),
            };
        };
        let groups = rows * cols / group_size.max(1);
        let steps = ((1u32 << bits) - 1) as f32;
        Matrix::Affine(Affine {
            rows,
            cols,
            bits,
            group_size,
            packed: words.by_ref().take(rows * cols * bits / 32).collect(),
            scales: vec![2.0 * largest / steps; groups],
            biases: vec![-largest; groups],
        })
    }
}

/// Random words: SplitMix64's upper halves.
struct Words(u64);

impl Iterator for Words {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some(((z ^ (z >> 31)) >> 32) as u32)
    }
}
