//! What was read of the logs to be searched: texts in lowercase, for as long as their files don't change.
//!
//! It is held in memory alone and follows the files: each search looks which of them are new or have changed, by length and
//! time, and reads those. So it can't be out of date, and nothing has to be mended. Titles of all are held; messages as far
//! as there is room, the newest conversations' first.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::Timestamp;

use super::StoreError;
use super::words::Words;
use crate::chat::SessionId;
use crate::chat::record::Marks;

/// The most bytes of messages that are held; what is beyond is read again when it is searched.
const ROOM: usize = 192 << 20;
/// How many logs are read before what has no room is let go.
const READ: usize = 256;

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
    /// When something was said in it last, or its draft written.
    pub updated: Timestamp,
    /// The conversation's title.
    pub title: String,
    /// The same in lowercase.
    pub lower_title: String,
    /// How it is listed.
    pub marks: Marks,
    /// What was said; none where there was no room.
    pub messages: Option<Messages>,
}

/// Messages in lowercase.
#[derive(Debug)]
pub(super) struct Messages {
    /// One after the other, each with a line's end, which is in no word.
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[usize]>,
}

impl Messages {
    pub(super) fn new<'a>(messages: impl Iterator<Item = &'a str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for message in messages.filter(|message| !message.is_empty()) {
            text.push_str(&message.to_lowercase());
            text.push('\n');
            ends.push(text.len());
        }
        Self {
            text: text.into(),
            ends: ends.into(),
        }
    }

    /// Whether one of them holds all words.
    pub(super) fn hold(&self, words: &Words) -> bool {
        let mut from = 0;
        while let Some(found) = words.rarest_in(self.text.as_bytes().get(from..).unwrap_or_default()) {
            let message = self.ends.partition_point(|end| *end <= from + found);
            let begin = message.checked_sub(1).and_then(|before| self.ends.get(before));
            let end = self.ends.get(message).copied().unwrap_or(self.text.len());
            let text = self.text.get(begin.copied().unwrap_or(0)..end);
            if text.is_some_and(|text| words.are_in(text)) {
                return true;
            }
            from = end;
        }
        false
    }

    fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }
}

/// A conversation of the index.
#[derive(Debug)]
pub(super) struct Known {
    stamp: Option<Stamp>,
    /// Its log.
    pub path: PathBuf,
    /// What is held of it.
    pub texts: Texts,
}

impl Known {
    fn bytes(&self) -> usize {
        self.texts.messages.as_ref().map_or(0, Messages::bytes)
    }
}

/// What is known of all logs.
#[derive(Debug)]
pub(super) struct Index {
    known: HashMap<SessionId, Known>,
    /// The most bytes of messages.
    room: usize,
    bytes: usize,
    /// The last search, and the conversations that hold nothing of it.
    missed: Option<(Words, HashSet<SessionId>)>,
}

impl Default for Index {
    fn default() -> Self {
        Self::with_room(ROOM)
    }
}

impl Index {
    /// An index that holds so many bytes of messages at most.
    pub(super) fn with_room(room: usize) -> Self {
        Self {
            known: HashMap::new(),
            room,
            bytes: 0,
            missed: None,
        }
    }

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
        self.bytes = self.known.values().map(Known::bytes).sum();
        let mut notes = Vec::new();
        for part in stale.chunks(READ) {
            let found = in_parts(part, |(session, path, _)| read(path, *session));
            for ((session, path, stamp), texts) in part.iter().zip(found) {
                if let Some((_, missed)) = &mut self.missed {
                    missed.remove(session);
                }
                let (stamp, path) = (*stamp, path.clone());
                match texts {
                    Ok(texts) => {
                        let known = Known { stamp, path, texts };
                        self.bytes += known.bytes();
                        self.known.insert(*session, known);
                    }
                    Err(StoreError::Missing { .. }) => {}
                    Err(error) => notes.push(error.to_string()),
                }
            }
            self.make_room();
        }
        notes
    }

    /// Lets go of messages, the oldest conversations' first, until the others have room.
    fn make_room(&mut self) {
        if self.bytes <= self.room {
            return;
        }
        let mut held: Vec<&mut Known> = self.known.values_mut().collect();
        held.sort_by_key(|known| known.texts.updated);
        for known in held {
            if self.bytes <= self.room {
                break;
            }
            self.bytes -= known.bytes();
            known.texts.messages = None;
        }
    }

    /// Bytes of the messages that are held.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All that is known, the newest first.
    pub(super) fn newest(&self) -> Vec<(SessionId, &Known)> {
        let known = self.known.iter().map(|(session, known)| (*session, known));
        let mut all: Vec<(SessionId, &Known)> = known.collect();
        all.sort_unstable_by_key(|(session, known)| std::cmp::Reverse((known.texts.updated, *session)));
        all
    }

    /// The conversations in which these words can't all be, since the last search's weren't.
    pub(super) fn take_missed(&mut self, words: &Words) -> HashSet<SessionId> {
        let last = self.missed.take();
        last.filter(|(last, _)| words.imply(last))
            .map_or_else(HashSet::new, |(_, missed)| missed)
    }

    /// Keeps in which conversations a search's words aren't.
    pub(super) fn keep_missed(&mut self, words: Words, missed: HashSet<SessionId>) {
        self.missed = Some((words, missed));
    }
}

/// The fewest things for which another thread is worth its start.
const SHARE: usize = 8;

/// Does something with each of many, in their order, by as many threads as there are cores.
pub(super) fn in_parts<T: Sync, R: Send>(all: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = all.len().div_ceil(threads).max(SHARE);
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
