//! Memory that the C library keeps for reuse, in a part of its own for each thread.

/// Gives back to the system what was freed. Elsewhere than with glibc, nothing is known to be kept.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it takes the allocator's own locks, and touches only what is free.
        unsafe { malloc_trim(0) };
    }
}
