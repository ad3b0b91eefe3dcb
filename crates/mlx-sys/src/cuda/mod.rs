//! CUDA kernels of our own as operations in MLX's lazy graph.
//!
//! A [`Kernel`] is source text; [`Kernel::program`] compiles it for constants, by the NVRTC that MLX itself has loaded, into the
//! folder where MLX keeps what it compiles ([`cache_folder`]), under a name that MLX looks for: so it is compiled once for all
//! processes. [`Program::apply`] adds a node that starts it.

mod driver;
mod nvrtc;
mod symbols;

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::bridge::OutputSpec;
use crate::device::gpu_text;
use crate::{
    mlx_array, mlx_bridge_cuda_apply, mlx_bridge_cuda_module, mlx_bridge_default_variable,
    mlx_bridge_last_error, mlx_bridge_output, mlx_cuda_is_available, mlx_stream,
};

/// Where MLX is told to keep what it compiles.
const CACHE_VARIABLE: &str = "MLX_PTX_CACHE_DIR";

/// How many graphs MLX keeps; and that it goes on when it has made twice as many, as any process does that runs for long: an error else.
const GRAPHS: [(&str, &str); 2] = [
    ("MLX_CUDA_GRAPH_CACHE_SIZE", "2000"),
    ("MLX_ENABLE_CACHE_THRASHING_CHECK", "0"),
];

/// Whether this MLX computes by CUDA, on a device that is there.
pub fn is_available() -> bool {
    let mut available = false;
    // SAFETY: the output outlives the call.
    let status = unsafe { mlx_cuda_is_available(&raw mut available) };
    status == 0 && available
}

/// The GPU's generation as compilers name it: `sm_90`.
pub fn architecture() -> Option<String> {
    gpu_text(c"architecture")
}

/// Blocks that run at once on the first GPU where each is alone on its multiprocessor, and the bytes of shared memory that one may have.
pub fn multiprocessors() -> Option<(usize, usize)> {
    driver::multiprocessors()
}

/// Has MLX, and this module, keep compiled kernels in a folder, and MLX as many of CUDA's graphs as batches of all sizes take; variables
/// that are set already stay. Call it before MLX's first use, and before there is any other thread.
pub fn set_up(folder: &Path) {
    let text = |text: &str| CString::new(text).unwrap_or_default();
    let folder = folder.to_str().map(|folder| (CACHE_VARIABLE, folder));
    for (name, value) in folder.into_iter().chain(GRAPHS) {
        // SAFETY: both strings outlive the call, which copies them. No other thread reads the environment: the caller's promise.
        unsafe { mlx_bridge_default_variable(text(name).as_ptr(), text(value).as_ptr()) };
    }
}

/// Where MLX keeps what it compiles.
pub fn cache_folder() -> PathBuf {
    std::env::var_os(CACHE_VARIABLE)
        .filter(|folder| !folder.is_empty())
        .map_or_else(
            || std::env::temp_dir().join("mlx").join("0.32.2").join("ptx"),
            PathBuf::from,
        )
}

/// Why a kernel can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaError(String);

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA kernel {}", self.0)
    }
}

impl std::error::Error for CudaError {}

/// A kernel's source: an `extern "C" __global__` function of this name, which may need constants to be defined.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// The function's name.
    pub name: &'static str,
    /// What comes before it; it includes nothing.
    pub header: &'static str,
    /// The function.
    pub source: &'static str,
}

/// How a kernel is started.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// Blocks by axis.
    pub blocks: [i32; 3],
    /// Threads of each, on the first axis.
    pub threads: i32,
    /// Bytes of shared memory that a block is given, besides what the kernel has by itself.
    pub shared: i32,
}

/// A compiled kernel.
#[derive(Debug)]
pub struct Program {
    name: CString,
    key: CString,
}

impl Kernel {
    /// Compiles it with these definitions, `#define` lines, for a GPU of this generation; or finds that it is compiled.
    ///
    /// # Errors
    /// What the compiler says, or the system of the folder.
    pub fn program(&self, definitions: &str, architecture: &str) -> Result<Program, CudaError> {
        let Self { name, header, source } = *self;
        let failed = |what: &dyn fmt::Display| CudaError(format!("{name}: {what}"));
        let text = format!("{header}{definitions}{source}");
        // All that the result follows from; MLX hashes it.
        let key = format!(
            "{architecture} {} {text}",
            nvrtc::version().map_err(|error| failed(&error))?
        );
        let c_text = |text: String| CString::new(text).map_err(|error| failed(&error));
        let key = format!("{:x}", hash(&c_text(key)?));
        let key = c_text(key)?;
        let folder = cache_folder();
        let stem = format!("{name}_{:x}", hash(&key));
        let [binary, names] = ["ptx", "txt"].map(|kind| folder.join(format!("{stem}.{kind}")));
        if !(binary.is_file() && names.is_file()) {
            let compiled = nvrtc::compile(name, &text, architecture).map_err(|error| failed(&error))?;
            let written = std::fs::create_dir_all(&folder)
                // The names first: MLX looks for the binary.
                .and_then(|()| publish(&names, format!("{name}\t{name}\n").as_bytes()))
                .and_then(|()| publish(&binary, &compiled));
            written.map_err(|error| failed(&format!("{}: {error}", folder.display())))?;
        }
        Ok(Program {
            name: c_text(name.to_owned())?,
            key,
        })
    }
}

/// As MLX hashes.
fn hash(text: &CStr) -> u64 {
    // SAFETY: the text outlives the call.
    unsafe { mlx_bridge_cuda_module(text.as_ptr()) }
}

/// Puts a file in place: whole or not at all.
fn publish(path: &Path, content: &[u8]) -> std::io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    // Another thread may publish the same.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let scratch = path.with_extension(format!("tmp-{}-{number}", std::process::id()));
    std::fs::write(&scratch, content)?;
    std::fs::rename(&scratch, path)
}

impl Program {
    /// Adds a node to the graph and gives handles to its outputs, which the caller owns (`mlx_array_free`). Nothing runs until
    /// MLX evaluates an output; an input with gaps is copied first.
    ///
    /// # Errors
    /// If the stream is none of a GPU, or a shape can't be.
    ///
    /// # Safety
    /// The handles are of arrays and of a stream that live now. The kernel's parameters are as many pointers as there are inputs,
    /// then outputs, then integers as there are `numbers`; so started it reads nothing past these inputs, and writes nothing but
    /// all of these outputs, and to inputs that nothing else looks at until one of the outputs has been evaluated, of which MLX knows nothing.
    pub unsafe fn apply(
        &self,
        inputs: &[mlx_array],
        outputs: &[OutputSpec<'_>],
        numbers: &[i32],
        launch: Launch,
        stream: mlx_stream,
    ) -> Result<Vec<mlx_array>, CudaError> {
        let specs: Vec<mlx_bridge_output> = outputs.iter().map(OutputSpec::raw).collect();
        let none = mlx_array {
            ctx: std::ptr::null_mut(),
        };
        let mut results = vec![none; outputs.len()];
        // SAFETY: everything pointed to outlives the call, and as many are told as are there; the rest is the caller's promise.
        let status = unsafe {
            mlx_bridge_cuda_apply(
                results.as_mut_ptr(),
                self.name.as_ptr(),
                self.key.as_ptr(),
                inputs.as_ptr(),
                inputs.len(),
                specs.as_ptr(),
                specs.len(),
                numbers.as_ptr(),
                numbers.len(),
                launch.blocks.as_ptr(),
                launch.threads,
                launch.shared,
                stream,
            )
        };
        if status == 0 {
            return Ok(results);
        }
        // SAFETY: a C string, valid until the next call on this thread.
        let reason = unsafe { CStr::from_ptr(mlx_bridge_last_error()) };
        Err(CudaError(format!(
            "{}: {}",
            self.name.to_string_lossy(),
            reason.to_string_lossy()
        )))
    }
}
