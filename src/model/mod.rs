//! From `config.json` or GGUF metadata and a file of weights to a model that can be run.

mod architecture;
mod assemble;
mod decoder;
mod describe;
mod error;
mod families;
mod feed;
pub mod hashing;
mod info;
mod json;
mod load;
mod outline;
mod random;
mod settings;
pub mod weights;

pub use describe::{Description, describe, describe_gguf};
pub use error::ModelError;
pub use feed::{Feed, Piece, Step};
pub use info::ModelInfo;
pub use load::{LoadOptions, LoadProgress, Loaded, load};
pub use outline::{Outline, TypeShare, outline, outline_gguf};
pub use random::{RandomModel, load_random};

use mlx_rs::Array;

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

    /// Feeds tokens to rows, all in one forward: builds the graph of what the head takes, `[ΣB, hidden]` for the rows of the
    /// steps in their order, and computes nothing. Whoever evaluates that has not evaluated the rows of the pieces: evaluate
    /// their arrays, too. With no steps, the result says nothing. After an error all that was fed must be dropped.
    fn packed(&self, feed: &mut Feed<'_>) -> Result<Array, ModelError>;

    /// [`packed`](Self::packed) of one piece: feeds `tokens` to the row, after what it holds.
    fn prefill(&self, tokens: &[u32], row: &mut RowCache) -> Result<(), ModelError> {
        self.packed(&mut Feed::piece(tokens, row)).map(|_| ())
    }

    /// [`packed`](Self::packed) of one step: feeds one token to each row, `tokens` is `[B]` uint32.
    fn forward(&self, tokens: &Array, batch: &mut BatchCache) -> Result<Array, ModelError> {
        self.packed(&mut Feed::step(tokens, batch))
    }

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
