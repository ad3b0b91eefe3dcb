//! Brings one file of known length and hash to disk, resuming where an earlier attempt or an earlier run ended.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::address::Address;
use super::cancel::Cancel;
use super::disk;
use super::error::{HubError, NetError, SourceError, Stop};
use super::http::{Client, Response};
use super::progress::Progress;
use super::retry::{Attempts, Retry};

/// Bytes read at once when hashing.
const BLOCK: usize = 256 * 1024;

/// The file wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Its name in messages.
    pub name: &'a str,
    /// Its length.
    pub bytes: u64,
    /// What proves that the bytes are the right ones.
    pub proof: Proof<'a>,
}

/// What proves that a file's bytes are the right ones; hashes in lower-case hex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof<'a> {
    /// The SHA-256 of its bytes.
    Sha256(&'a str),
    /// Its id as git names blobs: the SHA-1 of `blob LENGTH\0` and its bytes.
    GitBlob(&'a str),
    /// Its length is all that is known.
    Length,
}

impl<'a> Proof<'a> {
    /// The hash, empty where there is none.
    pub fn text(self) -> &'a str {
        match self {
            Self::Sha256(hash) | Self::GitBlob(hash) => hash,
            Self::Length => "",
        }
    }
}

/// What is kept beside a partial file, to ask only for the rest of the very same file.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Resume {
    /// SHA-256 of the address it came from: the address itself may hold secrets.
    from: String,
    /// The server's strong entity tag.
    etag: Option<String>,
}

/// How a download is run.
pub(super) struct Downloader<'a> {
    pub client: &'a Client,
    pub retry: &'a Retry,
    /// Whether the server's entity tag is kept beside the partial file, to ask only for the rest of the very same one.
    /// There is no need where the file's name says what its bytes are.
    pub keeps_tags: bool,
    pub progress: &'a mut dyn FnMut(Progress),
    pub cancel: &'a Cancel,
}

impl Downloader<'_> {
    /// Downloads into `part` until it has the wanted length and hash. When stopped, `part` stays for the next run; when
    /// the hash is wrong it is deleted.
    pub fn download(&mut self, address: &Address, wanted: Wanted<'_>, part: &Path) -> Result<(), Stop> {
        let resumed = self.complete(address, wanted, part)?;
        match self.verify(part, wanted) {
            // What an earlier run left may have been of another file: once more, from the beginning.
            Err(Stop::Source(SourceError::WrongHash { .. })) if resumed => {
                self.complete(address, wanted, part)?;
                self.verify(part, wanted)
            }
            result => result,
        }
    }

    /// Brings `part` to its full length; says whether its beginning was there before.
    fn complete(&mut self, address: &Address, wanted: Wanted<'_>, part: &Path) -> Result<bool, Stop> {
        let mut attempts = Attempts::new(self.retry);
        let had = disk::length(part);
        loop {
            let before = disk::length(part);
            if before == wanted.bytes {
                return Ok(had > 0);
            }
            if before > wanted.bytes {
                disk::remove_file(part)?;
                continue;
            }
            let failure = match self.attempt(address, wanted, part) {
                Ok(()) => continue,
                Err(Stop::Source(SourceError::Net(error))) => error,
                Err(stop) => return Err(stop),
            };
            if disk::length(part) > before {
                attempts.gained();
            }
            attempts.failed(failure, self.progress, self.cancel)?;
        }
    }

    /// One request; returns when the server has nothing more to send and the file is complete.
    fn attempt(&mut self, address: &Address, wanted: Wanted<'_>, part: &Path) -> Result<(), Stop> {
        let mut have = disk::length(part);
        let resume_file = resume_path(part);
        let from = hex(&Sha256::digest(address.wire().as_bytes()));
        let range = format!("bytes={have}-");
        let known = std::fs::read(&resume_file)
            .ok()
            .filter(|_| self.keeps_tags)
            .and_then(|text| serde_json::from_slice::<Resume>(&text).ok());
        let etag = known
            .filter(|known| known.from == from)
            .and_then(|known| known.etag);
        // Compressed on the way, a file's ranges and lengths would be those of the compressed bytes.
        let mut headers = vec![("accept", "*/*"), ("accept-encoding", "identity")];
        if have > 0 {
            headers.push(("range", &range));
            headers.extend(etag.as_deref().map(|etag| ("if-range", etag)));
        }
        (self.progress)(Progress::Connecting {
            to: address.host().to_string(),
        });
        let mut response = self.client.get(address, &headers, self.cancel)?;
        match response.status {
            206 if have > 0 => {
                if let Err(error) = check_range(&response, have, wanted) {
                    disk::remove_file(part)?;
                    return Err(error.into());
                }
            }
            416 if have > 0 => {
                disk::remove_file(part)?;
                return Err(broken(&response, "it has no such range; starting over").into());
            }
            _ => {
                response = response.success()?;
                check_length(&response, wanted)?;
                have = 0;
            }
        }
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(part)
            .map_err(|e| disk::failed("open", part, e))?;
        if disk::length(part) != have {
            file.set_len(have).map_err(|e| disk::failed("write", part, e))?;
        }
        file.seek(SeekFrom::Start(have))
            .map_err(|e| disk::failed("write", part, e))?;
        if self.keeps_tags {
            let etag = response
                .header("etag")
                .filter(|tag| !tag.starts_with("W/"))
                .map(str::to_string);
            let resume = serde_json::to_vec(&Resume { from, etag }).unwrap_or_default();
            std::fs::write(&resume_file, resume).map_err(|e| disk::failed("write", &resume_file, e))?;
        }
        self.receive(&mut response, &mut file, have, wanted, part)
    }

    fn receive(
        &mut self,
        response: &mut Response,
        file: &mut File,
        have: u64,
        wanted: Wanted<'_>,
        part: &Path,
    ) -> Result<(), Stop> {
        let mut done = have;
        (self.progress)(Progress::Downloading {
            done,
            total: wanted.bytes,
        });
        while let Some(bytes) = response.next(self.cancel)? {
            if done + bytes.len() as u64 > wanted.bytes {
                disk::remove_file(part)?;
                let actual = done + bytes.len() as u64;
                return Err(SourceError::WrongSize {
                    what: wanted.name.into(),
                    expected: wanted.bytes,
                    actual,
                }
                .into());
            }
            file.write_all(&bytes)
                .map_err(|error| disk::write_failed(part, wanted.bytes - done, error))?;
            done += bytes.len() as u64;
            (self.progress)(Progress::Downloading {
                done,
                total: wanted.bytes,
            });
        }
        if done < wanted.bytes {
            return Err(broken(
                response,
                &format!("it ended after {done} of {} bytes", wanted.bytes),
            )
            .into());
        }
        Ok(())
    }

    /// Compares the hash of `part`, which is deleted when it differs.
    fn verify(&mut self, part: &Path, wanted: Wanted<'_>) -> Result<(), Stop> {
        let Err(error) = check_bytes(part, wanted, self.progress, self.cancel)? else {
            return Ok(());
        };
        discard(part)?;
        Err(error.into())
    }
}

/// Deletes a partial file and what is kept beside it.
pub(super) fn discard(part: &Path) -> Result<(), HubError> {
    disk::remove_file(&resume_path(part))?;
    disk::remove_file(part)
}

fn resume_path(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_os_string();
    name.push(".json");
    name.into()
}

fn broken(response: &Response, cause: &str) -> NetError {
    NetError::Broken {
        address: response.address.to_string(),
        cause: cause.into(),
    }
}

/// A complete answer must announce the wanted length, where it announces one.
fn check_length(response: &Response, wanted: Wanted<'_>) -> Result<(), SourceError> {
    let announced = response
        .header("content-length")
        .and_then(|text| text.trim().parse().ok());
    match announced {
        Some(actual) if actual != wanted.bytes && response.header("content-encoding").is_none() => {
            Err(SourceError::WrongSize {
                what: wanted.name.into(),
                expected: wanted.bytes,
                actual,
            })
        }
        _ => Ok(()),
    }
}

/// A partial answer must begin where we ended, and be of a file of the wanted length.
fn check_range(response: &Response, have: u64, wanted: Wanted<'_>) -> Result<(), SourceError> {
    let parsed = response.header("content-range").and_then(parse_content_range);
    match parsed {
        Some((_, Some(actual))) if actual != wanted.bytes => Err(SourceError::WrongSize {
            what: wanted.name.into(),
            expected: wanted.bytes,
            actual,
        }),
        Some((start, _)) if start == have => Ok(()),
        _ => Err(broken(response, "it sent another range than asked for").into()),
    }
}

/// First byte and whole length of `bytes 0-9/10` (RFC 9110, section 14.4).
fn parse_content_range(value: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = value.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, total.trim().parse().ok()))
}

/// Whether a file has the length and the bytes wanted; the inner error says what differs. The length, which costs
/// nothing, comes first.
pub(super) fn check_bytes(
    path: &Path,
    wanted: Wanted<'_>,
    progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<Result<(), SourceError>, Stop> {
    let length = disk::length(path);
    let what = || wanted.name.to_string();
    if length != wanted.bytes {
        return Ok(Err(SourceError::WrongSize {
            what: what(),
            expected: wanted.bytes,
            actual: length,
        }));
    }
    let (kind, expected, actual) = match wanted.proof {
        Proof::Sha256(expected) => {
            let hash = hash_of(path, Sha256::new(), progress, cancel)?;
            ("SHA-256", expected, hash)
        }
        Proof::GitBlob(expected) => {
            let begun = Sha1::new_with_prefix(format!("blob {length}\0"));
            ("git blob id", expected, hash_of(path, begun, progress, cancel)?)
        }
        Proof::Length => return Ok(Ok(())),
    };
    if actual == expected {
        return Ok(Ok(()));
    }
    let expected = expected.to_string();
    Ok(Err(SourceError::WrongHash {
        what: what(),
        kind,
        expected,
        actual,
    }))
}

/// The hash of a file's bytes behind what `hasher` has already taken in, lower-case hex.
fn hash_of(
    path: &Path,
    mut hasher: impl Digest,
    progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<String, Stop> {
    let failed = |error| disk::failed("read", path, error);
    let mut file = File::open(path).map_err(failed)?;
    let total = disk::length(path);
    let mut buffer = vec![0; BLOCK];
    let mut done = 0;
    loop {
        progress(Progress::Verifying { done, total });
        if cancel.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        let count = file.read(&mut buffer).map_err(failed)?;
        if count == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
        done += count as u64;
    }
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_parsed() {
        assert_eq!(parse_content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(parse_content_range("bytes 5-9/*"), Some((5, None)));
        assert_eq!(parse_content_range("bytes */10"), None);
        assert_eq!(parse_content_range("items 5-9/10"), None);
    }

    #[test]
    fn a_file_is_checked_by_length_then_by_the_hash_of_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let check = |bytes, proof| {
            let wanted = Wanted {
                name: "abc",
                bytes,
                proof,
            };
            let mut steps = 0;
            let result = check_bytes(&path, wanted, &mut |_| steps += 1, &Cancel::new()).unwrap();
            (result.map_err(|error| error.to_string()), steps)
        };
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(check(3, Proof::Sha256(sha256)).0, Ok(()));
        // As `printf abc | git hash-object --stdin` prints it.
        let blob = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
        assert_eq!(check(3, Proof::GitBlob(blob)).0, Ok(()));
        assert_eq!(check(3, Proof::Length), (Ok(()), 0));
        let (wrong, _) = check(3, Proof::GitBlob(sha256));
        assert!(wrong.unwrap_err().contains(&format!("git blob id {blob}")));
        let (short, steps) = check(4, Proof::Sha256(sha256));
        assert!(short.unwrap_err().contains("has 3 bytes, but 4 are expected"));
        assert_eq!(steps, 0, "nothing is hashed");
    }
}
