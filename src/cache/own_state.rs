//! One recurrent layer of one row in an own buffer.

use std::rc::Rc;

use mlx_rs::Array;
use mlx_rs::ops::zeros;

use super::own::Fence;
use super::panels::read;
use super::{CacheError, Doing, RecurrentShape, extent};

/// What a row has come to after `len` positions: see [`KvLayout::OwnBuffers`](super::KvLayout::OwnBuffers).
#[derive(Clone)]
pub(super) struct OwnState {
    shape: RecurrentShape,
    len: usize,
    /// `[conv_len + state_len]`; written only while this is the one handle to it.
    held: Option<Rc<Array>>,
}

impl OwnState {
    pub(super) fn new(shape: RecurrentShape) -> Self {
        Self {
            shape,
            len: 0,
            held: None,
        }
    }

    /// A layer that holds this buffer, which nobody else writes to.
    pub(super) fn of(shape: RecurrentShape, len: usize, held: Array) -> Self {
        Self {
            shape,
            len,
            held: Some(Rc::new(held)),
        }
    }

    /// The buffer, if there is one.
    pub(super) fn held(&self) -> Option<&Array> {
        self.held.as_deref()
    }

    pub(super) fn shape(&self) -> RecurrentShape {
        self.shape
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |_| self.shape.bytes())
    }

    /// Counts `added` positions more, which are yet to be taken in, and gives the buffer, which is this layer's alone. The
    /// fence is of the writes before. After an error nothing has changed.
    pub(super) fn room(&mut self, added: usize, fence: &mut Fence) -> Result<&Array, CacheError> {
        let floats = self.shape.conv_len() + self.shape.state_len();
        let held = match &self.held {
            Some(held) if Rc::strong_count(held) == 1 => Rc::clone(held),
            Some(held) => {
                fence.wait()?;
                Rc::new(Array::from_slice(read::<f32>(held)?, &[extent(floats)]))
            }
            None => Rc::new(zeros::<f32>(&[extent(floats)]).doing("make an empty cache")?),
        };
        self.len = self.len.saturating_add(added);
        Ok(self.held.insert(held))
    }

    /// Whether [`trim_to`](Self::trim_to) can cut it to this length: what it has taken in can't be taken out again.
    pub(super) fn trimmable_to(&self, len: usize) -> bool {
        len == 0 || len == self.len
    }

    /// Keeps all or nothing.
    pub(super) fn trim_to(&mut self, len: usize) {
        if len == 0 {
            self.held = None;
        }
        self.len = len;
    }

    /// The convolution's input and the state. The caller has seen to it that nothing is still being written.
    pub(super) fn positions(&self) -> Result<(Vec<f32>, Vec<f32>), CacheError> {
        let Some(held) = &self.held else {
            return Ok((Vec::new(), Vec::new()));
        };
        let all = read::<f32>(held)?;
        let (conv, state) = all.split_at(self.shape.conv_len().min(all.len()));
        Ok((conv.to_vec(), state.to_vec()))
    }
}
