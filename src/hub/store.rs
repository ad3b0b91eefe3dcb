//! The models folder: one folder or file for each model, `.partial/` for what is on its way.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::cancel::Cancel;
use super::choose::gguf_models;
use super::disk;
use super::error::HubError;
use super::lock::wait_for;
use super::manifest::{Entry, is_plain_name};
use super::progress::Progress;

/// What is kept beside an installed file: proof that these very bytes were verified.
const RECORD: &str = ".hub.json";

/// A model in the models folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// What one types.
    pub name: String,
    /// The .gguf file, or the folder with config.json.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// Whether the manifest knows it.
    pub known: bool,
    /// Whether its SHA-256 was found to be the manifest's, and neither length nor time changed since.
    pub verified: bool,
}

/// What [`remove`](super::Hub::remove) deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The model.
    pub name: String,
    /// Bytes freed, an unfinished download included.
    pub bytes: u64,
    /// Whether it was a link: what it leads to stays.
    pub link: bool,
}

/// The models folder.
#[derive(Debug, Clone)]
pub(super) struct Store {
    root: PathBuf,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    file: String,
    sha256: String,
    bytes: u64,
    /// Milliseconds since 1970.
    modified: u64,
}

/// Held while a model is fetched or removed; freed when dropped.
#[derive(Debug)]
pub(super) struct Held {
    _file: File,
}

impl Store {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where unfinished downloads lie.
    pub fn partial(&self) -> PathBuf {
        self.root.join(".partial")
    }

    /// The unfinished download of a file of this hash.
    pub fn part(&self, name: &str, sha256: &str) -> PathBuf {
        self.partial()
            .join(format!("{name}-{}.part", sha256.get(..16).unwrap_or(sha256)))
    }

    /// Where an entry's file belongs.
    pub fn place(&self, entry: &Entry) -> PathBuf {
        self.root.join(&entry.name).join(&entry.file)
    }

    /// The entry's file if it is there in full length.
    pub fn present(&self, entry: &Entry) -> Option<PathBuf> {
        let path = self.place(entry);
        (path.is_file() && disk::length(&path) == entry.bytes).then_some(path)
    }

    /// Whether the entry's file is the very file that was verified.
    pub fn is_verified(&self, entry: &Entry) -> bool {
        let path = self.place(entry);
        let record = std::fs::read(self.record_path(&entry.name)).ok();
        let record = record.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
        record.is_some() && record == Record::of(entry, &path)
    }

    /// Moves a verified file to its place, in one step.
    pub fn install(&self, entry: &Entry, from: &Path) -> Result<PathBuf, HubError> {
        let place = self.place(entry);
        let folder = self.root.join(&entry.name);
        disk::make_folder(&folder)?;
        std::fs::rename(from, &place).map_err(|error| disk::failed("write", &place, error))?;
        self.record(entry)?;
        disk::sync_folder(&folder);
        disk::sync_folder(&self.root);
        Ok(place)
    }

    /// Writes down that the entry's file, as it is now, was found to have the right bytes.
    pub fn record(&self, entry: &Entry) -> Result<(), HubError> {
        let Some(record) = Record::of(entry, &self.place(entry)) else {
            return Ok(());
        };
        let path = self.record_path(&entry.name);
        let text = serde_json::to_vec(&record).unwrap_or_default();
        std::fs::write(&path, text).map_err(|error| disk::failed("write", &path, error))
    }

    /// Waits until no other process or thread fetches or removes this model; none if stopped meanwhile.
    pub fn hold(
        &self,
        name: &str,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Option<Held>, HubError> {
        wait_for(|| self.try_hold(name), progress, cancel)
    }

    /// Takes the lock if nobody has it. A file system without locks is used without.
    fn try_hold(&self, name: &str) -> Result<Option<Held>, HubError> {
        disk::make_folder(&self.partial())?;
        let path = self.partial().join(format!("{name}.lock"));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path);
        let file = file.map_err(|error| disk::failed("write", &path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Held { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                Ok(Some(Held { _file: file }))
            }
            Err(TryLockError::Error(error)) => Err(disk::failed("lock", &path, error)),
        }
    }

    /// All models in the folder, by name.
    pub fn list(&self, entries: &[Entry]) -> Result<Vec<Installed>, HubError> {
        let mut found = Vec::new();
        let folder = match std::fs::read_dir(&self.root) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(disk::failed("read", &self.root, error)),
        };
        for item in folder.flatten() {
            let Some(name) = item.file_name().to_str().map(str::to_string) else {
                continue;
            };
            if is_plain_name(&name) {
                found.extend(self.installed(&name, entries));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// The model of this name in the folder, complete as far as can be told.
    pub fn installed(&self, name: &str, entries: &[Entry]) -> Option<Installed> {
        if !is_plain_name(name) {
            return None;
        }
        let entry = entries.iter().find(|entry| entry.name == name);
        let path = match entry {
            Some(entry) => self.present(entry)?,
            None => model_in(&self.root.join(name))?,
        };
        let bytes = disk::bytes_of(&path);
        let verified = entry.is_some_and(|entry| self.is_verified(entry));
        Some(Installed {
            name: name.to_string(),
            path,
            bytes,
            known: entry.is_some(),
            verified,
        })
    }

    /// Fails where there is nothing of this name to delete.
    pub fn can_remove(&self, name: &str) -> Result<(), HubError> {
        if !is_plain_name(name) {
            return Err(HubError::BadName(name.into()));
        }
        if !self.root.join(name).exists() && !self.is_link(name) && self.parts_of(name).is_empty() {
            return Err(HubError::NotInstalled(name.into()));
        }
        Ok(())
    }

    /// Deletes what is in the models folder under this name, an unfinished download of it, too.
    pub fn remove(&self, name: &str) -> Result<Removed, HubError> {
        self.can_remove(name)?;
        let path = self.root.join(name);
        let meta = std::fs::symlink_metadata(&path).ok();
        let _held = self.try_hold(name)?.ok_or_else(|| HubError::Busy(name.into()))?;
        let mut bytes = 0;
        let link = meta.as_ref().is_some_and(std::fs::Metadata::is_symlink);
        if let Some(meta) = meta {
            // A link is removed, not what it leads to: that lies outside.
            let (size, removed) = if meta.is_dir() {
                (disk::bytes_of(&path), std::fs::remove_dir_all(&path))
            } else {
                let size = if link { 0 } else { meta.len() };
                (size, std::fs::remove_file(&path))
            };
            removed.map_err(|error| disk::failed("delete", &path, error))?;
            bytes += size;
        }
        bytes += self.unfinished(name);
        self.clear_parts(name)?;
        Ok(Removed {
            name: name.into(),
            bytes,
            link,
        })
    }

    /// Bytes that unfinished downloads of this model left.
    pub fn unfinished(&self, name: &str) -> u64 {
        self.parts_of(name).iter().map(|part| disk::length(part)).sum()
    }

    /// Whether what is in the models folder under this name is a link to elsewhere.
    pub fn is_link(&self, name: &str) -> bool {
        is_plain_name(name) && self.root.join(name).is_symlink()
    }

    /// Deletes what unfinished downloads of this model left; only while it is held.
    pub fn clear_parts(&self, name: &str) -> Result<(), HubError> {
        self.parts_of(name)
            .iter()
            .try_for_each(|part| disk::remove_file(part))
    }

    /// Unfinished downloads of this model with what is kept beside them.
    fn parts_of(&self, name: &str) -> Vec<PathBuf> {
        let Ok(folder) = std::fs::read_dir(self.partial()) else {
            return Vec::new();
        };
        let ours = |path: &PathBuf| {
            let file = path
                .file_name()
                .and_then(|file| file.to_str())
                .unwrap_or_default();
            let rest = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            rest.and_then(|rest| rest.split_once('.'))
                .is_some_and(|(hash, ending)| {
                    hash.len() == 16
                        && hash.bytes().all(|b| b.is_ascii_hexdigit())
                        && ending.starts_with("part")
                })
        };
        folder.flatten().map(|item| item.path()).filter(ours).collect()
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.root.join(name).join(RECORD)
    }
}

impl Record {
    fn of(entry: &Entry, path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        let modified = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_millis();
        Some(Self {
            file: entry.file.clone(),
            sha256: entry.sha256.clone(),
            bytes: meta.len(),
            modified: u64::try_from(modified).ok()?,
        })
    }
}

/// The model that a path holds: a .gguf file itself, a folder with config.json, or the first model of a folder of .gguf
/// files.
pub(super) fn model_in(path: &Path) -> Option<PathBuf> {
    models_in(path).into_iter().flatten().next()
}

/// The same, where it holds no more than one.
pub(super) fn only_model_in(path: &Path) -> Result<Option<PathBuf>, HubError> {
    let models = models_in(path);
    if models.len() < 2 {
        return Ok(models.into_iter().flatten().next());
    }
    let file = |parts: &Vec<PathBuf>| {
        let name = parts.first().and_then(|first| first.file_name());
        let bytes = parts.iter().map(|part| disk::length(part)).sum();
        (name.unwrap_or_default().to_string_lossy().into_owned(), bytes)
    };
    Err(HubError::SeveralModels {
        folder: path.into(),
        files: models.iter().map(file).collect(),
    })
}

/// The models that a path holds, each by its files, in the order of its parts. What only belongs to a model is none.
fn models_in(path: &Path) -> Vec<Vec<PathBuf>> {
    if path.is_file() {
        let file = is_gguf(path).then(|| vec![path.to_path_buf()]);
        return file.into_iter().collect();
    }
    if path.join("config.json").is_file() {
        return vec![vec![path.to_path_buf()]];
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let names: Vec<String> = entries
        .filter(|item| item.path().is_file())
        .filter_map(|item| item.file_name().into_string().ok())
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut models: Vec<Vec<PathBuf>> = gguf_models(&names)
        .iter()
        .map(|model| model.files.iter().map(|file| path.join(file)).collect())
        .collect();
    models.sort();
    models
}

fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ext| ext.eq_ignore_ascii_case("gguf"))
}
