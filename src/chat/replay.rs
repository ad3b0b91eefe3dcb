//! From a log's records back to the conversation.

use std::collections::HashMap;

use jiff::Timestamp;

use super::SessionId;
use super::pane::{Draft, Settings, Status, Turn, ended};
use super::record::{Kind, Record, RecordId};
use crate::text::spans::Spanned;

/// What a log tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Its name.
    pub session: SessionId,
    /// The model at its beginning; empty if unknown.
    pub model: String,
    /// Its title; may be empty.
    pub title: String,
    /// How its requests are made.
    pub settings: Settings,
    /// The turns from the beginning to the newest prompt, along its parents.
    pub turns: Vec<Turn>,
    /// The composer's content.
    pub draft: Draft,
    /// A prompt that waited to be sent.
    pub queued: Option<String>,
    /// What the next record is called.
    pub next_record: u64,
    /// What the next prompt follows.
    pub head: Option<RecordId>,
    /// The first record's time.
    pub created: Option<Timestamp>,
    /// The last record's time.
    pub updated: Option<Timestamp>,
    /// What could not be read, in words; empty for a sound log.
    pub notes: Vec<String>,
}

/// A prompt in the log, with what followed.
struct Node {
    turn: Turn,
    /// The node that this prompt follows.
    before: Option<usize>,
    /// What a prompt after this turn names as its parent.
    head: RecordId,
}

/// Replays records in the order of the file. It takes whatever it is given: pieces without their prompt are noted and
/// left out, a prompt whose parent is lost follows the one before it in the file.
pub fn replay(session: SessionId, records: impl IntoIterator<Item = Record>) -> Conversation {
    let mut conversation = Conversation {
        session,
        model: String::new(),
        title: String::new(),
        settings: Settings::default(),
        turns: Vec::new(),
        draft: Draft::default(),
        queued: None,
        next_record: 0,
        head: None,
        created: None,
        updated: None,
        notes: Vec::new(),
    };
    let mut nodes: Vec<Node> = Vec::new();
    // From a prompt's or an answer end's record to its node; `None` for other records, which begin a conversation.
    let mut known: HashMap<RecordId, Option<usize>> = HashMap::new();
    let mut orphans = 0_usize;
    for record in records {
        let Record { id, parent, at, kind } = record;
        conversation.next_record = conversation.next_record.max(id.0.saturating_add(1));
        conversation.created.get_or_insert(at);
        conversation.updated = Some(at);
        let node_of = |parent: Option<RecordId>| parent.and_then(|p| known.get(&p).copied());
        match kind {
            Kind::Session { model, settings, .. } => {
                conversation.model = model;
                conversation.settings = settings;
                conversation.head.get_or_insert(id);
                known.insert(id, None);
            }
            Kind::Settings { settings } => conversation.settings = settings,
            Kind::Title { title } => conversation.title = title,
            Kind::User { text, .. } => {
                let last = nodes.len().checked_sub(1);
                let before = node_of(parent).unwrap_or(last);
                let status = Status::Stopped { stats: None };
                let turn = Turn {
                    record: id,
                    at,
                    prompt: text,
                    answer: Spanned::default(),
                    thoughts: Vec::new(),
                    status,
                };
                known.insert(id, Some(nodes.len()));
                nodes.push(Node {
                    turn,
                    before,
                    head: id,
                });
            }
            Kind::Delta { text, span, marker } => {
                match node_of(parent).flatten().and_then(|n| nodes.get_mut(n)) {
                    Some(node) => node.turn.answer.push(span, marker, &text),
                    None => orphans += 1,
                }
            }
            Kind::Finish {
                reason,
                message,
                stats,
                thoughts,
                ..
            } => {
                let Some(index) = node_of(parent).flatten() else {
                    orphans += 1;
                    continue;
                };
                if let Some(node) = nodes.get_mut(index) {
                    node.turn.status = ended(reason, message, stats);
                    node.turn.thoughts = thoughts;
                    node.head = id;
                    known.insert(id, Some(index));
                }
            }
            Kind::Draft { text, cursor, queued } => {
                conversation.draft = Draft::new(text, cursor);
                conversation.queued = queued;
            }
            Kind::Unknown => {}
        }
    }
    if orphans > 0 {
        conversation.notes.push(format!(
            "{orphans} pieces of answers have lost their prompt and are left out"
        ));
    }
    if let Some(last) = nodes.last() {
        conversation.head = Some(last.head);
    }
    // A node's predecessor stands before it, so taking from the end never meets one twice.
    let mut wanted = nodes.len().checked_sub(1);
    for (index, node) in nodes.into_iter().enumerate().rev() {
        if wanted == Some(index) {
            wanted = node.before;
            conversation.turns.push(node.turn);
        }
    }
    conversation.turns.reverse();
    conversation
}
