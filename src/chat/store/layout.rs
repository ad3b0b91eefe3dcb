//! The layout of open panes. The first process in a folder keeps it; one that comes while that runs keeps its conversations
//! alone, so that neither takes the other's place. Whether the keeper ended as it should is seen by the next one.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::{Store, StoreError, private_file, private_folder};
use crate::chat::layout::Layout;

/// What became of the process that kept the layout before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It ended as it should, or there was none.
    Ended,
    /// It ended without a word: by a crash, or with the machine.
    Crashed,
    /// It runs: the layout is its own.
    Runs,
}

/// Who keeps the layout.
#[derive(Debug, Default)]
pub(super) enum Keeper {
    /// Whoever saves one.
    #[default]
    Anybody,
    /// This process, by a lock on a file in which a word stands from the first layout to the end.
    Here { file: File, saved: AtomicBool },
    /// Another process.
    Elsewhere,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Self::Here { file, saved } = self
            && saved.load(Relaxed)
        {
            // At worst the next one believes in a crash.
            let _ = file.set_len(0);
        }
    }
}

impl Store {
    /// Claims the layout for as long as this store lives, and says what became of the one who kept it before.
    pub fn claim_layout(&mut self) -> Before {
        // Where nothing can be written or locked, saving itself tells.
        let Ok(mut file) = self.open_claim() else {
            return Before::Ended;
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                self.keeper = Keeper::Elsewhere;
                return Before::Runs;
            }
            Err(TryLockError::Error(_)) => return Before::Ended,
        }
        let mut word = Vec::new();
        let crashed = file.read_to_end(&mut word).is_ok() && !word.is_empty();
        let saved = AtomicBool::new(false);
        self.keeper = Keeper::Here { file, saved };
        if crashed { Before::Crashed } else { Before::Ended }
    }

    fn open_claim(&self) -> Result<File, StoreError> {
        private_folder(self.folder())?;
        let path = self.layout.with_extension("lock");
        let mut options = private_file();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&path).map_err(StoreError::io("open", &path))
    }

    fn folder(&self) -> &Path {
        self.layout.parent().unwrap_or(Path::new("."))
    }

    /// Replaces the layout as a whole: a reader sees the old one or the new one. Nothing, where another process keeps it.
    pub fn save_layout(&self, layout: &Layout) -> Result<(), StoreError> {
        if matches!(self.keeper, Keeper::Elsewhere) {
            return Ok(());
        }
        let folder = self.folder();
        private_folder(folder)?;
        let text = serde_json::to_string_pretty(layout).map_err(|error| StoreError::Layout {
            path: self.layout.clone(),
            reason: error.to_string(),
        })?;
        let draft = folder.join(format!("layout.json.{}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut file = private_file()
                .write(true)
                .create(true)
                .truncate(true)
                .open(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&draft, &self.layout)
        };
        let written = write().map_err(|source| {
            let _ = fs::remove_file(&draft);
            StoreError::Io {
                action: "write",
                path: self.layout.clone(),
                source,
            }
        });
        if written.is_ok() {
            self.takes_over();
        }
        written
    }

    /// From here on this process's end is the one that counts for the layout.
    pub(super) fn takes_over(&self) {
        if let Keeper::Here { file, saved } = &self.keeper
            && !saved.swap(true, Relaxed)
        {
            let mut file = file;
            // Without the word, a crash is only not told.
            let _ = file.rewind().and_then(|()| file.write_all(b"open\n"));
        }
    }

    /// The layout of last time, if there was one.
    pub fn load_layout(&self) -> Result<Option<Layout>, StoreError> {
        let path = self.layout.clone();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("read", &path)(error)),
        };
        let layout: Layout = serde_json::from_slice(&text).map_err(|error| StoreError::Layout {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        if layout.version > Layout::VERSION {
            let reason = format!(
                "its version is {}, and this program knows {}",
                layout.version,
                Layout::VERSION
            );
            return Err(StoreError::Layout { path, reason });
        }
        Ok(Some(layout))
    }
}
