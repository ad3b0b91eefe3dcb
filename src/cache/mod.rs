//! Per-layer state of rows and its operations: adopt, extend, filter, extract.
//!
//! A [`RowCache`] is one row, alone: what prefill fills, what the prompt cache keeps, what a lone row decodes
//! with. A [`BatchCache`] is the running batch: an adopted row as it is, or rows right-aligned in one tensor
//! per layer. Every offset, padding and length lives on the host; arrays are only ever `[rows, heads,
//! columns, dim]` buffers. The operations follow mlx-lm's caches of the same names.

mod batch;
mod full;
mod plan;
mod row;

pub use batch::BatchCache;
pub use plan::{CachePlan, GROWTH, KvShape, capacity_for};
pub use row::RowCache;

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
    /// Keys or values of another shape than the model's caches have. Nothing was changed.
    #[error("layer {layer} was given {what} of shape {found:?}, expected {expected:?}")]
    Shape {
        /// The layer.
        layer: usize,
        /// Keys or values.
        what: &'static str,
        /// The shape given.
        found: Vec<i32>,
        /// The shape that fits.
        expected: Vec<i32>,
    },
    /// Keys or values of another type than the model's caches have. Nothing was changed.
    #[error("layer {layer} was given {what} of type {found:?}, expected {expected:?}")]
    Dtype {
        /// The layer.
        layer: usize,
        /// Keys or values.
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
    /// A row of another model. Nothing was changed.
    #[error("the row belongs to another model: its caches have another shape than the batch's")]
    OtherModel,
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
