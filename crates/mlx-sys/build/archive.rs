//! Unpacks wheels, which are zip archives.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::failure::{Failure, Outcome, io_failure};

/// A member's name as a relative path that stays inside the folder, or none for a name that would leave it.
pub fn safe_path(name: &str) -> Option<PathBuf> {
    if name.is_empty() || name.contains(['\\', '\0', ':']) {
        return None;
    }
    let path = Path::new(name);
    let inside = path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    inside.then(|| path.to_path_buf())
}

/// Where a wheel's member is installed: `package.data/platlib/x` means `x`, as the wheel format says.
pub fn installed_name(name: &str) -> &str {
    let below_data = name.split_once(".data/").map(|(_, rest)| rest);
    below_data
        .and_then(|rest| {
            rest.strip_prefix("platlib/")
                .or_else(|| rest.strip_prefix("purelib/"))
        })
        .unwrap_or(name)
}

/// When unpacked files say they were changed: 1980, where the time of zip archives begins.
const PACKED: Duration = Duration::from_secs(315_532_800);

/// Unpacks `archive` below `into`, but only the members that `wanted` picks.
pub fn unpack(archive: &Path, into: &Path, wanted: impl Fn(&str) -> bool) -> Outcome<()> {
    let broken =
        |e: &dyn std::fmt::Display| Failure::new(format!("could not unpack {}: {e}", archive.display()));
    let file = File::open(archive).map_err(|e| io_failure("open", archive, &e))?;
    let mut zip = zip::ZipArchive::new(io::BufReader::new(file)).map_err(|e| broken(&e))?;
    for index in 0..zip.len() {
        let mut member = zip.by_index(index).map_err(|e| broken(&e))?;
        let name = member.name().map_err(|e| broken(&e))?.into_owned();
        let name = installed_name(&name);
        let Some(relative) = safe_path(name) else {
            return Err(broken(&format!(
                "its member `{name}` would land outside of the folder; the archive is not to be trusted"
            )));
        };
        if !member.is_file() || !wanted(name) {
            continue;
        }
        let target = into.join(relative);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(|e| io_failure("create", parent, &e))?;
        }
        let mut out = File::create(&target).map_err(|e| io_failure("write", &target, &e))?;
        io::copy(&mut member, &mut out).map_err(|e| io_failure("write", &target, &e))?;
        // Older than any build: cargo builds again what depends on a file that changed during the build.
        let _keeps_its_time = out.set_modified(SystemTime::UNIX_EPOCH + PACKED);
    }
    Ok(())
}
