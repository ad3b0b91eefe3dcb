//! Matrices of weights, packed once into panels in the order in which kernels read them.
//!
//! A *panel* holds [`PANEL`] outputs for all inputs; lanes of a vector are outputs. Dense panels are `[inputs][PANEL]`.
//! Quantized ones are made of *records*, each of one group of inputs, or of two groups of 16: for every *block* of [`BLOCK`]
//! inputs planes of bits (see [`planes`]), then for every group the scales `[PANEL]` and, unless quants are centered, the biases
//! `[PANEL]`. So a panel is read from its first byte to its last. Outputs and inputs that fill up the last panel or record are zero.

use half::{bf16, f16};

use crate::arena::Region;

/// Outputs of a panel.
pub(crate) const PANEL: usize = 32;

/// Inputs whose quants lie together.
pub(crate) const BLOCK: usize = 32;

/// How elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Elements as they are.
    Dense(Float),
    /// Small integers with a scale, and mostly a bias, for each group of inputs.
    Affine(Quants),
}

/// A floating-point type in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

/// How quantized elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quants {
    /// Bits of a quant: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Inputs that share a scale: 16, 32, 64 or 128.
    pub group: usize,
    /// The type of scales and biases: the narrowest that holds all of them exactly.
    pub scale: Float,
    /// Every bias is minus half the range of quants times its scale, so that none is stored: an element is `(quant − 2^(bits
    /// − 1)) · scale`.
    pub centered: bool,
}

/// A quantized matrix as MLX lays it out: an element is `quant · scale + bias`.
#[derive(Debug, Clone, Copy)]
pub struct Affine<'a> {
    /// Rows.
    pub outputs: usize,
    /// Columns, a multiple of `group`.
    pub inputs: usize,
    /// Bits of a quant: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Inputs that share a scale: 16, 32, 64 or 128.
    pub group: usize,
    /// `[outputs, inputs · bits / 32]`: each row a stream of bits, the lowest of each word first.
    pub packed: &'a [u32],
    /// `[outputs, inputs / group]`.
    pub scales: &'a [f32],
    /// `[outputs, inputs / group]`.
    pub biases: &'a [f32],
}

/// Why a matrix can't be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A width that there is no kernel for.
    #[error("{bits} bits: there are kernels for 2, 3, 4, 5, 6 and 8")]
    Bits {
        /// The bits asked for.
        bits: usize,
    },
    /// A group that there is no kernel for, or that does not divide the inputs.
    #[error(
        "groups of {group} among {inputs} inputs: there are kernels for 16, 32, 64 and 128 that divide the inputs"
    )]
    Group {
        /// The group asked for.
        group: usize,
        /// The inputs.
        inputs: usize,
    },
    /// The system has no memory left.
    #[error("no memory for {bytes} bytes of weights: {reason}")]
    Memory {
        /// How much was asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// A part that has not as many elements as the shape asks for.
    #[error("{part}: {found} elements where {expected} were expected")]
    Length {
        /// What was too short or long.
        part: &'static str,
        /// Its elements.
        found: usize,
        /// What the shape asks for.
        expected: usize,
    },
    /// Quantized rows of a matrix that is packed densely.
    #[error("quantized rows in a matrix of which others are dense")]
    Mixed,
}

/// A matrix `[outputs, inputs]` of weights, packed.
pub struct Weights {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) storage: Storage,
    pub(crate) panel_bytes: usize,
    pub(crate) memory: Region,
}

/// How a quantized panel is cut into records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Records {
    /// Inputs of a record: 2 to this power.
    pub power: u32,
    /// Bytes of a record.
    pub bytes: usize,
    /// Bytes of a block's planes.
    pub block: usize,
    /// Where the scales begin.
    pub scales: usize,
    /// Bytes of a group's scales and biases.
    pub group: usize,
    /// Bytes of a group's scales: where its biases begin.
    pub biases: usize,
}

impl Float {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    pub(crate) fn write(self, to: &mut [u8], index: usize, value: f32) {
        match self {
            Self::F32 => to[index * 4..][..4].copy_from_slice(&value.to_le_bytes()),
            Self::F16 => to[index * 2..][..2].copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Self::Bf16 => to[index * 2..][..2].copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
        }
    }

    pub(crate) fn read(self, from: &[u8], index: usize) -> f32 {
        let two = || [from[index * 2], from[index * 2 + 1]];
        match self {
            Self::F32 => {
                let at = index * 4;
                f32::from_le_bytes([from[at], from[at + 1], from[at + 2], from[at + 3]])
            }
            Self::F16 => f16::from_le_bytes(two()).to_f32(),
            Self::Bf16 => bf16::from_le_bytes(two()).to_f32(),
        }
    }
}

impl Quants {
    /// Half the range of quants: what a centered quant is reduced by.
    pub(crate) fn center(self) -> f32 {
        (1 << (self.bits - 1)) as f32
    }

    #[inline]
    pub(crate) fn records(self) -> Records {
        let inputs = self.group.max(BLOCK);
        let block = self.bits * BLOCK * PANEL / 8;
        let scales = inputs / BLOCK * block;
        let biases = PANEL * self.scale.bytes();
        let group = if self.centered { biases } else { 2 * biases };
        Records {
            power: inputs.trailing_zeros(),
            bytes: scales + inputs / self.group * group,
            block,
            scales,
            group,
            biases,
        }
    }
}

impl Records {
    /// Inputs of a record.
    pub(crate) fn inputs(&self) -> usize {
        1 << self.power
    }

    /// Where the block of an input begins, in bytes from the panel's start. By shifts: a division takes as long as a block.
    #[inline(always)]
    pub(crate) fn block_of(&self, input: usize) -> usize {
        let within = input & ((1 << self.power) - 1);
        (input >> self.power) * self.bytes + within / BLOCK * self.block
    }

    /// Where the scales of the group that begins at an input lie; the group is a power of two.
    #[inline(always)]
    pub(crate) fn scales_of(&self, input: usize, group: usize) -> usize {
        let within = input & ((1 << self.power) - 1);
        (input >> self.power) * self.bytes + self.scales + (within >> group.trailing_zeros()) * self.group
    }
}

/// The planes of a block of quants: bits of each, lowest first. Wide planes hold what is left of narrow ones: 5 bits are
/// a plane of 4 and one of 1.
///
/// A plane of `w` bits is `[w words][PANEL]` uint32; [`place`] says where in its lane's words an input's bits are.
pub(crate) fn planes(bits: usize) -> &'static [usize] {
    match bits {
        2 => &[2],
        3 => &[2, 1],
        4 => &[4],
        5 => &[4, 1],
        6 => &[4, 2],
        _ => &[8],
    }
}

/// Where a plane of `width` bits holds an input of a block: the word, and how far its bits are shifted to the left.
///
/// Byte `b` of a word has inputs `2b` and `2b + 1` of eight only, so that a mask leaves those of the same remainder in four
/// bytes: what byte products want. Below 8 bits the eights lie one above the other, inputs in pairs; of 8 bits, the even inputs of
/// eight are a word, the odd ones the next.
#[inline(always)]
pub(crate) const fn place(width: usize, input: usize) -> (usize, u32) {
    let (eight, within) = (input / 8, input % 8);
    let byte = within / 2 * 8;
    let (word, bit) = if width == 8 {
        (2 * eight + within % 2, 0)
    } else {
        let eights = 4 / width;
        (eight / eights, (eight % eights * 2 + within % 2) * width)
    };
    (word, (byte + bit) as u32)
}

impl Weights {
    /// Rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Columns.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// How its elements are stored.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// The bytes of a panel.
    pub(crate) fn panel(&self, panel: usize) -> &[u8] {
        &self.memory.bytes()[panel * self.panel_bytes..][..self.panel_bytes]
    }

    /// An element's quant, or the element itself where it is dense. Slow: for what is looked up rarely, and for tests.
    pub(crate) fn code(&self, output: usize, input: usize) -> f32 {
        let (panel, lane) = (self.panel(output / PANEL), output % PANEL);
        match self.storage {
            Storage::Dense(float) => float.read(panel, input * PANEL + lane),
            Storage::Affine(quants) => {
                let block = &panel[quants.records().block_of(input)..];
                let code = unpack_one(block, quants.bits, input % BLOCK, lane) as f32;
                if quants.centered {
                    code - quants.center()
                } else {
                    code
                }
            }
        }
    }

    /// Scale and bias of a group of an output; 1 and 0 where elements are dense, and no bias where quants are centered.
    pub(crate) fn scale(&self, output: usize, group: usize) -> (f32, f32) {
        let Storage::Affine(quants) = self.storage else {
            return (1.0, 0.0);
        };
        let (panel, records, lane) = (self.panel(output / PANEL), quants.records(), output % PANEL);
        let at = records.scales_of(group * quants.group, quants.group);
        let bias = if quants.centered {
            0.0
        } else {
            quants.scale.read(&panel[at + records.biases..], lane)
        };
        (quants.scale.read(&panel[at..], lane), bias)
    }
}

impl std::fmt::Debug for Weights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Weights")
            .field("outputs", &self.outputs)
            .field("inputs", &self.inputs)
            .field("storage", &self.storage)
            .finish_non_exhaustive()
    }
}

/// The quant of one input of a block and lane.
fn unpack_one(block: &[u8], bits: usize, k: usize, lane: usize) -> u32 {
    let (mut below, mut quant, mut rest) = (0, 0, block);
    for &width in planes(bits) {
        let (plane, others) = rest.split_at(width * BLOCK * PANEL / 8);
        rest = others;
        let (word, shift) = place(width, k);
        let at = (word * PANEL + lane) * 4;
        let word = u32::from_le_bytes([plane[at], plane[at + 1], plane[at + 2], plane[at + 3]]);
        quant |= (word >> shift & ((1 << width) - 1)) << below;
        below += width;
    }
    quant
}
