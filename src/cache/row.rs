//! The caches of one row, all layers, serial.

use std::rc::Rc;
use std::slice;

use mlx_rs::Array;

use super::columns::Columns;
use super::layer::Rows;
use super::own::OwnRow;
use super::{CacheError, CachePlan, KvLayout, LayerCache, Layers, Sight, same_len};

/// One row's state in all layers. A clone shares the arrays; the first of the two to be written to gets its
/// own copy then, so that a clone is a snapshot.
#[derive(Clone)]
pub struct RowCache {
    pub(super) held: Held,
}

#[derive(Clone)]
pub(super) enum Held {
    Columns(Vec<Columns>),
    Own(OwnRow),
}

impl RowCache {
    /// An empty row.
    pub fn new(plan: &CachePlan) -> Self {
        let held = match plan.layout() {
            KvLayout::Columns => {
                Held::Columns(plan.layers().iter().map(|&layer| Columns::new(layer)).collect())
            }
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
            Held::Columns(layers) => same_len(layers.iter().map(Columns::width)),
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

    /// Whether [`trim_to`](Self::trim_to) can cut it to every length: not with a sliding layer that has let go of positions,
    /// nor with a recurrent one that has taken in several. No length is harder than 1.
    pub fn trimmable(&self) -> bool {
        self.len().is_some_and(|len| len < 2 || self.trimmable_to(1))
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it to this length: always to nothing and to what it has.
    pub fn trimmable_to(&self, len: usize) -> bool {
        self.len().is_some_and(|held| len <= held) && self.untrimmable_to(len).is_none()
    }

    /// The first layer that can't be cut to `len`.
    fn untrimmable_to(&self, len: usize) -> Option<usize> {
        match &self.held {
            Held::Columns(layers) => layers.iter().position(|layer| !layer.trimmable_to(len)),
            Held::Own(row) => row.untrimmable_to(len),
        }
    }

    /// Keeps the first `len` positions and gives up what capacity these don't need. Columns are cut lazily: evaluate
    /// [`arrays`](Self::arrays), or what is fed next. Either all layers are cut or none.
    pub fn trim_to(&mut self, len: usize) -> Result<(), CacheError> {
        let held = self.checked_len()?;
        if len > held {
            return Err(CacheError::TooLong { len, held });
        }
        if let Some(layer) = self.untrimmable_to(len) {
            return Err(CacheError::Untrimmable { layer, len, held });
        }
        match &mut self.held {
            Held::Columns(layers) => layers.iter_mut().try_for_each(|layer| layer.trim_to(len)),
            Held::Own(row) => row.trim_to(len),
        }
    }

    /// Says how many positions the row is likely to come to: with its next forward, own buffers for all positions get room for so
    /// many, and growing to them copies nothing. Columns grow as ever.
    pub fn expect(&mut self, positions: usize) {
        match &mut self.held {
            Held::Columns(_) => {}
            Held::Own(row) => row.expect(positions),
        }
    }

    /// For a row that is kept and not fed: moves what is held into own buffers of whole [panels](super::PANEL) for it, where
    /// that frees a quarter of a layer's capacity or more. The next forward gives it buffers of the usual capacity. Columns
    /// stay as they are: their capacity follows from their number.
    pub fn compact(&mut self) -> Result<(), CacheError> {
        match &mut self.held {
            Held::Columns(_) => Ok(()),
            Held::Own(row) => row.compact(),
        }
    }

    /// What to evaluate before anyone relies on the content: buffers of columns, or what own buffers' last writes wait
    /// for.
    pub fn arrays(&self) -> Vec<&Array> {
        match &self.held {
            Held::Columns(layers) => layers.iter().flat_map(Columns::arrays).collect(),
            Held::Own(row) => row.arrays().collect(),
        }
    }

    /// What one layer holds as float32, whatever the layout: keys and values `[heads, positions, dim]` from the oldest
    /// position on, or a recurrent layer's convolution input and state. Evaluates.
    pub fn positions(&self, layer: usize) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match &self.held {
            Held::Columns(all) => {
                self.checked_len()?;
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
            Held::Columns(layers) => layers.iter().map(|layer| layer.used_bytes(&[0])).sum(),
            Held::Own(row) => row.used_bytes(),
        }
    }

    /// Bytes of the buffers, by their shapes.
    pub fn allocated_bytes(&self) -> u64 {
        match &self.held {
            Held::Columns(layers) => layers.iter().map(Columns::allocated_bytes).sum(),
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

    fn sight(&self, window: Option<usize>, added: usize) -> Option<Sight> {
        match &self.held {
            Held::Columns(layers) => {
                let len = layers.first().map_or(0, Columns::width);
                Some(Sight::new(len, &[0], window, added))
            }
            Held::Own(_) => None,
        }
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
