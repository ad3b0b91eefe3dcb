//! What the engine's thread is told.

use super::request::RequestId;
use super::row::Job;
use crate::model::LanguageModel;

/// A message to the engine's thread.
pub enum Command {
    /// Queue a request.
    Submit(Box<Job>),
    /// Queue requests by step, for reproducible workloads.
    Schedule(Vec<Arrival>),
    /// End a request wherever it is.
    Cancel(RequestId),
    /// Let someone have the model alone.
    Hold(Hold),
    /// Do read-only work between iterations.
    Task(Task),
    /// Forget a task.
    CancelTask(TaskId),
    /// End everything.
    Close,
}

/// A request that is submitted at the top of the first iteration at which this many forwards have been dispatched.
pub struct Arrival {
    /// Decode forwards since the start.
    pub at_step: u64,
    /// The request.
    pub job: Box<Job>,
}

/// Work that needs the model alone. It says whether the model changed, so that nothing cached for it is used again.
pub type HoldWork = Box<dyn FnOnce(&mut Box<dyn LanguageModel>) -> bool + Send>;

/// A request to have the model alone: admission stops, rows finish, the work runs, admission resumes.
pub struct Hold {
    /// Whether running rows are cancelled instead of finished.
    pub cancel_running: bool,
    /// The work.
    pub work: HoldWork,
}

/// Names a task within one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskId(pub u64);

/// Whether a task wants another turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Another turn, please.
    Unfinished,
    /// Done.
    Finished,
}

/// One turn of a task.
pub type TaskTurn = Box<dyn FnMut(&dyn LanguageModel) -> TaskState + Send>;

/// Read-only work that runs a turn at a time between iterations.
pub struct Task {
    /// Its name.
    pub id: TaskId,
    /// Called once per iteration until it is finished.
    pub turn: TaskTurn,
}
