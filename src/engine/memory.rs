//! What is read of memory: MLX's allocator, the device, the host, this process.

use mlx_rs::memory;
use mlx_sys::device::gpu_figure;

use super::budget::{Host, Readings, kib};
use super::telemetry::MlxMemory;

/// MLX's figures now; zero where MLX can't tell.
pub fn mlx_memory() -> MlxMemory {
    let figure = |value: Result<usize, mlx_rs::error::Exception>| value.map_or(0, |bytes| bytes as u64);
    MlxMemory {
        active: figure(memory::active_memory()),
        cache: figure(memory::cache_memory()),
        peak: figure(memory::peak_memory()),
    }
}

/// Forgets the most that MLX ever held, so that the next figure is of what follows.
pub fn reset_peak() {
    if let Err(error) = memory::reset_peak_memory() {
        tracing::warn!(%error, "MLX's peak could not be reset");
    }
}

/// Gives back to the system what MLX and the C library keep for reuse.
pub fn give_back() {
    if let Err(error) = memory::clear_cache() {
        tracing::warn!(%error, "what MLX keeps for reuse could not be given back");
    }
    mlx_sys::heap::trim();
}

/// The device that MLX computes on by default: `cpu` or `gpu`.
pub fn device_name() -> String {
    match mlx_rs::Device::try_default().and_then(|device| device.get_type()) {
        Ok(mlx_rs::DeviceType::Gpu) => "gpu".into(),
        Ok(mlx_rs::DeviceType::Cpu) => "cpu".into(),
        Err(error) => format!("unknown ({error})"),
    }
}

/// What MLX and the system tell of memory now.
pub fn readings() -> Readings {
    let mut readings = Readings {
        mlx_limit: memory::memory_limit()
            .ok()
            .filter(|&bytes| bytes > 0)
            .map(|bytes| bytes as u64),
        mlx_cache: mlx_memory().cache,
        ..Readings::default()
    };
    if device_name() == "gpu" {
        readings.working_set = gpu_figure(c"max_recommended_working_set_size");
        readings.gpu_total = gpu_figure(c"total_memory");
        readings.gpu_free = gpu_figure(c"free_memory");
    } else {
        readings.host = host_memory();
    }
    readings
}

/// The host's memory, as far as the system tells.
pub fn host_memory() -> Host {
    Host::read(|path| std::fs::read_to_string(path).ok())
}

/// The resident memory of this process in bytes, where the platform tells; its peak with `peak`.
pub fn resident_memory(peak: bool) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let name = if peak { "VmHWM:" } else { "VmRSS:" };
    kib(&text, name)
}

/// Keeps the device's memory wired while there is work, and lets it go after. Only Metal has wired memory.
#[derive(Debug, Default)]
pub struct Residency {
    held: bool,
}

impl Residency {
    /// Wires memory up to what Metal recommends.
    pub fn hold(&mut self) {
        if cfg!(target_os = "macos") && !self.held {
            self.held = true;
            Self::set(gpu_figure(c"max_recommended_working_set_size").unwrap_or(0));
        }
    }

    /// Lets it go.
    pub fn release(&mut self) {
        if self.held {
            self.held = false;
            Self::set(0);
        }
    }

    fn set(bytes: u64) {
        if let Err(error) = memory::set_wired_limit(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            tracing::warn!(%error, bytes, "the wired limit could not be set");
        }
    }
}
