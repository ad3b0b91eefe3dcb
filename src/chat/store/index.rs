//! What was read of the logs to be searched: texts in lowercase, for as long as their files don't change.
//!
//! It is held in memory alone and follows the files: each search looks which of them are new or have changed, by length and
//! time, and reads those. So it can't be out of date, and nothing has to be mended.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use super::StoreError;
use crate::chat::SessionId;

/// The most bytes of texts that are held; what is beyond is read again for each search.
const MOST: usize = 192 << 20;

/// A file as it was when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    changed: SystemTime,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            bytes: metadata.len(),
            changed: metadata.modified().ok()?,
        })
    }
}

/// A log that was read.
#[derive(Debug)]
pub(super) struct Texts {
    /// Its last record's time.
    pub updated: Timestamp,
    /// The conversation's title.
    pub title: String,
    /// The same in lowercase.
    pub lower_title: String,
    /// All its messages in lowercase.
    pub messages: Vec<Box<str>>,
}

impl Texts {
    fn bytes(&self) -> usize {
        let titles = self.title.len() + self.lower_title.len();
        titles + self.messages.iter().map(|text| text.len() + 16).sum::<usize>()
    }
}

/// A conversation of the index.
#[derive(Debug)]
pub(super) struct Known {
    stamp: Option<Stamp>,
    /// Its log.
    pub path: PathBuf,
    /// What is held of it; none where there was no room.
    pub texts: Option<Texts>,
}

/// What is known of all logs.
#[derive(Debug, Default)]
pub(super) struct Index {
    known: HashMap<SessionId, Known>,
    bytes: usize,
}

impl Index {
    /// Follows the files: forgets those that are gone, and has those read that are new or have changed, by several threads.
    /// Gives what could not be read, in words.
    pub(super) fn follow(
        &mut self,
        logs: Vec<(SessionId, PathBuf)>,
        read: impl Fn(&Path, SessionId) -> Result<Texts, StoreError> + Sync,
    ) -> Vec<String> {
        let mut before = std::mem::take(&mut self.known);
        let mut stale = Vec::new();
        for (session, path) in logs {
            let stamp = Stamp::of(&path);
            match before.remove(&session) {
                Some(known) if known.stamp == stamp && stamp.is_some() => {
                    self.known.insert(session, known);
                }
                _ => stale.push((session, path, stamp)),
            }
        }
        let texts = |known: &Known| known.texts.as_ref().map_or(0, Texts::bytes);
        self.bytes = self.known.values().map(texts).sum();
        let mut notes = Vec::new();
        let found = in_parts(&stale, |(session, path, _)| read(path, *session));
        for ((session, path, stamp), texts) in stale.into_iter().zip(found) {
            let texts = match texts {
                Ok(texts) if self.bytes + texts.bytes() <= MOST => {
                    self.bytes += texts.bytes();
                    Some(texts)
                }
                Ok(_) => None,
                Err(StoreError::Missing { .. }) => continue,
                Err(error) => {
                    notes.push(error.to_string());
                    continue;
                }
            };
            self.known.insert(session, Known { stamp, path, texts });
        }
        notes
    }

    /// All that is known.
    pub(super) fn all(&self) -> Vec<(SessionId, &Known)> {
        self.known
            .iter()
            .map(|(session, known)| (*session, known))
            .collect()
    }
}

/// Does something with each of many, in their order, by as many threads as there are cores.
pub(super) fn in_parts<T: Sync, R: Send>(all: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = all.len().div_ceil(threads).max(64);
    if all.len() <= share {
        return all.iter().map(each).collect();
    }
    let each = &each;
    std::thread::scope(|scope| {
        let part = |part: &'_ [T]| part.iter().map(each).collect::<Vec<R>>();
        let workers: Vec<_> = all
            .chunks(share)
            .map(|chunk| scope.spawn(move || part(chunk)))
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<R>>| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    })
}
