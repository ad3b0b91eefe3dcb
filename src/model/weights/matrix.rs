//! A matrix of weights on the host, dense or affine-quantized.

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
}

/// Elements are `quant · scale + bias`, with the scale and bias of their group.
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
        }
    }

    /// Matrices of as many columns, one above the other. Stays quantized if all are so in the same way.
    pub fn stacked(parts: Vec<Self>) -> Self {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else {
            return Self::Dense {
                rows: 0,
                cols: 0,
                elements: Vec::new(),
            };
        };
        parts.fold(first, |above, below| match (above, below) {
            (Self::Affine(mut a), Self::Affine(b)) if (a.bits, a.group_size) == (b.bits, b.group_size) => {
                a.rows += b.rows;
                a.packed.extend(b.packed);
                a.scales.extend(b.scales);
                a.biases.extend(b.biases);
                Self::Affine(a)
            }
            (above, below) => {
                let ((upper, cols), (lower, _)) = (above.shape(), below.shape());
                let mut elements = above.into_dense();
                elements.extend(below.into_dense());
                Self::Dense {
                    rows: upper + lower,
                    cols,
                    elements,
                }
            }
        })
    }

    /// One column.
    pub fn column(elements: Vec<f32>) -> Self {
        Self::Dense {
            rows: elements.len(),
            cols: 1,
            elements,
        }
    }

    /// Its first rows, so many, and the others; stored as they are.
    pub fn split_rows(self, first: usize) -> [Self; 2] {
        let (rows, cols) = self.shape();
        let first = first.min(rows);
        let others = rows - first;
        match self {
            Self::Dense { mut elements, .. } => {
                let below = cut(&mut elements, first, rows);
                let part = |rows, elements| Self::Dense { rows, cols, elements };
                [part(first, elements), part(others, below)]
            }
            Self::Affine(mut above) => {
                let below = Affine {
                    rows: others,
                    packed: cut(&mut above.packed, first, rows),
                    scales: cut(&mut above.scales, first, rows),
                    biases: cut(&mut above.biases, first, rows),
                    ..above
                };
                above.rows = first;
                [Self::Affine(above), Self::Affine(below)]
            }
        }
    }

    /// Its rows in another order: row `r` of the result is row `from(r)`.
    pub fn with_rows(self, from: impl Fn(usize) -> usize) -> Self {
        match self {
            Self::Dense { rows, cols, elements } => {
                let elements = reordered(&elements, rows, from);
                Self::Dense { rows, cols, elements }
            }
            Self::Affine(affine) => {
                let rows = affine.rows;
                Self::Affine(Affine {
                    packed: reordered(&affine.packed, rows, &from),
                    scales: reordered(&affine.scales, rows, &from),
                    biases: reordered(&affine.biases, rows, &from),
                    ..affine
                })
            }
        }
    }

    /// Every element in float32, row by row.
    pub fn into_dense(self) -> Vec<f32> {
        match self {
            Self::Dense { elements, .. } => elements,
            Self::Affine(affine) => affine.dequantized(),
        }
    }

    /// Every element in float32, column by column: `[cols, rows]`.
    pub fn into_transposed(self) -> Vec<f32> {
        let (rows, cols) = self.shape();
        transposed(&self.into_dense(), rows, cols)
    }
}

impl Affine {
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

/// What belongs to the rows from `first` on is taken away.
fn cut<T>(elements: &mut Vec<T>, first: usize, rows: usize) -> Vec<T> {
    elements.split_off(elements.len() / rows.max(1) * first)
}

fn reordered<T: Copy>(elements: &[T], rows: usize, from: impl Fn(usize) -> usize) -> Vec<T> {
    let per_row = elements.len() / rows.max(1);
    let row = |r: usize| {
        elements
            .get(from(r) * per_row..(from(r) + 1) * per_row)
            .unwrap_or(&[])
    };
    (0..rows).flat_map(|r| row(r).iter().copied()).collect()
}

/// `[rows, cols]` to `[cols, rows]`, by tiles that fit in the fastest cache.
fn transposed(elements: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    const TILE: usize = 32;
    let mut out = vec![0.0; elements.len()];
    for top in (0..rows).step_by(TILE) {
        for left in (0..cols).step_by(TILE) {
            let bottom = (top + TILE).min(rows);
            for col in left..(left + TILE).min(cols) {
                let Some(target) = out.get_mut(col * rows + top..col * rows + bottom) else {
                    continue;
                };
                let source = elements
                    .get(top * cols + col..)
                    .unwrap_or(&[])
                    .iter()
                    .step_by(cols);
                target.iter_mut().zip(source).for_each(|(to, from)| *to = *from);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(rows: usize, cols: usize) -> Matrix {
        Matrix::Dense {
            rows,
            cols,
            elements: (0..rows * cols).map(|i| i as f32).collect(),
        }
    }

    #[test]
    fn transposing_moves_every_element_also_past_a_tile() {
        for (rows, cols) in [(1, 5), (33, 70), (64, 32), (3, 1)] {
            let out = counting(rows, cols).into_transposed();
            for r in 0..rows {
                for c in 0..cols {
                    assert_eq!(
                        out[c * rows + r],
                        (r * cols + c) as f32,
                        "{rows}×{cols} at {r}, {c}"
                    );
                }
            }
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

    #[test]
    fn stacking_keeps_alike_quantization_and_dequantizes_what_differs() {
        let affine = |bits: usize| {
            let packed = vec![0x7654_3210; 32 * bits / 32];
            Matrix::Affine(Affine {
                rows: 1,
                cols: 32,
                bits,
                group_size: 32,
                packed,
                scales: vec![1.0],
                biases: vec![0.5],
            })
        };
        let alike = Matrix::stacked(vec![affine(4), affine(4)]);
        assert!(matches!(&alike, Matrix::Affine(a) if a.rows == 2 && a.packed.len() == 8));
        let mut dense = affine(4).into_dense();
        assert_eq!(alike.into_dense()[32..], dense[..]);
        let mixed = Matrix::stacked(vec![affine(4), affine(8)]);
        dense.extend(affine(8).into_dense());
        assert_eq!(
            mixed,
            Matrix::Dense {
                rows: 2,
                cols: 32,
                elements: dense
            }
        );
    }

    #[test]
    fn rows_can_be_put_in_another_order() {
        let out = counting(3, 2).with_rows(|r| 2 - r).into_dense();
        assert_eq!(out, [4.0, 5.0, 2.0, 3.0, 0.0, 1.0]);
    }

    #[test]
    fn rows_can_be_taken_apart() {
        let whole = counting(3, 2);
        let parts = whole.clone().split_rows(1);
        assert_eq!(parts.each_ref().map(Matrix::shape), [(1, 2), (2, 2)]);
        assert_eq!(Matrix::stacked(parts.into()), whole);
        let affine = |rows: usize| Affine {
            rows,
            cols: 32,
            bits: 4,
            group_size: 16,
            packed: (0..4 * rows as u32).collect(),
            scales: (0..2 * rows).map(|i| i as f32).collect(),
            biases: vec![0.5; 2 * rows],
        };
        let [above, below] = Matrix::Affine(affine(3)).split_rows(2);
        assert_eq!(above, Matrix::Affine(affine(2)));
        assert_eq!(Matrix::stacked(vec![above, below]), Matrix::Affine(affine(3)));
    }
}
