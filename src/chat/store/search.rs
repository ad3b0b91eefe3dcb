//! Full-text search over all conversations, by reading their logs: there is no index that could be out of date.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

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

/// The hits of one conversation.
struct Match {
    updated: Timestamp,
    title: Option<Hit>,
    messages: Vec<Hit>,
}

impl Store {
    /// What holds all the words of a text, whatever their case: at most `limit` hits.
    pub fn search(&self, text: &str, limit: usize) -> Result<Found, StoreError> {
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        let mut found = Found::default();
        if words.is_empty() {
            return Ok(found);
        }
        let logs = self.logs()?;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = logs.len().div_ceil(threads).max(1);
        let searched: Vec<Result<Option<Match>, StoreError>> = std::thread::scope(|scope| {
            let words = &words;
            let part = |part: &[(SessionId, PathBuf)]| -> Vec<_> {
                part.iter()
                    .map(|(session, path)| search_log(path, *session, words))
                    .collect()
            };
            let workers: Vec<_> = logs
                .chunks(share)
                .map(|chunk| scope.spawn(move || part(chunk)))
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap_or_default())
                .collect()
        });
        let mut matches = Vec::new();
        for result in searched {
            match result {
                Ok(found) => matches.extend(found),
                Err(StoreError::Missing { .. }) => {}
                Err(error) => found.notes.push(error.to_string()),
            }
        }
        matches.sort_by_key(|found| std::cmp::Reverse(found.updated));
        let titles: Vec<Hit> = matches
            .iter_mut()
            .filter_map(|found| found.title.take())
            .collect();
        let messages = matches.into_iter().flat_map(|found| found.messages);
        found.hits = titles.into_iter().chain(messages).take(limit).collect();
        found.notes.sort();
        Ok(found)
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

fn search_log(path: &Path, session: SessionId, words: &[String]) -> Result<Option<Match>, StoreError> {
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
    let hit = |place, text: &str| {
        let lower = text.to_lowercase();
        words.iter().all(|word| lower.contains(word)).then(|| Hit {
            session,
            title: title.clone(),
            place,
            line: line_with(text, words),
        })
    };
    let in_title = hit(Place::Title, &title);
    let mut messages = Vec::new();
    for Said { turn, prompt, answer } in &said {
        for (role, text) in [(Role::User, prompt), (Role::Assistant, answer)] {
            messages.extend(hit(Place::Message { turn: *turn, role }, text));
        }
    }
    let any = in_title.is_some() || !messages.is_empty();
    Ok(any.then_some(Match {
        updated,
        title: in_title,
        messages,
    }))
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
