//! What would make the screen wait, done on a thread of its own: files that are written and read, conversations that are
//! listed and searched.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use tokio::sync::mpsc::UnboundedSender;

use crate::chat::store::{Found, Listing};
use crate::chat::{Conversation, ExportFormat, Store};
use crate::ui::models::{self, Answer, Ask, Models};
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

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Something to say: what was done, or what went wrong.
    Told(Result<String, String>),
    /// The stored conversations, or why there is no list.
    Listed(Result<Listing, String>),
    /// What was found, or why nothing can be.
    Found {
        /// The question's number.
        number: u64,
        /// The answer.
        found: Result<Found, String>,
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
        Job::List => Done::Listed(store.list().map_err(|error| error.to_string())),
        Job::Search { number, text, limit } => Done::Found {
            number,
            found: store.search(&text, limit).map_err(|error| error.to_string()),
        },
        Job::Export {
            conversation,
            path,
            format,
        } => Done::Told(export(&conversation, &path, format)),
    }
}

fn export(conversation: &Conversation, path: &Path, format: ExportFormat) -> Result<String, String> {
    let document = format.document(conversation);
    let path = at_home(path);
    let wrong = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} is there already: name another file", path.display())
        }
        _ => format!("can't write {}: {error}", path.display()),
    };
    let mut file = std::fs::File::create_new(&path).map_err(wrong)?;
    file.write_all(document.as_bytes()).map_err(wrong)?;
    Ok(format!("written to {}", path.display()))
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
