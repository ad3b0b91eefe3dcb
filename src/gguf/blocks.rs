//! A tensor's elements: as floats, and as MLX's affine quantization.
//!
//! A GGUF block of 32 elements maps to one group of 32 of MLX's affine form `weight * scale + bias` exactly:
//! Q4_0 is (d, −8d), Q4_1 is (d, m), Q8_0 with its bytes moved to 0..=255 is (d, −128d).

use half::{bf16, f16};

use super::{GgufError, Kind, TensorInfo};

/// Elements of a block, in every quantized type that is read.
const BLOCK: usize = 32;

/// A tensor of an open file.
#[derive(Debug, Clone, Copy)]
pub struct Tensor<'a> {
    /// Its name, shape and type.
    pub info: &'a TensorInfo,
    /// Its bytes, as they lie in the file.
    pub bytes: &'a [u8],
}

/// A quantized tensor in MLX's affine form: element = weight · scale + bias, with the scale and bias of its
/// group.
///
/// The numbers are exact; what a product computes with them depends on the type that it computes in.
#[derive(Debug, Clone, PartialEq)]
pub struct Affine {
    /// Bits of an element: 4 or 8.
    pub bits: u32,
    /// Consecutive elements of a row that share a scale and a bias: 32.
    pub group_size: usize,
    /// `[rows, cols · bits / 32]`: element `j` of a row lies in word `j · bits / 32`, from bit `j · bits %
    /// 32` up.
    pub weight: Vec<u32>,
    /// `[rows, cols / 32]`.
    pub scales: Vec<f16>,
    /// `[rows, cols / 32]`.
    pub biases: Vec<f16>,
}

/// The error for a tensor whose type isn't read.
pub(super) fn unsupported(info: &TensorInfo) -> GgufError {
    GgufError::UnsupportedKind {
        name: info.name.clone(),
        kind: info.kind.to_string(),
    }
}

impl Tensor<'_> {
    /// All elements in single precision, the innermost dimension running fastest: `d · q` for Q8_0 and Q4_0
    /// (exact), `d · q + m` for Q4_1 (the product exact, the sum rounded once). Fails for a type that isn't
    /// read.
    pub fn to_f32(&self) -> Result<Vec<f32>, GgufError> {
        let bytes = self.bytes;
        Ok(match self.info.kind {
            Kind::F32 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            Kind::F16 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f16::from_le_bytes(*b).to_f32())
                .collect(),
            Kind::BF16 => bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| bf16::from_le_bytes(*b).to_f32())
                .collect(),
            Kind::Q8_0 => dense::<34>(bytes, |block, out| {
                let ([scale], quants) = split(block);
                for (element, quant) in out.iter_mut().zip(quants) {
                    *element = scale.to_f32() * f32::from(quant.cast_signed());
                }
            }),
            Kind::Q4_0 => dense::<18>(bytes, |block, out| {
                let ([scale], quants) = split(block);
                nibbles(out, quants, |quant| scale.to_f32() * (f32::from(quant) - 8.0));
            }),
            Kind::Q4_1 => dense::<20>(bytes, |block, out| {
                let ([scale, minimum], quants) = split(block);
                let (scale, minimum) = (scale.to_f32(), minimum.to_f32());
                nibbles(out, quants, |quant| scale * f32::from(quant) + minimum);
            }),
            Kind::Other(_) => return Err(unsupported(self.info)),
        })
    }

    /// The tensor in MLX's affine form. `None` when it isn't quantized, or when a scale or bias is not a
    /// finite half (as for a Q8_0 scale above 511): the caller then uses [`Self::to_f32`].
    pub fn to_affine(&self) -> Option<Affine> {
        match self.info.kind {
            Kind::Q8_0 => affine::<34>(self.bytes, 8, |block, words| {
                let ([scale], quants) = split(block);
                for (word, four) in words.iter_mut().zip(quants.as_chunks().0) {
                    // −128..=127 becomes 0..=255 by the top bit of each byte.
                    *word = u32::from_le_bytes(*four) ^ 0x8080_8080;
                }
                (scale, f16::from_f32(-128.0 * scale.to_f32()))
            }),
            Kind::Q4_0 => affine::<18>(self.bytes, 4, |block, words| {
                let ([scale], quants) = split(block);
                pack_nibbles(words, quants);
                (scale, f16::from_f32(-8.0 * scale.to_f32()))
            }),
            Kind::Q4_1 => affine::<20>(self.bytes, 4, |block, words| {
                let ([scale, minimum], quants) = split(block);
                pack_nibbles(words, quants);
                (scale, minimum)
            }),
            Kind::F32 | Kind::F16 | Kind::BF16 | Kind::Other(_) => None,
        }
    }
}

/// A block's leading halves, and the quants behind them.
fn split<const N: usize>(block: &[u8]) -> ([f16; N], &[u8]) {
    let (halves, quants) = block.split_at_checked(2 * N).unwrap_or((&[], block));
    let mut numbers = [f16::ZERO; N];
    for (number, half) in numbers.iter_mut().zip(halves.as_chunks().0) {
        *number = f16::from_le_bytes(*half);
    }
    (numbers, quants)
}

fn dense<const BYTES: usize>(bytes: &[u8], decode: impl Fn(&[u8; BYTES], &mut [f32; BLOCK])) -> Vec<f32> {
    let blocks = bytes.as_chunks::<BYTES>().0;
    let mut elements = vec![0.0; blocks.len() * BLOCK];
    for (block, out) in blocks.iter().zip(elements.as_chunks_mut::<BLOCK>().0) {
        decode(block, out);
    }
    elements
}

/// Spreads 16 bytes over 32 elements: the low nibbles are elements 0 to 15, the high ones 16 to 31.
fn nibbles(out: &mut [f32; BLOCK], quants: &[u8], element: impl Fn(u8) -> f32) {
    let (low, high) = out.split_at_mut(BLOCK / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(quants) {
        *low = element(byte & 0x0f);
        *high = element(byte >> 4);
    }
}

fn affine<const BYTES: usize>(
    bytes: &[u8],
    bits: u32,
    convert: impl Fn(&[u8; BYTES], &mut [u32]) -> (f16, f16),
) -> Option<Affine> {
    let blocks = bytes.as_chunks::<BYTES>().0;
    let words = bits as usize;
    let mut weight = vec![0; blocks.len() * words];
    let mut scales = vec![f16::ZERO; blocks.len()];
    let mut biases = vec![f16::ZERO; blocks.len()];
    let mut finite = true;
    let places = weight
        .chunks_exact_mut(words)
        .zip(scales.iter_mut().zip(biases.iter_mut()));
    for (block, (words, (scale, bias))) in blocks.iter().zip(places) {
        (*scale, *bias) = convert(block, words);
        finite &= scale.is_finite() && bias.is_finite();
    }
    finite.then_some(Affine {
        bits,
        group_size: BLOCK,
        weight,
        scales,
        biases,
    })
}

/// Packs 16 bytes, whose low nibbles are elements 0 to 15 and high ones 16 to 31, into four words in order.
fn pack_nibbles(words: &mut [u32], quants: &[u8]) {
    if let ([w0, w1, w2, w3], ([first, second], _)) = (words, quants.as_chunks::<8>()) {
        let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
        *w0 = low_nibbles(first);
        *w1 = low_nibbles(second);
        *w2 = low_nibbles(first >> 4);
        *w3 = low_nibbles(second >> 4);
    }
}

/// The low nibbles of eight bytes, the first byte's lowest.
fn low_nibbles(bytes: u64) -> u32 {
    let nibbles = bytes & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (quads | quads >> 16) as u32
}
