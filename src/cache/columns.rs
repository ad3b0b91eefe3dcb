//! One layer of any kind as columns.

use mlx_rs::Array;

use super::full::Full;
use super::ring::Ring;
use super::state::{Recurrence, State};
use super::{CacheError, LayerPlan, Seen};

/// One layer of a lone row, or of rows that are padded on their left to one width.
#[derive(Clone)]
pub(super) enum Columns {
    Full(Full),
    Ring(Ring),
    State(State),
}

impl Columns {
    pub(super) fn new(plan: LayerPlan) -> Self {
        match plan {
            LayerPlan::Full(shape) => Self::Full(Full::new(shape)),
            LayerPlan::Sliding { kv, window } => Self::Ring(Ring::new(kv, window)),
            LayerPlan::Recurrent(shape) => Self::State(State::new(shape)),
        }
    }

    pub(super) fn plan(&self) -> LayerPlan {
        match self {
            Self::Full(full) => LayerPlan::Full(full.shape()),
            Self::Ring(ring) => LayerPlan::Sliding {
                kv: ring.shape(),
                window: ring.window(),
            },
            Self::State(state) => LayerPlan::Recurrent(state.shape()),
        }
    }

    /// Columns so far: the longest row's positions, whether or not they are still held.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Full(full) => full.width(),
            Self::Ring(ring) => ring.width(),
            Self::State(state) => state.width(),
        }
    }

    pub(super) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Full(full) => full.arrays().collect(),
            Self::Ring(ring) => ring.arrays().collect(),
            Self::State(state) => state.arrays().collect(),
        }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        match self {
            Self::Full(full) => full.allocated_bytes(),
            Self::Ring(ring) => ring.allocated_bytes(),
            Self::State(state) => state.allocated_bytes(),
        }
    }

    /// Bytes of what rows of these paddings hold.
    pub(super) fn used_bytes(&self, pads: &[usize]) -> u64 {
        let lengths = pads.iter().map(|pad| self.width().saturating_sub(*pad));
        let used = |len: usize| match self {
            Self::Full(full) => len as u64 * full.shape().bytes_per_column(),
            Self::Ring(ring) => len.min(ring.window()) as u64 * ring.shape().bytes_per_column(),
            Self::State(state) if len > 0 => state.shape().bytes(),
            Self::State(_) => 0,
        };
        lengths.map(used).sum()
    }

    /// As a layer that [can grow](Full::can_grow), if it can.
    pub(super) fn growing(&mut self) -> Option<&mut Full> {
        match self {
            Self::Full(full) => full.can_grow().then_some(full),
            Self::Ring(_) | Self::State(_) => None,
        }
    }

    pub(super) fn append(&mut self, layer: usize, keys: &Array, values: &Array) -> Result<Seen, CacheError> {
        match self {
            Self::Full(full) => full.append(layer, keys, values),
            Self::Ring(ring) => ring.append(layer, keys, values),
            Self::State(_) => Err(CacheError::OtherKind {
                layer,
                needs: "attention",
            }),
        }
    }

    pub(super) fn recurrence(&mut self, layer: usize, added: usize) -> Result<Recurrence<'_>, CacheError> {
        match self {
            Self::State(state) => state.recurrence(layer, added),
            Self::Full(_) | Self::Ring(_) => Err(CacheError::OtherKind {
                layer,
                needs: "recurrent",
            }),
        }
    }

    pub(super) fn trimmable_to(&self, width: usize) -> bool {
        match self {
            Self::Full(full) => width <= full.width(),
            Self::Ring(ring) => ring.trimmable_to(width),
            Self::State(state) => state.trimmable_to(width),
        }
    }

    /// Only where that [can be done](Self::trimmable_to).
    pub(super) fn trim_to(&mut self, width: usize) -> Result<(), CacheError> {
        match self {
            Self::Full(full) => full.trim_to(width),
            Self::Ring(ring) => ring.trim_to(width),
            Self::State(state) => {
                state.trim_to(width);
                Ok(())
            }
        }
    }

    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match self {
            Self::Full(full) => full.positions(),
            Self::Ring(ring) => ring.positions(),
            Self::State(state) => state.positions(),
        }
    }

    /// These rows in this order, without their first `drop` columns.
    pub(super) fn rows_from(&self, rows: &[usize], drop: usize) -> Result<Self, CacheError> {
        Ok(match self {
            Self::Full(full) => Self::Full(full.rows_from(rows, drop)?),
            Self::Ring(ring) => Self::Ring(ring.rows_from(rows, drop)?),
            Self::State(state) => Self::State(state.rows_from(rows, drop)?),
        })
    }

    /// The rows of `self`, then those of `other`, a layer of the same plan: right-aligned.
    pub(super) fn joined(&self, other: &Self) -> Result<Self, CacheError> {
        Ok(match (self, other) {
            (Self::Full(ours), Self::Full(theirs)) => Self::Full(ours.joined(theirs)?),
            (Self::Ring(ours), Self::Ring(theirs)) => Self::Ring(ours.joined(theirs)?),
            (Self::State(ours), Self::State(theirs)) => Self::State(ours.joined(theirs)?),
            _ => return Err(CacheError::OtherModel),
        })
    }
}
