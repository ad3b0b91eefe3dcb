//! Full-text search over all conversations: which of them hold the words is known from memory, where from their logs.
//!
//! The newest are looked at first, and no more of them than are needed for the hits that are wanted. What a search found
//! out for a shorter text counts for a longer one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use jiff::Timestamp;
use serde::Deserialize;

use super::index::{Known, Messages, Texts, in_parts};
use super::list::session_of;
use super::words::Words;
use super::{Store, StoreError, log};
use crate::chat::SessionId;
use crate::chat::record::Marks;
use crate::chat::turn::title_from;
use crate::text::message::Role;

/// The most characters of a hit's line that are shown.
const SNIPPET: usize = 120;
/// How many conversations are looked at together at first; then twice as many, and so on.
const FIRST: usize = 32;
/// The most that are looked at together.
const TOGETHER: usize = 1024;

/// Where the words were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the title.
    Title,
    /// In what is written there and not sent.
    Draft,
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
    /// How it is listed.
    pub marks: Marks,
    /// Where in it.
    pub place: Place,
    /// When it was said; of a title, when anything last was.
    pub at: Timestamp,
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
    queued: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    turn: usize,
    #[serde(default)]
    marker: bool,
    #[serde(default)]
    marks: Marks,
}

/// A prompt with its answer.
struct Said {
    turn: usize,
    prompt: String,
    answer: String,
    asked: Option<Timestamp>,
    answered: Option<Timestamp>,
}

/// What came of looking for words in a conversation's messages.
enum Looked {
    /// None of them holds all words.
    Missed,
    /// These do.
    Hits(Vec<Hit>),
    /// Its log can't be read: why.
    Wrong(String),
}

impl Store {
    /// What holds all the words of a text, whatever their case: at most `limit` hits. The first search reads all logs;
    /// later ones those that have changed since.
    pub fn search(&self, text: &str, limit: usize) -> Result<Found, StoreError> {
        let words = Words::new(text);
        let mut found = Found::default();
        if words.is_empty() {
            return Ok(found);
        }
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        found.notes = index.follow(self.logs()?, texts);
        let mut missed = index.take_missed(&words);
        let mut newest = index.newest();
        newest.retain(|(session, _)| !missed.contains(session));
        let titled = |(session, known): &(SessionId, &Known)| {
            let texts = &known.texts;
            words.are_in(&texts.lower_title).then(|| Hit {
                session: *session,
                title: texts.title.clone(),
                marks: texts.marks,
                place: Place::Title,
                at: texts.updated,
                line: line_with(&texts.title, &words),
            })
        };
        found.hits = newest.iter().filter_map(titled).take(limit).collect();
        let (mut left, mut count) = (&newest[..], FIRST);
        while found.hits.len() < limit && !left.is_empty() {
            let (now, later) = left.split_at(count.min(left.len()));
            let looked = in_parts(now, |(session, known)| look(*session, known, &words));
            for ((session, known), looked) in now.iter().zip(looked) {
                match looked {
                    Looked::Hits(hits) => found.hits.extend(hits),
                    Looked::Wrong(why) => found.notes.push(why),
                    Looked::Missed if words.are_in(&known.texts.lower_title) => {}
                    Looked::Missed => {
                        missed.insert(*session);
                    }
                }
            }
            (left, count) = (later, TOGETHER.min(count * 2));
        }
        index.keep_missed(words, missed);
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
    marks: Marks,
    updated: Timestamp,
    said: Vec<Said>,
    /// What is written and not sent.
    draft: String,
}

impl Log {
    /// The messages that hold all words.
    fn hits(&self, session: SessionId, words: &Words) -> Vec<Hit> {
        let mut hits = Vec::new();
        hits.extend(words.are_in(&self.draft.to_lowercase()).then(|| Hit {
            session,
            title: self.title.clone(),
            marks: self.marks,
            place: Place::Draft,
            at: self.updated,
            line: line_with(&self.draft, words),
        }));
        for Said {
            turn,
            prompt,
            answer,
            asked,
            answered,
        } in &self.said
        {
            for (role, text, at) in [(Role::User, prompt, asked), (Role::Assistant, answer, answered)] {
                hits.extend(words.are_in(&text.to_lowercase()).then(|| Hit {
                    session,
                    title: self.title.clone(),
                    marks: self.marks,
                    place: Place::Message { turn: *turn, role },
                    at: at.unwrap_or(self.updated),
                    line: line_with(text, words),
                }));
            }
        }
        hits
    }
}

/// What the index holds of a log.
fn texts(path: &Path, session: SessionId) -> Result<Texts, StoreError> {
    let log = read_log(path, session)?;
    let said = log.said.iter().flat_map(|said| [&said.prompt, &said.answer]);
    let said = said.chain([&log.draft]);
    Ok(Texts {
        updated: log.updated,
        lower_title: log.title.to_lowercase(),
        messages: Some(Messages::new(said.map(String::as_str))),
        marks: log.marks,
        title: log.title,
    })
}

/// Looks for words in a conversation's messages. As they were written, these are in the log alone.
fn look(session: SessionId, known: &Known, words: &Words) -> Looked {
    let held = known.texts.messages.as_ref();
    if held.is_some_and(|messages| !messages.hold(words)) {
        return Looked::Missed;
    }
    match read_log(&known.path, session).map(|log| log.hits(session, words)) {
        Ok(hits) if hits.is_empty() => Looked::Missed,
        Ok(hits) => Looked::Hits(hits),
        // It was removed just now.
        Err(StoreError::Missing { .. }) => Looked::Hits(Vec::new()),
        Err(error) => Looked::Wrong(error.to_string()),
    }
}

/// Reads a log as it is searched.
fn read_log(path: &Path, session: SessionId) -> Result<Log, StoreError> {
    let file = log::open_to_read(path, session)?;
    let mut said: Vec<Said> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    let (mut title, mut draft) = (String::new(), String::new());
    let (mut said_at, mut written_at) = (None, None);
    let mut marks = Marks::default();
    log::lines(&mut BufReader::new(file), |line, _| {
        let Ok(record) = serde_json::from_slice::<Line<'_>>(line) else {
            return;
        };
        let at = record.at.parse::<Timestamp>().ok();
        match record.kind.as_ref() {
            "user" | "continue" | "delta" | "finish" => said_at = at.or(said_at),
            "draft" => written_at = at.or(written_at),
            _ => {}
        }
        if let Some(new) = record.title.filter(|title| !title.is_empty()) {
            title = new;
        }
        match (record.kind.as_ref(), record.text) {
            ("user", Some(prompt)) => {
                places.insert(record.id, said.len());
                said.push(Said {
                    turn: record.turn,
                    prompt,
                    answer: String::new(),
                    asked: at,
                    answered: None,
                });
            }
            ("delta", Some(text)) if !record.marker => {
                let place = record.parent.and_then(|parent| places.get(&parent));
                if let Some(said) = place.and_then(|place| said.get_mut(*place)) {
                    said.answer.push_str(&text);
                    said.answered = at.or(said.answered);
                }
            }
            ("draft", text) => {
                let written = record.queued.into_iter().chain(text);
                draft = written.collect::<Vec<_>>().join("\n");
            }
            ("marks" | "finish", _) => marks = record.marks,
            _ => {}
        }
    })
    .map_err(StoreError::io("read", path))?;
    if title.is_empty() {
        title = title_from(&draft);
    }
    Ok(Log {
        title,
        marks,
        updated: said_at.or(written_at).unwrap_or(Timestamp::MIN),
        said,
        draft,
    })
}

/// The line of a text that holds the most of the words, shortened around the first of them.
fn line_with(text: &str, words: &Words) -> String {
    // Of several, the first.
    let count = |line: &&str| words.places(&line.to_lowercase()).count();
    let line = text.lines().rev().max_by_key(count).unwrap_or_default();
    let lower = line.to_lowercase();
    let first = words.places(&lower).min();
    let before = first.map_or(0, |at| lower.get(..at).unwrap_or_default().chars().count());
    let start = before.saturating_sub(SNIPPET / 3);
    line.chars().skip(start).take(SNIPPET).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::index::Index;
    use super::*;
    use crate::chat::new_log::NewLog;
    use crate::chat::pane::Settings;
    use crate::chat::{Kind, Record, RecordId, Status, Turn};

    /// A store with conversations of a title and a prompt each, the last one the newest, and room for so many bytes.
    fn store(folder: &Path, room: usize, talks: &[(&str, &str)]) -> Store {
        let mut store = Store::at(folder);
        store.index = Mutex::new(Index::with_room(room));
        for (number, (title, prompt)) in talks.iter().enumerate() {
            let session = SessionId::from_bits(number as u128 + 1);
            let at = Timestamp::from_second(number as i64).unwrap();
            let mut log = NewLog::begin(at, session, "", Settings::default(), title);
            let status = Status::Stopped { stats: None };
            let turn = Turn::new(RecordId::BEGINNING, at, prompt.to_string(), status);
            log.turn(None, &turn, 1);
            store.append(session, &log.into_records()).unwrap();
            store.release(session);
        }
        store
    }

    fn found(store: &Store, text: &str, limit: usize) -> Vec<(u128, Place)> {
        let found = store.search(text, limit).unwrap();
        assert_eq!(found.notes, [""; 0]);
        let hits = found.hits.into_iter();
        hits.map(|hit| (hit.session.bits(), hit.place)).collect()
    }

    const SAID: Place = Place::Message {
        turn: 1,
        role: Role::User,
    };

    #[test]
    fn what_memory_has_no_room_for_is_found_by_title_and_text_and_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let talks = [
            ("Rivers", "a pearl"),
            ("Sand", "a pearl"),
            ("Pearls", "an oyster"),
        ];
        for room in [0, 20, 1 << 20] {
            let store = store(folder.path(), room, &talks);
            for _ in 0..2 {
                let all = [(3, Place::Title), (2, SAID), (1, SAID)];
                assert_eq!(found(&store, "pearl", 9), all, "room for {room} bytes");
                assert_eq!(found(&store, "river", 9), [(1, Place::Title)]);
                assert_eq!(found(&store, "an oyst", 9), [(3, SAID)]);
            }
            assert!(store.index.lock().unwrap().bytes() <= room);
            std::fs::remove_dir_all(folder.path().join("sessions")).unwrap();
        }
    }

    #[test]
    fn the_newest_keep_their_room_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path(), 30, &[("a", "old words"), ("b", "newer words")]);
        store.prepare_search().unwrap();
        let held = |store: &Store, session| {
            let index = store.index.lock().unwrap();
            let session = SessionId::from_bits(session);
            let known = index.newest().into_iter().find(|(of, _)| *of == session);
            known.is_some_and(|(_, known)| known.texts.messages.is_some())
        };
        assert_eq!([1, 2].map(|session| held(&store, session)), [false, true]);
        // A title alone doesn't make it newer, an answer that goes on does.
        let at = Timestamp::from_second(99).unwrap();
        store.rename(SessionId::from_bits(1), at, "A").unwrap();
        store.prepare_search().unwrap();
        assert_eq!([1, 2].map(|session| held(&store, session)), [false, true]);
        let before = store.resume(SessionId::from_bits(1)).unwrap();
        let kind = Kind::Continue { keep: 0 };
        let (id, parent) = (RecordId(before.next_record), before.head);
        let said = Record { id, parent, at, kind };
        store.append(SessionId::from_bits(1), &[said]).unwrap();
        store.prepare_search().unwrap();
        assert_eq!([1, 2].map(|session| held(&store, session)), [true, false]);
    }

    #[test]
    fn a_longer_text_finds_what_it_would_find_alone() {
        let folder = tempfile::tempdir().unwrap();
        let talks: Vec<(String, String)> = (0..200)
            .map(|n| (format!("Talk {n}"), format!("pearl{} and oyster{}", n % 7, n % 5)))
            .collect();
        let talks: Vec<(&str, &str)> = talks.iter().map(|(t, p)| (&**t, &**p)).collect();
        let typed = [
            "p",
            "pearl",
            "pearl6",
            "pearl6 o",
            "pearl6 oyster4",
            "oyster4",
            "talk 19",
            "talk 199",
        ];
        for limit in [3, 500] {
            let store = store(folder.path(), 1 << 20, &talks);
            for text in typed {
                let fresh = Store::at(folder.path());
                assert_eq!(found(&store, text, limit), found(&fresh, text, limit), "{text}");
            }
            std::fs::remove_dir_all(folder.path().join("sessions")).unwrap();
        }
    }

    #[test]
    fn what_changed_between_two_letters_is_looked_at_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path(), 1 << 20, &[("Talk", "sand"), ("Other", "sand")]);
        assert_eq!(found(&store, "p", 9), []);
        let at = Timestamp::from_second(9).unwrap();
        store.rename(SessionId::from_bits(1), at, "Pearl").unwrap();
        assert_eq!(found(&store, "pe", 9), [(1, Place::Title)]);
    }

    #[test]
    fn a_hit_tells_how_its_conversation_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = store(folder.path(), 1 << 20, &[("Pearls", "a pearl")]);
        let marks = Marks {
            archived: true,
            pinned: false,
        };
        store
            .mark(SessionId::from_bits(1), Timestamp::UNIX_EPOCH, marks)
            .unwrap();
        let hits = store.search("pearl", 9).unwrap().hits;
        assert_eq!(hits.len(), 2);
        assert!(hits.iter().all(|hit| hit.marks == marks), "{hits:?}");
    }
}
