//! How an engine is set up.

use super::prompt_cache::disk::tier::DiskOptions;

/// Prompt tokens between two steps, where nothing else is asked for.
pub const PREFILL_TOKENS: usize = 2048;

/// Tokens of a mixed iteration, where nothing else is asked for.
pub const MIXED_TOKENS: usize = 256;

/// Prompt tokens in a mixed iteration of a device that is too slow for [`PREFILL_TOKENS`] in a second: their arithmetic takes
/// about as long as a step of a few rows, whatever the model's size, so that a step becomes less than twice as long.
const SLOW_RIDERS: usize = 8;

/// The engine's settings; those of one request are in [`super::Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// The most rows that run or prepare at once.
    pub max_batch: usize,
    /// The most requests that wait.
    pub max_queued: usize,
    /// The most prompt tokens of one row between two steps; unset: [`PREFILL_TOKENS`], or what the model says its device
    /// can do in about a second, where that is less.
    pub prefill_chunk: Option<usize>,
    /// The most prompt tokens of all rows between two steps; unset: as for a chunk.
    pub prefill_batch_tokens: Option<usize>,
    /// Whether prompts that are processed while others decode ride along in their steps, and how many tokens a step may have.
    pub mixed_prefill: MixedPrefill,
    /// The limit on reserved KV bytes; unset: half of what device memory leaves after the weights.
    pub kv_budget: Option<u64>,
    /// Whether and how much the prompt cache may hold.
    pub prompt_cache: PromptCacheLimit,
    /// Where entries of the prompt cache go that memory has no room for, and all of them at exit; unset: nowhere.
    pub prompt_cache_disk: Option<DiskOptions>,
    /// What the device is taken to have in bytes; unset: what MLX and the machine tell. Where it runs short, the prompt cache
    /// gives way.
    pub device_memory: Option<u64>,
    /// Whether a step is built before the last one's tokens are read.
    pub pipeline: bool,
    /// Whether token 0 of a row that joins an empty batch goes unread into its first step, instead of being read and
    /// delivered before it: the first step starts earlier, the first token comes later.
    pub seed_first_token: bool,
    /// Whether forward, head and sampling are evaluated one by one, so that each shows its own time. Slower.
    pub attribution: bool,
}

/// How much the prompt cache may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCacheLimit {
    /// There is none.
    Off,
    /// A quarter of the KV budget.
    Default,
    /// This many bytes.
    Bytes(u64),
}

/// Whether prompts ride along in the running rows' steps. Pieces of prompts are then small enough to fit beside all other rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedPrefill {
    /// They stop the rows for whole chunks.
    Off,
    /// [`MIXED_TOKENS`] in a step; on a slow device as many as make it less than twice as long.
    Default,
    /// So many tokens at most in a step, those of the running rows among them; never fewer than rows may run, so that a
    /// token of a prompt fits beside all others.
    Tokens(usize),
}

impl PromptCacheLimit {
    /// The limit in bytes for a given KV budget; `None` where there is no cache.
    pub fn resolve(self, kv_budget: u64) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Default => Some(kv_budget / 4),
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl EngineOptions {
    /// The most prompt tokens of one row in a forward, on a device that does `brisk` of them in about a second. It doesn't
    /// depend on what else runs, and so neither does where a prompt is cut.
    pub fn chunk(&self, brisk: usize) -> usize {
        let chunk = self.prefill_chunk.unwrap_or(PREFILL_TOKENS.min(brisk));
        let others = self.max_batch.saturating_sub(1);
        let beside = self
            .mixed_tokens(brisk)
            .map(|budget| budget.saturating_sub(others));
        chunk.min(beside.unwrap_or(chunk)).max(1)
    }

    /// The most tokens of a step in which prompts ride along; `None` where they don't.
    pub fn mixed_tokens(&self, brisk: usize) -> Option<usize> {
        match self.mixed_prefill {
            MixedPrefill::Off => None,
            MixedPrefill::Default if brisk < PREFILL_TOKENS => {
                Some(self.max_batch.saturating_sub(1) + SLOW_RIDERS)
            }
            MixedPrefill::Default => Some(MIXED_TOKENS),
            MixedPrefill::Tokens(tokens) => Some(tokens.max(self.max_batch)),
        }
    }

    /// The most prompt tokens of all rows between two steps.
    pub fn batch_tokens(&self, brisk: usize) -> usize {
        self.prefill_batch_tokens.unwrap_or(PREFILL_TOKENS.min(brisk))
    }
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_batch: 8,
            max_queued: 64,
            prefill_chunk: None,
            prefill_batch_tokens: None,
            mixed_prefill: MixedPrefill::Off,
            kv_budget: None,
            prompt_cache: PromptCacheLimit::Default,
            prompt_cache_disk: None,
            device_memory: None,
            pipeline: true,
            seed_first_token: false,
            attribution: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_small_on_a_slow_device_unless_something_else_is_asked_for() {
        let chunk = |prefill_chunk| {
            let options = EngineOptions {
                prefill_chunk,
                ..EngineOptions::default()
            };
            [options.chunk(usize::MAX), options.chunk(512)]
        };
        assert_eq!(chunk(None), [PREFILL_TOKENS, 512]);
        assert_eq!(chunk(Some(700)), [700, 700]);
    }

    #[test]
    fn a_chunk_that_rides_along_fits_beside_all_other_rows() {
        for (budget, max_batch, chunk) in [(256, 8, 249), (256, 1, 256), (4, 8, 1), (2000, 8, 512)] {
            let options = EngineOptions {
                mixed_prefill: MixedPrefill::Tokens(budget),
                max_batch,
                ..EngineOptions::default()
            };
            assert_eq!(options.chunk(512), chunk, "{budget} for {max_batch}");
        }
    }

    #[test]
    fn fewer_tokens_ride_along_on_a_slow_device_unless_something_else_is_asked_for() {
        let tokens = |mixed_prefill, brisk| {
            let options = EngineOptions {
                mixed_prefill,
                ..EngineOptions::default()
            };
            options.mixed_tokens(brisk)
        };
        assert_eq!(tokens(MixedPrefill::Off, 512), None);
        assert_eq!(tokens(MixedPrefill::Default, usize::MAX), Some(MIXED_TOKENS));
        assert_eq!(tokens(MixedPrefill::Default, 512), Some(7 + SLOW_RIDERS));
        assert_eq!(tokens(MixedPrefill::Tokens(300), 512), Some(300));
        assert_eq!(
            tokens(MixedPrefill::Tokens(3), 512),
            Some(8),
            "a prompt's token beside 7 rows"
        );
    }
}
