//! How attention layers hold keys and values: in full precision, or quantized.

use std::collections::BTreeMap;
use std::fmt;

use mlx_rs::Dtype;

use super::plan::dtype_bytes;
use super::{CachePlan, KvLayout, KvShape, LayerPlan, PANEL};

/// How a layer holds its keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvScheme {
    /// As the model computes them.
    Full,
    /// By MLX's affine quantization.
    Quantized(KvQuantization),
}

/// Affine quantization: a code for each element, a scale and a bias for each group of elements of a head, of the type that
/// the elements had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvQuantization {
    /// Of a code: 4 or 8.
    pub bits: usize,
    /// Elements that share a scale and a bias: 32, 64 or 128.
    pub group_size: usize,
}

/// The group size where none is named, as mlx-lm has it.
pub const DEFAULT_GROUP_SIZE: usize = 64;

/// What is asked of a model's layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvSchemes {
    /// Of every attention layer that is not named.
    pub uniform: KvScheme,
    /// Of layers by number, from 0.
    pub layers: BTreeMap<usize, KvScheme>,
}

impl Default for KvSchemes {
    fn default() -> Self {
        Self {
            uniform: KvScheme::Full,
            layers: BTreeMap::new(),
        }
    }
}

/// Why keys and values can't be held as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KvSchemeError {
    /// Bits that there is no quantization of.
    #[error("keys and values can't be quantized to {bits} bits: take 4 or 8")]
    Bits {
        /// What was asked for.
        bits: usize,
    },
    /// A group size that there is no quantization of.
    #[error("keys and values can't be quantized in groups of {group_size}: take 32, 64 or 128")]
    GroupSize {
        /// What was asked for.
        group_size: usize,
    },
    /// A head can't be cut into such groups.
    #[error(
        "layer {layer} can't quantize its keys and values in groups of {group_size}: a head has {features} features, of which \
         that is no divisor; {advice}"
    )]
    Features {
        /// The first such layer.
        layer: usize,
        /// What was asked for.
        group_size: usize,
        /// Of a key, or of a value.
        features: usize,
        /// What to do.
        advice: &'static str,
    },
    /// A layer that the model does not have.
    #[error("there is no layer {layer}: the model has {layers}, from 0 to {}", layers.saturating_sub(1))]
    NoSuchLayer {
        /// The layer named.
        layer: usize,
        /// How many there are.
        layers: usize,
    },
    /// A layer without keys and values.
    #[error("layer {layer} is recurrent: it holds a state, and no keys and values to quantize; leave it out")]
    Recurrent {
        /// The layer named.
        layer: usize,
    },
}

impl KvQuantization {
    /// Checked on its own, whatever the model.
    pub fn new(bits: usize, group_size: usize) -> Result<Self, KvSchemeError> {
        if ![4, 8].contains(&bits) {
            return Err(KvSchemeError::Bits { bits });
        }
        if ![32, 64, 128].contains(&group_size) {
            return Err(KvSchemeError::GroupSize { group_size });
        }
        Ok(Self { bits, group_size })
    }

    /// Bytes of so many elements of a head with scales and biases of `factor_bytes` each.
    fn bytes(self, elements: usize, factor_bytes: u64) -> u64 {
        (elements * self.bits / 8) as u64 + (elements / self.group_size * 2) as u64 * factor_bytes
    }

    /// Words of codes of so many elements.
    pub(super) fn words(self, elements: usize) -> usize {
        elements * self.bits / 32
    }
}

/// `full precision`, or `4 bits, groups of 64`.
impl fmt::Display for KvScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full precision"),
            Self::Quantized(KvQuantization { bits, group_size }) => {
                write!(f, "{bits} bits, groups of {group_size}")
            }
        }
    }
}

impl KvShape {
    /// The same, held so.
    pub fn with_scheme(self, scheme: KvScheme) -> Self {
        Self { scheme, ..self }
    }

    /// Bytes of one position of one row, laid out as columns.
    pub fn bytes_per_column(&self) -> u64 {
        let elements = self.key_dim + self.value_dim;
        let each = match self.scheme {
            KvScheme::Full => elements as u64 * dtype_bytes(self.dtype),
            KvScheme::Quantized(by) => by.bytes(elements, dtype_bytes(self.dtype)),
        };
        self.heads as u64 * each
    }

    /// The arrays of columns that it is held in, with their names, their last extents and their types: keys, then values.
    pub(super) fn columns(&self) -> Vec<(&'static str, usize, Dtype)> {
        let (keys, values, dtype) = (self.key_dim, self.value_dim, self.dtype);
        match self.scheme {
            KvScheme::Full => vec![("keys", keys, dtype), ("values", values, dtype)],
            KvScheme::Quantized(by) => vec![
                ("keys", by.words(keys), Dtype::Uint32),
                ("keys.scales", keys / by.group_size, dtype),
                ("keys.biases", keys / by.group_size, dtype),
                ("values", by.words(values), Dtype::Uint32),
                ("values.scales", values / by.group_size, dtype),
                ("values.biases", values / by.group_size, dtype),
            ],
        }
    }

    /// The type of own buffers.
    pub(super) fn own_dtype(&self) -> Dtype {
        match self.scheme {
            KvScheme::Full => Dtype::Float32,
            KvScheme::Quantized(_) => Dtype::Uint32,
        }
    }

    /// Elements from one position's values to the next one's in a panel of floats: `value_dim`, rounded up to a multiple of 16.
    pub fn value_stride(&self) -> usize {
        self.value_dim.next_multiple_of(16)
    }

    /// Elements of a panel, the keys and values of [`PANEL`] positions of one head: floats, or words where they are quantized.
    pub fn panel_len(&self) -> usize {
        match self.scheme {
            KvScheme::Full => PANEL * (self.key_dim + self.value_stride()),
            KvScheme::Quantized(by) => {
                let elements = PANEL * (self.key_dim + self.value_dim);
                by.words(elements) + elements / by.group_size * 2
            }
        }
    }

    /// Bytes of one position of one row in an own buffer: its share of a panel.
    pub fn bytes_per_own_position(&self) -> u64 {
        (self.heads * self.panel_len() * 4 / PANEL) as u64
    }

    fn check(&self, layer: usize) -> Result<(), KvSchemeError> {
        let KvScheme::Quantized(KvQuantization { bits, group_size }) = self.scheme else {
            return Ok(());
        };
        KvQuantization::new(bits, group_size)?;
        let dims = [self.key_dim, self.value_dim];
        let divides = |group: usize| dims.iter().all(|dim| dim.is_multiple_of(group));
        match dims.iter().find(|dim| !dim.is_multiple_of(group_size)) {
            None => Ok(()),
            Some(&features) => Err(KvSchemeError::Features {
                layer,
                group_size,
                features,
                advice: match () {
                    () if divides(64) => "take groups of 64",
                    () if divides(32) => "take groups of 32",
                    () => "leave it in full precision",
                },
            }),
        }
    }
}

/// Layers next to each other that hold alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayersHeld {
    /// The first of them.
    pub first: usize,
    /// The last of them.
    pub last: usize,
    /// Their kind: `full`, `sliding` or `recurrent`.
    pub kind: &'static str,
    /// How they hold keys and values; nothing for recurrent layers, which have none.
    pub scheme: Option<KvScheme>,
    /// Bytes that one more position takes in all of them, until windows are full.
    pub bytes_per_token: u64,
}

impl CachePlan {
    /// The same layers, held as asked: all of it, or an error that says what can't be.
    pub fn with_schemes(mut self, schemes: &KvSchemes) -> Result<Self, KvSchemeError> {
        let layers = self.layers().len();
        if let Some(&layer) = schemes.layers.keys().find(|&&layer| layer >= layers) {
            return Err(KvSchemeError::NoSuchLayer { layer, layers });
        }
        for (layer, plan) in self.layers_mut().iter_mut().enumerate() {
            let named = schemes.layers.get(&layer).copied();
            match plan {
                LayerPlan::Full(kv) | LayerPlan::Sliding { kv, .. } => {
                    kv.scheme = named.unwrap_or(schemes.uniform);
                    kv.check(layer)?;
                }
                LayerPlan::Recurrent(_) if named.is_some() => return Err(KvSchemeError::Recurrent { layer }),
                LayerPlan::Recurrent(_) => {}
            }
        }
        Ok(self)
    }

    /// How the layers hold, from the first to the last.
    pub fn held(&self) -> Vec<LayersHeld> {
        let mut all: Vec<LayersHeld> = Vec::new();
        for (layer, plan) in self.layers().iter().enumerate() {
            let kind = match plan {
                LayerPlan::Full(_) => "full",
                LayerPlan::Sliding { .. } => "sliding",
                LayerPlan::Recurrent(_) => "recurrent",
            };
            let bytes = plan.kv().map_or(0, |kv| match self.layout() {
                KvLayout::Columns => kv.bytes_per_column(),
                KvLayout::OwnBuffers => kv.bytes_per_own_position(),
            });
            let scheme = plan.kv().map(|kv| kv.scheme);
            match all.last_mut() {
                Some(run) if run.kind == kind && run.scheme == scheme => {
                    run.last = layer;
                    run.bytes_per_token += bytes;
                }
                _ => all.push(LayersHeld {
                    first: layer,
                    last: layer,
                    kind,
                    scheme,
                    bytes_per_token: bytes,
                }),
            }
        }
        all
    }

    /// In a few words, where anything is quantized: `4 bits, groups of 64`, or of how many layers that is so.
    pub fn quantized(&self) -> Option<String> {
        let schemes: Vec<KvScheme> = self
            .layers()
            .iter()
            .filter_map(|plan| Some(plan.kv()?.scheme))
            .collect();
        let mut counts: Vec<(KvScheme, usize)> = Vec::new();
        for &scheme in schemes.iter().filter(|&&scheme| scheme != KvScheme::Full) {
            match counts.iter_mut().find(|(known, _)| *known == scheme) {
                Some((_, count)) => *count += 1,
                None => counts.push((scheme, 1)),
            }
        }
        let all = schemes.len();
        let told = counts.iter().map(|(scheme, count)| {
            if *count == all {
                scheme.to_string()
            } else {
                format!("{scheme} in {count} of {all} layers")
            }
        });
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::RecurrentShape;

    fn by(bits: usize, group_size: usize) -> KvScheme {
        KvScheme::Quantized(KvQuantization { bits, group_size })
    }

    fn plan() -> CachePlan {
        let kv = KvShape::float32(2, 64, 64);
        let state = RecurrentShape {
            conv: 3,
            conv_features: 4,
            heads: 1,
            value_dim: 2,
            key_dim: 2,
            dtype: Dtype::Float32,
        };
        CachePlan::own_buffers(vec![
            LayerPlan::Full(kv),
            LayerPlan::Recurrent(state),
            LayerPlan::Sliding { kv, window: 100 },
            LayerPlan::Full(kv),
        ])
    }

    fn asked(uniform: KvScheme, layers: &[(usize, KvScheme)]) -> KvSchemes {
        KvSchemes {
            uniform,
            layers: layers.iter().copied().collect(),
        }
    }

    #[test]
    fn every_attention_layer_holds_as_asked_or_as_named() {
        let plan = plan()
            .with_schemes(&asked(by(4, 64), &[(0, KvScheme::Full), (3, by(8, 32))]))
            .unwrap();
        let schemes: Vec<Option<KvScheme>> = plan.held().iter().map(|run| run.scheme).collect();
        assert_eq!(
            schemes,
            [Some(KvScheme::Full), None, Some(by(4, 64)), Some(by(8, 32))]
        );
        assert_eq!(
            plan.quantized().unwrap(),
            "4 bits, groups of 64 in 1 of 3 layers; 8 bits, groups of 32 in 1 of 3 layers"
        );
    }

    #[test]
    fn what_holds_alike_is_told_together() {
        let kv = KvShape::float32(2, 64, 64);
        let plan = CachePlan::new(vec![kv; 3])
            .with_schemes(&asked(by(8, 64), &[]))
            .unwrap();
        let held = plan.held();
        assert_eq!((held.len(), held[0].first, held[0].last), (1, 0, 2));
        assert_eq!(held[0].bytes_per_token, plan.bytes_per_token());
        assert_eq!(plan.quantized().unwrap(), "8 bits, groups of 64");
        assert_eq!(CachePlan::new(vec![kv; 3]).quantized(), None);
    }

    #[test]
    fn what_can_not_be_held_so_is_refused_with_the_reason() {
        let refused = |schemes: KvSchemes| plan().with_schemes(&schemes).unwrap_err().to_string();
        assert_eq!(
            refused(asked(by(3, 64), &[])),
            "keys and values can't be quantized to 3 bits: take 4 or 8"
        );
        assert_eq!(
            refused(asked(by(4, 48), &[])),
            "keys and values can't be quantized in groups of 48: take 32, 64 or 128"
        );
        assert_eq!(
            refused(asked(by(4, 128), &[])),
            "layer 0 can't quantize its keys and values in groups of 128: a head has 64 features, of which that is no divisor; \
             take groups of 64"
        );
        assert_eq!(
            refused(asked(KvScheme::Full, &[(4, by(4, 64))])),
            "there is no layer 4: the model has 4, from 0 to 3"
        );
        assert_eq!(
            refused(asked(KvScheme::Full, &[(1, by(4, 64))])),
            "layer 1 is recurrent: it holds a state, and no keys and values to quantize; leave it out"
        );
        let narrow = CachePlan::new(vec![KvShape::float32(1, 80, 80)]);
        let refused = narrow
            .with_schemes(&asked(by(8, 32), &[]))
            .unwrap_err()
            .to_string();
        assert!(refused.ends_with("leave it in full precision"), "{refused}");
    }

    #[test]
    fn bytes_follow_bits_group_size_and_the_type_of_scales() {
        let kv = KvShape::float32(3, 64, 64);
        let (floats, four, eight) = (
            kv.bytes_per_own_position(),
            kv.with_scheme(by(4, 64)).bytes_per_own_position(),
            kv.with_scheme(by(8, 32)).bytes_per_own_position(),
        );
        let elements = 3 * 128;
        assert_eq!(
            (floats, four, eight),
            (
                elements * 4,
                elements / 2 + elements / 64 * 8,
                elements + elements / 32 * 8
            )
        );
        assert!(
            four as f64 <= 0.32 * (elements * 2) as f64,
            "less than a third of float16's"
        );
        assert_eq!(kv.with_scheme(by(4, 64)).bytes_per_column(), four);
        let half = KvShape {
            dtype: Dtype::Float16,
            ..kv
        };
        assert_eq!(
            half.with_scheme(by(4, 32)).bytes_per_column(),
            elements / 2 + elements / 32 * 4
        );
    }
}
