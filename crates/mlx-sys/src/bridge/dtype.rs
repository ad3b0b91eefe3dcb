//! Which Rust types stand for which of MLX's element types.

use crate::{
    mlx_dtype, mlx_dtype__MLX_BFLOAT16, mlx_dtype__MLX_BOOL, mlx_dtype__MLX_FLOAT16, mlx_dtype__MLX_FLOAT32,
    mlx_dtype__MLX_FLOAT64, mlx_dtype__MLX_INT8, mlx_dtype__MLX_INT16, mlx_dtype__MLX_INT32,
    mlx_dtype__MLX_INT64, mlx_dtype__MLX_UINT8, mlx_dtype__MLX_UINT16, mlx_dtype__MLX_UINT32,
    mlx_dtype__MLX_UINT64,
};

mod sealed {
    pub trait Sealed {}
}

/// A plain number that tensors are read and written as.
///
/// `u8` reads booleans, too, and `u16` the bits of `float16` and `bfloat16`. Every bit pattern is a valid value.
pub trait Element: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// Whether elements of this type can be read as `Self`.
    fn reads(dtype: mlx_dtype) -> bool;
}

macro_rules! element {
    ($($number:ty: $($dtype:ident)|+;)*) => {$(
        impl sealed::Sealed for $number {}
        impl Element for $number {
            fn reads(dtype: mlx_dtype) -> bool {
                [$($dtype),+].contains(&dtype)
            }
        }
    )*};
}

element! {
    u8: mlx_dtype__MLX_UINT8 | mlx_dtype__MLX_BOOL;
    u16: mlx_dtype__MLX_UINT16 | mlx_dtype__MLX_FLOAT16 | mlx_dtype__MLX_BFLOAT16;
    u32: mlx_dtype__MLX_UINT32;
    u64: mlx_dtype__MLX_UINT64;
    i8: mlx_dtype__MLX_INT8;
    i16: mlx_dtype__MLX_INT16;
    i32: mlx_dtype__MLX_INT32;
    i64: mlx_dtype__MLX_INT64;
    f32: mlx_dtype__MLX_FLOAT32;
    f64: mlx_dtype__MLX_FLOAT64;
}

/// Bytes of one element.
pub(super) fn bytes_of(dtype: mlx_dtype) -> usize {
    // SAFETY: a pure function of a number.
    unsafe { crate::mlx_dtype_size(dtype) }
}
