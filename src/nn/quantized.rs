//! Quantized matrices for MLX's own operations.

use std::ffi::CStr;
use std::rc::Rc;

use super::cuda::{Affine, Cuda};
use super::extent;
use mlx_rs::error::Exception;
use mlx_rs::ops::indexing::TryIndexOp;
use mlx_rs::ops::{dequantize, gather_qmm, matmul, pad, quantized_matmul};
use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::{mlx_array, mlx_optional_dtype, mlx_optional_int};

/// A microscaling format: tiny floats, a tiny float as the scale of each group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Microscaling {
    /// Floats of 4 bits; a power of two for each 32.
    Mxfp4,
    /// Floats of 4 bits; a float of 8 bits for each 16.
    Nvfp4,
    /// Floats of 8 bits; a power of two for each 32.
    Mxfp8,
}

impl Microscaling {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mxfp4, Self::Nvfp4, Self::Mxfp8];

    /// As MLX and config.json name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mxfp4 => "mxfp4",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp8 => "mxfp8",
        }
    }

    fn c_name(self) -> &'static CStr {
        match self {
            Self::Mxfp4 => c"mxfp4",
            Self::Nvfp4 => c"nvfp4",
            Self::Mxfp8 => c"mxfp8",
        }
    }

    /// Bits of an element.
    pub fn bits(self) -> usize {
        match self {
            Self::Mxfp4 | Self::Nvfp4 => 4,
            Self::Mxfp8 => 8,
        }
    }

    /// Elements that share a scale.
    pub fn group_size(self) -> usize {
        match self {
            Self::Nvfp4 => 16,
            Self::Mxfp4 | Self::Mxfp8 => 32,
        }
    }
}

/// A quantized matrix `[out, in]`, packed along `in`.
#[derive(Debug)]
pub struct Quantized {
    /// `[out, in · bits / 32]` uint32.
    packed: Array,
    /// `[out, in / group_size]`.
    scales: Array,
    coding: Coding,
    cuda: Option<Rc<Cuda>>,
}

#[derive(Debug)]
enum Coding {
    /// Biases as the scales.
    Affine {
        biases: Array,
        bits: i32,
        group_size: i32,
    },
    Microscaled(Microscaling),
}

impl Quantized {
    /// Of integers: `packed` `[out, in · bits / 32]` uint32, `scales` and `biases` `[out, in / group_size]`.
    pub fn affine([packed, scales, biases]: [Array; 3], bits: i32, group_size: i32) -> Self {
        Self {
            packed,
            scales,
            coding: Coding::Affine {
                biases,
                bits,
                group_size,
            },
            cuda: Cuda::here(),
        }
    }

    /// Of tiny floats: `packed` `[out, in · bits / 32]` uint32, `scales` `[out, in / group_size]` uint8.
    pub fn microscaled([packed, scales]: [Array; 2], mode: Microscaling) -> Self {
        Self {
            packed,
            scales,
            coding: Coding::Microscaled(mode),
            cuda: Cuda::here(),
        }
    }

    /// `[tokens, in]` to `[tokens, out]`.
    pub fn product(&self, x: &Array) -> Result<Array, Exception> {
        let Self {
            packed,
            scales,
            coding,
            cuda,
        } = self;
        match coding {
            Coding::Affine {
                biases,
                bits,
                group_size,
            } if cuda.is_some() && Cuda::prefers_dense(x) => {
                let elements = dequantize(packed, scales, biases, *group_size, *bits)?;
                matmul(x, elements.transpose()?)
            }
            Coding::Affine {
                biases,
                bits,
                group_size,
            } if Self::has_few_rows(x, scales, *bits, *group_size)
                && let Some(cuda) = cuda =>
            {
                let [bits, group_size] = [*bits, *group_size].map(|n| n.unsigned_abs() as usize);
                let arrays = [packed, scales, biases];
                cuda.few_rows(
                    x,
                    &Affine {
                        arrays,
                        bits,
                        group_size,
                    },
                )
            }
            Coding::Affine {
                biases,
                bits,
                group_size,
            } => match Cuda::padded_to(x).filter(|_| cuda.is_some()) {
                Some(rows) => {
                    let fewer = x.shape().first().copied().unwrap_or(0);
                    let x = pad(x, &[(0, extent(rows) - fewer), (0, 0)], None, None)?;
                    let y = quantized_matmul(x, packed, scales, biases, true, *group_size, *bits)?;
                    y.try_index(..fewer)
                }
                None => quantized_matmul(x, packed, scales, biases, true, *group_size, *bits),
            },
            Coding::Microscaled(mode) => microscaled_product(x, packed, scales, *mode),
        }
    }

    /// Whether a kernel of CUDA takes so few rows.
    fn has_few_rows(x: &Array, scales: &Array, bits: i32, group_size: i32) -> bool {
        let [bits, group_size] = [bits, group_size].map(|n| n.unsigned_abs() as usize);
        let inputs = x.shape().last().copied().unwrap_or(0).unsigned_abs() as usize;
        Cuda::prefers_few_rows(x, bits)
            && Cuda::knows_few_rows(bits, group_size, inputs)
            && x.dtype() == scales.dtype()
    }

    /// The same as a stack of `count` matrices, whose rows follow one another.
    pub fn stacked(self, count: usize) -> Result<Self, Exception> {
        let apart = |array: Array| {
            let inner = array.shape().last().copied().unwrap_or(0);
            array.reshape(&[extent(count), -1, inner])
        };
        Ok(Self {
            packed: apart(self.packed)?,
            scales: apart(self.scales)?,
            coding: match self.coding {
                Coding::Affine {
                    biases,
                    bits,
                    group_size,
                } => Coding::Affine {
                    biases: apart(biases)?,
                    bits,
                    group_size,
                },
                scaled @ Coding::Microscaled(_) => scaled,
            },
            cuda: self.cuda,
        })
    }

    /// Of a stack: `[…, 1, in]` by the matrices `[…]`, to `[…, 1, out]`; `sorted` if these ascend.
    pub fn products(&self, x: &Array, matrices: &Array, sorted: bool) -> Result<Array, Exception> {
        let (packed, scales) = (&self.packed, &self.scales);
        match &self.coding {
            Coding::Affine {
                biases,
                bits,
                group_size,
            } => gather_qmm(
                x,
                packed,
                scales,
                biases,
                None,
                matrices,
                true,
                *group_size,
                *bits,
                sorted,
            ),
            Coding::Microscaled(mode) => raw("multiply", *mode, |result, stream| {
                #[expect(unsafe_code, reason = "mlx-rs names no mode but affine")]
                // SAFETY: all handles are of arrays and a stream that live until this returns, the empty ones stand for no biases
                // and all rows, and the mode is a C string.
                unsafe {
                    mlx_sys::mlx_gather_qmm(
                        result,
                        x.as_ptr(),
                        packed.as_ptr(),
                        scales.as_ptr(),
                        mlx_sys::mlx_array_new(),
                        mlx_sys::mlx_array_new(),
                        matrices.as_ptr(),
                        true,
                        number(mode.group_size()),
                        number(mode.bits()),
                        mode.c_name().as_ptr(),
                        sorted,
                        stream.as_ptr(),
                    )
                }
            }),
        }
    }

    /// Rows `[rows]`, dequantized: `[rows, in]`.
    pub fn rows(&self, rows: &Array, dtype: Dtype) -> Result<Array, Exception> {
        let row = |array: &Array| array.take_axis(rows, 0);
        let (packed, scales) = (row(&self.packed)?, row(&self.scales)?);
        match &self.coding {
            Coding::Affine {
                biases,
                bits,
                group_size,
            } => dequantize(packed, scales, &row(biases)?, *group_size, *bits)?.as_dtype(dtype),
            Coding::Microscaled(mode) => microscaled_elements(&packed, &scales, *mode)?.as_dtype(dtype),
        }
    }

    /// Its arrays, for evaluation.
    pub fn arrays(&self) -> Vec<&Array> {
        let mut arrays = vec![&self.packed, &self.scales];
        if let Coding::Affine { biases, .. } = &self.coding {
            arrays.push(biases);
        }
        arrays
    }
}

fn number(n: usize) -> mlx_optional_int {
    mlx_optional_int {
        value: i32::try_from(n).unwrap_or(i32::MAX),
        has_value: true,
    }
}

/// An operation that mlx-rs has for affine quantization only.
fn raw(
    doing: &str,
    mode: Microscaling,
    operation: impl FnOnce(*mut mlx_array, &Stream) -> i32,
) -> Result<Array, Exception> {
    let stream = Stream::thread_local_or_default();
    #[expect(unsafe_code, reason = "mlx-rs names no mode but affine")]
    // SAFETY: a new handle is empty until the operation sets it; whatever it then is, the array takes it over, once.
    let result = unsafe {
        let mut handle = mlx_sys::mlx_array_new();
        let status = operation(&raw mut handle, &stream);
        (status == 0).then(|| Array::from_ptr(handle))
    };
    result.ok_or_else(|| Exception::custom(format!("MLX refused to {doing} in the mode {}", mode.name())))
}

fn microscaled_product(
    x: &Array,
    packed: &Array,
    scales: &Array,
    mode: Microscaling,
) -> Result<Array, Exception> {
    raw("multiply", mode, |result, stream| {
        #[expect(unsafe_code, reason = "mlx-rs names no mode but affine")]
        // SAFETY: all handles are of arrays and a stream that live until this returns, the empty one stands for no biases,
        // and the mode is a C string.
        unsafe {
            mlx_sys::mlx_quantized_matmul(
                result,
                x.as_ptr(),
                packed.as_ptr(),
                scales.as_ptr(),
                mlx_sys::mlx_array_new(),
                true,
                number(mode.group_size()),
                number(mode.bits()),
                mode.c_name().as_ptr(),
                stream.as_ptr(),
            )
        }
    })
}

fn microscaled_elements(packed: &Array, scales: &Array, mode: Microscaling) -> Result<Array, Exception> {
    raw("dequantize", mode, |result, stream| {
        let none = mlx_optional_dtype {
            value: mlx_sys::mlx_dtype__MLX_FLOAT32,
            has_value: false,
        };
        #[expect(unsafe_code, reason = "mlx-rs names no mode but affine")]
        // SAFETY: all handles are of arrays and a stream that live until this returns, the empty ones stand for no biases and
        // no global scale, and the mode is a C string.
        unsafe {
            mlx_sys::mlx_dequantize(
                result,
                packed.as_ptr(),
                scales.as_ptr(),
                mlx_sys::mlx_array_new(),
                number(mode.group_size()),
                number(mode.bits()),
                mode.c_name().as_ptr(),
                mlx_sys::mlx_array_new(),
                none,
                stream.as_ptr(),
            )
        }
    })
}
