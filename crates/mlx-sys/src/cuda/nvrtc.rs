//! NVIDIA's run-time compiler, out of the library that MLX for CUDA has loaded.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use super::symbols::function;

type Program = *mut c_void;

/// The compiler's version: `13.5`.
pub(super) fn version() -> Result<String, String> {
    type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    let version = function!("nvrtcVersion", Version)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both outputs outlive the call.
    match unsafe { version(&raw mut major, &raw mut minor) } {
        0 => Ok(format!("{major}.{minor}")),
        status => Err(format!("NVRTC fails with {status}")),
    }
}

/// Frees a program.
struct Owned {
    program: Program,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by nvrtcCreateProgram, destroyed once.
        unsafe { (self.destroy)(&raw mut self.program) };
    }
}

/// Compiles a source that includes nothing to a binary for a generation of GPUs (`sm_90`).
pub(super) fn compile(name: &str, source: &str, architecture: &str) -> Result<Vec<u8>, String> {
    type Create = unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int;
    type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
    type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
    type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
    type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
    let create = function!("nvrtcCreateProgram", Create)?;
    let destroy = function!("nvrtcDestroyProgram", Destroy)?;
    let run = function!("nvrtcCompileProgram", Compile)?;
    let sizes = [
        function!("nvrtcGetCUBINSize", Size)?,
        function!("nvrtcGetProgramLogSize", Size)?,
    ];
    let gets = [
        function!("nvrtcGetCUBIN", Get)?,
        function!("nvrtcGetProgramLog", Get)?,
    ];
    let text = |text: String| CString::new(text).map_err(|error| error.to_string());
    let (source, file) = (text(source.to_owned())?, text(format!("{name}.cu"))?);
    let option = text(format!("--gpu-architecture={architecture}"))?;
    let mut program: Program = ptr::null_mut();
    // SAFETY: the strings and the output outlive the call; no headers are given.
    let status = unsafe {
        create(
            &raw mut program,
            source.as_ptr(),
            file.as_ptr(),
            0,
            ptr::null(),
            ptr::null(),
        )
    };
    if status != 0 {
        return Err(format!("NVRTC takes no source: {status}"));
    }
    let owned = Owned { program, destroy };
    let options = [option.as_ptr()];
    // SAFETY: the program lives, and so do the one option and its string.
    let status = unsafe { run(owned.program, 1, options.as_ptr()) };
    let part = |which: usize| {
        let mut size = 0;
        // SAFETY: the program lives; the buffer is of the size that is told before.
        unsafe {
            if sizes[which](owned.program, &raw mut size) != 0 {
                return None;
            }
            let mut bytes = vec![0u8; size];
            (gets[which](owned.program, bytes.as_mut_ptr().cast()) == 0).then_some(bytes)
        }
    };
    if status == 0 {
        return part(0).ok_or_else(|| "NVRTC gives no binary".to_owned());
    }
    let log = part(1).unwrap_or_default();
    Err(format!(
        "NVRTC fails with {status}: {}",
        String::from_utf8_lossy(&log).trim_end_matches('\0')
    ))
}
