//! What of the cache that the hub's programs share can be read here, and how it is deleted.

use std::path::PathBuf;

use super::Hub;
use super::cache::{self, Cached};
use super::error::HubError;
use super::repo_error::RepoError;
use super::repository::{MAIN, RepoSpec};
use super::resolve::ModelKind;
use super::store::Removed;

/// A model in the shared cache, complete as far as can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedModel {
    /// What one types: `owner/name`, with a revision or a quantization where it isn't the only one.
    pub name: String,
    /// The first .gguf file, or the snapshot's folder.
    pub path: PathBuf,
    /// Which of the two.
    pub kind: ModelKind,
    /// Bytes of its files.
    pub bytes: u64,
    /// The commit it is of.
    pub commit: String,
}

impl Hub {
    /// The models in the shared cache, by name.
    pub fn cached(&self) -> Vec<CachedModel> {
        let Some(root) = cache::root(&self.around) else {
            return Vec::new();
        };
        let ids = cache::repositories(&root);
        let mut all: Vec<CachedModel> = ids
            .iter()
            .flat_map(|id| models_of(&Cached::new(&root, id), id))
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Repositories in the shared cache of which a download left something and no model is there in full, each with the bytes
    /// of what was left.
    pub fn begun(&self) -> Vec<(String, u64)> {
        let Some(root) = cache::root(&self.around) else {
            return Vec::new();
        };
        let begun = |id: String| {
            let cached = Cached::new(&root, &id);
            let bytes = cached.unfinished_bytes();
            (bytes > 0 && models_of(&cached, &id).is_empty()).then_some((id, bytes))
        };
        cache::repositories(&root).into_iter().filter_map(begun).collect()
    }

    /// Whether an installed model is a link to elsewhere, of which only the link would be removed.
    pub fn is_link(&self, name: &str) -> bool {
        self.store.is_link(name)
    }

    /// Bytes that a model takes on disk, by the name that a list shows.
    pub fn bytes_of(&self, name: &str) -> Option<u64> {
        let installed = self.installed(name).map(|model| model.bytes);
        installed.or_else(|| {
            let cached = self.cached();
            cached
                .iter()
                .find(|model| model.name == name)
                .map(|model| model.bytes)
        })
    }

    /// What the shared cache has of a repository.
    pub(super) fn cached_repository(&self, spec: &RepoSpec) -> Result<Cached, HubError> {
        let root = cache::root(&self.around).ok_or_else(|| HubError::repository(spec, RepoError::NoCache))?;
        let cached = Cached::new(&root, &spec.id);
        if !cached.folder().is_dir() {
            return Err(HubError::NotInstalled(spec.to_string()));
        }
        Ok(cached)
    }

    /// Deletes a repository's model, or the whole snapshot of its revision where none is picked.
    pub(super) fn remove_cached(&self, spec: &RepoSpec) -> Result<Removed, HubError> {
        let failed = |error: RepoError| HubError::repository(spec, error);
        let cached = self.cached_repository(spec)?;
        let commits = cached.commits();
        let only = commits
            .first()
            .filter(|_| spec.revision.is_none() && commits.len() == 1);
        let commit = match cached.commit(spec.revision()).or_else(|| only.cloned()) {
            Some(commit) => commit,
            // A pull that was stopped before it knew the commit.
            None if commits.is_empty() && spec.revision.is_none() => String::new(),
            None => {
                let mut there: Vec<String> = cached.refs().into_keys().collect();
                there.extend(commits);
                return Err(failed(RepoError::NotThisRevision {
                    revision: spec.revision().into(),
                    there,
                }));
            }
        };
        let files = match spec.pick.as_deref() {
            None => None,
            Some(pick) => match cached.model(&commit, Some(pick)).map_err(failed)? {
                Some(choice) => Some(choice.files),
                None => return Err(HubError::NotInstalled(spec.to_string())),
            },
        };
        let bytes = if commit.is_empty() {
            cached.remove_all()?
        } else {
            cached.remove(&commit, files.as_deref())?
        };
        Ok(Removed {
            name: spec.to_string(),
            bytes,
            link: false,
        })
    }
}

fn models_of(cached: &Cached, id: &str) -> Vec<CachedModel> {
    let refs = cached.refs();
    let mut found = Vec::new();
    for commit in cached.commits() {
        let named = |name: &&String| refs.get(*name) == Some(&commit);
        let main = MAIN.to_string();
        let revision = match refs.keys().find(|name| **name == main && named(name)) {
            Some(_) => None,
            None => Some(refs.keys().find(named).unwrap_or(&commit).clone()),
        };
        let models = cached.models(&commit);
        for model in &models {
            let twice = models.iter().filter(|other| other.label == model.label).count() > 1;
            let pick = match &model.label {
                // A single file needs no choice.
                Some(_) if models.len() == 1 => None,
                Some(_) if twice => model.files.first().cloned(),
                label => label.clone(),
            };
            let spec = RepoSpec {
                id: id.into(),
                revision: revision.clone(),
                pick,
            };
            let (path, kind) = cached.path_of(&commit, model.label.as_deref(), &model.files);
            found.push(CachedModel {
                name: spec.to_string(),
                path,
                kind,
                bytes: cached.bytes(&commit, &model.files),
                commit: commit.clone(),
            });
        }
    }
    found
}
