//! Functions of libraries that MLX for CUDA has loaded, by their names.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
}

/// A function of a library, by its name; an error where no such library is loaded.
pub(super) fn symbol(name: &str) -> Result<*mut c_void, String> {
    let c_name = CString::new(name).map_err(|error| error.to_string())?;
    // Linux's RTLD_DEFAULT: all that is loaded. CUDA is nowhere else.
    if !cfg!(target_os = "linux") {
        return Err("there is no CUDA on this system".to_owned());
    }
    // SAFETY: the name outlives the call.
    let found = unsafe { dlsym(ptr::null_mut(), c_name.as_ptr()) };
    if found.is_null() {
        return Err(format!("{name} is in no library that is loaded"));
    }
    Ok(found)
}

/// The function of this name, of the type that its library's documentation gives it.
macro_rules! function {
    ($name:literal, $type:ty) => {
        // SAFETY: the library's documentation gives the function this type.
        $crate::cuda::symbols::symbol($name)
            .map(|found| unsafe { std::mem::transmute::<*mut std::ffi::c_void, $type>(found) })
    };
}

pub(super) use function;
