//! The thread that looks after the folder: reads the headers that are there, writes entries, keeps the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::SystemTime;

use super::file::{Entry, Header, Unusable, WriteError};
use super::folder::{Folder, Listed, Name};
use crate::engine::prompt_cache::index::{Class, Namespace};

/// What the thread is told.
pub enum Job {
    /// Write an entry, used last at this time.
    Write(Box<Entry>, SystemTime),
    /// An entry that is there already was used.
    Used(Name, SystemTime),
    /// Delete an entry's file.
    Remove(Name),
}

/// What it tells.
pub enum Report {
    /// The entries of the namespace that were there at the start, least recently used first, and how many files were removed
    /// because they were no good.
    Scanned(Vec<(Name, Header)>, u64),
    /// An entry of so many bytes was written.
    Written(Name, Header, u64),
    /// An entry of so many bytes was not written.
    Dropped(u64),
    /// These files made room for others.
    Gone(Vec<Name>),
    /// What the folder holds.
    Holds(Holds),
}

/// What the folder holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holds {
    /// Files of entries, of all namespaces.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the last entry could not be written.
    pub paused: bool,
}

/// The thread, as the engine holds it.
pub struct Writer {
    /// Told in order; the thread ends when this is dropped and all is done.
    pub jobs: Sender<Job>,
    /// In order.
    pub reports: Receiver<Report>,
    /// Ends soon after the jobs.
    pub thread: JoinHandle<()>,
}

/// Starts the thread over a folder. Once `stop` is set, entries are no longer written.
pub fn start(folder: Folder, namespace: Namespace, stop: Arc<AtomicBool>) -> std::io::Result<Writer> {
    let (jobs, inbox) = mpsc::channel();
    let (outbox, reports) = mpsc::channel();
    let work = Work {
        folder,
        namespace,
        stop,
        outbox,
        paused: false,
    };
    let thread = std::thread::Builder::new()
        .name("prompt cache".into())
        .spawn(move || work.run(&inbox))?;
    Ok(Writer {
        jobs,
        reports,
        thread,
    })
}

struct Work {
    folder: Folder,
    namespace: Namespace,
    stop: Arc<AtomicBool>,
    outbox: Sender<Report>,
    paused: bool,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Job>) {
        let (found, damaged) = self.scan();
        self.tell(Report::Scanned(found, damaged));
        self.keep_limit(None);
        for job in inbox {
            match job {
                Job::Write(entry, used) => self.write(&entry, used),
                Job::Used(name, at) => self.folder.used(&name, at),
                Job::Remove(name) => {
                    self.folder.remove(&name);
                    self.keep_limit(None);
                }
            }
        }
    }

    fn tell(&self, report: Report) {
        // An engine that is gone needs to know no more.
        let _gone = self.outbox.send(report);
    }

    /// Clears away what writers that died have left, and reads the headers of the namespace.
    fn scan(&mut self) -> (Vec<(Name, Header)>, u64) {
        // What can't be written to may still be read.
        if let Err(error) = self.folder.make().and_then(|()| self.folder.sweep()) {
            self.pause(&error.to_string());
        }
        let mut listed = match self.folder.list() {
            Ok(listed) => listed,
            Err(error) => {
                self.pause(&error.to_string());
                return (Vec::new(), 0);
            }
        };
        listed.sort_by_key(|listed| listed.used);
        let (mut found, mut damaged) = (Vec::new(), 0);
        for Listed { name, .. } in listed {
            if !name.is_of(&self.namespace) {
                continue;
            }
            match Header::read(&self.folder.path_of(&name), &name, &self.namespace) {
                Ok(header) => found.push((name, header)),
                Err(unusable) => damaged += u64::from(discard(&self.folder, &name, &unusable)),
            }
        }
        (found, damaged)
    }

    fn write(&mut self, entry: &Entry, used: SystemTime) {
        let (bytes, name) = (entry.bytes(), entry.name());
        let written = if bytes > self.folder.limit() {
            tracing::debug!(bytes, "an entry is larger than the prompt cache on disk may be");
            Err(WriteError::Stopped)
        } else if self.stop.load(Ordering::Relaxed) {
            Err(WriteError::Stopped)
        } else if !self.folder.has_room(bytes) {
            Err(WriteError::Full { bytes })
        } else {
            let made = self.folder.make().map_err(|source| WriteError::Io {
                path: self.folder.path().to_owned(),
                source,
            });
            made.and_then(|()| entry.write(&self.folder, used, &self.stop))
        };
        match written {
            Ok(()) => {
                if std::mem::take(&mut self.paused) {
                    tracing::info!(folder = %self.folder.path().display(), "the prompt cache is written to disk again");
                }
                self.tell(Report::Written(name.clone(), entry.header_alone(), bytes));
                self.keep_limit(Some(name.class()));
            }
            Err(error) => {
                if !matches!(error, WriteError::Stopped) {
                    self.pause(&error.to_string());
                }
                self.tell(Report::Dropped(bytes));
                self.keep_limit(None);
            }
        }
    }

    /// Says once that entries can't be written; each is tried, all the same.
    fn pause(&mut self, why: &str) {
        if !std::mem::replace(&mut self.paused, true) {
            let folder = self.folder.path().display();
            tracing::warn!(%why, %folder, "the prompt cache is not written to disk until that is possible again");
        }
    }

    fn keep_limit(&mut self, spare: Option<Class>) {
        match self.folder.shrink(spare) {
            Ok((left, gone)) => {
                if !gone.is_empty() {
                    self.tell(Report::Gone(gone));
                }
                self.tell(Report::Holds(Holds {
                    entries: left.len() as u64,
                    bytes: left.iter().map(|listed| listed.bytes).sum(),
                    paused: self.paused,
                }));
            }
            Err(error) => {
                self.pause(&error.to_string());
                self.tell(Report::Holds(Holds {
                    paused: true,
                    ..Holds::default()
                }));
            }
        }
    }
}

/// Removes a file that gives no entry, with a note, unless it is only that it can't be read now, or is gone. Whether it did.
pub(super) fn discard(folder: &Folder, name: &Name, unusable: &Unusable) -> bool {
    let path = folder.path_of(name);
    match unusable {
        Unusable::Damaged(what) => {
            tracing::warn!(path = %path.display(), %what, "a file of the prompt cache is removed");
            folder.remove(name);
            true
        }
        Unusable::Io(_) if unusable.is_gone() => false,
        Unusable::Io(error) => {
            tracing::warn!(path = %path.display(), %error, "a file of the prompt cache can't be read");
            false
        }
    }
}
