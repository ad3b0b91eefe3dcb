//! What a model's files say whatever its family: counted from their headers, for models that aren't supported, too.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::weights::open_regular;
use super::{ModelError, json, weights};
use crate::gguf::Gguf;

/// No header of a safetensors file is larger.
const LARGEST_HEADER: u64 = 100 << 20;

/// What a model's files say whatever its family.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outline {
    /// The architecture, as the files name it; empty where they don't.
    pub family: String,
    /// The most positions that it was made for.
    pub context_length: Option<u64>,
    /// Weights, each counted once, before quantization.
    pub parameters: u64,
    /// Bytes of all tensors as stored.
    pub weight_bytes: u64,
    /// How the tensors are stored, the most bytes first.
    pub types: Vec<TypeShare>,
}

/// The tensors of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TypeShare {
    /// Such as `BF16`, `Q4_K`, `affine 4-bit, group 64`.
    #[serde(rename = "type")]
    pub name: String,
    /// How many tensors; scales and biases belong to the tensor that they scale.
    pub tensors: usize,
    /// Weights in them.
    pub parameters: u64,
    /// Bytes of them as stored.
    pub bytes: u64,
}

/// Reads the headers of a folder with config.json, or of a .gguf file. No weights are read.
pub fn outline(path: &Path) -> Result<Outline, ModelError> {
    if path.is_dir() {
        of_folder(path)
    } else {
        outline_gguf(&Gguf::open(path)?)
    }
}

/// The types of tensors, added up.
#[derive(Default)]
struct Types(BTreeMap<String, TypeShare>);

impl Types {
    fn add(&mut self, name: &str, parameters: u64, bytes: u64) {
        let share = self.0.entry(name.to_owned()).or_insert_with(|| TypeShare {
            name: name.to_owned(),
            tensors: 0,
            parameters: 0,
            bytes: 0,
        });
        share.tensors += 1;
        share.parameters = share.parameters.saturating_add(parameters);
        share.bytes = share.bytes.saturating_add(bytes);
    }

    fn outline(self, family: String, context_length: Option<u64>) -> Outline {
        let mut types: Vec<TypeShare> = self.0.into_values().collect();
        types.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        let sum = |of: fn(&TypeShare) -> u64| types.iter().map(of).fold(0, u64::saturating_add);
        Outline {
            family,
            context_length,
            parameters: sum(|share| share.parameters),
            weight_bytes: sum(|share| share.bytes),
            types,
        }
    }
}

/// The same of a .gguf file that is open.
pub fn outline_gguf(file: &Gguf) -> Result<Outline, ModelError> {
    let metadata = file.metadata();
    let family = metadata
        .opt_str("general.architecture")?
        .unwrap_or_default()
        .to_owned();
    let context_length = metadata.opt_u64(&format!("{family}.context_length"))?;
    let mut types = Types::default();
    for tensor in file.tensors() {
        let bytes = tensor.bytes().unwrap_or(0) as u64;
        types.add(&tensor.kind.to_string(), tensor.elements() as u64, bytes);
    }
    Ok(types.outline(family, context_length))
}

/// A tensor by a safetensors header.
struct Stored {
    dtype: String,
    shape: Vec<u64>,
    bytes: u64,
}

fn of_folder(folder: &Path) -> Result<Outline, ModelError> {
    let config = json::read(&folder.join("config.json"))?;
    // Models that also see keep what concerns text apart.
    let setting = |name: &str| config.get(name).or_else(|| config.get("text_config")?.get(name));
    let family = setting("model_type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let context_length = setting("max_position_embeddings").and_then(Value::as_u64);
    let mut tensors = BTreeMap::new();
    // A folder without weights, or without some of them, is told of, too.
    let files = weights::files(folder).unwrap_or_default();
    for path in files.iter().filter(|path| path.exists()) {
        read_header(path, &mut tensors)?;
    }
    let widths = config
        .get("quantization")
        .or_else(|| config.get("quantization_config"));
    let mut types = Types::default();
    for (name, stored) in &tensors {
        let elements: u64 = stored.shape.iter().product();
        let module = name.strip_suffix(".weight").unwrap_or(name);
        let beside = |ending: &str| tensors.get(&format!("{module}.{ending}"));
        let is_beside = ["scales", "biases"].iter().any(|ending| {
            let of = name.strip_suffix(&format!(".{ending}"));
            of.is_some_and(|module| tensors.contains_key(&format!("{module}.weight")))
        });
        match (beside("scales"), widths) {
            // Counted with the tensor that they scale.
            _ if is_beside => {}
            (Some(scales), Some(widths)) if stored.dtype == "U32" => {
                let own = widths.get(module).filter(|own| own.is_object()).unwrap_or(widths);
                let number = |key: &str| own.get(key).or_else(|| widths.get(key))?.as_u64();
                let mode = own
                    .get("mode")
                    .or_else(|| widths.get("mode"))
                    .and_then(Value::as_str);
                let bits = number("bits").filter(|bits| *bits > 0).unwrap_or(4);
                let label = match (mode.unwrap_or("affine"), number("group_size")) {
                    ("affine", Some(group)) => format!("affine {bits}-bit, group {group}"),
                    (mode, _) => mode.to_owned(),
                };
                let bytes = stored.bytes + scales.bytes + beside("biases").map_or(0, |biases| biases.bytes);
                types.add(&label, elements.saturating_mul(32) / bits, bytes);
            }
            _ => types.add(&stored.dtype, elements, stored.bytes),
        }
    }
    Ok(types.outline(family, context_length))
}

/// Reads the names, types and shapes of a safetensors file: 8 bytes with the length of the header, then the header.
fn read_header(path: &Path, into: &mut BTreeMap<String, Stored>) -> Result<(), ModelError> {
    let io = |source| ModelError::Io {
        path: path.to_owned(),
        source,
    };
    let damaged = |reason: String| ModelError::Damaged {
        path: path.to_owned(),
        reason,
    };
    let mut file = open_regular(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(io)?;
    let length = u64::from_le_bytes(length);
    let whole = file.metadata().map_err(io)?.len();
    if length > LARGEST_HEADER.min(whole) {
        return Err(damaged(format!("its header would have {length} bytes")));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header).map_err(io)?;
    let header: Value = serde_json::from_slice(&header).map_err(|error| damaged(error.to_string()))?;
    let tensors = header
        .as_object()
        .ok_or_else(|| damaged("its header is no object".to_owned()))?;
    for (name, tensor) in tensors.iter().filter(|(name, _)| *name != "__metadata__") {
        let numbers = |key: &str| -> Option<Vec<u64>> {
            tensor.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
        };
        let range = numbers("data_offsets").unwrap_or_default();
        let stored = Stored {
            dtype: tensor
                .get("dtype")
                .and_then(Value::as_str)
                .unwrap_or("?")
                .to_owned(),
            shape: numbers("shape").unwrap_or_default(),
            bytes: match range.as_slice() {
                [start, end] => end.saturating_sub(*start),
                _ => 0,
            },
        };
        if stored
            .shape
            .iter()
            .try_fold(1u64, |all, &n| all.checked_mul(n))
            .is_none()
        {
            return Err(damaged(format!("{name} is larger than any tensor can be")));
        }
        into.insert(name.clone(), stored);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn folder(config: &Value, header: &Value) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let header = header.to_string();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        folder
    }

    #[test]
    fn quantized_tensors_count_with_their_scales_and_by_their_own_widths() {
        let config = json!({"model_type": "new_kind", "text_config": {"max_position_embeddings": 4096},
            "quantization": {"bits": 4, "group_size": 64, "b": {"bits": 8, "group_size": 32}}});
        let tensor = |dtype: &str, shape: [u64; 2], bytes: [u64; 2]| json!({"dtype": dtype, "shape": shape, "data_offsets": bytes});
        let header = json!({
            "__metadata__": {"format": "pt"},
            "a.weight": tensor("U32", [2, 16], [0, 128]),
            "a.scales": tensor("BF16", [2, 2], [128, 136]),
            "a.biases": tensor("BF16", [2, 2], [136, 144]),
            "b.weight": tensor("U32", [2, 16], [144, 272]),
            "b.scales": tensor("BF16", [2, 2], [272, 280]),
            "norm.weight": tensor("BF16", [1, 8], [280, 296]),
        });
        let found = outline(folder(&config, &header).path()).unwrap();
        assert_eq!(
            (found.family.as_str(), found.context_length),
            ("new_kind", Some(4096))
        );
        let share = |name: &str, tensors, parameters, bytes| TypeShare {
            name: name.into(),
            tensors,
            parameters,
            bytes,
        };
        assert_eq!(
            found.types,
            [
                share("affine 4-bit, group 64", 1, 256, 144),
                share("affine 8-bit, group 32", 1, 128, 136),
                share("BF16", 1, 8, 16),
            ]
        );
        assert_eq!((found.parameters, found.weight_bytes), (392, 296));
    }

    #[test]
    fn only_the_files_that_are_loaded_count() {
        let header = json!({"a.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}});
        let folder = folder(&json!({"model_type": "llama"}), &header);
        let model = folder.path().join("model.safetensors");
        let bytes = std::fs::read(&model).unwrap();
        let again = String::from_utf8(bytes).unwrap().replace("a.weight", "b.weight");
        std::fs::write(folder.path().join("consolidated.safetensors"), again).unwrap();
        assert_eq!(outline(folder.path()).unwrap().parameters, 4);
    }

    #[test]
    fn a_header_that_lies_is_an_error_and_takes_no_memory() {
        let folder = folder(
            &json!({}),
            &json!({"a": {"dtype": "F32", "shape": [1u64 << 40, 1u64 << 40]}}),
        );
        assert!(
            outline(folder.path())
                .unwrap_err()
                .to_string()
                .contains("larger than any")
        );
        std::fs::write(folder.path().join("model.safetensors"), u64::MAX.to_le_bytes()).unwrap();
        assert!(outline(folder.path()).unwrap_err().to_string().contains("header"));
    }
}
