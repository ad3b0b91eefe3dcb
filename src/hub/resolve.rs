//! From what the user typed to a model: a path, a name of the manifest, an installed name.

use std::path::{Path, PathBuf};

use super::Hub;
use super::error::HubError;
use super::manifest::{Entry, is_repository_id};
use super::store::model_in;

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
}

impl Hub {
    /// Finds the model of this name or path; `None` means the manifest's default.
    ///
    /// A plain name is looked up in the manifest, then among what is installed, then as a path. What has a `/`, begins
    /// with `~` or ends in `.gguf` is a path first.
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
                return Ok(Located::Local(local(name, model.path)));
            }
            if !name.is_empty() && path.exists() {
                return at_path(&path).map(Located::Local);
            }
        }
        if is_repository_id(name) && !is_file {
            return Err(HubError::Repository(name.into()));
        }
        Err(if is_path || is_file {
            HubError::NoSuchPath(path)
        } else {
            self.unknown(name)
        })
    }

    /// The error for a name that nothing has.
    pub(super) fn unknown(&self, name: &str) -> HubError {
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
        known.sort();
        known.dedup();
        let suggestion = nearest(name, &known);
        HubError::UnknownModel {
            name: name.into(),
            known,
            suggestion,
        }
    }
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
    let Some(model) = model_in(path) else {
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

/// The known name that differs least from `name`, if it differs little.
fn nearest(name: &str, known: &[String]) -> Option<String> {
    let name = name.to_lowercase();
    let distance = |other: &String| {
        let other = other.to_lowercase();
        // Half a name, typed right, is nearer than any misspelling.
        if name.len() >= 3 && (other.starts_with(&name) || name.starts_with(&other)) {
            1
        } else {
            edits(&name, &other)
        }
    };
    let best = known.iter().map(|other| (distance(other), other)).min()?;
    (best.0 <= (name.chars().count() / 3).max(1)).then(|| best.1.clone())
}

/// Insertions, deletions and replacements between two texts (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (&to, above) in b.iter().zip(row.windows(2)) {
            let left = next.last().copied().unwrap_or(0);
            let replaced = above[0] + usize::from(from != to);
            next.push(replaced.min(above[1] + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
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
    }

    #[test]
    fn edit_distances_are_those_of_levenshtein() {
        for (a, b, distance) in [
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("same", "same", 0),
            ("ab", "ba", 2),
        ] {
            assert_eq!(edits(a, b), distance);
        }
    }
}
