//! Deleted conversations: their logs lie apart for a while, and can be brought back.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::list::session_of;
use super::log::Log;
use super::{Store, StoreError, private_folder};
use crate::chat::SessionId;

/// After how long a deleted conversation goes for good, when another one is deleted.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

impl Store {
    /// Puts a conversation that nobody has open among the deleted ones, and ends those that have been there for thirty
    /// days. Gives its title.
    pub fn put_away(&mut self, session: SessionId, at: Timestamp) -> Result<String, StoreError> {
        let path = self.path(session);
        if self.open.contains_key(&session) {
            return Err(StoreError::elsewhere(&path, session));
        }
        // The lock is held until the file is there, and let go with `log`.
        let log = Log::open(&path, session, false)?;
        let title = self.load(session)?.title;
        private_folder(&self.deleted)?;
        let since = at.duration_since(Timestamp::UNIX_EPOCH);
        let now = SystemTime::UNIX_EPOCH + Duration::try_from(since).unwrap_or_default();
        // By this the last one is found, and those that are old.
        log.touch(now).map_err(StoreError::io("mark", &path))?;
        let away = self.deleted.join(format!("{session}.jsonl"));
        fs::rename(&path, &away).map_err(StoreError::io("put away", &path))?;
        for (_, old, deleted) in self.put_away_ones()? {
            if now.duration_since(deleted).is_ok_and(|age| age > KEPT) {
                // One that can't go now is tried again with the next.
                let _ = fs::remove_file(old);
            }
        }
        Ok(title)
    }

    /// Brings the conversation back that was deleted last; gives its title, if there was one.
    pub fn bring_back(&mut self) -> Result<Option<String>, StoreError> {
        let last = self.put_away_ones()?.into_iter().max_by_key(|(_, _, at)| *at);
        let Some((session, away, _)) = last else {
            return Ok(None);
        };
        let path = self.path(session);
        if path.exists() {
            return Err(StoreError::io("bring back", &away)(
                io::ErrorKind::AlreadyExists.into(),
            ));
        }
        fs::rename(&away, &path).map_err(StoreError::io("bring back", &away))?;
        Ok(Some(self.load(session)?.title))
    }

    /// Brings a conversation back if it is among the deleted ones, and no other has its name; whether it did.
    pub(super) fn bring_back_one(&mut self, session: SessionId) -> Result<bool, StoreError> {
        let (path, away) = (self.path(session), self.deleted.join(format!("{session}.jsonl")));
        if path.exists() || !away.exists() {
            return Ok(false);
        }
        fs::rename(&away, &path).map_err(StoreError::io("bring back", &away))?;
        Ok(true)
    }

    /// The deleted conversations, with their files and when they were deleted.
    fn put_away_ones(&self) -> Result<Vec<(SessionId, PathBuf, SystemTime)>, StoreError> {
        let folder = match fs::read_dir(&self.deleted) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io("read the folder", &self.deleted)(error)),
        };
        let found = folder.filter_map(|entry| {
            let entry = entry.ok()?;
            let path = entry.path();
            Some((session_of(&path)?, path, entry.metadata().ok()?.modified().ok()?))
        });
        Ok(found.collect())
    }
}
