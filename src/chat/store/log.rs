//! One log file: lock, repair, append; and reading one line by line.

use std::fs::{File, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use super::{StoreError, private_file, private_folder};
use crate::chat::SessionId;
use crate::chat::record::Record;

/// How often a lock is tried again: somebody may only be looking whether there is one.
const TRIES: u32 = 3;
/// How long it takes until then.
const PAUSE: Duration = Duration::from_millis(1);

/// No line of ours is longer; a longer one is passed over without being held in memory.
const MAX_LINE: u64 = 64 << 20;

/// What is known of the file's end.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Nothing: the last writer may have died in mid-line.
    Unchecked,
    /// It ends with a whole line, at this length.
    Whole(u64),
    /// A write failed: what is beyond this length must go.
    Torn(u64),
}

/// A log that this process alone may write to.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    end: End,
}

impl Log {
    /// Opens and locks a log.
    pub(super) fn open(path: &Path, session: SessionId, create: bool) -> Result<Self, StoreError> {
        let mut tries = 0;
        loop {
            let file = match private_file()
                .read(true)
                .write(true)
                .create(create)
                .truncate(false)
                .open(path)
            {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !create => {
                    return Err(StoreError::Missing { session });
                }
                Err(error) => return Err(StoreError::io("open", path)(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(StoreError::elsewhere(path, session)),
                // A file system without locks: better unguarded than unsaved.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", path)(error)),
            }
            // Removed between opening and locking: what is written to it would be lost.
            if !is_removed(&file).map_err(StoreError::io("examine", path))? {
                return Ok(Self {
                    file,
                    end: End::Unchecked,
                });
            }
        }
    }

    /// Writes whole lines at the end. After an error nothing of them counts.
    pub(super) fn append(&mut self, path: &Path, lines: &[u8]) -> Result<(), StoreError> {
        // What is written to a file that no folder names is lost without anybody being told.
        if is_removed(&self.file).map_err(StoreError::io("examine", path))? {
            self.write_anew(path)?;
        }
        let at = match self.end {
            End::Whole(at) => at,
            End::Torn(at) => {
                self.file.set_len(at).map_err(StoreError::io("repair", path))?;
                at
            }
            End::Unchecked => self.repair().map_err(StoreError::io("repair", path))?,
        };
        self.end = End::Torn(at);
        let written = self
            .file
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.file.write_all(lines));
        if let Err(error) = written {
            // At best now; else before the next write.
            let _ = self.file.set_len(at);
            return Err(StoreError::io("write to", path)(error));
        }
        self.end = End::Whole(at + lines.len() as u64);
        Ok(())
    }

    /// Puts what the file holds under its name again, from which somebody took it: it is open here, so that nothing is lost. Where another
    /// file has the name by now, that is not touched.
    fn write_anew(&mut self, path: &Path) -> Result<(), StoreError> {
        let length = match self.end {
            End::Whole(at) | End::Torn(at) => at,
            End::Unchecked => self.repair().map_err(StoreError::io("repair", path))?,
        };
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        let new = private_file().read(true).write(true).create_new(true).open(path);
        let mut new = new.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let source = io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "another file has taken its place while it was open here; /export writes what is on the screen to a third",
                );
                StoreError::io("write to", path)(source)
            }
            _ => StoreError::io("write anew", path)(error),
        })?;
        // A file system without locks: as when it was opened.
        let _ = new.try_lock();
        let copied = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| io::copy(&mut (&self.file).take(length), &mut new))
            .and_then(|copied| match copied == length {
                true => new.sync_data(),
                false => Err(io::ErrorKind::UnexpectedEof.into()),
            });
        if let Err(error) = copied {
            // Half of it would be taken for all of it.
            let _ = std::fs::remove_file(path);
            return Err(StoreError::io("write anew", path)(error));
        }
        self.file = new;
        self.end = End::Whole(length);
        Ok(())
    }

    /// Says when it was changed last.
    pub(super) fn touch(&self, at: std::time::SystemTime) -> io::Result<()> {
        self.file.set_modified(at)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Makes the file end with a whole line and gives its length: a last line that lacks only its newline gets it, one
    /// that was cut off goes.
    fn repair(&mut self) -> io::Result<u64> {
        let length = self.file.seek(SeekFrom::End(0))?;
        let mut tail = Vec::new();
        let mut start = length;
        while start > 0 && !tail.contains(&b'\n') {
            let step = start.min(64 << 10);
            start -= step;
            let mut piece = vec![0; usize::try_from(step).unwrap_or(usize::MAX)];
            self.file.seek(SeekFrom::Start(start))?;
            self.file.read_exact(&mut piece)?;
            piece.append(&mut tail);
            tail = piece;
        }
        let cut = tail
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |newline| newline + 1);
        let last = tail.get(cut..).unwrap_or_default();
        if last.is_empty() {
            return Ok(length);
        }
        if Record::from_line(last).is_ok() {
            self.file.seek(SeekFrom::End(0))?;
            self.file.write_all(b"\n")?;
            return Ok(length + 1);
        }
        let whole = length - last.len() as u64;
        self.file.set_len(whole)?;
        Ok(whole)
    }
}

/// How often a lock is looked at before it counts as somebody's who keeps it, and how long apart.
const LOOKS: usize = 6;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Whether a log is locked by somebody who keeps it: that is found out in a quarter of a second.
pub(super) fn is_locked(path: &Path) -> bool {
    // Shared, so that two who look don't find each other. This process itself holds a log while it adds a title or a mark.
    let locked = || {
        let tried = File::open(path).map(|file| file.try_lock_shared());
        matches!(tried, Ok(Err(TryLockError::WouldBlock)))
    };
    (0..LOOKS).all(|look| {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        locked()
    })
}

#[cfg(unix)]
fn is_removed(file: &File) -> io::Result<bool> {
    Ok(std::os::unix::fs::MetadataExt::nlink(&file.metadata()?) == 0)
}

#[cfg(not(unix))]
fn is_removed(_: &File) -> io::Result<bool> {
    Ok(false)
}

/// Opens a log to read it.
pub(super) fn open_to_read(path: &Path, session: SessionId) -> Result<File, StoreError> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::Missing { session },
        _ => StoreError::io("read", path)(error),
    };
    // A pipe under a log's name would never end.
    if !std::fs::metadata(path).map_err(missing)?.is_file() {
        return Err(StoreError::io("read", path)(io::Error::other(
            "it is not a regular file",
        )));
    }
    File::open(path).map_err(missing)
}

/// Reads a log's records in order; a line that can't be read gives a note instead, but for a last one that was cut off.
pub(super) fn read(
    path: &Path,
    session: SessionId,
    mut take: impl FnMut(Result<Record, String>),
) -> Result<(), StoreError> {
    let mut reader = BufReader::new(open_to_read(path, session)?);
    let mut number = 0_u64;
    lines(&mut reader, |line, whole| {
        number += 1;
        match Record::from_line(line) {
            Ok(record) => take(Ok(record)),
            Err(_) if !whole || line.trim_ascii().is_empty() => {}
            Err(error) => take(Err(format!(
                "line {number} can't be read and is left out ({error})"
            ))),
        }
    })
    .map_err(StoreError::io("read", path))
}

/// Goes through lines; for each also whether it ends with a newline. Of one that is too long, only the beginning comes.
pub(super) fn lines(reader: &mut impl BufRead, mut take: impl FnMut(&[u8], bool)) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut whole = line.last() == Some(&b'\n');
        if whole {
            line.pop();
        } else if line.len() as u64 == MAX_LINE {
            whole = skip_line(reader)?;
        }
        take(&line, whole);
    }
}

/// Passes over the rest of a line; whether it had an end.
fn skip_line(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(false);
        }
        let (step, found) = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        reader.consume(step);
        if found {
            return Ok(true);
        }
    }
}
