//! Out of the batch: what a row's caches are worth, and the end that its consumer hears.

use std::time::Instant;

use super::Scheduler;
use crate::engine::batch::{Batch, Departed};
use crate::engine::command::{Arrival, Command};
use crate::engine::event::FinishReason;
use crate::engine::prefill::Joiner;
use crate::engine::prompt_cache::index::Class;
use crate::engine::prompt_cache::store::MIN_TOKENS;
use crate::engine::row::{End, Row};
use crate::engine::stopwatch::Phase;
use crate::engine::telemetry::{EngineState, RowState};

impl Scheduler {
    pub(super) fn evict(&mut self) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        let caching = self.prompt_cache.is_some();
        let (departed, outcome) = batch.evict(|row| {
            let end = row.end.as_ref();
            caching && end.is_some_and(|end| publishable(row, end))
        });
        for departed in departed {
            self.depart(departed);
        }
        match outcome {
            Err(error) => {
                tracing::error!(%error, "the batch was dropped");
                self.abandoned = batch.abandon();
                self.crash();
            }
            Ok(()) if batch.rows().is_empty() => self.abandoned = batch.abandon(),
            Ok(()) => self.batch = Some(batch),
        }
    }

    pub(super) fn evict_joiners(&mut self) {
        while let Some(at) = self.preparing.iter().position(|joiner| joiner.row.end.is_some()) {
            let Some(Joiner { mut row, .. }) = self.preparing.remove(at) else {
                return;
            };
            let end = row
                .end
                .take()
                .unwrap_or_else(|| End::plain(FinishReason::Cancelled));
            self.finish(row, end);
        }
    }

    pub(super) fn publishable(&self, row: &Row, end: &End) -> bool {
        self.prompt_cache.is_some() && publishable(row, end)
    }

    pub(super) fn depart(&mut self, departed: Departed) {
        let Departed { row, end, cache } = departed;
        if let (Some(cache), Some(prompt_cache)) = (cache, &mut self.prompt_cache) {
            prompt_cache.publish(&self.namespace, row.covered(), cache, Class::Turn);
        }
        self.finish(row, end);
    }

    pub(super) fn drop_batch(&mut self, mut batch: Batch, message: &str) {
        tracing::error!(%message, "the running batch failed");
        self.abandoned = batch.abandon();
        self.crash();
        for departed in batch.fail(message) {
            self.finish(departed.row, departed.end);
        }
    }

    pub(super) fn finish(&mut self, row: Row, end: End) {
        let now = Instant::now();
        let mut last = self.describe(&row, RowState::Done, now);
        last.kv_used = 0;
        last.kv_reserved = 0;
        self.recorder.finished(last, now);
        let before = self.recorder.stopwatch.enter(Phase::Emit);
        row.finish(end, now);
        self.recorder.stopwatch.enter(before);
    }

    /// Ends everything with the same error; used at closing and when the loop itself has failed.
    pub fn end_all(&mut self, message: &str, state: EngineState) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Submit(job) => self.arrivals.push_back(Arrival { at_step: 0, job }),
                Command::Schedule(arrivals) => self.arrivals.extend(arrivals),
                _ => {}
            }
        }
        let mut rows: Vec<Row> = self.queue.drain().map(|waiting| waiting.item).collect();
        rows.extend(
            std::mem::take(&mut self.preparing)
                .into_iter()
                .map(|joiner| joiner.row),
        );
        rows.extend(
            self.batch
                .take()
                .into_iter()
                .flat_map(|batch| batch.fail(message))
                .map(|left| left.row),
        );
        rows.extend(
            std::mem::take(&mut self.arrivals)
                .into_iter()
                .map(|arrival| Row::new(*arrival.job)),
        );
        for row in rows {
            self.finish(row, End::error(message));
        }
        self.holds.clear();
        self.tasks.clear();
        self.residency.release();
        self.publish(Instant::now());
        if let Some(mut prompt_cache) = self.prompt_cache.take()
            && state == EngineState::Closed
        {
            prompt_cache.save(|stats| {
                self.recorder
                    .publish(Instant::now(), |snapshot| snapshot.prompt_cache = stats);
            });
        }
        self.recorder.state(state);
    }
}

/// Whether a row's caches are worth keeping and known to hold exactly what it accounts for.
fn publishable(row: &Row, end: &End) -> bool {
    let ended_well = matches!(
        end.reason,
        FinishReason::Stop | FinishReason::Length | FinishReason::Cancelled
    );
    let wanted = !row.merged || row.job.prompt.len() >= MIN_TOKENS || row.job.session.is_some();
    ended_well && wanted && row.job.cache && row.coverage_is_exact()
}
