//! Which build of MLX to link.

use std::fmt;

use crate::failure::{Failure, Outcome};
use crate::pins::Machine;

/// A published build of MLX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// macOS on Apple silicon; its CPU device is in there, too.
    Metal,
    /// Linux, CPU only.
    Cpu,
    /// Linux, CUDA 12.
    Cuda12,
    /// Linux, CUDA 13.
    Cuda13,
}

impl Backend {
    /// The name in `MLX_CHAT_BACKEND` and in `pins.txt`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metal => "metal",
            Self::Cpu => "cpu",
            Self::Cuda12 => "cuda12",
            Self::Cuda13 => "cuda13",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Picks the backend from `MLX_CHAT_BACKEND` (`request`), the target and, for `auto`, the driver's highest CUDA version.
pub fn resolve(
    request: Option<&str>,
    machine: Machine<'_>,
    driver: impl FnOnce() -> Option<u32>,
) -> Outcome<Backend> {
    let request = request.map(str::trim).filter(|r| !r.is_empty());
    let request = request.unwrap_or("auto");
    let fits: &[Backend] = match (machine.os, machine.arch) {
        ("macos", "aarch64") => &[Backend::Metal],
        ("linux", "x86_64" | "aarch64") => &[Backend::Cpu, Backend::Cuda12, Backend::Cuda13],
        (os, arch) => {
            return Err(Failure::new(format!(
                "no MLX build is published for {os} on {arch}: mlx-chat runs on macOS with Apple silicon and on Linux with x86_64 or aarch64; \
                 build for one of these, or set MLX_DIR to an MLX 0.32.2 that you built yourself (the folder that holds lib/ and include/)"
            )));
        }
    };
    let named = match request {
        "auto" if machine.os == "linux" => match driver() {
            Some(major) if major >= 13 => Backend::Cuda13,
            Some(12) => Backend::Cuda12,
            _ => Backend::Cpu,
        },
        "auto" | "metal" => Backend::Metal,
        "cpu" => Backend::Cpu,
        "cuda12" => Backend::Cuda12,
        "cuda13" => Backend::Cuda13,
        other => {
            return Err(Failure::new(format!(
                "MLX_CHAT_BACKEND is `{other}`, which names no backend: use auto, metal, cpu, cuda12 or cuda13"
            )));
        }
    };
    if fits.contains(&named) {
        return Ok(named);
    }
    let names: Vec<&str> = fits.iter().map(|b| b.name()).collect();
    Err(Failure::new(format!(
        "MLX_CHAT_BACKEND is `{request}`, but for {} on {} there is only: {}; unset it or choose one of these{}",
        machine.os,
        machine.arch,
        names.join(", "),
        if machine.os == "macos" {
            " (the CPU device is part of the Metal build)"
        } else {
            ""
        }
    )))
}

/// The CUDA major version that an NVIDIA driver of this version runs at most. Below 525 none that MLX is built for.
pub fn cuda_of_driver(driver_major: u32) -> Option<u32> {
    match driver_major {
        580.. => Some(13),
        525.. => Some(12),
        _ => None,
    }
}

/// The driver's major version out of `/proc/driver/nvidia/version`.
pub fn driver_major(text: &str) -> Option<u32> {
    let line = text.lines().find(|line| line.contains("NVRM"))?;
    line.split_whitespace().find_map(|word| {
        let (major, rest) = word.split_once('.')?;
        let numeric = rest.split('.').all(|p| p.parse::<u32>().is_ok());
        (major.len() == 3 && numeric)
            .then(|| major.parse().ok())
            .flatten()
    })
}

/// The major number of a version such as `15.3.1`.
pub fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}
