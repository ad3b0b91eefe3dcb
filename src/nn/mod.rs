//! What models are made of, over `[tokens, features]`; the one place that picks an MLX op or a CPU kernel.

pub mod mask;
