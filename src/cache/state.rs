//! One recurrent layer as columns: the last inputs of its convolution and its state, for some rows.

use mlx_rs::ops::{concatenate, zeros_dtype};
use mlx_rs::{Array, Dtype};

use super::buffers::{check, floats, owned, select};
use super::{CacheError, Doing, RecurrentShape, extent};

/// What `rows` rows have come to after `width` columns, padding included.
#[derive(Clone)]
pub(super) struct State {
    shape: RecurrentShape,
    rows: usize,
    width: usize,
    held: Option<Held>,
}

#[derive(Clone)]
struct Held {
    /// `[rows, conv, conv_features]`.
    conv: Array,
    /// `[rows, heads, value_dim, key_dim]` float32.
    state: Array,
}

/// A recurrent layer in the course of a forward: what it held before, and what it comes to hold.
pub struct Recurrence<'a> {
    layer: usize,
    of: &'a mut State,
    added: usize,
    held: Held,
}

impl Recurrence<'_> {
    /// The last rows of the convolution's input, `[rows, conv, conv_features]`: zeros before the first.
    pub fn conv(&self) -> &Array {
        &self.held.conv
    }

    /// The state, `[rows, heads, value_dim, key_dim]` float32: zeros before the first position.
    pub fn state(&self) -> &Array {
        &self.held.state
    }

    /// Stores both as they are after the new positions, in place of what was held: of the same shapes and types. The layer
    /// counts as that much longer. Without it, nothing changes.
    pub fn store(self, conv: Array, state: Array) -> Result<(), CacheError> {
        let layer = self.layer;
        for (what, array, before) in [
            ("the convolution's input", &conv, &self.held.conv),
            ("a state", &state, &self.held.state),
        ] {
            check(layer, what, array, before.shape(), before.dtype())?;
        }
        self.of.width += self.added;
        self.of.held = Some(Held { conv, state });
        Ok(())
    }
}

impl State {
    pub(super) fn new(shape: RecurrentShape) -> Self {
        Self {
            shape,
            rows: 1,
            width: 0,
            held: None,
        }
    }

    /// One row's layer that has come to these two arrays.
    pub(super) fn of(shape: RecurrentShape, width: usize, conv: Array, state: Array) -> Self {
        Self {
            shape,
            rows: 1,
            width,
            held: Some(Held { conv, state }),
        }
    }

    pub(super) fn shape(&self) -> RecurrentShape {
        self.shape
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.held.iter().flat_map(|held| [&held.conv, &held.state])
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.held
            .as_ref()
            .map_or(0, |_| self.rows as u64 * self.shape.bytes())
    }

    /// For `added` positions of each row.
    pub(super) fn recurrence(&mut self, layer: usize, added: usize) -> Result<Recurrence<'_>, CacheError> {
        let held = self.held_or_zeros()?;
        Ok(Recurrence {
            layer,
            of: self,
            added,
            held,
        })
    }

    fn held_or_zeros(&self) -> Result<Held, CacheError> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let RecurrentShape {
            conv,
            conv_features,
            heads,
            value_dim,
            key_dim,
            dtype,
        } = self.shape;
        let zeros = |shape: &[usize], dtype| {
            let shape: Vec<i32> = shape.iter().map(|&n| extent(n)).collect();
            zeros_dtype(&shape, dtype).doing("make an empty cache")
        };
        Ok(Held {
            conv: zeros(&[self.rows, conv, conv_features], dtype)?,
            state: zeros(&[self.rows, heads, value_dim, key_dim], Dtype::Float32)?,
        })
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it to this width: what it has taken in can't be taken out again.
    pub(super) fn trimmable_to(&self, width: usize) -> bool {
        width == 0 || width == self.width
    }

    /// Keeps all or nothing.
    pub(super) fn trim_to(&mut self, width: usize) {
        if width == 0 {
            self.held = None;
        }
        self.width = width;
    }

    /// What the first row holds, as float32: the convolution's input and the state. Evaluates.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match &self.held {
            Some(held) => Ok((floats(&held.conv)?, floats(&held.state)?)),
            None => Ok((Vec::new(), Vec::new())),
        }
    }

    /// These rows in this order, of which `drop` columns less are counted: all of them were padding.
    pub(super) fn rows_from(&self, rows: &[usize], drop: usize) -> Result<Self, CacheError> {
        let width = self.width - drop;
        let held = match &self.held {
            Some(held) if width > 0 => {
                let taken = |array| owned(&select(array, rows)?);
                Some(Held {
                    conv: taken(&held.conv)?,
                    state: taken(&held.state)?,
                })
            }
            _ => None,
        };
        Ok(Self {
            shape: self.shape,
            rows: rows.len(),
            width,
            held,
        })
    }

    /// The rows of `self`, then those of `other`.
    pub(super) fn joined(&self, other: &Self) -> Result<Self, CacheError> {
        let width = self.width.max(other.width);
        let held = if width == 0 {
            None
        } else {
            let (ours, theirs) = (self.held_or_zeros()?, other.held_or_zeros()?);
            let join = |a: &Array, b: &Array| concatenate(&[a, b], 0).doing("join caches");
            Some(Held {
                conv: join(&ours.conv, &theirs.conv)?,
                state: join(&ours.state, &theirs.state)?,
            })
        };
        Ok(Self {
            shape: self.shape,
            rows: self.rows + other.rows,
            width,
            held,
        })
    }
}
