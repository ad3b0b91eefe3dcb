//! How a prompt is cut for prefill, and how much prefill fits between two decode steps.
//!
//! The tail is split off: chunks cover the prompt up to its last token, whose logits come from a forward of length 1,
//! so that a fresh, a cut and a restored prompt end with the same computation.

use std::ops::Range;

/// The cuts of one prompt: at multiples of the chunk, whatever was restored or cut for a snapshot besides. So no piece is
/// larger than that of a fresh row at the same place, nor is what a sliding layer holds for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPlan {
    prompt: usize,
    chunk: usize,
    boundary: Option<usize>,
}

impl ChunkPlan {
    /// Cuts for a prompt of `prompt` tokens into pieces of at most `chunk` (0 is taken as 1). If a snapshot is wanted
    /// at `boundary` tokens, a chunk ends there; a boundary past the last-but-one token can't be met and is dropped.
    pub fn new(prompt: usize, chunk: usize, boundary: Option<usize>) -> Self {
        let chunk = chunk.max(1);
        let boundary = boundary.filter(|&at| at > 0 && at < prompt);
        Self {
            prompt,
            chunk,
            boundary,
        }
    }

    /// Tokens that chunks cover: all but the last.
    pub fn covered(&self) -> usize {
        self.prompt.saturating_sub(1)
    }

    /// The next chunk, when `done` tokens are held (restored ones included); none when only the last token is left.
    pub fn next(&self, done: usize) -> Option<Range<usize>> {
        if done >= self.covered() {
            return None;
        }
        let whole = (done / self.chunk).saturating_add(1).saturating_mul(self.chunk);
        let mut end = whole.min(self.covered());
        if let Some(boundary) = self.boundary
            && done < boundary
        {
            end = end.min(boundary);
        }
        Some(done..end)
    }

    /// Whether the state is to be published when `done` tokens are held.
    pub fn is_boundary(&self, done: usize) -> bool {
        self.boundary == Some(done)
    }

    /// Tokens of prefill that are left when `done` are held, the last one included.
    pub fn left(&self, done: usize) -> usize {
        self.prompt.saturating_sub(done)
    }
}

/// The prefill done since the last decode step. The first joiner advances by one chunk; if that finishes its prompt,
/// another may start as long as all of it stays within `prefill_batch_tokens`. So running rows never wait for more than
/// the larger of a chunk and `prefill_batch_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    chunk: usize,
    batch_tokens: usize,
    spent: usize,
}

impl Burst {
    /// Nothing done yet.
    pub fn new(chunk: usize, prefill_batch_tokens: usize) -> Self {
        Self {
            chunk: chunk.max(1),
            batch_tokens: prefill_batch_tokens,
            spent: 0,
        }
    }

    /// Counts tokens that were processed, the forwards of length 1 included.
    pub fn spend(&mut self, tokens: usize) {
        self.spent = self.spent.saturating_add(tokens);
    }

    /// Tokens processed since the last decode step.
    pub fn spent(&self) -> usize {
        self.spent
    }

    /// Whether the joiner that has just finished its chunks may run its last token, too, before the next decode step.
    pub fn may_finish(&self) -> bool {
        self.spent < self.chunk.max(self.batch_tokens)
    }

    /// Whether a joiner may process a piece of `tokens` before the next decode step: the first always, another only
    /// if it fits whole, so that its cuts don't depend on who came before.
    pub fn may_start(&self, tokens: usize) -> bool {
        self.spent == 0 || self.spent.saturating_add(tokens) <= self.batch_tokens
    }
}
