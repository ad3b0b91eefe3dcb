//! What MLX tells of the GPU.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::{
    mlx_device_free, mlx_device_info_free, mlx_device_info_get, mlx_device_info_get_size,
    mlx_device_info_get_string, mlx_device_info_has_key, mlx_device_info_is_string, mlx_device_info_new,
    mlx_device_new_type, mlx_device_type__MLX_GPU,
};

/// A figure of the first GPU by MLX's name for it, like `max_recommended_working_set_size` (Metal) or `free_memory`
/// (CUDA, as it is now). `None` where this MLX doesn't know it.
pub fn gpu_figure(name: &CStr) -> Option<u64> {
    // SAFETY: both handles are freed once, here; the outputs and the name outlive the calls, and a figure is read only
    // where MLX says that it is one.
    unsafe {
        let device = mlx_device_new_type(mlx_device_type__MLX_GPU, 0);
        let mut info = mlx_device_info_new();
        let (mut known, mut is_text, mut figure) = (false, false, 0);
        let told = mlx_device_info_get(&raw mut info, device) == 0
            && mlx_device_info_has_key(&raw mut known, info, name.as_ptr()) == 0
            && known
            && mlx_device_info_is_string(&raw mut is_text, info, name.as_ptr()) == 0
            && !is_text
            && mlx_device_info_get_size(&raw mut figure, info, name.as_ptr()) == 0;
        mlx_device_info_free(info);
        mlx_device_free(device);
        told.then_some(figure as u64)
    }
}

/// The same for what MLX tells in words, like `device_name`.
pub fn gpu_text(name: &CStr) -> Option<String> {
    // SAFETY: both handles are freed once, here, after the text, which is theirs, has been copied; the outputs and the name outlive
    // the calls, and a text is read only where MLX says that it is one.
    unsafe {
        let device = mlx_device_new_type(mlx_device_type__MLX_GPU, 0);
        let mut info = mlx_device_info_new();
        let (mut known, mut is_text) = (false, false);
        let mut text: *const c_char = ptr::null();
        let told = mlx_device_info_get(&raw mut info, device) == 0
            && mlx_device_info_has_key(&raw mut known, info, name.as_ptr()) == 0
            && known
            && mlx_device_info_is_string(&raw mut is_text, info, name.as_ptr()) == 0
            && is_text
            && mlx_device_info_get_string(&raw mut text, info, name.as_ptr()) == 0
            && !text.is_null();
        let text = told.then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
        mlx_device_info_free(info);
        mlx_device_free(device);
        text
    }
}
