//! A scripted engine: everything above the engine can be tested with it, without a model.
//!
//! It queues, admits, prepares, decodes, caches, cancels and closes as the real one does, a batch at a time, but its
//! answers, failures and timing come from a [`script::Script`]. [`Fake::spawn`] runs it on a thread of its own, a step
//! per tick; [`Fake::manual`] runs it only when told, on a clock that only steps move.

mod core;
mod figures;
mod row;
pub mod script;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use self::core::{Command, Core};
use self::figures::snapshot;
use self::row::Row;
use self::script::{Script, ScriptError};
use super::row::panic_text;
use super::step_log::StepLog;
use super::telemetry::{EngineState, Snapshot, StepSample};
use super::{Consumer, Engine, Prompt, Request, RequestId, SubmitError};

/// Step records kept until somebody takes them.
const LOG: usize = 1024;
/// Snapshots come no more often than this from the thread.
const REFRESH: Duration = Duration::from_millis(100);
const CLOSED: &str = "the engine was closed before this request had ended";

/// The scripted engine. Dropping it closes it.
pub struct Fake {
    shared: Arc<Shared>,
    driver: Driver,
}

enum Driver {
    Thread(Mutex<Option<JoinHandle<()>>>),
    Manual(Box<Mutex<Loop>>),
}

enum Clock {
    Real(Instant),
    /// Nanoseconds.
    Stepped(AtomicU64),
}

struct Shared {
    script: Script,
    clock: Clock,
    inbox: Mutex<Inbox>,
    woken: Condvar,
    snapshots: watch::Sender<Arc<Snapshot>>,
    log: Arc<StepLog>,
    ids: AtomicU64,
    /// The thread that is in a step now.
    inside: Mutex<Option<ThreadId>>,
}

#[derive(Default)]
struct Inbox {
    commands: Vec<Command>,
    /// Requests in the queue, those that were just taken from `commands` included.
    waiting: usize,
    /// Why no more requests are taken.
    ended: Option<String>,
    closing: bool,
}

/// The loop's own state.
struct Loop {
    core: Core,
    published: Option<Duration>,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks; if it did, the data would still be whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fake {
    /// Runs a script on a thread of its own, a step per tick.
    pub fn spawn(script: Script) -> io::Result<Self> {
        let (shared, mut state) = Shared::new(script, Clock::Real(Instant::now()));
        let shared = Arc::new(shared);
        let its = Arc::clone(&shared);
        let run = move || its.run(&mut state);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(run)?;
        Ok(Self {
            shared,
            driver: Driver::Thread(Mutex::new(Some(thread))),
        })
    }

    /// Runs a script only when [`Fake::advance`] is called.
    pub fn manual(script: Script) -> Self {
        let (shared, state) = Shared::new(script, Clock::Stepped(AtomicU64::new(0)));
        Self {
            shared: Arc::new(shared),
            driver: Driver::Manual(Box::new(Mutex::new(state))),
        }
    }

    /// Reads a script from a file, and runs it on a thread of its own: `--engine fake:SCRIPT`.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        Self::spawn(Script::read(path)?).map_err(ScriptError::Thread)
    }

    /// Does so many steps, each a tick of the engine's own clock. Not to be called by a consumer, nor on an engine
    /// with a thread, where it does nothing.
    pub fn advance(&self, steps: usize) {
        let Driver::Manual(state) = &self.driver else {
            return;
        };
        let mut state = lock(state);
        for _ in 0..steps {
            self.shared.turn(&mut state);
            if let Clock::Stepped(clock) = &self.shared.clock {
                clock.fetch_add(self.shared.tick().as_nanos() as u64, Ordering::Relaxed);
            }
        }
        // A consumer may have closed the engine in the last step.
        if lock(&self.shared.inbox).closing {
            self.shared.turn(&mut state);
        }
    }
}

impl Engine for Fake {
    fn submit(&self, request: Request, consumer: Box<dyn Consumer>) -> Result<RequestId, SubmitError> {
        let shared = &self.shared;
        check(&request, shared.script.model.has_tokenizer)?;
        let id = RequestId(shared.ids.fetch_add(1, Ordering::Relaxed));
        let row = Row::new(id, request, consumer, &shared.script, shared.now());
        if row.prompt.is_empty() {
            return Err(SubmitError::Invalid("the prompt is empty".into()));
        }
        let mut inbox = lock(&shared.inbox);
        if let Some(why) = &inbox.ended {
            return Err(SubmitError::Closed(why.clone()));
        }
        let limit = shared.script.engine.max_queued;
        if inbox.waiting >= limit {
            return Err(SubmitError::QueueFull { limit });
        }
        inbox.waiting += 1;
        inbox.commands.push(Command::Submit(Box::new(row)));
        shared.woken.notify_all();
        Ok(id)
    }

    fn cancel(&self, id: RequestId) {
        let mut inbox = lock(&self.shared.inbox);
        if inbox.ended.is_none() {
            inbox.commands.push(Command::Cancel(id));
            self.shared.woken.notify_all();
        }
    }

    fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.snapshots.subscribe()
    }

    fn drain_samples(&self, out: &mut Vec<StepSample>) {
        self.shared.log.drain(out);
    }

    fn close(&self) {
        {
            let mut inbox = lock(&self.shared.inbox);
            if inbox.ended.is_none() {
                inbox.ended = Some("it was closed".into());
                inbox.closing = true;
                self.shared.woken.notify_all();
            }
        }
        // A consumer that closes the engine from within a step can't wait for that step to end.
        if *lock(&self.shared.inside) == Some(std::thread::current().id()) {
            return;
        }
        match &self.driver {
            Driver::Thread(thread) => {
                if let Some(thread) = lock(thread).take() {
                    // Its panics are caught inside.
                    let _ = thread.join();
                }
            }
            Driver::Manual(state) => {
                let mut state = lock(state);
                if lock(&self.shared.inbox).closing {
                    self.shared.turn(&mut state);
                }
            }
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the caller can be told at once.
fn check(request: &Request, has_tokenizer: bool) -> Result<(), SubmitError> {
    let invalid = |message: &str| Err(SubmitError::Invalid(message.to_string()));
    if let Err(bad) = request.sampling.check() {
        return invalid(&bad.to_string());
    }
    if request.max_tokens == 0 {
        return invalid("max_tokens is 0, but must be at least 1");
    }
    match &request.prompt {
        Prompt::Text(_) | Prompt::Messages(_) if !has_tokenizer => {
            invalid("the model has no tokenizer: give the prompt as token ids")
        }
        Prompt::Messages(messages) if messages.is_empty() => invalid("the prompt is empty"),
        _ => Ok(()),
    }
}

impl Shared {
    fn new(script: Script, clock: Clock) -> (Self, Loop) {
        let log = Arc::new(StepLog::new(LOG));
        let core = Core::new(script.clone(), Arc::clone(&log));
        let first = Arc::new(snapshot(&core, &log, Duration::ZERO));
        let shared = Self {
            script,
            clock,
            inbox: Mutex::default(),
            woken: Condvar::new(),
            snapshots: watch::Sender::new(first),
            log,
            ids: AtomicU64::new(0),
            inside: Mutex::new(None),
        };
        (
            shared,
            Loop {
                core,
                published: None,
                over: false,
            },
        )
    }

    fn tick(&self) -> Duration {
        Duration::from_millis(self.script.tick_ms)
    }

    fn now(&self) -> Duration {
        match &self.clock {
            Clock::Real(start) => start.elapsed(),
            Clock::Stepped(nanos) => Duration::from_nanos(nanos.load(Ordering::Relaxed)),
        }
    }

    /// The thread: a turn per tick while there is work, and sleep without.
    fn run(&self, state: &mut Loop) {
        loop {
            let started = Instant::now();
            self.turn(state);
            if state.over {
                return;
            }
            let mut inbox = lock(&self.inbox);
            if state.core.is_idle() {
                while inbox.commands.is_empty() && !inbox.closing {
                    inbox = self.woken.wait(inbox).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            }
            while !inbox.closing {
                let left = self.tick().saturating_sub(started.elapsed());
                if left.is_zero() {
                    break;
                }
                inbox = self
                    .woken
                    .wait_timeout(inbox, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }

    /// One step, or the end.
    fn turn(&self, state: &mut Loop) {
        if state.over {
            return;
        }
        *lock(&self.inside) = Some(std::thread::current().id());
        let now = self.now();
        let (commands, closing) = {
            let mut inbox = lock(&self.inbox);
            (
                std::mem::take(&mut inbox.commands),
                std::mem::take(&mut inbox.closing),
            )
        };
        if closing {
            state.core.take(now, commands);
            state.core.shut(EngineState::Closed, CLOSED, now);
            state.over = true;
        } else {
            let failure = match catch_unwind(AssertUnwindSafe(|| state.core.step(now, commands))) {
                Ok(Ok(())) => None,
                Ok(Err(message)) => Some(message),
                Err(panic) => Some(format!(
                    "the engine's thread panicked: {}",
                    panic_text(panic.as_ref())
                )),
            };
            if let Some(message) = failure {
                let late = {
                    let mut inbox = lock(&self.inbox);
                    inbox.ended = Some(message.clone());
                    inbox.closing = false;
                    std::mem::take(&mut inbox.commands)
                };
                state.core.take(now, late);
                let told = format!("the engine has failed: {message}");
                state.core.shut(EngineState::Failed(message), &told, now);
                state.over = true;
            }
        }
        {
            let mut inbox = lock(&self.inbox);
            let arrived = inbox
                .commands
                .iter()
                .filter(|command| matches!(command, Command::Submit(_)))
                .count();
            inbox.waiting = state.core.queued() + arrived;
        }
        self.publish(state, now);
        *lock(&self.inside) = None;
    }

    fn publish(&self, state: &mut Loop, now: Duration) {
        let fresh = state.published.is_some_and(|at| now.saturating_sub(at) < REFRESH);
        // The last state before sleeping is always shown.
        let more_to_come = !state.over && !state.core.is_idle();
        if fresh && more_to_come && matches!(self.clock, Clock::Real(_)) {
            return;
        }
        state.published = Some(now);
        self.snapshots
            .send_replace(Arc::new(snapshot(&state.core, &self.log, now)));
    }
}
