//! How config.json says that quantized matrices are stored.

use std::collections::HashMap;

use serde_json::Value;

use crate::model::ModelError;
use crate::nn::Microscaling;

/// How quantized matrices are stored, from `quantization` in config.json.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quantization {
    /// That of every quantized matrix but those below.
    pub all: Coding,
    /// Those of single modules, by their paths; `None`: not quantized.
    pub modules: HashMap<String, Option<Coding>>,
}

/// How the elements of a quantized matrix are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Integers with a scale and a bias for each group.
    Affine {
        /// 2, 3, 4, 5, 6 or 8.
        bits: usize,
        /// How many share a scale: 16, 32, 64 or 128.
        group_size: usize,
    },
    /// Tiny floats with a tiny scale for each group.
    Microscaled(Microscaling),
}

const BITS: [usize; 6] = [2, 3, 4, 5, 6, 8];
const GROUP_SIZES: [usize; 4] = [16, 32, 64, 128];

impl Quantization {
    /// Reads `quantization` of a configuration; none if it has none.
    pub fn from_config(config: &Value) -> Result<Option<Self>, ModelError> {
        let settings = ["quantization", "quantization_config"]
            .iter()
            .find_map(|name| config.get(name).filter(|value| !value.is_null()));
        let Some(settings) = settings else {
            return Ok(None);
        };
        if let Some(method) = settings
            .get("quant_method")
            .filter(|_| settings.get("bits").is_none())
        {
            return Err(ModelError::Config {
                name: "quantization_config.quant_method".to_owned(),
                value: method.to_string(),
                allowed: "absent: only MLX's own quantization is supported".to_owned(),
            });
        }
        let all = Coding::read(settings, "quantization")?;
        let mut modules = HashMap::new();
        for (path, value) in settings.as_object().into_iter().flatten() {
            // Paths of modules have dots; the one that has none is the head's.
            let is_module = path.contains('.') || path == "lm_head";
            let coding = match value {
                Value::Object(_) => Some(Coding::read(value, &format!("quantization.{path}"))?),
                Value::Bool(false) => None,
                Value::Bool(true) => Some(all),
                _ if is_module => {
                    return Err(ModelError::Config {
                        name: format!("quantization.{path}"),
                        value: value.to_string(),
                        allowed: "true, false, or an object with bits and group_size".to_owned(),
                    });
                }
                _ => continue,
            };
            modules.insert(path.clone(), coding);
        }
        Ok(Some(Self { all, modules }))
    }

    /// How `module` is stored; `None`: not quantized.
    pub fn of(&self, module: &str) -> Option<Coding> {
        self.modules.get(module).copied().unwrap_or(Some(self.all))
    }
}

impl Coding {
    fn read(settings: &Value, name: &str) -> Result<Self, ModelError> {
        let wrong = |key: &str, value: &Value, allowed: String| ModelError::Config {
            name: format!("{name}.{key}"),
            value: value.to_string(),
            allowed,
        };
        let one_of = |key: &str, allowed: &[usize]| {
            let value = settings.get(key).unwrap_or(&Value::Null);
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
            number
                .filter(|n| allowed.contains(n))
                .ok_or_else(|| wrong(key, value, format!("one of {allowed:?}")))
        };
        let mode = settings.get("mode").unwrap_or(&Value::Null);
        if let Some(mode) = Microscaling::ALL
            .into_iter()
            .find(|m| mode.as_str() == Some(m.name()))
        {
            // Widths that are left out are the mode's; others there are not.
            for (key, size) in [("bits", mode.bits()), ("group_size", mode.group_size())] {
                if let Some(value) = settings.get(key).filter(|value| **value != size) {
                    return Err(wrong(
                        key,
                        value,
                        format!("{size} where the mode is {}", mode.name()),
                    ));
                }
            }
            return Ok(Self::Microscaled(mode));
        }
        if !(mode.is_null() || mode.as_str() == Some("affine")) {
            let modes = Microscaling::ALL.map(Microscaling::name).join(", ");
            return Err(wrong("mode", mode, format!("one of affine, {modes}")));
        }
        Ok(Self::Affine {
            bits: one_of("bits", &BITS)?,
            group_size: one_of("group_size", &GROUP_SIZES)?,
        })
    }

    /// How many elements share a scale.
    pub fn group_size(self) -> usize {
        match self {
            Self::Affine { group_size, .. } => group_size,
            Self::Microscaled(mode) => mode.group_size(),
        }
    }

    /// Bits of an element.
    pub fn bits(self) -> usize {
        match self {
            Self::Affine { bits, .. } => bits,
            Self::Microscaled(mode) => mode.bits(),
        }
    }
}

impl std::fmt::Display for Coding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Affine { bits, group_size } => write!(f, "affine {bits}-bit, group {group_size}"),
            Self::Microscaled(mode) => f.write_str(mode.name()),
        }
    }
}
