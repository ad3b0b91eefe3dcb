//! Reads GGUF files (versions 2 and 3, little-endian) through a memory map.
//!
//! Opening checks everything that later reads rely on: each tensor lies inside the file, one begins where another
//! ends, names and keys are unique, sizes don't overflow. What a file claims never makes the reader
//! allocate more than a small multiple of the file's size.

mod blocks;
mod error;
mod formats;
mod kind;
mod mapped;
mod metadata;
mod parse;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

pub use blocks::{Affine, Tensor, pack};
pub use error::GgufError;
pub use kind::{Kind, mixed};
pub use mapped::MappedFile;
pub use metadata::{Array, Metadata, Value};

/// What a file says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its dimensions, 1 to 4, none zero: the outermost first, as MLX has them (the file has them reversed).
    pub shape: Vec<usize>,
    /// How its elements are stored.
    pub kind: Kind,
    /// Which of a split file's parts holds it.
    part: usize,
    /// Where its bytes lie in that part; `None` for a type that isn't read.
    range: Option<Range<usize>>,
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
    /// One, or several of a split file.
    files: Vec<MappedFile>,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    by_name: HashMap<String, usize>,
}

impl Gguf {
    /// Opens `path` and checks it. Where it is one of several files that a model was split into
    /// (`NAME-00001-of-00003.gguf`), opens all of them; the metadata is the first one's. Fails when it isn't a GGUF file that
    /// can be read, saying what it is instead, when it is damaged, saying where, or when a part is missing or foreign.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let files = parts::open(path)?;
        let mut opened = Self {
            files: Vec::with_capacity(files.len()),
            metadata: Metadata::default(),
            tensors: Vec::new(),
            by_name: HashMap::new(),
        };
        for (part, file) in files.into_iter().enumerate() {
            for mut info in file.parsed.tensors {
                info.part = part;
                if opened
                    .by_name
                    .insert(info.name.clone(), opened.tensors.len())
                    .is_some()
                {
                    return Err(GgufError::Parts {
                        path: path.to_owned(),
                        what: format!("two of them hold the tensor `{}`; fetch them again", info.name),
                    });
                }
                opened.tensors.push(info);
            }
            if part == 0 {
                opened.metadata = file.parsed.metadata;
            }
            opened.files.push(file.mapped);
        }
        Ok(opened)
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
        let part = info
            .range
            .clone()
            .and_then(|range| Some((self.files.get(info.part)?, range)));
        let Some((file, range)) = part else {
            return Err(blocks::unsupported(info));
        };
        let bytes = file.part(range).map_err(|source| GgufError::Io {
            path: file.path().to_owned(),
            source,
        })?;
        let bytes = bytes.ok_or_else(|| blocks::unsupported(info))?;
        Ok(Tensor { info, bytes })
    }

    /// Gives back the memory that reading a tensor or a slice of one has filled. It can be read again: from the file, as
    /// before.
    pub fn release(&self, tensor: &Tensor<'_>) {
        let Some(file) = self.files.get(tensor.info.part) else {
            return;
        };
        let start = tensor.bytes.as_ptr().addr().checked_sub(file.as_ptr().addr());
        let range = start.and_then(|start| Some(start..start.checked_add(tensor.bytes.len())?));
        if let Some(range) = range.filter(|range| range.end <= file.len()) {
            file.release(range);
        }
    }

    /// Whether there is a tensor `name`, of whatever type.
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The length in bytes, of all parts together.
    pub fn file_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len() as u64).sum()
    }
}
