//! Takes a member out of each of some wheels, which are zip archives. A member's path is only looked up, never written to.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zip::ZipArchive;
use zip::result::ZipError;

use super::cancel::Cancel;
use super::disk;
use super::download::{Proof, Wanted, hex};
use super::error::{SourceError, Stop};
use super::progress::Progress;

/// Bytes unpacked at once.
const BLOCK: usize = 256 * 1024;

/// Writes the members of archives, one after the other, to `to`, and checks the length and SHA-256 of the whole. `to` is
/// deleted on any error.
pub(super) fn unpack(
    archives: &[(PathBuf, &str)],
    to: &Path,
    wanted: Wanted<'_>,
    progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<(), Stop> {
    let result = unpack_checked(archives, to, wanted, progress, cancel);
    if result.is_err() {
        disk::remove_file(to)?;
    }
    result
}

fn unpack_checked(
    archives: &[(PathBuf, &str)],
    to: &Path,
    wanted: Wanted<'_>,
    progress: &mut dyn FnMut(Progress),
    cancel: &Cancel,
) -> Result<(), Stop> {
    let wrong_size = |actual: u64| SourceError::WrongSize {
        what: wanted.name.into(),
        expected: wanted.bytes,
        actual,
    };
    let mut out = File::create(to).map_err(|error| disk::failed("write", to, error))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BLOCK];
    let mut done = 0u64;
    for (archive, member) in archives {
        let what = archive.file_name().unwrap_or_default().to_string_lossy();
        let bad = |why: String| SourceError::Archive {
            what: what.clone().into_owned(),
            why,
        };
        let file = File::open(archive).map_err(|error| disk::failed("read", archive, error))?;
        let mut zip = ZipArchive::new(BufReader::new(file)).map_err(|error| bad(error.to_string()))?;
        let mut source = zip.by_name(member).map_err(|error| match error {
            ZipError::FileNotFound => bad(format!("it has no file {member}")),
            error => bad(error.to_string()),
        })?;
        // What the archive says of itself: too much is noticed before it is written.
        if done.saturating_add(source.size()) > wanted.bytes {
            return Err(wrong_size(done.saturating_add(source.size())).into());
        }
        loop {
            progress(Progress::Unpacking {
                done,
                total: wanted.bytes,
            });
            if cancel.is_cancelled() {
                return Err(Stop::Interrupted);
            }
            let count = source.read(&mut buffer).map_err(|error| bad(error.to_string()))?;
            if count == 0 {
                break;
            }
            done += count as u64;
            if done > wanted.bytes {
                return Err(wrong_size(done).into());
            }
            let block = buffer.get(..count).unwrap_or_default();
            hasher.update(block);
            out.write_all(block)
                .map_err(|error| disk::write_failed(to, wanted.bytes - done, error))?;
        }
    }
    if done != wanted.bytes {
        return Err(wrong_size(done).into());
    }
    let actual = hex(&hasher.finalize());
    if wanted.proof != Proof::Sha256(&actual) {
        return Err(SourceError::WrongHash {
            what: wanted.name.into(),
            kind: "SHA-256",
            expected: wanted.proof.text().into(),
            actual,
        }
        .into());
    }
    out.sync_all().map_err(|error| disk::write_failed(to, 0, error))?;
    Ok(())
}
