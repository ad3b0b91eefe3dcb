//! A matrix of weights on the host, dense or quantized.

use super::{Microscaled, Noise};

/// `[rows, cols]`, row by row.
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix {
    /// Every element.
    Dense {
        /// Rows: outputs.
        rows: usize,
        /// Columns: inputs.
        cols: usize,
        /// `rows · cols` elements.
        elements: Vec<f32>,
    },
    /// Small integers with a scale and a bias for each group of a row.
    Affine(Affine),
    /// Tiny floats with a tiny scale for each group of a row.
    Microscaled(Microscaled),
    /// Random elements, not yet made.
    Noise(Noise),
}

/// Elements are `quant · scale + bias`, with the scale and bias of their group.
///
/// A product takes them in another order than one over the elements: a kernel of the CPU sums `quant · x` over the `n` columns of
/// a group, then adds `scale` times that and `bias` times the sum of `x` to the total, each step rounded once. So a total
/// over `m` groups differs from the exact one by no more than `k · 2⁻²⁴ / (1 − k · 2⁻²⁴)` of the sum of `(|quant · scale| +
/// |bias|) · |x|`, where `k = n + 2 · m`; where all biases are those of centred quants, the quants are centred first, and there
/// are no biases. On GPUs scales and biases are bfloat16, rounded by up to `2⁻⁸` of themselves where the file's are wider.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// Rows: outputs.
    pub rows: usize,
    /// Columns: inputs; a multiple of `group_size`.
    pub cols: usize,
    /// Bits of a quant: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Elements that share a scale and a bias.
    pub group_size: usize,
    /// `[rows, cols · bits / 32]`: each row a stream of bits, the lowest of each word first.
    pub packed: Vec<u32>,
    /// `[rows, cols / group_size]`.
    pub scales: Vec<f32>,
    /// `[rows, cols / group_size]`.
    pub biases: Vec<f32>,
}

impl Matrix {
    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        match self {
            Self::Dense { rows, cols, .. } => (*rows, *cols),
            Self::Affine(affine) => (affine.rows, affine.cols),
            Self::Microscaled(scaled) => (scaled.rows, scaled.cols),
            Self::Noise(noise) => (noise.rows, noise.cols),
        }
    }

    /// One column.
    pub fn column(elements: Vec<f32>) -> Self {
        Self::Dense {
            rows: elements.len(),
            cols: 1,
            elements,
        }
    }

    /// Matrices of as many columns, one above the other: those that follow one another and are stored in the same way become
    /// one. Nothing is rounded: what is stored in different ways stays apart.
    pub fn stacked(parts: Vec<Self>) -> Vec<Self> {
        let mut stacks: Vec<Self> = Vec::new();
        for below in parts {
            let below = match stacks.last_mut() {
                Some(above) => above.append(below),
                None => Some(below),
            };
            stacks.extend(below);
        }
        stacks
    }

    /// Puts `below` under it; gives it back where it is stored in another way.
    fn append(&mut self, below: Self) -> Option<Self> {
        match (self, below) {
            (Self::Affine(a), Self::Affine(b))
                if (a.bits, a.group_size, a.cols) == (b.bits, b.group_size, b.cols) =>
            {
                a.rows += b.rows;
                a.packed.extend(b.packed);
                a.scales.extend(b.scales);
                a.biases.extend(b.biases);
                None
            }
            (Self::Microscaled(a), Self::Microscaled(b)) if (a.mode, a.cols) == (b.mode, b.cols) => {
                a.rows += b.rows;
                a.packed.extend(b.packed);
                a.scales.extend(b.scales);
                None
            }
            (
                Self::Dense { rows, cols, elements },
                Self::Dense {
                    rows: more,
                    cols: wide,
                    elements: others,
                },
            ) if *cols == wide => {
                *rows += more;
                elements.extend(others);
                None
            }
            (Self::Noise(a), Self::Noise(b)) if (a.affine, a.cols) == (b.affine, b.cols) => {
                a.rows += b.rows;
                None
            }
            (_, below) => Some(below),
        }
    }

    /// Its first rows, so many, and the others. Both stay as they are stored.
    pub fn split_rows(self, first: usize) -> [Self; 2] {
        let (rows, _) = self.shape();
        let first = first.min(rows);
        [(0, first), (first, rows - first)].map(|(start, count)| self.taken(count, |row| start + row))
    }

    /// Its rows in another order: row `r` of the result is row `from(r)`.
    pub fn with_rows(self, from: impl Fn(usize) -> usize) -> Self {
        self.taken(self.shape().0, from)
    }

    /// A matrix of `count` rows: row `r` is row `from(r)` of this one.
    fn taken(&self, count: usize, from: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Dense { rows, cols, elements } => Self::Dense {
                rows: count,
                cols: *cols,
                elements: taken(elements, *rows, count, from),
            },
            Self::Affine(affine) => Self::Affine(Affine {
                rows: count,
                packed: taken(&affine.packed, affine.rows, count, &from),
                scales: taken(&affine.scales, affine.rows, count, &from),
                biases: taken(&affine.biases, affine.rows, count, &from),
                ..*affine
            }),
            Self::Microscaled(scaled) => Self::Microscaled(Microscaled {
                rows: count,
                packed: taken(&scaled.packed, scaled.rows, count, &from),
                scales: taken(&scaled.scales, scaled.rows, count, &from),
                ..*scaled
            }),
            // Any rows of it are as random as others.
            Self::Noise(noise) => Self::Noise(Noise {
                rows: count,
                ..noise.clone()
            }),
        }
    }

    /// Its columns in another order, `width` at a time: those from `c · width` on are those from `from(c) · width` on. Stays
    /// as it is stored where groups and words don't straddle such columns, else it becomes dense.
    pub fn with_columns(self, width: usize, from: impl Fn(usize) -> usize) -> Self {
        let (rows, cols) = self.shape();
        let width = width.max(1);
        let whole = |bits: usize, group: usize| {
            cols.is_multiple_of(width)
                && width.is_multiple_of(group.max(1))
                && (width * bits).is_multiple_of(32)
        };
        // A row's pieces as if they were rows.
        let pieces = cols / width;
        let from = |piece: usize| piece / pieces * pieces + from(piece % pieces);
        match self {
            Self::Affine(affine) if whole(affine.bits, affine.group_size) => Self::Affine(Affine {
                packed: taken(&affine.packed, rows * pieces, rows * pieces, from),
                scales: taken(&affine.scales, rows * pieces, rows * pieces, from),
                biases: taken(&affine.biases, rows * pieces, rows * pieces, from),
                ..affine
            }),
            Self::Microscaled(scaled) if whole(scaled.mode.bits(), scaled.mode.group_size()) => {
                Self::Microscaled(Microscaled {
                    packed: taken(&scaled.packed, rows * pieces, rows * pieces, from),
                    scales: taken(&scaled.scales, rows * pieces, rows * pieces, from),
                    ..scaled
                })
            }
            other if cols.is_multiple_of(width) => Self::Dense {
                rows,
                cols,
                elements: taken(&other.into_dense(), rows * pieces, rows * pieces, from),
            },
            other => other,
        }
    }

    /// The same for kernels of the CPU: affine where a kernel holds it so, to the bit, else dense.
    pub fn for_kernels(self) -> Self {
        let affine = match self {
            Self::Dense { .. } => return self,
            Self::Noise(noise) => return noise.made().for_kernels(),
            Self::Affine(affine) => affine,
            Self::Microscaled(scaled) => match scaled.to_affine() {
                Some(affine) => affine,
                None => return Self::Microscaled(scaled).into_dense_matrix(),
            },
        };
        let words = affine.cols * affine.bits;
        if [16, 32, 64, 128].contains(&affine.group_size) && words.is_multiple_of(32) {
            Self::Affine(affine)
        } else {
            Self::Affine(affine).into_dense_matrix()
        }
    }

    /// The same for MLX's operations, which have no affine groups of 16: these become dense.
    pub fn for_mlx(self) -> Self {
        match self {
            Self::Affine(affine) if ![32, 64, 128].contains(&affine.group_size) => {
                Self::Affine(affine).into_dense_matrix()
            }
            other => other,
        }
    }

    fn into_dense_matrix(self) -> Self {
        let (rows, cols) = self.shape();
        Self::Dense {
            rows,
            cols,
            elements: self.into_dense(),
        }
    }

    /// Every element in float32, row by row.
    pub fn into_dense(self) -> Vec<f32> {
        match self {
            Self::Dense { elements, .. } => elements,
            Self::Affine(affine) => affine.dequantized(),
            Self::Microscaled(scaled) => scaled.dequantized(),
            Self::Noise(noise) => noise.made().into_dense(),
        }
    }
}

impl Affine {
    /// As kernels pack it.
    pub fn for_packing(&self) -> cpu_kernels::Affine<'_> {
        cpu_kernels::Affine {
            outputs: self.rows,
            inputs: self.cols,
            bits: self.bits,
            group: self.group_size,
            packed: &self.packed,
            scales: &self.scales,
            biases: &self.biases,
        }
    }

    /// Every element in float32: `quant · scale + bias`, each operation rounded once.
    fn dequantized(&self) -> Vec<f32> {
        let words_per_row = self.cols * self.bits / 32;
        let mut elements = Vec::with_capacity(self.rows * self.cols);
        let groups_per_row = (self.cols / self.group_size.max(1)).max(1);
        let rows = self.packed.chunks_exact(words_per_row.max(1));
        let scales = self.scales.chunks_exact(groups_per_row);
        let biases = self.biases.chunks_exact(groups_per_row);
        for ((words, scales), biases) in rows.zip(scales).zip(biases) {
            let mut quants = Quants {
                words: words.iter(),
                held: 0,
                available: 0,
                bits: self.bits,
            };
            for (scale, bias) in scales.iter().zip(biases) {
                elements.extend(
                    quants
                        .by_ref()
                        .take(self.group_size)
                        .map(|q| q as f32 * scale + bias),
                );
            }
        }
        elements
    }
}

/// Reads a stream of `bits`-wide integers, the lowest bits of each word first.
struct Quants<'a> {
    words: std::slice::Iter<'a, u32>,
    held: u64,
    available: usize,
    bits: usize,
}

impl Iterator for Quants<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.available < self.bits {
            self.held |= u64::from(*self.words.next()?) << self.available;
            self.available += 32;
        }
        let quant = self.held & ((1 << self.bits) - 1);
        self.held >>= self.bits;
        self.available -= self.bits;
        Some(quant as u32)
    }
}

/// `count` of the `rows` that the elements are: row `r` of the result is row `from(r)`.
fn taken<T: Copy>(elements: &[T], rows: usize, count: usize, from: impl Fn(usize) -> usize) -> Vec<T> {
    let per_row = elements.len() / rows.max(1);
    let row = |r: usize| {
        elements
            .get(from(r) * per_row..(from(r) + 1) * per_row)
            .unwrap_or(&[])
    };
    (0..count).flat_map(|r| row(r).iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Microscaling;

    fn counting(rows: usize, cols: usize) -> Matrix {
        Matrix::Dense {
            rows,
            cols,
            elements: (0..rows * cols).map(|i| i as f32).collect(),
        }
    }

    #[test]
    fn quants_of_every_width_unpack_from_a_stream_of_bits() {
        for bits in [2usize, 3, 4, 5, 6, 8] {
            let quants: Vec<u32> = (0..64u32).map(|i| (i * 37 + 11) % (1 << bits)).collect();
            let mut bytes = vec![0u8; 64 * bits / 8];
            for (i, q) in quants.iter().enumerate() {
                for b in 0..bits {
                    let at = i * bits + b;
                    bytes[at / 8] |= ((q >> b & 1) as u8) << (at % 8);
                }
            }
            let packed: Vec<u32> = bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| u32::from_le_bytes(*b))
                .collect();
            let (scales, biases) = (vec![0.5, 2.0], vec![-1.0, 3.0]);
            let affine = Affine {
                rows: 1,
                cols: 64,
                bits,
                group_size: 32,
                packed,
                scales,
                biases,
            };
            let expected: Vec<f32> = quants
                .iter()
                .enumerate()
                .map(|(i, &q)| {
                    if i < 32 {
                        q as f32 * 0.5 - 1.0
                    } else {
                        q as f32 * 2.0 + 3.0
                    }
                })
                .collect();
            assert_eq!(Matrix::Affine(affine).into_dense(), expected, "{bits} bits");
        }
    }

    fn affine(bits: usize, rows: usize, cols: usize, group_size: usize) -> Matrix {
        let count = (rows * cols * bits / 32) as u32;
        let groups = rows * cols / group_size;
        Matrix::Affine(Affine {
            rows,
            cols,
            bits,
            group_size,
            packed: (1..=count).map(|at| at.wrapping_mul(0x9E37_79B1)).collect(),
            scales: (1..=groups).map(|at| at as f32).collect(),
            biases: (1..=groups).map(|at| -0.5 * at as f32).collect(),
        })
    }

    fn microscaled(mode: Microscaling, rows: usize, cols: usize) -> Matrix {
        let count = (rows * cols * mode.bits() / 32) as u32;
        Matrix::Microscaled(Microscaled {
            rows,
            cols,
            mode,
            packed: (1..=count).map(|at| at.wrapping_mul(0x9E37_79B1)).collect(),
            scales: (0..rows * cols / mode.group_size())
                .map(|at| 120 + at as u8 % 8)
                .collect(),
        })
    }

    #[test]
    fn stacking_joins_what_is_stored_alike_and_keeps_the_rest_apart() {
        let alike = Matrix::stacked(vec![affine(4, 1, 32, 32), affine(4, 2, 32, 32)]);
        assert!(matches!(alike.as_slice(), [Matrix::Affine(a)] if a.rows == 3 && a.packed.len() == 12));
        let parts = vec![
            affine(4, 1, 32, 32),
            affine(8, 1, 32, 32),
            microscaled(Microscaling::Mxfp4, 1, 32),
            microscaled(Microscaling::Mxfp4, 2, 32),
            counting(2, 32),
            counting(1, 32),
        ];
        let expected: Vec<f32> = parts.iter().flat_map(|part| part.clone().into_dense()).collect();
        let mixed = Matrix::stacked(parts);
        let rows: Vec<usize> = mixed.iter().map(|part| part.shape().0).collect();
        assert_eq!(rows, [1, 1, 3, 3]);
        let found: Vec<f32> = mixed.into_iter().flat_map(Matrix::into_dense).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_kind_is_split_and_reordered_as_its_elements_would_be() {
        for matrix in [
            counting(6, 64),
            affine(4, 6, 64, 32),
            affine(3, 6, 64, 16),
            microscaled(Microscaling::Nvfp4, 6, 64),
            microscaled(Microscaling::Mxfp8, 6, 64),
        ] {
            let dense = matrix.clone().into_dense();
            let [upper, lower] = matrix.clone().split_rows(2);
            assert_eq!((upper.shape(), lower.shape()), ((2, 64), (4, 64)));
            assert_eq!([upper.into_dense(), lower.into_dense()].concat(), dense);
            let turned = matrix.clone().with_rows(|row| 5 - row).into_dense();
            let expected: Vec<f32> = dense.chunks(64).rev().flatten().copied().collect();
            assert_eq!(turned, expected);
            // By columns that groups don't straddle, and by some that they do.
            for width in [32, 8] {
                let pieces = 64 / width;
                let moved = matrix
                    .clone()
                    .with_columns(width, |piece| pieces - 1 - piece)
                    .into_dense();
                let row = |row: &[f32]| row.chunks(width).rev().flatten().copied().collect::<Vec<_>>();
                let expected: Vec<f32> = dense.chunks(64).flat_map(row).collect();
                assert_eq!(moved, expected, "{width}");
            }
        }
    }

    #[test]
    fn the_form_for_kernels_and_the_form_for_mlx_have_the_same_elements() {
        for matrix in [
            affine(4, 2, 64, 32),
            affine(3, 2, 64, 16),
            microscaled(Microscaling::Mxfp4, 2, 64),
            microscaled(Microscaling::Nvfp4, 2, 64),
            microscaled(Microscaling::Nvfp4, 2, 16),
            microscaled(Microscaling::Mxfp8, 2, 64),
        ] {
            let dense = matrix.clone().into_dense();
            let kernels = matrix.clone().for_kernels();
            assert!(!matches!(kernels, Matrix::Microscaled(_)));
            assert_eq!(kernels.into_dense(), dense);
            let mlx = matrix.for_mlx();
            assert!(!matches!(&mlx, Matrix::Affine(affine) if affine.group_size == 16));
            assert_eq!(mlx.into_dense(), dense);
        }
        let kept = microscaled(Microscaling::Nvfp4, 1, 64).for_kernels();
        assert!(matches!(kept, Matrix::Affine(affine) if (affine.bits, affine.group_size) == (5, 16)));
    }

    #[test]
    fn rows_can_be_put_in_another_order() {
        let out = counting(3, 2).with_rows(|r| 2 - r).into_dense();
        assert_eq!(out, [4.0, 5.0, 2.0, 3.0, 0.0, 1.0]);
    }
}
