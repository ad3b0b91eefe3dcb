//! How much memory there is: MLX's allocator, the device, and the limits that follow.

use mlx_rs::memory;

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

/// The device that MLX computes on by default: `cpu` or `gpu`.
pub fn device_name() -> String {
    match mlx_rs::Device::try_default().and_then(|device| device.get_type()) {
        Ok(mlx_rs::DeviceType::Gpu) => "gpu".into(),
        Ok(mlx_rs::DeviceType::Cpu) => "cpu".into(),
        Err(error) => format!("unknown ({error})"),
    }
}

/// Bytes of memory that MLX may fill: its own limit, and on the CPU no more than the machine (or its control group) has.
pub fn device_memory() -> u64 {
    let limit = memory::memory_limit().map_or(0, |bytes| bytes as u64);
    [Some(limit).filter(|&bytes| bytes > 0), host_memory()]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(8 << 30)
}

/// The host's memory in bytes, or its control group's limit where that is lower. `None` where neither can be read.
pub fn host_memory() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| meminfo_total(&text));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    [meminfo, group].into_iter().flatten().min()
}

fn meminfo_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The resident memory of this process in bytes, where the platform tells; its peak with `peak`.
pub fn resident_memory(peak: bool) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let name = if peak { "VmHWM:" } else { "VmRSS:" };
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The KV budget where none is set: half of what device memory leaves after the weights.
pub fn default_kv_budget(device_memory: u64, weight_bytes: u64) -> u64 {
    device_memory.saturating_sub(weight_bytes) / 2
}

/// Keeps the device's memory wired while there is work, and lets it go after. Only Metal has wired memory.
#[derive(Debug, Default)]
pub struct Residency {
    held: bool,
}

impl Residency {
    /// Wires memory up to what Metal recommends: MLX's own limit is one and a half times that.
    pub fn hold(&mut self) {
        if cfg!(target_os = "macos") && !self.held {
            self.held = true;
            let recommended = memory::memory_limit().map_or(0, |limit| limit / 3 * 2);
            Self::set(recommended);
        }
    }

    /// Lets it go.
    pub fn release(&mut self) {
        if self.held {
            self.held = false;
            Self::set(0);
        }
    }

    fn set(bytes: usize) {
        if let Err(error) = memory::set_wired_limit(bytes) {
            tracing::warn!(%error, bytes, "the wired limit could not be set");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_memory_is_read_from_meminfo() {
        assert_eq!(
            meminfo_total("MemTotal:       24000 kB\nMemFree: 1 kB\n"),
            Some(24_576_000)
        );
        assert_eq!(meminfo_total("nothing here"), None);
    }

    #[test]
    fn the_default_budget_is_half_of_what_the_weights_leave() {
        assert_eq!(default_kv_budget(1000, 400), 300);
        assert_eq!(default_kv_budget(100, 400), 0);
    }
}
