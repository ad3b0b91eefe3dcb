//! How a model's forward writes to caches, layer by layer.

use std::ops::Range;
use std::rc::Rc;

use mlx_rs::Array;

use super::columns::Columns;
use super::own::OwnRow;
use super::{CacheError, KvLayout, KvScheme, Recurrence, Seen, Sight};

/// What a forward writes to: one row, or the running batch.
pub trait Layers {
    /// One layer of it, to be written to.
    fn layer(&mut self, layer: usize) -> LayerCache<'_>;

    /// What `added` new tokens of each row will see in layers of this window, `None` where they see everything: before the
    /// first of these layers is written to. Own buffers are given to kernels, which know without it: then nothing.
    fn sight(&self, window: Option<usize>, added: usize) -> Option<Sight>;

    /// Says that every room given since the last call is filled once `output` is evaluated: an array that depends on
    /// all the writes. It is kept until the next forward, so give a small one. Columns don't need this, and ignore it.
    fn wrote(&mut self, output: &Array) -> Result<(), CacheError>;
}

/// One layer of a row or of a batch, to be written to.
pub struct LayerCache<'a> {
    layer: usize,
    rows: Rows<'a>,
}

/// All layers, of which one is meant.
pub(super) enum Rows<'a> {
    /// One tensor holds all rows.
    Columns(&'a mut [Columns]),
    /// One after another.
    Own(&'a mut [OwnRow]),
}

/// Where a kernel writes one row's new keys and values in place, and reads those before them; or takes new positions into
/// the state of a recurrent layer.
pub struct Room<'a> {
    buffer: &'a Array,
    scheme: KvScheme,
    start: usize,
    added: usize,
    after: Option<&'a Rc<Array>>,
}

impl<'a> LayerCache<'a> {
    pub(super) fn new(layer: usize, rows: Rows<'a>) -> Self {
        Self { layer, rows }
    }

    /// How it lies in memory: whether to [`append`](Self::append), or to ask for [`rooms`](Self::rooms).
    pub fn layout(&self) -> KvLayout {
        match &self.rows {
            Rows::Columns(_) => KvLayout::Columns,
            Rows::Own(_) => KvLayout::OwnBuffers,
        }
    }

    /// To columns of an attention layer: writes `[rows, heads, L, dim]` keys and values after what is held; gives back
    /// views of all columns that the new positions may see, of which [`Layers::sight`] tells more. A
    /// batch of several rows takes one position for each. Drop the views before the next call for that layer.
    pub fn append(self, keys: &Array, values: &Array) -> Result<Seen, CacheError> {
        let layer = self.layer;
        self.columns()?.append(layer, keys, values)
    }

    /// In columns of a recurrent layer: what it holds, to be stored anew once it has taken in `added` positions of each row.
    pub fn recurrent(self, added: usize) -> Result<Recurrence<'a>, CacheError> {
        let layer = self.layer;
        self.columns()?.recurrence(layer, added)
    }

    fn columns(self) -> Result<&'a mut Columns, CacheError> {
        let Rows::Columns(layers) = self.rows else {
            let needs = KvLayout::Columns;
            return Err(CacheError::OtherLayout { needs });
        };
        let (layer, count) = (self.layer, layers.len());
        layers
            .get_mut(layer)
            .ok_or(CacheError::NoSuchLayer { layer, layers: count })
    }

    /// In own buffers: room for `added` positions of each row, in the rows' order; the whole state for a recurrent layer. The
    /// layer counts as that much longer from now on, and the row is of no use until the forward says that it [`wrote`](Layers::wrote).
    pub fn rooms(self, added: usize) -> Result<Vec<Room<'a>>, CacheError> {
        match self.rows {
            Rows::Own(rows) => rows.iter_mut().map(|row| row.room(self.layer, added)).collect(),
            Rows::Columns(_) => {
                let needs = KvLayout::OwnBuffers;
                Err(CacheError::OtherLayout { needs })
            }
        }
    }
}

impl<'a> Room<'a> {
    pub(super) fn new(
        buffer: &'a Array,
        scheme: KvScheme,
        positions: Range<usize>,
        after: Option<&'a Rc<Array>>,
    ) -> Self {
        Self {
            buffer,
            scheme,
            start: positions.start,
            added: positions.len(),
            after,
        }
    }

    /// How keys and values are held.
    pub fn scheme(&self) -> KvScheme {
        self.scheme
    }

    /// The row's first new position: it holds those before.
    pub fn start(&self) -> usize {
        self.start
    }

    /// How many new positions it is for.
    pub fn added(&self) -> usize {
        self.added
    }

    /// Positions that the buffer has room for: position `p` lies in slot `p % capacity`. 0 for a recurrent layer.
    pub fn capacity(&self) -> usize {
        let panels = self.buffer.shape().get(1).copied().unwrap_or(0);
        panels.unsigned_abs() as usize * super::PANEL
    }

    /// `[heads, capacity / PANEL, panel]` float32, uint32 where it is quantized, or `[floats]` of a recurrent layer, which no other room and no other row has. To be written to by an
    /// operation on the CPU's stream only, and to be read by nothing else.
    pub(crate) fn buffer(&self) -> &'a Array {
        self.buffer
    }

    /// What a writer must depend on, so that it runs after the writes before. Rows that were in one batch share it.
    pub(crate) fn after(&self) -> Option<&'a Rc<Array>> {
        self.after
    }
}
