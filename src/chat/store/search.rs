//! Full-text search over all conversations: which of them hold the words is known from memory, where from their logs.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use jiff::Timestamp;
use serde::Deserialize;

use super::index::{Known, Texts, in_parts};
use super::list::session_of;
use super::{Store, StoreError, log};
use crate::chat::SessionId;
use crate::text::message::Role;

/// The most characters of a hit's line that are shown.
const SNIPPET: usize = 120;

/// Where the words were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the title.
    Title,
    /// In a message.
    Message {
        /// Of which turn, from 1, along its branch.
        turn: usize,
        /// Who said it.
        role: Role,
    },
}

/// Something that holds all the words that were searched for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    /// In which conversation.
    pub session: SessionId,
    /// Its title.
    pub title: String,
    /// Where in it.
    pub place: Place,
    /// The line that holds the first of the words, shortened around it; raw.
    pub line: String,
}

/// What a search came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Titles first, then messages of all branches; each of the newest conversation first.
    pub hits: Vec<Hit>,
    /// Files that could not be read, in words.
    pub notes: Vec<String>,
}

/// What a search needs of a record.
#[derive(Deserialize)]
struct Line<'a> {
    id: u64,
    #[serde(default)]
    parent: Option<u64>,
    #[serde(borrow)]
    at: Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    turn: usize,
    #[serde(default)]
    marker: bool,
}

/// A prompt with its answer.
struct Said {
    turn: usize,
    prompt: String,
    answer: String,
}

/// How a conversation holds the words.
struct Match<'a> {
    session: SessionId,
    updated: Timestamp,
    path: &'a Path,
    /// Its title, where that holds them.
    title: Option<&'a str>,
    /// Whether a message may hold them.
    messages: bool,
}

impl Store {
    /// What holds all the words of a text, whatever their case: at most `limit` hits. The first search reads all logs;
    /// later ones those that have changed since.
    pub fn search(&self, text: &str, limit: usize) -> Result<Found, StoreError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let mut found = Found::default();
        if words.is_empty() {
            return Ok(found);
        }
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        found.notes = index.follow(self.logs()?, texts);
        let all = index.all();
        let matches = in_parts(&all, |(session, known)| matched(*session, known, &words));
        let mut matches: Vec<Match<'_>> = matches.into_iter().flatten().collect();
        matches.sort_by_key(|found| std::cmp::Reverse((found.updated, found.session)));
        let title = |found: &Match<'_>| {
            let title = found.title?;
            Some(Hit {
                session: found.session,
                title: title.to_owned(),
                place: Place::Title,
                line: line_with(title, &words),
            })
        };
        found.hits = matches.iter().filter_map(title).take(limit).collect();
        // As they were written, messages are in the logs alone.
        for with in matches.iter().filter(|found| found.messages) {
            if found.hits.len() >= limit {
                break;
            }
            match read_log(with.path, with.session) {
                Ok(log) => found.hits.extend(log.hits(with.session, &words)),
                Err(StoreError::Missing { .. }) => {}
                Err(error) => found.notes.push(error.to_string()),
            }
        }
        found.hits.truncate(limit);
        found.notes.sort();
        Ok(found)
    }

    /// Reads what is to be searched, so that the first search finds it.
    pub fn prepare_search(&self) -> Result<(), StoreError> {
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index.follow(self.logs()?, texts);
        Ok(())
    }

    /// The files that are logs by their names.
    pub(super) fn logs(&self) -> Result<Vec<(SessionId, PathBuf)>, StoreError> {
        let folder = match fs::read_dir(&self.sessions) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::io("read the folder", &self.sessions)(error)),
        };
        let mut logs = Vec::new();
        for entry in folder {
            let path = entry
                .map_err(StoreError::io("read the folder", &self.sessions))?
                .path();
            logs.extend(session_of(&path).map(|session| (session, path)));
        }
        Ok(logs)
    }

    /// The conversation whose name begins so; an error unless there is exactly one.
    pub fn find(&self, beginning: &str) -> Result<SessionId, StoreError> {
        let wanted = beginning.to_lowercase();
        let mut found: Vec<SessionId> = self
            .logs()?
            .into_iter()
            .map(|(session, _)| session)
            .filter(|session| !wanted.is_empty() && session.to_string().starts_with(&wanted))
            .collect();
        found.sort();
        match found.as_slice() {
            [] => Err(StoreError::NoneBegins {
                beginning: beginning.to_owned(),
            }),
            [session] => Ok(*session),
            [first, second, ..] => Err(StoreError::Ambiguous {
                beginning: beginning.to_owned(),
                count: found.len(),
                first: *first,
                second: *second,
            }),
        }
    }
}

/// A log as it is searched.
struct Log {
    title: String,
    updated: Timestamp,
    said: Vec<Said>,
}

impl Log {
    /// The messages that hold all words.
    fn hits(&self, session: SessionId, words: &[String]) -> Vec<Hit> {
        let mut hits = Vec::new();
        for Said { turn, prompt, answer } in &self.said {
            for (role, text) in [(Role::User, prompt), (Role::Assistant, answer)] {
                hits.extend(holds(&text.to_lowercase(), words).then(|| Hit {
                    session,
                    title: self.title.clone(),
                    place: Place::Message { turn: *turn, role },
                    line: line_with(text, words),
                }));
            }
        }
        hits
    }
}

/// Whether a text in lowercase holds all words.
fn holds(lower: &str, words: &[String]) -> bool {
    words.iter().all(|word| lower.contains(word))
}

/// What the index holds of a log.
fn texts(path: &Path, session: SessionId) -> Result<Texts, StoreError> {
    let log = read_log(path, session)?;
    let said = log.said.iter().flat_map(|said| [&said.prompt, &said.answer]);
    let said = said.filter(|text| !text.is_empty());
    Ok(Texts {
        updated: log.updated,
        lower_title: log.title.to_lowercase(),
        messages: said.map(|text| text.to_lowercase().into_boxed_str()).collect(),
        title: log.title,
    })
}

/// How a conversation of the index holds the words; of one for which there was no room that isn't known yet.
fn matched<'a>(session: SessionId, known: &'a Known, words: &[String]) -> Option<Match<'a>> {
    let Some(texts) = &known.texts else {
        return Some(Match {
            session,
            updated: Timestamp::MIN,
            path: &known.path,
            title: None,
            messages: true,
        });
    };
    let title = holds(&texts.lower_title, words).then_some(texts.title.as_str());
    let messages = texts.messages.iter().any(|text| holds(text, words));
    (title.is_some() || messages).then_some(Match {
        session,
        updated: texts.updated,
        path: &known.path,
        title,
        messages,
    })
}

/// Reads a log as it is searched.
fn read_log(path: &Path, session: SessionId) -> Result<Log, StoreError> {
    let file = log::open_to_read(path, session)?;
    let mut said: Vec<Said> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    let (mut title, mut updated) = (String::new(), Timestamp::MIN);
    log::lines(&mut BufReader::new(file), |line, _| {
        let Ok(record) = serde_json::from_slice::<Line<'_>>(line) else {
            return;
        };
        updated = record.at.parse().unwrap_or(updated);
        if let Some(new) = record.title.filter(|title| !title.is_empty()) {
            title = new;
        }
        match (record.kind.as_ref(), record.text) {
            ("user", Some(prompt)) => {
                places.insert(record.id, said.len());
                let (turn, answer) = (record.turn, String::new());
                said.push(Said { turn, prompt, answer });
            }
            ("delta", Some(text)) if !record.marker => {
                let place = record.parent.and_then(|parent| places.get(&parent));
                if let Some(said) = place.and_then(|place| said.get_mut(*place)) {
                    said.answer.push_str(&text);
                }
            }
            _ => {}
        }
    })
    .map_err(StoreError::io("read", path))?;
    Ok(Log { title, updated, said })
}

/// The line of a text that holds the most of the (lowercase) words, shortened around the first of them.
fn line_with(text: &str, words: &[String]) -> String {
    let count = |line: &&str| {
        let lower = line.to_lowercase();
        words.iter().filter(|word| lower.contains(word.as_str())).count()
    };
    // Of several, the first.
    let line = text.lines().rev().max_by_key(count).unwrap_or_default();
    let lower = line.to_lowercase();
    let first = words.iter().filter_map(|word| lower.find(word.as_str())).min();
    let before = first.map_or(0, |at| lower.get(..at).unwrap_or_default().chars().count());
    let start = before.saturating_sub(SNIPPET / 3);
    line.chars().skip(start).take(SNIPPET).collect()
}
