//! Off Apple, mlx-rs still seeds its random state by `mach_approximate_time`.

/// Nanoseconds since 1970: all that is asked of it is to differ from run to run.
#[cfg(not(target_vendor = "apple"))]
// SAFETY: off Apple no system library defines this symbol.
#[unsafe(no_mangle)]
pub extern "C" fn mach_approximate_time() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_nanos() as u64)
}
