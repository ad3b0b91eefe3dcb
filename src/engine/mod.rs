//! The batching engine: many requests, one model, one thread.
//!
//! Everything above talks to an [`Engine`]: it submits a [`Request`] with a [`Consumer`] of its [`Event`]s, cancels,
//! watches [`telemetry::Snapshot`]s and drains [`telemetry::StepSample`]s. All of these are plain data.

pub mod admission;
pub mod batch;
pub mod budget;
pub mod chunks;
pub mod command;
mod decode;
pub mod event;
pub mod fake;
pub mod handle;
mod intake;
pub mod memory;
pub mod options;
mod prefill;
pub mod prompt_cache;
pub mod rates;
pub mod recorder;
pub mod request;
mod room;
mod row;
mod scheduler;
pub mod step_log;
pub mod stopwatch;
pub mod telemetry;
mod warm_up;

use std::sync::Arc;

pub use event::{Consumer, ConsumerError, Event, Finish, FinishReason, Flow, StopReason};
pub use handle::{EngineHandle, Prepared};
pub use options::EngineOptions;
pub use request::{Begun, Prompt, Request, RequestId};
use tokio::sync::watch;

use telemetry::{Snapshot, StepSample};

/// Why a request was not taken. One that is taken ends with [`Event::Finish`], whatever happens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full.
    #[error("the queue is full ({limit} requests wait already): try again when one has started")]
    QueueFull {
        /// The most requests that may wait.
        limit: usize,
    },
    /// The model is not loaded yet.
    #[error("the model is still being loaded: try again when it is ready")]
    Loading,
    /// The engine has been closed, or has failed.
    #[error("the engine no longer runs: {0}")]
    Closed(String),
    /// The request itself can't be served: an empty prompt, a parameter out of range, text without a tokenizer.
    #[error("{0}")]
    Invalid(String),
}

/// What an engine is asked to do; the real one, and the scripted one that tests of the interface use.
pub trait Engine: Send + Sync {
    /// Queues a request. Its events go to `consumer`, from the engine's thread, in order; [`Event::Finish`] is last.
    /// Does not wait for the engine; may tokenize on the caller's thread.
    fn submit(&self, request: Request, consumer: Box<dyn Consumer>) -> Result<RequestId, SubmitError>;

    /// Ends a request wherever it is; it finishes with [`FinishReason::Cancelled`]. Unknown ids are ignored.
    fn cancel(&self, id: RequestId);

    /// The engine's state, refreshed ten times a second at most while it works; waits for the next one by `changed()`.
    fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>>;

    /// Moves the step records since the last call to the end of `out`. Those that were dropped in between are counted
    /// in [`Snapshot::dropped_samples`].
    fn drain_samples(&self, out: &mut Vec<StepSample>);

    /// Makes [`close`](Self::close) not wait for what would still be written: entries of the prompt cache that are not on
    /// disk yet are given up.
    fn hurry(&self) {}

    /// Ends every request with a typed error at the next safe boundary, writes the prompt cache to disk where it goes there,
    /// frees everything and joins the thread.
    fn close(&self);
}
