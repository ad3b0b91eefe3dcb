//! A tensor's elements: as floats, and as affine quantization.

use std::ops::Range;

use half::{bf16, f16};

use super::formats::{Format, nibbles};
use super::{GgufError, Kind, TensorInfo};

/// A tensor of an open file, or one of the slices that it is a stack of.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// The name, shape and type of the tensor; of the whole stack, for a slice.
    pub info: &'a TensorInfo,
    /// The bytes, as they lie in the file.
    pub bytes: &'a [u8],
}

/// A quantized tensor in affine form: element = weight · scale + bias, with the scale and bias of its group.
///
/// The integers, scales and biases are exact, and so is an element: the product fits single precision, and the sum is rounded
/// as the type's own formula rounds it, if at all. Only the sign of a zero may be lost.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// Bits of an element: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Consecutive elements of a row that share a scale and a bias: 16 or 32.
    pub group_size: usize,
    /// `[rows, cols · bits / 32]`: a row is a stream of bits, the lowest of each word first.
    pub weight: Vec<u32>,
    /// `[rows, cols / group_size]`.
    pub scales: Vec<f32>,
    /// `[rows, cols / group_size]`.
    pub biases: Vec<f32>,
}

/// The error for a tensor whose type isn't read.
pub(super) fn unsupported(info: &TensorInfo) -> GgufError {
    GgufError::UnsupportedKind {
        name: info.name.clone(),
        kind: info.kind.to_string(),
        read: Kind::all_read(),
    }
}

fn floats<const N: usize>(bytes: &[u8], float: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| float(*bytes)).collect()
}

impl<'a> Tensor<'a> {
    /// Some of the `of` equal parts that it has, rows or slices of an outer dimension; `None` if it hasn't these.
    pub fn part(&self, parts: Range<usize>, of: usize) -> Option<Self> {
        let length = self.bytes.len() / of.max(1);
        let bytes = self.bytes.get(parts.start * length..parts.end * length)?;
        (parts.end <= of).then_some(Self { bytes, ..*self })
    }

    /// All elements in single precision, the innermost dimension running fastest, each as its type's formula gives it: a
    /// scale times a quant (exact), or that and a minimum (the product exact, the sum rounded once). Fails for a type that
    /// isn't read.
    pub fn to_f32(&self) -> Result<Vec<f32>, GgufError> {
        Ok(match self.info.kind {
            Kind::F32 => floats(self.bytes, f32::from_le_bytes),
            Kind::F16 => floats(self.bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Kind::BF16 => floats(self.bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            kind => {
                let format = Format::of(kind).ok_or_else(|| unsupported(self.info))?;
                let mut elements = Vec::with_capacity(self.bytes.len() / format.bytes * format.elements);
                format.for_each_block(self.bytes, |block| {
                    let groups = block.codes.chunks_exact(format.group);
                    for (codes, (scale, bias)) in groups.zip(block.scales()) {
                        // A centred quant is reduced before the product, so that a zero has the sign that it should.
                        elements.extend(codes.iter().map(|&code| match format.centre {
                            Some(centre) => scale * (f32::from(code) - centre),
                            None => scale * f32::from(code) + bias,
                        }));
                    }
                });
                elements
            }
        })
    }

    /// The tensor in affine form. `None` when it isn't quantized, or when a group reaches beyond finite numbers: the caller
    /// then uses [`Self::to_f32`].
    pub fn to_affine(&self) -> Option<Affine> {
        let format = Format::of(self.info.kind)?;
        let blocks = self.bytes.len() / format.bytes;
        let groups = blocks * format.elements / format.group;
        let mut affine = Affine {
            bits: format.bits,
            group_size: format.group,
            weight: Vec::with_capacity(blocks * format.elements * format.bits / 32),
            scales: Vec::with_capacity(groups),
            biases: Vec::with_capacity(groups),
        };
        let largest = f32::from((1_u16 << format.bits) - 1);
        let mut finite = true;
        format.for_each_block(self.bytes, |block| {
            pack(block.codes, format.bits, &mut affine.weight);
            for (scale, bias) in block.scales() {
                let bias = match format.centre {
                    Some(centre) => -centre * scale,
                    None => bias,
                };
                finite &= bias.is_finite() && (scale * largest).is_finite();
                affine.scales.push(scale);
                affine.biases.push(bias);
            }
        });
        finite.then_some(affine)
    }

    /// An MXFP4 tensor as the microscaling format that it is: eight codes to a word, the first lowest, and the exponent of
    /// each 32. `None` for other types, and where an exponent stands for no number.
    pub fn to_mxfp4(&self) -> Option<(Vec<u32>, Vec<u8>)> {
        if self.info.kind != Kind::MXFP4 {
            return None;
        }
        let blocks = self.bytes.as_chunks::<17>().0;
        let mut words = Vec::with_capacity(blocks.len() * 4);
        let mut exponents = Vec::with_capacity(blocks.len());
        for [exponent, quants @ ..] in blocks {
            if *exponent == u8::MAX {
                return None;
            }
            exponents.push(*exponent);
            let mut codes = [0; 32];
            nibbles(quants, &mut codes);
            pack(&codes, 4, &mut words);
        }
        Some((words, exponents))
    }
}

/// Appends codes as a stream of bits, the lowest of each word first; they fill whole words.
pub fn pack(codes: &[u8], bits: usize, words: &mut Vec<u32>) {
    match bits {
        8 => words.extend(codes.as_chunks().0.iter().map(|four| u32::from_le_bytes(*four))),
        4 => words.extend(codes.as_chunks::<8>().0.iter().map(|eight| {
            let bytes = u64::from_le_bytes(*eight);
            let pairs = (bytes | bytes >> 4) & 0x00ff_00ff_00ff_00ff;
            let quads = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
            (quads | quads >> 16) as u32
        })),
        _ => {
            let (mut held, mut count) = (0_u64, 0);
            for &code in codes {
                held |= u64::from(code) << count;
                count += bits;
                if count >= 32 {
                    words.push(held as u32);
                    held >>= 32;
                    count -= 32;
                }
            }
        }
    }
}
