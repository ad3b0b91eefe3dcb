//! The types of tensors' elements.

/// How a tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    non_camel_case_types,
    reason = "these are the names that GGUF files and their tools use"
)]
pub enum Kind {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    BF16,
    /// Blocks of 32: a scale and 32 quants of 4 bits, less 8.
    Q4_0,
    /// Blocks of 32: a scale, a minimum and 32 quants of 4 bits.
    Q4_1,
    /// Blocks of 32: a scale and 32 quants of 5 bits, less 16.
    Q5_0,
    /// Blocks of 32: a scale, a minimum and 32 quants of 5 bits.
    Q5_1,
    /// Blocks of 32: a scale and 32 signed bytes.
    Q8_0,
    /// Blocks of 256: quants of 2 bits; scales and minima of 4 bits for each 16.
    Q2_K,
    /// Blocks of 256: quants of 3 bits, less 4; scales of 6 bits for each 16.
    Q3_K,
    /// Blocks of 256: quants of 4 bits; scales and minima of 6 bits for each 32.
    Q4_K,
    /// Blocks of 256: quants of 5 bits; scales and minima of 6 bits for each 32.
    Q5_K,
    /// Blocks of 256: quants of 6 bits, less 32; scales of 8 bits for each 16.
    Q6_K,
    /// Blocks of 32: a scale and 32 indices of 4 bits into a table of 16 integers.
    IQ4_NL,
    /// Blocks of 32: a power of two and 32 floats of 4 bits.
    MXFP4,
    /// A type that isn't read; its number in the file.
    Other(u32),
}

/// The types that are read: their numbers in files, their names, elements and bytes of one block.
const READ: [(u32, Kind, &str, (usize, usize)); 15] = [
    (0, Kind::F32, "F32", (1, 4)),
    (1, Kind::F16, "F16", (1, 2)),
    (30, Kind::BF16, "BF16", (1, 2)),
    (2, Kind::Q4_0, "Q4_0", (32, 18)),
    (3, Kind::Q4_1, "Q4_1", (32, 20)),
    (6, Kind::Q5_0, "Q5_0", (32, 22)),
    (7, Kind::Q5_1, "Q5_1", (32, 24)),
    (8, Kind::Q8_0, "Q8_0", (32, 34)),
    (10, Kind::Q2_K, "Q2_K", (256, 84)),
    (11, Kind::Q3_K, "Q3_K", (256, 110)),
    (12, Kind::Q4_K, "Q4_K", (256, 144)),
    (13, Kind::Q5_K, "Q5_K", (256, 176)),
    (14, Kind::Q6_K, "Q6_K", (256, 210)),
    (20, Kind::IQ4_NL, "IQ4_NL", (32, 18)),
    (39, Kind::MXFP4, "MXFP4", (32, 17)),
];

/// Those that are known but not read: number, name, elements and bytes of one block.
const OTHERS: [(u32, &str, (usize, usize)); 17] = [
    (9, "Q8_1", (32, 36)),
    (15, "Q8_K", (256, 292)),
    (16, "IQ2_XXS", (256, 66)),
    (17, "IQ2_XS", (256, 74)),
    (18, "IQ3_XXS", (256, 98)),
    (19, "IQ1_S", (256, 50)),
    (21, "IQ3_S", (256, 110)),
    (22, "IQ2_S", (256, 82)),
    (23, "IQ4_XS", (256, 136)),
    (24, "I8", (1, 1)),
    (25, "I16", (1, 2)),
    (26, "I32", (1, 4)),
    (27, "I64", (1, 8)),
    (28, "F64", (1, 8)),
    (29, "IQ1_M", (256, 56)),
    (34, "TQ1_0", (256, 54)),
    (35, "TQ2_0", (256, 66)),
];

/// Ways of choosing each tensor's type by what it is for: their numbers in `general.file_type`, their names.
const MIXED: [(u64, &str); 7] = [
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
];

/// The name of a file whose tensors' types were chosen by what they are for, from its `general.file_type`.
pub fn mixed(file_type: u64) -> Option<&'static str> {
    let known = MIXED.iter().find(|(number, _)| *number == file_type);
    known.map(|(_, name)| *name)
}

impl Kind {
    /// The type of number `id` in a file.
    pub fn from_id(id: u32) -> Self {
        let known = READ.iter().find(|(number, ..)| *number == id);
        known.map_or(Self::Other(id), |(_, kind, ..)| *kind)
    }

    /// Elements and bytes of one block; `None` for a type of which nothing is known.
    pub fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::Other(id) => {
                let known = OTHERS.iter().find(|(number, ..)| *number == id);
                known.map(|(_, _, block)| *block)
            }
            read => {
                let known = READ.iter().find(|(_, kind, ..)| *kind == read);
                known.map(|(.., block)| *block)
            }
        }
    }

    /// Whether tensors of this type can be read.
    pub fn is_read(self) -> bool {
        !matches!(self, Self::Other(_))
    }

    /// Whether elements are floats of their own, not quants that share a scale.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Bits of a quant and the elements that share a scale, in the affine form of a quantized type that is read.
    pub fn affine_widths(self) -> Option<(usize, usize)> {
        super::formats::Format::of(self).map(|format| (format.bits, format.group))
    }

    /// The types that are read, for messages.
    pub(super) fn all_read() -> String {
        let names: Vec<&str> = READ.iter().map(|(_, _, name, _)| *name).collect();
        names.join(", ")
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Other(id) => {
                let known = OTHERS.iter().find(|(number, ..)| number == id);
                known.map(|(_, name, _)| *name)
            }
            read => {
                let known = READ.iter().find(|(_, kind, ..)| kind == read);
                known.map(|(_, _, name, _)| *name)
            }
        };
        match (name, self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Other(id)) => write!(f, "number {id} (unknown)"),
            (None, _) => f.write_str("unknown"),
        }
    }
}
