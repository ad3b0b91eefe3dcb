//! The memory of an operation's inputs and outputs while it runs.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::slice;

use super::dtype::{Element, bytes_of};
use crate::{
    MLX_BRIDGE_COL_CONTIGUOUS, MLX_BRIDGE_ROW_CONTIGUOUS, mlx_bridge_tensor, mlx_dtype, mlx_dtype__MLX_BOOL,
};

/// An input: memory that is read, described by shape and strides.
#[repr(transparent)]
pub struct TensorView<'a> {
    raw: mlx_bridge_tensor,
    memory: PhantomData<&'a [u8]>,
}

/// An output: row-contiguous memory that is to be written in full, or, if it updates an input, begins as that.
#[repr(transparent)]
pub struct TensorViewMut<'a> {
    raw: mlx_bridge_tensor,
    memory: PhantomData<&'a mut [u8]>,
}

/// A slice over what the bridge describes; C++ leaves the pointer null where there is nothing.
///
/// # Safety
/// `data` points to `count` values of `T` that live and aren't written for `'a`, unless `count` is 0.
unsafe fn slice_or_empty<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { slice::from_raw_parts(data, count) }
}

impl<'a> TensorView<'a> {
    /// # Safety
    /// The `count` descriptions at `raw` are what the bridge passes to a call, and live for `'a`.
    pub(super) unsafe fn from_raw(raw: *const mlx_bridge_tensor, count: usize) -> &'a [Self] {
        // SAFETY: the view is a transparent wrapper; the rest is promised by the caller.
        unsafe { slice_or_empty(raw.cast(), count) }
    }

    /// The extents, `[]` for a scalar.
    pub fn shape(&self) -> &'a [i32] {
        // SAFETY: the bridge gives `ndim` extents that outlive the call.
        unsafe { slice_or_empty(self.raw.shape, self.raw.ndim) }
    }

    /// Steps in elements along each axis: 0 where broadcast, negative where reversed.
    pub fn strides(&self) -> &'a [i64] {
        // SAFETY: the bridge gives `ndim` strides that outlive the call.
        unsafe { slice_or_empty(self.raw.strides, self.raw.ndim) }
    }

    /// The element type.
    pub fn dtype(&self) -> mlx_dtype {
        self.raw.dtype
    }

    /// Elements by shape; 1 for a scalar.
    pub fn len(&self) -> usize {
        self.raw.size
    }

    /// Whether an extent is 0.
    pub fn is_empty(&self) -> bool {
        self.raw.size == 0
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_row_contiguous(&self) -> bool {
        self.raw.flags & MLX_BRIDGE_ROW_CONTIGUOUS != 0
    }

    /// Whether the elements lie in column-major order without gaps, as in a transposed matrix.
    pub fn is_col_contiguous(&self) -> bool {
        self.raw.flags & MLX_BRIDGE_COL_CONTIGUOUS != 0
    }

    /// The elements in row-major order, where they lie so and `T` reads the element type.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        if !T::reads(self.raw.dtype) || !self.is_row_contiguous() {
            return None;
        }
        // SAFETY: row-contiguous means `size` elements from `data` on; `T` has their size and takes any bits; MLX
        // aligns its buffers, and offsets are whole elements. Nobody writes an input while its reader runs.
        Some(unsafe { slice_or_empty(self.raw.data.cast::<T>(), self.raw.size) })
    }

    /// The memory from the first element to the farthest one, to be walked by [`strides`](Self::strides); `None` if a
    /// stride is negative or `T` doesn't read the element type.
    pub fn storage<T: Element>(&self) -> Option<&'a [T]> {
        if !T::reads(self.raw.dtype) {
            return None;
        }
        if self.is_empty() {
            return Some(&[]);
        }
        let mut farthest = 0usize;
        for (&extent, &stride) in self.shape().iter().zip(self.strides()) {
            let steps = (extent - 1) as usize;
            if steps > 0 {
                farthest += steps * usize::try_from(stride).ok()?;
            }
        }
        // SAFETY: index 0 and the farthest index are elements of the array, so all between lies in its buffer, and
        // the rest is as in `as_slice`.
        Some(unsafe { slice_or_empty(self.raw.data.cast::<T>(), farthest + 1) })
    }

    /// The element at an index; `None` outside of the shape or if `T` doesn't read the element type.
    pub fn get<T: Element>(&self, index: &[usize]) -> Option<T> {
        if !T::reads(self.raw.dtype) || index.len() != self.raw.ndim {
            return None;
        }
        let mut at = 0isize;
        for ((&i, &extent), &stride) in index.iter().zip(self.shape()).zip(self.strides()) {
            if i >= extent as usize {
                return None;
            }
            at += i as isize * stride as isize;
        }
        // SAFETY: the index lies inside of the shape, so the strides lead to an element of the buffer.
        Some(unsafe { self.raw.data.cast::<T>().offset(at).read() })
    }

    /// The elements in row-major order: borrowed where they lie so, else gathered. `None` if `T` doesn't read the
    /// element type.
    pub fn to_row_major<T: Element>(&self) -> Option<Cow<'a, [T]>> {
        if let Some(slice) = self.as_slice() {
            return Some(Cow::Borrowed(slice));
        }
        if !T::reads(self.raw.dtype) {
            return None;
        }
        let mut gathered = Vec::with_capacity(self.len());
        if !self.is_empty() {
            self.gather(0, 0, &mut gathered);
        }
        Some(Cow::Owned(gathered))
    }

    /// Appends all elements below an axis, from an offset in elements on.
    fn gather<T: Element>(&self, axis: usize, offset: isize, into: &mut Vec<T>) {
        let (Some(&extent), Some(&stride)) = (self.shape().get(axis), self.strides().get(axis)) else {
            // SAFETY: every axis' index was inside of its extent, so this is an element of the buffer.
            into.push(unsafe { self.raw.data.cast::<T>().offset(offset).read() });
            return;
        };
        for i in 0..extent as isize {
            self.gather(axis + 1, offset + i * stride as isize, into);
        }
    }

    /// An input's memory for an operation that writes to it in place: what is written stays in the array that was
    /// passed, for whoever reads it later. `None` under the conditions of [`as_slice`](Self::as_slice).
    ///
    /// To MLX an input is read only. It orders an operation after those that made its inputs and after nothing else,
    /// and it lets arrays share memory: a reshaped or sliced array, often a copied or cast one, is a view.
    ///
    /// # Safety
    /// While the slice lives, nobody else reads or writes this memory:
    /// - no other slice or view of it, of this or of another input of the same call (an array passed twice counts);
    /// - no operation on another stream, and no code that holds a slice of an evaluated array's data. Operations of
    ///   one stream run one after another, so those on the stream of this operation don't count.
    ///
    /// Beyond memory safety, the content is what the caller means only if every reader that expects the old one, views
    /// included, has run before, and every reader that expects the new one depends on an output of this operation or
    /// is put into the graph after it was evaluated.
    pub unsafe fn as_mut_slice_in_place<T: Element>(&self) -> Option<&'a mut [T]> {
        if !T::reads(self.raw.dtype) || !self.is_row_contiguous() {
            return None;
        }
        if self.raw.size == 0 {
            return Some(&mut []);
        }
        // SAFETY: `size` elements from `data` on, as in `as_slice`; exclusive use is promised by the caller.
        Some(unsafe { slice::from_raw_parts_mut(self.raw.data.cast::<T>(), self.raw.size) })
    }

    /// The address of the first element, for kernels with their own walk; null if the tensor is empty.
    pub fn as_ptr(&self) -> *const u8 {
        self.raw.data.cast()
    }
}

impl<'a> TensorViewMut<'a> {
    /// # Safety
    /// The `count` descriptions at `raw` are of the outputs that the bridge passes to a call, live for `'a`, and are
    /// used by nobody else; each output has its own memory.
    pub(super) unsafe fn from_raw(raw: *mut mlx_bridge_tensor, count: usize) -> &'a mut [Self] {
        if count == 0 {
            return &mut [];
        }
        // SAFETY: the view is a transparent wrapper; the rest is promised by the caller.
        unsafe { slice::from_raw_parts_mut(raw.cast(), count) }
    }

    /// The extents, `[]` for a scalar.
    pub fn shape(&self) -> &'a [i32] {
        // SAFETY: the bridge gives `ndim` extents that outlive the call.
        unsafe { slice_or_empty(self.raw.shape, self.raw.ndim) }
    }

    /// The element type.
    pub fn dtype(&self) -> mlx_dtype {
        self.raw.dtype
    }

    /// Elements by shape; 1 for a scalar.
    pub fn len(&self) -> usize {
        self.raw.size
    }

    /// Whether an extent is 0.
    pub fn is_empty(&self) -> bool {
        self.raw.size == 0
    }

    /// The elements in row-major order; `None` if `T` doesn't read the element type. Their values are arbitrary until
    /// written, unless it updates an input. Booleans are written as 0 or 1.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        if !T::reads(self.raw.dtype) {
            return None;
        }
        if self.raw.size == 0 {
            return Some(&mut []);
        }
        // SAFETY: `size` elements, row-contiguous, are this output's alone: allocated by the bridge, or taken over from an input that
        // nobody else needs; `&mut self` makes this the only view; any bits are a valid `T`, also those that the allocator left.
        Some(unsafe { slice::from_raw_parts_mut(self.raw.data.cast::<T>(), self.raw.size) })
    }

    /// The address of the first element, for kernels with their own walk; null if the tensor is empty.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.raw.data.cast()
    }

    /// Makes the output recognizably useless: NaN in every float type, -1 or the maximum in integers, false.
    pub(super) fn poison(&mut self) {
        let byte = if self.raw.dtype == mlx_dtype__MLX_BOOL {
            0
        } else {
            0xff
        };
        if self.raw.size > 0 {
            let bytes = self.raw.size * bytes_of(self.raw.dtype);
            // SAFETY: all elements of the output, of which this is the only view.
            unsafe { self.raw.data.cast::<u8>().write_bytes(byte, bytes) };
        }
    }
}
