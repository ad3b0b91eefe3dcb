//! Finds libclang for bindgen: the system's, or the published wheel's.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache::Cache;
use crate::failure::Outcome;
use crate::index;
use crate::pins::{self, Machine, Pin};

/// A libclang, by the folder that holds it.
pub struct Libclang {
    /// For `LIBCLANG_PATH`.
    pub folder: PathBuf,
    /// Headers that it lacks: the wheel holds none of Clang's own.
    pub include: Option<PathBuf>,
}

/// The system's libclang, or none.
pub fn of_system() -> Option<Libclang> {
    let folders = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let folders = folders.into_iter().map(|path| {
        // The variable may name the file itself.
        match path.parent() {
            Some(parent) if path.is_file() => parent.to_owned(),
            _ => path,
        }
    });
    let folder = folders
        .chain(usual_folders())
        .find(|folder| has_libclang(folder))?;
    Some(Libclang {
        folder,
        include: None,
    })
}

/// The wheel's libclang, fetched if need be.
pub fn of_wheel(cache: &Cache, pins: &[Pin]) -> Outcome<Libclang> {
    // It runs here, in the build script: the host counts, not the target.
    let machine = Machine {
        os: env::consts::OS,
        arch: env::consts::ARCH,
        macos: cfg!(target_os = "macos").then_some(u32::MAX),
    };
    let chosen = pins::choose(pins, "libclang", machine);
    let file = if cfg!(target_os = "macos") {
        "clang/native/libclang.dylib"
    } else {
        "clang/native/libclang.so"
    };
    let folder = index::unpacked(cache, "libclang", &chosen, file, |name| {
        name == file || name.contains("LICENSE")
    })?;
    Ok(Libclang {
        folder: folder.join("clang/native"),
        include: compiler_headers(),
    })
}

/// Where `stddef.h` and the like of the system's compiler lie.
fn compiler_headers() -> Option<PathBuf> {
    let print = if cfg!(target_os = "macos") {
        "-print-resource-dir"
    } else {
        "-print-file-name=include"
    };
    let output = Command::new("cc").arg(print).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let path = if cfg!(target_os = "macos") {
        path.join("include")
    } else {
        path
    };
    path.is_dir().then_some(path)
}

fn has_libclang(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name == "libclang.dylib"
            || name == "libclang.so"
            || name.starts_with("libclang.so.")
            // Not libclang-cpp, which is another library.
            || (name.contains(".so")
                && name
                    .strip_prefix("libclang-")
                    .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
    })
}

/// Where systems keep libclang, newest first.
fn usual_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let said = Command::new("llvm-config").arg("--libdir").output();
    if let Ok(output) = said.as_ref()
        && output.status.success()
    {
        folders.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    if cfg!(target_os = "macos") {
        let developer = Command::new("xcode-select").arg("-p").output();
        if let Ok(output) = developer {
            let base = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
            folders.push(base.join("Toolchains/XcodeDefault.xctoolchain/usr/lib"));
            folders.push(base.join("usr/lib"));
        }
        folders.extend(
            [
                "/Library/Developer/CommandLineTools/usr/lib",
                "/opt/homebrew/opt/llvm/lib",
            ]
            .map(PathBuf::from),
        );
        return folders;
    }
    let mut versioned: Vec<(u32, PathBuf)> = Vec::new();
    for base in ["/usr/lib", "/usr/lib64"] {
        for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if let Some(rest) = name.strip_prefix("llvm") {
                let version = rest.trim_start_matches('-').parse().unwrap_or(0);
                versioned.push((version, entry.path().join("lib")));
                versioned.push((version, entry.path().join("lib64")));
            }
        }
    }
    versioned.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.extend(versioned.into_iter().map(|(_, folder)| folder));
    let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    folders.extend(["/usr/lib64", "/usr/lib", "/usr/local/lib", &multiarch].map(PathBuf::from));
    folders
}
