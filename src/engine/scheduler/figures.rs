//! What the scheduler tells of itself.

use std::time::Instant;

use super::Scheduler;
use crate::engine::batch::Batch;
use crate::engine::prompt_cache::store::PromptCache;
use crate::engine::row::Row;
use crate::engine::telemetry::{KvFigures, RowSnapshot, RowState};

impl Scheduler {
    pub(super) fn kv(&self) -> KvFigures {
        let (mut used, mut allocated) = self.batch.as_ref().map_or((0, 0), Batch::kv_bytes);
        for joiner in &self.preparing {
            used += joiner.cache.used_bytes();
            allocated += joiner.cache.allocated_bytes();
        }
        KvFigures {
            used,
            allocated,
            reserved: self.model.plan().reserved_bytes(&self.needs(), self.chunk),
            budget: self.queue.limits().kv_budget,
        }
    }

    pub(super) fn record_peak(&mut self) {
        let kv = self.kv();
        debug_assert!(
            kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget,
            "{kv:?}"
        );
        self.recorder.peak(kv);
    }

    pub(super) fn describe(&self, row: &Row, state: RowState, now: Instant) -> RowSnapshot {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
        let held = match state {
            RowState::Queued { .. } => 0,
            RowState::Prefill { done, .. } => done,
            RowState::Decode | RowState::Done => row.job.prompt.len() + row.fed.len(),
        };
        RowSnapshot {
            id: row.id(),
            session: row.job.session.clone(),
            state,
            prompt: row.job.prompt.len(),
            cached: row.cached,
            generated: row.generated,
            tokens_per_s: row.tokens_per_second(now),
            ttft_ms: row.first_token.map(|at| ms(row.job.submitted, at)),
            queued_ms: ms(row.job.submitted, row.admitted.unwrap_or(now)),
            kv_used: self.model.plan().used_bytes(held),
            kv_reserved: self.model.plan().reserved_bytes(&[row.need()], self.chunk),
        }
    }

    pub(super) fn publish(&mut self, now: Instant) {
        let mut rows = Vec::new();
        for (place, waiting) in self.queue.iter().enumerate() {
            let state = RowState::Queued {
                for_kv: place == 0 && self.waits_for_kv,
            };
            rows.push(self.describe(&waiting.item, state, now));
        }
        for joiner in &self.preparing {
            let state = RowState::Prefill {
                done: joiner.done(),
                total: joiner.row.job.prompt.len(),
            };
            rows.push(self.describe(&joiner.row, state, now));
        }
        for row in self.batch.iter().flat_map(|batch| batch.rows()) {
            rows.push(self.describe(row, RowState::Decode, now));
        }
        let kv = self.kv();
        let (plan, chunk) = (self.model.plan(), self.chunk);
        let longest_row = self.queue.longest(|needs| plan.reserved_bytes(needs, chunk));
        let queued = self.queue.len();
        let prompt_cache = self
            .prompt_cache
            .as_ref()
            .map(PromptCache::stats)
            .unwrap_or_default();
        self.recorder.publish(now, |snapshot| {
            snapshot.rows.extend(rows);
            snapshot.kv = kv;
            snapshot.longest_row = longest_row;
            snapshot.queued = queued;
            snapshot.prompt_cache = prompt_cache;
        });
    }
}
