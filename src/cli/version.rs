//! What was built: our version, MLX's, and the backend that it was linked with.

/// MLX's version, as linked.
pub const MLX: &str = env!("MLX_CHAT_MLX_VERSION");

/// The backend that was linked: `metal`, `cpu`, `cuda12` or `cuda13`.
pub const BACKEND: &str = env!("MLX_CHAT_MLX_BACKEND");

/// Where libmlx was found when this was built.
pub const LIBDIR: &str = env!("MLX_CHAT_MLX_LIBDIR");

/// One line: `0.1.0 (MLX 0.32.2, cpu)`.
pub const LINE: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (MLX ",
    env!("MLX_CHAT_MLX_VERSION"),
    ", ",
    env!("MLX_CHAT_MLX_BACKEND"),
    ")"
);
