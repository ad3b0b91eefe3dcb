//! What would make the screen wait, done on a thread of its own: files that are written and read, conversations that are
//! listed and searched.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use tokio::sync::mpsc::UnboundedSender;

use crate::chat::store::{Found, Listing};
use crate::chat::{
    Comparison, Conversation, ExportFormat, Imported, SessionId, Settings, Store, Taken, import,
};
use crate::ui::models::{self, Answer, Ask, Models};
use crate::ui::presets::{self, Library};
use crate::ui::settings_file::{self, Kept};
use crate::ui::writing::attach::{self, Entry, Seen};

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Write a conversation to a new file.
    Export {
        /// The conversation.
        conversation: Box<Conversation>,
        /// The file; a `~` at its front is the home folder.
        path: PathBuf,
        /// As what.
        format: ExportFormat,
    },
    /// Write a comparison of answers to a new file.
    ExportComparison {
        /// The answers.
        comparison: Box<Comparison>,
        /// The file; a `~` at its front is the home folder.
        path: PathBuf,
        /// As what.
        format: ExportFormat,
    },
    /// Read the conversations of a file from elsewhere.
    Import(PathBuf),
    /// Keep some of them.
    ImportMore(Box<Importing>),
    /// Read the presets.
    Presets {
        /// The folder of the person's own.
        folder: PathBuf,
        /// The one that is wanted, where one is.
        wanted: Option<String>,
    },
    /// Save settings as a preset.
    SavePreset {
        /// The folder of the person's own.
        folder: PathBuf,
        /// Its name.
        name: String,
        /// What it says.
        settings: Box<Settings>,
    },
    /// Delete a preset of the person's own.
    DeletePreset {
        /// The folder of these.
        folder: PathBuf,
        /// The preset's name.
        name: String,
    },
    /// Give a preset of the person's own another name.
    RenamePreset {
        /// The folder of these.
        folder: PathBuf,
        /// The preset's name.
        name: String,
        /// The new one.
        to: String,
    },
    /// Keep settings of the screen in the settings file.
    Keep {
        /// The file.
        file: PathBuf,
        /// The settings, in `[interface]`, with their values.
        settings: Vec<(&'static str, Kept)>,
        /// What to say behind that they are kept.
        but: String,
    },
    /// Read what is to be searched, before anything is.
    PrepareSearch,
    /// List the stored conversations.
    List,
    /// Search them. Of several such questions that wait, the last alone is answered.
    Search {
        /// The question's number, which its answer bears.
        number: u64,
        /// The words, all of which have to be there.
        text: String,
        /// The most hits that are wanted.
        limit: usize,
    },
    /// Find out whether another process has a stored conversation open.
    Held(SessionId),
    /// See what is at paths. Of several such questions that wait, the last alone is answered.
    Look(Vec<String>),
    /// List a folder, as a draft mentions it.
    Folder(String),
    /// Read the files that a prompt mentions.
    Attach {
        /// The prompt's number, which the answer bears.
        number: u64,
        /// The prompt.
        text: String,
        /// The paths.
        paths: Vec<String>,
        /// Tokens that the model takes; 0 where that isn't known.
        context: usize,
    },
    /// Find out or do something about models.
    Models(Ask),
}

/// Conversations from elsewhere on their way into the store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Importing {
    /// Those that are still to be kept, the first one last.
    pub left: Vec<Imported>,
    /// How many there are in all.
    pub total: usize,
    /// How many of them were imported before.
    pub known: usize,
    /// What of the file is none of them, and why.
    pub left_out: Vec<String>,
}

/// Conversations that are kept before other jobs get their turn.
const AT_ONCE: usize = 100;

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Something to say: what was done, or what went wrong.
    Told(Result<String, String>),
    /// Conversations from elsewhere, as far as they are kept.
    Imported(Box<Importing>),
    /// The presets, and which is wanted.
    Presets {
        /// All that there are.
        library: Library,
        /// The one that is wanted, where one is.
        wanted: Option<String>,
    },
    /// What came of a preset that was to be deleted or renamed, and those that there are now.
    PresetChanged(Result<String, String>, Library),
    /// There is nothing to say.
    Nothing,
    /// The stored conversations, or why there is no list.
    Listed(Result<Listing, String>),
    /// What was found, or why nothing can be.
    Found {
        /// The question's number.
        number: u64,
        /// The answer.
        found: Result<Found, String>,
    },
    /// Whether another process has a stored conversation open.
    Held {
        /// Which.
        session: SessionId,
        /// Whether it has.
        elsewhere: bool,
    },
    /// What is at paths.
    Looked(Vec<(String, Seen)>),
    /// The names in a folder.
    Names {
        /// The folder, as it was asked for.
        folder: String,
        /// The names.
        entries: Vec<Entry>,
    },
    /// A prompt with its files, or why it can't be sent.
    Prompt {
        /// Its number.
        number: u64,
        /// The whole text.
        text: Result<String, String>,
    },
    /// What came of a question about models.
    Models(Answer),
}

/// Starts the thread, which reads conversations from `store` and asks `models`. It ends with the last sender of jobs;
/// nobody waits for it.
pub fn start(
    store: Store,
    models: Arc<dyn Models>,
    done: UnboundedSender<Done>,
) -> std::io::Result<mpsc::Sender<Job>> {
    let (jobs, incoming) = mpsc::channel();
    std::thread::Builder::new()
        .name("ui-worker".into())
        .spawn(move || {
            let mut waiting = VecDeque::new();
            while let Some(job) = waiting.pop_front().or_else(|| incoming.recv().ok()) {
                waiting.extend(incoming.try_iter());
                let again = |later: &Job| {
                    let searches = |job: &Job| matches!(job, Job::Search { .. });
                    let looks = |job: &Job| matches!(job, Job::Look(_));
                    searches(&job) && searches(later) || looks(&job) && looks(later)
                };
                if waiting.iter().any(again) {
                    continue;
                }
                let outcome = match job {
                    Job::Models(ask) => Done::Models(models::answer(&*models, ask)),
                    job => carry_out(job, &store),
                };
                if done.send(outcome).is_err() {
                    return;
                }
            }
        })?;
    Ok(jobs)
}

/// Does a job for which only conversations and files are needed, here and now.
pub fn carry_out(job: Job, store: &Store) -> Done {
    match job {
        // The thread asks the models themselves.
        Job::Models(_) => Done::Told(Err("no models are known here".into())),
        Job::Look(paths) => {
            let seen = paths.into_iter().map(|path| {
                let seen = attach::look(&path);
                (path, seen)
            });
            Done::Looked(seen.collect())
        }
        Job::Folder(folder) => Done::Names {
            entries: attach::entries(&folder),
            folder,
        },
        Job::Attach {
            number,
            text,
            paths,
            context,
        } => Done::Prompt {
            number,
            text: attach::prompt(&text, &paths, context),
        },
        Job::Presets { folder, wanted } => Done::Presets {
            library: Library::read(&folder),
            wanted,
        },
        Job::SavePreset {
            folder,
            name,
            settings,
        } => Done::Told(presets::save(&folder, &name, &settings)),
        Job::DeletePreset { folder, name } => {
            let told = presets::delete(&folder, &name);
            Done::PresetChanged(told, Library::read(&folder))
        }
        Job::RenamePreset { folder, name, to } => {
            let told = presets::rename(&folder, &name, &to);
            Done::PresetChanged(told, Library::read(&folder))
        }
        Job::Keep { file, settings, but } => {
            let told = settings_file::keep(&file, &settings);
            Done::Told(told.map(|told| format!("{told}{but}")))
        }
        Job::Import(path) => read_import(&path),
        Job::ImportMore(importing) => import_more(importing, store),
        Job::PrepareSearch => {
            // Where this goes wrong, the search itself tells.
            let _ = store.prepare_search();
            Done::Nothing
        }
        Job::ExportComparison {
            comparison,
            path,
            format,
        } => Done::Told(write_new(&format.comparison(&comparison), &path)),
        Job::List => Done::Listed(store.list().map_err(|error| error.to_string())),
        Job::Held(session) => Done::Held {
            session,
            elsewhere: store.is_open_elsewhere(session),
        },
        Job::Search { number, text, limit } => Done::Found {
            number,
            found: store.search(&text, limit).map_err(|error| error.to_string()),
        },
        Job::Export {
            conversation,
            path,
            format,
        } => Done::Told(write_new(&format.document(&conversation), &path)),
    }
}

/// Reads a file of conversations from elsewhere.
fn read_import(path: &Path) -> Done {
    let path = at_home(path);
    let imported = read_whole(&path)
        .and_then(|text| import(&text).map_err(|error| format!("can't import {}: {error}", shown(&path))));
    match imported {
        Ok(read) => {
            let left_out = read.left_out().collect();
            let left: Vec<Imported> = read.conversations.into_iter().rev().collect();
            Done::Imported(Box::new(Importing {
                total: left.len(),
                left,
                known: 0,
                left_out,
            }))
        }
        Err(why) => Done::Told(Err(why)),
    }
}

/// The text of a regular file: others may never end, or never begin.
fn read_whole(path: &Path) -> Result<String, String> {
    let found = std::fs::metadata(path);
    match found {
        Ok(found) if !found.is_file() => Err(format!("can't read {}: it is no regular file", shown(path))),
        Ok(_) => {
            std::fs::read_to_string(path).map_err(|error| format!("can't read {}: {error}", shown(path)))
        }
        Err(error) => Err(format!("can't read {}: {error}", shown(path))),
    }
}

/// Keeps the next of the conversations.
fn import_more(mut importing: Box<Importing>, store: &Store) -> Done {
    let mut store = store.reader();
    for _ in 0..AT_ONCE {
        let Some(next) = importing.left.pop() else { break };
        match store.take_in(next, jiff::Timestamp::now()) {
            Ok(Taken::New(_)) => {}
            Ok(Taken::Known(_)) => importing.known += 1,
            Err(error) => {
                let kept = importing.total - importing.left.len() - 1;
                return Done::Told(Err(format!(
                    "{kept} of {} conversations are imported, then: {error}",
                    importing.total
                )));
            }
        }
    }
    Done::Imported(importing)
}

/// Writes a document to a file that isn't there yet.
fn write_new(document: &str, path: &Path) -> Result<String, String> {
    let path = at_home(path);
    let wrong = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} is there already: name another file", shown(&path))
        }
        _ => format!("can't write {}: {error}", shown(&path)),
    };
    let mut file = std::fs::File::create_new(&path).map_err(wrong)?;
    file.write_all(document.as_bytes()).map_err(wrong)?;
    Ok(format!("written to {}", shown(&path)))
}

/// A path as it is told: the whole of it, the home folder as `~`.
pub(super) fn shown(path: &Path) -> String {
    let path = at_home(path);
    let whole = std::path::absolute(&path).unwrap_or(path);
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.as_ref().and_then(|home| whole.strip_prefix(home).ok()) {
        Some(rest) => Path::new("~").join(rest).display().to_string(),
        None => whole.display().to_string(),
    }
}

/// A path whose `~` at the front is the home folder.
pub(super) fn at_home(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{Pane, SessionId, Settings};

    fn job(path: PathBuf, format: ExportFormat) -> Job {
        let pane = Pane::new(SessionId::from_bits(1), Settings::default());
        Job::Export {
            conversation: Box::new(pane.conversation("model")),
            path,
            format,
        }
    }

    #[test]
    fn a_conversation_is_written_to_a_new_file_and_over_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        for (name, format, part) in [
            ("a.md", ExportFormat::Markdown, "# Conversation"),
            ("a.json", ExportFormat::Json, "{"),
            ("a.html", ExportFormat::Html, "<!"),
        ] {
            let path = folder.path().join(name);
            let done = carry_out(job(path.clone(), format), &store);
            assert!(
                matches!(&done, Done::Told(Ok(told)) if told.contains(name)),
                "{done:?}"
            );
            assert!(std::fs::read_to_string(&path).unwrap().starts_with(part));
            let again = carry_out(job(path, format), &store);
            assert!(
                matches!(&again, Done::Told(Err(why)) if why.contains("name another file")),
                "{again:?}"
            );
        }
        let nowhere = carry_out(
            job(folder.path().join("none/a.md"), ExportFormat::Markdown),
            &store,
        );
        assert!(matches!(nowhere, Done::Told(Err(why)) if why.contains("can't write")));
    }
}
