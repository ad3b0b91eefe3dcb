//! Reads GGUF files (versions 2 and 3, little-endian) through a memory map.
//!
//! Opening checks everything that later reads rely on: each tensor lies inside the file, none overlaps
//! another, names and keys are unique, sizes don't overflow. What a file claims never makes the reader
//! allocate more than a small multiple of the file's size.

mod blocks;
mod error;
mod metadata;
mod parse;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};

pub use blocks::{Affine, Tensor};
pub use error::GgufError;
pub use metadata::{Array, Metadata, Value};

/// How a tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// Blocks of 32: a half-precision scale and 32 signed bytes.
    Q8_0,
    /// Blocks of 32: a half-precision scale and 32 nibbles, offset by 8.
    Q4_0,
    /// Blocks of 32: a half-precision scale, a half-precision minimum and 32 nibbles.
    Q4_1,
    /// A type that isn't read; its number in the file.
    Other(u32),
}

/// Names of the types that are known but not read, by their number.
const OTHER_KINDS: &[(u32, &str)] = &[
    (6, "Q5_0"),
    (7, "Q5_1"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
    (40, "NVFP4"),
];

impl Kind {
    /// The type of number `id` in a file.
    pub fn from_id(id: u32) -> Self {
        match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            30 => Self::BF16,
            other => Self::Other(other),
        }
    }

    /// Elements and bytes of one block; `None` for a type that isn't read.
    pub fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::BF16 => Some((1, 2)),
            Self::Q8_0 => Some((32, 34)),
            Self::Q4_0 => Some((32, 18)),
            Self::Q4_1 => Some((32, 20)),
            Self::Other(_) => None,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::F32 => f.write_str("F32"),
            Self::F16 => f.write_str("F16"),
            Self::BF16 => f.write_str("BF16"),
            Self::Q8_0 => f.write_str("Q8_0"),
            Self::Q4_0 => f.write_str("Q4_0"),
            Self::Q4_1 => f.write_str("Q4_1"),
            Self::Other(id) => match OTHER_KINDS.iter().find(|(known, _)| known == id) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "number {id} (unknown)"),
            },
        }
    }
}

/// What a file says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, 1 to 4, none zero: the outermost first, as MLX has them (the file has them reversed).
    pub shape: Vec<usize>,
    /// How its elements are stored.
    pub kind: Kind,
    /// Where its bytes lie in the file; `None` for a type that isn't read.
    pub(super) range: Option<Range<usize>>,
}

impl TensorInfo {
    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its length in bytes; `None` for a type that isn't read.
    pub fn bytes(&self) -> Option<usize> {
        self.range.as_ref().map(Range::len)
    }

    /// Elements of one row: its innermost dimension.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// An open GGUF file. Its tensors are read from a memory map: the file must not be shortened while this
/// lives.
#[derive(Debug)]
pub struct Gguf {
    map: Mmap,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl Gguf {
    /// Opens `path` and checks it. Fails when it isn't a GGUF file that can be read, saying what it is
    /// instead, or when it is damaged, saying where.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let io = |source| GgufError::Io {
            path: path.to_owned(),
            source,
        };
        // Asked before opening: opening a pipe would wait for its other end.
        let found = std::fs::metadata(path).map_err(io)?;
        if !found.is_file() {
            let what = if found.is_dir() {
                "a folder"
            } else {
                "a pipe or a device"
            };
            return Err(GgufError::NotAFile {
                path: path.to_owned(),
                what,
            });
        }
        if found.len() == 0 {
            return Err(GgufError::NotGguf {
                path: path.to_owned(),
                looks_like: "it is empty".to_owned(),
            });
        }
        let file = File::open(path).map_err(io)?;
        #[expect(
            unsafe_code,
            reason = "a memory map is the only way to read weights without copying them"
        )]
        // SAFETY: the map is private to this process and read-only. A model file is never written in place by
        // this program (downloads are renamed into place); if another process shortens it, reading faults as
        // for any map.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let parsed = parse::parse(&map, path)?;
        let by_name = parsed
            .tensors
            .iter()
            .enumerate()
            .map(|(at, info)| (info.name.clone(), at))
            .collect();
        Ok(Self {
            map,
            metadata: parsed.metadata,
            tensors: parsed.tensors,
            by_name,
        })
    }

    /// The key-value part.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in the file's order, those of types that aren't read included.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.tensors.iter()
    }

    /// The tensor `name`. Fails when there is none, or when its type isn't read.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, GgufError> {
        let info = self.by_name.get(name).and_then(|&at| self.tensors.get(at));
        let info = info.ok_or_else(|| GgufError::MissingTensor {
            name: name.to_owned(),
        })?;
        let bytes = info.range.clone().and_then(|range| self.map.get(range));
        let bytes = bytes.ok_or_else(|| blocks::unsupported(info))?;
        Ok(Tensor { info, bytes })
    }

    /// Gives back the memory that reading `name` has filled. It can be read again: from the file, as before.
    pub fn release(&self, name: &str) {
        let info = self.by_name.get(name).and_then(|&at| self.tensors.get(at));
        let Some(range) = info.and_then(|info| info.range.clone()) else {
            return;
        };
        #[expect(unsafe_code, reason = "the map's pages are to be dropped while it lives")]
        // SAFETY: nobody writes to the map, so that its pages hold what the file holds, and whoever reads them again gets
        // the same.
        let released = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
        };
        if let Err(error) = released {
            tracing::debug!(%error, name, "a tensor's pages are kept");
        }
    }

    /// Whether there is a tensor `name`, of whatever type.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The file's length in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.map.len() as u64
    }
}
