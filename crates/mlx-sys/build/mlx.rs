//! Finds MLX itself: in `MLX_DIR`, or unpacked from the published wheels.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::backend::{self, Backend};
use crate::cache::Cache;
use crate::failure::{Failure, Outcome, io_failure};
use crate::index;
use crate::key::{self, Key};
use crate::pins::{self, Machine, Pin};
use crate::target::{self, Target};

/// The version that mlx-rs 0.33 and mlx-c 0.7 want.
pub const VERSION: &str = "0.32.2";

/// An MLX to compile and link against.
pub struct Mlx {
    /// Which build it is; `custom` from `MLX_DIR` unless `MLX_CHAT_BACKEND` names one.
    pub backend: String,
    /// Folder of `mlx/mlx.h`'s parent.
    pub include: PathBuf,
    /// Folder of libmlx.
    pub lib: PathBuf,
    /// The library file.
    pub library: PathBuf,
    /// Stands for its headers in cache keys.
    pub identity: String,
}

/// Finds MLX as the environment asks.
pub fn find(cache: &Cache, target: &Target, pins: &[Pin]) -> Outcome<Mlx> {
    let request = target::var("MLX_CHAT_BACKEND");
    if let Some(folder) = target::var("MLX_DIR").filter(|f| !f.is_empty()) {
        let folder = Path::new(&folder);
        if folder.is_relative() {
            return Err(Failure::new(format!(
                "MLX_DIR is `{}`, a relative path: give an absolute one",
                folder.display()
            )));
        }
        let name = request.filter(|r| r != "auto");
        let name = name.unwrap_or_else(|| "custom".to_owned());
        let mut mlx = at(folder, &name, target, "MLX_DIR")?;
        mlx.identity = headers_identity(&mlx.include)?;
        return Ok(mlx);
    }
    let macos = if target.is_macos() {
        Some(wanted_macos()?)
    } else {
        None
    };
    let machine = Machine {
        os: &target.os,
        arch: &target.arch,
        macos,
    };
    let backend = backend::resolve(request.as_deref(), machine, cuda_of_this_host)?;
    let chosen = pins::choose(pins, backend.name(), machine);
    if chosen.is_empty() {
        return Err(nothing_published(backend, machine));
    }
    let identity = chosen
        .iter()
        .find(|pin| pin.package.starts_with("mlx-"))
        .map(|pin| pin.sha256.clone())
        .unwrap_or_default();
    if target.os == "linux" {
        runs_on_this_linux(target, &chosen)?;
    }
    let witness = format!("mlx/lib/{}", target.library());
    let folder = index::unpacked(cache, "mlx", &chosen, &witness, |_| true)?;
    let mut mlx = at(&folder.join("mlx"), backend.name(), target, "the cache")?;
    mlx.identity = identity;
    Ok(mlx)
}

/// The wheels are built for glibc of a version that their tag tells.
fn runs_on_this_linux(target: &Target, chosen: &[&Pin]) -> Outcome<()> {
    let needs = chosen.iter().filter_map(|pin| pins::glibc(&pin.platform)).max();
    let Some((major, minor)) = needs else {
        return Ok(());
    };
    let needs = format!(
        "MLX's published build needs glibc {major}.{minor} (Ubuntu 22.04, Debian 12, Fedora 36 or newer)"
    );
    let otherwise = "build on such a system, or set MLX_DIR to an MLX 0.32.2 that you built yourself";
    if target.environment == "musl" {
        return Err(Failure::new(format!(
            "the target is {}, with musl, but {needs}: {otherwise}",
            target.triple
        )));
    }
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let said = said.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let here = said.ok().and_then(|text| {
        let (major, minor) = text.strip_prefix("glibc ")?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    });
    match here {
        Some(here) if target.is_host() && here < (major, minor) => Err(Failure::new(format!(
            "this system has glibc {}.{}, but {needs}: {otherwise}",
            here.0, here.1
        ))),
        _ => Ok(()),
    }
}

fn nothing_published(backend: Backend, machine: Machine<'_>) -> Failure {
    match machine.macos {
        Some(version) if version < 14 => Failure::new(format!(
            "MLX {VERSION} needs macOS 14 or newer, this is macOS {version}: update macOS, or unset MACOSX_DEPLOYMENT_TARGET if that says {version}"
        )),
        _ => Failure::new(format!(
            "MLX {VERSION} is not published for backend {backend} on {} {}: choose another by MLX_CHAT_BACKEND, or set MLX_DIR",
            machine.os, machine.arch
        )),
    }
}

/// Checks that the folder is what it has to be.
fn at(folder: &Path, backend: &str, target: &Target, from: &str) -> Outcome<Mlx> {
    let include = folder.join("include");
    let lib = folder.join("lib");
    let library = lib.join(target.library());
    for file in [
        &library,
        &include.join("mlx/mlx.h"),
        &include.join("mlx/version.h"),
    ] {
        if !file.is_file() {
            return Err(Failure::new(format!(
                "{from} gives MLX at {}, but {} is not there: point MLX_DIR to the folder that holds lib/ and include/ of MLX {VERSION}, or unset it; \
                 if it is the cache that is damaged, delete that folder",
                folder.display(),
                file.display()
            )));
        }
    }
    let found = header_version(&include.join("mlx/version.h"))?;
    if found != VERSION {
        return Err(Failure::new(format!(
            "{from} gives MLX {found} at {}, but mlx-rs 0.33 needs exactly {VERSION}: point MLX_DIR to that version, or unset it",
            folder.display()
        )));
    }
    Ok(Mlx {
        backend: backend.to_owned(),
        include,
        lib,
        library,
        identity: String::new(),
    })
}

/// `major.minor.patch` from the three macros of version.h.
fn header_version(path: &Path) -> Outcome<String> {
    let text = std::fs::read_to_string(path).map_err(|e| io_failure("read", path, &e))?;
    let number = |name: &str| {
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("#define")?.trim().strip_prefix(name))
            .map(|value| value.trim().to_owned())
            .next()
            .unwrap_or_else(|| "?".to_owned())
    };
    Ok(["MLX_VERSION_MAJOR", "MLX_VERSION_MINOR", "MLX_VERSION_PATCH"]
        .map(number)
        .join("."))
}

/// A hash over all headers of an MLX that isn't ours.
fn headers_identity(include: &Path) -> Outcome<String> {
    let mut files = Vec::new();
    target::files_below(include, &mut files)?;
    files.sort();
    let mut key = Key::new();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "h" || e == "hpp"))
    {
        let name = file.strip_prefix(include).unwrap_or(file);
        key = key.part(&name.to_string_lossy(), key::file_sha256(file)?);
    }
    Ok(key.finish())
}

/// The oldest macOS that the result has to run on: this one, or an older one named by MACOSX_DEPLOYMENT_TARGET.
fn wanted_macos() -> Outcome<u32> {
    let output = Command::new("sw_vers").arg("-productVersion").output();
    let here = output
        .ok()
        .filter(|o| o.status.success())
        .and_then(|o| backend::major(&String::from_utf8_lossy(&o.stdout)));
    let asked = target::var("MACOSX_DEPLOYMENT_TARGET").and_then(|v| backend::major(&v));
    match (here, asked.filter(|v| *v >= 14)) {
        (Some(here), Some(asked)) => Ok(here.min(asked)),
        (Some(version), None) | (None, Some(version)) => Ok(version),
        (None, None) => Err(Failure::new(
            "could not learn the macOS version (`sw_vers -productVersion` failed): set MACOSX_DEPLOYMENT_TARGET to 14.0 or newer",
        )),
    }
}

/// The highest CUDA version of this host's NVIDIA driver, if there is one.
fn cuda_of_this_host() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    backend::cuda_of_driver(backend::driver_major(&text)?)
}
