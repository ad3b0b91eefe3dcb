//! Keys and values as columns: `[rows, heads, columns, …]` buffers, cut, widened and written by operations of MLX.

use std::ops::Range;

use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::{TryIndexOp, TryIndexUpdateOp, UpdateMode};
use mlx_rs::ops::{concatenate, pad, quantize, zeros_dtype};
use mlx_rs::{Array, Dtype};

use super::{CacheError, Doing, KvQuantization, KvScheme, KvShape, Seen, extent};

/// `[rows, heads, columns, …]` each: keys, then values; where they are quantized, codes, scales and biases of each. One handle
/// to each at the time of an update, or MLX copies them whole.
#[derive(Clone)]
pub(super) struct Buffers {
    arrays: Vec<Array>,
}

impl Buffers {
    /// Of arrays as [`KvShape::columns`] says.
    pub(super) fn of(arrays: Vec<Array>) -> Self {
        Self { arrays }
    }

    /// New positions of rows as they are given, `[rows, heads, L, dim]` keys and values, where they fit a layer; and `L`.
    pub(super) fn new_positions(
        layer: usize,
        shape: KvShape,
        rows: usize,
        keys: &Array,
        values: &Array,
    ) -> Result<(Self, usize), CacheError> {
        let added = keys.shape().get(2).copied().unwrap_or(0);
        for (what, array, dim) in [("keys", keys, shape.key_dim), ("values", values, shape.value_dim)] {
            let expected = [extent(rows), extent(shape.heads), added, extent(dim)];
            if added < 1 {
                return Err(wrong_shape(layer, what, array, &expected));
            }
            check(layer, what, array, &expected, shape.dtype)?;
        }
        let arrays = vec![keys.clone(), values.clone()];
        Ok((Self { arrays }, added.unsigned_abs() as usize))
    }

    /// What is given, as it is held.
    pub(super) fn held(&self, scheme: KvScheme) -> Result<Self, CacheError> {
        let KvScheme::Quantized(KvQuantization { bits, group_size }) = scheme else {
            return Ok(self.clone());
        };
        let mut arrays = Vec::with_capacity(3 * self.arrays.len());
        for array in &self.arrays {
            let quantized = quantize(array, extent(group_size), extent(bits));
            arrays.extend(<[Array; 3]>::from(quantized.doing("quantize keys and values")?));
        }
        Ok(Self { arrays })
    }

    /// Zeros.
    pub(super) fn empty(shape: KvShape, rows: usize, columns: usize) -> Result<Self, CacheError> {
        let zeros = |(_, dim, dtype)| {
            let size = [rows, shape.heads, columns, dim].map(extent);
            zeros_dtype(&size, dtype).doing("make an empty cache")
        };
        let arrays = shape.columns().into_iter().map(zeros).collect::<Result<_, _>>()?;
        Ok(Self { arrays })
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.arrays.iter()
    }

    pub(super) fn columns(&self) -> usize {
        self.arrays.first().map_or(0, columns_of)
    }

    fn each(&self, change: impl Fn(&Array) -> Result<Array, CacheError>) -> Result<Self, CacheError> {
        let arrays = self.arrays.iter().map(change).collect::<Result<_, _>>()?;
        Ok(Self { arrays })
    }

    /// Views of some columns.
    pub(super) fn cut(&self, range: Range<usize>) -> Result<Self, CacheError> {
        let range = extent(range.start)..extent(range.end);
        self.each(|buffer| buffer.try_index((.., .., range.clone())).doing("slice a cache"))
    }

    /// Buffers of their own with the same content: no views that would keep larger ones alive.
    pub(super) fn owned(&self) -> Result<Self, CacheError> {
        self.each(owned)
    }

    /// Buffers of `capacity` columns: `left` columns of zeros, the content, zeros.
    pub(super) fn widened(&self, left: usize, capacity: usize) -> Result<Self, CacheError> {
        self.each(|buffer| {
            let right = capacity.saturating_sub(left + columns_of(buffer));
            if left == 0 && right == 0 {
                return owned(buffer);
            }
            let widths = [(0, 0), (0, 0), (extent(left), extent(right)), (0, 0)];
            pad(buffer, &widths, None, None).doing("widen a cache")
        })
    }

    /// The columns of both, one after the other.
    pub(super) fn then(&self, next: &Self) -> Result<Self, CacheError> {
        self.zip(next, 2)
    }

    /// The rows of both, one after the other.
    pub(super) fn beside(&self, next: &Self) -> Result<Self, CacheError> {
        self.zip(next, 0)
    }

    fn zip(&self, next: &Self, axis: i32) -> Result<Self, CacheError> {
        let both = self.arrays.iter().zip(&next.arrays);
        let joined = both.map(|(a, b)| concatenate(&[a, b], axis).doing("join caches"));
        let arrays = joined.collect::<Result<_, _>>()?;
        Ok(Self { arrays })
    }

    /// These rows in this order: views where they follow each other.
    pub(super) fn rows(&self, rows: &[usize]) -> Result<Self, CacheError> {
        self.each(|buffer| select(buffer, rows))
    }

    /// With `update` at column `at`. Takes the only handles, so that MLX writes in place.
    pub(super) fn written(self, update: &Self, at: usize) -> Result<Self, CacheError> {
        let write = |(buffer, update): (Array, &Array)| {
            let window = (.., .., extent(at)..extent(at + columns_of(update)));
            let result = buffer.try_index_update(window, update, UpdateMode::Replace);
            result.map_err(|error| CacheError::Mlx {
                doing: "write to a cache",
                source: Exception::custom(error.to_string()),
            })
        };
        let arrays = self.arrays.into_iter().zip(&update.arrays).map(write);
        Ok(Self {
            arrays: arrays.collect::<Result<_, _>>()?,
        })
    }

    /// Keys and values, where they are not quantized.
    pub(super) fn both(self) -> Result<[Array; 2], CacheError> {
        self.arrays
            .try_into()
            .map_err(|arrays: Vec<Array>| CacheError::Mlx {
                doing: "look at a cache",
                source: Exception::custom(format!("{} arrays of keys and values", arrays.len())),
            })
    }

    /// The first columns, as a model is given them.
    pub(super) fn seen(self, columns: usize) -> Result<Seen, CacheError> {
        let [keys, values] = self.both()?;
        Ok(Seen::Full {
            keys,
            values,
            columns,
        })
    }

    /// The first columns, as a model is given them, where they are held so.
    pub(super) fn seen_as(self, scheme: KvScheme, columns: usize) -> Result<Seen, CacheError> {
        let KvScheme::Quantized(by) = scheme else {
            return self.seen(columns);
        };
        let mut arrays = self.arrays.into_iter();
        match std::array::from_fn(|_| arrays.next()) {
            [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] => Ok(Seen::Quantized {
                keys: [a, b, c],
                values: [d, e, f],
                by,
                columns,
            }),
            found => Err(CacheError::Mlx {
                doing: "look at a cache",
                source: Exception::custom(format!("{} arrays of six", found.iter().flatten().count())),
            }),
        }
    }

    /// As float32, row-major. Evaluates.
    pub(super) fn read(self, scheme: KvScheme) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        let columns = self.columns();
        let [keys, values] = self.seen_as(scheme, columns)?.in_full()?;
        Ok((floats(&keys)?, floats(&values)?))
    }
}

/// Refuses an array of another shape or type than a layer takes.
pub(super) fn check(
    layer: usize,
    what: &'static str,
    array: &Array,
    shape: &[i32],
    dtype: Dtype,
) -> Result<(), CacheError> {
    if array.shape() != shape {
        return Err(wrong_shape(layer, what, array, shape));
    }
    let (found, expected) = (array.dtype(), dtype);
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

fn wrong_shape(layer: usize, what: &'static str, array: &Array, expected: &[i32]) -> CacheError {
    let (found, expected) = (array.shape().to_vec(), expected.to_vec());
    CacheError::Shape {
        layer,
        what,
        found,
        expected,
    }
}

fn columns_of(buffer: &Array) -> usize {
    buffer.shape().get(2).map_or(0, |n| n.unsigned_abs() as usize)
}

/// A buffer of its own with the same content.
pub(super) fn owned(buffer: &Array) -> Result<Array, CacheError> {
    buffer.contiguous().doing("copy a part of a cache")
}

/// Any array as float32, row-major. Evaluates.
pub(super) fn floats(array: &Array) -> Result<Vec<f32>, CacheError> {
    let flat = array.as_type::<f32>().and_then(|floats| floats.contiguous());
    let values = flat.doing("read a cache")?.to_vec_exact();
    values
        .map_err(|error| Exception::custom(error.to_string()))
        .doing("read a cache")
}

/// These rows of an array, in this order: a view where they follow each other.
pub(super) fn select(buffer: &Array, rows: &[usize]) -> Result<Array, CacheError> {
    let mut parts = Vec::new();
    for run in runs(rows) {
        let range = extent(run.start)..extent(run.end);
        parts.push(buffer.try_index(range).doing("select rows of a cache")?);
    }
    match parts.as_slice() {
        [whole] => Ok(whole.clone()),
        parts => concatenate(parts, 0).doing("gather rows of a cache"),
    }
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
