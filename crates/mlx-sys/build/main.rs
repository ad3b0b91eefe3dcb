//! Links MLX: finds or fetches its published binaries, compiles mlx-c and the bridge against them, and declares
//! both to Rust. Everything costly is kept in a cache outside `target/` (see README.md).

mod archive;
mod backend;
mod bindings;
mod cache;
mod compiler;
mod failure;
mod index;
mod key;
mod libclang;
mod mlx;
mod mlx_c;
mod pins;
mod target;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use cache::Cache;
use compiler::{Archive, Compiler};
use failure::{Outcome, io_failure};
use mlx::Mlx;
use mlx_c::MlxC;
use target::Target;

/// The variables that change what is built.
const VARIABLES: [&str; 14] = [
    "MLX_CHAT_BACKEND",
    "MLX_CHAT_CACHE_DIR",
    "MLX_CHAT_LIBCLANG",
    "MLX_DIR",
    "XDG_CACHE_HOME",
    "HOME",
    "CXX",
    "CXXFLAGS",
    "HOST_CXX",
    "TARGET_CXX",
    "TARGET_CXXFLAGS",
    "LIBCLANG_PATH",
    "MACOSX_DEPLOYMENT_TARGET",
    "SDKROOT",
];

fn main() {
    if let Err(failure) = build() {
        println!("cargo::error={}", failure.one_line());
        std::process::exit(1);
    }
}

fn build() -> Outcome<()> {
    let package = PathBuf::from(target::required("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(target::required("OUT_DIR")?);
    let target = Target::from_cargo()?;
    announce_inputs(&target);

    let cache = Cache::open(cache::root_from(|v| env::var_os(v), cfg!(target_os = "macos"))?)?;
    let pins = pins::parse(include_str!("../pins.txt"))?;
    let native = package.join("native");

    let mlx = mlx::find(&cache, &target, &pins)?;
    let mlx_c = mlx_c::find(&cache)?;
    let compiler = Compiler::find(&cache, &target, &native)?;
    let bindings = bindings::find(&cache, &target, &mlx_c, &native, &pins)?;
    let copy = out.join("bindings.rs");
    fs::copy(&bindings, &copy).map_err(|e| io_failure("copy to", &copy, &e))?;

    for archive in [bridge(&native), mlx_c_library(&native, &mlx_c)?] {
        let folder = compiler.archive(&cache, &archive, &mlx, &mlx_c)?;
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static={}", archive.name);
    }
    link(&target, &mlx);
    Ok(())
}

/// Our C++ that joins Rust functions into MLX's graphs.
fn bridge(native: &Path) -> Archive {
    Archive {
        name: "mlxbridge",
        sources: vec![native.join("bridge.cpp")],
        headers: vec![native.join("bridge.h")],
    }
}

/// mlx-c, with the half-precision accessors that it has on some platforms only.
fn mlx_c_library(native: &Path, mlx_c: &MlxC) -> Outcome<Archive> {
    let mut sources = Vec::new();
    target::files_below(&mlx_c.root.join("mlx/c"), &mut sources)?;
    sources.retain(|path| path.extension().is_some_and(|e| e == "cpp"));
    sources.sort();
    sources.push(native.join("halves.cpp"));
    Ok(Archive {
        name: "mlxc",
        sources,
        headers: Vec::new(),
    })
}

/// Tells cargo when to run this again: never for a change in Rust code of ours.
fn announce_inputs(target: &Target) {
    for path in ["build", "native", "pins.txt", "mlx-c-source"] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    for prefix in ["CXX", "CXXFLAGS"] {
        println!("cargo::rerun-if-env-changed={prefix}_{}", target.triple);
        let triple = target.triple.replace('-', "_");
        println!("cargo::rerun-if-env-changed={prefix}_{triple}");
    }
}

/// Links MLX, and tells dependents where it is (`DEP_MLX_LIBDIR` and so on).
fn link(target: &Target, mlx: &Mlx) {
    let lib = mlx.lib.display();
    println!("cargo::rustc-link-search=native={lib}");
    println!("cargo::rustc-link-lib=dylib=mlx");
    let runtime = if target.is_macos() { "c++" } else { "stdc++" };
    println!("cargo::rustc-link-lib=dylib={runtime}");
    // For this package's own tests; dependents add it by DEP_MLX_LIBDIR.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
    // If the cache is cleared, build again.
    println!("cargo::rerun-if-changed={}", mlx.library.display());
    println!("cargo::metadata=libdir={lib}");
    println!("cargo::metadata=include={}", mlx.include.display());
    println!("cargo::metadata=backend={}", mlx.backend);
    println!("cargo::metadata=version={}", mlx::VERSION);
}
