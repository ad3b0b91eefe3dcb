//! The engine as others hold it: a thread, a channel of commands, and what it publishes.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::watch;

use super::command::{Arrival, Command, Hold, HoldWork, Task, TaskId, TaskTurn};
use super::event::Consumer;
use super::intake::{self, Encoded};
use super::memory;
use super::options::EngineOptions;
use super::recorder::Recorder;
use super::request::{Request, RequestId};
use super::row::{Job, panic_text};
use super::scheduler::Scheduler;
use super::step_log::StepLog;
use super::telemetry::{EngineInfo, EngineState, Snapshot, StepSample};
use super::warm_up;
use super::{Engine, SubmitError};
use crate::model::{LoadProgress, Loaded};
use crate::text::Codec;

/// Steps whose records wait to be drained; older ones are dropped, and counted.
const STEP_LOG_CAPACITY: usize = 4096;

/// What an engine ends its requests with when it is closed.
const CLOSED: &str = "the engine was closed before this request ended";

/// Loads a model on the engine's thread, telling how far it is.
pub type Loader = Box<dyn FnOnce(&mut dyn FnMut(LoadProgress)) -> Result<Prepared, String> + Send>;

/// A loaded model and what to say of it.
pub struct Prepared {
    /// The model and its EOS ids.
    pub loaded: Loaded,
    /// Between text and tokens; `None` where the model came without a tokenizer.
    pub codec: Option<Codec>,
    /// For headers and reports; the engine fills in what it knows better.
    pub info: EngineInfo,
}

/// The way in, or why there is none any more. Shut before the last commands are answered, so that none is lost between.
type Gate = Arc<Mutex<Result<Sender<Command>, String>>>;

/// The real engine.
pub struct EngineHandle {
    gate: Gate,
    thread: Mutex<Option<JoinHandle<()>>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    log: Arc<StepLog>,
    waiting: Arc<AtomicUsize>,
    give_up: Arc<AtomicBool>,
    /// Whether nobody waits for the model any more that may still be loading.
    unwanted: Arc<AtomicBool>,
    max_queued: usize,
    next_id: AtomicU64,
    text: Arc<OnceLock<Option<Codec>>>,
}

impl EngineHandle {
    /// Starts the engine's thread; the model is loaded there. Requests are taken once it is loaded, see
    /// [`EngineHandle::wait_until_ready`].
    pub fn spawn(options: EngineOptions, loader: Loader) -> std::io::Result<Self> {
        let (commands, inbox) = mpsc::channel();
        let (publisher, snapshots) = watch::channel(Arc::new(Snapshot::loading("starting")));
        let log = Arc::new(StepLog::new(STEP_LOG_CAPACITY));
        let waiting = Arc::new(AtomicUsize::new(0));
        let give_up = Arc::new(AtomicBool::new(false));
        let unwanted = Arc::new(AtomicBool::new(false));
        let text = Arc::new(OnceLock::new());
        let gate: Gate = Arc::new(Mutex::new(Ok(commands)));
        let thread = EngineThread {
            options: options.clone(),
            gate: Arc::clone(&gate),
            inbox,
            publisher,
            log: Arc::clone(&log),
            waiting: Arc::clone(&waiting),
            give_up: Arc::clone(&give_up),
            unwanted: Arc::clone(&unwanted),
            text: Arc::clone(&text),
        };
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || thread.run(loader))?;
        Ok(Self {
            gate,
            thread: Mutex::new(Some(thread)),
            snapshots,
            log,
            waiting,
            give_up,
            unwanted,
            max_queued: options.max_queued,
            next_id: AtomicU64::new(0),
            text,
        })
    }

    /// Blocks until the model is loaded; the engine's message if it can't be.
    pub fn wait_until_ready(&self) -> Result<Arc<Snapshot>, String> {
        let mut snapshots = self.snapshots.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let settled = snapshots
                .wait_for(|snapshot| !matches!(snapshot.state, EngineState::Loading { .. }))
                .await;
            let snapshot = settled
                .map_err(|_| "the engine's thread is gone".to_owned())?
                .clone();
            match &snapshot.state {
                EngineState::Ready => Ok(snapshot),
                EngineState::Failed(message) => Err(message.clone()),
                EngineState::Closed | EngineState::Loading { .. } => Err("the engine was closed".to_owned()),
            }
        })
    }

    /// Submits requests by decode step: each is queued at the top of the first iteration at which that many forwards
    /// have been dispatched (an idle engine takes the next one at once); ties in the order given. Wait until the
    /// engine is ready first.
    pub fn schedule(
        &self,
        workload: Vec<(u64, Request, Box<dyn Consumer>)>,
    ) -> Result<Vec<Result<RequestId, SubmitError>>, SubmitError> {
        let mut arrivals = Vec::new();
        let mut outcomes = Vec::new();
        for (at_step, request, consumer) in workload {
            let job = self.job(request, consumer);
            outcomes.push(job.as_ref().map(|job| job.id).map_err(Clone::clone));
            if let Ok(job) = job {
                arrivals.push(Arrival {
                    at_step,
                    job: Box::new(job),
                });
            }
        }
        self.send(Command::Schedule(arrivals))?;
        Ok(outcomes)
    }

    /// Asks for the model alone: admission stops, running rows finish (or are cancelled), `work` runs on the engine's
    /// thread and says whether it changed the model; then admission resumes with the queue intact.
    pub fn hold(&self, cancel_running: bool, work: HoldWork) -> Result<(), SubmitError> {
        self.send(Command::Hold(Hold { cancel_running, work }))
    }

    /// Runs read-only work on the engine's thread, a turn between iterations at a time, without a hold.
    pub fn start_task(&self, turn: TaskTurn) -> Result<TaskId, SubmitError> {
        let id = TaskId(self.next_id.fetch_add(1, Ordering::Relaxed));
        self.send(Command::Task(Task { id, turn })).map(|()| id)
    }

    /// Forgets a task; it gets no further turn.
    pub fn cancel_task(&self, id: TaskId) {
        let _closed = self.send(Command::CancelTask(id));
    }

    fn send(&self, command: Command) -> Result<(), SubmitError> {
        match &*self.gate.lock().unwrap_or_else(PoisonError::into_inner) {
            Ok(commands) => commands.send(command).map_err(|_| self.closed()),
            Err(reason) => Err(SubmitError::Closed(reason.clone())),
        }
    }

    fn closed(&self) -> SubmitError {
        SubmitError::Closed(match &self.snapshots.borrow().state {
            EngineState::Failed(message) => message.clone(),
            _ => "it was closed".into(),
        })
    }

    /// Checks and tokenizes on the caller's thread.
    fn job(&self, request: Request, consumer: Box<dyn Consumer>) -> Result<Job, SubmitError> {
        let submitted = Instant::now();
        intake::check(&request)?;
        let loading = matches!(self.snapshots.borrow().state, EngineState::Loading { .. });
        let text = self.text.get().ok_or_else(|| {
            if loading {
                SubmitError::Loading
            } else {
                self.closed()
            }
        });
        let codec = text?.as_ref();
        let encoded: Encoded = intake::encode(&request, codec)?;
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        intake::job(id, request, encoded, consumer, submitted)
    }
}

impl Engine for EngineHandle {
    fn submit(&self, request: Request, consumer: Box<dyn Consumer>) -> Result<RequestId, SubmitError> {
        let job = self.job(request, consumer)?;
        let id = job.id;
        let limit = self.max_queued;
        let place = |waiting| (waiting < limit).then_some(waiting + 1);
        if self
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, place)
            .is_err()
        {
            return Err(SubmitError::QueueFull { limit });
        }
        self.send(Command::Submit(Box::new(job))).inspect_err(|_| {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        })?;
        Ok(id)
    }

    fn cancel(&self, id: RequestId) {
        let _closed = self.send(Command::Cancel(id));
    }

    fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshots.clone()
    }

    fn drain_samples(&self, out: &mut Vec<StepSample>) {
        self.log.drain(out);
    }

    fn hurry(&self) {
        self.give_up.store(true, Ordering::Relaxed);
    }

    fn close(&self) {
        self.unwanted.store(true, Ordering::Relaxed);
        let _closed = self.send(Command::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the engine's thread panicked while it was closing");
        }
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        self.close();
    }
}

/// What moves into the engine's thread.
struct EngineThread {
    options: EngineOptions,
    gate: Gate,
    inbox: Receiver<Command>,
    publisher: watch::Sender<Arc<Snapshot>>,
    log: Arc<StepLog>,
    waiting: Arc<AtomicUsize>,
    give_up: Arc<AtomicBool>,
    unwanted: Arc<AtomicBool>,
    text: Arc<OnceLock<Option<Codec>>>,
}

/// Leaves a loader whose model nobody waits for any more.
struct Unwanted;

impl EngineThread {
    fn run(self, loader: Loader) {
        self.load_and_serve(loader);
        // What the model held is the system's again, or the next model's.
        memory::give_back();
    }

    fn load_and_serve(self, loader: Loader) {
        let (publisher, unwanted) = (self.publisher.clone(), Arc::clone(&self.unwanted));
        let mut report = |progress: LoadProgress| {
            if unwanted.load(Ordering::Relaxed) {
                // No failure, and no message: the loader lets go of all that it has.
                resume_unwind(Box::new(Unwanted));
            }
            let mut snapshot = Snapshot::loading("");
            snapshot.state = EngineState::Loading {
                stage: "loading the model".into(),
                done: progress.done_bytes,
                total: progress.total_bytes,
            };
            publisher.send_replace(Arc::new(snapshot));
        };
        let loaded = catch_unwind(AssertUnwindSafe(|| loader(&mut report)));
        let prepared = match loaded {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(message)) => return self.fail_to_start(&message),
            Err(panic) if panic.is::<Unwanted>() => {
                let mut snapshot = Snapshot::loading("closed");
                snapshot.state = EngineState::Closed;
                self.publisher.send_replace(Arc::new(snapshot));
                return;
            }
            Err(panic) => {
                return self.fail_to_start(&format!(
                    "loading the model panicked: {}",
                    panic_text(panic.as_ref())
                ));
            }
        };
        let Prepared { loaded, codec, info } = prepared;
        if loaded.model.info().on_gpu {
            publisher.send_replace(Arc::new(Snapshot::loading(warm_up::STAGE)));
            if let Err(error) = warm_up::warm_up(&*loaded.model, self.options.max_batch) {
                return self.fail_to_start(&format!("the first run on the GPU failed: {error}"));
            }
        }
        let mut snapshot = Snapshot::loading("ready");
        snapshot.info = EngineInfo {
            vocabulary: loaded.model.info().vocab_size,
            context_length: loaded.model.info().max_positions,
            has_tokenizer: codec.is_some(),
            thinking_switch: codec.as_ref().is_some_and(Codec::has_thinking_switch),
            kv_bytes_per_token: loaded.model.plan().bytes_per_token(),
            kv_layers: loaded.model.plan().held(),
            kv_quantized: loaded.model.plan().quantized(),
            default_kv_budget: self.options.kv_budget.is_none(),
            ..info
        };
        let recorder = Recorder::new(self.log, self.publisher, snapshot, Instant::now());
        let mut eos = loaded.eos;
        eos.extend(codec.as_ref().map_or(&[][..], Codec::eos));
        let mut scheduler = Scheduler::new(
            loaded.model,
            eos,
            self.options,
            self.inbox,
            self.waiting,
            self.give_up,
            recorder,
        );
        let _already = self.text.set(codec);
        scheduler.announce();
        let outcome = catch_unwind(AssertUnwindSafe(|| scheduler.run()));
        let shut = |reason: &str| {
            *self.gate.lock().unwrap_or_else(PoisonError::into_inner) = Err(reason.to_owned());
        };
        match outcome {
            Ok(()) => {
                shut("it was closed");
                scheduler.end_all(CLOSED, EngineState::Closed);
            }
            Err(panic) => {
                let message = format!("the engine's loop panicked: {}", panic_text(panic.as_ref()));
                tracing::error!(%message);
                shut(&message);
                scheduler.end_all(&message, EngineState::Failed(message.clone()));
            }
        }
    }

    fn fail_to_start(self, message: &str) {
        tracing::error!(%message, "the model could not be loaded");
        let mut snapshot = Snapshot::loading("failed");
        snapshot.state = EngineState::Failed(message.to_owned());
        self.publisher.send_replace(Arc::new(snapshot));
    }
}
