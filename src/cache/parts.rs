//! A row's caches as plain bytes, layer by layer and array by array, and back: for keeping them outside of memory. What is
//! put together again equals what was taken apart, byte for byte.

use mlx_rs::{Array, Dtype};

use super::buffers::Buffers;
use super::columns::Columns;
use super::full::Full;
use super::own::{OwnLayer, OwnRow};
use super::own_state::OwnState;
use super::panels::{Panels, read};
use super::plan::{dtype_bytes, ring_columns_for};
use super::ring::Ring;
use super::row::{Held, RowCache};
use super::state::State;
use super::{
    CacheError, CachePlan, Doing, KvLayout, KvShape, LayerPlan, RecurrentShape, capacity_for, extent,
    same_len,
};

/// One array of a layer, on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is in its layer: `keys`, `values`, `panels`, `convolution`, `state`; of what is quantized `keys.scales` and the like,
    /// too.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its elements, row-major, in the machine's byte order.
    pub bytes: Vec<u8>,
}

/// One layer of a row, on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayerParts {
    /// The oldest position that own buffers still hold; 0 in all others.
    pub first: usize,
    /// Its arrays.
    pub arrays: Vec<Part>,
}

/// What an array of a layer must be.
struct Expected {
    name: &'static str,
    dtype: Dtype,
    /// Its extents; of panels there may be any number.
    shape: Vec<Option<usize>>,
}

impl Expected {
    fn new<const N: usize>(name: &'static str, dtype: Dtype, shape: [usize; N]) -> Self {
        let shape = shape.into_iter().map(Some).collect();
        Self { name, dtype, shape }
    }
}

impl RowCache {
    /// How many layers there are.
    pub fn layers(&self) -> usize {
        match &self.held {
            Held::Columns(layers) => layers.len(),
            Held::Own(row) => row.layers(),
        }
    }

    /// What one layer holds, copied to the host. Evaluates. A row whose last forward stopped half-way has no parts.
    pub fn parts(&self, layer: usize) -> Result<LayerParts, CacheError> {
        let (plan, first, arrays, len) = match &self.held {
            Held::Columns(all) => {
                let len = same_len(all.iter().map(Columns::width))?;
                let layers = all.len();
                let held = all.get(layer).ok_or(CacheError::NoSuchLayer { layer, layers })?;
                (held.plan(), 0, held.arrays(), len)
            }
            Held::Own(row) => {
                let held = row.written_layer(layer)?;
                let (first, array) = match held {
                    OwnLayer::Panels(panels) => (panels.first(), panels.held()),
                    OwnLayer::State(state) => (0, state.held()),
                };
                (held.plan(), first, array.into_iter().collect(), row.width())
            }
        };
        let expected = self.layout().arrays_of(plan, len);
        let named = expected.iter().zip(arrays);
        let arrays = named.map(|(expected, array)| on_the_host(expected.name, array));
        Ok(LayerParts {
            first,
            arrays: arrays.collect::<Result<_, _>>()?,
        })
    }

    /// A row of `len` positions from its layers' parts: refused where they are not what a row of this plan takes apart to.
    pub fn from_parts(plan: &CachePlan, len: usize, layers: Vec<LayerParts>) -> Result<Self, CacheError> {
        if len == 0 || layers.len() != plan.layers().len() {
            let what = format!(
                "{len} positions in {} layers, and the model has {}",
                layers.len(),
                plan.layers().len()
            );
            return Err(CacheError::Parts { layer: 0, what });
        }
        let taken = plan.layers().iter().zip(layers).enumerate();
        let taken = taken.map(|(layer, (&kind, parts))| {
            let expected = plan.layout().arrays_of(kind, len);
            let arrays = arrays(layer, &expected, &parts)?;
            Ok((layer, kind, parts.first, arrays))
        });
        let held = match plan.layout() {
            KvLayout::Columns => Held::Columns(
                taken
                    .map(|taken| {
                        let (layer, kind, first, arrays) = taken?;
                        columns(kind, len, first, arrays).ok_or_else(|| unsound(layer))
                    })
                    .collect::<Result<_, _>>()?,
            ),
            KvLayout::OwnBuffers => {
                let layers = taken.map(|taken| {
                    let (layer, kind, first, arrays) = taken?;
                    own(kind, len, first, arrays).ok_or_else(|| unsound(layer))
                });
                Held::Own(OwnRow::of(layers.collect::<Result<_, _>>()?, len))
            }
        };
        Ok(Self { held })
    }

    fn layout(&self) -> KvLayout {
        match &self.held {
            Held::Columns(_) => KvLayout::Columns,
            Held::Own(_) => KvLayout::OwnBuffers,
        }
    }
}

impl KvLayout {
    /// The arrays of a layer of one row that has been fed `len` positions.
    fn arrays_of(self, plan: LayerPlan, len: usize) -> Vec<Expected> {
        let keys_and_values = |kv: KvShape, columns: usize| {
            let array = |(name, dim, dtype)| Expected::new(name, dtype, [1, kv.heads, columns, dim]);
            kv.columns().into_iter().map(array).collect()
        };
        match (self, plan) {
            (Self::Columns, LayerPlan::Full(kv)) => keys_and_values(kv, capacity_for(len)),
            (Self::Columns, LayerPlan::Sliding { kv, window }) => {
                keys_and_values(kv, ring_columns_for(len, window))
            }
            (Self::Columns, LayerPlan::Recurrent(of)) => {
                let RecurrentShape {
                    conv,
                    conv_features,
                    heads,
                    value_dim,
                    key_dim,
                    dtype,
                } = of;
                vec![
                    Expected::new("convolution", dtype, [1, conv, conv_features]),
                    Expected::new("state", Dtype::Float32, [1, heads, value_dim, key_dim]),
                ]
            }
            (Self::OwnBuffers, LayerPlan::Full(kv) | LayerPlan::Sliding { kv, .. }) => vec![Expected {
                name: "panels",
                dtype: kv.own_dtype(),
                shape: vec![Some(kv.heads), None, Some(kv.panel_len())],
            }],
            (Self::OwnBuffers, LayerPlan::Recurrent(of)) => {
                let floats = of.conv_len() + of.state_len();
                vec![Expected::new("state", Dtype::Float32, [floats])]
            }
        }
    }
}

fn columns(plan: LayerPlan, len: usize, first: usize, arrays: Vec<Array>) -> Option<Columns> {
    if first != 0 {
        return None;
    }
    Some(match plan {
        LayerPlan::Full(kv) => Columns::Full(Full::of(kv, len, Buffers::of(arrays))),
        LayerPlan::Sliding { kv, window } => Columns::Ring(Ring::of(kv, window, len, Buffers::of(arrays))),
        LayerPlan::Recurrent(shape) => {
            let [conv, state] = <[Array; 2]>::try_from(arrays).ok()?;
            Columns::State(State::of(shape, len, conv, state))
        }
    })
}

fn own(plan: LayerPlan, len: usize, first: usize, arrays: Vec<Array>) -> Option<OwnLayer> {
    let [held] = <[Array; 1]>::try_from(arrays).ok()?;
    Some(match plan {
        LayerPlan::Full(kv) => OwnLayer::Panels(Panels::of(kv, None, len, first, held)?),
        LayerPlan::Sliding { kv, window } => {
            OwnLayer::Panels(Panels::of(kv, Some(window), len, first, held)?)
        }
        LayerPlan::Recurrent(_) if first != 0 => return None,
        LayerPlan::Recurrent(shape) => OwnLayer::State(OwnState::of(shape, len, held)),
    })
}

fn unsound(layer: usize) -> CacheError {
    let what = "positions are missing that the row would see".to_owned();
    CacheError::Parts { layer, what }
}

/// A copy of an array. Evaluates.
fn on_the_host(name: &'static str, array: &Array) -> Result<Part, CacheError> {
    let doing = "read a cache";
    let whole = array.contiguous().doing(doing)?;
    let bytes = whole.view::<u8>().doing(doing)?;
    Ok(Part {
        name: name.to_owned(),
        dtype: array.dtype(),
        shape: array.shape().iter().map(|n| n.unsigned_abs() as usize).collect(),
        bytes: read::<u8>(&bytes)?.to_vec(),
    })
}

/// A layer's arrays from its parts, if these are what is expected.
fn arrays(layer: usize, expected: &[Expected], parts: &LayerParts) -> Result<Vec<Array>, CacheError> {
    let refused = |what: String| CacheError::Parts { layer, what };
    if parts.arrays.len() != expected.len() {
        let (found, expected) = (parts.arrays.len(), expected.len());
        return Err(refused(format!("{found} arrays, expected {expected}")));
    }
    let both = expected.iter().zip(&parts.arrays);
    both.map(|(expected, part)| {
        let fits = part.shape.len() == expected.shape.len()
            && part
                .shape
                .iter()
                .zip(&expected.shape)
                .all(|(found, expected)| expected.is_none_or(|n| n == *found));
        if part.name != expected.name || part.dtype != expected.dtype || !fits {
            return Err(refused(format!(
                "{} of type {:?} and shape {:?}, expected {} of type {:?} and shape {:?}",
                part.name, part.dtype, part.shape, expected.name, expected.dtype, expected.shape
            )));
        }
        let size = usize::try_from(dtype_bytes(part.dtype)).unwrap_or(usize::MAX);
        let bytes = part.shape.iter().try_fold(size, |all, n| all.checked_mul(*n));
        if bytes != Some(part.bytes.len()) || part.bytes.is_empty() {
            let (name, shape, found) = (&part.name, &part.shape, part.bytes.len());
            return Err(refused(format!("{name} of shape {shape:?} in {found} bytes")));
        }
        let mut shape: Vec<i32> = part.shape.iter().map(|&n| extent(n)).collect();
        if let Some(last) = shape.last_mut() {
            *last = last.saturating_mul(extent(size));
        }
        let doing = "put a cache together";
        let array = Array::from_slice(&part.bytes, &shape)
            .view_dtype(part.dtype)
            .doing(doing)?;
        array.eval().doing(doing)?;
        Ok(array)
    })
    .collect()
}
