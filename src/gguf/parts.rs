//! Opening files: one, or all that a model was split into.

use std::fs::File;
use std::path::Path;

use super::parse::{self, Parsed};
use super::{GgufError, MappedFile, Metadata};

/// One file, mapped and read.
pub(super) struct Part {
    pub mapped: MappedFile,
    pub parsed: Parsed,
}

/// Digits of a part's number and of their count in a name.
const DIGITS: usize = 5;

/// What a file says of the model's division.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Split {
    /// From 0.
    number: u64,
    count: u64,
    /// Tensors in all parts, where it says so.
    tensors: Option<u64>,
}

impl Split {
    fn of(metadata: &Metadata) -> Result<Self, GgufError> {
        Ok(Self {
            number: metadata.opt_u64("split.no")?.unwrap_or(0),
            count: metadata.opt_u64("split.count")?.unwrap_or(0).max(1),
            tensors: metadata.opt_u64("split.tensors.count")?,
        })
    }
}

/// Opens a file, and with a part of a split one all parts, in their order.
pub(super) fn open(path: &Path) -> Result<Vec<Part>, GgufError> {
    let given = open_one(path)?;
    let split = Split::of(&given.parsed.metadata)?;
    if split.count == 1 {
        return Ok(vec![given]);
    }
    let wrong = |what: String| GgufError::Parts {
        path: path.to_owned(),
        what,
    };
    let Split { number, count, .. } = split;
    if number >= count || count >= 100_000 {
        return Err(wrong(format!(
            "it says that it is number {number} of {count}, from 0"
        )));
    }
    let stem = stem(path, split).ok_or_else(|| {
        let ending = ending(number, count);
        wrong(format!(
            "it should be named …{ending}, so that the others can be found beside it"
        ))
    })?;
    let mut given = Some(given);
    let mut parts = Vec::new();
    for at in 0..count {
        let part = match given.take_if(|_| at == number) {
            Some(given) => given,
            None => {
                let sibling = path.with_file_name(format!("{stem}{}", ending(at, count)));
                open_sibling(&sibling, Split { number: at, ..split }).map_err(|error| match error {
                    Sibling::Missing => wrong(format!("{} is missing; fetch it, too", sibling.display())),
                    Sibling::Foreign(what) => {
                        wrong(format!("{} doesn't belong to it: {what}", sibling.display()))
                    }
                    Sibling::Unreadable(error) => error,
                })?
            }
        };
        parts.push(part);
    }
    let found: usize = parts.iter().map(|part| part.parsed.tensors.len()).sum();
    match split.tensors {
        Some(tensors) if tensors != found as u64 => Err(wrong(format!(
            "together they should hold {tensors} tensors, but hold {found}; fetch them again"
        ))),
        _ => Ok(parts),
    }
}

/// How the name of a part ends.
fn ending(number: u64, count: u64) -> String {
    format!("-{:0DIGITS$}-of-{count:0DIGITS$}.gguf", number + 1)
}

/// What the names of all parts begin with; `None` if the file is not named as its part should be.
fn stem(path: &Path, split: Split) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(&ending(split.number, split.count))
        .map(str::to_owned)
}

enum Sibling {
    Missing,
    Foreign(String),
    Unreadable(GgufError),
}

fn open_sibling(path: &Path, expected: Split) -> Result<Part, Sibling> {
    let part = open_one(path).map_err(|error| match error {
        GgufError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Sibling::Missing,
        error => Sibling::Unreadable(error),
    })?;
    let found = Split::of(&part.parsed.metadata).map_err(Sibling::Unreadable)?;
    if (found.number, found.count) != (expected.number, expected.count) {
        let (number, count) = (found.number, found.count);
        return Err(Sibling::Foreign(format!(
            "it says that it is number {number} of {count}, from 0"
        )));
    }
    if found.tensors != expected.tensors {
        return Err(Sibling::Foreign(
            "it was split from a model of another number of tensors".to_owned(),
        ));
    }
    Ok(part)
}

fn open_one(path: &Path) -> Result<Part, GgufError> {
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
    let mapped = MappedFile::new(path, file).map_err(io)?;
    let parsed = parse::parse(&mapped, path)?;
    Ok(Part { mapped, parsed })
}
