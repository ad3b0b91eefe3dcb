//! CUDA kernels of our own as operations in MLX's lazy graph. MLX compiles each by NVRTC when it first runs, for the
//! constants that it is given.

use std::ffi::{CString, c_char};
use std::fmt;

use crate::bridge::OutputSpec;
use crate::{
    mlx_array, mlx_array_new, mlx_cuda_is_available, mlx_dtype, mlx_fast_cuda_kernel,
    mlx_fast_cuda_kernel_apply, mlx_fast_cuda_kernel_config_add_output_arg,
    mlx_fast_cuda_kernel_config_add_template_arg_dtype, mlx_fast_cuda_kernel_config_add_template_arg_int,
    mlx_fast_cuda_kernel_config_free, mlx_fast_cuda_kernel_config_new, mlx_fast_cuda_kernel_config_set_grid,
    mlx_fast_cuda_kernel_config_set_thread_group, mlx_fast_cuda_kernel_free, mlx_fast_cuda_kernel_new,
    mlx_stream, mlx_vector_array_free, mlx_vector_array_get, mlx_vector_array_new, mlx_vector_array_new_data,
    mlx_vector_string, mlx_vector_string_free, mlx_vector_string_new_data,
};

/// Whether this MLX computes by CUDA, on a device that is there.
pub fn is_available() -> bool {
    let mut available = false;
    // SAFETY: the output outlives the call.
    let status = unsafe { mlx_cuda_is_available(&raw mut available) };
    status == 0 && available
}

/// What a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// `constexpr int`.
    Int(i32),
    /// A type name.
    Type(mlx_dtype),
}

/// A kernel: the body of a `__global__` function, whose parameters MLX declares: a pointer for each input and output, by
/// their names, and `name_shape` for each input of which the body names that.
pub struct CudaKernel {
    raw: mlx_fast_cuda_kernel,
    name: String,
    outputs: usize,
}

/// How a kernel is started once.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Blocks, by axis.
    pub blocks: [i32; 3],
    /// Threads of each block, on its first axis.
    pub threads: i32,
    /// The constants that the body names.
    pub constants: &'a [(&'a std::ffi::CStr, Constant)],
}

/// MLX refused a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError(String);

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MLX refused the CUDA kernel {}", self.0)
    }
}

impl std::error::Error for CudaError {}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaKernel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl CudaKernel {
    /// A kernel of this body, after a header that is put before the function. Nothing is compiled yet.
    pub fn new(name: &str, inputs: &[&str], outputs: &[&str], header: &str, body: &str) -> Self {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let (c_name, header, body) = (text(name), text(header), text(body));
        let (input_names, output_names) = (Names::new(inputs), Names::new(outputs));
        // SAFETY: all strings outlive the call, which copies them. Inputs without gaps: bodies know no strides.
        let raw = unsafe {
            mlx_fast_cuda_kernel_new(
                c_name.as_ptr(),
                input_names.0,
                output_names.0,
                body.as_ptr(),
                header.as_ptr(),
                true,
                0,
            )
        };
        Self {
            raw,
            name: name.to_owned(),
            outputs: outputs.len(),
        }
    }

    /// Adds a node to the graph and gives handles to its outputs, which the caller owns (`mlx_array_free`). Nothing runs until
    /// MLX evaluates an output; an input with gaps is copied first.
    ///
    /// # Errors
    /// If the numbers of inputs or outputs are not those of its making, or there is no such GPU.
    ///
    /// # Safety
    /// The handles are of arrays and of a stream that live now. The body, started as `launch` says, reads nothing past inputs of
    /// these shapes and types, and writes nothing but all of its outputs.
    pub unsafe fn apply(
        &self,
        inputs: &[mlx_array],
        outputs: &[OutputSpec<'_>],
        launch: Launch<'_>,
        stream: mlx_stream,
    ) -> Result<Vec<mlx_array>, CudaError> {
        let [x, y, z] = launch.blocks;
        // SAFETY: the configuration and the vectors are made and freed here; what they are given is copied. The rest is the
        // caller's promise.
        unsafe {
            let config = mlx_fast_cuda_kernel_config_new();
            let mut fine = mlx_fast_cuda_kernel_config_set_grid(config, x * launch.threads, y, z) == 0
                && mlx_fast_cuda_kernel_config_set_thread_group(config, launch.threads, 1, 1) == 0;
            for output in outputs {
                let (shape, dims) = (output.shape.as_ptr(), output.shape.len());
                fine &= mlx_fast_cuda_kernel_config_add_output_arg(config, shape, dims, output.dtype) == 0;
            }
            for &(name, constant) in launch.constants {
                fine &= 0
                    == match constant {
                        Constant::Int(value) => {
                            mlx_fast_cuda_kernel_config_add_template_arg_int(config, name.as_ptr(), value)
                        }
                        Constant::Type(dtype) => {
                            mlx_fast_cuda_kernel_config_add_template_arg_dtype(config, name.as_ptr(), dtype)
                        }
                    };
            }
            let given = mlx_vector_array_new_data(inputs.as_ptr(), inputs.len());
            let mut made = mlx_vector_array_new();
            fine &= outputs.len() == self.outputs
                && mlx_fast_cuda_kernel_apply(&raw mut made, self.raw, given, config, stream) == 0;
            let mut handles = Vec::with_capacity(outputs.len());
            for at in 0..if fine { outputs.len() } else { 0 } {
                let mut handle = mlx_array_new();
                fine &= mlx_vector_array_get(&raw mut handle, made, at) == 0;
                handles.push(handle);
            }
            mlx_vector_array_free(made);
            mlx_vector_array_free(given);
            mlx_fast_cuda_kernel_config_free(config);
            if fine {
                return Ok(handles);
            }
            for handle in handles {
                crate::mlx_array_free(handle);
            }
        }
        Err(CudaError(self.name.clone()))
    }
}

impl Drop for CudaKernel {
    fn drop(&mut self) {
        // SAFETY: made by `mlx_fast_cuda_kernel_new`, freed once; nodes hold what they need of it.
        unsafe { mlx_fast_cuda_kernel_free(self.raw) };
    }
}

/// Names, as MLX takes them.
struct Names(mlx_vector_string);

impl Names {
    fn new(names: &[&str]) -> Self {
        let names: Vec<CString> = names
            .iter()
            .map(|&name| CString::new(name).unwrap_or_default())
            .collect();
        let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the strings outlive the call, which copies them.
        Self(unsafe { mlx_vector_string_new_data(pointers.as_mut_ptr(), pointers.len()) })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: made by `mlx_vector_string_new_data`, freed once.
        unsafe { mlx_vector_string_free(self.0) };
    }
}
