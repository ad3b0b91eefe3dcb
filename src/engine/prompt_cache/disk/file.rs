//! One entry as a safetensors file. Its metadata hold the key, and a SHA-256 of all else that the file says.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use mlx_rs::Dtype;
use safetensors::tensor::{Dtype as FileDtype, Metadata, TensorInfo};
use sha2::{Digest, Sha256};

use super::folder::{Folder, Name};
use crate::cache::{LayerParts, Part};
use crate::engine::prompt_cache::index::{Class, Namespace};

/// What the metadata say that it is, and in which version of this format.
const FORMAT: &str = "mlx-chat prompt cache 1";

/// Headers longer than this are no headers.
const MOST_HEADER: u64 = 100 << 20;

/// Written and checked at a time; between two pieces a writer can be stopped.
const PIECE: usize = 4 << 20;

/// An entry on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which model and which layout of caches it is of.
    pub namespace: Namespace,
    /// Exactly the tokens that the caches hold.
    pub tokens: Vec<u32>,
    /// How long it is worth keeping.
    pub class: Class,
    /// Whether every layer can be cut shorter.
    pub trimmable: bool,
    /// The caches.
    pub layers: Vec<LayerParts>,
}

/// What a file's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Exactly the tokens that the caches hold.
    pub tokens: Vec<u32>,
    /// How long it is worth keeping.
    pub class: Class,
    /// Whether every layer can be cut shorter.
    pub trimmable: bool,
}

/// Why a file gives no entry.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It can't be read, or is gone.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// It is cut off, changed, or of another version.
    #[error("{0}")]
    Damaged(String),
}

impl Unusable {
    /// Whether somebody has deleted it meanwhile.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Why no file came to be; nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk, or the folder.
    #[error("{path} can't be written: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk has no room for the entry.
    #[error("the disk has no room for {bytes} bytes and some besides")]
    Full {
        /// Bytes of the entry.
        bytes: u64,
    },
    /// A layer holds arrays of a type that the format has no name for, or too many.
    #[error("the entry can't be laid out: {0}")]
    Layout(String),
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

impl Entry {
    /// Bytes of the arrays.
    pub fn bytes(&self) -> u64 {
        let parts = self.layers.iter().flat_map(|layer| &layer.arrays);
        parts.map(|part| part.bytes.len() as u64).sum()
    }

    /// The name of its file.
    pub fn name(&self) -> Name {
        Name::new(&self.namespace, &self.tokens, self.class)
    }

    /// What its header says of the key.
    pub fn header_alone(&self) -> Header {
        Header {
            tokens: self.tokens.clone(),
            class: self.class,
            trimmable: self.trimmable,
        }
    }

    /// Header and arrays' order of the file.
    fn header(&self) -> Result<Vec<u8>, WriteError> {
        let wrong = |error: String| WriteError::Layout(error);
        let (mut tensors, mut end) = (Vec::new(), 0);
        for (name, part) in self.named() {
            let start = end;
            end += part.bytes.len();
            let info = TensorInfo {
                dtype: file_dtype(part.dtype).ok_or_else(|| wrong(format!("{:?}", part.dtype)))?,
                shape: part.shape.clone(),
                data_offsets: (start, end),
            };
            tensors.push((name, info));
        }
        let mut said = HashMap::from([
            ("format".to_owned(), FORMAT.to_owned()),
            ("namespace".to_owned(), self.namespace.0.to_string()),
            ("tokens".to_owned(), join(self.tokens.iter())),
            ("class".to_owned(), class_name(self.class).to_owned()),
            ("trimmable".to_owned(), self.trimmable.to_string()),
            ("layers".to_owned(), self.layers.len().to_string()),
            (
                "first".to_owned(),
                join(self.layers.iter().map(|layer| layer.first)),
            ),
        ]);
        let mut hash = hash_of(&said, &tensors);
        for (_, part) in self.named() {
            hash.update(&part.bytes);
        }
        said.insert("sha256".to_owned(), hex(&hash.finalize()));
        let metadata = Metadata::new(Some(said), tensors).map_err(|error| wrong(error.to_string()))?;
        let mut header = serde_json::to_vec(&metadata).map_err(|error| wrong(error.to_string()))?;
        header.resize(header.len().next_multiple_of(8), b' ');
        Ok(header)
    }

    fn named(&self) -> impl Iterator<Item = (String, &Part)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(layer, parts)| {
            let named = parts.arrays.iter();
            named.map(move |part| (format!("layers.{layer}.{}", part.name), part))
        })
    }

    /// Writes the file into a folder, with this time of last use. Until all of it is on the disk, it lies there under
    /// another name, locked.
    pub fn write(&self, folder: &Folder, used: SystemTime, stop: &AtomicBool) -> Result<(), WriteError> {
        let header = self.header()?;
        let name = self.name();
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| WriteError::Io { path, source }
        };
        let (aside, file) = folder.aside(&name).map_err(failed(folder.path()))?;
        let written = (|| {
            self.write_to(&file, &header, stop).map_err(|error| match error {
                Some(error) => failed(&aside)(error),
                None => WriteError::Stopped,
            })?;
            file.set_modified(used).map_err(failed(&aside))?;
            file.sync_all().map_err(failed(&aside))?;
            let path = folder.path_of(&name);
            std::fs::rename(&aside, &path).map_err(failed(&path))
        })();
        if written.is_err() {
            let _gone = std::fs::remove_file(&aside);
        } else if let Ok(folder) = File::open(folder.path()) {
            // Some file systems can't; the file itself is synced in any case.
            folder.sync_all().unwrap_or_default();
        }
        written
    }

    /// All of it; an error without a cause means that it was stopped.
    fn write_to(&self, mut file: &File, header: &[u8], stop: &AtomicBool) -> Result<(), Option<io::Error>> {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header)?;
        for (_, part) in self.named() {
            for piece in part.bytes.chunks(PIECE) {
                if stop.load(Ordering::Relaxed) {
                    return Err(None);
                }
                file.write_all(piece)?;
            }
        }
        Ok(())
    }

    /// Reads an entry of this namespace, and checks all of it. The file counts as used now.
    pub fn read(path: &Path, namespace: &Namespace) -> Result<Self, Unusable> {
        let mut file = File::open(path)?;
        let (metadata, header) = open(&mut file, namespace)?;
        let said = metadata.metadata().clone().unwrap_or_default();
        let infos = metadata.tensors();
        let names = metadata.offset_keys();
        let mut tensors = Vec::new();
        for name in names {
            let info = infos
                .get(&name)
                .ok_or_else(|| damaged("its header names no array"))?;
            tensors.push((name, (*info).clone()));
        }
        let mut hash = hash_of(&said, &tensors);
        let firsts: Vec<usize> = numbers(of(&said, "first")?)?;
        let mut layers: Vec<LayerParts> = firsts
            .into_iter()
            .map(|first| LayerParts {
                first,
                arrays: Vec::new(),
            })
            .collect();
        if of(&said, "layers")? != layers.len().to_string() {
            return Err(damaged("its layers are not as many as it says"));
        }
        for (name, info) in tensors {
            let (layer, part) =
                place(&name).ok_or_else(|| damaged(format!("{name:?} is no array of a layer")))?;
            let layer = layers.get_mut(layer);
            let layer = layer.ok_or_else(|| damaged(format!("{name:?} is past the last layer")))?;
            let mut bytes = vec![0; info.data_offsets.1 - info.data_offsets.0];
            for piece in bytes.chunks_mut(PIECE) {
                file.read_exact(piece)?;
                hash.update(piece);
            }
            layer.arrays.push(Part {
                name: part.to_owned(),
                dtype: dtype(info.dtype)
                    .ok_or_else(|| damaged(format!("{:?} is no type of caches", info.dtype)))?,
                shape: info.shape,
                bytes,
            });
        }
        if of(&said, "sha256")? != hex(&hash.finalize()) {
            return Err(damaged("its content is not what was written"));
        }
        if let Err(error) = file.set_modified(SystemTime::now()) {
            tracing::debug!(%error, path = %path.display(), "the time of a file's last use can't be kept");
        }
        let Header {
            tokens,
            class,
            trimmable,
        } = header;
        Ok(Self {
            namespace: namespace.clone(),
            tokens,
            class,
            trimmable,
            layers,
        })
    }
}

impl Header {
    /// Reads a file's header alone. The file must be one of this namespace and of this name.
    pub fn read(path: &Path, name: &Name, namespace: &Namespace) -> Result<Self, Unusable> {
        let (_, header) = open(&mut File::open(path)?, namespace)?;
        if Name::new(namespace, &header.tokens, header.class) != *name {
            return Err(damaged("its name is that of another entry"));
        }
        Ok(header)
    }
}

/// Reads the header, and checks that the file is as long as it says.
fn open(file: &mut File, namespace: &Namespace) -> Result<(Metadata, Header), Unusable> {
    let whole = file.metadata()?.len();
    let mut length = [0; 8];
    let cut_off = || damaged("it is cut off");
    if whole < 8 {
        return Err(cut_off());
    }
    file.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > MOST_HEADER || length > whole - 8 {
        return Err(cut_off());
    }
    let mut header = vec![0; usize::try_from(length).map_err(|_| cut_off())?];
    file.read_exact(&mut header)?;
    let metadata: Metadata = serde_json::from_slice(&header)
        .map_err(|error| damaged(format!("its header is damaged: {error}")))?;
    if 8 + length + metadata.data_len() as u64 != whole {
        return Err(cut_off());
    }
    let said = metadata
        .metadata()
        .as_ref()
        .ok_or_else(|| damaged("it has no metadata"))?;
    let format = of(said, "format")?;
    if format != FORMAT {
        return Err(damaged(format!(
            "it is of another version: {format:?}, expected {FORMAT:?}"
        )));
    }
    if of(said, "namespace")? != &*namespace.0 {
        return Err(damaged("it is of another model than its name says"));
    }
    let header = Header {
        tokens: numbers(of(said, "tokens")?)?,
        class: match of(said, "class")? {
            "turn" => Class::Turn,
            "system" => Class::System,
            other => return Err(damaged(format!("{other:?} is no class of entries"))),
        },
        trimmable: of(said, "trimmable")? == "true",
    };
    Ok((metadata, header))
}

/// The hash of everything but the arrays' bytes, which come after.
fn hash_of(said: &HashMap<String, String>, tensors: &[(String, TensorInfo)]) -> Sha256 {
    let mut hash = Sha256::new();
    let mut said: Vec<_> = said.iter().filter(|(key, _)| *key != "sha256").collect();
    said.sort();
    for (key, value) in said {
        hash.update(format!("{key}\n{value}\n"));
    }
    for (name, info) in tensors {
        hash.update(format!(
            "{name} {:?} {:?} {:?}\n",
            info.dtype, info.shape, info.data_offsets
        ));
    }
    hash
}

/// Layer and part of an array's name.
fn place(name: &str) -> Option<(usize, &str)> {
    let (layer, part) = name.strip_prefix("layers.")?.split_once('.')?;
    Some((layer.parse().ok()?, part))
}

fn of<'a>(said: &'a HashMap<String, String>, key: &str) -> Result<&'a str, Unusable> {
    let value = said.get(key).map(String::as_str);
    value.ok_or_else(|| damaged(format!("its metadata have no {key:?}")))
}

fn damaged(what: impl Into<Cow<'static, str>>) -> Unusable {
    Unusable::Damaged(what.into().into_owned())
}

fn join(numbers: impl Iterator<Item = impl ToString>) -> String {
    let texts: Vec<String> = numbers.map(|number| number.to_string()).collect();
    texts.join(" ")
}

fn numbers<N: std::str::FromStr>(text: &str) -> Result<Vec<N>, Unusable> {
    let words = text.split_ascii_whitespace();
    words
        .map(|word| {
            word.parse()
                .map_err(|_| damaged(format!("{word:?} is no number")))
        })
        .collect()
}

/// As hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The word for a class.
pub(super) fn class_name(class: Class) -> &'static str {
    match class {
        Class::Turn => "turn",
        Class::System => "system",
    }
}

const DTYPES: [(Dtype, FileDtype); 12] = [
    (Dtype::Bool, FileDtype::BOOL),
    (Dtype::Uint8, FileDtype::U8),
    (Dtype::Int8, FileDtype::I8),
    (Dtype::Uint16, FileDtype::U16),
    (Dtype::Int16, FileDtype::I16),
    (Dtype::Float16, FileDtype::F16),
    (Dtype::Bfloat16, FileDtype::BF16),
    (Dtype::Uint32, FileDtype::U32),
    (Dtype::Int32, FileDtype::I32),
    (Dtype::Float32, FileDtype::F32),
    (Dtype::Uint64, FileDtype::U64),
    (Dtype::Int64, FileDtype::I64),
];

fn file_dtype(dtype: Dtype) -> Option<FileDtype> {
    DTYPES
        .iter()
        .find(|(ours, _)| *ours == dtype)
        .map(|(_, theirs)| *theirs)
}

fn dtype(dtype: FileDtype) -> Option<Dtype> {
    DTYPES
        .iter()
        .find(|(_, theirs)| *theirs == dtype)
        .map(|(ours, _)| *ours)
}
