//! A folder of safetensors files, memory-mapped.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::safetensors::tensor::{Dtype, SafeTensors};
use half::{bf16, f16};
use memmap2::{Mmap, UncheckedAdvice};
use serde_json::Value;

use super::super::ModelError;
use super::super::json;
use super::{Affine, Matrix, WeightSource};

/// The weights of a folder in the Hugging Face layout: one file, or several that an index names.
#[derive(Debug)]
pub struct SafetensorsFolder {
    maps: Vec<Mmap>,
    tensors: HashMap<String, Entry>,
    quantization: Option<Quantization>,
}

#[derive(Debug)]
struct Entry {
    map: usize,
    range: Range<usize>,
    dtype: Dtype,
    shape: Vec<usize>,
}

/// How quantized matrices are stored, from `quantization` in config.json.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quantization {
    /// Bits and group size of every quantized matrix but those below.
    pub all: Widths,
    /// Those of single modules.
    pub modules: HashMap<String, Widths>,
}

/// Bits of a quant, and how many share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Widths {
    /// 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// 32, 64 or 128.
    pub group_size: usize,
}

const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
const GROUP_SIZES: [usize; 3] = [32, 64, 128];

impl Quantization {
    /// Reads `quantization` of a configuration; none if it has none.
    pub fn from_config(config: &Value) -> Result<Option<Self>, ModelError> {
        let Some(settings) = config
            .get("quantization")
            .or_else(|| config.get("quantization_config"))
        else {
            return Ok(None);
        };
        if let Some(method) = settings
            .get("quant_method")
            .filter(|_| settings.get("bits").is_none())
        {
            return Err(ModelError::Config {
                name: "quantization_config.quant_method".to_owned(),
                value: method.to_string(),
                allowed: "absent: only MLX's affine quantization is supported".to_owned(),
            });
        }
        let all = Widths::read(settings, "quantization")?;
        let mut modules = HashMap::new();
        for (path, value) in settings
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, v)| v.is_object())
        {
            modules.insert(
                path.clone(),
                Widths::read(value, &format!("quantization.{path}"))?,
            );
        }
        Ok(Some(Self { all, modules }))
    }

    fn of(&self, module: &str) -> Widths {
        self.modules.get(module).copied().unwrap_or(self.all)
    }
}

impl Widths {
    fn read(settings: &Value, name: &str) -> Result<Self, ModelError> {
        if let Some(mode) = settings
            .get("mode")
            .filter(|mode| mode.as_str() != Some("affine"))
        {
            let name = format!("{name}.mode");
            return Err(ModelError::Config {
                name,
                value: mode.to_string(),
                allowed: "affine".to_owned(),
            });
        }
        let one_of = |key: &str, allowed: &[usize]| {
            let value = settings.get(key).cloned().unwrap_or(Value::Null);
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
            number
                .filter(|n| allowed.contains(n))
                .ok_or_else(|| ModelError::Config {
                    name: format!("{name}.{key}"),
                    value: value.to_string(),
                    allowed: format!("one of {allowed:?}"),
                })
        };
        Ok(Self {
            bits: one_of("bits", &BITS)?,
            group_size: one_of("group_size", &GROUP_SIZES)?,
        })
    }
}

impl SafetensorsFolder {
    /// Maps the folder's files and checks their headers.
    pub fn open(folder: &Path, quantization: Option<Quantization>) -> Result<Self, ModelError> {
        let mut opened = Self {
            maps: Vec::new(),
            tensors: HashMap::new(),
            quantization,
        };
        for path in files(folder)? {
            opened.add(&path)?;
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
        let file = File::open(path).map_err(io)?;
        #[expect(
            unsafe_code,
            reason = "a memory map is the only way to read weights without copying them"
        )]
        // SAFETY: the map is private to this process and read-only. A model file is never written in place by
        // this program (downloads are renamed into place); if another process shortens it, reading faults as
        // for any map.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        // Checks that offsets are in order, cover the file, and fit each tensor's shape and type.
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| damaged(e.to_string()))?;
        let data = header + 8;
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let entry = Entry {
                map: self.maps.len(),
                range: data + start..data + end,
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            if self.tensors.insert(name.clone(), entry).is_some() {
                return Err(damaged(format!("another file of the folder holds {name}, too")));
            }
        }
        self.maps.push(map);
        Ok(())
    }

    fn entry(&self, name: &str, expected: &[usize]) -> Result<&Entry, ModelError> {
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
        Ok(entry)
    }

    fn bytes_of(&self, entry: &Entry) -> &[u8] {
        self.maps
            .get(entry.map)
            .and_then(|map| map.get(entry.range.clone()))
            .unwrap_or(&[])
    }

    /// Gives back the memory that reading a tensor has filled: copied, it is not to be there twice.
    fn release(&self, entry: &Entry) {
        let Some(map) = self.maps.get(entry.map) else {
            return;
        };
        let (start, len) = (entry.range.start, entry.range.len());
        #[expect(unsafe_code, reason = "the map's pages are to be dropped while it lives")]
        // SAFETY: nobody writes to the map, so that its pages hold what the file holds, and whoever reads them again gets
        // the same.
        let released = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
        if let Err(error) = released {
            tracing::debug!(%error, "a tensor's pages are kept");
        }
    }

    fn floats(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let entry = self.entry(name, shape)?;
        let bytes = self.bytes_of(entry);
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
            found => Err(ModelError::WrongDtype {
                name: name.to_owned(),
                found: found.to_string(),
                expected: "F32, F16 or BF16",
            }),
        };
        self.release(entry);
        floats
    }

    fn words(&self, name: &str, shape: &[usize]) -> Result<Vec<u32>, ModelError> {
        let entry = self.entry(name, shape)?;
        if entry.dtype != Dtype::U32 {
            let found = entry.dtype.to_string();
            return Err(ModelError::WrongDtype {
                name: name.to_owned(),
                found,
                expected: "U32",
            });
        }
        let words = self.bytes_of(entry).as_chunks().0.iter();
        let words = words.map(|b| u32::from_le_bytes(*b)).collect();
        self.release(entry);
        Ok(words)
    }

    fn affine(&self, module: &str, rows: usize, cols: usize) -> Result<Affine, ModelError> {
        let Some(quantization) = &self.quantization else {
            return Err(ModelError::Config {
                name: "quantization".to_owned(),
                value: "absent".to_owned(),
                allowed: format!("given in config.json, since {module} has scales"),
            });
        };
        let Widths { bits, group_size } = quantization.of(module);
        if !cols.is_multiple_of(group_size) {
            return Err(ModelError::Config {
                name: format!("the group size of {module}"),
                value: group_size.to_string(),
                allowed: format!("a divisor of its {cols} inputs"),
            });
        }
        let groups = [rows, cols / group_size];
        Ok(Affine {
            rows,
            cols,
            bits,
            group_size,
            packed: self.words(&format!("{module}.weight"), &[rows, cols * bits / 32])?,
            scales: self.floats(&format!("{module}.scales"), &groups)?,
            biases: self.floats(&format!("{module}.biases"), &groups)?,
        })
    }
}

/// The folder's weight files: those that its index names, or all.
fn files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let index = folder.join("model.safetensors.index.json");
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
        self.tensors
            .keys()
            .filter(|name| !quantized(name))
            .cloned()
            .collect()
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    fn bytes(&self, name: &str) -> u64 {
        let module = module_of(name, "weight").unwrap_or("");
        let parts = [
            name.to_owned(),
            format!("{module}.scales"),
            format!("{module}.biases"),
        ];
        let entries = parts.iter().filter_map(|part| self.tensors.get(part));
        entries.map(|entry| entry.range.len() as u64).sum()
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.floats(name, &[len])
    }

    fn matrix(&self, name: &str, rows: usize, cols: usize) -> Result<Matrix, ModelError> {
        match module_of(name, "weight").filter(|module| self.has(&format!("{module}.scales"))) {
            Some(module) => self.affine(module, rows, cols).map(Matrix::Affine),
            None => Ok(Matrix::Dense {
                rows,
                cols,
                elements: self.floats(name, &[rows, cols])?,
            }),
        }
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.tensors.get(name).map(|entry| entry.shape.clone())
    }

    fn expert(
        &self,
        name: &str,
        expert: usize,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Matrix, ModelError> {
        let part = |all: Vec<f32>| {
            let each = all.len() / experts.max(1);
            all.chunks(each.max(1)).nth(expert).unwrap_or(&[]).to_vec()
        };
        let Some(module) = module_of(name, "weight").filter(|module| self.has(&format!("{module}.scales")))
        else {
            return Ok(Matrix::Dense {
                rows,
                cols,
                elements: part(self.floats(name, &[experts, rows, cols])?),
            });
        };
        let Widths { bits, group_size } = self
            .quantization
            .as_ref()
            .map(|q| q.of(module))
            .unwrap_or_default();
        let groups = [experts, rows, cols / group_size.max(1)];
        let words = self.words(name, &[experts, rows, cols * bits / 32])?;
        let each = words.len() / experts.max(1);
        Ok(Matrix::Affine(Affine {
            rows,
            cols,
            bits,
            group_size,
            packed: words.chunks(each.max(1)).nth(expert).unwrap_or(&[]).to_vec(),
            scales: part(self.floats(&format!("{module}.scales"), &groups)?),
            biases: part(self.floats(&format!("{module}.biases"), &groups)?),
        }))
    }

    fn quantization(&self) -> String {
        if let Some(Quantization {
            all: Widths { bits, group_size },
            ..
        }) = &self.quantization
        {
            return format!("affine {bits}-bit, group {group_size}");
        }
        let largest = self.tensors.values().max_by_key(|entry| entry.range.len());
        match largest.map(|entry| entry.dtype) {
            Some(Dtype::F16) => "none (float16)".to_owned(),
            Some(Dtype::BF16) => "none (bfloat16)".to_owned(),
            _ => "none (float32)".to_owned(),
        }
    }
}
