//! Which vector instructions there are, and how products are computed with them.

use std::fmt;

/// A set of instructions that kernels are written for. All give the same bits, for one [`Arithmetic`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust: the definition that the others are tested against, and what runs where none of them is there.
    Portable,
    /// x86-64 with AVX2, FMA and F16C: 8 lanes.
    Avx2,
    /// x86-64 with AVX-512F: 16 lanes.
    Avx512,
    /// AArch64's Advanced SIMD: 4 lanes.
    Neon,
}

/// How rows are multiplied with quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Quants become floats; products are summed by fused multiply-adds.
    Floats,
    /// Activations become whole numbers of 24 bits; their products with quants are summed by group without rounding. About as exact
    /// as [`Floats`](Self::Floats), and faster where there are instructions for products of bytes.
    Integers,
}

impl Isa {
    /// All that this machine has, the best last.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut, reason = "only some platforms have more")]
        let mut found = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                found.push(Self::Avx2);
                if is_x86_feature_detected!("avx512f") {
                    found.push(Self::Avx512);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        found.push(Self::Neon);
        found
    }

    /// What products can be computed by, the best last.
    pub fn arithmetics(self) -> &'static [Arithmetic] {
        match self {
            Self::Portable => &[Arithmetic::Integers, Arithmetic::Floats],
            #[cfg(target_arch = "x86_64")]
            Self::Avx512
                if is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl") =>
            {
                &[Arithmetic::Floats, Arithmetic::Integers]
            }
            _ => &[Arithmetic::Floats],
        }
    }

    /// The best of these.
    pub fn best_arithmetic(self) -> Arithmetic {
        self.arithmetics().last().copied().unwrap_or(Arithmetic::Floats)
    }

    /// The best that this machine has.
    pub fn best() -> Self {
        Self::available().last().copied().unwrap_or(Self::Portable)
    }

    /// Floats in a vector.
    pub(crate) const fn lanes(self) -> usize {
        match self {
            Self::Portable => 1,
            Self::Neon => 4,
            Self::Avx2 => 8,
            Self::Avx512 => 16,
        }
    }

    /// Rows of the largest register tile.
    pub(crate) const fn tile_rows(self) -> usize {
        match self {
            Self::Avx512 => 12,
            Self::Avx2 | Self::Neon | Self::Portable => 6,
        }
    }

    /// Rows up to which weights are multiplied as they are unpacked, without a buffer: more of them for the `usual` widths
    /// only, since each is a kernel to compile.
    pub(crate) const fn fused_rows(self, usual: bool) -> usize {
        match self {
            Self::Avx512 if usual => 12,
            Self::Avx512 => 4,
            Self::Avx2 | Self::Neon => 2,
            Self::Portable => 0,
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Floats => "floats",
            Self::Integers => "integers",
        })
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
            Self::Neon => "NEON",
        })
    }
}
