//! One row in own buffers: all layers, and what is still to be written.

use std::rc::Rc;

use mlx_rs::Array;

use super::panels::Panels;
use super::{CacheError, Doing, KvShape, Room};

/// One row's own buffers. A clone shares them; whichever of the two writes first copies what it writes to.
#[derive(Clone)]
pub(super) struct OwnRow {
    layers: Vec<Panels>,
    /// Positions that are written in all layers, once the fence is evaluated. A layer that holds another number has
    /// been given room that nobody has said is filled.
    written: usize,
    fence: Fence,
}

/// What depends on all writes so far; nothing if they are known to be done.
#[derive(Clone, Default)]
pub(super) struct Fence(Option<Rc<Array>>);

impl Fence {
    /// Returns when the writes are done.
    pub(super) fn wait(&mut self) -> Result<(), CacheError> {
        self.evaluate()?;
        self.0 = None;
        Ok(())
    }

    fn evaluate(&self) -> Result<(), CacheError> {
        let array = self.0.as_ref();
        array.map_or(Ok(()), |array| array.eval().doing("finish a forward"))
    }
}

impl OwnRow {
    pub(super) fn new(shapes: &[KvShape]) -> Self {
        Self {
            layers: shapes.iter().map(|&shape| Panels::new(shape)).collect(),
            written: 0,
            fence: Fence::default(),
        }
    }

    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    pub(super) fn shapes(&self) -> impl Iterator<Item = KvShape> {
        self.layers.iter().map(Panels::shape)
    }

    /// What the first layer holds: the row's length, unless a forward stopped half-way.
    pub(super) fn width(&self) -> usize {
        self.layers.first().map_or(0, Panels::len)
    }

    /// The positions held, all of them written or on their way.
    pub(super) fn len(&self) -> Result<usize, CacheError> {
        let room = self.room_given()?;
        if room == self.written {
            Ok(room)
        } else {
            Err(CacheError::Unwritten {
                layer: 0,
                room,
                written: self.written,
            })
        }
    }

    /// The positions that every layer has.
    fn room_given(&self) -> Result<usize, CacheError> {
        let expected = self.width();
        match self
            .layers
            .iter()
            .enumerate()
            .find(|(_, held)| held.len() != expected)
        {
            None => Ok(expected),
            Some((layer, odd)) => Err(CacheError::LayersDiffer {
                layer,
                found: odd.len(),
                expected,
            }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.layers.iter().all(|layer| layer.len() == 0)
    }

    /// Room for `added` positions in one layer.
    pub(super) fn room(&mut self, layer: usize, added: usize) -> Result<Room<'_>, CacheError> {
        let layers = self.layers.len();
        let held = self
            .layers
            .get_mut(layer)
            .ok_or(CacheError::NoSuchLayer { layer, layers })?;
        let start = self.written;
        if held.len() != start {
            return Err(CacheError::Unwritten {
                layer,
                room: held.len(),
                written: start,
            });
        }
        let buffer = held.room(added, &mut self.fence)?;
        Ok(Room::new(buffer, start, self.fence.0.as_ref()))
    }

    /// Whether [`wrote`](Self::wrote) may be called: every layer was given the same room.
    pub(super) fn check_filled(&self) -> Result<(), CacheError> {
        self.room_given().map(|_| ())
    }

    /// All room given is filled once `fence` is evaluated.
    pub(super) fn wrote(&mut self, fence: Rc<Array>) {
        self.written = self.width();
        self.fence = Fence(Some(fence));
    }

    pub(super) fn trim_to(&mut self, len: usize) -> Result<(), CacheError> {
        let held = self.len()?;
        if len > held {
            return Err(CacheError::TooLong { len, held });
        }
        for layer in &mut self.layers {
            layer.trim_to(len, &mut self.fence)?;
        }
        self.written = len;
        Ok(())
    }

    /// What to evaluate, so that everything is written. The buffers are inputs of it.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.fence.0.iter().map(Rc::as_ref)
    }

    /// One layer's keys and values as `[heads, len, dim]`. Evaluates.
    pub(super) fn positions(&self, layer: usize) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        self.len()?;
        self.fence.evaluate()?;
        let layers = self.layers.len();
        let held = self
            .layers
            .get(layer)
            .ok_or(CacheError::NoSuchLayer { layer, layers })?;
        held.positions()
    }

    pub(super) fn used_bytes(&self) -> u64 {
        let used = |layer: &Panels| layer.len() as u64 * layer.shape().bytes_per_own_position();
        self.layers.iter().map(used).sum()
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.layers.iter().map(Panels::allocated_bytes).sum()
    }
}
