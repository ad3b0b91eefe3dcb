//! What the engine tells of itself: a record per step and a snapshot of its state.

use super::request::RequestId;
pub use super::stopwatch::PhaseTimes;
use crate::cache::LayersHeld;

/// KV memory in bytes: `used <= allocated <= reserved <= budget`, always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KvFigures {
    /// Positions that hold something.
    pub used: u64,
    /// What the layouts hold now.
    pub allocated: u64,
    /// The most that the layouts of all admitted rows can come to hold.
    pub reserved: u64,
    /// The limit on `reserved`.
    pub budget: u64,
}

/// MLX's allocator, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MlxMemory {
    /// Held by live arrays.
    pub active: u64,
    /// Kept for reuse.
    pub cache: u64,
    /// The most that was ever active.
    pub peak: u64,
}

/// Where a forward's time goes, in nanoseconds. Known in attribution mode alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attribution {
    /// The model up to its head.
    pub forward_ns: u64,
    /// From hidden states to logits.
    pub head_ns: u64,
    /// From logits to tokens.
    pub sampling_ns: u64,
}

impl Attribution {
    /// Adds another record to this one.
    pub fn add(&mut self, other: &Self) {
        self.forward_ns += other.forward_ns;
        self.head_ns += other.head_ns;
        self.sampling_ns += other.sampling_ns;
    }
}

/// One decode step, all times in nanoseconds. Build + read + emit + gap, over all steps, is wall time less idle time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepSample {
    /// The step's number since the engine's start, from 0.
    pub step: u64,
    /// Rows in the step.
    pub rows: u32,
    /// Tokens that the step emitted.
    pub tokens: u32,
    /// Prompt tokens processed in the gap before the step.
    pub prefill_tokens: u32,
    /// Prompt tokens that rode along in the step's forward.
    pub mixed_tokens: u32,
    /// Host time until the step is started; `construct + dispatch`.
    pub build_ns: u64,
    /// Of build, making the graph.
    pub construct_ns: u64,
    /// Of build, handing it to the device; MLX's CPU backend computes in here.
    pub dispatch_ns: u64,
    /// Of dispatch, in attribution mode: the model up to its head, the head, and sampling; else all 0.
    pub attribution: Attribution,
    /// Time blocked for the previous step's tokens.
    pub read_ns: u64,
    /// Delivery to consumers, text included.
    pub emit_ns: u64,
    /// From the end of the last step (or the wake-up) to the start of this one.
    pub gap_ns: u64,
    /// Of gap, prompt processing.
    pub prefill_ns: u64,
    /// KV memory at the end of the step.
    pub kv: KvFigures,
    /// MLX's memory at the end of the step.
    pub mlx: MlxMemory,
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    /// It waits: for a place, or for KV budget.
    Queued {
        /// Whether it is the budget that it waits for.
        for_kv: bool,
    },
    /// Its prompt is being processed: `done` of `total` tokens.
    Prefill {
        /// Prompt tokens held, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// It is in the running batch.
    Decode,
    /// It has ended, and is shown for a while.
    Done,
}

/// One request, for the rows table.
#[derive(Debug, Clone, PartialEq)]
pub struct RowSnapshot {
    /// Which request.
    pub id: RequestId,
    /// The session it belongs to, if any.
    pub session: Option<String>,
    /// Where it is.
    pub state: RowState,
    /// Prompt tokens.
    pub prompt: usize,
    /// Of these, from the prompt cache.
    pub cached: usize,
    /// Tokens generated so far.
    pub generated: usize,
    /// Decode rate over the last second, where there was one.
    pub tokens_per_s: Option<f64>,
    /// Milliseconds from submission to the first token, once there.
    pub ttft_ms: Option<f64>,
    /// Milliseconds in the queue (so far).
    pub queued_ms: f64,
    /// KV bytes that hold something.
    pub kv_used: u64,
    /// KV bytes reserved; for a queued row, what it needs.
    pub kv_reserved: u64,
}

/// The prompt cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PromptCacheStats {
    /// Whether there is one.
    pub enabled: bool,
    /// Lookups so far.
    pub lookups: u64,
    /// Of these, all but the last prompt token served.
    pub full: u64,
    /// Some served.
    pub partial: u64,
    /// None served.
    pub miss: u64,
    /// Prompt tokens asked for.
    pub tokens_asked: u64,
    /// Prompt tokens served.
    pub tokens_served: u64,
    /// Entries held.
    pub entries: u64,
    /// Bytes held.
    pub bytes: u64,
    /// Limit in bytes.
    pub limit: u64,
    /// Entries evicted so far.
    pub evictions: u64,
    /// Nanoseconds of all look-ups, and of restoring what they found.
    pub restore_ns: u64,
    /// Entries on disk.
    pub disk: DiskStats,
}

/// Entries of the prompt cache on disk and on the way there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Whether entries are written.
    pub state: DiskState,
    /// Files in the folder, of all models.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Limit in bytes.
    pub limit: u64,
    /// Bytes on their way to disk.
    pub pending: u64,
    /// Entries written so far.
    pub written: u64,
    /// Entries that were given up, because the disk could not keep up or take them.
    pub dropped: u64,
    /// Entries restored so far.
    pub restored: u64,
    /// Files that were no good, and were removed.
    pub damaged: u64,
}

/// Whether entries of the prompt cache go to disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DiskState {
    /// There is no such tier.
    #[default]
    Off,
    /// They are written and read.
    On,
    /// They are read, but the last could not be written. Each that leaves memory is another try.
    Paused,
}

/// Whether the engine can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineState {
    /// The model is being loaded; what is done now, and how much of it, in bytes.
    Loading {
        /// What is being done.
        stage: String,
        /// Bytes done.
        done: u64,
        /// Bytes in all; 0 if unknown.
        total: u64,
    },
    /// It takes requests.
    Ready,
    /// It has failed, and takes no more: why.
    Failed(String),
    /// It was closed.
    Closed,
}

/// What runs, for headers and reports; known once the model is loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineInfo {
    /// The model's name.
    pub model: String,
    /// Its family and size in words.
    pub description: String,
    /// The device that computes.
    pub device: String,
    /// MLX's version.
    pub mlx: String,
    /// Token ids that the model knows.
    pub vocabulary: usize,
    /// The most positions a conversation can have.
    pub context_length: usize,
    /// Whether text and messages can be taken (a model without tokenizer takes ids alone).
    pub has_tokenizer: bool,
    /// Whether the chat template has a switch for thinking.
    pub thinking_switch: bool,
    /// KV bytes per token of context.
    pub kv_bytes_per_token: u64,
    /// How its layers hold keys and values, from the first to the last.
    pub kv_layers: Vec<LayersHeld>,
    /// The same in a few words, where anything is quantized.
    pub kv_quantized: Option<String>,
    /// Whether the KV budget is nobody's wish: half of what device memory leaves after the weights.
    pub default_kv_budget: bool,
}

/// Sums since the engine took its first command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Decode forwards dispatched.
    pub steps: u64,
    /// Tokens that decode steps delivered.
    pub decode_tokens: u64,
    /// Nanoseconds of decode steps: everything but idling and prompt processing.
    pub decode_ns: u64,
    /// Chunks of prompts processed between steps (a last token counts as one).
    pub prefill_chunks: u64,
    /// Prompt tokens processed between steps.
    pub prefill_tokens: u64,
    /// Prompt tokens that rode along in steps.
    pub mixed_tokens: u64,
    /// Of dispatch, in attribution mode.
    pub attribution: Attribution,
    /// Nanoseconds since the start, by the clock.
    pub wall_ns: u64,
    /// Where all the time went; together it is the wall time.
    pub phases: PhaseTimes,
    /// The most of each KV figure.
    pub kv_peak: KvFigures,
}

/// The engine's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Whether it can be used.
    pub state: EngineState,
    /// What runs.
    pub info: EngineInfo,
    /// Decode steps so far.
    pub steps: u64,
    /// Every request that waits, prepares or runs, in order of submission, and those that ended of late.
    pub rows: Vec<RowSnapshot>,
    /// Requests in the queue.
    pub queued: usize,
    /// KV memory.
    pub kv: KvFigures,
    /// Positions of the longest row, prompt and answer together, that the model and the KV budget have room for; 0 where that isn't known.
    pub longest_row: usize,
    /// The most that was ever reserved.
    pub kv_peak_reserved: u64,
    /// The prompt cache.
    pub prompt_cache: PromptCacheStats,
    /// MLX's memory.
    pub mlx: MlxMemory,
    /// All rows' decode rate over the last second, where there was one.
    pub decode_tokens_per_s: Option<f64>,
    /// Prompt processing rate over the last second in which there was any.
    pub prefill_tokens_per_s: Option<f64>,
    /// Step records that were dropped because nobody took them.
    pub dropped_samples: u64,
    /// Sums since the start.
    pub totals: Totals,
}

impl Snapshot {
    /// An engine that has just been asked to load.
    pub fn loading(stage: impl Into<String>) -> Self {
        Self {
            state: EngineState::Loading {
                stage: stage.into(),
                done: 0,
                total: 0,
            },
            info: EngineInfo::default(),
            steps: 0,
            rows: Vec::new(),
            queued: 0,
            kv: KvFigures::default(),
            longest_row: 0,
            kv_peak_reserved: 0,
            prompt_cache: PromptCacheStats::default(),
            mlx: MlxMemory::default(),
            decode_tokens_per_s: None,
            prefill_tokens_per_s: None,
            dropped_samples: 0,
            totals: Totals::default(),
        }
    }
}
