//! One attention layer of one row in an own buffer.

use std::ops::Range;
use std::rc::Rc;

use mlx_rs::error::Exception;
use mlx_rs::ops::zeros_dtype;
use mlx_rs::{Array, ArrayElement};

use super::own::Fence;
use super::plan::own_capacity_for;
use super::quantized::CodePanel;
use super::{CacheError, Doing, KvScheme, KvShape, LayerPlan, PANEL, extent};

/// Keys and values of one row, in panels: see [`KvLayout::OwnBuffers`](super::KvLayout::OwnBuffers). Position `p` lies in
/// slot `p % capacity`. The capacity is what [`own_capacity_for`] says of the last positions that were added, or more, where
/// the row [expects](Self::expect) more, or less, where it was cut or [compacted](Self::compact) since.
#[derive(Clone)]
pub(super) struct Panels {
    shape: KvShape,
    /// How many positions a token sees, where that is not all.
    window: Option<usize>,
    len: usize,
    /// The oldest position that is still held; 0 without a window.
    first: usize,
    /// How many positions it is to have room for at once, where it holds all.
    expected: usize,
    /// `[heads, capacity / PANEL, panel]`; written only while this is the one handle to it.
    held: Option<Rc<Array>>,
}

impl Panels {
    pub(super) fn new(shape: KvShape, window: Option<usize>) -> Self {
        Self {
            shape,
            window,
            len: 0,
            first: 0,
            expected: 0,
            held: None,
        }
    }

    /// A layer that holds this buffer, which nobody else writes to, from position `first` on; nothing where that can't be.
    pub(super) fn of(
        shape: KvShape,
        window: Option<usize>,
        len: usize,
        first: usize,
        held: Array,
    ) -> Option<Self> {
        let panels = Self {
            shape,
            window,
            len,
            first,
            expected: 0,
            held: Some(Rc::new(held)),
        };
        // What the last position sees is there, and no two positions lie in one slot.
        let seen = window.map_or(0, |window| len.saturating_sub(window));
        (first <= seen && len - first <= panels.capacity()).then_some(panels)
    }

    /// The oldest position that is still held.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The buffer, if there is one.
    pub(super) fn held(&self) -> Option<&Array> {
        self.held.as_deref()
    }

    pub(super) fn plan(&self) -> LayerPlan {
        let kv = self.shape;
        match self.window {
            None => LayerPlan::Full(kv),
            Some(window) => LayerPlan::Sliding { kv, window },
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn capacity(&self) -> usize {
        let panels = self.held.as_ref().and_then(|held| held.shape().get(1).copied());
        panels.map_or(0, |panels| panels.unsigned_abs() as usize * PANEL)
    }

    /// How many of the last positions count as held.
    fn kept(&self) -> usize {
        let seen = self.window.map_or(self.len, |window| window.min(self.len));
        seen.min(self.len - self.first)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.kept() as u64 * self.shape.bytes_per_own_position()
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.capacity() as u64 * self.shape.bytes_per_own_position()
    }

    /// Has the next buffer hold this many positions at least, where it is one for all positions.
    pub(super) fn expect(&mut self, positions: usize) {
        self.expected = positions;
    }

    /// The capacity with which the layer grows to `end` by `added`.
    fn capacity_for(&self, end: usize, added: usize) -> usize {
        let expected = self.window.map_or(self.expected, |_| 0);
        own_capacity_for(end.max(expected), added, self.window)
    }

    /// Adds `added` positions, yet to be written, in a buffer that is this layer's alone; gives the buffer. The fence
    /// is of the writes before. After an error nothing has changed.
    pub(super) fn room(&mut self, added: usize, fence: &mut Fence) -> Result<&Array, CacheError> {
        let end = self.len.saturating_add(added);
        let new = self.capacity_for(end, added);
        // What the new positions overwrite.
        let first = self.first.max(end.saturating_sub(new)).min(self.len);
        let held = match &self.held {
            Some(held) if new == self.capacity() && Rc::strong_count(held) == 1 => Rc::clone(held),
            Some(_) if self.len > 0 => Rc::new(self.copy(first..self.len, new, fence)?),
            _ => Rc::new(empty(self.shape, new)?),
        };
        (self.len, self.first) = (end, first);
        Ok(self.held.insert(held))
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it to this length: what the next position will see is held.
    pub(super) fn trimmable_to(&self, len: usize) -> bool {
        let seen = self.window.map_or(0, |window| (len + 1).saturating_sub(window));
        len == 0 || len == self.len || (len < self.len && self.first <= seen)
    }

    /// Keeps the first `len` positions, in a buffer of no more than the capacity that these need; only where that
    /// [can be done](Self::trimmable_to).
    pub(super) fn trim_to(&mut self, len: usize, fence: &mut Fence) -> Result<(), CacheError> {
        if len == 0 {
            *self = Self::new(self.shape, self.window);
            return Ok(());
        }
        let new = self.capacity_for(len, 1);
        if len < self.len && new < self.capacity() {
            let first = self.first.max(len.saturating_sub(new));
            self.held = Some(Rc::new(self.copy(first..len, new, fence)?));
            self.first = first;
        }
        self.len = len;
        Ok(())
    }

    /// Moves what is held into a buffer of just the panels for it, where that sets a quarter of the capacity free, or where
    /// there is room for a chunk: whoever goes on from it may feed smaller ones, and reserve less. It expects nothing any more.
    pub(super) fn compact(&mut self, fence: &mut Fence) -> Result<(), CacheError> {
        self.expected = 0;
        let (old, new) = (self.capacity(), self.kept().next_multiple_of(PANEL));
        if old - new > old / 4 || old > own_capacity_for(self.len, 1, self.window) {
            let first = self.first.max(self.len.saturating_sub(new));
            self.held = Some(Rc::new(self.copy(first..self.len, new, fence)?));
            self.first = first;
        }
        Ok(())
    }

    /// These positions in a buffer of another capacity, in memory of its own; zeros, or what was past the row's length, besides.
    fn copy(&self, positions: Range<usize>, new: usize, fence: &mut Fence) -> Result<Array, CacheError> {
        let Some(held) = &self.held else {
            return empty(self.shape, new);
        };
        fence.wait()?;
        match self.shape.scheme {
            KvScheme::Full => {
                let copy = |slot, from: &[f32], to: &mut [f32]| copy_slot(self.shape, slot, from, to);
                let to = self.moved(positions, held, new, copy)?;
                Ok(Array::from_slice(&to, &size(self.shape, new)))
            }
            KvScheme::Quantized(by) => {
                let panel = CodePanel::new(self.shape, by);
                let copy = |slot, from: &[u32], to: &mut [u32]| panel.copy_slot(slot, from, to);
                let to = self.moved(positions, held, new, copy)?;
                Ok(Array::from_slice(&to, &size(self.shape, new)))
            }
        }
    }

    /// These positions from ring to ring, a slot of a panel at a time where not the whole panel is meant.
    fn moved<T: ArrayElement + Copy + Default>(
        &self,
        positions: Range<usize>,
        held: &Array,
        new: usize,
        copy: impl Fn(usize, &[T], &mut [T]),
    ) -> Result<Vec<T>, CacheError> {
        let (from, panel) = (read::<T>(held)?, self.shape.panel_len());
        let [old_panels, new_panels] = [self.capacity() / PANEL, new / PANEL];
        let mut to = vec![T::default(); self.shape.heads * new_panels * panel];
        let heads = from.chunks_exact(old_panels * panel);
        // As long as nothing goes round, whole panels lie as they did.
        let straight = old_panels.min(new_panels) * PANEL;
        for (from, to) in heads.zip(to.chunks_exact_mut(new_panels * panel)) {
            let mut position = positions.start;
            if positions.end <= straight {
                let panels = position / PANEL * panel..positions.end.div_ceil(PANEL) * panel;
                to[panels.clone()].copy_from_slice(&from[panels]);
                continue;
            }
            while position < positions.end {
                let at = position / PANEL;
                let source = &from[at % old_panels * panel..][..panel];
                let target = &mut to[at % new_panels * panel..][..panel];
                if position.is_multiple_of(PANEL) && position + PANEL <= positions.end {
                    target.copy_from_slice(source);
                    position += PANEL;
                } else {
                    copy(position % PANEL, source, target);
                    position += 1;
                }
            }
        }
        Ok(to)
    }

    /// Keys and values of what is held, from the oldest on, as `[heads, positions, dim]`. The caller has seen to it that
    /// nothing is still being written.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        match (&self.held, self.shape.scheme) {
            (None, _) => Ok((Vec::new(), Vec::new())),
            (Some(held), KvScheme::Full) => {
                self.read_slots(read::<f32>(held)?, |panel, slot, keys, values| {
                    let (panel_keys, panel_values) = panel.split_at(PANEL * self.shape.key_dim);
                    keys.extend(panel_keys.iter().skip(slot).step_by(PANEL));
                    let start = slot * self.shape.value_stride();
                    values.extend(panel_values.iter().skip(start).take(self.shape.value_dim));
                })
            }
            (Some(held), KvScheme::Quantized(by)) => {
                let codes = CodePanel::new(self.shape, by);
                self.read_slots(read::<u32>(held)?, |panel, slot, keys, values| {
                    keys.extend(codes.key(panel, slot));
                    values.extend(codes.value(panel, slot));
                })
            }
        }
    }

    /// What is held, read a slot of a panel at a time.
    fn read_slots<T>(
        &self,
        all: &[T],
        read: impl Fn(&[T], usize, &mut Vec<f32>, &mut Vec<f32>),
    ) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let panel = self.shape.panel_len();
        for head in all.chunks_exact(self.capacity() / PANEL * panel) {
            for position in self.len - self.kept()..self.len {
                let at = position % self.capacity() / PANEL * panel;
                read(&head[at..][..panel], position % PANEL, &mut keys, &mut values);
            }
        }
        Ok((keys, values))
    }
}

/// Copies one slot of a panel of floats.
fn copy_slot(shape: KvShape, slot: usize, from: &[f32], to: &mut [f32]) {
    let values = PANEL * shape.key_dim;
    for at in (slot..values).step_by(PANEL) {
        to[at] = from[at];
    }
    let value = values + slot * shape.value_stride();
    let value = value..value + shape.value_dim;
    to[value.clone()].copy_from_slice(&from[value]);
}

/// A buffer of zeros.
fn empty(shape: KvShape, capacity: usize) -> Result<Array, CacheError> {
    zeros_dtype(&size(shape, capacity), shape.own_dtype()).doing("make an empty cache")
}

/// The extents of a buffer.
fn size(shape: KvShape, capacity: usize) -> [i32; 3] {
    [shape.heads, capacity / PANEL, shape.panel_len()].map(extent)
}

/// What a buffer holds. Nothing may still be being written.
pub(super) fn read<T: ArrayElement>(buffer: &Array) -> Result<&[T], CacheError> {
    buffer
        .try_as_slice::<T>()
        .map_err(|error| Exception::custom(error.to_string()))
        .doing("read a cache")
}
