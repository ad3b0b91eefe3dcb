//! The loop: one thread owns the model and every array, and advances one running batch step by step.
//!
//! Every iteration, in this order: drop cancelled requests, admit, advance the joiners' preparation by one chunk, one
//! decode step for the running batch, emit, evict. A command is seen at the next iteration; with nothing to do, the
//! loop sleeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Instant;

use mlx_rs::memory;

use super::admission::{Admitted, Limits, Need, Queue, Refused, Verdict, Waiting};
use super::batch::{Batch, Departed};
use super::chunks::Burst;
use super::command::{Arrival, Command, Hold, Task, TaskState};
use super::event::{Event, FinishReason};
use super::memory::{Residency, device_memory, mlx_memory};
use super::options::EngineOptions;
use super::prefill::{Joiner, Progress};
use super::prompt_cache::index::{Class, Namespace};
use super::prompt_cache::store::{MIN_TOKENS, PromptCache};
use super::recorder::{Recorder, StepOutcome};
use super::request::RequestId;
use super::row::{End, Job, Row};
use super::stopwatch::Phase;
use super::telemetry::{EngineState, KvFigures, RowSnapshot, RowState};
use crate::model::LanguageModel;

/// MLX's buffer cache is cleared, and the prompt cache looked after, every so many steps.
const MAINTENANCE_STEPS: u64 = 256;

/// Rows share a batch only if these are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    cache: bool,
}

/// Whether the loop goes on.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Close,
}

/// The engine's state, all on one thread.
pub struct Scheduler {
    model: Box<dyn LanguageModel>,
    eos: Vec<u32>,
    options: EngineOptions,
    commands: Receiver<Command>,
    waiting: Arc<AtomicUsize>,
    arrivals: VecDeque<Arrival>,
    queue: Queue<Row, Group>,
    waits_for_kv: bool,
    preparing: VecDeque<Joiner>,
    batch: Option<Batch>,
    cancelled: Vec<RequestId>,
    holds: VecDeque<Hold>,
    tasks: VecDeque<Task>,
    prompt_cache: Option<PromptCache>,
    models: u64,
    namespace: Namespace,
    device_memory: u64,
    residency: Residency,
    recorder: Recorder,
}

impl Scheduler {
    /// A scheduler over a loaded model. `waiting` counts what its handle has submitted and it has not admitted.
    pub fn new(
        model: Box<dyn LanguageModel>,
        eos: Vec<u32>,
        options: EngineOptions,
        commands: Receiver<Command>,
        waiting: Arc<AtomicUsize>,
        recorder: Recorder,
    ) -> Self {
        let device_memory = device_memory();
        let default_budget = super::memory::default_kv_budget(device_memory, model.info().weight_bytes);
        let kv_budget = options.kv_budget.unwrap_or(default_budget);
        let limits = Limits {
            max_batch: options.max_batch,
            max_queued: options.max_queued,
            kv_budget,
            positions: model.info().max_positions,
        };
        let prompt_cache = options.prompt_cache.resolve(kv_budget).map(PromptCache::new);
        Self {
            model,
            eos,
            options,
            commands,
            waiting,
            arrivals: VecDeque::new(),
            queue: Queue::new(limits),
            waits_for_kv: false,
            preparing: VecDeque::new(),
            batch: None,
            cancelled: Vec::new(),
            holds: VecDeque::new(),
            tasks: VecDeque::new(),
            prompt_cache,
            models: 0,
            namespace: Namespace::new("model 0"),
            device_memory,
            residency: Residency::default(),
            recorder,
        }
    }

    /// Says that requests are taken.
    pub fn announce(&mut self) {
        self.recorder.state(EngineState::Ready);
        self.publish(Instant::now());
    }

    /// Runs until it is told to close or every handle is gone.
    pub fn run(&mut self) {
        while self.iterate() == Next::GoOn {}
    }

    fn iterate(&mut self) -> Next {
        if self.is_idle() && self.sleep() == Next::Close {
            return Next::Close;
        }
        if self.take_commands() == Next::Close {
            return Next::Close;
        }
        self.residency.hold();
        self.take_arrivals();
        self.drop_cancelled();
        self.run_hold();
        self.admit();
        self.run_task();
        self.prepare();
        self.step();
        self.record_peak();
        let now = Instant::now();
        if self.recorder.due(now) {
            self.publish(now);
        }
        Next::GoOn
    }

    fn is_idle(&self) -> bool {
        self.rows() == 0
            && self.queue.is_empty()
            && self.arrivals.is_empty()
            && self.holds.is_empty()
            && self.tasks.is_empty()
    }

    fn rows(&self) -> usize {
        self.preparing.len() + self.batch.as_ref().map_or(0, |batch| batch.rows().len())
    }

    /// Waits for a command without polling.
    fn sleep(&mut self) -> Next {
        self.residency.release();
        self.publish(Instant::now());
        self.recorder.stopwatch.enter(Phase::Idle);
        let command = self.commands.recv();
        self.recorder.stopwatch.enter(Phase::Gap);
        self.recorder.wake(Instant::now());
        match command {
            Ok(command) => self.obey(command),
            Err(_) => Next::Close,
        }
    }

    fn take_commands(&mut self) -> Next {
        loop {
            match self.commands.try_recv() {
                Ok(command) => {
                    if self.obey(command) == Next::Close {
                        return Next::Close;
                    }
                }
                Err(TryRecvError::Empty) => return Next::GoOn,
                Err(TryRecvError::Disconnected) if self.is_idle() => return Next::Close,
                Err(TryRecvError::Disconnected) => return Next::GoOn,
            }
        }
    }

    fn obey(&mut self, command: Command) -> Next {
        match command {
            Command::Submit(job) => self.enqueue(*job),
            Command::Schedule(arrivals) => {
                self.arrivals.extend(arrivals);
                self.arrivals
                    .make_contiguous()
                    .sort_by_key(|arrival| arrival.at_step);
            }
            Command::Cancel(id) => self.cancelled.push(id),
            Command::Hold(hold) => self.holds.push_back(hold),
            Command::Task(task) => self.tasks.push_back(task),
            Command::CancelTask(id) => self.tasks.retain(|task| task.id != id),
            Command::Close => return Next::Close,
        }
        Next::GoOn
    }

    /// Submits what a workload has scheduled for this many steps; an idle engine takes the next ones at once.
    fn take_arrivals(&mut self) {
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

    fn enqueue(&mut self, job: Job) {
        let vocabulary = self.model.info().vocab_size;
        let foreign = job
            .prompt
            .iter()
            .find(|&&token| token as usize >= vocabulary)
            .copied();
        let group = Group { cache: job.cache };
        let need = Need {
            prompt: job.prompt.len(),
            max_tokens: job.max_tokens,
        };
        let waiting = Waiting {
            id: job.id,
            need,
            group,
            item: Row::new(job),
        };
        if let Some(token) = foreign {
            let message = format!("token id {token} is not one of the model's {vocabulary}");
            self.leave_queue(waiting, End::rejected(message));
            return;
        }
        let plan = self.model.plan();
        if let Err((waiting, refused)) = self.queue.push(waiting, |lengths| plan.reserved_bytes(lengths)) {
            let end = match refused {
                Refused::NeverFits(never) => End::rejected(never.to_string()),
                full @ Refused::QueueFull { .. } => End::rejected(full.to_string()),
            };
            self.leave_queue(waiting, end);
        }
    }

    fn leave_queue(&mut self, waiting: Waiting<Row, Group>, end: End) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.finish(waiting.item, end);
    }

    fn drop_cancelled(&mut self) {
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

    /// Work that needs the model alone: nothing is admitted; it runs once the last row has left.
    fn run_hold(&mut self) {
        let Some(hold) = self.holds.front() else { return };
        if hold.cancel_running && self.rows() > 0 {
            let preparing = self.preparing.iter_mut().map(|joiner| &mut joiner.row);
            let running = self.batch.iter_mut().flat_map(|batch| batch.rows_mut());
            for row in preparing.chain(running) {
                row.end.get_or_insert_with(|| End::plain(FinishReason::Cancelled));
            }
            self.evict_joiners();
            self.evict();
        }
        if self.rows() == 0
            && let Some(hold) = self.holds.pop_front()
            && (hold.work)(&mut self.model)
        {
            self.models += 1;
            self.namespace = Namespace::new(&format!("model {}", self.models));
        }
    }

    /// One turn of the task at the front; tasks only read, and take turns between iterations.
    fn run_task(&mut self) {
        if let Some(mut task) = self.tasks.pop_front()
            && (task.turn)(self.model.as_ref()) == TaskState::Unfinished
        {
            self.tasks.push_back(task);
        }
    }

    fn admit(&mut self) {
        self.waits_for_kv = false;
        while self.holds.is_empty() {
            let lengths = self.final_lengths();
            let group = self.group();
            let rows = Admitted {
                lengths: &lengths,
                group: group.as_ref(),
            };
            let plan = self.model.plan();
            match self.queue.next(rows, |lengths| plan.reserved_bytes(lengths)) {
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

    fn final_lengths(&self) -> Vec<usize> {
        self.all_rows().map(Row::final_length).collect()
    }

    fn all_rows(&self) -> impl Iterator<Item = &Row> {
        let running = self.batch.iter().flat_map(|batch| batch.rows());
        running.chain(self.preparing.iter().map(|joiner| &joiner.row))
    }

    fn group(&self) -> Option<Group> {
        self.all_rows().next().map(|row| Group { cache: row.job.cache })
    }

    /// Admits a row: restores what the prompt cache has of it, and lines it up for preparation.
    fn start(&mut self, waiting: Waiting<Row, Group>) {
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
        let event = Event::Admitted {
            prompt_tokens: row.job.prompt.len(),
            cached_tokens: row.cached,
        };
        if let Err(message) = row.deliver(event) {
            self.finish(row, End::error(message));
            return;
        }
        self.preparing
            .push_back(Joiner::new(row, cache, self.options.prefill_chunk));
        self.relieve_pressure();
    }

    /// Advances the joiner in front by one chunk; those behind it may follow while the burst's budget lasts.
    fn prepare(&mut self) {
        if self.preparing.is_empty() {
            return;
        }
        self.recorder.stopwatch.enter(Phase::Prefill);
        let mut burst = Burst::new(self.options.prefill_chunk, self.options.prefill_batch_tokens);
        while let Some(mut joiner) = self.preparing.pop_front() {
            let tokens = joiner.next_tokens();
            if !burst.may_start(tokens) {
                self.preparing.push_front(joiner);
                break;
            }
            let started = Instant::now();
            let progress = joiner.advance(self.model.as_ref(), &self.eos);
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
                    let only_last_left = joiner.next_tokens() == 1 && burst.may_finish();
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

    fn publish_boundary(&mut self, joiner: &Joiner, class: Class) {
        if let Some(prompt_cache) = &mut self.prompt_cache {
            let tokens = joiner.row.job.prompt[..joiner.done()].to_vec();
            prompt_cache.publish(&self.namespace, tokens, joiner.cache.clone(), class);
        }
    }

    /// A prepared row joins the running batch, or leaves at once if token 0 was its last.
    fn join(&mut self, joiner: Joiner) {
        let Joiner { mut row, cache, .. } = joiner;
        if let Some(end) = row.end.take() {
            let cache = self.publishable(&row, &end).then_some(cache);
            self.depart(Departed { row, end, cache });
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            self.batch = Some(Batch::adopt(row, cache));
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

    fn step(&mut self) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        let outcome = batch.step(
            self.model.as_ref(),
            &self.eos,
            self.options.pipeline,
            &mut self.recorder.stopwatch,
        );
        match outcome {
            Err(error) => self.drop_batch(batch, &error.to_string()),
            Ok(stepped) => {
                self.batch = Some(batch);
                self.record_peak();
                self.evict();
                let outcome = StepOutcome {
                    forward_rows: stepped.forward_rows,
                    tokens: stepped.tokens,
                    kv: self.kv(),
                };
                self.recorder.step(outcome, Instant::now());
                if stepped.forward_rows > 0 && self.recorder.steps().is_multiple_of(MAINTENANCE_STEPS) {
                    self.maintain();
                }
            }
        }
    }

    fn maintain(&mut self) {
        if let Err(error) = memory::clear_cache() {
            tracing::warn!(%error, "MLX's buffer cache could not be cleared");
        }
        self.relieve_pressure();
    }

    /// Shrinks the prompt cache where the rows that were admitted might not find the memory that was promised to them.
    fn relieve_pressure(&mut self) {
        let kv = self.kv();
        let Some(prompt_cache) = &mut self.prompt_cache else {
            return;
        };
        let wanted = mlx_memory()
            .active
            .saturating_add(kv.reserved.saturating_sub(kv.allocated));
        let excess = wanted.saturating_sub(self.device_memory);
        if excess > 0 && prompt_cache.bytes() > 0 {
            prompt_cache.shrink_to(prompt_cache.bytes().saturating_sub(excess));
        }
    }

    fn evict(&mut self) {
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
            Err(error) => tracing::error!(%error, "the batch was dropped"),
            Ok(()) if batch.rows().is_empty() => {}
            Ok(()) => self.batch = Some(batch),
        }
    }

    fn evict_joiners(&mut self) {
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

    fn publishable(&self, row: &Row, end: &End) -> bool {
        self.prompt_cache.is_some() && publishable(row, end)
    }

    fn depart(&mut self, departed: Departed) {
        let Departed { row, end, cache } = departed;
        if let (Some(cache), Some(prompt_cache)) = (cache, &mut self.prompt_cache) {
            prompt_cache.publish(&self.namespace, row.covered(), cache, Class::Turn);
        }
        self.finish(row, end);
    }

    fn drop_batch(&mut self, batch: Batch, message: &str) {
        tracing::error!(%message, "the running batch failed");
        for departed in batch.fail(message) {
            self.finish(departed.row, departed.end);
        }
    }

    fn finish(&mut self, row: Row, end: End) {
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
        self.prompt_cache = None;
        self.recorder.state(state);
    }

    fn kv(&self) -> KvFigures {
        let (mut used, mut allocated) = self.batch.as_ref().map_or((0, 0), Batch::kv_bytes);
        for joiner in &self.preparing {
            used += joiner.cache.used_bytes();
            allocated += joiner.cache.allocated_bytes();
        }
        let lengths = self.final_lengths();
        let reserved = if lengths.is_empty() {
            0
        } else {
            self.model.plan().reserved_bytes(&lengths)
        };
        KvFigures {
            used,
            allocated,
            reserved,
            budget: self.queue.limits().kv_budget,
        }
    }

    fn record_peak(&mut self) {
        let kv = self.kv();
        debug_assert!(
            kv.used <= kv.allocated && kv.allocated <= kv.reserved && kv.reserved <= kv.budget,
            "{kv:?}"
        );
        self.recorder.peak(kv);
    }

    fn describe(&self, row: &Row, state: RowState, now: Instant) -> RowSnapshot {
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
            kv_used: self.model.plan().bytes_per_token() * held as u64,
            kv_reserved: self.model.plan().reserved_bytes(&[row.final_length()]),
        }
    }

    fn publish(&mut self, now: Instant) {
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
        let queued = self.queue.len();
        let prompt_cache = self
            .prompt_cache
            .as_ref()
            .map(PromptCache::stats)
            .unwrap_or_default();
        self.recorder.publish(now, |snapshot| {
            snapshot.rows.extend(rows);
            snapshot.kv = kv;
            snapshot.queued = queued;
            snapshot.prompt_cache = prompt_cache;
        });
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
