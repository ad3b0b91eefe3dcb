//! The folder of entries' files: names, the byte limit, leftovers. Several processes may use it at once.
//!
//! Files appear whole, by a rename, and only ever go; one that is being read stays readable. Whoever makes room or cleans up
//! holds the folder's lock meanwhile. Files whose names are not of this pattern belong to somebody else.

use std::cmp::Reverse;
use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sha2::{Digest, Sha256};

use super::file::{class_name, hex};
use crate::engine::prompt_cache::index::{Class, Namespace};

/// Digits of a namespace in a name, and of a key.
const DIGITS: [usize; 2] = [16, 32];

const ENDING: &str = "safetensors";

/// The file whose lock is the folder's.
const LOCK: &str = "lock";

/// Room that is left to others on the disk.
const RESERVE: u64 = 64 << 20;

/// How long the folder's lock is waited for: who makes room needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the lock is tried meanwhile.
const LOOKS: Duration = Duration::from_millis(5);

/// To open a pipe that nobody reads is an error, and no wait.
const AT_ONCE: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Where there are no locks, unfinished files older than this are nobody's.
const STALE: Duration = Duration::from_secs(60 * 60);

/// The name of an entry's file: `NAMESPACE-KEY.CLASS.safetensors`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    namespace: String,
    key: String,
    class: Class,
}

impl Name {
    /// Of an entry under these tokens.
    pub fn new(namespace: &Namespace, tokens: &[u32], class: Class) -> Self {
        let mut key = Sha256::new();
        for token in tokens {
            key.update(token.to_le_bytes());
        }
        let digits = |hash: String, count| hash.chars().take(count).collect();
        Self {
            namespace: digits(hex(&Sha256::digest(namespace.0.as_bytes())), DIGITS[0]),
            key: digits(hex(&key.finalize()), DIGITS[1]),
            class,
        }
    }

    /// Reads a name; nothing where it is none.
    pub fn parse(name: &str) -> Option<Self> {
        let mut pieces = name.split('.');
        let (namespace, key) = pieces.next()?.split_once('-')?;
        let class = match pieces.next()? {
            "turn" => Class::Turn,
            "system" => Class::System,
            _ => return None,
        };
        let is_hex = |text: &str, digits| {
            text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let ours = is_hex(namespace, DIGITS[0])
            && is_hex(key, DIGITS[1])
            && pieces.next() == Some(ENDING)
            && pieces.next().is_none();
        ours.then(|| Self {
            namespace: namespace.to_owned(),
            key: key.to_owned(),
            class,
        })
    }

    /// How long the entry is worth keeping.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether it is of an entry of this namespace.
    pub fn is_of(&self, namespace: &Namespace) -> bool {
        self.namespace == Self::new(namespace, &[], self.class).namespace
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}-{}.{}.{ENDING}",
            self.namespace,
            self.key,
            class_name(self.class)
        )
    }
}

/// An entry's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Name,
    /// Its length.
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// The most bytes that its files may have.
    limit: u64,
    /// Bytes that this user can fill there, if that can be told.
    free: fn(&Path) -> Option<u64>,
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

impl Folder {
    /// A folder that may hold `limit` bytes; it need not exist yet.
    pub fn new(path: PathBuf, limit: u64) -> Self {
        Self {
            path,
            limit,
            free: free_bytes,
        }
    }

    /// The same on a disk with so much room.
    #[cfg(test)]
    pub fn with_free(self, free: fn(&Path) -> Option<u64>) -> Self {
        Self { free, ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The most bytes that its files may have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Where an entry's file is.
    pub fn path_of(&self, name: &Name) -> PathBuf {
        self.path.join(name.to_string())
    }

    /// Makes the folder, readable by the user only, if it isn't there.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// The entries' files.
    pub fn list(&self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        for item in std::fs::read_dir(&self.path)? {
            let item = item?;
            let Some(name) = item.file_name().to_str().and_then(Name::parse) else {
                continue;
            };
            // Gone since: another process made room.
            let Ok(meta) = item.metadata() else { continue };
            if meta.is_file() {
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                listed.push(Listed {
                    name,
                    bytes: meta.len(),
                    used,
                });
            }
        }
        Ok(listed)
    }

    /// A new file to write an entry to, under a name of its own, locked as long as it is open.
    pub fn aside(&self, name: &Name) -> io::Result<(PathBuf, File)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self
            .path
            .join(format!("{name}.{}-{number}.part", std::process::id()));
        // Nobody sweeps between the two.
        let _lock = self.lock()?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        match file.lock() {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
            _ => Ok((path, file)),
        }
    }

    /// Whether the disk has room for so many bytes more, and some besides; where that can't be told, it has.
    pub fn has_room(&self, bytes: u64) -> bool {
        (self.free)(&self.path).is_none_or(|free| free >= bytes.saturating_add(RESERVE))
    }

    /// Deletes an entry's file; that it is gone already is fine.
    pub fn remove(&self, name: &Name) {
        remove(&self.path_of(name));
    }

    /// Counts an entry as used at this time.
    pub fn used(&self, name: &Name, at: SystemTime) {
        let kept = File::open(self.path_of(name)).and_then(|file| file.set_modified(at));
        if let Err(error) = kept {
            tracing::debug!(%error, %name, "the time of a file's last use can't be kept");
        }
    }

    /// Deletes files until the limit is kept: turns before system prompts, each least recently used first; of the class `spare` the
    /// most recently used last of all. Gives what is left, and the names of what went.
    pub fn shrink(&self, spare: Option<Class>) -> io::Result<(Vec<Listed>, Vec<Name>)> {
        let _lock = self.lock()?;
        let mut listed = self.list()?;
        let mut bytes: u64 = listed.iter().map(|listed| listed.bytes).sum();
        let of_class = listed.iter().filter(|listed| Some(listed.name.class) == spare);
        let spared = of_class
            .max_by_key(|listed| listed.used)
            .map(|listed| listed.name.clone());
        // The first to go is the last.
        listed.sort_by_key(|listed| {
            let spared = spared.as_ref() == Some(&listed.name);
            Reverse((spared, listed.name.class, listed.used))
        });
        let mut gone = Vec::new();
        while bytes > self.limit
            && let Some(last) = listed.pop()
        {
            self.remove(&last.name);
            bytes -= last.bytes;
            gone.push(last.name);
        }
        Ok((listed, gone))
    }

    /// Deletes files that nobody will finish: those of writers that have died.
    pub fn sweep(&self) -> io::Result<()> {
        let _lock = self.lock()?;
        for item in std::fs::read_dir(&self.path)?.flatten() {
            let path = item.path();
            if item.file_name().to_str().is_some_and(is_unfinished) && is_abandoned(&path) {
                tracing::info!(path = %path.display(), "an unfinished file of the prompt cache is removed");
                remove(&path);
            }
        }
        Ok(())
    }

    /// Waits until no other process makes room, but not for ever. A file system without locks is used without.
    fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(AT_ONCE)
            .open(self.path.join(LOCK))?;
        let until = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(file);
                }
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOOKS),
                Err(TryLockError::WouldBlock) => {
                    let held = "another process holds the folder's lock";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, held));
                }
            }
        }
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "a file of the prompt cache can't be removed");
    }
}

/// Whether a file's name is that of an entry which is being written: the entry's, process and number, `part`.
fn is_unfinished(name: &str) -> bool {
    let Some((entry, writer)) = name.strip_suffix(".part").and_then(|rest| rest.rsplit_once('.')) else {
        return false;
    };
    let numbers = writer
        .split('-')
        .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    numbers && Name::parse(entry).is_some()
}

/// Whether nobody writes to a file: writers hold its lock.
fn is_abandoned(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).custom_flags(AT_ONCE).open(path) else {
        return false;
    };
    match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => {
            let age = file
                .metadata()
                .and_then(|meta| meta.modified())
                .map(|at| at.elapsed());
            matches!(age, Ok(Ok(age)) if age > STALE)
        }
    }
}
