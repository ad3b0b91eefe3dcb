//! One sliding-window layer as columns: a ring of the window's columns for some rows.

use mlx_rs::Array;

use super::buffers::Buffers;
use super::plan::ring_columns_for;
use super::{CacheError, KvShape, Seen};

/// Keys and values of the last columns of `rows` rows. Column `c`, counted from the rows' first, lies in slot `c % window`,
/// and the buffers have `ring_columns_for(width)` of them: the order, too, follows from nothing but how many columns there
/// have been.
#[derive(Clone)]
pub(super) struct Ring {
    shape: KvShape,
    window: usize,
    rows: usize,
    /// Columns so far, those that have been overwritten among them.
    width: usize,
    held: Option<Buffers>,
}

impl Ring {
    pub(super) fn new(shape: KvShape, window: usize) -> Self {
        Self {
            shape,
            window,
            rows: 1,
            width: 0,
            held: None,
        }
    }

    /// One row's layer that holds these buffers, of `ring_columns_for(width)` columns.
    pub(super) fn of(shape: KvShape, window: usize, width: usize, held: Buffers) -> Self {
        Self {
            shape,
            window,
            rows: 1,
            width,
            held: Some(held),
        }
    }

    pub(super) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(super) fn window(&self) -> usize {
        self.window
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.held.iter().flat_map(Buffers::arrays)
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let columns = self.held.as_ref().map_or(0, Buffers::columns);
        (self.rows * columns) as u64 * self.shape.bytes_per_column()
    }

    /// Writes `[rows, heads, L, dim]` keys and values over the oldest; gives back what the new positions may see: the ring as
    /// it lies where there is one, else what the first of them sees, from the oldest on, and all of them, as they were given
    /// where nothing was held.
    /// [`Sight`](super::Sight) says which is which. Drop views before the next call.
    pub(super) fn append(&mut self, layer: usize, keys: &Array, values: &Array) -> Result<Seen, CacheError> {
        let (given, added) = Buffers::new_positions(layer, self.shape, self.rows, keys, values)?;
        let new = given.held(self.shape.scheme)?;
        let (before, after) = (self.width, self.width + added);
        let (held, (seen, columns)) = if added == 1 {
            let capacity = ring_columns_for(after, self.window);
            // Taken, as in a full layer.
            let held = match self.held.take() {
                None => new.widened(0, capacity)?,
                Some(held) if held.columns() < capacity => held
                    .widened(0, capacity)?
                    .written(&new, self.width % self.window)?,
                Some(held) => held.written(&new, self.width % self.window)?,
            };
            let seen = held.clone();
            (held, (seen, after.min(self.window)))
        } else {
            let seen = match self.last(self.width.min(self.window - 1))? {
                Some(kept) => kept.then(&new)?,
                None => new,
            };
            let columns = seen.columns();
            let last = seen.cut(columns - after.min(self.window)..columns)?;
            (self.placed(&last, after)?, (seen, columns))
        };
        self.width = after;
        self.held = Some(held);
        if before == 0 {
            given.seen(columns)
        } else {
            seen.seen_as(self.shape.scheme, columns)
        }
    }

    /// The last `columns` columns that are held, from the oldest on.
    fn last(&self, columns: usize) -> Result<Option<Buffers>, CacheError> {
        let Some(held) = self.held.as_ref().filter(|_| columns > 0) else {
            return Ok(None);
        };
        // The slots of the oldest, and after the newest.
        let (from, to) = (
            (self.width - columns) % self.window,
            (self.width - 1) % self.window + 1,
        );
        let ordered = if from < to {
            held.cut(from..to)
        } else {
            held.cut(from..self.window)?.then(&held.cut(0..to)?)
        };
        ordered.map(Some)
    }

    /// The last columns, from the oldest on, as they lie in a ring of `width` columns so far.
    fn placed(&self, last: &Buffers, width: usize) -> Result<Buffers, CacheError> {
        let columns = last.columns();
        let newest = if width > self.window {
            width % self.window
        } else {
            0
        };
        if newest == 0 {
            last.widened(0, ring_columns_for(width, self.window))
        } else {
            let split = columns - newest;
            last.cut(split..columns)?.then(&last.cut(0..split)?)
        }
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it to this width: what lies beyond has overwritten nothing.
    pub(super) fn trimmable_to(&self, width: usize) -> bool {
        width == 0 || width == self.width || (width < self.width && self.width <= self.window)
    }

    /// Keeps the first `width` columns; only where that [can be done](Self::trimmable_to).
    pub(super) fn trim_to(&mut self, width: usize) -> Result<(), CacheError> {
        let columns = ring_columns_for(width, self.window);
        if width == 0 {
            self.held = None;
        } else if let Some(held) = self.held.as_ref().filter(|held| columns < held.columns()) {
            self.held = Some(held.cut(0..columns)?.owned()?);
        }
        self.width = width;
        Ok(())
    }

    /// What the first row holds, from the oldest on: keys and values as float32 `[heads, columns, dim]`. Evaluates.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match self.last(self.width.min(self.window))? {
            Some(last) => last.read(self.shape.scheme),
            None => Ok((Vec::new(), Vec::new())),
        }
    }

    /// These rows in this order, without their first `drop` columns.
    pub(super) fn rows_from(&self, rows: &[usize], drop: usize) -> Result<Self, CacheError> {
        let width = self.width - drop;
        let held = match &self.held {
            Some(held) if drop == 0 => Some(held.rows(rows)?.owned()?),
            _ => match self.last(width.min(self.window))? {
                Some(last) => Some(self.placed(&last.rows(rows)?, width)?),
                None => None,
            },
        };
        Ok(Self {
            rows: rows.len(),
            width,
            held,
            ..*self
        })
    }

    /// The rows of `self`, then those of `other`, right-aligned: the narrower side is padded with zeros on its left.
    pub(super) fn joined(&self, other: &Self) -> Result<Self, CacheError> {
        let width = self.width.max(other.width);
        let held = if width == 0 {
            None
        } else {
            Some(self.aligned(width)?.beside(&other.aligned(width)?)?)
        };
        Ok(Self {
            rows: self.rows + other.rows,
            width,
            held,
            ..*self
        })
    }

    /// The buffers as they would lie if `width` columns had been, the first of them zeros.
    fn aligned(&self, width: usize) -> Result<Buffers, CacheError> {
        let columns = width.min(self.window);
        match (&self.held, self.last(self.width.min(self.window))?) {
            (Some(held), _) if self.width == width => Ok(held.clone()),
            (_, Some(last)) => {
                let padded = last.widened(columns - last.columns(), columns)?;
                self.placed(&padded, width)
            }
            (_, None) => Buffers::empty(self.shape, self.rows, ring_columns_for(width, self.window)),
        }
    }
}
