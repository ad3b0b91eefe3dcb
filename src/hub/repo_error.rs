//! What can go wrong with a repository of a model hub.

use std::path::PathBuf;

use super::error::SourceError;

/// What was sent to the hub to say who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// No token was found.
    WithoutToken,
    /// The token of this variable or file.
    WithToken(String),
}

impl Asked {
    fn advice(&self) -> String {
        match self {
            Self::WithoutToken => {
                "no token was sent: set HF_TOKEN to one of an account that may read it, or log in \
                with `hf auth login`"
                    .into()
            }
            Self::WithToken(from) => {
                format!("the token of {from} was sent: is it right, and may its account read it?")
            }
        }
    }
}

/// A repository of a model hub could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RepoError {
    /// The hub knows no such repository, or doesn't tell this user.
    #[error("{endpoint} has no such repository, or it is private{}; {}{}",
        if *.nor_path { ", and no file or folder is called so here" } else { "" }, .asked.advice(),
        .suggestion.as_ref().map(|s| format!(". Did you mean '{s}'?")).unwrap_or_default())]
    NoSuchRepository {
        /// The hub.
        endpoint: String,
        /// Who asked.
        asked: Asked,
        /// Whether there is no file or folder of that name either.
        nor_path: bool,
        /// The name nearest to it among those on this machine.
        suggestion: Option<String>,
    },
    /// The repository has no such branch, tag or commit.
    #[error("it has no revision '{0}'; a branch, a tag or a commit is one")]
    NoSuchRevision(String),
    /// A file that the listing named is not there.
    #[error("its file {0} is not there")]
    NoSuchFile(String),
    /// The hub doesn't know who asks, or doesn't believe it.
    #[error("not authorized (401); {}", .0.advice())]
    Unauthorized(Asked),
    /// The authors ask for consent first.
    #[error("it is gated: open {page} in a browser, accept its terms, then pull again; {}", .asked.advice())]
    Gated {
        /// The repository's page.
        page: String,
        /// Who asked.
        asked: Asked,
    },
    /// This account may not read it.
    #[error("forbidden (403){}; {}", .said.as_ref().map(|s| format!(": {s}")).unwrap_or_default(), .asked.advice())]
    Forbidden {
        /// The hub's own words.
        said: Option<String>,
        /// Who asked.
        asked: Asked,
    },
    /// What answers is no model hub.
    #[error("{endpoint} doesn't answer as a model hub does ({why}); if HF_ENDPOINT is set, check it")]
    NotAHub {
        /// The address asked.
        endpoint: String,
        /// What is wrong with its answer.
        why: String,
    },
    /// HF_ENDPOINT or the token can't be used.
    #[error("{0}")]
    Settings(String),
    /// The revision's files come from another commit than was resolved.
    #[error("{file} comes from commit {found}, but {expected} was asked for; pull again")]
    OtherCommit {
        /// The file.
        file: String,
        /// The commit that the answer named.
        found: String,
        /// The commit resolved first.
        expected: String,
    },
    /// A file's name would lead out of the folder.
    #[error("its file name {0:?} would lead elsewhere; it is refused")]
    UnsafeName(String),
    /// A file's tag or length is missing or unusable.
    #[error("the hub doesn't say {what} of {file}")]
    NoTag {
        /// The file.
        file: String,
        /// What is missing.
        what: &'static str,
    },
    /// Nothing that can be read as a model.
    #[error("it has no model that can be read: neither config.json with .safetensors files nor a .gguf file, but {}",
        if .files.is_empty() { "nothing".into() } else { .files.join(", ") })]
    NoModel {
        /// Some of what it has.
        files: Vec<String>,
    },
    /// A quantization was picked where there is none to pick: the model is a folder.
    #[error(
        "it has no GGUF files, of which ':{pick}' would name one, but safetensors: leave ':{pick}' out to take those"
    )]
    NothingToPick {
        /// What was asked for.
        pick: String,
    },
    /// No GGUF file of that kind.
    #[error("it has no GGUF file '{pick}'; there are: {}", .choices.join(", "))]
    NoSuchPick {
        /// What was asked for.
        pick: String,
        /// What there is.
        choices: Vec<String>,
    },
    /// Several files answer to what was picked.
    #[error("'{pick}' fits several files: {}; name one of them", .files.join(", "))]
    Ambiguous {
        /// What was asked for.
        pick: String,
        /// The files that fit.
        files: Vec<String>,
    },
    /// A split file of which the repository has not all parts.
    #[error("{missing} of its parts are missing beside {file}")]
    MissingParts {
        /// The first part there is.
        file: String,
        /// How many are not there.
        missing: usize,
    },
    /// The index names weights that the repository doesn't have.
    #[error("its index names weights that are not there: {}", .0.join(", "))]
    MissingShards(Vec<String>),
    /// A repository in the cache without the revision meant.
    #[error("the cache has no revision '{revision}' of it; it has: {}", .there.join(", "))]
    NotThisRevision {
        /// The revision meant.
        revision: String,
        /// Branches, tags and commits in the cache.
        there: Vec<String>,
    },
    /// Neither HF_HUB_CACHE, HF_HOME nor a home folder is set.
    #[error("no folder for its files is known: set HF_HOME, or HOME")]
    NoCache,
    /// It is not on this machine, and the network may not be used.
    #[error("it isn't in the cache {} and can't be downloaded offline. Run `mlx-chat models pull` with network, \
        or pass the path of a .gguf file or of a folder with config.json", .0.display())]
    NotCached(PathBuf),
    /// The network, the server, or the bytes that came.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl RepoError {
    /// Whether the hub wasn't reached at all.
    pub(super) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Source(SourceError::Net(error)) if error.is_unreachable())
    }
}
