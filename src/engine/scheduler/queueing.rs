//! Into the queue, out of it, and into the batch's waiting room.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Group, Scheduler};
use crate::engine::admission::{Admitted, Need, Refused, Verdict, Waiting};
use crate::engine::command::Arrival;
use crate::engine::event::{Event, FinishReason};
use crate::engine::prefill::Joiner;
use crate::engine::row::{End, Job, Row};

impl Scheduler {
    /// Submits what a workload has scheduled for this many steps; an idle engine takes the next ones at once.
    pub(super) fn take_arrivals(&mut self) {
        let mut due = self.recorder.steps();
        if self.rows() == 0 && self.queue.is_empty() && self.holds.is_empty() {
            due = due.max(self.arrivals.front().map_or(0, |arrival| arrival.at_step));
        }
        while !self.queue.is_full()
            && self
                .arrivals
                .front()
                .is_some_and(|arrival| arrival.at_step <= due)
        {
            let Some(Arrival { mut job, .. }) = self.arrivals.pop_front() else {
                return;
            };
            job.submitted = Instant::now();
            self.waiting.fetch_add(1, Ordering::AcqRel);
            self.enqueue(*job);
        }
    }

    pub(super) fn enqueue(&mut self, job: Job) {
        let vocabulary = self.model.info().vocab_size;
        let foreign = job
            .prompt
            .iter()
            .find(|&&token| token as usize >= vocabulary)
            .copied();
        let group = Group { cache: job.cache };
        let row = Row::new(job);
        let waiting = Waiting {
            id: row.id(),
            need: row.need(),
            group,
            item: row,
        };
        if let Some(token) = foreign {
            let message = format!("token id {token} is not one of the model's {vocabulary}");
            self.leave_queue(waiting, End::rejected(message));
            return;
        }
        let (plan, chunk) = (self.model.plan(), self.chunk);
        let reserve = |needs: &[Need]| plan.reserved_bytes(needs, chunk);
        if let Err((waiting, refused)) = self.queue.push(waiting, reserve) {
            let end = match refused {
                Refused::NeverFits(never) => End::rejected(never.to_string()),
                full @ Refused::QueueFull { .. } => End::rejected(full.to_string()),
            };
            self.leave_queue(waiting, end);
        }
    }

    pub(super) fn leave_queue(&mut self, waiting: Waiting<Row, Group>, end: End) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.finish(waiting.item, end);
    }

    pub(super) fn drop_cancelled(&mut self) {
        for id in std::mem::take(&mut self.cancelled) {
            if let Some(waiting) = self.queue.remove(id) {
                self.leave_queue(waiting, End::plain(FinishReason::Cancelled));
            } else if let Some(arrival) = self.arrivals.iter().position(|arrival| arrival.job.id == id) {
                if let Some(arrival) = self.arrivals.remove(arrival) {
                    self.finish(Row::new(*arrival.job), End::plain(FinishReason::Cancelled));
                }
            } else {
                let preparing = self.preparing.iter_mut().map(|joiner| &mut joiner.row);
                let running = self.batch.iter_mut().flat_map(|batch| batch.rows_mut());
                for row in preparing.chain(running).filter(|row| row.id() == id) {
                    row.end.get_or_insert_with(|| End::plain(FinishReason::Cancelled));
                }
            }
        }
        self.evict_joiners();
        self.evict();
    }

    pub(super) fn admit(&mut self) {
        self.waits_for_kv = false;
        while self.holds.is_empty() {
            let needs = self.needs();
            let group = self.group();
            let rows = Admitted {
                needs: &needs,
                group: group.as_ref(),
            };
            let (plan, chunk) = (self.model.plan(), self.chunk);
            let reserve = |needs: &[Need]| plan.reserved_bytes(needs, chunk);
            match self.queue.next(rows, reserve) {
                Verdict::Admit(waiting) => self.start(waiting),
                Verdict::Reject(waiting, never) => {
                    self.leave_queue(waiting, End::rejected(never.to_string()))
                }
                Verdict::WaitForKv { .. } => {
                    self.waits_for_kv = true;
                    return;
                }
                Verdict::Empty | Verdict::BatchFull | Verdict::WaitForGroup => return,
            }
        }
    }

    /// What the rows there are can still come to need: those of the batch have their prompts behind them.
    pub(super) fn needs(&self) -> Vec<Need> {
        let running = self.batch.iter().flat_map(|batch| batch.rows());
        let preparing = self.preparing.iter().map(|joiner| joiner.row.need());
        running
            .map(|row| row.need().after_prefill())
            .chain(preparing)
            .collect()
    }

    pub(super) fn all_rows(&self) -> impl Iterator<Item = &Row> {
        let running = self.batch.iter().flat_map(|batch| batch.rows());
        running.chain(self.preparing.iter().map(|joiner| &joiner.row))
    }

    pub(super) fn group(&self) -> Option<Group> {
        self.all_rows().next().map(|row| Group { cache: row.job.cache })
    }

    /// Admits a row: restores what the prompt cache has of it, and lines it up for preparation.
    pub(super) fn start(&mut self, waiting: Waiting<Row, Group>) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let mut row = waiting.item;
        row.admitted = Some(Instant::now());
        let mut cache = self.model.new_row();
        if row.job.cache
            && let Some(prompt_cache) = &mut self.prompt_cache
            && let Some(restored) = prompt_cache.fetch(&self.namespace, &row.job.prompt)
        {
            row.cached = restored.len().unwrap_or(0);
            cache = restored;
        }
        let note = row.job.note.take().map(Event::Note);
        let event = Event::Admitted {
            prompt_tokens: row.job.prompt.len(),
            cached_tokens: row.cached,
        };
        for event in note.into_iter().chain([event]) {
            if let Err(message) = row.deliver(event) {
                self.finish(row, End::error(message));
                return;
            }
        }
        let trimmable = self.model.plan().trimmable_at(row.need().final_length());
        let joiner = Joiner::new(row, cache, self.chunk, trimmable);
        self.preparing.push_back(joiner);
        self.relieve_pressure();
    }
}
