//! Forward: joiners by a chunk, the running batch by a step.

use std::time::Instant;

use mlx_rs::memory;

use super::{MAINTENANCE_STEPS, Scheduler};
use crate::cache::KvLayout;
use crate::engine::RequestId;
use crate::engine::batch::{Batch, Departed, forget};
use crate::engine::chunks::Burst;
use crate::engine::decode::StepMode;
use crate::engine::memory::mlx_memory;
use crate::engine::prefill::{self, Joiner, Progress, Snapshot};
use crate::engine::recorder::StepOutcome;
use crate::engine::row::End;
use crate::engine::stopwatch::Phase;
use crate::model::Piece;

impl Scheduler {
    /// Advances joiners: all that fit by their next chunks in one forward, and those who come to their last tokens by these.
    /// Where prompts ride along with steps, only those who share no forward advance here while a batch runs.
    pub(super) fn prepare(&mut self) {
        if self.preparing.is_empty() {
            return;
        }
        let mixed = self.mixed_tokens.is_some();
        if mixed {
            self.board();
        }
        let riding = mixed && self.batch.is_some();
        if riding && self.preparing.iter().all(|joiner| !joiner.apart) {
            return;
        }
        self.recorder.stopwatch.enter(Phase::Prefill);
        self.settle();
        self.write_behind();
        let mut burst = Burst::new(self.chunk, self.batch_tokens);
        let mut chunked = Vec::new();
        loop {
            let cohort = self.next_cohort(&mut burst, &chunked, riding);
            if cohort.is_empty() {
                break;
            }
            chunked.extend(cohort.iter().map(|&at| self.preparing[at].row.id()));
            self.advance_cohort(&cohort);
        }
        self.recorder.stopwatch.enter(Phase::Gap);
    }

    /// Which joiners go through the next forward, from the one in front on: those whose next pieces fit whole. A joiner that
    /// was `chunked` since the last step has its turn again only with its last token.
    fn next_cohort(&self, burst: &mut Burst, chunked: &[RequestId], only_apart: bool) -> Vec<usize> {
        let mut cohort = Vec::new();
        for (at, joiner) in self.preparing.iter().enumerate() {
            let tokens = joiner.next_tokens();
            let fits = if !chunked.contains(&joiner.row.id()) {
                burst.may_start(tokens)
            } else if joiner.only_last_left() {
                burst.may_finish()
            } else {
                continue;
            };
            if only_apart && !joiner.apart {
                continue;
            }
            if !fits || (joiner.apart && !cohort.is_empty()) {
                break;
            }
            burst.spend(tokens);
            cohort.push(at);
            if joiner.apart {
                break;
            }
        }
        cohort
    }

    /// Advances these joiners in one forward. Of several, none is to blame if it fails: each starts again by itself.
    fn advance_cohort(&mut self, cohort: &[usize]) {
        let joiners = self.preparing.iter_mut().enumerate();
        let mut joiners: Vec<&mut Joiner> = joiners
            .filter(|(at, _)| cohort.contains(at))
            .map(|(_, joiner)| joiner)
            .collect();
        // Only the first row of a batch can go on from a token that nobody has read.
        let seed = self.options.seed_first_token && self.options.pipeline && self.batch.is_none();
        let tokens = joiners.iter().map(|joiner| joiner.next_tokens()).sum();
        let started = Instant::now();
        let outcome = prefill::advance(&mut joiners, self.model.as_ref(), &self.eos, seed);
        let now = Instant::now();
        self.recorder
            .prefilled(cohort.len(), tokens, now.saturating_duration_since(started), now);
        match outcome {
            Ok(progress) => {
                // Who asked for one token is gone before the next step.
                self.record_peak();
                let mut ready = Vec::new();
                for (&at, progress) in cohort.iter().zip(progress) {
                    match progress {
                        Progress::Chunk(None) => {}
                        Progress::Chunk(Some(snapshot)) => self.publish_snapshot(at, snapshot),
                        Progress::Ready => ready.push(at),
                    }
                }
                let ready: Vec<Joiner> = (ready.into_iter().rev())
                    .filter_map(|at| self.preparing.remove(at))
                    .collect();
                for joiner in ready.into_iter().rev() {
                    self.join(joiner);
                }
                self.evict_joiners();
            }
            Err(error) => match *cohort {
                [at] => {
                    if let Some(joiner) = self.preparing.remove(at) {
                        self.finish(joiner.row, End::error(error.to_string()));
                    }
                }
                _ => {
                    tracing::warn!(%error, joiners = cohort.len(), "a forward of several prompts failed");
                    for joiner in joiners {
                        joiner.start_again(self.model.new_row());
                    }
                }
            },
        }
    }

    /// Those who have come to their prompts' last tokens join the running batch, whose next step feeds these.
    fn board(&mut self) {
        if self.next_to_board().is_none() || !self.flush() {
            return;
        }
        // With nothing under way, what prompts took can be given back.
        if let Err(error) = memory::clear_cache() {
            tracing::warn!(%error, "MLX's buffer cache could not be cleared");
        }
        while let Some(mut joiner) = self.next_to_board().and_then(|at| self.preparing.remove(at)) {
            self.recorder.rode(1);
            joiner.row.feed_last_of_prompt();
            self.join(joiner);
        }
    }

    /// The first joiner that has come to its prompt's last token, and not behind one whose next chunk doesn't fit beside the
    /// rows: nobody makes the batch larger before that one has advanced.
    fn next_to_board(&self) -> Option<usize> {
        let rows = self.batch.as_ref().map_or(0, |batch| batch.rows().len());
        let left = self.mixed_tokens?.saturating_sub(rows);
        let mut joiners = self.preparing.iter().enumerate();
        let (at, first) = joiners
            .find(|(_, joiner)| !joiner.apart && (joiner.only_last_left() || joiner.next_tokens() > left))?;
        first.only_last_left().then_some(at)
    }

    /// Which joiners' next chunks ride along in the batch's next step, from the one in front on.
    fn riders(&self, batch: &Batch) -> Vec<usize> {
        let Some(budget) = self.mixed_tokens.filter(|_| batch.has_forward()) else {
            return Vec::new();
        };
        let mut left = budget.saturating_sub(batch.rows().len());
        let mut riders = Vec::new();
        for (at, joiner) in self.preparing.iter().enumerate() {
            if joiner.apart || joiner.only_last_left() {
                continue;
            }
            let Some(rest) = left.checked_sub(joiner.next_tokens()) else {
                break;
            };
            left = rest;
            riders.push(at);
        }
        riders
    }

    /// Steps before this one were read, and well: what rode along in them is there.
    fn land(&mut self, before: u64) {
        for at in 0..self.preparing.len() {
            for snapshot in self.preparing[at].landed(before) {
                self.publish_snapshot(at, snapshot);
            }
        }
        self.evict_joiners();
    }

    /// What rode along in steps that were not read is lost with them.
    pub(super) fn crash(&mut self) {
        let riders = self.preparing.iter_mut().filter(|joiner| joiner.is_in_flight());
        for joiner in riders {
            joiner.start_again(self.model.new_row());
        }
    }

    /// Ends what is under way on the device, which the prompt's pieces would wait for anyway: a kernel's panic is then
    /// laid to those whom it concerns. Where MLX's operations compute, none can panic, and nothing is waited for.
    fn settle(&mut self) {
        let abandoned = self.abandoned.take();
        if self.model.plan().layout() == KvLayout::OwnBuffers {
            if abandoned.is_some_and(|unread| !forget(&unread)) {
                self.crash();
            }
            if let Some(batch) = self.batch.take() {
                match batch.settle() {
                    Ok(()) => self.batch = Some(batch),
                    Err(error) => self.drop_batch(batch, &error.to_string()),
                }
            }
        }
        self.land(u64::MAX);
    }

    fn publish_snapshot(&mut self, at: usize, snapshot: Snapshot) {
        if let Some(prompt_cache) = &mut self.prompt_cache {
            let row = &mut self.preparing[at].row;
            let tokens = row.job.prompt[..snapshot.tokens].to_vec();
            prompt_cache.publish(&self.namespace, tokens, snapshot.cache, snapshot.class);
            row.published.push(snapshot.tokens);
        }
    }

    /// Reads and delivers what the batch has sampled, and takes out those whom that ends. Whether it still runs.
    fn flush(&mut self) -> bool {
        let Some(mut batch) = self.batch.take() else {
            return false;
        };
        match batch.flush(&self.eos, &mut self.recorder.stopwatch) {
            Ok(tokens) => self.recorder.flushed(tokens),
            Err(error) => {
                self.drop_batch(batch, &error.to_string());
                return false;
            }
        }
        self.batch = Some(batch);
        self.land(u64::MAX);
        self.evict();
        self.batch.is_some()
    }

    /// A prepared row joins the running batch, or leaves at once if token 0 was its last.
    pub(super) fn join(&mut self, joiner: Joiner) {
        let (mut row, cache, unread) = joiner.into_parts();
        if let Some(end) = row.end.take() {
            let cache = self.publishable(&row, &end).then_some(cache);
            self.depart(Departed { row, end, cache });
            return;
        }
        if self.batch.is_none() {
            self.batch = Some(Batch::adopt(row, cache).seeded(unread));
            return;
        }
        // Unread tokens belong to rows as they stand now: read and deliver them before the rows move.
        self.flush();
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
        let riders = self.riders(&batch);
        let step = self.recorder.steps();
        let joiners = self.preparing.iter_mut().enumerate();
        let joiners = joiners.filter(|(at, _)| riders.contains(at));
        let pieces: Vec<Piece<'_>> = joiners.filter_map(|(_, joiner)| joiner.piece()).collect();
        let tokens = pieces.iter().map(|piece| piece.tokens.len()).sum();
        let watch = &mut self.recorder.stopwatch;
        let outcome = batch.step(self.model.as_ref(), &self.eos, mode, pieces, watch);
        for at in riders {
            self.preparing[at].took_off(step);
        }
        match outcome {
            Err(error) => self.drop_batch(batch, &error.to_string()),
            Ok(stepped) => {
                self.batch = Some(batch);
                self.recorder.rode(tokens);
                // In a pipeline, only the step before this one was read.
                self.land(if mode.pipeline { step } else { step + 1 });
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
        self.prompt_cache.as_mut().is_some_and(|cache| cache.turn())
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
