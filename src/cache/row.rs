//! The caches of one row, all layers, serial.

use std::rc::Rc;
use std::slice;

use mlx_rs::Array;

use super::full::Full;
use super::layer::Rows;
use super::own::OwnRow;
use super::{CacheError, CachePlan, KvLayout, LayerCache, Layers};

/// One row's state in all layers. A clone shares the arrays; the first of the two to be written to gets its
/// own copy then, so that a clone is a snapshot.
#[derive(Clone)]
pub struct RowCache {
    pub(super) held: Held,
}

#[derive(Clone)]
pub(super) enum Held {
    Columns(Vec<Full>),
    Own(OwnRow),
}

impl RowCache {
    /// An empty row.
    pub fn new(plan: &CachePlan) -> Self {
        let held = match plan.layout() {
            KvLayout::Columns => Held::Columns(plan.layers().iter().map(|&shape| Full::new(shape)).collect()),
            KvLayout::OwnBuffers => Held::Own(OwnRow::new(plan.layers())),
        };
        Self { held }
    }

    /// The positions held; `None` after a forward that failed half-way.
    pub fn len(&self) -> Option<usize> {
        self.checked_len().ok()
    }

    fn checked_len(&self) -> Result<usize, CacheError> {
        match &self.held {
            Held::Columns(layers) => same_width(layers),
            Held::Own(row) => row.len(),
        }
    }

    /// Whether no layer holds anything.
    pub fn is_empty(&self) -> bool {
        match &self.held {
            Held::Columns(layers) => layers.iter().all(|layer| layer.width() == 0),
            Held::Own(row) => row.is_empty(),
        }
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it: so for full-attention layers, always.
    pub fn trimmable(&self) -> bool {
        true
    }

    /// Keeps the first `len` positions and gives up what capacity these don't need. Columns are cut lazily: evaluate
    /// [`arrays`](Self::arrays), or what is fed next.
    pub fn trim_to(&mut self, len: usize) -> Result<(), CacheError> {
        match &mut self.held {
            Held::Columns(layers) => {
                let held = same_width(layers)?;
                if len > held {
                    return Err(CacheError::TooLong { len, held });
                }
                layers.iter_mut().try_for_each(|layer| layer.trim_to(len))
            }
            Held::Own(row) => row.trim_to(len),
        }
    }

    /// What to evaluate before anyone relies on the content: buffers of columns, or what own buffers' last writes wait
    /// for.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.held {
            Held::Columns(layers) => layers.iter().flat_map(Full::arrays).collect(),
            Held::Own(row) => row.arrays().collect(),
        }
    }

    /// One layer's keys and values as float32 `[heads, len, dim]`, whatever the layout. Evaluates.
    pub fn positions(&self, layer: usize) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match &self.held {
            Held::Columns(all) => {
                same_width(all)?;
                let layers = all.len();
                all.get(layer)
                    .ok_or(CacheError::NoSuchLayer { layer, layers })?
                    .positions()
            }
            Held::Own(row) => row.positions(layer),
        }
    }

    /// Bytes of the positions that hold something.
    pub fn used_bytes(&self) -> u64 {
        match &self.held {
            Held::Columns(layers) => {
                let used = |layer: &Full| layer.width() as u64 * layer.shape().bytes_per_column();
                layers.iter().map(used).sum()
            }
            Held::Own(row) => row.used_bytes(),
        }
    }

    /// Bytes of the buffers, by their shapes.
    pub fn allocated_bytes(&self) -> u64 {
        match &self.held {
            Held::Columns(layers) => layers.iter().map(Full::allocated_bytes).sum(),
            Held::Own(row) => row.allocated_bytes(),
        }
    }
}

impl Layers for RowCache {
    fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        let rows = match &mut self.held {
            Held::Columns(layers) => Rows::Columns(layers),
            Held::Own(row) => Rows::Own(slice::from_mut(row)),
        };
        LayerCache::new(layer, rows)
    }

    fn wrote(&mut self, output: &Array) -> Result<(), CacheError> {
        if let Held::Own(row) = &mut self.held {
            row.check_filled()?;
            row.wrote(Rc::new(output.clone()));
        }
        Ok(())
    }
}

impl std::fmt::Debug for RowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (layout, layers) = match &self.held {
            Held::Columns(layers) => (KvLayout::Columns, layers.len()),
            Held::Own(row) => (KvLayout::OwnBuffers, row.layers()),
        };
        let mut out = f.debug_struct("RowCache");
        out.field("layout", &layout)
            .field("layers", &layers)
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
