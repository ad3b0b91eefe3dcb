//! What there is.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use jiff::Timestamp;

use super::{Store, StoreError, log};
use crate::chat::SessionId;
use crate::chat::record::{Kind, Marks, Record};
use crate::chat::turn::title_from;

/// Logs up to this size are read whole; of longer ones, the beginning and the end.
const WHOLE: u64 = 256 << 10;
/// How much of a long log's beginning is read.
const HEAD: u64 = 64 << 10;
/// How much of a long log's end is read.
const TAIL: u64 = 64 << 10;

/// A conversation in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub session: SessionId,
    /// Its title; of one in which nothing was sent yet, the beginning of its draft.
    pub title: String,
    /// The model that answered last, as far as beginning and end of the log tell; empty if unknown.
    pub model: String,
    /// Prompts of the branch that was shown last.
    pub turns: usize,
    /// The beginning of the prompt that was written last; empty where the end of a long log doesn't tell.
    pub prompt: String,
    /// The first record's time.
    pub created: Timestamp,
    /// When something was said last; where nothing was, when its draft was written.
    pub updated: Timestamp,
    /// The log's size.
    pub bytes: u64,
    /// How it is listed.
    pub marks: Marks,
}

impl Summary {
    /// Its place in a listing: those with the greatest come first.
    pub fn rank(&self) -> impl Ord + use<> {
        (self.marks.pinned, self.updated, self.session)
    }
}

/// The conversations that there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Pinned ones first, then newest first.
    pub sessions: Vec<Summary>,
    /// Files that could not be read, in words.
    pub notes: Vec<String>,
}

/// What a scan has found so far.
#[derive(Default)]
struct Scan {
    model: Option<String>,
    title: Option<String>,
    turn: Option<usize>,
    /// The beginning of the last prompt.
    prompt: Option<String>,
    /// What is written and not sent, and since when.
    draft: Option<(String, Timestamp)>,
    marks: Marks,
    created: Option<Timestamp>,
    /// When something was said last.
    said: Option<Timestamp>,
}

impl Scan {
    fn take(&mut self, line: &[u8]) {
        let Ok(record) = Record::from_line(line) else {
            return;
        };
        self.created.get_or_insert(record.at);
        if record.kind.is_said() {
            self.said = Some(record.at);
        }
        match record.kind {
            Kind::Session { model, .. } | Kind::Model { model } => self.model = Some(model),
            Kind::Title { title } => self.title = Some(title),
            Kind::User {
                turn, text, typed, ..
            } => {
                self.turn = Some(turn);
                self.prompt = Some(title_from(
                    typed.and_then(|typed| typed.text).as_ref().unwrap_or(&text),
                ));
            }
            Kind::Head { turn } => self.turn = Some(turn),
            Kind::Draft { text, queued, .. } => {
                let written = queued.into_iter().chain([text]);
                let mut written = written.filter(|text| !text.trim().is_empty());
                self.draft = written.next().map(|text| (text, record.at));
            }
            Kind::Marks { marks } => self.marks = marks,
            Kind::Finish {
                turn, title, marks, ..
            } => {
                self.turn = Some(turn);
                self.marks = marks;
                if !title.is_empty() {
                    self.title = Some(title);
                }
            }
            _ => {}
        }
    }

    /// Every line that matters, and the last one for its time.
    fn whole(reader: &mut impl io::BufRead) -> io::Result<Self> {
        let mut scan = Self::default();
        let mut last = Vec::new();
        log::lines(reader, |line, _| {
            // Quotes within a record's text are escaped, so this is the record's own type.
            let start = line.get(..256.min(line.len())).unwrap_or_default();
            if start.windows(14).any(|piece| piece == br#""type":"delta""#) {
                if line.last() == Some(&b'}') {
                    last.clear();
                    last.extend_from_slice(line);
                }
            } else {
                last.clear();
                scan.take(line);
            }
        })?;
        scan.take(&last);
        Ok(scan)
    }

    /// The beginning and the end of a long log; none if these don't say all.
    fn ends(file: &mut (impl Read + Seek), size: u64) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head)?;
        let mut first = Self::default();
        let Some(end) = head.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        for line in head.get(..end).unwrap_or_default().split(|byte| *byte == b'\n') {
            first.take(line);
        }
        file.seek(SeekFrom::Start(size.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        file.take(TAIL).read_to_end(&mut tail)?;
        let Some(start) = tail.iter().position(|byte| *byte == b'\n') else {
            return Ok(None);
        };
        let mut last = Self::default();
        for line in tail.get(start..).unwrap_or_default().split(|byte| *byte == b'\n') {
            last.take(line);
        }
        let complete =
            first.model.is_some() && last.turn.is_some() && last.title.is_some() && last.said.is_some();
        Ok(complete.then_some(Self {
            model: last.model.or(first.model),
            created: first.created,
            ..last
        }))
    }
}

impl Store {
    /// The conversations: pinned ones first, then newest first. Logs without prompt or draft, and files that aren't logs, are left out.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        for (session, path) in self.logs()? {
            match summary(&path, session) {
                Ok(Some(summary)) => listing.sessions.push(summary),
                Ok(None) | Err(StoreError::Missing { .. }) => {}
                Err(error) => listing.notes.push(error.to_string()),
            }
        }
        listing
            .sessions
            .sort_by_key(|summary| std::cmp::Reverse(summary.rank()));
        listing.notes.sort();
        Ok(listing)
    }
}

/// The conversation whose log this is by its name.
pub(super) fn session_of(path: &Path) -> Option<SessionId> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".jsonl")?;
    stem.parse()
        .ok()
        .filter(|session: &SessionId| session.to_string() == stem)
}

/// A conversation's title; empty where it has none that can be read.
pub(super) fn title(path: &Path, session: SessionId) -> String {
    let known = summary(path, session).ok().flatten();
    known.map_or_else(String::new, |summary| summary.title)
}

fn summary(path: &Path, session: SessionId) -> Result<Option<Summary>, StoreError> {
    let mut file = log::open_to_read(path, session)?;
    let scanned = || -> io::Result<(Scan, u64)> {
        let bytes = file.metadata()?.len();
        let ends = if bytes > WHOLE {
            Scan::ends(&mut file, bytes)?
        } else {
            None
        };
        if let Some(scan) = ends {
            return Ok((scan, bytes));
        }
        file.seek(SeekFrom::Start(0))?;
        Ok((Scan::whole(&mut BufReader::new(file))?, bytes))
    };
    let (scan, bytes) = scanned().map_err(StoreError::io("read", path))?;
    let written = scan.draft.as_ref().map(|(_, at)| *at);
    let said = scan.said.or(scan.created.filter(|_| scan.turn.is_some()));
    let (Some(created), Some(updated)) = (scan.created, said.or(written)) else {
        return Ok(None);
    };
    let beginning = || scan.draft.map(|(text, _)| title_from(&text));
    Ok(Some(Summary {
        session,
        title: scan.title.or_else(beginning).unwrap_or_default(),
        model: scan.model.unwrap_or_default(),
        turns: scan.turn.unwrap_or(0),
        prompt: scan.prompt.unwrap_or_default(),
        created,
        updated,
        bytes,
        marks: scan.marks,
    }))
}
