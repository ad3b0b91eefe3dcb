//! Rust declarations of mlx-c and of our bridge, by bindgen; kept in the cache.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use bindgen::Formatter;

use crate::cache::Cache;
use crate::failure::{Failure, Outcome, io_failure};
use crate::key::{self, Key};
use crate::libclang::{self, Libclang};
use crate::mlx_c::MlxC;
use crate::pins::Pin;
use crate::target::Target;

/// Half-precision values cross as their bits, the same on every platform: mlx-rs wants a tuple struct and a number.
const HALVES: &str = "#[repr(transparent)] #[derive(Debug, Default, Copy, Clone, PartialEq, Eq)] pub struct float16_t(pub u16);\n\
    pub type bfloat16_t = u16;";

/// Bump when the settings below change.
const SETTINGS: &str = "2";

/// The file of declarations, generated if the cache hasn't got it.
pub fn find(cache: &Cache, target: &Target, mlx_c: &MlxC, native: &Path, pins: &[Pin]) -> Outcome<PathBuf> {
    let wrapper = native.join("bindings.h");
    let key = Key::new()
        .part("settings", SETTINGS)
        .part("halves", HALVES)
        .part("mlx-c", &mlx_c.checksum)
        .part("target", &target.triple)
        .part("wrapper", key::file_sha256(&wrapper)?)
        .part("bridge", key::file_sha256(&native.join("bridge.h"))?)
        .finish();
    let folder = cache.folder("bindings", &key, "bindings.rs", |folder| {
        let text = by_any_libclang(cache, mlx_c, native, &wrapper, pins)?;
        let path = folder.join("bindings.rs");
        fs::write(&path, text).map_err(|e| io_failure("write", &path, &e))
    })?;
    Ok(folder.join("bindings.rs"))
}

/// With the system's libclang, and where there is none or it doesn't load, with the wheel's.
fn by_any_libclang(
    cache: &Cache,
    mlx_c: &MlxC,
    native: &Path,
    wrapper: &Path,
    pins: &[Pin],
) -> Outcome<String> {
    let wheel_only = std::env::var_os("MLX_CHAT_LIBCLANG").is_some_and(|v| v == "wheel");
    let system = if wheel_only { None } else { libclang::of_system() };
    let mut said_before = String::new();
    if let Some(found) = system {
        match generate(&found, mlx_c, native, wrapper) {
            Ok(text) => return Ok(text),
            Err(said) => {
                said_before = format!(
                    " (the system's, in {}, failed before: {said})",
                    found.folder.display()
                );
            }
        }
    }
    let wheel = libclang::of_wheel(cache, pins)?;
    generate(&wheel, mlx_c, native, wrapper).map_err(|said| {
        Failure::new(format!(
            "bindgen failed with libclang in {}: {said}{said_before}. Install libclang (packages libclang-dev or clang), name its folder by LIBCLANG_PATH, \
             or set MLX_CHAT_LIBCLANG=wheel to use the published one only",
            wheel.folder.display()
        ))
    })
}

fn generate(libclang: &Libclang, mlx_c: &MlxC, native: &Path, wrapper: &Path) -> Result<String, String> {
    // SAFETY: the build script has no other thread at this point that reads or writes the environment.
    unsafe { std::env::set_var("LIBCLANG_PATH", &libclang.folder) };
    let mut builder = bindgen::builder()
        .header(wrapper.to_string_lossy())
        .clang_arg(format!("-I{}", mlx_c.root.display()))
        .clang_arg(format!("-I{}", native.display()))
        .allowlist_item("_?mlx_.*|MLX_.*")
        .blocklist_type("float16_t")
        .blocklist_type("bfloat16_t")
        .raw_line(HALVES)
        .generate_comments(false)
        .layout_tests(false)
        .formatter(Formatter::None);
    if let Some(include) = &libclang.include {
        builder = builder.clang_arg(format!("-isystem{}", include.display()));
    }
    // bindgen panics where libclang can't be loaded.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let result = panic::catch_unwind(AssertUnwindSafe(|| builder.generate()));
    panic::set_hook(hook);
    match result {
        Ok(Ok(bindings)) => Ok(bindings.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(payload) => Err(payload
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| "it panicked".to_owned())),
    }
}
