//! What would make the screen wait, done on a thread of its own: files that are written and read.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use tokio::sync::mpsc::UnboundedSender;

use super::slash::Format;
use crate::chat::{Conversation, to_html, to_json, to_markdown};

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
        format: Format,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Something to say: what was done, or what went wrong.
    Told(Result<String, String>),
}

/// Starts the thread. It ends with the last sender of jobs; nobody waits for it.
pub fn start(done: UnboundedSender<Done>) -> std::io::Result<mpsc::Sender<Job>> {
    let (jobs, incoming) = mpsc::channel();
    std::thread::Builder::new()
        .name("ui-worker".into())
        .spawn(move || {
            while let Ok(job) = incoming.recv() {
                if done.send(carry_out(job)).is_err() {
                    return;
                }
            }
        })?;
    Ok(jobs)
}

/// Does a job, here and now.
pub fn carry_out(job: Job) -> Done {
    match job {
        Job::Export {
            conversation,
            path,
            format,
        } => Done::Told(export(&conversation, &path, format)),
    }
}

fn export(conversation: &Conversation, path: &Path, format: Format) -> Result<String, String> {
    let document = match format {
        Format::Markdown => to_markdown(conversation),
        Format::Json => format!("{:#}\n", to_json(conversation)),
        Format::Html => to_html(conversation),
    };
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

    fn job(path: PathBuf, format: Format) -> Job {
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
        for (name, format, part) in [
            ("a.md", Format::Markdown, "# Conversation"),
            ("a.json", Format::Json, "{"),
            ("a.html", Format::Html, "<!"),
        ] {
            let path = folder.path().join(name);
            let done = carry_out(job(path.clone(), format));
            assert!(matches!(&done, Done::Told(Ok(told)) if told.contains(name)), "{done:?}");
            assert!(std::fs::read_to_string(&path).unwrap().starts_with(part));
            let again = carry_out(job(path, format));
            assert!(matches!(&again, Done::Told(Err(why)) if why.contains("name another file")), "{again:?}");
        }
        let nowhere = carry_out(job(folder.path().join("none/a.md"), Format::Markdown));
        assert!(matches!(nowhere, Done::Told(Err(why)) if why.contains("can't write")));
    }
}
