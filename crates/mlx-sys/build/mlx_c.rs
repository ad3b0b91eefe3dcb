//! Gets mlx-c's sources out of the published mlx-sys crate, by `cargo vendor`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::failure::{Failure, Outcome, io_failure};
use crate::target;

/// What cargo vendors: a package with one dependency, and the lock that pins it.
const MANIFEST: &str = include_str!("../mlx-c-source/manifest.toml");
const LOCK: &str = include_str!("../mlx-c-source/lock.toml");

/// mlx-c's sources.
pub struct MlxC {
    /// The folder that holds `mlx/c/`.
    pub root: PathBuf,
    /// The checksum of the crate that they came in.
    pub checksum: String,
}

/// Finds mlx-c in the cache, or fetches it through the user's cargo registry.
pub fn find(cache: &Cache) -> Outcome<MlxC> {
    let checksum = pinned_checksum(LOCK)?;
    let root = cache.folder(
        "mlx-c",
        &format!("0.7.0-{}", &checksum[..12]),
        "mlx/c/array.cpp",
        |folder| {
            let scratch = cache.scratch("vendor")?;
            let vendored = vendor(&scratch.0)?;
            target::copy_folder(&vendored.join("src/mlx-c/mlx"), &folder.join("mlx"))?;
            let licence = vendored.join("src/mlx-c/LICENSE");
            fs::copy(&licence, folder.join("LICENSE")).map_err(|e| io_failure("copy", &licence, &e))?;
            Ok(())
        },
    )?;
    Ok(MlxC { root, checksum })
}

/// The checksum of mlx-sys in the lock file.
fn pinned_checksum(lock: &str) -> Outcome<String> {
    lock.split("[[package]]")
        .find(|package| package.contains("name = \"mlx-sys\""))
        .and_then(|package| {
            package
                .lines()
                .find_map(|line| line.strip_prefix("checksum = \""))
        })
        .and_then(|rest| rest.strip_suffix('"'))
        .filter(|checksum| checksum.len() == 64)
        .map(str::to_owned)
        .ok_or_else(|| Failure::new("mlx-c-source/lock.toml holds no checksum of mlx-sys: restore that file"))
}

/// Runs `cargo vendor` in the folder; gives the vendored crate's folder.
fn vendor(folder: &Path) -> Outcome<PathBuf> {
    for (name, text) in [("Cargo.toml", MANIFEST), ("Cargo.lock", LOCK), ("lib.rs", "")] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| io_failure("write", &path, &e))?;
    }
    let mut command = Command::new(target::required("CARGO")?);
    command.args(["vendor", "--locked", "--quiet", "--versioned-dirs", "vendor"]);
    command.current_dir(folder);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(disturbs_cargo) {
            command.env_remove(&name);
        }
    }
    let output = command
        .output()
        .map_err(|e| Failure::new(format!("could not start cargo to fetch mlx-c's sources: {e}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said
            .lines()
            .map(str::trim)
            .filter(|l| !l.is_empty())
            .take(6)
            .collect();
        return Err(Failure::new(format!(
            "could not fetch mlx-c's sources (crate mlx-sys 0.7.0) from your cargo registry; cargo vendor said: {}. \
             Check the network and your registry's settings in ~/.cargo/config.toml, then build again",
            said.join(" | ")
        )));
    }
    Ok(folder.join("vendor/mlx-sys-0.7.0"))
}

/// Whether a variable that this build's cargo set would leak into the other cargo. Registry, network and home settings stay.
pub fn disturbs_cargo(name: &str) -> bool {
    const KEPT: [&str; 8] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRY_",
        "CARGO_REGISTRIES_",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_CACHE_",
    ];
    if name.starts_with("RUSTC") || name.starts_with("RUSTFLAGS") || name.starts_with("RUSTDOC") {
        return true;
    }
    name.starts_with("CARGO") && !KEPT.iter().any(|kept| name.starts_with(kept))
}
