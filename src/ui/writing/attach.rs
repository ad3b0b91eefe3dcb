//! Files that go along with a prompt: `@path` in a draft, what each is, and the prompt with their text in it.
//!
//! Files are read by the [worker](crate::ui::worker) alone: when one is mentioned, to show what would go, and anew when the
//! prompt is sent. A path at which there is no file is text like any other.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use crate::chat::{Draft, Preset, SessionId};
use crate::ui::worker::{Job, at_home};

/// The largest file that goes along, in bytes.
const LARGEST: u64 = 256 << 10;
/// Bytes of text that are about a token, cautiously.
const BYTES_PER_TOKEN: usize = 5;

/// A path that is mentioned in a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The bytes of the word, its `@` included.
    pub word: Range<usize>,
    /// The path as it is written.
    pub path: String,
}

/// What is at a mentioned path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// No file: the mention is text.
    Nothing,
    /// A folder, of which nothing goes along.
    Folder,
    /// A file that goes along.
    Goes {
        /// Its size in bytes.
        bytes: usize,
        /// Its lines.
        lines: usize,
    },
    /// A file that can't go along: why.
    Wrong(String),
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name.
    pub name: String,
    /// Whether it is a folder.
    pub folder: bool,
}

/// The command that takes a preset's name.
pub(super) const PRESET: &str = "/preset ";

/// The commands that take a path.
const WITH_PATH: [&str; 3] = ["/import ", "/export ", "/export-comparison "];

/// A path that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The bytes of its word.
    pub word: Range<usize>,
    /// Its folder as it is written, with the slash.
    pub folder: String,
    /// The beginning of the name.
    pub name: String,
    /// Whether it is a command's, and not mentioned by an `@`.
    pub argument: bool,
}

/// What is known of the files that a draft mentions.
#[derive(Debug, Clone, Default)]
pub struct Attached {
    asked: Vec<String>,
    seen: Vec<(String, Seen)>,
    /// The folder that was asked for last, as it is written.
    folder: Option<String>,
    entries: Vec<Entry>,
    /// The prompt whose files are being read.
    sending: Option<(u64, SessionId, Draft)>,
    number: u64,
    /// The presets that there are, once they were asked for.
    presets: Option<Vec<Preset>>,
}

/// The paths that a draft mentions: after an `@` that begins a word, up to the next space, or in quotes. Large pastes
/// mention nothing.
pub fn mentions(draft: &Draft) -> Vec<Mention> {
    let text = draft.text();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text
        .get(from..)
        .and_then(|rest| rest.find('@'))
        .map(|at| from + at)
    {
        from = at + 1;
        if let Some(paste) = draft.pastes().iter().find(|paste| paste.contains(&at)) {
            from = paste.end;
            continue;
        }
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| !c.is_whitespace() && !matches!(c, '(' | '[' | '"' | '\'')) {
            continue;
        }
        let rest = &text[from..];
        let (path, length) = match rest.strip_prefix('"') {
            Some(quoted) => match quoted.find(['"', '\n']) {
                Some(end) if quoted[end..].starts_with('"') => (&quoted[..end], end + 2),
                _ => continue,
            },
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let path = rest[..end].trim_end_matches([',', ';', ':', '.', '!', '?', ')', ']', '"', '\'']);
                (path, path.len())
            }
        };
        let word = at..from + length;
        let cut = draft
            .pastes()
            .iter()
            .any(|paste| paste.start < word.end && paste.end > at);
        if !path.is_empty() && !cut {
            found.push(Mention {
                path: path.to_owned(),
                word: word.clone(),
            });
        }
        from = word.end;
    }
    found
}

/// The paths that a draft mentions, each once.
fn paths(draft: &Draft) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for mention in mentions(draft) {
        if !paths.contains(&mention.path) {
            paths.push(mention.path);
        }
    }
    paths
}

/// The mention at the caret whose path is being written: its word up to the caret's word's end, folder and beginning of
/// the name.
pub fn written(draft: &Draft) -> Option<Written> {
    let (text, caret) = (draft.text(), draft.cursor());
    if let Some(command) = WITH_PATH.iter().find(|command| text.starts_with(**command)) {
        return argument(text, caret, command.len());
    }
    let before = text.get(..caret)?;
    let line = before.rsplit('\n').next().unwrap_or_default();
    let quoted = line.rfind("@\"").filter(|at| !line[at + 2..].contains('"'));
    let at = match quoted {
        Some(at) => at,
        None => line
            .rfind('@')
            .filter(|at| !line[*at..].contains(char::is_whitespace))?,
    };
    let start = caret - line.len() + at;
    let apart = text[..start].chars().next_back().is_none_or(char::is_whitespace);
    if !apart
        || draft
            .pastes()
            .iter()
            .any(|paste| paste.start < caret && paste.end > start)
    {
        return None;
    }
    let path = line[at + 1..].trim_start_matches('"');
    let (folder, name) = match path.rfind('/') {
        Some(slash) => path.split_at(slash + 1),
        None => ("", path),
    };
    let rest = &text[caret..];
    let more = match quoted {
        Some(_) => rest
            .find(['"', '\n'])
            .map_or(rest.len(), |end| end + usize::from(rest[end..].starts_with('"'))),
        None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
    };
    let end = draft
        .pastes()
        .iter()
        .map(|paste| paste.start)
        .filter(|at| *at >= caret)
        .fold(caret + more, usize::min);
    Some(Written {
        word: start..end,
        folder: folder.to_owned(),
        name: name.to_owned(),
        argument: false,
    })
}

/// The path that a command takes, from a place of its line on, while the caret is at its end.
fn argument(text: &str, caret: usize, from: usize) -> Option<Written> {
    let path = text.get(from..)?.trim_start();
    let start = text.len() - path.len();
    let path = path.strip_prefix('"').unwrap_or(path);
    if caret != text.len() || path.contains(['"', '\n']) {
        return None;
    }
    let (folder, name) = match path.rfind('/') {
        Some(slash) => path.split_at(slash + 1),
        None => ("", path),
    };
    Some(Written {
        word: start..text.len(),
        folder: folder.to_owned(),
        name: name.to_owned(),
        argument: true,
    })
}

/// A path as it is mentioned.
pub fn mention(path: &str) -> String {
    if path.contains(char::is_whitespace) {
        format!("@\"{path}\"")
    } else {
        format!("@{path}")
    }
}

impl Attached {
    /// What the worker has to find out for a draft that is shown; presets of the person's own are in a folder.
    pub fn wants(&mut self, draft: &Draft, presets: &Path) -> Vec<Job> {
        let mut jobs = Vec::new();
        let paths = paths(draft);
        if paths != self.asked {
            self.seen.retain(|(path, _)| paths.contains(path));
            self.asked = paths;
            if !self.asked.is_empty() {
                jobs.push(Job::Look(self.asked.clone()));
            }
        }
        match (draft.text().starts_with(PRESET), &self.presets) {
            (true, None) => {
                self.presets = Some(Vec::new());
                let folder = presets.to_owned();
                jobs.push(Job::Presets { folder, wanted: None });
            }
            (true, Some(_)) => {}
            // They may be others the next time.
            (false, _) => self.presets = None,
        }
        if let Some(Written { folder, .. }) = written(draft)
            && self.folder.as_ref() != Some(&folder)
        {
            self.entries.clear();
            self.folder = Some(folder.clone());
            jobs.push(Job::Folder(folder));
        }
        jobs
    }

    /// Takes what is at paths.
    pub fn take_seen(&mut self, seen: Vec<(String, Seen)>) {
        self.seen = seen
            .into_iter()
            .filter(|(path, _)| self.asked.contains(path))
            .collect();
    }

    /// Takes the names in a folder, if it is the one that was asked for last.
    pub fn take_entries(&mut self, folder: &str, entries: Vec<Entry>) {
        if self.folder.as_deref() == Some(folder) {
            self.entries = entries;
        }
    }

    /// Takes the presets that there are.
    pub fn take_presets(&mut self, presets: Vec<Preset>) {
        if let Some(known) = &mut self.presets {
            *known = presets;
        }
    }

    /// The presets that there are, as far as they are known.
    pub fn presets(&self) -> &[Preset] {
        self.presets.as_deref().unwrap_or_default()
    }

    /// The names in the folder that was asked for last.
    pub fn entries(&self, folder: &str) -> &[Entry] {
        if self.folder.as_deref() == Some(folder) {
            &self.entries
        } else {
            &[]
        }
    }

    /// The files that a draft mentions, as far as they are known.
    pub fn seen(&self) -> &[(String, Seen)] {
        &self.seen
    }

    /// Has the files of a prompt read, which is sent then: [`Attached::take_prompt`].
    pub fn send(&mut self, session: SessionId, draft: &Draft, text: &str, context: usize) -> Job {
        self.number += 1;
        self.sending = Some((self.number, session, draft.clone()));
        Job::Attach {
            number: self.number,
            text: text.to_owned(),
            paths: paths(draft),
            context,
        }
    }

    /// Whether this prompt is still the one to be sent, in this conversation and from this draft; none if another one was
    /// asked for since.
    pub fn take_prompt(&mut self, number: u64, session: SessionId, draft: &Draft) -> Option<bool> {
        let (_, of, from) = self.sending.take_if(|(last, ..)| *last == number)?;
        Some(of == session && from == *draft)
    }
}

/// A file's text; none where there is no file. An error says why it can't go along.
fn read(path: &str) -> Result<Option<String>, String> {
    let place = at_home(Path::new(path));
    let wrong = |error: std::io::Error| format!("it can't be read: {error}");
    let about = match std::fs::metadata(&place) {
        Ok(about) => about,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return Err(wrong(error)),
        Err(_) => return Ok(None),
    };
    if about.is_dir() {
        return Ok(None);
    }
    if !about.is_file() {
        return Err("it is no regular file".into());
    }
    let limit = || {
        format!(
            "it is larger than {} KiB, the most that goes along",
            LARGEST >> 10
        )
    };
    if about.len() > LARGEST {
        return Err(limit());
    }
    let mut bytes = Vec::new();
    // Files can grow meanwhile.
    let file = std::fs::File::open(&place).map_err(wrong)?;
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > LARGEST {
        return Err(limit());
    }
    if bytes.contains(&0) {
        return Err("it is binary".into());
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| "it is no UTF-8 text".into())
}

/// What is at a path.
pub(in crate::ui) fn look(path: &str) -> Seen {
    match read(path) {
        Ok(None) if at_home(Path::new(path)).is_dir() => Seen::Folder,
        Ok(None) => Seen::Nothing,
        Ok(Some(text)) => Seen::Goes {
            bytes: text.len(),
            lines: text.lines().count(),
        },
        Err(why) => Seen::Wrong(why),
    }
}

/// The names in a folder, as it is written in a mention.
pub(in crate::ui) fn entries(folder: &str) -> Vec<Entry> {
    let place = at_home(Path::new(if folder.is_empty() { "." } else { folder }));
    let Ok(names) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let mut entries: Vec<Entry> = names
        .flatten()
        .filter_map(|entry| {
            let folder = std::fs::metadata(entry.path()).is_ok_and(|about| about.is_dir());
            let name = entry.file_name().into_string().ok()?;
            (!name.contains(char::is_control)).then_some(Entry { name, folder })
        })
        .collect();
    entries.sort();
    entries
}

/// A prompt with the files that it mentions behind it, each once and between fences. A context of 0 tokens is not known.
pub(in crate::ui) fn prompt(text: &str, paths: &[String], context: usize) -> Result<String, String> {
    let mut out = text.to_owned();
    let mut gone = Vec::new();
    for path in paths {
        // The same file may be mentioned by other words.
        if let Ok(place) = std::fs::canonicalize(at_home(Path::new(path))) {
            if gone.contains(&place) {
                continue;
            }
            gone.push(place);
        }
        let content = match read(path) {
            Ok(Some(content)) => content,
            Ok(None) => continue,
            Err(why) => return Err(format!("nothing was sent: @{path}: {why}")),
        };
        let fence = fence(&content);
        let language = Path::new(path)
            .extension()
            .and_then(|end| end.to_str())
            .unwrap_or_default();
        let end = if content.is_empty() || content.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        out.push_str(&format!("\n\n{path}:\n{fence}{language}\n{content}{end}{fence}"));
    }
    let about = out.len() / BYTES_PER_TOKEN;
    if context > 0 && out.len() > text.len() && about > context {
        return Err(format!(
            "nothing was sent: with its files it is about {about} tokens, and the model takes {context}"
        ));
    }
    Ok(out)
}

/// A fence that the text doesn't hold.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let found = mentions(&Draft::at_end(text));
        found.into_iter().map(|mention| mention.path).collect()
    }

    #[test]
    fn paths_are_mentioned_by_words_that_begin_with_an_at() {
        assert_eq!(paths("see @src/lib.rs, and (@a.txt)."), ["src/lib.rs", "a.txt"]);
        assert_eq!(paths("@\"with space.md\" @~/x"), ["with space.md", "~/x"]);
        assert_eq!(paths("me@example.org @ @\"open"), [""; 0]);
        let draft = Draft::at_end("@a @b @c").with_pastes(std::iter::once(3..5));
        let found: Vec<_> = mentions(&draft).into_iter().map(|m| (m.path, m.word)).collect();
        assert_eq!(found, [("a".into(), 0..2), ("c".into(), 6..8)]);
    }

    #[test]
    fn the_path_that_is_being_written_is_found_at_the_caret() {
        let found = |text: &str, caret| {
            let found = written(&Draft::new(text, caret))?;
            Some((found.word, found.folder, found.name))
        };
        assert_eq!(
            found("see @src/li now", 11),
            Some((4..11, "src/".into(), "li".into()))
        );
        assert_eq!(found("@", 1), Some((0..1, String::new(), String::new())));
        assert_eq!(found("@\"my fi", 7), Some((0..7, String::new(), "my fi".into())));
        assert_eq!(found("@src x", 6), None);
        assert_eq!(found("me@src", 6), None);
        assert_eq!(found("/import a/co", 12), Some((8..12, "a/".into(), "co".into())));
        assert_eq!(
            found("/import \"a b", 12),
            Some((8..12, String::new(), "a b".into()))
        );
        assert_eq!(found("/import a/co", 9), None, "the caret is not at its end");
    }

    #[test]
    fn files_go_along_between_fences_that_they_do_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(place("a.rs"), "fn a() {}\n").unwrap();
        std::fs::write(place("b.md"), "````\nx").unwrap();
        let listed = [
            place("a.rs"),
            place("none"),
            place("b.md"),
            folder.path().display().to_string(),
        ];
        let sent = prompt("look", &listed, 0).unwrap();
        let expected = format!(
            "look\n\n{}:\n```rs\nfn a() {{}}\n```\n\n{}:\n`````md\n````\nx\n`````",
            place("a.rs"),
            place("b.md")
        );
        assert_eq!(sent, expected);
        assert_eq!(look(&place("a.rs")), Seen::Goes { bytes: 10, lines: 1 });
        assert_eq!(look(&place("none")), Seen::Nothing);
        assert_eq!(look(&place(".")), Seen::Folder);
    }

    #[test]
    fn a_prompt_that_is_asked_for_twice_while_its_files_are_read_is_sent_once() {
        let (session, draft) = (SessionId::from_bits(1), Draft::at_end("@a"));
        let mut attached = Attached::default();
        let number = |job: Job| match job {
            Job::Attach { number, .. } => number,
            other => panic!("{other:?}"),
        };
        let first = number(attached.send(session, &draft, "@a", 0));
        let second = number(attached.send(session, &draft, "@a", 0));
        assert_eq!(attached.take_prompt(first, session, &draft), None);
        assert_eq!(attached.take_prompt(second, session, &draft), Some(true));
        assert_eq!(attached.take_prompt(second, session, &draft), None);
    }

    #[test]
    fn a_file_that_is_mentioned_twice_goes_along_once() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(place("a"), "alpha\n").unwrap();
        std::fs::write(place("b"), "beta\n").unwrap();
        let (a, b, other) = (place("a"), place("b"), place("./a"));
        let draft = Draft::at_end(format!("@{a} and @{b}, then @\"{a}\" and @{other}"));
        let paths = super::paths(&draft);
        assert_eq!(paths, [a, b, other]);
        let sent = prompt(draft.text(), &paths, 0).unwrap();
        assert_eq!(sent.matches("alpha").count(), 1, "{sent}");
        assert_eq!(sent.matches("beta").count(), 1, "{sent}");
    }

    #[test]
    fn what_is_binary_or_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(place("zero"), b"a\0b").unwrap();
        std::fs::write(place("latin"), b"caf\xe9").unwrap();
        std::fs::write(place("large"), "x".repeat(LARGEST as usize + 1)).unwrap();
        std::fs::write(place("long"), "x".repeat(5000)).unwrap();
        for (name, part) in [
            ("zero", "binary"),
            ("latin", "no UTF-8"),
            ("large", "larger than 256 KiB"),
        ] {
            let why = prompt("look", &[place(name)], 0).unwrap_err();
            assert!(why.contains(part) && why.contains(name), "{why}");
            assert!(matches!(look(&place(name)), Seen::Wrong(why) if why.contains(part)));
        }
        let why = prompt("look", &[place("long")], 100).unwrap_err();
        assert!(
            why.contains("about 1") && why.contains("the model takes 100"),
            "{why}"
        );
        assert!(
            prompt(&"x".repeat(5000), &[], 100).is_ok(),
            "without files, the engine says so"
        );
    }

    #[test]
    fn names_of_a_folder_are_in_order() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b"), "").unwrap();
        std::fs::create_dir(folder.path().join("a")).unwrap();
        let found = entries(&format!("{}/", folder.path().display()));
        let names: Vec<_> = found
            .iter()
            .map(|entry| (entry.name.as_str(), entry.folder))
            .collect();
        assert_eq!(names, [("a", true), ("b", false)]);
        assert_eq!(entries("/no/such/folder/"), []);
    }
}
