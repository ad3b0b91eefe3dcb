//! What can be wrong with a GGUF file, or with what is asked of it.

use std::path::{Path, PathBuf};

/// Why a GGUF file, one of its keys or one of its tensors cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened or mapped.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path names a folder, a pipe or a device.
    #[error("{} is {what}, not a file: name the .gguf file itself", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file is something else.
    #[error("{} is not a GGUF file: {looks_like}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What its first bytes look like.
        looks_like: String,
    },
    /// The file is a GGUF file of a kind that is not read.
    #[error("{}: {what}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Which kind, and what to do.
        what: String,
    },
    /// The file contradicts itself or ends early.
    #[error("{} is damaged: {what}; fetch it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// A metadata key that is needed is not there.
    #[error("the GGUF metadata has no `{key}`")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A metadata key holds something else than what is needed.
    #[error("the GGUF metadata key `{key}` should hold {expected}, but holds {found}")]
    WrongType {
        /// The key.
        key: String,
        /// What was asked for.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// There is no such tensor.
    #[error("the GGUF file has no tensor `{name}`")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// The tensor's type is not read.
    #[error("tensor `{name}` is of type {kind}, which is not supported: use a model in {read}")]
    UnsupportedKind {
        /// The tensor.
        name: String,
        /// Its type.
        kind: String,
        /// The types that are read.
        read: String,
    },
    /// The parts of a split file don't belong together, or one is missing.
    #[error("{} is one of several files of a model: {what}", path.display())]
    Parts {
        /// The part that was opened.
        path: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// What the first bytes of a file that isn't GGUF look like, as a phrase for [`GgufError::NotGguf`].
pub(super) fn looks_like(bytes: &[u8], path: &Path) -> String {
    let text_after_space = bytes.trim_ascii_start();
    let known: &[(&[u8], &str)] = &[
        (
            b"version https://git-lfs",
            "it is a Git LFS pointer; fetch the real file with `git lfs pull`",
        ),
        (
            b"PK\x03\x04",
            "it looks like a zip archive (a Python wheel or a PyTorch checkpoint)",
        ),
        (b"\x1f\x8b", "it looks like a gzip archive; unpack it first"),
        (
            b"\x28\xb5\x2f\xfd",
            "it looks like a zstd archive; unpack it first",
        ),
        (b"BZh", "it looks like a bzip2 archive; unpack it first"),
        (b"\xfd7zXZ", "it looks like an xz archive; unpack it first"),
        (b"tjgg", "it is an old GGJT model file; convert it to GGUF"),
        (b"lmgg", "it is an old GGML model file; convert it to GGUF"),
        (b"fmgg", "it is an old GGMF model file; convert it to GGUF"),
        (b"\x89HDF", "it looks like an HDF5 file"),
        (b"\x93NUMPY", "it looks like a NumPy array"),
        (b"\x7fELF", "it looks like a program"),
        (b"FUGG", "its bytes are in reversed order"),
    ];
    for (start, phrase) in known {
        if bytes.starts_with(start) {
            return (*phrase).to_owned();
        }
    }
    if text_after_space.starts_with(b"<") {
        return "it looks like a web page (a download that met an error page?)".to_owned();
    }
    let header = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    if header.is_some_and(|length| length < 1 << 32) && bytes.get(8) == Some(&b'{') {
        return "it looks like a safetensors file".to_owned();
    }
    if text_after_space.starts_with(b"{") {
        return "it looks like JSON text".to_owned();
    }
    if bytes.first() == Some(&0x80) {
        return "it looks like a Python pickle (an old PyTorch checkpoint)".to_owned();
    }
    if bytes.iter().all(|&byte| byte == 0) {
        return "it begins with zeros (an unfinished download?)".to_owned();
    }
    if bytes
        .iter()
        .all(|&byte| (0x20..0x7f).contains(&byte) || byte.is_ascii_whitespace())
    {
        return "it looks like plain text".to_owned();
    }
    let first: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let named = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let hint = if named {
        " (an unfinished or damaged download?)"
    } else {
        ""
    };
    format!("it begins with the bytes {}{hint}", first.join(" "))
}
