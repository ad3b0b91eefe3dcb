//! From what the user typed to a model: a path, a name of the manifest, an installed name, a repository.

use std::path::{Path, PathBuf};

use super::Hub;
use super::cache::{self, Cached};
use super::error::HubError;
use super::manifest::Entry;
use super::pull::Pulled;
use super::repository::RepoSpec;
use super::store::only_model_in;
use crate::near;

/// What kind of files a model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// One GGUF file.
    Gguf,
    /// A folder with `config.json`, as Hugging Face lays it out.
    Folder,
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalModel {
    /// What to call it: the installed name, or the file's or folder's own.
    pub name: String,
    /// The .gguf file, or the folder with config.json.
    pub path: PathBuf,
    /// Which of the two.
    pub kind: ModelKind,
}

/// Where a named model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located<'a> {
    /// On this machine.
    Local(LocalModel),
    /// Known, to be fetched first.
    Remote(&'a Entry),
    /// A repository of the model hub that isn't in the cache, or not in full.
    Repository(RepoSpec),
}

impl Hub {
    /// Finds the model of this name or path; `None` means the manifest's default.
    ///
    /// A plain name is looked up in the manifest, then among what is installed, then as a path. What has a `/`, begins
    /// with `~` or ends in `.gguf` is a path first; `owner/name` is a repository where there is no such path, looked up
    /// in the cache that the hub's programs share.
    pub fn resolve(&self, name: Option<&str>) -> Result<Located<'_>, HubError> {
        let name = name.unwrap_or_else(|| self.manifest.default_name());
        let path = self.around.expand_home(name);
        let is_path = name.contains('/') || name.starts_with('~') || matches!(name, "." | "..");
        let is_file = name.ends_with(".gguf");
        if (is_path || is_file) && path.exists() {
            return at_path(&path).map(Located::Local);
        }
        if !is_path {
            if let Some(entry) = self.manifest.get(name) {
                return Ok(match self.store.present(entry) {
                    Some(path) => Located::Local(LocalModel {
                        name: name.into(),
                        path,
                        kind: ModelKind::Gguf,
                    }),
                    None => Located::Remote(entry),
                });
            }
            if let Some(model) = self.store.installed(name, self.manifest.entries()) {
                let folder = self.store.root().join(name);
                let path = only_model_in(&folder)?.unwrap_or(model.path);
                return Ok(Located::Local(local(name, path)));
            }
            if !name.is_empty() && path.exists() {
                return at_path(&path).map(Located::Local);
            }
        }
        if let Some(spec) = repository(name) {
            return Ok(match self.in_cache(&spec)? {
                Some(there) => Located::Local(there.model),
                None => Located::Repository(spec),
            });
        }
        Err(if is_path || is_file {
            HubError::NoSuchPath(path)
        } else {
            self.unknown(name)
        })
    }

    /// The model of a repository, if the cache has it in full.
    pub(super) fn in_cache(&self, spec: &RepoSpec) -> Result<Option<Pulled>, HubError> {
        let Some(root) = cache::root(&self.around) else {
            return Ok(None);
        };
        let cached = Cached::new(&root, &spec.id);
        let Some(commit) = cached.commit(spec.revision()) else {
            return Ok(None);
        };
        let choice = cached
            .model(&commit, spec.pick.as_deref())
            .map_err(|error| HubError::repository(spec, error))?;
        Ok(choice.map(|choice| {
            let (path, kind) = cached.path_of(&commit, choice.label.as_deref(), &choice.files);
            Pulled {
                model: LocalModel {
                    name: spec.to_string(),
                    path,
                    kind,
                },
                bytes: cached.bytes(&commit, &choice.files),
                commit: Some(commit),
                was_there: true,
            }
        }))
    }

    /// The error for a name that nothing has.
    pub(super) fn unknown(&self, name: &str) -> HubError {
        let known = self.known();
        let suggestion = nearest(name, &known);
        HubError::UnknownModel {
            name: name.into(),
            known,
            suggestion,
        }
    }

    /// All names that are known on this machine: the manifest's, what is installed, the repositories in the cache.
    pub(super) fn known(&self) -> Vec<String> {
        let mut known: Vec<String> = self
            .manifest
            .entries()
            .iter()
            .map(|entry| entry.name.clone())
            .collect();
        known.extend(
            self.list()
                .unwrap_or_default()
                .into_iter()
                .map(|model| model.name),
        );
        if let Some(root) = cache::root(&self.around) {
            known.extend(cache::repositories(&root));
        }
        known.sort();
        known.dedup();
        known
    }
}

/// The repository that a name names; what ends in `.gguf` is a file, unless it stands behind a repository's `:`.
pub(super) fn repository(name: &str) -> Option<RepoSpec> {
    RepoSpec::parse(name).filter(|spec| spec.pick.is_some() || !name.ends_with(".gguf"))
}

fn local(name: &str, path: PathBuf) -> LocalModel {
    let kind = if path.is_dir() {
        ModelKind::Folder
    } else {
        ModelKind::Gguf
    };
    LocalModel {
        name: name.into(),
        path,
        kind,
    }
}

fn at_path(path: &Path) -> Result<LocalModel, HubError> {
    let Some(model) = only_model_in(path)? else {
        let why = if path.is_dir() {
            "the folder has neither config.json nor a .gguf file"
        } else {
            "only .gguf files and folders with config.json are read"
        };
        return Err(HubError::NotAModel {
            path: path.into(),
            why: why.into(),
        });
    };
    // A path such as "." has no name of its own.
    let full = std::path::absolute(&model).unwrap_or_else(|_| model.clone());
    let last = if model.is_dir() {
        full.file_name()
    } else {
        full.file_stem()
    };
    let name = last.map_or_else(
        || path.display().to_string(),
        |last| last.to_string_lossy().into_owned(),
    );
    Ok(local(&name, model))
}

/// The known name that differs least from `name`, if it differs little. A repository may be named without its owner.
pub(super) fn nearest(name: &str, known: &[String]) -> Option<String> {
    let unowned = |other: &&String| match other.rsplit_once('/').filter(|_| !name.contains('/')) {
        Some((_, last)) => last.to_owned(),
        None => (*other).clone(),
    };
    near::nearest_by(name, known, unowned).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_only_when_near() {
        let known = ["smollm2-135m".to_string(), "gemma3-270m".to_string()];
        assert_eq!(nearest("smolm2-135m", &known).as_deref(), Some("smollm2-135m"));
        assert_eq!(nearest("SmolLM2", &known).as_deref(), Some("smollm2-135m"));
        assert_eq!(nearest("gemma", &known).as_deref(), Some("gemma3-270m"));
        assert_eq!(nearest("mistral-7b", &known), None);
        assert_eq!(nearest("x", &[]), None);
        let cached = ["org/Qwen3-0.6B-4bit".to_string()];
        assert_eq!(nearest("qwen3-0.6b-4bit", &cached), Some(cached[0].clone()));
        assert_eq!(nearest("ogr/Qwen3-0.6B-4bit", &cached), Some(cached[0].clone()));
        assert_eq!(nearest("org/gemma-3-1b", &cached), None);
    }
}
