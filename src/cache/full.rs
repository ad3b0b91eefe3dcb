//! One full-attention layer: a keys and a values buffer for some rows, columns filled from the left.

use std::ops::Range;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::{TryIndexOp, TryIndexUpdateOp, UpdateMode};
use mlx_rs::ops::{concatenate, pad, zeros_dtype};

use super::{CacheError, Doing, KvShape, capacity_for, extent};

/// Keys and values of `rows` rows. The first `width` columns of the buffers hold something; their capacity is
/// always `capacity_for(width)`, so that what is allocated follows from what is held.
#[derive(Clone)]
pub(super) struct Full {
    shape: KvShape,
    rows: usize,
    width: usize,
    held: Option<Held>,
}

/// `[rows, heads, capacity, dim]` each. One handle to each at the time of an update, or MLX copies them
/// whole.
#[derive(Clone)]
struct Held {
    keys: Array,
    values: Array,
}

impl Full {
    pub(super) fn new(shape: KvShape) -> Self {
        Self {
            shape,
            rows: 1,
            width: 0,
            held: None,
        }
    }

    pub(super) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn capacity(&self) -> usize {
        if self.held.is_some() {
            capacity_for(self.width)
        } else {
            0
        }
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.held.iter().flat_map(|held| [&held.keys, &held.values])
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.rows * self.capacity()) as u64 * self.shape.bytes_per_column()
    }

    /// Writes `[rows, heads, L, dim]` keys and values after what is held; gives back `[rows, heads, width,
    /// dim]` views of all. Drop the views before the next call.
    pub(super) fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
    ) -> Result<(Array, Array), CacheError> {
        let added = keys.shape().get(2).copied().unwrap_or(0);
        self.check(layer, "keys", keys, added, self.shape.key_dim)?;
        self.check(layer, "values", values, added, self.shape.value_dim)?;
        let (before, after) = (self.width, self.width + added.unsigned_abs() as usize);
        let (old, new) = (self.capacity(), capacity_for(after));
        // Taken, so that no second handle keeps MLX from writing in place. After an error the cache is
        // half-written: its width says so, since other layers' differ.
        let held = match self.held.take() {
            None => Held {
                keys: widened(keys, 0, new)?,
                values: widened(values, 0, new)?,
            },
            Some(held) => {
                let held = if new > old {
                    Held {
                        keys: widened(&held.keys, 0, new)?,
                        values: widened(&held.values, 0, new)?,
                    }
                } else {
                    held
                };
                Held {
                    keys: written(held.keys, keys, before)?,
                    values: written(held.values, values, before)?,
                }
            }
        };
        let views = (columns(&held.keys, 0..after)?, columns(&held.values, 0..after)?);
        self.width = after;
        self.held = Some(held);
        Ok(views)
    }

    fn check(
        &self,
        layer: usize,
        what: &'static str,
        array: &Array,
        added: i32,
        dim: usize,
    ) -> Result<(), CacheError> {
        let expected = [extent(self.rows), extent(self.shape.heads), added, extent(dim)];
        if added < 1 || array.shape() != expected {
            let (found, expected) = (array.shape().to_vec(), expected.to_vec());
            return Err(CacheError::Shape {
                layer,
                what,
                found,
                expected,
            });
        }
        let (found, expected) = (array.dtype(), self.shape.dtype);
        if found != expected {
            return Err(CacheError::Dtype {
                layer,
                what,
                found,
                expected,
            });
        }
        Ok(())
    }

    /// Keeps the first `width` columns, in a buffer of just the capacity that these need.
    pub(super) fn trim_to(&mut self, width: usize) -> Result<(), CacheError> {
        if width == 0 {
            self.held = None;
        } else if capacity_for(width) < self.capacity()
            && let Some(held) = &self.held
        {
            self.held = Some(held.each(|buffer| owned(&columns(buffer, 0..capacity_for(width))?))?);
        }
        self.width = width;
        Ok(())
    }

    /// What the first row holds, keys and values as float32 `[heads, width, dim]`. Evaluates.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        let Some(held) = &self.held else {
            return Ok((Vec::new(), Vec::new()));
        };
        let read = |buffer: &Array| -> Result<Vec<f32>, CacheError> {
            let filled = columns(buffer, 0..self.width)?;
            let flat = filled.as_type::<f32>().and_then(|floats| floats.contiguous());
            let values = flat.doing("read a cache")?.to_vec_exact();
            values
                .map_err(|error| Exception::custom(error.to_string()))
                .doing("read a cache")
        };
        Ok((read(&held.keys)?, read(&held.values)?))
    }

    /// The columns `from..width` of one row, as a buffer of its own.
    pub(super) fn row(&self, row: usize, from: usize) -> Result<Self, CacheError> {
        self.rows_from(&[row], from)
    }

    /// These rows in this order, without their first `drop` columns.
    pub(super) fn rows_from(&self, rows: &[usize], drop: usize) -> Result<Self, CacheError> {
        let width = self.width - drop;
        let capacity = capacity_for(width);
        let end = (drop + capacity).min(self.capacity());
        let select = |buffer: &Array| -> Result<Array, CacheError> {
            let mut parts = Vec::new();
            for run in runs(rows) {
                let window = (extent(run.start)..extent(run.end), .., extent(drop)..extent(end));
                parts.push(buffer.try_index(window).doing("select rows of a cache")?);
            }
            match parts.as_slice() {
                [whole] if end - drop == capacity => owned(whole),
                [whole] => widened(whole, 0, capacity),
                parts => {
                    let stacked = concatenate(parts, 0).doing("gather rows of a cache")?;
                    if end - drop == capacity {
                        Ok(stacked)
                    } else {
                        widened(&stacked, 0, capacity)
                    }
                }
            }
        };
        let held = match &self.held {
            Some(held) if width > 0 => Some(held.each(select)?),
            _ => None,
        };
        Ok(Self {
            shape: self.shape,
            rows: rows.len(),
            width,
            held,
        })
    }

    /// The rows of `self`, then those of `other`, right-aligned: the narrower side is padded with zeros on
    /// its left.
    pub(super) fn joined(&self, other: &Self) -> Result<Self, CacheError> {
        let width = self.width.max(other.width);
        let rows = self.rows + other.rows;
        if width == 0 {
            return Ok(Self {
                shape: self.shape,
                rows,
                width,
                held: None,
            });
        }
        let (a, b) = (self.aligned(width)?, other.aligned(width)?);
        let join = |a: Array, b: Array| concatenate(&[a, b], 0).doing("join rows of caches");
        let held = Held {
            keys: join(a.keys, b.keys)?,
            values: join(a.values, b.values)?,
        };
        Ok(Self {
            shape: self.shape,
            rows,
            width,
            held: Some(held),
        })
    }

    /// The buffers with columns moved right so that `width` are filled, zeros on the left.
    fn aligned(&self, width: usize) -> Result<Held, CacheError> {
        let capacity = capacity_for(width);
        match &self.held {
            Some(held) if self.width == width => Ok(held.clone()),
            Some(held) => {
                held.each(|buffer| widened(&columns(buffer, 0..self.width)?, width - self.width, capacity))
            }
            None => {
                let zeros = |dim| {
                    let shape = [self.rows, self.shape.heads, capacity, dim].map(extent);
                    zeros_dtype(&shape, self.shape.dtype).doing("make an empty cache")
                };
                Ok(Held {
                    keys: zeros(self.shape.key_dim)?,
                    values: zeros(self.shape.value_dim)?,
                })
            }
        }
    }
}

impl Held {
    fn each(&self, change: impl Fn(&Array) -> Result<Array, CacheError>) -> Result<Self, CacheError> {
        Ok(Self {
            keys: change(&self.keys)?,
            values: change(&self.values)?,
        })
    }
}

/// A view of some columns of a `[rows, heads, columns, dim]` buffer.
fn columns(buffer: &Array, range: Range<usize>) -> Result<Array, CacheError> {
    let range = extent(range.start)..extent(range.end);
    buffer.try_index((.., .., range)).doing("slice a cache")
}

/// A buffer of its own with the same content: no view that would keep a larger one alive.
fn owned(buffer: &Array) -> Result<Array, CacheError> {
    buffer.contiguous().doing("copy a part of a cache")
}

/// A buffer of `capacity` columns: `left` columns of zeros, the content, zeros.
fn widened(buffer: &Array, left: usize, capacity: usize) -> Result<Array, CacheError> {
    let content = buffer.shape().get(2).map_or(0, |n| n.unsigned_abs() as usize);
    let right = capacity.saturating_sub(left + content);
    if left == 0 && right == 0 {
        return owned(buffer);
    }
    let widths = [(0, 0), (0, 0), (extent(left), extent(right)), (0, 0)];
    pad(buffer, &widths, None, None).doing("widen a cache")
}

/// The buffer with `update` at column `at`. Takes the only handle, so that MLX writes in place.
fn written(buffer: Array, update: &Array, at: usize) -> Result<Array, CacheError> {
    let end = at + update.shape().get(2).map_or(0, |n| n.unsigned_abs() as usize);
    let window = (.., .., extent(at)..extent(end));
    let result = buffer.try_index_update(window, update, UpdateMode::Replace);
    result.map_err(|error| CacheError::Mlx {
        doing: "write to a cache",
        source: Exception::custom(error.to_string()),
    })
}

/// Stretches of consecutive rows, each as a range.
fn runs(rows: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some(run) if run.end == row => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}
