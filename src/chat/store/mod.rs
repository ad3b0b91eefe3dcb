//! Conversations on disk: a log each, in a folder of the user's alone, and the layout of open panes.
//!
//! `<state>/sessions/<session>.jsonl` holds a [`Record`] a line and only grows. Whoever writes to one holds a lock on it;
//! others can read. A last line that was cut off is passed over, and removed before the next one is written; a line in
//! the middle that can't be read is passed over with a note. Nothing else is kept of a conversation anywhere. One that was
//! deleted lies in `<state>/deleted` for thirty days.

mod deleted;
mod index;
mod layout;
mod list;
mod log;
mod search;
mod words;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use index::Index;
use jiff::Timestamp;
pub use layout::Before;
use layout::Keeper;
pub use list::{Listing, Summary};
use log::Log;
pub use search::{Found, Hit, Place};

use super::SessionId;
use super::import::Imported;
use super::layout::Layout;
use super::pane::Access;
use super::record::{Kind, Marks, Record, RecordId};
use super::replay::{Conversation, replay};
use crate::config::paths::Paths;

/// Why the store can't do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process (or another part of this one) writes to the conversation.
    #[error("{} is open in another process: close it there, or read it only", named(*session, title))]
    OpenElsewhere {
        /// Which.
        session: SessionId,
        /// Its title; may be empty.
        title: String,
    },
    /// There is no such conversation.
    #[error("there is no conversation {session}: `sessions list` shows those that there are")]
    Missing {
        /// Which was asked for.
        session: SessionId,
    },
    /// No conversation's name begins so.
    #[error("no conversation's id begins with {beginning:?}: `sessions list` shows those that there are")]
    NoneBegins {
        /// What was asked for.
        beginning: String,
    },
    /// Several conversations' names begin so.
    #[error(
        "{count} conversations' ids begin with {beginning:?}, {first} and {second} among them: give more of it"
    )]
    Ambiguous {
        /// What was asked for.
        beginning: String,
        /// How many.
        count: usize,
        /// One of them.
        first: SessionId,
        /// Another one.
        second: SessionId,
    },
    /// The layout's file can't be understood.
    #[error("can't understand {}: {reason}; it is replaced when panes are next opened", path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A record can't be written as JSON.
    #[error("a record of conversation {session} can't be written as JSON: {source}")]
    Encode {
        /// Whose.
        session: SessionId,
        /// Why.
        source: serde_json::Error,
    },
}

impl StoreError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }

    fn elsewhere(path: &Path, session: SessionId) -> Self {
        let title = list::title(path, session);
        Self::OpenElsewhere { session, title }
    }
}

/// What a conversation is called where a person is told of it.
fn named(session: SessionId, title: &str) -> String {
    if title.is_empty() {
        format!("conversation {session}")
    } else {
        format!("{title:?}")
    }
}

/// What became of a conversation from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is kept.
    New(SessionId),
    /// It was there already, and stays as it is.
    Known(SessionId),
}

/// What `--resume` brings back.
#[derive(Debug)]
pub struct Restored {
    /// The panes.
    pub layout: Layout,
    /// Those of their conversations that could be loaded; read-only where another process has them.
    pub conversations: Vec<(Conversation, Access)>,
    /// What could not be read, or only be read, in words.
    pub notes: Vec<String>,
}

/// The conversations on disk. Those that it writes to stay locked until released or dropped.
#[derive(Debug)]
pub struct Store {
    sessions: PathBuf,
    layout: PathBuf,
    /// Where deleted conversations are, until they are old.
    deleted: PathBuf,
    /// Who keeps the layout.
    keeper: Keeper,
    open: BTreeMap<SessionId, Log>,
    /// What was read to be searched.
    index: Mutex<Index>,
}

impl Store {
    /// The store in the user's folders. Touches nothing yet: folders are made when something is first written.
    pub fn open(paths: &Paths) -> Self {
        Self::at(&paths.state)
    }

    /// The store in a folder, as it would be in the user's state folder.
    pub fn at(state: &Path) -> Self {
        Self {
            sessions: state.join("sessions"),
            layout: state.join("layout.json"),
            deleted: state.join("deleted"),
            keeper: Keeper::default(),
            open: BTreeMap::new(),
            index: Mutex::default(),
        }
    }

    /// The same store for another thread, which reads what this one writes, and has nothing open.
    pub fn reader(&self) -> Self {
        Self {
            sessions: self.sessions.clone(),
            layout: self.layout.clone(),
            deleted: self.deleted.clone(),
            keeper: Keeper::default(),
            open: BTreeMap::new(),
            index: Mutex::default(),
        }
    }

    /// Where a conversation's log is (or would be).
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.sessions.join(format!("{session}.jsonl"))
    }

    /// Writes records at the end of a conversation's log: all of them or, with an error, none. Makes the log and locks
    /// it where that has not happened yet. Survives the process's death; see [`Store::sync`] for the machine's.
    pub fn append(&mut self, session: SessionId, records: &[Record]) -> Result<(), StoreError> {
        let mut lines = String::new();
        for record in records {
            lines += &record
                .to_line()
                .map_err(|source| StoreError::Encode { session, source })?;
        }
        let path = self.path(session);
        if !self.open.contains_key(&session) {
            private_folder(&self.sessions)?;
        }
        self.locked(session, &path, true)?.append(&path, lines.as_bytes())
    }

    /// Waits until what was written to a conversation is on the disk.
    pub fn sync(&mut self, session: SessionId) -> Result<(), StoreError> {
        match self.open.get(&session) {
            Some(log) => log
                .sync()
                .map_err(StoreError::io("write to the disk", &self.path(session))),
            None => Ok(()),
        }
    }

    /// Whether somebody else writes to a conversation at present.
    pub fn is_open_elsewhere(&self, session: SessionId) -> bool {
        !self.open.contains_key(&session) && log::is_locked(&self.path(session))
    }

    /// Lets others write to a conversation.
    pub fn release(&mut self, session: SessionId) {
        self.open.remove(&session);
    }

    /// Reads a conversation, whoever writes to it.
    pub fn load(&self, session: SessionId) -> Result<Conversation, StoreError> {
        let path = self.path(session);
        let mut notes = Vec::new();
        let mut records = Vec::new();
        log::read(&path, session, |line| match line {
            Ok(record) => records.push(record),
            Err(note) => notes.push(note),
        })?;
        let mut conversation = replay(session, records);
        notes.append(&mut conversation.notes);
        conversation.notes = notes;
        Ok(conversation)
    }

    /// Locks a conversation and reads it, to go on with it.
    pub fn resume(&mut self, session: SessionId) -> Result<Conversation, StoreError> {
        let path = self.path(session);
        self.locked(session, &path, false)?;
        self.load(session)
    }

    /// Reads a conversation to go on with it; only to read it, where another process writes to it, or nobody can.
    pub fn take(&mut self, session: SessionId) -> Result<(Conversation, Access), StoreError> {
        let path = self.path(session);
        let access = match self.locked(session, &path, false) {
            Ok(_) => Access::Write,
            Err(StoreError::OpenElsewhere { .. }) => Access::Elsewhere,
            Err(StoreError::Io { source, .. }) => {
                let folder = self.sessions.display();
                Access::Unwritable(format!("{folder} can't be written: {}", source.kind()))
            }
            Err(error) => return Err(error),
        };
        Ok((self.load(session)?, access))
    }

    /// Bytes of a conversation's log, whoever writes to it.
    pub fn length(&self, session: SessionId) -> Option<u64> {
        Some(std::fs::metadata(self.path(session)).ok()?.len())
    }

    /// Whether this process may write to a conversation: nobody else does from then on.
    pub fn claim(&mut self, session: SessionId) -> bool {
        let path = self.path(session);
        self.locked(session, &path, false).is_ok()
    }

    /// Gives a conversation another title. One that nobody has open is open only meanwhile.
    pub fn rename(&mut self, session: SessionId, at: Timestamp, title: &str) -> Result<(), StoreError> {
        let title = title.to_owned();
        self.add(session, at, Kind::Title { title })
    }

    /// Has a conversation listed otherwise.
    pub fn mark(&mut self, session: SessionId, at: Timestamp, marks: Marks) -> Result<(), StoreError> {
        self.add(session, at, Kind::Marks { marks })
    }

    /// Keeps a conversation from elsewhere; what has no time of its own happened `now`. One that was taken in before stays as
    /// it is, and is there again if it was deleted.
    pub fn take_in(&mut self, imported: Imported, now: Timestamp) -> Result<Taken, StoreError> {
        let session = imported.name();
        let records = imported.into_records(session, now);
        let again = self.bring_back_one(session)?;
        let there = match self.load(session) {
            Ok(there) => usize::try_from(there.next_record).unwrap_or(usize::MAX),
            Err(StoreError::Missing { .. }) => 0,
            Err(error) => return Err(error),
        };
        // All of it, or what is missing of one that was cut off.
        let missing = records.get(there..).unwrap_or_default();
        if missing.is_empty() {
            return Ok(if again {
                Taken::New(session)
            } else {
                Taken::Known(session)
            });
        }
        let written = self.append(session, missing);
        let written = written.and_then(|()| self.sync(session));
        self.release(session);
        written.map(|()| Taken::New(session))
    }

    /// Adds a record that says something of a conversation as a whole.
    fn add(&mut self, session: SessionId, at: Timestamp, kind: Kind) -> Result<(), StoreError> {
        let held = self.open.contains_key(&session);
        let conversation = self.resume(session)?;
        let record = Record {
            id: RecordId(conversation.next_record),
            parent: conversation.head,
            at,
            kind,
        };
        let written = self.append(session, &[record]).and_then(|()| self.sync(session));
        if !held {
            self.release(session);
        }
        written
    }

    /// The panes of last time with their conversations, if there was a last time.
    pub fn restore(&mut self) -> Result<Option<Restored>, StoreError> {
        let Some(layout) = self.load_layout()? else {
            return Ok(None);
        };
        self.takes_over();
        let mut restored = Restored {
            layout,
            conversations: Vec::new(),
            notes: Vec::new(),
        };
        for pane in restored.layout.panes.clone() {
            match self.take(pane.session) {
                Ok(taken) => {
                    let note = match &taken.1 {
                        Access::Write => None,
                        Access::Elsewhere => {
                            let title = taken.0.title.clone();
                            let session = pane.session;
                            Some(StoreError::OpenElsewhere { session, title }.to_string())
                        }
                        Access::Unwritable(why) => {
                            Some(format!("{why}; conversations can be read, and nothing is saved"))
                        }
                    };
                    restored.conversations.push(taken);
                    // The folder is the same for all.
                    restored
                        .notes
                        .extend(note.filter(|note| !restored.notes.contains(note)));
                }
                // It had not begun.
                Err(StoreError::Missing { .. }) => {}
                Err(error) => {
                    restored.notes.push(error.to_string());
                    restored.notes.push(format!("pane {} begins anew", pane.pane));
                }
            }
        }
        for (conversation, _) in &mut restored.conversations {
            let title = conversation.title.clone();
            let notes = std::mem::take(&mut conversation.notes);
            restored
                .notes
                .extend(notes.into_iter().map(|note| format!("{title}: {note}")));
        }
        Ok(Some(restored))
    }

    /// Deletes a conversation that nobody has open.
    pub fn remove(&mut self, session: SessionId) -> Result<(), StoreError> {
        let path = self.path(session);
        if self.open.contains_key(&session) {
            return Err(StoreError::elsewhere(&path, session));
        }
        // The lock is held until the file is gone, and let go with `_log`.
        let _log = Log::open(&path, session, false)?;
        fs::remove_file(&path).map_err(StoreError::io("remove", &path))
    }

    fn locked(&mut self, session: SessionId, path: &Path, create: bool) -> Result<&mut Log, StoreError> {
        match self.open.entry(session) {
            std::collections::btree_map::Entry::Occupied(log) => Ok(log.into_mut()),
            std::collections::btree_map::Entry::Vacant(place) => {
                Ok(place.insert(Log::open(path, session, create)?))
            }
        }
    }
}

/// Makes a folder, and those above it that are missing, for the user alone.
fn private_folder(path: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(path)
        .map_err(StoreError::io("make the folder", path))
}

/// Options under which a new file is the user's alone.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
