//! The cache outside `target/`: locks, scratch folders, atomic publishing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::failure::{Failure, Outcome, io_failure};

/// Where fetched and compiled things live; shared by every clone and worktree of a user.
pub struct Cache {
    root: PathBuf,
}

/// The cache's folder from the environment: `MLX_CHAT_CACHE_DIR`, or `mlx-chat` in XDG_CACHE_HOME or in the platform's cache folder.
pub fn root_from(var: impl Fn(&str) -> Option<OsString>, host_is_macos: bool) -> Outcome<PathBuf> {
    let set = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let absolute = |name: &str, path: PathBuf| {
        if path.is_absolute() {
            Ok(path)
        } else {
            Err(Failure::new(format!(
                "{name} is `{}`, a relative path: give an absolute one",
                path.display()
            )))
        }
    };
    if let Some(path) = set("MLX_CHAT_CACHE_DIR") {
        return absolute("MLX_CHAT_CACHE_DIR", path);
    }
    // The XDG specification wants relative values ignored.
    if let Some(path) = set("XDG_CACHE_HOME").filter(|p| p.is_absolute()) {
        return Ok(path.join("mlx-chat"));
    }
    let home = set("HOME").ok_or_else(|| {
        Failure::new("HOME is not set, so there is no place for the build's cache: set MLX_CHAT_CACHE_DIR to an absolute folder")
    })?;
    let home = absolute("HOME", home)?;
    let below = if host_is_macos {
        "Library/Caches/mlx-chat"
    } else {
        ".cache/mlx-chat"
    };
    Ok(home.join(below))
}

impl Cache {
    /// Opens the cache, creating its folder.
    pub fn open(root: PathBuf) -> Outcome<Self> {
        fs::create_dir_all(&root).map_err(|e| io_failure("create the cache folder", &root, &e))?;
        sweep(&root.join("tmp"));
        Ok(Self { root })
    }

    /// The folder `kind/key`, which holds the file `witness`. If it isn't there, `fill` makes its content in a scratch
    /// folder, under a lock, and one rename puts it in place: it is whole or absent, and of two builds at once one
    /// works and one waits.
    pub fn folder(
        &self,
        kind: &str,
        key: &str,
        witness: &str,
        fill: impl FnOnce(&Path) -> Outcome<()>,
    ) -> Outcome<PathBuf> {
        let parent = self.root.join(kind);
        let place = parent.join(key);
        if place.join(witness).is_file() {
            return Ok(place);
        }
        fs::create_dir_all(&parent).map_err(|e| io_failure("create", &parent, &e))?;
        let _lock = self.lock(&format!("{kind}-{key}"))?;
        if place.join(witness).is_file() {
            return Ok(place);
        }
        let scratch = self.scratch(key)?;
        fill(&scratch.0)?;
        if !scratch.0.join(witness).is_file() {
            return Err(Failure::new(format!(
                "{kind} {key} was made without its file {witness}: the download or a tool is not what this build expects"
            )));
        }
        if place.exists() {
            // Damaged: somebody removed files from it.
            fs::remove_dir_all(&place).map_err(|e| io_failure("remove", &place, &e))?;
        }
        fs::rename(&scratch.0, &place).map_err(|e| io_failure("put in place", &place, &e))?;
        Ok(place)
    }

    /// Forgets the folder `kind/key`.
    pub fn forget(&self, kind: &str, key: &str) {
        // Best effort: what stays costs space only.
        let _ = fs::remove_dir_all(self.root.join(kind).join(key));
    }

    /// A folder for one use, removed on drop.
    pub fn scratch(&self, name: &str) -> Outcome<Scratch> {
        // Process ids repeat where containers share a cache; the time tells them apart.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = since.map_or(0, |time| time.as_nanos());
        let path = self
            .root
            .join("tmp")
            .join(format!("{name}-{}-{nanos}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| io_failure("create", &path, &e))?;
        Ok(Scratch(path))
    }

    /// Waits for the lock of that name; it is free again when the file is dropped, also if the process dies.
    fn lock(&self, name: &str) -> Outcome<File> {
        let folder = self.root.join("locks");
        fs::create_dir_all(&folder).map_err(|e| io_failure("create", &folder, &e))?;
        let path = folder.join(name.replace(['/', '\\'], "-"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| io_failure("open the lock", &path, &e))?;
        file.lock().map_err(|e| io_failure("lock", &path, &e))?;
        Ok(file)
    }
}

/// Removes what killed builds left behind: scratch folders older than two days.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry
            .metadata()
            .and_then(|data| data.modified())
            .ok()
            .and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > Duration::from_secs(2 * 24 * 3600)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A scratch folder in the cache.
pub struct Scratch(pub PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: after a rename it is gone already, and a leftover does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
