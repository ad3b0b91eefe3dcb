//! File operations with errors that say what to do.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use super::error::HubError;

/// Room left over beside what is written.
const RESERVE: u64 = 16 << 20;

/// The length of a file; 0 if there is none.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Bytes of a file, or of the files of a folder and of folders below, links in it not followed.
pub(super) fn bytes_of(path: &Path) -> u64 {
    if !path.is_dir() {
        return length(path);
    }
    let Ok(folder) = std::fs::read_dir(path) else {
        return 0;
    };
    let size = |item: std::fs::DirEntry| match item.metadata() {
        Ok(meta) if meta.is_dir() => bytes_of(&item.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    folder.flatten().map(size).sum()
}

/// Deletes a file; that there is none is fine.
pub(super) fn remove_file(path: &Path) -> Result<(), HubError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("delete", path, error)),
        _ => Ok(()),
    }
}

/// Makes a folder and those above it, readable by the user only.
pub(super) fn make_folder(path: &Path) -> Result<(), HubError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| failed("make the folder", path, error))
}

/// Makes a folder's entries durable. Some file systems can't; the files themselves are synced in any case.
pub(super) fn sync_folder(path: &Path) {
    if let Ok(folder) = File::open(path) {
        folder.sync_all().unwrap_or_default();
    }
}

/// An error unless `needed` bytes fit; unknown free space is taken to suffice.
pub(super) fn check_room(folder: &Path, needed: u64, free: Option<u64>) -> Result<(), HubError> {
    match free {
        Some(free) if free < needed.saturating_add(RESERVE) => Err(HubError::DiskFull {
            folder: folder.to_path_buf(),
            needed,
            free: Some(free),
        }),
        _ => Ok(()),
    }
}

/// The error of writing `left` bytes more.
pub(super) fn write_failed(path: &Path, left: u64, error: std::io::Error) -> HubError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => HubError::DiskFull {
            folder: path.parent().unwrap_or(path).to_path_buf(),
            needed: left,
            free: None,
        },
        _ => failed("write", path, error),
    }
}

/// The error of doing something with a file.
pub(super) fn failed(doing: &'static str, path: &Path, source: std::io::Error) -> HubError {
    let path = path.to_path_buf();
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem if doing != "read" => {
            HubError::NotWritable { path, source }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => HubError::DiskFull {
            folder: path,
            needed: 0,
            free: None,
        },
        _ => HubError::Io { doing, path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_needed_for_the_bytes_and_a_reserve() {
        let folder = Path::new("/models");
        assert!(check_room(folder, 100, None).is_ok());
        assert!(check_room(folder, 100, Some(100 + RESERVE)).is_ok());
        let error = check_room(folder, 98_000_000, Some(50_000_000))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("93M needed, 48M free") && error.contains("/models"),
            "{error}"
        );
    }

    #[test]
    fn a_full_disk_and_a_closed_folder_have_messages_of_their_own() {
        let full = write_failed(Path::new("/m/x"), 1_000_000, ErrorKind::StorageFull.into()).to_string();
        assert!(
            full.contains("not enough disk space in /m: 977K needed"),
            "{full}"
        );
        let closed = failed("write", Path::new("/m/x"), ErrorKind::PermissionDenied.into()).to_string();
        assert!(
            closed.contains("can't write to /m/x") && closed.contains("XDG_DATA_HOME"),
            "{closed}"
        );
    }
}
