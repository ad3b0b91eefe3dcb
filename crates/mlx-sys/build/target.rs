//! What cargo tells a build script, and small reads of the file system.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, io_failure};

/// The machine that the build is for.
pub struct Target {
    /// `CARGO_CFG_TARGET_OS`.
    pub os: String,
    /// `CARGO_CFG_TARGET_ARCH`.
    pub arch: String,
    /// `CARGO_CFG_TARGET_ENV`: gnu, musl, or nothing.
    pub environment: String,
    /// The target triple.
    pub triple: String,
}

impl Target {
    /// As cargo says.
    pub fn from_cargo() -> Outcome<Self> {
        Ok(Self {
            os: required("CARGO_CFG_TARGET_OS")?,
            arch: required("CARGO_CFG_TARGET_ARCH")?,
            environment: var("CARGO_CFG_TARGET_ENV").unwrap_or_default(),
            triple: required("TARGET")?,
        })
    }

    /// Whether the target is macOS.
    pub fn is_macos(&self) -> bool {
        self.os == "macos"
    }

    /// The file name of MLX's library.
    pub fn library(&self) -> &'static str {
        if self.is_macos() {
            "libmlx.dylib"
        } else {
            "libmlx.so"
        }
    }

    /// Whether the build is for the machine that it runs on.
    pub fn is_host(&self) -> bool {
        var("HOST").is_some_and(|host| host == self.triple)
    }
}

/// A variable, if set and valid UTF-8.
pub fn var(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// A variable that cargo always sets.
pub fn required(name: &str) -> Outcome<String> {
    var(name).ok_or_else(|| {
        Failure::new(format!(
            "{name} is not set: the build script has to be run by cargo"
        ))
    })
}

/// All files below a folder.
pub fn files_below(folder: &Path, found: &mut Vec<PathBuf>) -> Outcome<()> {
    let entries = fs::read_dir(folder).map_err(|e| io_failure("read the folder", folder, &e))?;
    for entry in entries {
        let path = entry
            .map_err(|e| io_failure("read the folder", folder, &e))?
            .path();
        if path.is_dir() {
            files_below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Copies a folder with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) -> Outcome<()> {
    let mut files = Vec::new();
    files_below(from, &mut files)?;
    for file in files {
        let relative = file.strip_prefix(from).unwrap_or(&file);
        let target = to.join(relative);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|e| io_failure("create", parent, &e))?;
        }
        fs::copy(&file, &target).map_err(|e| io_failure("write", &target, &e))?;
    }
    Ok(())
}
