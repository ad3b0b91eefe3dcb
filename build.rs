//! Lets every binary of this package find libmlx where `mlx-sys` found it, and tells `--version` what it is.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by mlx-sys, the crate whose `links` is "mlx".
    if let Ok(libraries) = env::var("DEP_MLX_LIBDIR") {
        // Reaches binaries, examples, tests and benches alike.
        println!("cargo::rustc-link-arg=-Wl,-rpath,{libraries}");
    }
    for (name, from) in [
        ("MLX_CHAT_MLX_VERSION", "DEP_MLX_VERSION"),
        ("MLX_CHAT_MLX_BACKEND", "DEP_MLX_BACKEND"),
        ("MLX_CHAT_MLX_LIBDIR", "DEP_MLX_LIBDIR"),
    ] {
        let value = env::var(from).unwrap_or_else(|_| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
}
