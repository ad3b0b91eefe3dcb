//! The caches of one row, all layers, serial.

use mlx_rs::Array;

use super::full::Full;
use super::{CacheError, CachePlan};

/// One row's state in all layers. A clone shares the arrays; the first of the two to be written to gets its
/// own copy then, so that a clone is a snapshot.
#[derive(Clone)]
pub struct RowCache {
    pub(super) layers: Vec<Full>,
}

impl RowCache {
    /// An empty row.
    pub fn new(plan: &CachePlan) -> Self {
        Self {
            layers: plan.layers().iter().map(|&shape| Full::new(shape)).collect(),
        }
    }

    /// The positions held; `None` if layers differ, as they do after a forward that failed half-way.
    pub fn len(&self) -> Option<usize> {
        same_width(&self.layers).ok()
    }

    /// Whether no layer holds anything.
    pub fn is_empty(&self) -> bool {
        self.layers.iter().all(|layer| layer.width() == 0)
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it: so for full-attention layers, always.
    pub fn trimmable(&self) -> bool {
        true
    }

    /// Keeps the first `len` positions and gives up what capacity these don't need. Lazy: evaluate
    /// [`arrays`](Self::arrays), or what is fed next.
    pub fn trim_to(&mut self, len: usize) -> Result<(), CacheError> {
        let held = same_width(&self.layers)?;
        if len > held {
            return Err(CacheError::TooLong { len, held });
        }
        self.layers.iter_mut().try_for_each(|layer| layer.trim_to(len))
    }

    /// Writes one layer's `[1, heads, L, dim]` keys and values after what it holds; gives back views of all
    /// that it holds then. Drop them before the next call for that layer.
    pub fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
    ) -> Result<(Array, Array), CacheError> {
        append(&mut self.layers, layer, keys, values)
    }

    /// Every array held, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        self.layers.iter().flat_map(Full::arrays).collect()
    }

    /// Bytes of the positions that hold something.
    pub fn used_bytes(&self) -> u64 {
        self.layers
            .iter()
            .map(|layer| layer.width() as u64 * layer.shape().bytes_per_column())
            .sum()
    }

    /// Bytes of the buffers, by their shapes.
    pub fn allocated_bytes(&self) -> u64 {
        self.layers.iter().map(Full::allocated_bytes).sum()
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("RowCache");
        out.field("layers", &self.layers.len())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The width that all layers have.
pub(super) fn same_width(layers: &[Full]) -> Result<usize, CacheError> {
    let expected = layers.first().map_or(0, Full::width);
    match layers
        .iter()
        .enumerate()
        .find(|(_, layer)| layer.width() != expected)
    {
        None => Ok(expected),
        Some((layer, odd)) => Err(CacheError::LayersDiffer {
            layer,
            found: odd.width(),
            expected,
        }),
    }
}

/// Appends to one of `layers`.
pub(super) fn append(
    layers: &mut [Full],
    layer: usize,
    keys: &Array,
    values: &Array,
) -> Result<(Array, Array), CacheError> {
    let count = layers.len();
    let full = layers
        .get_mut(layer)
        .ok_or(CacheError::NoSuchLayer { layer, layers: count })?;
    full.append(layer, keys, values)
}
