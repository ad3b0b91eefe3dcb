//! Forward: joiners by a chunk, the running batch by a step.

use std::time::Instant;

use mlx_rs::memory;

use super::{MAINTENANCE_STEPS, Scheduler};
use crate::cache::KvLayout;
use crate::engine::batch::{Batch, Departed, forget};
use crate::engine::chunks::Burst;
use crate::engine::decode::StepMode;
use crate::engine::memory::mlx_memory;
use crate::engine::prefill::{Joiner, Progress};
use crate::engine::prompt_cache::index::Class;
use crate::engine::prompt_cache::store::PromptCache;
use crate::engine::recorder::StepOutcome;
use crate::engine::row::End;
use crate::engine::stopwatch::Phase;

impl Scheduler {
    /// Advances the joiner in front by one chunk; those behind it may follow while the burst's budget lasts.
    pub(super) fn prepare(&mut self) {
        if self.preparing.is_empty() {
            return;
        }
        self.recorder.stopwatch.enter(Phase::Prefill);
        self.settle();
        self.write_behind();
        let mut burst = Burst::new(self.chunk, self.batch_tokens);
        while let Some(mut joiner) = self.preparing.pop_front() {
            let tokens = joiner.next_tokens();
            if !burst.may_start(tokens) {
                self.preparing.push_front(joiner);
                break;
            }
            // Only the first row of a batch can go on from a token that nobody has read.
            let seed = self.options.seed_first_token && self.options.pipeline && self.batch.is_none();
            let started = Instant::now();
            let progress = joiner.advance(self.model.as_ref(), &self.eos, seed);
            burst.spend(tokens);
            let now = Instant::now();
            self.recorder
                .prefilled(tokens, now.saturating_duration_since(started), now);
            match progress {
                Err(error) => self.finish(joiner.row, End::error(error.to_string())),
                Ok(Progress::Chunk { boundary, .. }) => {
                    if let Some(class) = boundary {
                        self.publish_boundary(&joiner, class);
                    }
                    let only_last_left = joiner.only_last_left() && burst.may_finish();
                    self.preparing.push_front(joiner);
                    self.evict_joiners();
                    if !only_last_left {
                        break;
                    }
                }
                Ok(Progress::Ready) => self.join(joiner),
            }
        }
        self.recorder.stopwatch.enter(Phase::Gap);
    }

    /// Ends what is under way on the device, which the prompt's pieces would wait for anyway: a kernel's panic is then
    /// laid to those whom it concerns. Where MLX's operations compute, none can panic, and nothing is waited for.
    fn settle(&mut self) {
        let abandoned = self.abandoned.take();
        if self.model.plan().layout() == KvLayout::Columns {
            return;
        }
        if let Some(unread) = abandoned {
            forget(&unread);
        }
        if let Some(batch) = self.batch.take() {
            match batch.settle() {
                Ok(()) => self.batch = Some(batch),
                Err(error) => self.drop_batch(batch, &error.to_string()),
            }
        }
    }

    pub(super) fn publish_boundary(&mut self, joiner: &Joiner, class: Class) {
        if let Some(prompt_cache) = &mut self.prompt_cache {
            let tokens = joiner.row.job.prompt[..joiner.done()].to_vec();
            prompt_cache.publish(&self.namespace, tokens, joiner.cache.clone(), class);
        }
    }

    /// A prepared row joins the running batch, or leaves at once if token 0 was its last.
    pub(super) fn join(&mut self, joiner: Joiner) {
        let (mut row, cache, unread) = joiner.into_parts();
        if let Some(end) = row.end.take() {
            let cache = self.publishable(&row, &end).then_some(cache);
            self.depart(Departed { row, end, cache });
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            self.batch = Some(Batch::adopt(row, cache).seeded(unread));
            return;
        };
        // Unread tokens belong to rows as they stand now: read and deliver them before the rows move.
        if let Err(error) = batch.flush(&self.eos, &mut self.recorder.stopwatch) {
            self.drop_batch(batch, &error.to_string());
            self.batch = Some(Batch::adopt(row, cache));
            return;
        }
        self.batch = Some(batch);
        self.evict();
        match self.batch.take() {
            None => self.batch = Some(Batch::adopt(row, cache)),
            Some(mut batch) => match batch.join(row, cache) {
                Ok(()) => self.batch = Some(batch),
                Err((row, error)) => {
                    let message = error.to_string();
                    self.finish(*row, End::error(message.clone()));
                    self.drop_batch(batch, &message);
                }
            },
        }
    }

    pub(super) fn step(&mut self) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        let mode = StepMode {
            pipeline: self.options.pipeline,
            attribution: self.options.attribution,
        };
        let outcome = batch.step(self.model.as_ref(), &self.eos, mode, &mut self.recorder.stopwatch);
        match outcome {
            Err(error) => self.drop_batch(batch, &error.to_string()),
            Ok(stepped) => {
                self.batch = Some(batch);
                self.record_peak();
                self.evict();
                let outcome = StepOutcome {
                    forward_rows: stepped.forward_rows,
                    tokens: stepped.tokens,
                    attribution: stepped.attribution,
                    kv: self.kv(),
                };
                self.recorder.step(outcome, Instant::now());
                if stepped.forward_rows > 0 && self.recorder.steps().is_multiple_of(MAINTENANCE_STEPS) {
                    self.maintain();
                }
            }
        }
    }

    pub(super) fn maintain(&mut self) {
        if let Err(error) = memory::clear_cache() {
            tracing::warn!(%error, "MLX's buffer cache could not be cleared");
        }
        self.relieve_pressure();
        self.write_behind();
    }

    /// Reads a part of what is to go to disk, and hears of what is there. Whether anything is on its way.
    pub(super) fn write_behind(&mut self) -> bool {
        self.prompt_cache.as_mut().is_some_and(PromptCache::turn)
    }

    /// Shrinks the prompt cache where the rows that were admitted might not find the memory that was promised to them.
    pub(super) fn relieve_pressure(&mut self) {
        let kv = self.kv();
        let Some(prompt_cache) = &mut self.prompt_cache else {
            return;
        };
        let wanted = mlx_memory()
            .active
            .saturating_add(kv.reserved.saturating_sub(kv.allocated))
            .saturating_sub(prompt_cache.leaving_bytes());
        let excess = wanted.saturating_sub(self.device_memory);
        if excess > 0 && prompt_cache.bytes() > 0 {
            prompt_cache.shrink_to(prompt_cache.bytes().saturating_sub(excess));
        }
    }
}
