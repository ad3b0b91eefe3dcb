//! One layer of one row in an own buffer.

use std::ops::Range;
use std::rc::Rc;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{concatenate, zeros};

use super::own::Fence;
use super::{CacheError, Doing, KvShape, PANEL, capacity_for, extent};

/// Keys and values of one row, in panels: see [`KvLayout::OwnBuffers`](super::KvLayout::OwnBuffers). The capacity is
/// always `capacity_for(len)`, so that what is allocated follows from what is held.
#[derive(Clone)]
pub(super) struct Panels {
    shape: KvShape,
    len: usize,
    /// `[heads, capacity / PANEL, panel]`; written only while this is the one handle to it.
    held: Option<Rc<Array>>,
}

impl Panels {
    pub(super) fn new(shape: KvShape) -> Self {
        Self {
            shape,
            len: 0,
            held: None,
        }
    }

    pub(super) fn shape(&self) -> KvShape {
        self.shape
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        if self.held.is_some() {
            capacity_for(self.len)
        } else {
            0
        }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.capacity() as u64 * self.shape.bytes_per_own_position()
    }

    /// Adds `added` positions, yet to be written, in a buffer that is this layer's alone; gives the buffer. The fence
    /// is of the writes before. After an error nothing has changed.
    pub(super) fn room(&mut self, added: usize, fence: &mut Fence) -> Result<&Array, CacheError> {
        let end = self.len.saturating_add(added);
        let (old, new) = (self.capacity(), capacity_for(end));
        let held = match &self.held {
            Some(held) if new == old && Rc::strong_count(held) == 1 => Rc::clone(held),
            Some(held) if old > 0 => {
                fence.wait()?;
                Rc::new(copy(self.shape, held, old, new)?)
            }
            _ => Rc::new(empty(self.shape, new)?),
        };
        self.len = end;
        Ok(self.held.insert(held))
    }

    /// Keeps the first `len` positions, in a buffer of just the capacity that these need.
    pub(super) fn trim_to(&mut self, len: usize, fence: &mut Fence) -> Result<(), CacheError> {
        let (old, new) = (self.capacity(), capacity_for(len));
        if len == 0 {
            self.held = None;
        } else if new < old
            && let Some(held) = &mut self.held
        {
            fence.wait()?;
            *held = Rc::new(copy(self.shape, held, old, new)?);
        }
        self.len = len;
        Ok(())
    }

    /// Keys and values as `[heads, len, dim]`. The caller has seen to it that nothing is still being written.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        let KvShape {
            heads,
            key_dim,
            value_dim,
            ..
        } = self.shape;
        let mut keys = Vec::with_capacity(heads * self.len * key_dim);
        let mut values = Vec::with_capacity(heads * self.len * value_dim);
        let Some(held) = self.held.as_ref().filter(|_| self.len > 0) else {
            return Ok((keys, values));
        };
        let all = held
            .try_as_slice::<f32>()
            .map_err(|error| Exception::custom(error.to_string()))
            .doing("read a cache")?;
        let per_head = capacity_for(self.len) / PANEL * self.shape.panel_len();
        for head in all.chunks_exact(per_head) {
            let panels = head.chunks_exact(self.shape.panel_len());
            let of_panel = panels.flat_map(|panel| {
                let (keys, values) = panel.split_at(PANEL * key_dim);
                (0..PANEL).map(move |at| (keys.iter().skip(at).step_by(PANEL), values, at))
            });
            for (key, panel_values, at) in of_panel.take(self.len) {
                keys.extend(key);
                let start = at * self.shape.value_stride();
                values.extend(panel_values.iter().skip(start).take(value_dim));
            }
        }
        Ok((keys, values))
    }
}

/// A buffer of zeros.
fn empty(shape: KvShape, capacity: usize) -> Result<Array, CacheError> {
    let shape = [shape.heads, capacity / PANEL, shape.panel_len()].map(extent);
    zeros::<f32>(&shape).doing("make an empty cache")
}

/// The first positions of a buffer of `old` in one of `new`, zeros after them: in memory of its own, evaluated.
fn copy(shape: KvShape, buffer: &Array, old: usize, new: usize) -> Result<Array, CacheError> {
    let kept = old.min(new) / PANEL;
    // Two parts even where one would do: a concatenation of one is that one itself.
    let mut parts = vec![panels(buffer, 0..kept / 2)?, panels(buffer, kept / 2..kept)?];
    if new > old {
        parts.push(empty(shape, new - old)?);
    }
    let copy = concatenate(&parts, 1).doing("copy a cache")?;
    copy.eval().doing("copy a cache")?;
    Ok(copy)
}

/// A view of some panels.
fn panels(buffer: &Array, range: Range<usize>) -> Result<Array, CacheError> {
    let range = extent(range.start)..extent(range.end);
    buffer.try_index((.., range)).doing("slice a cache")
}
