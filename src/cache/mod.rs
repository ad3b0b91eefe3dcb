//! Per-layer state of rows and its operations: adopt, extend, filter, extract; for layers of full attention, of attention
//! in a sliding window, and recurrent ones.
//!
//! A [`RowCache`] is one row, alone: what prefill fills, what the prompt cache keeps, what a lone row decodes
//! with. A [`BatchCache`] is the running batch. Every offset, padding and length lives on the host. The operations
//! follow mlx-lm's caches of the same names.
//!
//! # Layouts
//! A [`CachePlan`] names the [`KvLayout`], which its rows and their batches keep to:
//! - *lone*, columns: an adopted row as it is, a keys and a values buffer `[1, heads, columns, dim]` per layer.
//! - *padded*, columns: rows right-aligned in one such tensor per layer, for attention that wants one. Joining and
//!   leaving copy.
//! - *own buffers*: each row keeps its arrays, in panels. Joining and leaving move nothing.
//!
//! A sliding layer is a ring of its window: as columns, of all rows together; in own buffers, with room for the tokens of
//! a forward besides, all of which are written before the first is read for. A recurrent layer's two arrays have a row for
//! each row. Whatever a layer keeps, it counts the positions that it has been fed, so that a forward which stopped half-way
//! shows. Only what was let go of by no ring, and taken into no state, can be cut off again.
//!
//! # Quantized keys and values
//! An attention layer's [`KvScheme`] says how it holds them. Columns then are three arrays each, packed codes, scales and biases,
//! and all that is done to columns is done to the six alike: groups run along a head's elements, so that no cut along rows or
//! positions goes through one. What is appended is quantized at once, and seen as that. Only a row's first positions, all
//! that one forward appends to an empty layer, are seen as they are by those among themselves, and quantized for the later ones:
//! so mlx-lm does it, which converts a cache after the first piece of a prompt. A batched row's bytes equal a lone one's
//! if their prompts were cut alike.
//!
//! A model writes to a layer through the [`LayerCache`] that [`Layers::layer`] gives for one row and for a batch
//! alike. Columns are appended to, by operations of MLX; in own buffers a [`Room`] is given, which a kernel fills in
//! place. What new tokens see of columns is plain data, a [`Sight`].
//!
//! # Writes in place
//! MLX knows nothing of them, so three rules keep what is read what was written:
//! - A buffer is written only by a row that alone holds it: clones share buffers, and a row that is about to write to
//!   a shared one copies it first. So a clone is a snapshot.
//! - A forward that fills rooms says so by [`Layers::wrote`], with an array that depends on all its writes, and the
//!   rows keep that as their *fence*: the next forward's writes depend on it, and it is evaluated before a buffer is
//!   copied or read. A row whose last forward never said so is as unusable as one whose layers differ.
//! - Buffers never leave this module but as rooms, which borrow the cache; copies of buffers are evaluated at once, so
//!   that none is still to be made when its source is written to.
//!
//! Memory past a row's length is zero, or what an earlier forward wrote there before the row was cut.

mod batch;
mod buffers;
mod columns;
mod full;
mod layer;
mod own;
mod own_state;
mod panels;
mod parts;
mod plan;
mod quantized;
mod ring;
mod row;
mod scheme;
mod seen;
mod shape;
mod sight;
mod state;

pub use batch::BatchCache;
pub use layer::{LayerCache, Layers, Room};
pub use parts::{LayerParts, Part};
pub use plan::{CachePlan, GROWTH, KvLayout, Need, PANEL, capacity_for};
pub use row::RowCache;
pub use scheme::{DEFAULT_GROUP_SIZE, KvQuantization, KvScheme, KvSchemeError, KvSchemes, LayersHeld};
pub use seen::Seen;
pub use shape::{KvShape, LayerPlan, RecurrentShape};
pub use sight::Sight;
pub use state::Recurrence;

use mlx_rs::Dtype;
use mlx_rs::error::Exception;

/// Why an operation on caches failed. The cache it was asked of must not be used further, unless it says
/// otherwise.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// MLX refused an operation.
    #[error("MLX failed to {doing}: {source}")]
    Mlx {
        /// What was being done.
        doing: &'static str,
        /// What MLX said.
        source: Exception,
    },
    /// A forward stopped half-way: layers hold different numbers of positions. The row can't be published.
    #[error(
        "layer {layer} holds {found} positions where layer 0 holds {expected}: a forward stopped half-way"
    )]
    LayersDiffer {
        /// The first layer that differs.
        layer: usize,
        /// What it holds.
        found: usize,
        /// What layer 0 holds.
        expected: usize,
    },
    /// Room was given that no forward has said it filled: it stopped half-way, or asks for room in a layer twice. The
    /// row can't be published. Nothing was changed by the call that is refused.
    #[error(
        "layer {layer} was given room up to position {room}, but only {written} positions are known to be written: \
         a forward stopped half-way"
    )]
    Unwritten {
        /// The layer.
        layer: usize,
        /// Where the room ends.
        room: usize,
        /// Positions that are written.
        written: usize,
    },
    /// Columns can't be given room, and own buffers can't be appended to. Nothing was changed.
    #[error("this is done to caches laid out as {needs}, and this one is not")]
    OtherLayout {
        /// The layout that it is for.
        needs: KvLayout,
    },
    /// Keys and values are for attention layers, states for recurrent ones. Nothing was changed.
    #[error("layer {layer} was taken for a layer of the {needs} kind, which it is not")]
    OtherKind {
        /// The layer.
        layer: usize,
        /// The kind that it is for.
        needs: &'static str,
    },
    /// Keys, values or a state of another shape than the model's caches have. Nothing was changed.
    #[error("layer {layer} was given {what} of shape {found:?}, expected {expected:?}")]
    Shape {
        /// The layer.
        layer: usize,
        /// What was given.
        what: &'static str,
        /// The shape given.
        found: Vec<i32>,
        /// The shape that fits.
        expected: Vec<i32>,
    },
    /// Keys, values or a state of another type than the model's caches have. Nothing was changed.
    #[error("layer {layer} was given {what} of type {found:?}, expected {expected:?}")]
    Dtype {
        /// The layer.
        layer: usize,
        /// What was given.
        what: &'static str,
        /// The type given.
        found: Dtype,
        /// The type that fits.
        expected: Dtype,
    },
    /// A layer that the model does not have. Nothing was changed.
    #[error("there is no layer {layer}: the cache has {layers}")]
    NoSuchLayer {
        /// The layer asked for.
        layer: usize,
        /// How many there are.
        layers: usize,
    },
    /// A row that the batch does not have. Nothing was changed.
    #[error("there is no row {row}: the batch has {rows}")]
    NoSuchRow {
        /// The row asked for.
        row: usize,
        /// How many there are.
        rows: usize,
    },
    /// Rows to keep that are none, or one of them twice. Nothing was changed.
    #[error("rows {keep:?} can't be kept: name at least one, and each only once")]
    BadSelection {
        /// The rows named.
        keep: Vec<usize>,
    },
    /// A cache can't be cut to more than it holds. Nothing was changed.
    #[error("a cache of {held} positions can't be cut to {len}")]
    TooLong {
        /// The length asked for.
        len: usize,
        /// What the cache holds.
        held: usize,
    },
    /// A layer has let go of what the shorter row would need, or can't take out again what it took in. Nothing was changed.
    #[error(
        "a cache of {held} positions can't be cut to {len}: layer {layer} no longer holds what that would need"
    )]
    Untrimmable {
        /// The first such layer.
        layer: usize,
        /// The length asked for.
        len: usize,
        /// What the cache holds.
        held: usize,
    },
    /// Parts from which no row of this plan can be made: too few layers, arrays that are missing or too many, or places of
    /// positions that can't be.
    #[error("layer {layer} can't be put together again: {what}")]
    Parts {
        /// The layer.
        layer: usize,
        /// What is wrong with its parts.
        what: String,
    },
    /// A row of another model. Nothing was changed.
    #[error("the row belongs to another model: its caches have another shape than the batch's")]
    OtherModel,
}

/// A size as MLX takes it; no buffer that fits in memory has an extent past `i32`.
fn extent(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The length that all layers have.
fn same_len(mut lengths: impl Iterator<Item = usize>) -> Result<usize, CacheError> {
    let expected = lengths.next().unwrap_or(0);
    match (1..).zip(lengths).find(|(_, len)| *len != expected) {
        None => Ok(expected),
        Some((layer, found)) => Err(CacheError::LayersDiffer {
            layer,
            found,
            expected,
        }),
    }
}

/// Says what was being done when MLX refused.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, CacheError>;
}

impl<T> Doing<T> for Result<T, Exception> {
    fn doing(self, doing: &'static str) -> Result<T, CacheError> {
        self.map_err(|source| CacheError::Mlx { doing, source })
    }
}
