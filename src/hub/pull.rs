//! One pull of a repository: the revision becomes a commit, the files needed are chosen, fetched a few at a time,
//! verified, and linked into the shared cache. A branch that moves meanwhile can't mix two commits.

use std::sync::Mutex;

use serde::Deserialize;

use super::Hub;
use super::access::Access;
use super::cache::{self, Cached};
use super::cancel::Cancel;
use super::choose::{self, Choice};
use super::disk;
use super::download::{Downloader, Proof, Wanted, check_bytes};
use super::error::{HubError, NetError, SourceError, Stop};
use super::http::{Client, Response};
use super::parallel;
use super::progress::Progress;
use super::repo_error::RepoError;
use super::repository::{RepoSpec, is_commit, is_hex, is_safe_path};
use super::resolve::{LocalModel, nearest};
use super::retry::Attempts;

/// No listing of a repository is larger.
const LISTING_LIMIT: u64 = 32 << 20;

/// What [`Hub::pull`] brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The model.
    pub model: LocalModel,
    /// Bytes of its files.
    pub bytes: u64,
    /// The commit, for a repository.
    pub commit: Option<String>,
    /// Whether it was there in full, and whole, so that nothing was downloaded.
    pub was_there: bool,
}

/// What a hub says of a revision.
#[derive(Debug, Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Debug, Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

/// A file to be fetched.
#[derive(Debug, Clone)]
struct RemoteFile {
    path: String,
    bytes: u64,
    /// Its entity tag, which names the blob: a SHA-256 for large files, git's id for small ones.
    tag: String,
}

impl RemoteFile {
    fn wanted(&self) -> Wanted<'_> {
        let proof = if is_hex(&self.tag, 64) {
            Proof::Sha256(&self.tag)
        } else if is_hex(&self.tag, 40) {
            Proof::GitBlob(&self.tag)
        } else {
            Proof::Length
        };
        Wanted {
            name: &self.path,
            bytes: self.bytes,
            proof,
        }
    }
}

impl Hub {
    /// Brings a repository's model into the cache that the hub's programs share. What is there is verified and stays.
    ///
    /// Blocks; stops within a moment after `cancel`, keeping what can be resumed.
    pub(super) fn pull_repository(
        &self,
        spec: &RepoSpec,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Pulled, HubError> {
        let failed = |error: RepoError| HubError::repository(spec, error);
        let root = cache::root(&self.around).ok_or_else(|| failed(RepoError::NoCache))?;
        let access = Access::read(&self.around).map_err(|why| failed(RepoError::Settings(why)))?;
        let client = self.client_of(&access);
        let pull = Pull {
            hub: self,
            spec,
            access,
            client,
            cached: Cached::new(&root, &spec.id),
            cancel,
        };
        let mut files = Vec::new();
        match pull.run(&mut files, progress) {
            Ok(pulled) => Ok(pulled),
            Err(Stop::Whole(error)) => Err(error),
            Err(Stop::Source(error)) => Err(failed(error.into())),
            Err(Stop::Interrupted) => Err(HubError::Interrupted {
                name: spec.to_string(),
                kept: files.iter().map(|file| pull.kept(file)).sum(),
            }),
        }
    }
}

/// What one pull works with.
struct Pull<'a> {
    hub: &'a Hub,
    spec: &'a RepoSpec,
    access: Access,
    client: Client,
    cached: Cached,
    cancel: &'a Cancel,
}

impl Pull<'_> {
    /// `files` becomes what is to be fetched, as soon as that is known.
    fn run(&self, files: &mut Vec<RemoteFile>, progress: &mut dyn FnMut(Progress)) -> Result<Pulled, Stop> {
        let listing = self.listing(progress)?;
        let commit = listing.sha;
        let sizes = |path: &str| {
            let named = listing.siblings.iter().find(|file| file.rfilename == path);
            named.and_then(|file| file.size)
        };
        let paths: Vec<&str> = listing
            .siblings
            .iter()
            .map(|file| file.rfilename.as_str())
            .collect();
        let choice = choose::choose(&paths, self.spec.pick.as_deref()).map_err(|error| self.fail(error))?;
        if let Some(path) = choice.files.iter().find(|path| !is_safe_path(path)) {
            return Err(self.fail(RepoError::UnsafeName(path.clone())));
        }
        if let Some(note) = &choice.note {
            progress(Progress::Note(note.clone()));
        }
        *files = self.heads(&commit, &choice, sizes, progress)?;
        self.cached.make_folders(&commit)?;
        self.check_room(files)?;
        let fetched = self.fetch(&commit, files, progress)?;
        for file in files.iter() {
            self.cached.link(&commit, &file.path, &file.tag)?;
        }
        let missing = cache::missing_shards(&self.cached.snapshot(&commit));
        if choice.label.is_none() && !missing.is_empty() {
            return Err(self.fail(RepoError::MissingShards(missing)));
        }
        self.cached.set_ref(self.spec.revision(), &commit)?;
        disk::sync_folder(&self.cached.snapshot(&commit));
        let (path, kind) = self
            .cached
            .path_of(&commit, choice.label.as_deref(), &choice.files);
        Ok(Pulled {
            model: LocalModel {
                name: self.spec.to_string(),
                path,
                kind,
            },
            bytes: self.cached.bytes(&commit, &choice.files),
            commit: Some(commit),
            was_there: !fetched,
        })
    }

    /// What the revision has, and its commit.
    fn listing(&self, progress: &mut dyn FnMut(Progress)) -> Result<Listing, Stop> {
        let revision = self.spec.revision();
        let address = self.access.listing(&self.spec.id, revision);
        let address = address.map_err(|why| self.fail(RepoError::Settings(why)))?;
        let mut attempts = Attempts::new(&self.hub.settings.retry);
        let text = loop {
            progress(Progress::Connecting {
                to: address.host().to_string(),
            });
            let answer = self
                .client
                .get(&address, &[("accept", "application/json")], self.cancel);
            let answer = match answer {
                Ok(response) => self.checked(response, None)?,
                Err(error) => Err(error),
            };
            match answer.and_then(|response| response.text(LISTING_LIMIT, self.cancel)) {
                Ok(text) => break text,
                Err(error) => attempts.failed(error, progress, self.cancel)?,
            }
        };
        let not_a_hub = |why: String| {
            self.fail(RepoError::NotAHub {
                endpoint: self.access.endpoint(),
                why,
            })
        };
        let listing: Listing = serde_json::from_str(&text).map_err(|error| not_a_hub(error.to_string()))?;
        if !is_commit(&listing.sha) {
            return Err(not_a_hub("it names no commit".into()));
        }
        Ok(listing)
    }

    /// Tag and length of each file, asked of the hub itself, not of where it keeps the bytes.
    fn heads(
        &self,
        commit: &str,
        choice: &Choice,
        sizes: impl Fn(&str) -> Option<u64> + Sync,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<RemoteFile>, Stop> {
        let found: Mutex<Vec<RemoteFile>> = Mutex::new(Vec::new());
        let work = |path: &String, tell: &mut dyn FnMut(Progress), stop: &Cancel| {
            let file = self.head(commit, path, sizes(path), tell, stop)?;
            let mut found = found.lock().unwrap_or_else(|poison| poison.into_inner());
            found.push(file);
            Ok(())
        };
        let mut told = |_, step| {
            if let Progress::Retrying { .. } = step {
                progress(step);
            }
        };
        parallel::each(&choice.files, work, &mut told, self.cancel)?;
        let mut found = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
        // The small ones first: what is wrong with a repository shows before gigabytes have come.
        found.sort_by(|a, b| (a.bytes, &a.path).cmp(&(b.bytes, &b.path)));
        Ok(found)
    }

    fn head(
        &self,
        commit: &str,
        path: &str,
        listed: Option<u64>,
        progress: &mut dyn FnMut(Progress),
        stop: &Cancel,
    ) -> Result<RemoteFile, Stop> {
        let address = self.access.file(&self.spec.id, commit, path);
        let address = address.map_err(|why| self.fail(RepoError::Settings(why)))?;
        // Compressed on the way, a file's length would be that of the compressed bytes.
        let headers = [("accept", "*/*"), ("accept-encoding", "identity")];
        let linked = |response: &Response| response.header("x-linked-etag").is_some();
        let mut attempts = Attempts::new(&self.hub.settings.retry);
        let response = loop {
            let answer = self.client.head(&address, &headers, stop, linked);
            let answer = match answer {
                Ok(response) => self.checked(response, Some(path))?,
                Err(error) => Err(error),
            };
            match answer {
                Ok(response) => break response,
                Err(error) => attempts.failed(error, progress, stop)?,
            }
        };
        if let Some(found) = response.header("x-repo-commit").filter(|found| *found != commit) {
            return Err(self.fail(RepoError::OtherCommit {
                file: path.into(),
                found: found.into(),
                expected: commit.into(),
            }));
        }
        let missing = |what| {
            self.fail(RepoError::NoTag {
                file: path.into(),
                what,
            })
        };
        let tag = response
            .header("x-linked-etag")
            .or_else(|| response.header("etag"));
        let tag = tag
            .map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"').to_string())
            .filter(|tag| is_tag(tag))
            .ok_or_else(|| missing("the tag"))?;
        let length = |name: &str| response.header(name)?.trim().parse().ok();
        // A redirect's own length is not the file's.
        let whole = (200..300).contains(&response.status);
        let bytes = length("x-linked-size")
            .or_else(|| whole.then(|| length("content-length")).flatten())
            .or(listed)
            .ok_or_else(|| missing("the length"))?;
        Ok(RemoteFile {
            path: path.into(),
            bytes,
            tag,
        })
    }

    /// An error unless all that is to come fits; a blob that several names share comes once.
    fn check_room(&self, files: &[RemoteFile]) -> Result<(), HubError> {
        let mut tags: Vec<&str> = Vec::new();
        let mut needed = 0u64;
        for file in files {
            if !tags.contains(&file.tag.as_str()) {
                tags.push(&file.tag);
                needed = needed.saturating_add(file.bytes.saturating_sub(self.kept(file)));
            }
        }
        let folder = self.cached.folder();
        // What is there already needs no reserve either.
        if needed == 0 {
            return Ok(());
        }
        disk::check_room(&folder, needed, (self.hub.around.free_bytes)(&folder))
    }

    /// Bytes of a file that are there.
    fn kept(&self, file: &RemoteFile) -> u64 {
        let blob = disk::length(&self.cached.blob(&file.tag));
        if blob == file.bytes {
            return blob;
        }
        disk::length(&self.cached.incomplete(&file.tag)).min(file.bytes)
    }

    /// Fetches what isn't there, a few files at a time; says whether that was anything.
    fn fetch(
        &self,
        commit: &str,
        files: &[RemoteFile],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, Stop> {
        let fetched = Mutex::new(false);
        let work = |file: &RemoteFile, tell: &mut dyn FnMut(Progress), stop: &Cancel| {
            if self.fetch_one(commit, file, tell, stop)? {
                *fetched.lock().unwrap_or_else(|poison| poison.into_inner()) = true;
            }
            // Hashed or downloaded, it is done.
            let (done, total) = (file.bytes, file.bytes);
            tell(Progress::Verifying { done, total });
            Ok(())
        };
        let mut tally = Tally::new(files.iter().map(|file| (file.bytes, self.kept(file))));
        let mut told = |at, step| {
            if let Some(step) = tally.observe(at, step) {
                progress(step);
            }
        };
        parallel::each(files, work, &mut told, self.cancel)?;
        Ok(fetched.into_inner().unwrap_or_else(|poison| poison.into_inner()))
    }

    /// Brings one file's blob to its place; says whether anything was downloaded.
    fn fetch_one(
        &self,
        commit: &str,
        file: &RemoteFile,
        progress: &mut dyn FnMut(Progress),
        stop: &Cancel,
    ) -> Result<bool, Stop> {
        let Some(_held) = self.cached.hold(&file.tag, progress, stop)? else {
            return Err(Stop::Interrupted);
        };
        let (blob, incomplete) = (self.cached.blob(&file.tag), self.cached.incomplete(&file.tag));
        if blob.is_file() {
            match check_bytes(&blob, file.wanted(), progress, stop)? {
                Ok(()) => return Ok(false),
                Err(_) => progress(Progress::Note(format!(
                    "{} is damaged and is fetched again",
                    file.path
                ))),
            }
        }
        // An empty file is complete before anything is asked for.
        let part = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&incomplete)
            .map_err(|error| disk::failed("write", &incomplete, error))?;
        drop(part);
        let address = self.access.file(&self.spec.id, commit, &file.path);
        let address = address.map_err(|why| self.fail(RepoError::Settings(why)))?;
        let mut downloader = Downloader {
            client: &self.client,
            retry: &self.hub.settings.retry,
            keeps_tags: false,
            progress,
            cancel: stop,
        };
        downloader
            .download(&address, file.wanted(), &incomplete)
            .map_err(|stop| self.of_file(stop, &file.path))?;
        std::fs::File::open(&incomplete)
            .and_then(|part| part.sync_all())
            .and_then(|()| std::fs::rename(&incomplete, &blob))
            .map_err(|error| disk::failed("write", &blob, error))?;
        Ok(true)
    }

    /// A response that isn't a refusal; a failure that may pass is the inner error.
    fn checked(&self, response: Response, file: Option<&str>) -> Result<Result<Response, NetError>, Stop> {
        let code = response.header("x-error-code").unwrap_or_default();
        let asked = || self.access.asked();
        let error = match (response.status, code, file) {
            (401 | 403, "GatedRepo", _) => RepoError::Gated {
                page: self.access.page(&self.spec.id),
                asked: asked(),
            },
            (_, "RevisionNotFound", _) => RepoError::NoSuchRevision(self.spec.revision().into()),
            (404, _, None) | (_, "RepoNotFound", _) => RepoError::NoSuchRepository {
                endpoint: self.access.endpoint(),
                asked: asked(),
                nor_path: !std::path::Path::new(&self.spec.to_string()).exists(),
                suggestion: nearest(&self.spec.id, &self.hub.known()).filter(|near| *near != self.spec.id),
            },
            (404, _, Some(file)) => RepoError::NoSuchFile(file.into()),
            (401, ..) => RepoError::Unauthorized(asked()),
            (403, ..) => RepoError::Forbidden {
                said: response.header("x-error-message").map(plain),
                asked: asked(),
            },
            (300..=399, _, Some(_)) => return Ok(Ok(response)),
            _ => return Ok(response.success()),
        };
        Err(self.fail(error))
    }

    /// A failed download, in words of the repository.
    fn of_file(&self, stop: Stop, file: &str) -> Stop {
        match stop {
            Stop::Source(SourceError::Net(NetError::Status {
                status: 404 | 410, ..
            })) => self.fail(RepoError::NoSuchFile(file.into())),
            Stop::Source(SourceError::Net(NetError::Status { status: 401, .. })) => {
                self.fail(RepoError::Unauthorized(self.access.asked()))
            }
            stop => stop,
        }
    }

    fn fail(&self, error: RepoError) -> Stop {
        Stop::Whole(HubError::repository(self.spec, error))
    }
}

/// Whether an entity tag can name a file.
fn is_tag(tag: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=128).contains(&tag.len()) && tag.bytes().all(fits)
}

/// What a server says, for a terminal: on one line, not for ever.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Adds up what several downloads tell.
struct Tally {
    files: Vec<Counts>,
}

#[derive(Default)]
struct Counts {
    total: u64,
    done: u64,
    hashed: u64,
}

impl Tally {
    /// Of files with these lengths, and bytes that are there.
    fn new(files: impl Iterator<Item = (u64, u64)>) -> Self {
        let counts = |(total, done)| Counts {
            total,
            done,
            hashed: 0,
        };
        Self {
            files: files.map(counts).collect(),
        }
    }

    /// Notes a step of one file; what to tell of all of them.
    fn observe(&mut self, at: usize, step: Progress) -> Option<Progress> {
        match step {
            Progress::Downloading { done, .. } => self.files.get_mut(at)?.done = done,
            Progress::Verifying { done, total } => {
                let counts = self.files.get_mut(at)?;
                (counts.done, counts.hashed) = (total, done);
            }
            // Each file has its own connection; which one is opened just now is no news.
            Progress::Connecting { .. } => return None,
            step => return Some(step),
        }
        let sum = |of: fn(&Counts) -> u64| self.files.iter().map(of).sum();
        let (done, total): (u64, u64) = (sum(|file| file.done), sum(|file| file.total));
        if done == total {
            let done = sum(|file| file.hashed);
            return Some(Progress::Verifying { done, total });
        }
        let finished = |file: &&Counts| file.hashed == file.total;
        Some(Progress::DownloadingFiles {
            done,
            total,
            finished: self.files.iter().filter(finished).count(),
            files: self.files.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_that_could_lead_elsewhere_name_no_file() {
        for tag in ["", "..", "a/b", "a.incomplete", "a\\b", "\"", &"a".repeat(200)] {
            assert!(!is_tag(tag), "{tag}");
        }
        assert!(is_tag(&"0a".repeat(32)) && is_tag("abc-def_1"));
    }

    #[test]
    fn the_bytes_of_several_files_are_added_up_and_finished_ones_counted() {
        let mut tally = Tally::new([(10, 0), (20, 5), (0, 0)].into_iter());
        let files = |done, finished| {
            Some(Progress::DownloadingFiles {
                done,
                total: 30,
                finished,
                files: 3,
            })
        };
        assert_eq!(
            tally.observe(0, Progress::Downloading { done: 4, total: 10 }),
            files(9, 1)
        );
        assert_eq!(
            tally.observe(0, Progress::Verifying { done: 10, total: 10 }),
            files(15, 2)
        );
        assert_eq!(tally.observe(1, Progress::Connecting { to: "x".into() }), None);
        assert_eq!(
            tally.observe(1, Progress::Downloading { done: 20, total: 20 }),
            Some(Progress::Verifying { done: 10, total: 30 })
        );
        assert_eq!(
            tally.observe(7, Progress::Downloading { done: 1, total: 1 }),
            None
        );
    }
}
