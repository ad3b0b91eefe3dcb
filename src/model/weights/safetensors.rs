//! A folder of safetensors files, memory-mapped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::safetensors::tensor::{Dtype, SafeTensors};
use half::{bf16, f16};
use serde::Deserialize;
use serde_json::Value;

use super::{Affine, Coding, Holding, Matrix, Microscaled, Quantization, WeightSource, no_expert, no_rows};
use crate::gguf::MappedFile;
use crate::model::{ModelError, json};
use crate::nn::{Backend, Microscaling};

/// The weights of a folder in the Hugging Face layout: one file, or several that an index names.
#[derive(Debug)]
pub struct SafetensorsFolder {
    files: Vec<MappedFile>,
    tensors: HashMap<String, Entry>,
    quantization: Option<Quantization>,
    /// Stacks of experts that are tensors of their own, by the stack's name: bytes of all of them.
    stacks: HashMap<String, u64>,
}

#[derive(Debug, Clone)]
struct Entry {
    file: usize,
    range: Range<usize>,
    dtype: Dtype,
    shape: Vec<usize>,
}

impl SafetensorsFolder {
    /// Maps the folder's files and checks their headers.
    pub fn open(folder: &Path, quantization: Option<Quantization>) -> Result<Self, ModelError> {
        let mut opened = Self {
            files: Vec::new(),
            tensors: HashMap::new(),
            quantization,
            stacks: HashMap::new(),
        };
        let files = files(folder)?;
        check_parts(folder, &files)?;
        for path in files {
            opened.add(&path)?;
        }
        for (name, entry) in &opened.tensors {
            if let Some((stack, _)) = stack_of(name) {
                let stack = match module_of(&stack, "scales").or_else(|| module_of(&stack, "biases")) {
                    Some(module) => format!("{module}.weight"),
                    None => stack,
                };
                *opened.stacks.entry(stack).or_default() += entry.range.len() as u64;
            }
        }
        Ok(opened)
    }

    fn add(&mut self, path: &Path) -> Result<(), ModelError> {
        let io = |source| ModelError::Io {
            path: path.to_owned(),
            source,
        };
        let damaged = |reason: String| ModelError::Damaged {
            path: path.to_owned(),
            reason,
        };
        let file = open_regular(path)?;
        let mapped = MappedFile::new(path, file).map_err(io)?;
        // Checks that offsets are in order, cover the file, and fit each tensor's shape and type.
        let read = SafeTensors::read_metadata(&mapped);
        let (header, metadata) = read.map_err(|error| match unknown_dtype(&mapped) {
            Some((name, found)) => ModelError::WrongDtype {
                name: format!("{name} in {}", path.display()),
                found,
                expected: "F32, F16 or BF16, or U32 where it is quantized",
            },
            None => damaged(error.to_string()),
        })?;
        let data = header + 8;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let entry = Entry {
                file: self.files.len(),
                range: data + start..data + end,
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            if self.tensors.insert(name.clone(), entry).is_some() {
                return Err(damaged(format!("another file of the folder holds {name}, too")));
            }
        }
        self.files.push(mapped);
        Ok(())
    }

    /// The entry of a tensor, which must be of the shape that is expected.
    fn entry(&self, name: &str, expected: &[usize]) -> Result<Entry, ModelError> {
        let entry = self.tensors.get(name).ok_or_else(|| ModelError::MissingTensor {
            name: name.to_owned(),
            expected: expected.to_vec(),
        })?;
        // A convolution's kernel has a dimension of one, in different places.
        let squeezed: Vec<usize> = match entry.shape.as_slice() {
            [channels, 1, taps] | [channels, taps, 1] => vec![*channels, *taps],
            shape => shape.to_vec(),
        };
        if entry.shape != expected && squeezed != expected {
            let (found, expected) = (entry.shape.clone(), expected.to_vec());
            return Err(ModelError::WrongShape {
                name: name.to_owned(),
                found,
                expected,
            });
        }
        Ok(entry.clone())
    }

    /// The entry of some rows of a tensor, or of one slice of a stack.
    fn part(
        &self,
        part: &Part<'_>,
        ending: &str,
        [rows, cols]: [usize; 2],
    ) -> Result<(String, Entry), ModelError> {
        let name = match ending {
            "weight" => part.name.to_owned(),
            _ => format!("{}.{ending}", part.module()),
        };
        let (mut entry, [first, all]) = match part.slice {
            None => (self.entry(&name, &[rows, cols])?, [0, rows]),
            Some((index, count)) => (
                self.entry(&name, &[count, rows, cols])?,
                [index * rows, count * rows],
            ),
        };
        let length = entry.range.len() / all.max(1);
        let [start, end] =
            [part.rows.start, part.rows.end].map(|row| entry.range.start + (first + row) * length);
        entry.range = start..end;
        Ok((name, entry))
    }

    fn bytes_of(&self, entry: &Entry) -> Result<&[u8], ModelError> {
        let Some(file) = self.files.get(entry.file) else {
            return Ok(&[]);
        };
        let bytes = file.part(entry.range.clone()).map_err(|source| ModelError::Io {
            path: file.path().to_owned(),
            source,
        })?;
        Ok(bytes.unwrap_or(&[]))
    }

    /// Gives back the memory that reading a tensor has filled: copied, it is not to be there twice.
    fn release(&self, entry: &Entry) {
        if let Some(file) = self.files.get(entry.file) {
            file.release(entry.range.clone());
        }
    }

    fn floats(&self, name: &str, entry: &Entry) -> Result<Vec<f32>, ModelError> {
        let bytes = self.bytes_of(entry)?;
        let floats = match entry.dtype {
            Dtype::F32 => Ok(bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect()),
            Dtype::F16 => Ok(bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| f16::from_le_bytes(*b).to_f32())
                .collect()),
            Dtype::BF16 => Ok(bytes
                .as_chunks()
                .0
                .iter()
                .map(|b| bf16::from_le_bytes(*b).to_f32())
                .collect()),
            found => Err(wrong_dtype(name, found, "F32, F16 or BF16")),
        };
        self.release(entry);
        floats
    }

    fn words(&self, name: &str, entry: &Entry) -> Result<Vec<u32>, ModelError> {
        if entry.dtype != Dtype::U32 {
            return Err(wrong_dtype(name, entry.dtype, "U32"));
        }
        let words = self.bytes_of(entry)?.as_chunks().0.iter();
        let words = words.map(|b| u32::from_le_bytes(*b)).collect();
        self.release(entry);
        Ok(words)
    }

    /// How a module that has scales is stored.
    fn coding(&self, module: &str) -> Result<Coding, ModelError> {
        // The settings name the stack where experts are tensors of their own.
        let stack = stack_of(module).map(|(stack, _)| stack);
        let stack = stack.as_deref().unwrap_or(module);
        let Some(quantization) = &self.quantization else {
            return Err(ModelError::Config {
                name: "quantization".to_owned(),
                value: "absent".to_owned(),
                allowed: format!("given in config.json, since {module} has scales"),
            });
        };
        let named = match quantization.modules.contains_key(module) {
            true => module,
            false => stack,
        };
        quantization.of(named).ok_or_else(|| ModelError::Config {
            name: format!("quantization.{named}"),
            value: "false".to_owned(),
            allowed: format!("given with bits and group_size in config.json, since {module} has scales"),
        })
    }

    fn weight(&self, part: &Part<'_>, all: usize, cols: usize) -> Result<Matrix, ModelError> {
        let (module, rows) = (part.module(), part.rows.len());
        if part.rows.end > all {
            return Err(no_rows(part.name, &part.rows, all));
        }
        if !self.has(&format!("{module}.scales")) {
            if let Some(packed) = self.tensors.get(part.name)
                && matches!(packed.dtype, Dtype::U32 | Dtype::U8)
            {
                return Err(ModelError::MissingScales {
                    name: format!("{module}.scales"),
                    weight: part.name.to_owned(),
                    found: packed.dtype.to_string(),
                });
            }
            let (name, entry) = self.part(part, "weight", [all, cols])?;
            return Ok(Matrix::Dense {
                rows,
                cols,
                elements: self.floats(&name, &entry)?,
            });
        }
        let coding = self.coding(module)?;
        let (bits, group_size) = (coding.bits(), coding.group_size());
        if !cols.is_multiple_of(group_size) || !(cols * bits).is_multiple_of(32) {
            return Err(ModelError::Config {
                name: format!("the group size of {module}"),
                value: group_size.to_string(),
                allowed: format!("a divisor of its {cols} inputs"),
            });
        }
        let (name, entry) = self.part(part, "weight", [all, cols * bits / 32])?;
        let packed = self.words(&name, &entry)?;
        let (name, entry) = self.part(part, "scales", [all, cols / group_size])?;
        match coding {
            Coding::Affine { .. } => {
                let scales = self.floats(&name, &entry)?;
                let (name, entry) = self.part(part, "biases", [all, cols / group_size])?;
                Ok(Matrix::Affine(Affine {
                    rows,
                    cols,
                    bits,
                    group_size,
                    packed,
                    scales,
                    biases: self.floats(&name, &entry)?,
                }))
            }
            Coding::Microscaled(mode) => {
                if entry.dtype != Dtype::U8 {
                    return Err(wrong_dtype(&name, entry.dtype, "U8"));
                }
                let scales = self.bytes_of(&entry)?.to_vec();
                self.release(&entry);
                Ok(Matrix::Microscaled(Microscaled {
                    rows,
                    cols,
                    mode,
                    packed,
                    scales,
                }))
            }
        }
    }
}

/// Rows of a matrix, or of one of those that it is a stack of.
struct Part<'a> {
    /// Of its weight.
    name: &'a str,
    /// Which of the stack, and how many there are.
    slice: Option<(usize, usize)>,
    rows: Range<usize>,
}

impl Part<'_> {
    fn module(&self) -> &str {
        module_of(self.name, "weight").unwrap_or(self.name)
    }
}

fn wrong_dtype(name: &str, found: Dtype, expected: &'static str) -> ModelError {
    ModelError::WrongDtype {
        name: name.to_owned(),
        found: found.to_string(),
        expected,
    }
}

/// For a tensor or module of one expert (`….mlp.experts.7.gate_proj`): the stack's name (`….mlp.switch_mlp.gate_proj`), and
/// which expert it is.
fn stack_of(name: &str) -> Option<(String, usize)> {
    let (block, rest) = name.split_once(".mlp.experts.")?;
    let (expert, part) = rest.split_once('.')?;
    Some((format!("{block}.mlp.switch_mlp.{part}"), expert.parse().ok()?))
}

/// The folder's weight files: those that its index names, or the one of the usual name, or all. (Some repositories hold
/// the same weights again in another layout.)
pub(in crate::model) fn files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let index = folder.join("model.safetensors.index.json");
    let single = folder.join("model.safetensors");
    let mut names: Vec<PathBuf> = Vec::new();
    if index.exists() {
        let value = json::read(&index)?;
        let wrong = |reason: &str| ModelError::Json {
            path: index.clone(),
            reason: reason.to_owned(),
        };
        let map = value
            .get("weight_map")
            .and_then(Value::as_object)
            .ok_or_else(|| wrong("no weight_map"))?;
        for file in map.values() {
            let name = file
                .as_str()
                .ok_or_else(|| wrong("weight_map names a file by something else than text"))?;
            // A name, not a way out of the folder.
            if name.contains(['/', '\\']) || name == ".." {
                return Err(wrong("weight_map names a file outside the folder"));
            }
            names.push(folder.join(name));
        }
    } else if single.exists() {
        names.push(single);
    } else {
        let io = |source| ModelError::Io {
            path: folder.to_owned(),
            source,
        };
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "safetensors")
            {
                names.push(path);
            }
        }
    }
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Err(ModelError::NotAModel {
            path: folder.to_owned(),
        });
    }
    Ok(names)
}

/// Checks that where files are called parts of some number (`model-00001-of-00003.safetensors`), all of them are there.
fn check_parts(folder: &Path, files: &[PathBuf]) -> Result<(), ModelError> {
    let part = |path: &PathBuf| -> Option<(String, usize)> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".safetensors")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (name, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        let count = count.parse().ok().filter(|_| digits(count) && digits(number))?;
        Some((name.to_owned(), count))
    };
    let mut missing = Vec::new();
    for (name, count) in files.iter().filter_map(part).collect::<BTreeSet<_>>() {
        let all = (1..=count).map(|number| format!("{name}-{number:05}-of-{count:05}.safetensors"));
        missing.extend(all.filter(|file| !files.contains(&folder.join(file))));
    }
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(ModelError::MissingFiles {
            folder: folder.to_owned(),
            count: missing.len(),
            first: first.clone(),
        }),
    }
}

/// A tensor of a type that the format's readers don't know, and that type, in a file whose header can't be read.
fn unknown_dtype(file: &[u8]) -> Option<(String, String)> {
    let (length, rest) = file.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: Value = serde_json::from_slice(rest.get(..length)?).ok()?;
    let unknown = |(name, tensor): (&String, &Value)| {
        let dtype = tensor.get("dtype")?.as_str()?;
        let known = Dtype::deserialize(Value::from(dtype)).is_ok();
        (!known).then(|| (name.clone(), dtype.to_owned()))
    };
    let mut tensors = header.as_object()?.iter();
    tensors.find_map(unknown)
}

/// The module of a tensor that belongs to a quantized matrix.
fn module_of<'a>(name: &'a str, part: &str) -> Option<&'a str> {
    name.strip_suffix(part)?.strip_suffix('.')
}

impl WeightSource for SafetensorsFolder {
    fn names(&self) -> Vec<String> {
        let quantized = |name: &str| {
            let module = module_of(name, "scales").or_else(|| module_of(name, "biases"));
            module.is_some_and(|module| self.has(&format!("{module}.weight")))
        };
        let own = self.tensors.keys();
        let own = own.filter(|name| !quantized(name) && stack_of(name).is_none());
        own.chain(self.stacks.keys()).cloned().collect()
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.stacks.contains_key(name)
    }

    fn bytes(&self, name: &str) -> u64 {
        let module = module_of(name, "weight").unwrap_or("");
        let parts = [
            name.to_owned(),
            format!("{module}.scales"),
            format!("{module}.biases"),
        ];
        let entries = parts.iter().filter_map(|part| self.tensors.get(part));
        let own: u64 = entries.map(|entry| entry.range.len() as u64).sum();
        own + self.stacks.get(name).copied().unwrap_or(0)
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.floats(name, &self.entry(name, &[len])?)
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|entry| entry.shape.clone())
    }

    fn rows(&self, name: &str, [all, cols]: [usize; 2], rows: Range<usize>) -> Result<Matrix, ModelError> {
        let slice = None;
        self.weight(&Part { name, slice, rows }, all, cols)
    }

    fn expert(
        &self,
        name: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        if expert >= experts {
            return Err(no_expert(name, expert, experts));
        }
        if self.tensors.contains_key(name) || !self.stacks.contains_key(name) {
            let part = Part {
                name,
                slice: Some((expert, experts)),
                rows: 0..rows,
            };
            return self.weight(&part, rows, cols);
        }
        let own = name.replacen(".mlp.switch_mlp.", &format!(".mlp.experts.{expert}."), 1);
        self.matrix(&own, rows, cols)
    }

    fn quantization(&self) -> String {
        if let Some(quantization) = &self.quantization {
            return quantization.all.to_string();
        }
        let largest = self.tensors.values().max_by_key(|entry| entry.range.len());
        match largest.map(|entry| entry.dtype) {
            Some(Dtype::F16) => "none (float16)".to_owned(),
            Some(Dtype::BF16) => "none (bfloat16)".to_owned(),
            _ => "none (float32)".to_owned(),
        }
    }

    fn holdings(&self, backend: Backend) -> Vec<Holding> {
        let mut kinds: BTreeMap<String, Holding> = BTreeMap::new();
        for (name, entry) in &self.tensors {
            let module = name.rsplit_once('.').map_or("", |(module, _)| module);
            let scaled = self.tensors.contains_key(&format!("{module}.scales"));
            let mut elements = entry.shape.iter().map(|&n| n as u64).product::<u64>();
            let (stored, held) = match self.coding(module) {
                Ok(coding) if scaled => {
                    if !name.ends_with(".weight") {
                        continue;
                    }
                    elements = elements * 32 / coding.bits() as u64;
                    (coding.to_string(), held(coding, backend))
                }
                _ => (
                    entry.dtype.to_string(),
                    Holding::dense(entry.dtype == Dtype::F32, backend),
                ),
            };
            let holding = kinds.entry(stored.clone()).or_insert(Holding {
                stored,
                tensors: 0,
                elements: 0,
                held,
            });
            holding.tensors += 1;
            holding.elements += elements;
        }
        kinds.into_values().collect()
    }
}

/// How a backend holds quantized matrices.
fn held(coding: Coding, backend: Backend) -> String {
    match (coding, backend) {
        (Coding::Affine { bits, group_size }, _) => Holding::affine(bits, group_size, backend),
        (Coding::Microscaled(mode), Backend::Gpu | Backend::GpuFloat32) => mode.name().to_owned(),
        (Coding::Microscaled(Microscaling::Mxfp8), Backend::Cpu) => Holding::dense(false, backend),
        (Coding::Microscaled(mode), Backend::Cpu) => Holding::affine(5, mode.group_size(), backend),
    }
}

/// Opens a file of weights; what is no regular file could keep whoever opens it waiting for ever.
pub(crate) fn open_regular(path: &Path) -> Result<File, ModelError> {
    let io = |source| ModelError::Io {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        return Err(ModelError::Damaged {
            path: path.to_owned(),
            reason: "it is no regular file".to_owned(),
        });
    }
    File::open(path).map_err(io)
}
