//! Settings: defaults, then the file, then the environment, then flags; each with where it comes from.
//!
//! What is wrong in one place is told, and the place before counts: nothing here ever stops the program.

pub mod file;
pub mod paths;
pub mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use self::settings::{OTHERS, PREFIX, SETTINGS, Setting, variable};
use crate::near::{nearest, nearest_by};

/// `config/default.toml`: every setting with its default, and a line on it.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// The table of the file in which actions get keys.
const KEYS: &str = "keys.";

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nothing else was said.
    Default,
    /// The file, at a line.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "{name}"),
            Self::Flag(flag) => write!(f, "--{flag}"),
        }
    }
}

/// A setting as it applies.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Which one.
    pub setting: &'static Setting,
    /// Its value.
    pub value: Value,
    /// Where that comes from.
    pub origin: Origin,
    /// Whether the program may be left to decide.
    open: bool,
}

impl Entry {
    /// The value as the flag takes it, where file or environment say something that the program is not left to decide.
    pub fn said(&self) -> Option<String> {
        let said = matches!(self.origin, Origin::File(..) | Origin::Variable(_));
        let text = self.setting.flag_text(&self.value, self.open).ok()?;
        (said && !self.setting.leaves_open(&self.value)).then_some(text)
    }
}

/// Keys for an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// The action, as in the file: `new_pane`.
    pub action: String,
    /// Its keys, as in `ctrl-j`.
    pub keys: Vec<String>,
    /// Where they come from.
    pub origin: Origin,
}

/// Where settings are read.
pub struct Sources<'a> {
    /// The file; it need not exist.
    pub file: &'a Path,
    /// Looks up an environment variable.
    pub var: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all environment variables that are set.
    pub variables: &'a [String],
    /// What flags say: a setting's key with the flag and its text.
    pub flags: &'a BTreeMap<&'static str, (String, String)>,
    /// The names of all actions that keys can be given.
    pub actions: &'a [String],
    /// Whether the program can use what a setting's flag would say; else why not.
    pub check: &'a dyn Fn(&Setting, &str) -> Result<(), String>,
}

/// All settings as they apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// All but keys, in the order of [`SETTINGS`].
    pub entries: Vec<Entry>,
    /// Keys that differ from the program's own, in the order in which they were read.
    pub keys: Vec<KeyEntry>,
    /// What was wrong.
    pub problems: Vec<Problem>,
    /// Whether there is a file that can't be read.
    pub unread: bool,
}

/// Something that was said and doesn't count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said; the default stands for no place.
    place: Origin,
    what: String,
}

impl Problem {
    /// What is wrong there.
    pub fn at(place: Origin, what: String) -> Self {
        Self { place, what }
    }

    /// What is wrong, and not in one place.
    pub fn anywhere(what: String) -> Self {
        Self::at(Origin::Default, what)
    }
}

/// One line: the place, and what is wrong there.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Origin::Default => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// A file's bytes; of what could go on for ever, an error.
fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && !kind.is_dir() {
        return Err(std::io::Error::other("it is no file"));
    }
    std::fs::read(path)
}

impl Config {
    /// Reads all settings.
    pub fn read(sources: &Sources<'_>) -> Self {
        let mut config = Self::defaults();
        match read_file(sources.file) {
            Ok(bytes) => match file::text(&bytes) {
                Ok(text) => config.take_file(text, sources),
                Err(fault) => {
                    let place = Origin::File(sources.file.to_path_buf(), fault.number);
                    config.problems.push(Problem::at(place, fault.message));
                    config.unread = true;
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let path = sources.file.display();
                let problem = Problem::anywhere(format!("{path}: it can't be read: {error}"));
                config.problems.push(problem);
                config.unread = true;
            }
        }
        for setting in SETTINGS {
            let name = setting.variable();
            if let Some(text) = (sources.var)(&name).filter(|text| !text.is_empty()) {
                config.set(setting, setting.value_of(&text), Origin::Variable(name), sources);
            }
        }
        for action in sources.actions {
            let name = variable(&format!("{KEYS}{action}"));
            if let Some(text) = (sources.var)(&name).filter(|text| !text.is_empty()) {
                let keys = text.split_whitespace().map(str::to_owned).collect();
                config.set_keys(action, keys, Origin::Variable(name));
            }
        }
        config.tell_unknown_variables(sources);
        for (key, (flag, text)) in sources.flags {
            if let Some(entry) = config.entry_mut(key) {
                entry.value = entry.setting.value_of(text);
                entry.origin = Origin::Flag(flag.clone());
            }
        }
        config
    }

    /// What applies where nothing is said.
    fn defaults() -> Self {
        let (lines, _) = file::read(DEFAULTS);
        let value = |key| {
            lines
                .iter()
                .find(|line| line.key == key)
                .map(|line| line.value.clone())
        };
        let entry = |setting: &'static Setting| {
            let value = value(setting.key)?;
            Some(Entry {
                setting,
                open: setting.leaves_open(&value),
                value,
                origin: Origin::Default,
            })
        };
        Self {
            entries: SETTINGS.iter().filter_map(entry).collect(),
            keys: Vec::new(),
            problems: Vec::new(),
            unread: false,
        }
    }

    /// What was wrong, a line each.
    pub fn told(&self) -> Vec<String> {
        self.problems.iter().map(Problem::to_string).collect()
    }

    /// The setting with this key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting.key == key)
    }

    fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.setting.key == key)
    }

    fn take_file(&mut self, text: &str, sources: &Sources<'_>) {
        let path = sources.file;
        let (lines, faults) = file::read(text);
        for fault in faults {
            let place = Origin::File(path.to_path_buf(), fault.number);
            self.problems.push(Problem::at(place, fault.message));
        }
        for line in lines {
            let origin = Origin::File(path.to_path_buf(), line.number);
            if let Some(setting) = Setting::named(&line.key) {
                self.set(setting, line.value, origin, sources);
            } else if let Some(action) = line.key.strip_prefix(KEYS)
                && sources.actions.iter().any(|known| known == action)
            {
                match list(&line.value) {
                    Some(keys) => self.set_keys(action, keys, origin),
                    None => {
                        let what = "expected a list of keys like [\"ctrl-j\", \"f4\"]; it keeps its own";
                        self.problems
                            .push(Problem::at(origin, format!("{}: {what}", line.key)));
                    }
                }
            } else if !empty_table(&line.value) {
                let what = unknown(&line.key, sources.actions);
                self.problems.push(Problem::at(origin, what));
            }
        }
    }

    /// Tells which variables look like settings and are none.
    fn tell_unknown_variables(&mut self, sources: &Sources<'_>) {
        let actions = sources
            .actions
            .iter()
            .map(|action| variable(&format!("{KEYS}{action}")));
        let known: Vec<String> = SETTINGS.iter().map(Setting::variable).chain(actions).collect();
        let unknown = |name: &&String| {
            name.starts_with(PREFIX)
                && !known.contains(name)
                && !OTHERS.iter().any(|other| name.starts_with(other))
        };
        for name in sources.variables.iter().filter(unknown) {
            let own = |name: &'_ str| name.trim_start_matches(PREFIX).to_owned();
            let names: Vec<String> = known.iter().map(|known| own(known)).collect();
            let near = nearest(&own(name), names.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!("; is {PREFIX}{near} meant?"));
            let what = format!("no setting has this variable{hint}");
            self.problems
                .push(Problem::at(Origin::Variable(name.clone()), what));
        }
    }

    /// Puts what is wrong in one file into the order of its lines, where the first of it stands.
    pub fn sort_problems(&mut self) {
        let mut files: Vec<PathBuf> = Vec::new();
        self.problems.sort_by_cached_key(|problem| {
            let Origin::File(file, line) = &problem.place else {
                return (usize::MAX, 0);
            };
            let known = files.iter().position(|known| known == file);
            let at = known.unwrap_or_else(|| {
                files.push(file.clone());
                files.len() - 1
            });
            (at, *line)
        });
    }

    fn set(&mut self, setting: &'static Setting, value: Value, origin: Origin, sources: &Sources<'_>) {
        let Some(entry) = self.entry_mut(setting.key) else {
            return;
        };
        let checked = setting.flag_text(&value, entry.open).and_then(|text| {
            if setting.leaves_open(&value) {
                return Ok(());
            }
            (sources.check)(setting, &text)
        });
        match checked {
            Ok(()) => (entry.value, entry.origin) = (value, origin),
            Err(why) => {
                let (key, stays) = (setting.key, entry.value.to_string());
                let what = format!("{key}: {why}; {stays} counts instead");
                self.problems.push(Problem::at(origin, what));
            }
        }
    }

    /// Goes back to a setting's default, and tells why what was said can't count.
    pub fn refuse(&mut self, key: &str, why: &str) {
        let default = Self::defaults()
            .entries
            .into_iter()
            .find(|entry| entry.setting.key == key);
        if let (Some(entry), Some(default)) = (self.entry_mut(key), default) {
            let said = std::mem::replace(entry, default);
            let stays = entry.value.to_string();
            let what = format!("{key}: {why}; {stays} counts instead");
            self.problems.push(Problem::at(said.origin, what));
        }
    }

    fn set_keys(&mut self, action: &str, keys: Vec<String>, origin: Origin) {
        self.keys.retain(|entry| entry.action != action);
        let action = action.to_owned();
        self.keys.push(KeyEntry { action, keys, origin });
    }
}

/// What a new settings file begins with: the defaults, each a comment.
pub fn template() -> String {
    let line = |line: &str| match line {
        line if line.contains(" = ") && !line.starts_with('#') => format!("# {line}\n"),
        line => format!("{line}\n"),
    };
    DEFAULTS.lines().map(line).collect()
}

/// A list of texts; one alone is a list of itself.
fn list(value: &Value) -> Option<Vec<String>> {
    let values = match value {
        Value::String(_) => std::slice::from_ref(value),
        value => value.as_array()?.as_slice(),
    };
    values
        .iter()
        .map(|value| Some(value.as_str()?.to_owned()))
        .collect()
}

fn empty_table(value: &Value) -> bool {
    value.as_table().is_some_and(toml::Table::is_empty)
}

/// Tells that there is no such setting, and which one may be meant.
fn unknown(key: &str, actions: &[String]) -> String {
    let actions: Vec<String> = actions.iter().map(|action| format!("{KEYS}{action}")).collect();
    let known = SETTINGS.iter().map(|setting| setting.key);
    let all: Vec<&str> = known.chain(actions.iter().map(String::as_str)).collect();
    let last = |key: &str| key.rsplit('.').next().map(str::to_owned);
    // Often a key is right, and its table isn't.
    let table = |key: &str| key.rsplit_once('.').map(|(table, _)| table.to_owned());
    let beside = || all.iter().copied().filter(|known| table(known) == table(key));
    let near = match beside().next() {
        // The table is right.
        Some(_) if table(key).is_some() => nearest_by(&last(key).unwrap_or_default(), beside(), |known| {
            last(known).unwrap_or_default()
        }),
        _ => nearest(key, all.iter().copied()),
    };
    let near = near.or_else(|| all.iter().copied().find(|known| last(known) == last(key)));
    let hint = near.map_or_else(String::new, |near| format!("; is {near} meant?"));
    format!("{key}: there is no such setting{hint}")
}

#[cfg(test)]
mod tests;
