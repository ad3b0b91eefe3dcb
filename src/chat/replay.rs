//! From a log's records back to the conversation.

use std::collections::HashMap;

use jiff::Timestamp;

use super::SessionId;
use super::answer::{AnswerTokens, Status, Turn, ended};
use super::draft::{Draft, Edit, Said};
use super::pane::Settings;
use super::record::{Kind, Marks, Record, RecordId};
use super::tree::Tree;

/// What a log tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// Its name.
    pub session: SessionId,
    /// The model that answered last; empty if unknown.
    pub model: String,
    /// Its title; may be empty.
    pub title: String,
    /// How its requests are made.
    pub settings: Settings,
    /// How the picker lists it.
    pub marks: Marks,
    /// The turns of the branch that was shown last, from the beginning.
    pub turns: Vec<Turn>,
    /// How these and those of other branches follow each other.
    pub tree: Tree,
    /// The composer's content.
    pub draft: Draft,
    /// The prompt that the draft is to take the place of.
    pub edit: Option<Edit>,
    /// A prompt that waited to be sent.
    pub queued: Option<Said>,
    /// What the next record is called.
    pub next_record: u64,
    /// What the next prompt follows.
    pub head: Option<RecordId>,
    /// The first record's time.
    pub created: Option<Timestamp>,
    /// When something was said last; the first record's time where nothing was.
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
        marks: Marks::default(),
        turns: Vec::new(),
        tree: Tree::default(),
        draft: Draft::default(),
        edit: None,
        queued: None,
        next_record: 0,
        head: None,
        created: None,
        updated: None,
        notes: Vec::new(),
    };
    let mut nodes: Vec<Node> = Vec::new();
    // From a prompt's or an answer end's record to its node; `None` for the beginning, even where that is lost.
    let mut known: HashMap<RecordId, Option<usize>> = HashMap::from([(RecordId::BEGINNING, None)]);
    let mut shown = Branch::default();
    let (mut orphans, mut doubled) = (0_usize, 0_usize);
    for record in records {
        let Record { id, parent, at, kind } = record;
        conversation.next_record = conversation.next_record.max(id.0.saturating_add(1));
        conversation.created.get_or_insert(at);
        if kind.is_said() {
            conversation.updated = Some(at);
        }
        let node_of = |parent: Option<RecordId>| parent.and_then(|p| known.get(&p).copied());
        match kind {
            Kind::Session { model, settings, .. } => {
                conversation.model = model;
                conversation.settings = settings;
                conversation.head.get_or_insert(id);
                known.insert(id, None);
            }
            Kind::Model { model } => conversation.model = model,
            Kind::Settings { settings } => conversation.settings = settings,
            Kind::Title { title } => conversation.title = title,
            Kind::Marks { marks } => conversation.marks = marks,
            Kind::User {
                text, typed, seed, ..
            } => {
                let last = nodes.len().checked_sub(1);
                let before = node_of(parent).unwrap_or(last);
                let status = Status::Stopped { stats: None };
                let mut turn = Turn::new(id, at, Said { text, typed }, status);
                turn.seed = seed;
                // A name that was given twice would make circles.
                let named = known.get(&id).copied().flatten();
                if let Some(node) = named
                    .and_then(|n| nodes.get_mut(n))
                    .filter(|n| n.turn.record == id)
                {
                    node.turn = turn;
                    doubled += 1;
                    continue;
                }
                known.insert(id, Some(nodes.len()));
                nodes.push(Node {
                    turn,
                    before,
                    head: id,
                });
                shown.show(nodes.len() - 1, &nodes);
            }
            Kind::Head { .. } => match node_of(parent) {
                Some(Some(node)) => shown.show(node, &nodes),
                Some(None) => shown.last = None,
                None => {}
            },
            Kind::Continue { keep } => {
                if let Some(node) = node_of(parent).flatten().and_then(|n| nodes.get_mut(n)) {
                    node.turn.answer.truncate(keep);
                    // Of what follows, only the end knows the tokens.
                    node.turn.tokens = AnswerTokens::default();
                    node.turn.status = Status::Stopped { stats: None };
                }
            }
            Kind::Delta { text, span, marker } => {
                match node_of(parent).flatten().and_then(|n| nodes.get_mut(n)) {
                    Some(node) => node.turn.answer.push(span, marker, &text),
                    None => orphans += 1,
                }
            }
            Kind::Finish {
                reason,
                stop_reason,
                message,
                stats,
                thoughts,
                tokens,
                marks,
                ..
            } => {
                conversation.marks = marks;
                let Some(index) = node_of(parent).flatten() else {
                    orphans += 1;
                    continue;
                };
                if let Some(node) = nodes.get_mut(index) {
                    node.turn.status = ended(reason, stop_reason.as_deref(), message, stats);
                    node.turn.thoughts = thoughts;
                    node.turn.tokens = tokens.unwrap_or_default();
                    node.head = id;
                    known.insert(id, Some(index));
                }
            }
            Kind::Draft {
                text,
                cursor,
                pastes,
                queued,
                queued_typed: typed,
                edit,
            } => {
                conversation.draft = Draft::new(text, cursor).with_pastes(pastes);
                conversation.queued = queued.map(|text| Said { text, typed });
                conversation.edit = edit;
            }
            Kind::Unknown => {}
        }
    }
    conversation.updated = conversation.updated.or(conversation.created);
    if orphans > 0 {
        conversation.notes.push(format!(
            "{orphans} pieces of answers have lost their prompt and are left out"
        ));
    }
    if doubled > 0 {
        conversation.notes.push(format!(
            "{doubled} prompts bear the name of another one, which they take the place of"
        ));
    }
    match shown.last.and_then(|last| nodes.get(last)) {
        Some(last) => conversation.head = Some(last.head),
        // All branches were put aside.
        None if !nodes.is_empty() => conversation.head = Some(RecordId::BEGINNING),
        None => {}
    }
    let names: Vec<RecordId> = nodes.iter().map(|node| node.turn.record).collect();
    let name = |node: usize| names.get(node).copied();
    for node in &nodes {
        conversation
            .tree
            .add(node.before.and_then(name), node.turn.record);
    }
    for (before, node) in &shown.below {
        if let Some(record) = name(*node) {
            conversation.tree.show(before.and_then(name), record);
        }
    }
    // A node's predecessor stands before it, so taking from the end never meets one twice.
    let mut wanted = shown.last;
    for (index, node) in nodes.into_iter().enumerate().rev() {
        if wanted == Some(index) {
            wanted = node.before;
            conversation.turns.push(node.turn);
        } else {
            conversation.tree.put_aside(node.turn);
        }
    }
    conversation.turns.reverse();
    conversation
}

/// The branch that is shown while a log is read.
#[derive(Default)]
struct Branch {
    /// Its last node.
    last: Option<usize>,
    /// The follower of each node, or of the beginning, that was shown last.
    below: HashMap<Option<usize>, usize>,
}

impl Branch {
    /// Shows the branch down to a node.
    fn show(&mut self, node: usize, nodes: &[Node]) {
        let mut next = Some(node);
        let before = self.last.replace(node);
        while let Some((at, above)) = next.and_then(|at| nodes.get(at).map(|node| (at, node.before))) {
            self.below.insert(above, at);
            // All above what was shown is shown already.
            next = above.filter(|above| Some(*above) != before);
        }
    }
}
