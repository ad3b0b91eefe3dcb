//! What the interface asks of models: which there are, and to have one deleted, downloaded or opened.
//!
//! [`Models`] is what the interface is given; it knows no disk and no network itself. Everything here takes time, and is
//! called on other threads than the loop's.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::chat::Sampling;
use crate::engine::Engine;

/// Where a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the models folder.
    Installed,
    /// In the cache that the model hub's programs share.
    Cached,
    /// A file or folder that was named by its path.
    Elsewhere,
    /// Not on this machine: it can be downloaded.
    Remote,
}

/// A model that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// By what it is asked for.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Bytes of its files, there or to be downloaded; none where that isn't known.
    pub bytes: Option<u64>,
    /// Bytes that an unfinished download left.
    pub unfinished: u64,
    /// Whether it is the one that is taken where none is named.
    pub default: bool,
    /// Whether it is opened now.
    pub in_use: bool,
    /// Whether it is a link to elsewhere, of which the link alone would be deleted.
    pub link: bool,
    /// What its files say, where that is known at once.
    pub facts: Option<Facts>,
}

/// What a model's files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// How the weights are stored; empty where that isn't known.
    pub quantization: String,
    /// The most tokens of a conversation; 0 where that isn't known.
    pub context: usize,
    /// Bytes of weights.
    pub weights: u64,
    /// Bytes of keys and values of one conversation at its longest.
    pub kv: u64,
    /// Bytes of device memory that are free for it, without the model that is there now.
    pub free: u64,
    /// Whether it fits there.
    pub fit: Fit,
    /// Whether it has a chat template; none where that isn't known.
    pub template: Option<bool>,
}

/// Whether a model fits into memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fit {
    /// Nobody knows.
    #[default]
    Unknown,
    /// With a conversation of full length.
    Whole,
    /// With conversations of up to so many tokens.
    UpTo(usize),
    /// Not even its weights do.
    No,
    /// It can't be run at all: why.
    Unsupported(String),
}

/// What is on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The models, those on this machine first.
    pub models: Vec<Listed>,
    /// Files of the prompt cache, of all models.
    pub prompt_files: usize,
    /// Their bytes.
    pub prompt_bytes: u64,
}

/// How far a download is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetching {
    /// What is being done.
    pub stage: String,
    /// Bytes on disk.
    pub done: u64,
    /// Bytes in all; 0 where that isn't known yet.
    pub total: u64,
}

/// A download that did not come to its end: why. What came is kept, and the next one goes on from there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFetched(pub String);

/// An engine for a model, which may still be loading it.
pub struct Opened {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// How the model's makers would have it sample, with what was asked for on the command line.
    pub recommended: Sampling,
}

/// A model that can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// It has to be downloaded first.
    #[error("it isn't on this machine")]
    Remote,
    /// Why not.
    #[error("{0}")]
    Failed(String),
}

/// All models that can be had.
pub trait Models: Send + Sync {
    /// Those that are known. Reads folders, and no model's files.
    fn list(&self) -> Result<Inventory, String>;

    /// What a model's files say; none where there is none of this name any more.
    fn inspect(&self, name: &str) -> Option<Facts>;

    /// Whether a model is on this machine; an error if nothing has this name.
    fn is_here(&self, name: &str) -> Result<bool, String>;

    /// Deletes a model that isn't in use; what to say of it.
    fn remove(&self, name: &str) -> Result<String, String>;

    /// Deletes all files of the prompt cache; what to say of it.
    fn clear_prompts(&self) -> Result<String, String>;

    /// Downloads a model, and tells how far that is; `cancel` stops it.
    fn fetch(
        &self,
        name: &str,
        tell: &mut dyn FnMut(Fetching),
        cancel: &Arc<AtomicBool>,
    ) -> Result<(), NotFetched>;

    /// Starts an engine for a model, which loads it on a thread of its own.
    fn open(&self, name: &str) -> Result<Opened, NotOpened>;
}

/// Something to find out or to do about models, on the worker's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// List them.
    List,
    /// Read what a model's files say.
    Inspect(String),
    /// See whether a model is on this machine.
    Find(String),
    /// Delete a model.
    Remove(String),
    /// Delete the prompt cache's files.
    ClearPrompts,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// What is on disk, or why there is no list.
    Listed(Result<Inventory, String>),
    /// What a model's files say.
    Inspected(String, Option<Facts>),
    /// Whether a model is on this machine, or why nothing has this name.
    Found(String, Result<bool, String>),
    /// What was deleted, or why nothing was.
    Removed(Result<String, String>),
}

/// Does what was asked, here and now.
pub fn answer(models: &dyn Models, ask: Ask) -> Answer {
    match ask {
        Ask::List => Answer::Listed(models.list()),
        Ask::Inspect(name) => {
            let facts = models.inspect(&name);
            Answer::Inspected(name, facts)
        }
        Ask::Find(name) => {
            let here = models.is_here(&name);
            Answer::Found(name, here)
        }
        Ask::Remove(name) => Answer::Removed(models.remove(&name)),
        Ask::ClearPrompts => Answer::Removed(models.clear_prompts()),
    }
}

/// What the person wants done with the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Another model.
    Use {
        /// Which.
        name: String,
        /// Whether running answers are stopped instead of awaited.
        stop: bool,
    },
    /// A model on this machine.
    Fetch(String),
    /// The end of the download.
    StopFetch,
    /// The model from before, instead of the one that is on its way.
    TurnBack,
}
