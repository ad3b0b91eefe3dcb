//! The loop: one thread owns the model and every array, and advances one running batch step by step.
//!
//! Every iteration, in this order: drop cancelled requests, admit, advance the joiners' preparation by one chunk, one
//! decode step for the running batch, emit, evict. A command is seen at the next iteration; with nothing to do, the
//! loop sleeps.

mod advance;
mod departure;
mod figures;
mod queueing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::admission::{Limits, Queue};
use super::batch::{Batch, Register};
use super::budget::Readings;
use super::command::{Arrival, Command, Hold, Task, TaskState};
use super::event::FinishReason;
use super::memory::{Residency, readings};
use super::options::EngineOptions;
use super::prefill::Joiner;
use super::prompt_cache::disk::tier::DiskTier;
use super::prompt_cache::index::Namespace;
use super::prompt_cache::store::PromptCache;
use super::recorder::Recorder;
use super::request::RequestId;
use super::row::{End, Row};
use super::stopwatch::Phase;
use super::telemetry::EngineState;
use crate::model::LanguageModel;

/// MLX's buffer cache is cleared, and the prompt cache looked after, every so many steps.
const MAINTENANCE_STEPS: u64 = 256;

/// How often an engine with nothing else to do looks what of the prompt cache has come to disk.
const WRITTEN_BEHIND: Duration = Duration::from_millis(50);

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
    chunk: usize,
    batch_tokens: usize,
    mixed_tokens: Option<usize>,
    commands: Receiver<Command>,
    waiting: Arc<AtomicUsize>,
    arrivals: VecDeque<Arrival>,
    queue: Queue<Row, Group>,
    waits_for_kv: bool,
    preparing: VecDeque<Joiner>,
    batch: Option<Batch>,
    /// A step under way whose rows have all left.
    abandoned: Option<Register>,
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
    /// A scheduler over a loaded model. `waiting` counts what its handle has submitted and it has not admitted; `give_up` is
    /// set once nothing more is to be written to disk.
    pub fn new(
        model: Box<dyn LanguageModel>,
        eos: Vec<u32>,
        options: EngineOptions,
        commands: Receiver<Command>,
        waiting: Arc<AtomicUsize>,
        give_up: Arc<AtomicBool>,
        recorder: Recorder,
    ) -> Self {
        let readings = match options.device_memory {
            Some(bytes) => Readings {
                mlx_limit: Some(bytes),
                ..Readings::default()
            },
            None => readings(),
        };
        let default_budget = || readings.default_kv_budget(model.info().weight_bytes);
        let kv_budget = options.kv_budget.unwrap_or_else(default_budget);
        let limits = Limits {
            max_batch: options.max_batch,
            max_queued: options.max_queued,
            kv_budget,
            positions: model.info().max_positions,
        };
        let mut namespace = Namespace::new("model 0");
        let prompt_cache = options.prompt_cache.resolve(kv_budget).map(|limit| {
            let disk = options.prompt_cache_disk.clone();
            let disk = disk.and_then(|disk| {
                DiskTier::start(disk, model.plan(), give_up)
                    .inspect_err(|error| tracing::warn!(%error, "no prompt cache on disk"))
                    .ok()
            });
            if let Some(disk) = &disk {
                namespace = disk.namespace().clone();
            }
            PromptCache::new(limit, disk)
        });
        let brisk = model.info().brisk_prefill;
        Self {
            model,
            eos,
            chunk: options.chunk(brisk),
            batch_tokens: options.batch_tokens(brisk),
            mixed_tokens: options.mixed_tokens(brisk),
            options,
            commands,
            waiting,
            arrivals: VecDeque::new(),
            queue: Queue::new(limits),
            waits_for_kv: false,
            preparing: VecDeque::new(),
            batch: None,
            abandoned: None,
            cancelled: Vec::new(),
            holds: VecDeque::new(),
            tasks: VecDeque::new(),
            prompt_cache,
            models: 0,
            namespace,
            device_memory: readings.total(),
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
        let idle = self.is_idle();
        if idle && self.sleep() == Next::Close {
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
        // A chunk may take long: who has been admitted is told before it.
        self.publish_if(idle);
        self.prepare();
        self.step();
        self.record_peak();
        self.publish_if(false);
        Next::GoOn
    }

    /// Publishes a snapshot where the last one is old enough, or where there is `news`.
    fn publish_if(&mut self, news: bool) {
        let now = Instant::now();
        if news || self.recorder.due(now) {
            self.publish(now);
        }
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
        self.recorder.rest(Instant::now());
        self.recorder.stopwatch.enter(Phase::Idle);
        let command = self.next_command();
        self.recorder.stopwatch.enter(Phase::Gap);
        match command {
            Ok(command) => self.obey(command),
            Err(_) => Next::Close,
        }
    }

    /// Meanwhile, what is to go to disk goes there; only as long as that takes, the loop wakes by itself.
    fn next_command(&mut self) -> Result<Command, RecvTimeoutError> {
        loop {
            let behind = self.write_behind();
            self.publish(Instant::now());
            if !behind {
                return self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected);
            }
            let reads_on = self.prompt_cache.as_ref().is_some_and(PromptCache::has_turn);
            let patience = if reads_on { Duration::ZERO } else { WRITTEN_BEHIND };
            match self.commands.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) => {}
                command => return command,
            }
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
}
