//! The cache that the hub's programs share: `models--org--name/{blobs,refs,snapshots}` and `.locks`.
//!
//! A blob is named by its entity tag; a snapshot is a folder of links to blobs, named by its commit; a ref holds the
//! commit that a branch or tag was at when it was last asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::access::home;
use super::cancel::Cancel;
use super::choose::{self, Choice, GgufModel, INDEX};
use super::disk;
use super::error::HubError;
use super::lock::wait_for;
use super::manifest::is_repository_id;
use super::progress::Progress;
use super::repo_error::RepoError;
use super::repository::{is_commit, is_safe_path};
use super::resolve::ModelKind;
use super::surroundings::Surroundings;

/// Folders deeper than this in a snapshot hold nothing of ours.
const DEPTH: usize = 4;

/// The cache's folder: `HF_HUB_CACHE`, else `hub` in the folder of the hub's programs; it need not exist.
pub(super) fn root(around: &Surroundings) -> Option<PathBuf> {
    let named = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"]
        .iter()
        .find_map(|name| around.text(name));
    named
        .map(|path| around.expand_home(&path))
        .or_else(|| Some(home(around)?.join("hub")))
}

/// What a ref says; nothing of what is no file, which could be waited for in vain.
fn read_ref(path: &Path) -> Option<String> {
    let content = path.is_file().then(|| std::fs::read_to_string(path));
    content?.ok()
}

/// One repository in the cache.
#[derive(Debug, Clone)]
pub(super) struct Cached {
    root: PathBuf,
    /// `models--org--name`.
    name: String,
}

/// A model of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SnapshotModel {
    /// For GGUF, what tells it from the others of the repository.
    pub label: Option<String>,
    /// Its files' paths in the snapshot.
    pub files: Vec<String>,
}

/// Held while a blob is written; freed when dropped.
#[derive(Debug)]
pub(super) struct BlobLock {
    _file: File,
}

/// All repositories of models in the cache, as `org/name`.
pub(super) fn repositories(root: &Path) -> Vec<String> {
    let Ok(folder) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let id = |item: std::fs::DirEntry| {
        let name = item.file_name().into_string().ok()?;
        let id = name.strip_prefix("models--")?.replacen("--", "/", 1);
        (is_repository_id(&id) && !id.contains("--")).then_some(id)
    };
    let mut ids: Vec<String> = folder.flatten().filter_map(id).collect();
    ids.sort();
    ids
}

impl Cached {
    /// The repository `id`; it need not be there.
    pub fn new(root: &Path, id: &str) -> Self {
        Self {
            root: root.to_path_buf(),
            name: format!("models--{}", id.replace('/', "--")),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    /// Where a file of this tag belongs.
    pub fn blob(&self, tag: &str) -> PathBuf {
        self.folder().join("blobs").join(tag)
    }

    /// Where a file of this tag is while it isn't complete.
    pub fn incomplete(&self, tag: &str) -> PathBuf {
        self.folder().join("blobs").join(format!("{tag}.incomplete"))
    }

    /// The folder of a commit's files.
    pub fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder().join("snapshots").join(commit)
    }

    fn locks(&self) -> PathBuf {
        self.root.join(".locks").join(&self.name)
    }

    /// The commit that a revision was at when it was last asked for; a commit is itself, if there is a snapshot of it.
    pub fn commit(&self, revision: &str) -> Option<String> {
        let of_ref = read_ref(&self.folder().join("refs").join(revision));
        let commit = of_ref.map_or_else(|| revision.to_string(), |text| text.trim().to_string());
        (is_commit(&commit) && self.snapshot(&commit).is_dir()).then_some(commit)
    }

    /// All commits of which there is a snapshot.
    pub fn commits(&self) -> BTreeSet<String> {
        let folder = std::fs::read_dir(self.folder().join("snapshots"));
        let names = folder.into_iter().flatten().flatten();
        names
            .filter_map(|item| item.file_name().into_string().ok())
            .filter(|name| is_commit(name))
            .collect()
    }

    /// Branches and tags with their commits.
    pub fn refs(&self) -> BTreeMap<String, String> {
        let folder = self.folder().join("refs");
        let mut paths = Vec::new();
        files_below(&folder, "", DEPTH, &mut paths);
        let commit = |name: String| {
            let commit = read_ref(&folder.join(&name))?.trim().to_string();
            Some((name, commit))
        };
        paths.into_iter().filter_map(commit).collect()
    }

    /// Paths of a snapshot's files whose bytes are there.
    pub fn paths(&self, commit: &str) -> Vec<String> {
        let mut paths = Vec::new();
        files_below(&self.snapshot(commit), "", DEPTH, &mut paths);
        paths.sort();
        paths
    }

    /// The files of the model picked, if a snapshot has them all; none if it doesn't.
    pub fn model(&self, commit: &str, pick: Option<&str>) -> Result<Option<Choice>, RepoError> {
        let paths = self.paths(commit);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        match choose::choose(&paths, pick) {
            Ok(choice) if choice.label.is_none() && !self.is_whole(commit, &paths)? => Ok(None),
            Ok(choice) => Ok(Some(choice)),
            Err(RepoError::Ambiguous { pick, files }) => Err(RepoError::Ambiguous { pick, files }),
            // The rest may be had from the hub.
            Err(_) => Ok(None),
        }
    }

    /// All models that a snapshot has in full.
    pub fn models(&self, commit: &str) -> Vec<SnapshotModel> {
        let paths = self.paths(commit);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let mut models = Vec::new();
        if let Ok(Some(Choice {
            files, label: None, ..
        })) = self.model(commit, None)
        {
            models.push(SnapshotModel { label: None, files });
        }
        let whole = choose::gguf_models(&paths)
            .into_iter()
            .filter(|model| model.missing == 0);
        models.extend(whole.map(|GgufModel { label, files, .. }| SnapshotModel {
            label: Some(label),
            files,
        }));
        models
    }

    /// The path by which a model is opened.
    pub fn path_of(&self, commit: &str, label: Option<&str>, files: &[String]) -> (PathBuf, ModelKind) {
        let snapshot = self.snapshot(commit);
        match (label, files.first()) {
            (Some(_), Some(first)) => (snapshot.join(first), ModelKind::Gguf),
            _ => (snapshot, ModelKind::Folder),
        }
    }

    /// Bytes of a snapshot's files, each blob once.
    pub fn bytes(&self, commit: &str, files: &[String]) -> u64 {
        let snapshot = self.snapshot(commit);
        let blobs: BTreeMap<(u64, u64), u64> = files
            .iter()
            .filter_map(|file| std::fs::metadata(snapshot.join(file)).ok())
            .map(|meta| ((meta.dev(), meta.ino()), meta.len()))
            .collect();
        blobs.values().sum()
    }

    /// Whether a folder's weights, and the files that the repository is known to have, are all there.
    fn is_whole(&self, commit: &str, paths: &[&str]) -> Result<bool, RepoError> {
        if !missing_shards(&self.snapshot(commit)).is_empty() {
            return Ok(false);
        }
        let Some(listed) = self.listed(commit) else {
            return Ok(true);
        };
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let needed = choose::choose(&listed, None)?;
        Ok(needed.label.is_some() || needed.files.iter().all(|file| paths.contains(&file.as_str())))
    }

    /// What a commit has, where another program left its listing.
    fn listed(&self, commit: &str) -> Option<Vec<String>> {
        let path = self.folder().join("trees").join(format!("{commit}.json"));
        let listing: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let files = listing.get("files")?.as_object()?;
        Some(files.keys().cloned().collect())
    }

    /// Makes the folders that a download writes to, as open to others as the user has it for all files.
    pub fn make_folders(&self, commit: &str) -> Result<(), HubError> {
        for folder in [self.folder().join("blobs"), self.snapshot(commit), self.locks()] {
            std::fs::create_dir_all(&folder)
                .map_err(|error| disk::failed("make the folder", &folder, error))?;
        }
        Ok(())
    }

    /// Links a blob to its name in a snapshot, relatively; where links can't be made, moves it there.
    pub fn link(&self, commit: &str, path: &str, tag: &str) -> Result<(), HubError> {
        let pointer = self.snapshot(commit).join(path);
        let up = "../".repeat(path.split('/').count() + 1);
        let target = PathBuf::from(format!("{up}blobs/{tag}"));
        if std::fs::read_link(&pointer).is_ok_and(|there| there == target) {
            return Ok(());
        }
        let failed = |error| disk::failed("write", &pointer, error);
        if let Some(folder) = pointer.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        // Somebody else may link the same at this moment: each link is made aside and renamed into place.
        let aside = aside(&pointer);
        disk::remove_file(&aside)?;
        match std::os::unix::fs::symlink(&target, &aside) {
            Ok(()) => std::fs::rename(&aside, &pointer).map_err(failed),
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => {
                std::fs::rename(self.blob(tag), &pointer).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Notes which commit a branch or tag is at, in one step.
    pub fn set_ref(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        let path = self.folder().join("refs").join(revision);
        if revision == commit || std::fs::read_to_string(&path).is_ok_and(|text| text == commit) {
            return Ok(());
        }
        let failed = |error| disk::failed("write", &path, error);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let aside = aside(&path);
        std::fs::write(&aside, commit).map_err(failed)?;
        std::fs::rename(&aside, &path).map_err(failed)
    }

    /// Waits until nobody else writes the blob of this tag; none if stopped meanwhile.
    pub fn hold(
        &self,
        tag: &str,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Option<BlobLock>, HubError> {
        wait_for(|| self.try_hold(tag), progress, cancel)
    }

    /// Takes the lock that the hub's programs take, if nobody has it. A file system without locks is used without.
    fn try_hold(&self, tag: &str) -> Result<Option<BlobLock>, HubError> {
        let path = self.locks().join(format!("{tag}.lock"));
        let failed = |error| disk::failed("lock", &path, error);
        loop {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Others delete the file when they let go: a lock on a file that is gone holds nobody off.
            let ours = file.metadata().map_err(failed)?.ino();
            if std::fs::metadata(&path).is_ok_and(|meta| meta.ino() == ours) {
                return Ok(Some(BlobLock { _file: file }));
            }
        }
    }

    /// Deletes files of a snapshot, and of their blobs those that no other snapshot links to; then what is left empty.
    /// `None` means all its files. Unfinished downloads go, too. Gives the bytes freed.
    pub fn remove(&self, commit: &str, files: Option<&[String]>) -> Result<u64, HubError> {
        let unfinished = self.unfinished_and_idle()?;
        let snapshot = self.snapshot(commit);
        let mut all = Vec::new();
        entries_below(&snapshot, "", DEPTH, &mut all);
        let doomed: Vec<&String> = match files {
            Some(files) => all.iter().filter(|path| files.contains(path)).collect(),
            None => all.iter().collect(),
        };
        let target = |path: &Path| {
            let link = std::fs::read_link(path).ok()?;
            link.file_name().map(|name| name.to_os_string())
        };
        let mut freed = 0;
        let mut blobs = BTreeSet::new();
        for path in doomed {
            let pointer = snapshot.join(path);
            match target(&pointer) {
                Some(blob) => drop(blobs.insert(blob)),
                None => freed += disk::length(&pointer),
            }
            disk::remove_file(&pointer)?;
        }
        for other in self.commits() {
            let mut paths = Vec::new();
            entries_below(&self.snapshot(&other), "", DEPTH, &mut paths);
            for blob in paths
                .iter()
                .filter_map(|path| target(&self.snapshot(&other).join(path)))
            {
                blobs.remove(&blob);
            }
        }
        let blobs = blobs.iter().map(|name| self.folder().join("blobs").join(name));
        for path in blobs.chain(unfinished.iter().map(|tag| self.incomplete(tag))) {
            freed += disk::length(&path);
            disk::remove_file(&path)?;
        }
        self.clear_up(commit)?;
        Ok(freed)
    }

    /// Deletes the whole repository, of which there is no snapshot. Gives the bytes freed.
    pub fn remove_all(&self) -> Result<u64, HubError> {
        self.unfinished_and_idle()?;
        let bytes = disk::bytes_of(&self.folder());
        remove_folder(&self.folder())?;
        remove_folder(&self.locks())?;
        Ok(bytes)
    }

    /// Tags of unfinished blobs; an error if one of them is being downloaded.
    fn unfinished_and_idle(&self) -> Result<Vec<String>, HubError> {
        let unfinished = self.unfinished();
        for tag in &unfinished {
            if self.try_hold(tag)?.is_none() {
                return Err(HubError::Busy(self.name.clone()));
            }
        }
        Ok(unfinished)
    }

    /// Deletes a snapshot without files, with the refs to it; and the repository when it was the last.
    fn clear_up(&self, commit: &str) -> Result<(), HubError> {
        let snapshot = self.snapshot(commit);
        let mut left = Vec::new();
        entries_below(&snapshot, "", DEPTH, &mut left);
        if !left.is_empty() {
            return Ok(());
        }
        remove_folder(&snapshot)?;
        for (name, at) in self.refs() {
            if at == commit {
                disk::remove_file(&self.folder().join("refs").join(name))?;
            }
        }
        if self.commits().is_empty() {
            remove_folder(&self.folder())?;
            remove_folder(&self.locks())?;
        }
        Ok(())
    }

    /// Bytes of the blobs that a download left unfinished.
    pub fn unfinished_bytes(&self) -> u64 {
        let tags = self.unfinished();
        tags.iter().map(|tag| disk::length(&self.incomplete(tag))).sum()
    }

    /// Tags of the blobs that a download of ours or of older programs left unfinished.
    fn unfinished(&self) -> Vec<String> {
        let folder = std::fs::read_dir(self.folder().join("blobs"));
        let names = folder.into_iter().flatten().flatten();
        names
            .filter_map(|item| item.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".incomplete").map(str::to_string))
            .collect()
    }
}

/// A name beside a path that nobody else uses now.
fn aside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_os_string();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{count}.tmp", std::process::id()));
    name.into()
}

/// Deletes a folder with all that is in it; that there is none is fine.
fn remove_folder(path: &Path) -> Result<(), HubError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk::failed("delete", path, error)),
        _ => Ok(()),
    }
}

/// The weights that a folder's index names and that aren't in it.
pub(super) fn missing_shards(folder: &Path) -> Vec<String> {
    let index = std::fs::read(folder.join(INDEX)).unwrap_or_default();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap_or_default();
    let named = index.get("weight_map").and_then(serde_json::Value::as_object);
    let shards: BTreeSet<&str> = named
        .into_iter()
        .flatten()
        .filter_map(|(_, file)| file.as_str())
        .filter(|file| is_safe_path(file))
        .collect();
    let missing = |file: &&str| !folder.join(file).is_file();
    shards.into_iter().filter(missing).map(str::to_string).collect()
}

/// Paths of all files below a folder, relative to it; links to nothing are left out.
fn files_below(folder: &Path, prefix: &str, depth: usize, into: &mut Vec<String>) {
    let first = into.len();
    entries_below(folder, prefix, depth, into);
    let strip = |path: &str| path.strip_prefix(prefix).unwrap_or(path).to_string();
    let all = into.split_off(first);
    into.extend(all.into_iter().filter(|path| folder.join(strip(path)).is_file()));
}

/// Paths of all files and links below a folder, relative to it.
fn entries_below(folder: &Path, prefix: &str, depth: usize, into: &mut Vec<String>) {
    let Ok(items) = std::fs::read_dir(folder) else {
        return;
    };
    for item in items.flatten() {
        let Ok(name) = item.file_name().into_string() else {
            continue;
        };
        let path = format!("{prefix}{name}");
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth > 0 {
                entries_below(&item.path(), &format!("{path}/"), depth - 1, into);
            }
        } else {
            into.push(path);
        }
    }
}
