//! What the scripted engine tells of itself.

use std::time::Duration;

use super::core::Core;
use super::row::Stage;
use crate::engine::admission::Need;
use crate::engine::step_log::StepLog;
use crate::engine::telemetry::{
    EngineInfo, EngineState, KvFigures, MlxMemory, PromptCacheStats, RowSnapshot, RowState, Snapshot, Totals,
};

/// Positions by which a row's memory grows.
const GROWTH: u64 = 16;

impl Core {
    /// The prompt cache's figures.
    pub(super) fn prompt_cache(&self) -> PromptCacheStats {
        let held = self.cache.stats();
        PromptCacheStats {
            enabled: self.script.engine.prompt_cache > 0,
            entries: held.entries,
            bytes: held.bytes,
            limit: held.limit,
            evictions: held.evictions,
            ..self.cache_stats
        }
    }

    /// KV bytes of the rows that prepare or run.
    pub(super) fn kv(&self) -> KvFigures {
        let bytes = self.script.model.kv_bytes_per_token;
        let mut kv = KvFigures {
            budget: self.script.engine.kv_budget,
            ..KvFigures::default()
        };
        for row in &self.rows {
            if matches!(row.stage, Stage::Prefill | Stage::Decode) {
                kv.used += row.held_positions() as u64 * bytes;
                kv.allocated += grown(row.held_positions(), bytes);
                kv.reserved += grown(row.need().final_length(), bytes);
            }
        }
        kv
    }

    /// What an allocator might say.
    pub(super) fn mlx(&self) -> MlxMemory {
        let active = (64 << 20) + self.kv().allocated + self.cache.stats().bytes;
        MlxMemory {
            active,
            cache: 4 << 20,
            peak: self.mlx_peak.max(active),
        }
    }
}

pub(super) fn snapshot(core: &Core, log: &StepLog, now: Duration) -> Snapshot {
    let model = &core.script.model;
    let bytes = model.kv_bytes_per_token;
    let loading = matches!(core.state, EngineState::Loading { .. });
    let mut first_queued = true;
    let rows = core.rows.iter().map(|row| {
        let state = match row.stage {
            Stage::Queued => {
                let head = std::mem::take(&mut first_queued);
                RowState::Queued {
                    for_kv: head && core.waits_for_kv,
                }
            }
            Stage::Prefill => RowState::Prefill {
                done: row.done,
                total: row.prompt.len(),
            },
            Stage::Decode => RowState::Decode,
            Stage::Done => RowState::Done,
        };
        let ms = |to: Duration| to.saturating_sub(row.submitted).as_secs_f64() * 1000.0;
        let done = row.stage == Stage::Done;
        RowSnapshot {
            id: row.id,
            session: row.request.session.clone(),
            state,
            prompt: row.prompt.len(),
            cached: row.cached,
            generated: row.generated,
            tokens_per_s: row.rate.per_second(row.finished.unwrap_or(now)),
            ttft_ms: row.first_token.map(ms),
            queued_ms: ms(row.admitted.or(row.finished).unwrap_or(now)),
            kv_used: row.held_positions() as u64 * bytes,
            kv_reserved: if done {
                0
            } else {
                grown(row.need().final_length(), bytes)
            },
        }
    });
    let rows = rows.collect();
    let info = EngineInfo {
        model: model.name.clone(),
        description: model.description.clone(),
        device: model.device.clone(),
        mlx: model.mlx.clone(),
        vocabulary: 0,
        context_length: model.context_length,
        has_tokenizer: model.has_tokenizer,
        thinking_switch: model.thinking_switch,
        kv_bytes_per_token: bytes,
        kv_layers: Vec::new(),
        kv_quantized: None,
        default_kv_budget: false,
    };
    Snapshot {
        state: core.state.clone(),
        info: if loading { EngineInfo::default() } else { info },
        steps: core.steps,
        rows,
        queued: core.queued(),
        kv: core.kv(),
        longest_row: core.longest_row(),
        kv_peak_reserved: core.kv_peak,
        prompt_cache: core.prompt_cache(),
        mlx: core.mlx(),
        decode_tokens_per_s: core.decode_rate.per_second(now),
        prefill_tokens_per_s: core.prefill_rate.per_second(),
        dropped_samples: log.dropped(),
        totals: Totals::default(),
    }
}

/// Bytes of a row of `positions`, grown by whole [`GROWTH`] steps.
fn grown(positions: usize, bytes: u64) -> u64 {
    (positions as u64)
        .div_ceil(GROWTH)
        .saturating_mul(GROWTH)
        .saturating_mul(bytes)
}

/// What rows reserve: each has a buffer of its own.
pub(super) fn reserve(bytes: u64) -> impl Fn(&[Need]) -> u64 {
    move |needs| {
        let each = needs.iter().map(|need| grown(need.final_length(), bytes));
        each.fold(0, u64::saturating_add)
    }
}
