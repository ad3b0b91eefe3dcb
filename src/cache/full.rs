//! One full-attention layer as columns: a keys and a values buffer for some rows, filled from the left.

use std::rc::Rc;

use mlx_rs::Array;

use super::buffers::Buffers;
use super::{CacheError, KvScheme, KvShape, Seen, capacity_for};

/// Keys and values of `rows` rows. The first `width` columns of the buffers hold something; their capacity is
/// always `capacity_for(width)`, so that what is allocated follows from what is held.
#[derive(Clone)]
pub(super) struct Full {
    shape: KvShape,
    rows: usize,
    width: usize,
    held: Option<Buffers>,
    /// There and with no other handle, where nothing else shares the buffers: then a kernel may write past `width`, in place.
    own: Option<Rc<()>>,
}

impl Full {
    pub(super) fn new(shape: KvShape) -> Self {
        Self {
            shape,
            rows: 1,
            width: 0,
            held: None,
            own: None,
        }
    }

    pub(super) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// One row's layer that holds these buffers, of `capacity_for(width)` columns.
    pub(super) fn of(shape: KvShape, width: usize, held: Buffers) -> Self {
        Self {
            shape,
            rows: 1,
            width,
            held: Some(held),
            own: None,
        }
    }

    /// Whether it [can grow](Self::grown): of one row, in full precision, which holds something.
    pub(super) fn can_grow(&self) -> bool {
        self.shape.scheme == KvScheme::Full && self.rows == 1 && self.held.is_some()
    }

    /// Buffers of keys and values with room for one position more, which counts as held from now on: a kernel is to write it in place, and
    /// to be under way before anything else looks at them. Only where that [can be](Self::can_grow).
    pub(super) fn grown(&mut self) -> Result<[Array; 2], CacheError> {
        let (old, capacity) = (self.capacity(), capacity_for(self.width + 1));
        let held = match self.held.take() {
            Some(held) => held,
            None => Buffers::empty(self.shape, self.rows, capacity)?,
        };
        let alone = self.own.as_ref().is_some_and(|own| Rc::strong_count(own) == 1);
        let held = if capacity > old {
            held.widened(0, capacity)?
        } else if alone {
            held
        } else {
            held.written(&Buffers::empty(self.shape, 1, 1)?, self.width)?
        };
        if capacity > old || !alone {
            self.own = Some(Rc::default());
        }
        let both = held.clone().both()?;
        self.width += 1;
        self.held = Some(held);
        Ok(both)
    }

    fn capacity(&self) -> usize {
        if self.held.is_some() {
            capacity_for(self.width)
        } else {
            0
        }
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.held.iter().flat_map(Buffers::arrays)
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.rows * self.capacity()) as u64 * self.shape.bytes_per_column()
    }

    /// Writes `[rows, heads, L, dim]` keys and values after what is held; gives back all `width` columns, or what was
    /// given where nothing was held. Drop that before the next call.
    pub(super) fn append(&mut self, layer: usize, keys: &Array, values: &Array) -> Result<Seen, CacheError> {
        let (given, added) = Buffers::new_positions(layer, self.shape, self.rows, keys, values)?;
        let new = given.held(self.shape.scheme)?;
        let (before, after) = (self.width, self.width + added);
        let (old, capacity) = (self.capacity(), capacity_for(after));
        // Taken, so that no second handle keeps MLX from writing in place. After an error the cache is
        // half-written: its width says so, since other layers' differ.
        let held = match self.held.take() {
            None => new.widened(0, capacity)?,
            Some(held) if capacity > old => held.widened(0, capacity)?.written(&new, before)?,
            Some(held) => held.written(&new, before)?,
        };
        let seen = if before == 0 {
            given.seen(after)
        } else {
            held.clone().seen_as(self.shape.scheme, after)
        };
        self.width = after;
        self.held = Some(held);
        seen
    }

    /// Keeps the first `width` columns, in a buffer of just the capacity that these need.
    pub(super) fn trim_to(&mut self, width: usize) -> Result<(), CacheError> {
        // What others have seen past it stays as it is.
        self.own = None;
        if width == 0 {
            self.held = None;
        } else if capacity_for(width) < self.capacity()
            && let Some(held) = &self.held
        {
            self.held = Some(held.cut(0..capacity_for(width))?.owned()?);
        }
        self.width = width;
        Ok(())
    }

    /// What the first row holds, keys and values as float32 `[heads, width, dim]`. Evaluates.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match &self.held {
            Some(held) => held.cut(0..self.width)?.read(self.shape.scheme),
            None => Ok((Vec::new(), Vec::new())),
        }
    }

    /// These rows in this order, without their first `drop` columns.
    pub(super) fn rows_from(&self, rows: &[usize], drop: usize) -> Result<Self, CacheError> {
        let width = self.width - drop;
        let capacity = capacity_for(width);
        let end = (drop + capacity).min(self.capacity());
        let held = match &self.held {
            Some(held) if width > 0 => Some(held.cut(drop..end)?.rows(rows)?.widened(0, capacity)?),
            _ => None,
        };
        Ok(Self {
            shape: self.shape,
            rows: rows.len(),
            width,
            held,
            own: None,
        })
    }

    /// The rows of `self`, then those of `other`, right-aligned: the narrower side is padded with zeros on
    /// its left.
    pub(super) fn joined(&self, other: &Self) -> Result<Self, CacheError> {
        let width = self.width.max(other.width);
        let held = if width == 0 {
            None
        } else {
            Some(self.aligned(width)?.beside(&other.aligned(width)?)?)
        };
        Ok(Self {
            shape: self.shape,
            rows: self.rows + other.rows,
            width,
            held,
            own: None,
        })
    }

    /// The buffers with columns moved right so that `width` are filled, zeros on the left.
    fn aligned(&self, width: usize) -> Result<Buffers, CacheError> {
        let capacity = capacity_for(width);
        match &self.held {
            Some(held) if self.width == width => Ok(held.clone()),
            Some(held) => held.cut(0..self.width)?.widened(width - self.width, capacity),
            None => Buffers::empty(self.shape, self.rows, capacity),
        }
    }
}
