//! What names a model of a hub: `org/name`, with a revision and with a choice among its files.

use std::fmt;

use super::manifest::{is_plain_name, is_repository_id};

/// The revision meant where none is named.
pub(super) const MAIN: &str = "main";

/// A repository of a model hub as one types it: `org/name`, `org/name@revision`, `org/name:QUANTIZATION`,
/// `org/name@revision:file.gguf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSpec {
    /// `org/name`.
    pub id: String,
    /// A branch, a tag or a commit; none means `main`.
    pub revision: Option<String>,
    /// Which of several GGUF files: a quantization such as `Q4_K_M`, or a file's path in the repository.
    pub pick: Option<String>,
}

impl RepoSpec {
    /// Reads what one types; none if it doesn't have the form, or if a part of it could lead out of a folder.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, pick) = match text.split_once(':') {
            Some((place, pick)) => (place, Some(pick)),
            None => (text, None),
        };
        let (id, revision) = match place.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (place, None),
        };
        let is_path = |text: &str| text.split('/').all(is_plain_name);
        let sound = is_repository_id(id) && !id.contains("--") && revision.is_none_or(is_path);
        (sound && pick.is_none_or(is_safe_path)).then(|| Self {
            id: id.to_string(),
            revision: revision.map(str::to_string),
            pick: pick.map(str::to_string),
        })
    }

    /// The revision, named or not.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }
}

impl fmt::Display for RepoSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        if let Some(pick) = &self.pick {
            write!(f, ":{pick}")?;
        }
        Ok(())
    }
}

/// Whether this is a commit in full: 40 lower-case hex digits.
pub(super) fn is_commit(text: &str) -> bool {
    is_hex(text, 40)
}

/// Whether this is lower-case hex of so many digits.
pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a file of this path, as a server names it, stays inside the folder it is put into.
pub(super) fn is_safe_path(path: &str) -> bool {
    path.len() <= 1000
        && path.split('/').all(|part| {
            !matches!(part, "" | "." | "..")
                && part.len() <= 250
                && !part.chars().any(|c| c.is_control() || c == '\\')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_named_with_revision_and_choice() {
        let spec = RepoSpec::parse("org/name@refs/pr/1:Q4_K_M").unwrap();
        assert_eq!(
            (spec.id.as_str(), spec.revision(), spec.pick.as_deref()),
            ("org/name", "refs/pr/1", Some("Q4_K_M"))
        );
        for text in ["org/name", "org/name@v1.0", "o/n:sub/file.gguf", "o/n@main:Q8_0"] {
            assert_eq!(RepoSpec::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(RepoSpec::parse("org/name").unwrap().revision(), "main");
    }

    #[test]
    fn what_has_another_form_or_leads_elsewhere_names_no_repository() {
        for text in [
            "",
            "name",
            "a/b/c",
            "/a/b",
            "./a",
            "../a",
            "a/..",
            "~/a",
            "a/b@",
            "a/b@../c",
            "a/b@/c",
            "a/b:",
            "a/b:../c",
            "a/b:/etc/passwd",
            "a/b:x\\y",
            "a--b/c",
            "a /b",
        ] {
            assert_eq!(RepoSpec::parse(text), None, "{text}");
        }
    }

    #[test]
    fn paths_that_leave_a_folder_are_not_safe() {
        for path in [
            "model.safetensors",
            "BF16/m-00001-of-00002.gguf",
            "a b.gguf",
            ".hidden",
        ] {
            assert!(is_safe_path(path), "{path}");
        }
        for path in [
            "", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a\nb", "a\0b",
        ] {
            assert!(!is_safe_path(path), "{path:?}");
        }
    }
}
