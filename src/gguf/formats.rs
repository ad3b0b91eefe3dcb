//! The quantized types: how a block is laid out, and what its quants, scales and minima are.
//!
//! Every type here is affine: an element is `quant · scale + bias` with a scale and a bias for each group of 16 or 32. In some
//! the bias is that of *centred* quants, `-centre · scale`. How many bits the numbers take, so that products are exact:
//! a half has a significand of 11 bits, times a scale of 4 to 8 bits, times a quant of 2 to 6 bits: no more than 24.

use half::f16;

use super::Kind;

/// Elements of the largest block.
const MOST: usize = 256;
/// Groups of the largest block.
const MOST_GROUPS: usize = 16;

/// How blocks of a type are laid out.
pub(super) struct Format {
    /// Elements of a block.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// Elements that share a scale and a bias.
    pub group: usize,
    /// Bits that hold a quant.
    pub bits: usize,
    /// What quants are reduced by; `None`: each group has its own bias.
    pub centre: Option<f32>,
    decode: fn(&[u8], &mut Decoded),
}

/// One block's numbers.
pub(super) struct Decoded {
    codes: [u8; MOST],
    scales: [f32; MOST_GROUPS],
    /// Of no meaning where quants are centred.
    biases: [f32; MOST_GROUPS],
}

/// A decoded block.
pub(super) struct Block<'a> {
    /// All quants.
    pub codes: &'a [u8],
    scales: &'a [f32],
    biases: &'a [f32],
}

impl Block<'_> {
    /// Scale and bias of each group.
    pub fn scales(&self) -> impl Iterator<Item = (f32, f32)> {
        self.scales.iter().copied().zip(self.biases.iter().copied())
    }
}

impl Format {
    /// The layout of a quantized type that is read.
    pub fn of(kind: Kind) -> Option<Self> {
        let (group, bits, centre, decode): (_, _, _, fn(&[u8], &mut Decoded)) = match kind {
            Kind::Q4_0 => (32, 4, Some(8.0), q4_0),
            Kind::Q4_1 => (32, 4, None, q4_1),
            Kind::Q5_0 => (32, 5, Some(16.0), q5_0),
            Kind::Q5_1 => (32, 5, None, q5_1),
            Kind::Q8_0 => (32, 8, Some(128.0), q8_0),
            Kind::Q2_K => (16, 2, None, q2_k),
            Kind::Q3_K => (16, 3, Some(4.0), q3_k),
            Kind::Q4_K => (32, 4, None, q4_k),
            Kind::Q5_K => (32, 5, None, q5_k),
            Kind::Q6_K => (16, 6, Some(32.0), q6_k),
            Kind::IQ4_NL => (32, 8, Some(128.0), iq4_nl),
            Kind::MXFP4 => (32, 5, Some(16.0), mxfp4),
            Kind::F32 | Kind::F16 | Kind::BF16 | Kind::Other(_) => return None,
        };
        let (elements, bytes) = kind.block()?;
        Some(Self {
            elements,
            bytes,
            group,
            bits,
            centre,
            decode,
        })
    }

    /// Calls `each` with every block of a tensor's bytes.
    pub fn for_each_block(&self, bytes: &[u8], mut each: impl FnMut(Block<'_>)) {
        let mut decoded = Decoded {
            codes: [0; MOST],
            scales: [0.0; MOST_GROUPS],
            biases: [0.0; MOST_GROUPS],
        };
        let groups = self.elements / self.group;
        for bytes in bytes.chunks_exact(self.bytes) {
            (self.decode)(bytes, &mut decoded);
            each(Block {
                codes: &decoded.codes[..self.elements],
                scales: &decoded.scales[..groups],
                biases: &decoded.biases[..groups],
            });
        }
    }
}

fn half(bytes: &[u8]) -> f32 {
    bytes
        .first_chunk()
        .map_or(0.0, |bytes| f16::from_le_bytes(*bytes).to_f32())
}

/// Spreads bytes over twice as many codes: the low nibbles are the first half, the high ones the second.
pub(super) fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 0x0f;
        *high = byte >> 4;
    }
}

/// Adds bit `i` of a block's 32 to code `i`, as bit 4.
fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    let bits = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    for (at, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> at & 1) as u8) << 4;
    }
}

fn q4_0(block: &[u8], out: &mut Decoded) {
    out.scales[0] = half(block);
    nibbles(&block[2..18], &mut out.codes[..32]);
}

fn q4_1(block: &[u8], out: &mut Decoded) {
    (out.scales[0], out.biases[0]) = (half(block), half(&block[2..]));
    nibbles(&block[4..20], &mut out.codes[..32]);
}

fn q5_0(block: &[u8], out: &mut Decoded) {
    out.scales[0] = half(block);
    nibbles(&block[6..22], &mut out.codes[..32]);
    fifth_bits(&block[2..], &mut out.codes[..32]);
}

fn q5_1(block: &[u8], out: &mut Decoded) {
    (out.scales[0], out.biases[0]) = (half(block), half(&block[2..]));
    nibbles(&block[8..24], &mut out.codes[..32]);
    fifth_bits(&block[4..], &mut out.codes[..32]);
}

fn q8_0(block: &[u8], out: &mut Decoded) {
    out.scales[0] = half(block);
    for (code, quant) in out.codes.iter_mut().zip(&block[2..34]) {
        // −128..=127 becomes 0..=255.
        *code = quant ^ 0x80;
    }
}

/// The integers that indices of IQ4_NL stand for.
const IQ4_NL: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

fn iq4_nl(block: &[u8], out: &mut Decoded) {
    out.scales[0] = half(block);
    nibbles(&block[2..18], &mut out.codes[..32]);
    for code in &mut out.codes[..32] {
        *code = IQ4_NL[usize::from(*code & 0x0f)].cast_unsigned() ^ 0x80;
    }
}

/// Twice what codes of MXFP4 (a sign, an exponent of two bits, a significand of one) stand for, plus 16.
const MXFP4: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

fn mxfp4(block: &[u8], out: &mut Decoded) {
    let exponent = u32::from(block[0]);
    // Half of 2^(exponent − 127), subnormal for the two smallest.
    out.scales[0] = f32::from_bits(match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => (exponent - 1) << 23,
    });
    nibbles(&block[1..17], &mut out.codes[..32]);
    for code in &mut out.codes[..32] {
        *code = MXFP4[usize::from(*code & 0x0f)];
    }
}

/// Two bits of each of 256 codes: 32 bytes hold those of 128, the lowest those of the first 32.
fn pairs_of_bits(bytes: &[u8], codes: &mut [u8], shift: u32) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(128)) {
        for (at, codes) in codes.chunks_exact_mut(32).enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code |= (byte >> (2 * at) & 3) << shift;
            }
        }
    }
}

/// One bit of each of 256 codes: bit `i` of byte `j` is that of code `32 · i + j`.
fn single_bits(bytes: &[u8], codes: &mut [u8], shift: u32) {
    for (at, codes) in codes.chunks_exact_mut(32).enumerate() {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code |= (byte >> at & 1) << shift;
        }
    }
}

fn q2_k(block: &[u8], out: &mut Decoded) {
    let (scale, minimum) = (half(&block[80..]), half(&block[82..]));
    for (at, byte) in block[..16].iter().enumerate() {
        out.scales[at] = scale * f32::from(byte & 0x0f);
        out.biases[at] = -(minimum * f32::from(byte >> 4));
    }
    out.codes.fill(0);
    pairs_of_bits(&block[16..80], &mut out.codes, 0);
}

fn q3_k(block: &[u8], out: &mut Decoded) {
    let (scales, scale) = (&block[96..108], half(&block[108..]));
    for at in 0..16 {
        let low = scales[at % 8] >> (at / 8 * 4) & 0x0f;
        let high = scales[8 + at % 4] >> (at / 4 * 2) & 3;
        out.scales[at] = scale * (f32::from(low | high << 4) - 32.0);
    }
    out.codes.fill(0);
    pairs_of_bits(&block[32..96], &mut out.codes, 0);
    single_bits(&block[..32], &mut out.codes, 2);
}

/// Scales and minima of 6 bits, eight each, in 12 bytes; what they are multiplied by comes before.
fn scales_and_minima(block: &[u8], out: &mut Decoded) {
    let (scale, minimum, packed) = (half(block), half(&block[2..]), &block[4..16]);
    for at in 0..4 {
        let (low, high, upper) = (packed[at], packed[4 + at], packed[8 + at]);
        let pairs = [
            (low & 0x3f, high & 0x3f),
            (upper & 0x0f | low >> 6 << 4, upper >> 4 | high >> 6 << 4),
        ];
        for (half, (factor, least)) in pairs.into_iter().enumerate() {
            out.scales[at + 4 * half] = scale * f32::from(factor);
            out.biases[at + 4 * half] = -(minimum * f32::from(least));
        }
    }
}

/// Four bits of each of 256 codes: 32 bytes hold those of 64, the low nibbles the first 32.
fn nibbles_of_64(bytes: &[u8], codes: &mut [u8]) {
    for (bytes, codes) in bytes.chunks_exact(32).zip(codes.chunks_exact_mut(64)) {
        nibbles(bytes, codes);
    }
}

fn q4_k(block: &[u8], out: &mut Decoded) {
    scales_and_minima(block, out);
    nibbles_of_64(&block[16..144], &mut out.codes);
}

fn q5_k(block: &[u8], out: &mut Decoded) {
    scales_and_minima(block, out);
    nibbles_of_64(&block[48..176], &mut out.codes);
    single_bits(&block[16..48], &mut out.codes, 4);
}

fn q6_k(block: &[u8], out: &mut Decoded) {
    let scale = half(&block[208..]);
    for (at, factor) in block[192..208].iter().enumerate() {
        out.scales[at] = scale * f32::from(factor.cast_signed());
    }
    for (bytes, codes) in block[..128].chunks_exact(64).zip(out.codes.chunks_exact_mut(128)) {
        nibbles(bytes, codes);
    }
    pairs_of_bits(&block[128..192], &mut out.codes, 4);
}
