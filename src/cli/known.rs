//! The models that are known by name, for `models list` and the picker of the interface.

use std::path::PathBuf;

use crate::hub::{Hub, HubError, Removed};
use crate::size;
use crate::text::sanitize::line_for_terminal;

/// Where a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the models folder.
    Installed,
    /// In the cache that the model hub's programs share.
    Cached,
    /// Nowhere here: it can be pulled.
    Remote,
}

/// A model that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What one types.
    pub name: String,
    /// Where it is.
    pub place: Where,
    /// Bytes of its files.
    pub bytes: u64,
    /// The .gguf file, or the folder with config.json.
    pub path: Option<PathBuf>,
    /// Whether its bytes were found to be the manifest's.
    pub verified: bool,
    /// Its licence, where the manifest tells.
    pub license: Option<String>,
    /// Whether it is taken where none is named.
    pub default: bool,
    /// The commit, of a repository.
    pub commit: Option<String>,
}

/// All of them: what is installed, then the shared cache, then what can be pulled.
pub fn known(hub: &Hub) -> Result<Vec<Known>, HubError> {
    let default = hub.manifest().default_name();
    let license = |name: &str| hub.manifest().get(name).map(|entry| entry.license.clone());
    let installed = hub.list()?.into_iter().map(|model| Known {
        place: Where::Installed,
        bytes: model.bytes,
        path: Some(model.path),
        verified: model.verified,
        license: license(&model.name),
        default: model.name == default,
        commit: None,
        name: model.name,
    });
    let cached = hub.cached().into_iter().map(|model| Known {
        name: model.name,
        place: Where::Cached,
        bytes: model.bytes,
        path: Some(model.path),
        verified: false,
        license: None,
        default: false,
        commit: Some(model.commit),
    });
    let remote = hub.available().map(|entry| Known {
        name: entry.name.clone(),
        place: Where::Remote,
        bytes: entry.bytes,
        path: None,
        verified: false,
        license: Some(entry.license.clone()),
        default: entry.name == default,
        commit: None,
    });
    Ok(installed.chain(cached).chain(remote).collect())
}

/// What is said of a model that was deleted.
pub fn told(removed: &Removed) -> String {
    let name = line_for_terminal(&removed.name);
    if removed.link {
        format!("deleted the link '{name}'; what it leads to stays")
    } else {
        format!("deleted '{name}', {} freed", size::shown(removed.bytes))
    }
}
