//! One forward over several rows: one sequence of tokens, in which rows are kept apart only where positions meet.

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::concatenate;
use mlx_rs::ops::indexing::TryIndexOp;

use super::{Mask, RopeStep, extent};

/// What the layers of one forward share. Its tokens are one sequence, span after span.
#[derive(Debug)]
pub struct Packed {
    /// Never empty.
    pub spans: Vec<Span>,
    /// All tokens' rotations for kernels, one for each rope of the model; none where spans have their own.
    pub ropes: Vec<RopeStep>,
}

/// Tokens that meet the same caches: some of one row, or one of each row of a batch.
#[derive(Debug)]
pub struct Span {
    /// Rows of the caches.
    pub rows: usize,
    /// New tokens of each row.
    pub added: usize,
    /// Their rotations, one for each rope of the model, for MLX's operations.
    pub ropes: Vec<RopeStep>,
    /// What they may not see, by kinds of layers. Kernels know without it.
    pub masks: Vec<Mask>,
}

impl Span {
    /// Its tokens, of all rows.
    pub fn tokens(&self) -> usize {
        self.rows * self.added
    }
}

impl Packed {
    /// The tokens of the first so many spans.
    pub(super) fn tokens(&self, spans: usize) -> usize {
        self.spans.iter().take(spans).map(Span::tokens).sum()
    }
}

/// Tokens `start..end` of `[tokens, …]`: itself where these are all.
pub(super) fn cut(x: &Array, start: usize, end: usize) -> Result<Array, Exception> {
    if start == 0 && x.shape().first() == Some(&extent(end)) {
        return Ok(x.clone());
    }
    x.try_index(extent(start)..extent(end))
}

/// The tokens of all parts, one after the other.
pub(super) fn joined(parts: &[Array]) -> Result<Array, Exception> {
    match parts {
        [whole] => Ok(whole.clone()),
        parts => concatenate(parts, 0),
    }
}
