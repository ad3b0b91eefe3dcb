//! Writes conversations as they happen, on a thread of its own.
//!
//! The rule, held by [`Writer`] against a clock that is given to it: prompts, ends of answers, titles and settings are
//! written at once; pieces of an answer are joined and written at most [`DELAY`] after the first of them; of a draft
//! only the newest is written, as late, or later for large ones, so that typing in a long text doesn't fill the disk.
//! After a prompt and an end, the disk is waited for. What can't be written is kept and tried again every [`RETRY`].

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::SessionId;
use super::layout::Layout;
use super::pane::Access;
use super::record::{Kind, Marks, Record};
use super::replay::Conversation;
use super::store::{Store, StoreError};

/// The longest that a piece of an answer, or a draft of up to [`DRAFT_BYTES`], waits.
pub const DELAY: Duration = Duration::from_millis(500);
/// After how long what could not be written is tried again.
pub const RETRY: Duration = Duration::from_secs(2);
/// How often it looks whether another process has written to a conversation that can only be read here.
pub const LOOK: Duration = Duration::from_secs(1);
/// A larger draft waits [`DELAY`] for each such piece of it.
pub const DRAFT_BYTES: usize = 8 << 10;

/// Something to keep.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// The next records of a conversation's log.
    Records {
        /// Whose.
        session: SessionId,
        /// In order.
        records: Vec<Record>,
    },
    /// The open panes.
    Layout(Layout),
    /// A conversation is shown no more: another process may have it once its records are written.
    Release(SessionId),
    /// Something about a stored conversation that no pane shows; what waits to be written goes first.
    Ask(Ask),
}

/// What is asked of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// The conversation, to go on with it: [`Report::Opened`].
    Open(SessionId),
    /// Another title for it.
    Rename {
        /// Which.
        session: SessionId,
        /// When.
        at: Timestamp,
        /// The title.
        title: String,
    },
    /// Its end; it can be brought back for a while.
    Remove {
        /// Which.
        session: SessionId,
        /// When.
        at: Timestamp,
    },
    /// The one that was deleted last.
    Restore,
    /// Another way of listing it.
    Mark {
        /// Which.
        session: SessionId,
        /// When.
        at: Timestamp,
        /// How.
        marks: Marks,
    },
}

/// What the writer has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// Something could not be written; it is kept and tried again.
    Failing {
        /// Why.
        message: String,
    },
    /// Everything is written again.
    Recovered,
    /// A stored conversation that was asked for.
    Opened {
        /// What it holds.
        conversation: Box<Conversation>,
        /// Whether this process may write to it.
        access: Access,
    },
    /// What a conversation holds by now that could only be read here: another process has written to it, or is gone.
    Followed {
        /// What it holds.
        conversation: Box<Conversation>,
        /// Whether this process may write to it.
        access: Access,
    },
    /// A conversation is deleted.
    Removed {
        /// Its title; may be empty.
        title: String,
    },
    /// A conversation that was deleted is there again.
    Restored {
        /// Its title; may be empty.
        title: String,
    },
    /// What was asked of the store can't be done.
    Refused {
        /// Why.
        message: String,
    },
}

/// Where things are kept: the [`Store`], or a stand-in that fails.
pub trait Keep {
    /// Writes all of the records, or none with an error.
    fn append(&mut self, session: SessionId, records: &[Record]) -> Result<(), StoreError>;
    /// Waits until what was appended is on the disk.
    fn sync(&mut self, session: SessionId) -> Result<(), StoreError>;
    /// Lets others write to a conversation.
    fn release(&mut self, session: SessionId);
    /// Replaces the layout.
    fn save_layout(&mut self, layout: &Layout) -> Result<(), StoreError>;
    /// Reads a conversation, to go on with it where nobody else does.
    fn take(&mut self, session: SessionId) -> Result<(Conversation, Access), StoreError>;
    /// Bytes of a conversation's log, whoever writes to it.
    fn length(&self, _session: SessionId) -> Option<u64> {
        None
    }
    /// Whether this process may write to a conversation that another one had: nobody else does from then on.
    fn claim(&mut self, _session: SessionId) -> bool {
        false
    }
    /// Gives a conversation another title.
    fn rename(&mut self, session: SessionId, at: Timestamp, title: &str) -> Result<(), StoreError>;
    /// Has a conversation listed otherwise.
    fn mark(&mut self, session: SessionId, at: Timestamp, marks: Marks) -> Result<(), StoreError>;
    /// Puts a conversation that nobody else has open among the deleted ones; gives its title.
    fn put_away(&mut self, session: SessionId, at: Timestamp) -> Result<String, StoreError>;
    /// Brings the one back that was deleted last; gives its title, if there was one.
    fn bring_back(&mut self) -> Result<Option<String>, StoreError>;
}

impl Keep for Store {
    fn append(&mut self, session: SessionId, records: &[Record]) -> Result<(), StoreError> {
        Store::append(self, session, records)
    }

    fn sync(&mut self, session: SessionId) -> Result<(), StoreError> {
        Store::sync(self, session)
    }

    fn release(&mut self, session: SessionId) {
        Store::release(self, session);
    }

    fn save_layout(&mut self, layout: &Layout) -> Result<(), StoreError> {
        Store::save_layout(self, layout)
    }

    fn take(&mut self, session: SessionId) -> Result<(Conversation, Access), StoreError> {
        Store::take(self, session)
    }

    fn length(&self, session: SessionId) -> Option<u64> {
        Store::length(self, session)
    }

    fn claim(&mut self, session: SessionId) -> bool {
        Store::claim(self, session)
    }

    fn rename(&mut self, session: SessionId, at: Timestamp, title: &str) -> Result<(), StoreError> {
        Store::rename(self, session, at, title)
    }

    fn mark(&mut self, session: SessionId, at: Timestamp, marks: Marks) -> Result<(), StoreError> {
        Store::mark(self, session, at, marks)
    }

    fn put_away(&mut self, session: SessionId, at: Timestamp) -> Result<String, StoreError> {
        self.release(session);
        Store::put_away(self, session, at)
    }

    fn bring_back(&mut self) -> Result<Option<String>, StoreError> {
        Store::bring_back(self)
    }
}

/// What waits for one conversation.
#[derive(Debug, Default)]
struct Pending {
    records: Vec<Record>,
    due: Option<Duration>,
    sync: bool,
    release: bool,
    /// Why the last try failed.
    failed: Option<String>,
}

impl Pending {
    fn push(&mut self, now: Duration, record: Record) {
        let delay = match &record.kind {
            Kind::Delta { .. } => DELAY,
            Kind::Draft { text, .. } => {
                DELAY * u32::try_from(text.len() / DRAFT_BYTES).unwrap_or(u32::MAX).max(1)
            }
            _ => Duration::ZERO,
        };
        self.sync |= matches!(record.kind, Kind::User { .. } | Kind::Finish { .. });
        self.hurry(now.saturating_add(delay));
        match (&record.kind, self.records.last_mut()) {
            (
                Kind::Delta { text, span, marker },
                Some(Record {
                    parent,
                    kind:
                        Kind::Delta {
                            text: before,
                            span: of,
                            marker: delimits,
                        },
                    ..
                }),
            ) if *parent == record.parent && of == span && delimits == marker => {
                before.push_str(text);
                return;
            }
            (Kind::Draft { .. }, Some(_)) => {
                self.records
                    .retain(|earlier| !matches!(earlier.kind, Kind::Draft { .. }));
            }
            _ => {}
        }
        self.records.push(record);
    }

    /// It is to be written by then, unless it waits for another try.
    fn hurry(&mut self, by: Duration) {
        if self.failed.is_none() {
            self.due = Some(self.due.map_or(by, |due| due.min(by)));
        }
    }
}

/// A conversation that another process writes to: bytes that were read of its log, and when to look again.
#[derive(Debug)]
struct Followed {
    read: Option<u64>,
    due: Duration,
}

/// The rule of when what is written. Times are since any fixed moment.
#[derive(Debug)]
pub struct Writer<K> {
    keep: K,
    pending: BTreeMap<SessionId, Pending>,
    followed: BTreeMap<SessionId, Followed>,
    layout: Option<(Layout, Duration)>,
    layout_failed: Option<String>,
    reported: Option<String>,
}

impl<K: Keep> Writer<K> {
    /// A writer with nothing to do.
    pub fn new(keep: K) -> Self {
        Self {
            keep,
            pending: BTreeMap::new(),
            followed: BTreeMap::new(),
            layout: None,
            layout_failed: None,
            reported: None,
        }
    }

    /// Takes something to keep, and answers what is asked.
    pub fn push(&mut self, now: Duration, write: Write) -> Option<Report> {
        match write {
            Write::Ask(ask) => return self.answer(now, ask),
            Write::Records { session, records } => {
                let pending = self.pending.entry(session).or_default();
                pending.release = false;
                for record in records {
                    pending.push(now, record);
                }
            }
            Write::Layout(layout) => {
                let due = match (&self.layout, &self.layout_failed) {
                    (Some((_, due)), Some(_)) => *due,
                    _ => now,
                };
                self.layout = Some((layout, due));
            }
            Write::Release(session) => {
                self.followed.remove(&session);
                let pending = self.pending.entry(session).or_default();
                pending.release = true;
                pending.hurry(now);
            }
        }
        None
    }

    fn answer(&mut self, now: Duration, ask: Ask) -> Option<Report> {
        self.write_due(Duration::MAX, now.saturating_add(RETRY));
        let session = match &ask {
            Ask::Open(session)
            | Ask::Rename { session, .. }
            | Ask::Mark { session, .. }
            | Ask::Remove { session, .. } => Some(session),
            Ask::Restore => None,
        };
        if let Some(why) = session
            .and_then(|session| self.pending.get(session))
            .and_then(|pending| pending.failed.clone())
        {
            let message = format!("this conversation waits to be saved: {why}");
            return Some(Report::Refused { message });
        }
        let done = match ask {
            Ask::Open(session) => self
                .take(now, session)
                .map(|(conversation, access)| Some(Report::Opened { conversation, access })),
            Ask::Rename { session, at, title } => self.keep.rename(session, at, &title).map(|()| None),
            Ask::Mark { session, at, marks } => self.keep.mark(session, at, marks).map(|()| None),
            Ask::Remove { session, at } => {
                let removed = |title| Some(Report::Removed { title });
                self.keep.put_away(session, at).map(removed)
            }
            Ask::Restore => self.keep.bring_back().map(|title| {
                Some(match title {
                    Some(title) => Report::Restored { title },
                    None => Report::Refused {
                        message: "there is no deleted conversation to bring back".into(),
                    },
                })
            }),
        };
        done.unwrap_or_else(|error| {
            let message = error.to_string();
            Some(Report::Refused { message })
        })
    }

    /// Reads a conversation; one that another process writes to is followed from then on.
    fn take(&mut self, now: Duration, session: SessionId) -> Result<(Box<Conversation>, Access), StoreError> {
        // Before it is read: what is written meanwhile is news the next time.
        let read = self.keep.length(session);
        let (conversation, access) = self.keep.take(session)?;
        if access == Access::Elsewhere {
            let due = now.saturating_add(LOOK);
            self.followed.insert(session, Followed { read, due });
        } else {
            self.followed.remove(&session);
        }
        Ok((Box::new(conversation), access))
    }

    /// What has become of one of the conversations that others write to, if it is time to look and there is news.
    fn follow(&mut self, now: Duration) -> Option<Report> {
        let due = self.followed.iter().filter(|(_, followed)| followed.due <= now);
        let due: Vec<SessionId> = due.map(|(session, _)| *session).collect();
        for session in due {
            let length = self.keep.length(session);
            let followed = self.followed.get_mut(&session)?;
            followed.due = now.saturating_add(LOOK);
            if length == followed.read && !self.keep.claim(session) {
                continue;
            }
            followed.read = length;
            // One that can't be read, or is gone, is shown as it was.
            if let Ok((conversation, access)) = self.take(now, session) {
                return Some(Report::Followed { conversation, access });
            }
        }
        None
    }

    /// When [`Writer::poll`] has something to do next; none while nothing waits.
    pub fn due(&self) -> Option<Duration> {
        let layout = self.layout.as_ref().map(|(_, due)| *due);
        let followed = self.followed.values().map(|followed| followed.due);
        self.pending
            .values()
            .filter_map(|pending| pending.due)
            .chain(layout)
            .chain(followed)
            .min()
    }

    /// Writes what is due, and says so where this goes wrong, or goes well again; then looks at what others write.
    pub fn poll(&mut self, now: Duration) -> Option<Report> {
        self.write_due(now, now.saturating_add(RETRY));
        let problem = self.problems().into_iter().next();
        if problem == self.reported {
            return self.follow(now);
        }
        self.reported = problem;
        Some(match &self.reported {
            Some(message) => Report::Failing {
                message: message.clone(),
            },
            None => Report::Recovered,
        })
    }

    /// Writes everything that waits, due or not; gives why something could not be written.
    pub fn flush(&mut self) -> Vec<String> {
        self.write_due(Duration::MAX, Duration::MAX);
        self.problems()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        for problem in self
            .pending
            .values()
            .filter_map(|pending| pending.failed.as_ref())
            .chain(&self.layout_failed)
        {
            if !problems.contains(problem) {
                problems.push(problem.clone());
            }
        }
        problems
    }

    fn write_due(&mut self, now: Duration, retry: Duration) {
        for (session, pending) in &mut self.pending {
            if pending.due.is_none_or(|due| due > now) {
                continue;
            }
            let written = match pending.records.as_slice() {
                [] => Ok(()),
                records => self.keep.append(*session, records),
            };
            let synced = written.and_then(|()| {
                pending.records.clear();
                if pending.sync {
                    self.keep.sync(*session)
                } else {
                    Ok(())
                }
            });
            match synced {
                Ok(()) => {
                    if pending.release {
                        self.keep.release(*session);
                    }
                    *pending = Pending::default();
                }
                Err(error) => {
                    pending.failed = Some(error.to_string());
                    pending.due = Some(retry);
                }
            }
        }
        self.pending.retain(|_, pending| pending.due.is_some());
        if let Some((layout, due)) = &mut self.layout
            && *due <= now
        {
            match self.keep.save_layout(layout) {
                Ok(()) => {
                    self.layout = None;
                    self.layout_failed = None;
                }
                Err(error) => {
                    self.layout_failed = Some(error.to_string());
                    *due = retry;
                }
            }
        }
    }
}

/// Something could not be written before the end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the end of some conversations could not be saved: {0}")]
pub struct Unsaved(pub String);

/// A [`Writer`] over the [`Store`] on its own thread, so that a slow disk never holds up the screen.
#[derive(Debug)]
pub struct WriterThread {
    writes: Option<mpsc::Sender<Write>>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl WriterThread {
    /// Starts it. `report` is called on its thread, and must not wait.
    pub fn start<K: Keep + Send + 'static>(
        keep: K,
        mut report: impl FnMut(Report) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (writes, incoming) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("chat-writer".into())
            .spawn(move || {
                let (mut writer, start) = (Writer::new(keep), Instant::now());
                loop {
                    let received = match writer.due() {
                        Some(due) => incoming.recv_timeout(due.saturating_sub(start.elapsed())),
                        None => incoming.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    };
                    match received {
                        Ok(write) => {
                            let now = start.elapsed();
                            for write in std::iter::once(write).chain(incoming.try_iter()) {
                                writer.push(now, write).into_iter().for_each(&mut report);
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return writer.flush(),
                    }
                    if let Some(news) = writer.poll(start.elapsed()) {
                        report(news);
                    }
                }
            })?;
        Ok(Self {
            writes: Some(writes),
            thread: Some(thread),
        })
    }

    /// Hands over something to keep; never waits.
    pub fn send(&self, write: Write) {
        // A thread that is gone is told of by `finish`.
        let _ = self.writes.as_ref().map(|writes| writes.send(write));
    }

    /// Writes everything and ends the thread; says what could not be written.
    pub fn finish(mut self) -> Result<(), Unsaved> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Unsaved> {
        self.writes = None;
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(problems)) if problems.is_empty() => Ok(()),
            Some(Ok(problems)) => Err(Unsaved(problems.join("; "))),
            Some(Err(_)) => Err(Unsaved("the thread that writes them broke down".into())),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        let _ = self.join();
    }
}
