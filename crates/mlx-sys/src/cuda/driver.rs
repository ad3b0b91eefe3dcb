//! What the driver tells of the GPU, and MLX doesn't.

use std::ffi::c_int;

use super::symbols::function;

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT` and `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
const ATTRIBUTES: [c_int; 2] = [16, 97];

/// Multiprocessors of the first GPU, and the bytes of shared memory that a block may ask for.
pub(super) fn multiprocessors() -> Option<(usize, usize)> {
    type Device = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
    type Attribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
    let get = function!("cuDeviceGet", Device).ok()?;
    let attribute = function!("cuDeviceGetAttribute", Attribute).ok()?;
    let mut device = 0;
    // SAFETY: the output outlives the call.
    if unsafe { get(&raw mut device, 0) } != 0 {
        return None;
    }
    let [blocks, shared] = ATTRIBUTES.map(|name| {
        let mut figure = 0;
        // SAFETY: the output outlives the call.
        let status = unsafe { attribute(&raw mut figure, name, device) };
        usize::try_from(figure)
            .ok()
            .filter(|&figure| status == 0 && figure > 0)
    });
    Some((blocks?, shared?))
}
