//! Why a layer could not be put into the graph.

use mlx_rs::error::Exception;

use crate::cache::CacheError;

/// What went wrong in a layer.
#[derive(Debug, thiserror::Error)]
pub enum NnError {
    /// MLX refused an operation.
    #[error(transparent)]
    Mlx(#[from] Exception),
    /// The caches refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
