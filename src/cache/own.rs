//! One row in own buffers: all layers, and what is still to be written.

use std::rc::Rc;

use mlx_rs::Array;

use super::own_state::OwnState;
use super::panels::Panels;
use super::{CacheError, Doing, KvScheme, LayerPlan, Room};

/// One row's own buffers. A clone shares them; whichever of the two writes first copies what it writes to.
#[derive(Clone)]
pub(super) struct OwnRow {
    layers: Vec<OwnLayer>,
    /// Positions that are written in all layers, once the fence is evaluated. A layer that holds another number has
    /// been given room that nobody has said is filled.
    written: usize,
    fence: Fence,
}

#[derive(Clone)]
pub(super) enum OwnLayer {
    Panels(Panels),
    State(OwnState),
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

impl OwnLayer {
    fn new(plan: LayerPlan) -> Self {
        match plan {
            LayerPlan::Full(kv) => Self::Panels(Panels::new(kv, None)),
            LayerPlan::Sliding { kv, window } => Self::Panels(Panels::new(kv, Some(window))),
            LayerPlan::Recurrent(shape) => Self::State(OwnState::new(shape)),
        }
    }

    pub(super) fn plan(&self) -> LayerPlan {
        match self {
            Self::Panels(panels) => panels.plan(),
            Self::State(state) => LayerPlan::Recurrent(state.shape()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Panels(panels) => panels.len(),
            Self::State(state) => state.len(),
        }
    }

    fn trimmable_to(&self, len: usize) -> bool {
        match self {
            Self::Panels(panels) => panels.trimmable_to(len),
            Self::State(state) => state.trimmable_to(len),
        }
    }

    fn used_bytes(&self) -> u64 {
        match self {
            Self::Panels(panels) => panels.used_bytes(),
            Self::State(state) => state.allocated_bytes(),
        }
    }

    fn allocated_bytes(&self) -> u64 {
        match self {
            Self::Panels(panels) => panels.allocated_bytes(),
            Self::State(state) => state.allocated_bytes(),
        }
    }
}

impl OwnRow {
    pub(super) fn new(plans: &[LayerPlan]) -> Self {
        Self {
            layers: plans.iter().map(|&plan| OwnLayer::new(plan)).collect(),
            written: 0,
            fence: Fence::default(),
        }
    }

    /// A row of layers that hold `len` positions each, all of them written.
    pub(super) fn of(layers: Vec<OwnLayer>, len: usize) -> Self {
        Self {
            layers,
            written: len,
            fence: Fence::default(),
        }
    }

    pub(super) fn layers(&self) -> usize {
        self.layers.len()
    }

    /// One layer, once everything is written.
    pub(super) fn written_layer(&self, layer: usize) -> Result<&OwnLayer, CacheError> {
        self.len()?;
        self.fence.evaluate()?;
        let layers = self.layers.len();
        self.layers
            .get(layer)
            .ok_or(CacheError::NoSuchLayer { layer, layers })
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = LayerPlan> {
        self.layers.iter().map(OwnLayer::plan)
    }

    /// What the first layer holds: the row's length, unless a forward stopped half-way.
    pub(super) fn width(&self) -> usize {
        self.layers.first().map_or(0, OwnLayer::len)
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
        super::same_len(self.layers.iter().map(OwnLayer::len))
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
        let scheme = held.plan().kv().map_or(KvScheme::Full, |kv| kv.scheme);
        let buffer = match held {
            OwnLayer::Panels(panels) => panels.room(added, &mut self.fence)?,
            OwnLayer::State(state) => state.room(added, &mut self.fence)?,
        };
        let positions = start..start.saturating_add(added);
        Ok(Room::new(buffer, scheme, positions, self.fence.0.as_ref()))
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

    /// The first layer that can't be cut to `len`.
    pub(super) fn untrimmable_to(&self, len: usize) -> Option<usize> {
        self.layers.iter().position(|layer| !layer.trimmable_to(len))
    }

    /// Only where every layer [can be cut](Self::untrimmable_to).
    pub(super) fn trim_to(&mut self, len: usize) -> Result<(), CacheError> {
        for layer in &mut self.layers {
            match layer {
                OwnLayer::Panels(panels) => panels.trim_to(len, &mut self.fence)?,
                OwnLayer::State(state) => state.trim_to(len),
            }
        }
        self.written = len;
        Ok(())
    }

    /// Has buffers for all positions grow to this many at once.
    pub(super) fn expect(&mut self, positions: usize) {
        for layer in &mut self.layers {
            if let OwnLayer::Panels(panels) = layer {
                panels.expect(positions);
            }
        }
    }

    /// Gives up capacity that what is held doesn't need, where that is worth a copy.
    pub(super) fn compact(&mut self) -> Result<(), CacheError> {
        self.len()?;
        // What is known to be written needs no fence, which would keep a forward's output alive.
        self.fence.wait()?;
        for layer in &mut self.layers {
            if let OwnLayer::Panels(panels) = layer {
                panels.compact(&mut self.fence)?;
            }
        }
        Ok(())
    }

    /// What to evaluate, so that everything is written. The buffers are inputs of it.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.fence.0.iter().map(Rc::as_ref)
    }

    /// What one layer holds: keys and values as `[heads, positions, dim]`, or the two parts of a recurrent layer. Evaluates.
    pub(super) fn positions(&self, layer: usize) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match self.written_layer(layer)? {
            OwnLayer::Panels(panels) => panels.positions(),
            OwnLayer::State(state) => state.positions(),
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.layers.iter().map(OwnLayer::used_bytes).sum()
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.layers.iter().map(OwnLayer::allocated_bytes).sum()
    }
}
