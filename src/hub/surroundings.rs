//! What the hub asks of the world around it, in one place so that tests can answer instead.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use super::cancel::Cancel;

/// Answers about a variable.
pub type AskVariable = Arc<dyn Fn(&str) -> Option<OsString> + Send + Sync>;

/// Answers about a path.
pub type AskPath<Answer> = Arc<dyn Fn(&Path) -> Option<Answer> + Send + Sync>;

/// Answers for the installed Python with one line, or says why there is none.
pub type AskPython = dyn Fn(PythonQuestion, &Cancel) -> Result<String, String> + Send + Sync;

/// What only the user's Python knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonQuestion {
    /// The package index that pip uses when nothing is configured.
    DefaultIndex,
}

/// Environment variables, settings files, Python and free disk space, each behind a function.
#[derive(Clone)]
pub struct Surroundings {
    /// An environment variable.
    pub var: AskVariable,
    /// The text of a settings file, if it is there.
    pub settings_file: AskPath<String>,
    /// Python's answer, or why there is none.
    pub python: Arc<AskPython>,
    /// Bytes free for this user in a folder, if that can be told.
    pub free_bytes: AskPath<u64>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}

impl Surroundings {
    /// The real ones.
    pub fn of_process() -> Self {
        Self {
            var: Arc::new(|name| std::env::var_os(name)),
            settings_file: Arc::new(|path| std::fs::read_to_string(path).ok()),
            python: Arc::new(ask_python),
            free_bytes: Arc::new(free_bytes),
        }
    }

    /// A variable as text, if it is set and not empty.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.var)(name)
            .and_then(|value| value.into_string().ok())
            .filter(|value| !value.trim().is_empty())
    }

    /// The user's home folder.
    pub(super) fn home(&self) -> Option<PathBuf> {
        (self.var)("HOME")
            .filter(|home| !home.is_empty())
            .map(PathBuf::from)
    }

    /// A path with a leading `~/` replaced.
    pub(super) fn expand_home(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), self.home()) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(path),
        }
    }
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// How long Python may take to answer.
const PYTHON_PATIENCE: Duration = Duration::from_secs(20);

fn ask_python(question: PythonQuestion, cancel: &Cancel) -> Result<String, String> {
    let (code, package) = match question {
        PythonQuestion::DefaultIndex => (
            "from pip._internal.models.index import PyPI; print(PyPI.simple_url)",
            "pip",
        ),
    };
    let mut why = String::from("python3 was not found");
    for program in ["python3", "python"] {
        match ask_program(program, code, cancel) {
            Ok(Some(line)) => return Ok(line),
            Ok(None) => why = format!("{program} has no usable {package}"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => why = format!("{program} did not answer: {error}"),
        }
    }
    Err(why)
}

/// The last line that `program -c code` prints; none when it fails.
fn ask_program(program: &str, code: &str, cancel: &Cancel) -> std::io::Result<Option<String>> {
    // Python looks for modules in the current folder first; "/" keeps a folder named pip there from being run.
    let mut child = Command::new(program)
        .args(["-c", code])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let start = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > PYTHON_PATIENCE || !cancel.wait(Duration::from_millis(10)) {
            child.kill()?;
            child.wait()?;
            return Err(std::io::ErrorKind::TimedOut.into());
        }
    };
    let output = child.wait_with_output()?;
    let line = String::from_utf8_lossy(&output.stdout)
        .lines()
        .last()
        .map(|line| line.trim().to_string());
    Ok(line.filter(|line| status.success() && !line.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_program_is_its_last_line() {
        let ask = |code| ask_program("sh", code, &Cancel::new()).unwrap();
        assert_eq!(
            ask("echo a warning; echo ' https://i.test/simple '").as_deref(),
            Some("https://i.test/simple")
        );
        assert_eq!(ask("echo half an answer; exit 1"), None);
        assert_eq!(ask("true"), None);
    }

    #[test]
    fn a_missing_program_and_one_that_hangs_are_errors() {
        let missing = ask_program("no-such-program-anywhere", "", &Cancel::new()).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        let cancel = Cancel::new();
        cancel.cancel();
        let hanging = ask_program("sh", "exec sleep 3600", &cancel).unwrap_err();
        assert_eq!(hanging.kind(), std::io::ErrorKind::TimedOut);
    }

    #[test]
    fn free_space_is_told_for_a_folder_that_exists() {
        assert!(free_bytes(Path::new("/")).is_some());
        assert_eq!(free_bytes(Path::new("/no/such/folder")), None);
    }
}
