//! Settings that are read anew when their file changes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::command;
use super::settings::Applied;
use super::themes;
use crate::config::paths::Paths;
use crate::ui::Reload;

/// How often the file is looked at.
const LOOKS: Duration = Duration::from_millis(500);

/// Watches the settings file and the themes from now on; what comes of each change is received. Looking at it costs next to nothing, and
/// works on file systems that tell nothing. The thread ends when nobody receives any more.
pub fn settings(paths: &Paths) -> io::Result<UnboundedReceiver<Reload>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let paths = paths.clone();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let known = stamps(&paths);
    std::thread::Builder::new()
        .name("settings".into())
        .spawn(move || watch(&sender, &paths, &arguments, known))?;
    Ok(receiver)
}

/// When a file was last written, and its length; nothing where there is none.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The settings file and the themes beside it.
fn stamps(paths: &Paths) -> Vec<(PathBuf, Stamp)> {
    let mut files = themes::files(paths);
    files.push(paths.config_file());
    files
        .into_iter()
        .map(|path| (path.clone(), stamp(&path)))
        .collect()
}

fn watch(
    sender: &UnboundedSender<Reload>,
    paths: &Paths,
    arguments: &[OsString],
    mut known: Vec<(PathBuf, Stamp)>,
) {
    while !sender.is_closed() {
        std::thread::sleep(LOOKS);
        let now = stamps(paths);
        if now != known {
            known = now;
            // Nobody receives any more: the loop ends.
            let _ = sender.send(read(paths, arguments));
        }
    }
}

fn read(paths: &Paths, arguments: &[OsString]) -> Reload {
    let matches = command()
        .try_get_matches_from(arguments)
        .map_err(anyhow::Error::from);
    match matches.and_then(|matches| Applied::read(arguments, &matches, paths)) {
        Err(error) => Reload {
            look: None,
            wrong: vec![format!("{error:#}")],
        },
        Ok(applied) => {
            tracing::info!("settings read anew");
            let told = applied.config.told().into_iter();
            told.for_each(|problem| tracing::warn!(problem, "settings"));
            Reload {
                // Of a file that can't be read nothing is known; what else is wrong doesn't count, and the rest does.
                look: (!applied.config.unread).then(|| applied.look()),
                wrong: applied.notes(paths),
            }
        }
    }
}
