//! CUDA kernels as nodes in MLX's graph, over arrays of mlx-rs.
#![expect(
    unsafe_code,
    reason = "handles of arrays go to mlx-sys, and kernels are trusted to keep to their arrays"
)]

use std::ffi::CStr;

use mlx_rs::error::Exception;
use mlx_rs::{Array, Dtype, Stream};
use mlx_sys::bridge::OutputSpec;
use mlx_sys::cuda::{Constant, CudaKernel, Launch};
use mlx_sys::mlx_array;

thread_local! {
    /// The thread's stream on the GPU. Looked up once: the handle is an allocation.
    static GPU: Stream = Stream::gpu();
}

/// What all kernels begin with.
const HEADER: &str = include_str!("vectors.cuh");

/// A kernel of this folder.
#[derive(Debug)]
pub(super) struct Kernel(CudaKernel);

/// How it is started: blocks, threads of each, and its constants.
pub(super) struct Start<'a> {
    pub blocks: [usize; 3],
    pub threads: usize,
    pub constants: &'a [(&'a CStr, Of)],
}

/// What a constant is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Of {
    Count(usize),
    /// Its bits.
    Float(f32),
    Type(Dtype),
}

impl Kernel {
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str], body: &str) -> Self {
        Self(CudaKernel::new(name, inputs, outputs, HEADER, body))
    }

    /// Adds it to the graph. The callers in this folder give arrays of the shapes and types that the body states.
    pub fn apply<const N: usize>(
        &self,
        inputs: &[&Array],
        outputs: [(&[i32], Dtype); N],
        start: Start<'_>,
    ) -> Result<[Array; N], Exception> {
        let handles: Vec<mlx_array> = inputs.iter().map(|input| input.as_ptr()).collect();
        let specs = outputs.map(|(shape, dtype)| OutputSpec {
            shape,
            dtype: dtype.into(),
        });
        let constants: Vec<(&CStr, Constant)> = start
            .constants
            .iter()
            .map(|&(name, of)| {
                let constant = match of {
                    Of::Count(count) => Constant::Int(super::extent(count)),
                    Of::Float(float) => Constant::Int(float.to_bits().cast_signed()),
                    Of::Type(dtype) => Constant::Type(dtype.into()),
                };
                (name, constant)
            })
            .collect();
        let launch = Launch {
            blocks: start.blocks.map(super::extent),
            threads: super::extent(start.threads),
            constants: &constants,
        };
        // SAFETY: the handles are of arrays that live until this returns, and so does the thread's stream; the bodies keep to
        // arrays of the shapes and types that they state, which is what their callers give.
        let made = GPU.with(|stream| unsafe { self.0.apply(&handles, &specs, launch, stream.as_ptr()) });
        let made = made.map_err(|error| Exception::custom(error.to_string()))?;
        // SAFETY: fresh handles, each of which is taken over once.
        let arrays: Vec<Array> = made
            .into_iter()
            .map(|handle| unsafe { Array::from_ptr(handle) })
            .collect();
        arrays
            .try_into()
            .map_err(|_| Exception::custom("a kernel put out another number of arrays than was asked for"))
    }
}
