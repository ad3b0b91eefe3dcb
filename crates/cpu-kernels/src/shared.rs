//! Memory that several threads of a team write, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A slice that is given out in parts that don't overlap.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: whoever takes a part promises that no other thread has it at the same time.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            memory: PhantomData,
        }
    }

    pub(crate) fn start(&self) -> *mut T {
        self.start
    }

    /// A part.
    ///
    /// # Safety
    /// While the part is in use, no other part that overlaps with it is.
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {}",
            self.len
        );
        // SAFETY: within the slice; the rest is promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}
