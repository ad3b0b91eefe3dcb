//! From `config.json` or GGUF metadata and a file of weights to a model that can be run.

mod architecture;
mod assemble;
mod decoder;
mod describe;
mod error;
mod families;
pub mod hashing;
mod info;
mod json;
mod load;
mod outline;
mod settings;
pub mod weights;

pub use describe::{Description, describe, describe_gguf};
pub use error::ModelError;
pub use info::ModelInfo;
pub use load::{LoadOptions, LoadProgress, Loaded, load};
pub use outline::{Outline, TypeShare, outline, outline_gguf};

use mlx_rs::{Array, Dtype};

use error::Doing;

use crate::cache::{BatchCache, CachePlan, RowCache};
pub use crate::nn::MostLikely;

/// A model of language: tokens in, the next token's logits out. Used by one thread, the one that loaded it.
pub trait LanguageModel {
    /// What it is.
    fn info(&self) -> &ModelInfo;

    /// How large its caches get.
    fn plan(&self) -> &CachePlan;

    /// An empty row for it.
    fn new_row(&self) -> RowCache {
        RowCache::new(self.plan())
    }

    /// Feeds `tokens` to the row, after what it holds: builds the graph and computes nothing. The caller
    /// evaluates the row's arrays. No logits. After an error the row must be dropped.
    fn prefill(&self, tokens: &[u32], row: &mut RowCache) -> Result<(), ModelError>;

    /// Feeds one token to each row: `tokens` is `[B]` uint32, possibly still unread. Builds the graph of what the head takes,
    /// `[B, hidden]`, and computes nothing. After an error the batch must be dropped.
    fn forward(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError>;

    /// From what [`forward`](Self::forward) gives to logits, `[B, V]` float32.
    fn head(&self, hidden: &Array) -> Result<Array, ModelError>;

    /// The most likely token of each row by logits `[B, V]`.
    fn most_likely(&self, logits: &Array) -> Result<MostLikely, ModelError> {
        MostLikely::by_ops(logits).doing("choose tokens")
    }

    /// [`forward`](Self::forward), then [`head`](Self::head).
    fn decode(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError> {
        self.head(&self.forward(tokens, batch)?)
    }
}

/// Checks that a step's tokens are `[B]` uint32, one for each row of the batch.
fn check_tokens(tokens: &Array, batch: &BatchCache) -> Result<(), ModelError> {
    let (shape, rows) = (tokens.shape(), batch.rows());
    if tokens.dtype() != Dtype::Uint32
        || shape.len() != 1
        || shape.first() != i32::try_from(rows).ok().as_ref()
    {
        let found = tokens.dtype();
        return Err(ModelError::Misuse(format!(
            "a step of {rows} rows was given tokens of shape {shape:?} and type {found:?}, \
             expected [{rows}] uint32"
        )));
    }
    Ok(())
}
