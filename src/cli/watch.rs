//! Settings that are read anew when their file changes.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use toml::Value;

use super::command;
use super::settings::Applied;
use super::themes;
use crate::config::Config;
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
    let started = applied(&paths, &arguments).ok().map(|applied| applied.config);
    std::thread::Builder::new()
        .name("settings".into())
        .spawn(move || watch(&sender, &paths, &arguments, started.as_ref(), known))?;
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
    started: Option<&Config>,
    mut known: Vec<(PathBuf, Stamp)>,
) {
    while !sender.is_closed() {
        std::thread::sleep(LOOKS);
        let now = stamps(paths);
        if now != known {
            known = now;
            // Nobody receives any more: the loop ends.
            let _ = sender.send(read(paths, arguments, started));
        }
    }
}

fn applied(paths: &Paths, arguments: &[OsString]) -> anyhow::Result<Applied> {
    let matches = command().try_get_matches_from(arguments)?;
    Applied::read(arguments, &matches, paths)
}

/// Says which settings are other ones than those that the program has started with, and count from the next start.
fn later(started: &Config, now: &Config) -> Option<String> {
    let other = |key: &str, value: &Value| {
        let before = started.entries.iter().find(|entry| entry.setting.key == key);
        before.is_some_and(|entry| entry.value != *value)
    };
    let changed: Vec<&str> = now
        .entries
        .iter()
        .filter(|entry| {
            !entry.setting.key.starts_with("interface.") && other(entry.setting.key, &entry.value)
        })
        .map(|entry| entry.setting.key)
        .collect();
    (!changed.is_empty()).then(|| {
        format!(
            "from the next start on, as they have changed: {}",
            changed.join(", ")
        )
    })
}

fn read(paths: &Paths, arguments: &[OsString], started: Option<&Config>) -> Reload {
    match applied(paths, arguments) {
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
                wrong: applied
                    .notes(paths)
                    .into_iter()
                    .chain(started.and_then(|started| later(started, &applied.config)))
                    .collect(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Sources;

    #[test]
    fn what_counts_from_the_next_start_is_told_and_looks_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Config::read(&Sources {
                file: &file,
                var: &|_| None,
                variables: &[],
                flags: &BTreeMap::new(),
                actions: &[],
                check: &|_, _| Ok(()),
            })
        };
        let started = read("[engine]\nmax_batch = 4\n");
        assert_eq!(later(&started, &started), None);
        let now = read("[engine]\nmax_batch = 5\n[interface]\nvim = true\n");
        assert_eq!(
            later(&started, &now).unwrap(),
            "from the next start on, as they have changed: engine.max_batch"
        );
        assert_eq!(
            later(
                &started,
                &read("[engine]\nmax_batch = 4\n[interface]\nvim = true\n")
            ),
            None
        );
    }
}
