//! A draft in the editor that the environment names: written to a private file, read back when the editor ends.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use tokio::sync::oneshot;

use crate::ui::cells;

/// The most cells of a command in a message.
const NAMED: usize = 20;
/// The largest draft that is read back.
const LARGEST: u64 = 16 << 20;

/// An editor that runs. Dropped, it takes a draft's file along, and ends the editor.
#[derive(Debug)]
pub struct Outside {
    command: String,
    file: PathBuf,
    /// Whether the file is a draft, which nobody else needs.
    draft: bool,
    /// What the file began with, if it is new: as long as it holds just that, nobody needs it.
    unchanged: Option<String>,
    process: Option<rustix::process::Pid>,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
}

/// The editor's command line: `$VISUAL`, else `$EDITOR`, else `vi`. The environment is looked up by `var`.
pub fn command(var: impl Fn(&str) -> Option<String>) -> String {
    ["VISUAL", "EDITOR"]
        .iter()
        .filter_map(|name| var(name))
        .find(|command| !command.trim().is_empty())
        .unwrap_or_else(|| "vi".into())
}

impl Outside {
    /// Starts an editor on a text, which is kept in a file of this folder meanwhile; or says why that can't be. Standard
    /// input and output have to be the terminal, which nobody else may read.
    pub fn start(command: &str, folder: &Path, text: &str) -> Result<Self, String> {
        let file = folder.join(format!("draft-{}.md", std::process::id()));
        let kept = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&file)?;
            file.write_all(text.as_bytes())?;
            // Who appends a line appends one; what ends with a line's end has none to be taken off again.
            file.write_all(if text.is_empty() { b"" } else { b"\n" })
        };
        kept().map_err(|error| format!("can't write {} for the editor: {error}", file.display()))?;
        Self::run(command, file, true)
    }

    /// Starts an editor on a file of the person's; where there is none, on one that begins with this text, and that goes again unless it is changed.
    pub fn open(command: &str, file: &Path, begins: &str) -> Result<Self, String> {
        let folder = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.map_err(|error| format!("can't make the folder of {}: {error}", file.display()))?;
        let new = match OpenOptions::new().write(true).create_new(true).open(file) {
            Ok(mut new) => new.write_all(begins.as_bytes()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        };
        let new = new.map_err(|error| format!("can't write {}: {error}", file.display()))?;
        let mut outside = Self::run(command, file.to_owned(), false);
        let unchanged = new.then(|| begins.to_owned());
        match &mut outside {
            Ok(outside) => outside.unchanged = unchanged,
            Err(_) => forget(file, unchanged.as_deref()),
        }
        outside
    }

    fn run(command: &str, file: PathBuf, draft: bool) -> Result<Self, String> {
        // The command may hold arguments, as in `code --wait`; the file's name is nothing that a shell reads.
        let child = Command::new("sh")
            .args(["-c", &format!("{command} \"$1\""), "sh"])
            .arg(&file)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                if draft {
                    let _ = std::fs::remove_file(&file);
                }
                return Err(format!("can't start {command:?}: {error}"));
            }
        };
        let process = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        let (tell, ended) = oneshot::channel();
        let waits = std::thread::Builder::new().name("ui-editor".into());
        waits
            .spawn(move || drop(tell.send(child.wait())))
            .map_err(|error| format!("can't wait for {command:?}: {error}"))?;
        Ok(Self {
            command: command.to_owned(),
            file,
            draft,
            unchanged: None,
            process,
            ended,
        })
    }

    /// Waits until the editor has ended, and gives the text; or says why the draft stays as it is. May be dropped and
    /// asked again.
    pub async fn text(&mut self) -> Result<String, String> {
        let ended = (&mut self.ended).await;
        self.process = None;
        let command = cells::shorten(&self.command, NAMED, "...");
        match ended {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => {
                let ended = match status.code() {
                    // What a shell says of a command that it doesn't find.
                    Some(127) => {
                        return Err(format!(
                            "there is no program {command:?}: set $VISUAL or $EDITOR to your editor"
                        ));
                    }
                    Some(code) => format!("{command:?} ended with {code}"),
                    None => format!("{command:?} ended by a signal"),
                };
                return Err(match self.draft {
                    true => format!("the draft is as it was: {ended}"),
                    false => ended,
                });
            }
            Ok(Err(error)) => return Err(format!("can't wait for {command:?}: {error}")),
            Err(_) => return Err(format!("the draft is as it was: nobody waited for {command:?}")),
        }
        if !self.draft {
            return Ok(String::new());
        }
        let file = self.file.display();
        let read = || -> io::Result<Vec<u8>> {
            let size = std::fs::metadata(&self.file)?.len();
            if size > LARGEST {
                return Err(io::Error::other(format!(
                    "it is larger than {} MiB",
                    LARGEST >> 20
                )));
            }
            std::fs::read(&self.file)
        };
        let bytes = read().map_err(|error| format!("can't read {file} back: {error}"))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("the draft is as it was: what {command:?} wrote is no UTF-8 text"))?;
        // The last line's end is no part of it.
        Ok(text.strip_suffix('\n').map(str::to_owned).unwrap_or(text))
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(process) = self.process {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        if self.draft {
            let _ = std::fs::remove_file(&self.file);
        }
        forget(&self.file, self.unchanged.as_deref());
    }
}

/// Removes a file that still holds what it began with.
fn forget(file: &Path, began: Option<&str>) {
    if let Some(began) = began
        && std::fs::read(file).is_ok_and(|holds| holds == began.as_bytes())
    {
        let _ = std::fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(command: &str, text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let edited = runtime.block_on(async {
            let mut outside = Outside::start(command, folder.path(), text)?;
            outside.text().await
        });
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no file is left");
        edited
    }

    #[test]
    fn a_new_file_begins_with_a_text_and_is_kept_once_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/config.toml");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let open = |command: &str| {
            runtime.block_on(async {
                let mut outside = Outside::open(command, &file, "# begun\n")?;
                outside.text().await
            })
        };
        open("true").unwrap();
        assert!(!file.exists(), "nothing was written");
        open("test -s").unwrap();
        open("echo 'panes = 3' >>").unwrap();
        let kept = "# begun\npanes = 3\n";
        assert_eq!(std::fs::read_to_string(&file).unwrap(), kept);
        open("cat").unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            kept,
            "what is there stays"
        );
        assert!(open("/there/is/no/such/editor").is_err());
    }

    #[test]
    fn visual_comes_before_editor_and_there_is_always_one() {
        let var = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = pairs.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        assert_eq!(
            command(var(&[("EDITOR", "ed"), ("VISUAL", "code --wait")])),
            "code --wait"
        );
        assert_eq!(command(var(&[("EDITOR", "ed"), ("VISUAL", " ")])), "ed");
        assert_eq!(command(var(&[])), "vi");
    }

    #[test]
    fn what_the_editor_wrote_is_the_draft_without_its_last_line_end() {
        let script = "f() { printf 'more\\n' >> \"$1\"; }; f";
        assert_eq!(
            edited(script, "text "),
            Ok("text \nmore".into()),
            "a line of its own"
        );
        assert_eq!(edited(script, ""), Ok("more".into()));
        assert_eq!(edited("true", "as\nit was\n"), Ok("as\nit was\n".into()));
    }

    #[test]
    fn an_editor_that_fails_changes_nothing_and_says_why() {
        for (command, part) in [
            ("exit 3;", "ended with 3"),
            ("mlx-chat-no-such-editor", "there is no program"),
            ("kill -9 $$;", "by a signal"),
            ("f() { printf '\\377' > \"$1\"; }; f", "no UTF-8"),
            ("rm", "can't read"),
        ] {
            let why = edited(command, "text").unwrap_err();
            assert!(why.contains(part), "{command}: {why}");
        }
        assert!(
            Outside::start("true", Path::new("/nowhere"), "")
                .unwrap_err()
                .contains("can't write")
        );
    }

    #[test]
    fn the_file_is_the_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let outside = Outside::start("true", folder.path(), "secret").unwrap();
        let mode = std::fs::metadata(&outside.file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
