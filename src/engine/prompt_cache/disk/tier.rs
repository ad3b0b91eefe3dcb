//! The engine's side of the disk: which file serves a prompt, and what is on its way to become one. Lives on the engine's
//! thread, the only one that may touch arrays; bytes go to the writer, which may take its time.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use super::file::{Entry, Header, Unusable};
use super::folder::{Folder, Name};
use super::writer::{self, Holds, Job, Report, Writer};
use super::{identity, writer::discard};
use crate::cache::{CachePlan, LayerParts, RowCache};
use crate::engine::prompt_cache::index::{
    Class, EntryId, Index, Namespace, NewEntry, Relation, Removed, Why,
};
use crate::engine::telemetry::{DiskState, DiskStats};

/// Bytes on their way to disk at once, in arrays and on the host together; one entry may always be. What leaves memory
/// faster than the disk takes it is given up, the oldest first.
const ON_THE_WAY: u64 = 256 << 20;

/// Bytes that are read from arrays between two steps: a few milliseconds' worth. A layer is read whole.
const A_TURN: u64 = 32 << 20;

/// Reading the caches of this many tokens from disk takes no longer than computing one.
const WORTH: usize = 16;

/// How long the first look-up waits for the headers of what is there.
const HEADERS: Duration = Duration::from_secs(1);

/// How often progress is told while nothing else happens.
const PROGRESS: Duration = Duration::from_millis(50);

/// Makes a folder for entries, readable by the user only, if it isn't there.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    Folder::new(path.to_owned(), 0).make()
}

/// Where entries go that memory has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// The folder of their files, which is made where it isn't there.
    pub folder: PathBuf,
    /// The most bytes that the files may have.
    pub limit: u64,
    /// What tells the model from others: see [`identity::of_model`].
    pub model: String,
}

/// The tier.
pub struct DiskTier {
    folder: Folder,
    namespace: Namespace,
    plan: CachePlan,
    /// Entries of the namespace, of which nothing but the key is in memory. The folder keeps the limit.
    index: Index<Name>,
    by_name: HashMap<Name, EntryId>,
    /// Nothing once all is done.
    writer: Option<Writer>,
    stop: Arc<AtomicBool>,
    scanned: bool,
    /// Whether the headers have been waited for.
    awaited: bool,
    leaving: VecDeque<Leaving>,
    /// Bytes of entries that the writer has and has not written.
    handed: u64,
    holds: Holds,
    stats: DiskStats,
}

/// An entry that is being read from its arrays.
struct Leaving {
    entry: Removed<RowCache>,
    used: SystemTime,
    layers: Vec<LayerParts>,
}

/// An entry that was read from disk.
pub struct Restored {
    /// Exactly the tokens that it holds.
    pub tokens: Vec<u32>,
    /// How long it is worth keeping.
    pub class: Class,
    /// Tokens of the prompt that it serves.
    pub usable: usize,
    /// The caches.
    pub cache: RowCache,
}

impl DiskTier {
    /// Starts over a folder. Once `stop` is set, nothing more is written.
    pub fn start(options: DiskOptions, plan: &CachePlan, stop: Arc<AtomicBool>) -> std::io::Result<Self> {
        let folder = Folder::new(options.folder, options.limit);
        let namespace = identity::namespace(&options.model, plan);
        let writer = writer::start(folder.clone(), namespace.clone(), Arc::clone(&stop))?;
        Ok(Self {
            folder,
            namespace,
            plan: plan.clone(),
            index: Index::new(u64::MAX),
            by_name: HashMap::new(),
            writer: Some(writer),
            stop,
            scanned: false,
            awaited: false,
            leaving: VecDeque::new(),
            handed: 0,
            holds: Holds::default(),
            stats: DiskStats::default(),
        })
    }

    /// The namespace of its entries; those of others stay out of it.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its statistics.
    pub fn stats(&self) -> DiskStats {
        DiskStats {
            state: match self.holds.paused {
                true => DiskState::Paused,
                false => DiskState::On,
            },
            entries: self.holds.entries,
            bytes: self.holds.bytes,
            limit: self.folder.limit(),
            pending: self.handed + self.waiting(),
            ..self.stats
        }
    }

    /// Bytes of entries that are still in arrays.
    pub fn waiting(&self) -> u64 {
        self.leaving.iter().map(|leaving| leaving.entry.bytes).sum()
    }

    /// Reads an entry that serves more than `have` of these tokens, at most `most` of them, if that takes less time than to
    /// compute them. Files that turn out to be no good are removed, and the next best is tried.
    pub fn restore(&mut self, tokens: &[u32], most: usize, have: usize) -> Option<Restored> {
        self.listen();
        self.await_headers();
        loop {
            let hit = self.index.lookup(&self.namespace, tokens, most)?;
            let gain = hit.usable.saturating_sub(have);
            if gain == 0 || gain.saturating_mul(WORTH) < hit.usable + hit.trim {
                return None;
            }
            let name = self.index.get(hit.id)?.clone();
            match self.read(&name) {
                Ok(mut restored) => {
                    self.stats.restored += 1;
                    restored.usable = hit.usable;
                    return Some(restored);
                }
                Err(unusable) => {
                    self.stats.damaged += u64::from(discard(&self.folder, &name, &unusable));
                    self.forget(&name);
                }
            }
        }
    }

    fn read(&self, name: &Name) -> Result<Restored, Unusable> {
        let Entry {
            tokens,
            class,
            layers,
            ..
        } = Entry::read(&self.folder.path_of(name), &self.namespace)?;
        let cache = RowCache::from_parts(&self.plan, tokens.len(), layers);
        let cache = cache.map_err(|error| Unusable::Damaged(error.to_string()))?;
        Ok(Restored {
            usable: tokens.len(),
            tokens,
            class,
            cache,
        })
    }

    /// Takes what memory gives up: written soon, unless it is on disk already or the disk can't keep up.
    pub fn retire(&mut self, removed: Vec<Removed<RowCache>>) {
        self.listen();
        let used = SystemTime::now();
        for entry in removed {
            if matches!(entry.why, Why::Evicted | Why::NotStored) {
                self.take(entry, used);
            }
        }
        while self.leaving.len() > 1 && self.handed + self.waiting() > ON_THE_WAY {
            self.leaving.pop_front();
            self.stats.dropped += 1;
        }
    }

    fn take(&mut self, entry: Removed<RowCache>, used: SystemTime) {
        if entry.namespace != self.namespace || entry.tokens.is_empty() || self.writer.is_none() {
            return;
        }
        match self.covering(&entry) {
            Some(name) => self.tell(Job::Used(name, used)),
            None => self.leaving.push_back(Leaving {
                entry,
                used,
                layers: Vec::new(),
            }),
        }
    }

    /// A file that serves all that this entry does, and is kept as long.
    fn covering(&mut self, entry: &Removed<RowCache>) -> Option<Name> {
        let tokens = &entry.tokens;
        let hit = self.index.lookup(&self.namespace, tokens, tokens.len())?;
        let name = self.index.get(hit.id)?;
        let covers = hit.relation == Relation::Exact || entry.trimmable;
        (covers && hit.usable == tokens.len() && name.class() >= entry.class).then(|| name.clone())
    }

    /// Between steps: hears of what was written, and reads a few layers of what is to be. Whether anything is on its way.
    pub fn turn(&mut self) -> bool {
        self.listen();
        if self.has_turn() {
            self.hand_over(A_TURN);
        }
        !self.leaving.is_empty() || self.handed > 0
    }

    /// Whether [`turn`](Self::turn) has anything to read now.
    pub fn has_turn(&self) -> bool {
        !self.leaving.is_empty() && self.handed < ON_THE_WAY
    }

    /// Reads layers of the entry in front until `bytes` are read, and hands it over once it is whole.
    fn hand_over(&mut self, bytes: u64) {
        let Some(mut leaving) = self.leaving.pop_front() else {
            return;
        };
        let mut read = 0;
        while leaving.layers.len() < leaving.entry.payload.layers() {
            if read >= bytes {
                self.leaving.push_front(leaving);
                return;
            }
            match leaving.entry.payload.parts(leaving.layers.len()) {
                Ok(parts) => {
                    read += parts
                        .arrays
                        .iter()
                        .map(|part| part.bytes.len() as u64)
                        .sum::<u64>();
                    leaving.layers.push(parts);
                }
                Err(error) => {
                    tracing::warn!(%error, "an entry of the prompt cache can't be read: it is not written to disk");
                    self.stats.dropped += 1;
                    return;
                }
            }
        }
        let entry = Entry {
            namespace: leaving.entry.namespace,
            tokens: leaving.entry.tokens,
            class: leaving.entry.class,
            trimmable: leaving.entry.trimmable,
            layers: leaving.layers,
        };
        self.handed += entry.bytes();
        self.tell(Job::Write(Box::new(entry), leaving.used));
    }

    /// Writes what is left to write, `entries` and before them the most recently used, and ends the thread. Tells its
    /// progress; whoever sets `stop` makes it end at once.
    pub fn finish(&mut self, entries: Vec<Removed<RowCache>>, mut told: impl FnMut(DiskStats)) {
        let now = SystemTime::now();
        let mut bytes = 0;
        for (age, entry) in (0..).zip(entries) {
            // More than fits would only push out what has just been written.
            if bytes + entry.bytes <= self.folder.limit() {
                bytes += entry.bytes;
                self.take(entry, now - Duration::from_millis(age));
            } else {
                self.stats.dropped += 1;
            }
        }
        self.leaving
            .make_contiguous()
            .sort_by_key(|leaving| std::cmp::Reverse(leaving.used));
        told(self.stats());
        loop {
            self.listen();
            if self.stop.load(Ordering::Relaxed) {
                self.stats.dropped += self.leaving.len() as u64;
                self.leaving.clear();
            }
            if self.has_turn() {
                self.hand_over(u64::MAX);
            } else if self.handed == 0 || !self.hear(PROGRESS) {
                break;
            }
            told(self.stats());
        }
        self.end();
        told(self.stats());
    }

    fn end(&mut self) {
        if let Some(Writer {
            jobs,
            thread,
            reports,
        }) = self.writer.take()
        {
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!("the thread that writes the prompt cache panicked");
            }
            reports.try_iter().for_each(|report| self.heard(report));
        }
    }

    fn tell(&self, job: Job) {
        if let Some(writer) = &self.writer {
            // A thread that is gone has panicked, which is seen when it is listened to.
            let _gone = writer.jobs.send(job);
        }
    }

    fn listen(&mut self) {
        while let Some(writer) = &self.writer {
            match writer.reports.try_recv() {
                Ok(report) => self.heard(report),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // It has panicked: what is there can still be read.
                    self.holds.paused = true;
                    self.handed = 0;
                    self.leaving.clear();
                    self.end();
                }
            }
        }
    }

    /// Waits so long for a report at most. Whether there may be more.
    fn hear(&mut self, patience: Duration) -> bool {
        let Some(writer) = &self.writer else { return false };
        match writer.reports.recv_timeout(patience) {
            Ok(report) => {
                self.heard(report);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Once: a folder that takes longer must not hold up every prompt.
    fn await_headers(&mut self) {
        if std::mem::replace(&mut self.awaited, true) {
            return;
        }
        let until = Instant::now() + HEADERS;
        while !self.scanned {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.hear(left) {
                return;
            }
        }
    }

    fn heard(&mut self, report: Report) {
        match report {
            Report::Scanned(found, damaged) => {
                self.scanned = true;
                self.stats.damaged += damaged;
                for (name, header) in found {
                    self.know(name, header);
                }
            }
            Report::Written(name, header, bytes) => {
                self.handed = self.handed.saturating_sub(bytes);
                self.stats.written += 1;
                self.know(name, header);
            }
            Report::Dropped(bytes) => {
                self.handed = self.handed.saturating_sub(bytes);
                self.stats.dropped += 1;
            }
            Report::Gone(names) => names.iter().for_each(|name| self.forget(name)),
            Report::Holds(holds) => self.holds = holds,
        }
    }

    /// A file is there: those that it stands in for need be there no longer.
    fn know(&mut self, name: Name, header: Header) {
        let inserted = self.index.insert(
            &self.namespace,
            NewEntry {
                tokens: header.tokens,
                bytes: 1,
                class: header.class,
                trimmable: header.trimmable,
                payload: name.clone(),
            },
        );
        for Removed { payload: old, .. } in inserted.removed {
            self.by_name.remove(&old);
            if old != name {
                self.tell(Job::Remove(old));
            }
        }
        if let Some(id) = inserted.id {
            self.by_name.insert(name, id);
        }
    }

    fn forget(&mut self, name: &Name) {
        if let Some(id) = self.by_name.remove(name) {
            self.index.remove(id);
        }
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.end();
    }
}
