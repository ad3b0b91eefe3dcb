//! One pane: its conversation, its composer and what runs in it.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SessionId;
use super::answer::{AnswerTokens, Stats, Status, Turn};
use super::draft::{Draft, Edit, Said};
use super::event::Effect;
use super::parameter::Sources;
use super::record::{Kind, Marks, Record, RecordId};
use super::replay::Conversation;
use super::tree::Tree;
use crate::engine::{Begun, Prompt, Request, RequestId};
use crate::sampling::Sampling;
use crate::text::message::{ChatOptions, Message, Role};
use crate::text::spans::{Run, Spanned};

/// The most drafts that are kept for the history although they were not sent.
const GIVEN_UP: usize = 16;

/// How a pane's requests are made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Instructions that open the conversation.
    pub system: Option<String>,
    /// The most tokens of an answer; by default [`Settings::MAX_TOKENS`], or as many of them as there is room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Whether the model is to think before it answers; by default what its chat template does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
}

impl Settings {
    /// The most tokens of an answer where nothing is said.
    pub const MAX_TOKENS: usize = 1024;
}

/// Whether this process may write to a conversation. What it can't write to can be read, and takes no prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It is ours.
    Write,
    /// It is open in another process, perhaps not for long.
    Elsewhere,
    /// Its file can't be written: why, and which folder.
    Unwritable(String),
}

impl Access {
    /// Why something can't be changed: what is to be done in the process that has it, or what keeps everybody from it.
    pub fn refusal(&self, there: &str) -> Option<String> {
        match self {
            Self::Write => None,
            Self::Elsewhere => Some(format!("it is open in another process: {there}")),
            Self::Unwritable(why) => Some(why.clone()),
        }
    }
}

/// What is known of a running answer beyond its turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Running {
    /// When its last token came.
    pub heard: Option<Timestamp>,
    /// Tokens of its prompt, and how many of these the prompt cache served.
    pub admitted: Option<(usize, usize)>,
    /// Tokens that came.
    pub delivered: usize,
    /// What the answer was that goes on.
    pub before: Option<Before>,
}

/// An answer before it went on: what it is again where it can't.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Before {
    pub status: Status,
    /// What it had taken.
    pub stats: Stats,
    /// Text of tokens that were held back when it ended, which is made anew.
    pub cut: Spanned,
    pub tokens: AnswerTokens,
}

/// The end of a log in the making: what the next record is called, and what it follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogCursor {
    /// The next record's name.
    pub next: u64,
    /// The record that the next prompt follows; none before the first record.
    pub head: Option<RecordId>,
    /// The model that the log names last; empty where it names none.
    pub model: String,
    /// The draft that the log knows of.
    pub draft: Draft,
    /// The queued prompt that the log knows of.
    pub queued: Option<Said>,
    /// The edit that the log knows of.
    pub edit: Option<Edit>,
}

/// One pane.
#[derive(Debug, Clone, PartialEq)]
pub struct Pane {
    /// Its conversation's name.
    pub session: SessionId,
    /// Its conversation's title: by default the beginning of the first prompt. Empty before.
    pub title: String,
    /// How its requests are made.
    pub settings: Settings,
    /// Where these settings come from.
    pub sources: Sources,
    /// Whether it takes part when a prompt goes to several panes.
    pub receives: bool,
    /// Whether nothing of it is kept: neither on disk nor in the prompt cache.
    pub private: bool,
    /// How the picker lists its conversation.
    pub marks: Marks,
    /// The turns of the branch that is shown, oldest first; only the last one can be running.
    pub turns: Vec<Turn>,
    /// How these and those of other branches follow each other.
    pub tree: Tree,
    /// Its composer.
    pub draft: Draft,
    /// The prompt that the draft is to take the place of.
    pub edit: Option<Edit>,
    /// A prompt that waits until the pane is free, or the model loaded.
    pub queued: Option<Said>,
    /// Whether an answer ended here while another pane was focused, and was not in view since.
    pub unread: bool,
    /// Whether prompts can be sent.
    pub access: Access,
    /// The conversation from whose pane it was opened: there the focus goes when it closes.
    pub(super) opener: Option<SessionId>,
    /// Whether a prompt was to be sent here while another process had it.
    pub(super) knocked: bool,
    /// After which turn all was put aside for another pane's answer: one can go back there.
    pub(super) went_back: Option<Option<RecordId>>,
    /// The drafts that went without being sent, the newest last, each with what the next record was called then.
    pub(super) given_up: VecDeque<(RecordId, Draft)>,
    /// What the engine last noted about a prompt, so that it is told once.
    pub(super) noted: Option<String>,
    /// What runs.
    pub(super) run: Running,
    pub(super) log: LogCursor,
}

impl Pane {
    /// A pane with a conversation that has not begun.
    pub fn new(session: SessionId, settings: Settings) -> Self {
        Self {
            session,
            title: String::new(),
            settings,
            sources: Sources::default(),
            receives: true,
            private: false,
            marks: Marks::default(),
            turns: Vec::new(),
            tree: Tree::default(),
            draft: Draft::default(),
            edit: None,
            queued: None,
            unread: false,
            access: Access::Write,
            opener: None,
            knocked: false,
            went_back: None,
            given_up: VecDeque::new(),
            noted: None,
            run: Running::default(),
            log: LogCursor::default(),
        }
    }

    /// A pane with a conversation of which nothing is kept.
    pub fn private(session: SessionId, settings: Settings) -> Self {
        Self {
            private: true,
            ..Self::new(session, settings)
        }
    }

    /// A pane with a conversation from the store. A queued prompt of then comes back as draft.
    pub fn restore(conversation: Conversation, access: Access) -> Self {
        let log = LogCursor {
            next: conversation.next_record,
            head: conversation.head,
            model: conversation.model,
            draft: conversation.draft.clone(),
            queued: conversation.queued.clone(),
            edit: conversation.edit.clone(),
        };
        let shown = |edit: &Edit| conversation.turns.iter().any(|turn| turn.record == edit.turn);
        let (edit, lost) = match conversation.edit {
            Some(edit) if shown(&edit) => (Some(edit), None),
            edit => (None, edit),
        };
        let mut pane = Self {
            session: conversation.session,
            title: conversation.title,
            settings: conversation.settings,
            sources: Sources::stored(),
            receives: true,
            private: false,
            marks: conversation.marks,
            turns: conversation.turns,
            tree: conversation.tree,
            draft: conversation.draft,
            edit,
            queued: None,
            unread: false,
            access,
            opener: None,
            knocked: false,
            went_back: None,
            given_up: VecDeque::new(),
            noted: None,
            run: Running::default(),
            log,
        };
        let queued = conversation.queued.map(|queued| queued.draft());
        for draft in lost.map(Edit::stash).into_iter().chain(queued) {
            pane.give_back(draft);
        }
        pane
    }

    /// Puts what was not sent before what is in the draft, or before what comes back after an edit; says where it is now.
    pub(super) fn give_back(&mut self, before: Draft) -> &'static str {
        match self.edit.take() {
            Some(edit) => {
                let turn = edit.turn;
                let mut stashed = edit.stash();
                stashed.put_back(before);
                self.edit = Some(Edit::new(turn, stashed));
                "the prompt is in the draft that comes back after the edit"
            }
            None if self.draft.put_back(before) => {
                "the prompt is in the draft again, before what was begun since"
            }
            None => "the prompt is in the draft again",
        }
    }

    /// Notes a draft that goes without being sent, for the history, unless that has it.
    pub(super) fn give_up(&mut self, draft: Draft) {
        if draft.is_blank() || self.history().any(|known| known.text() == draft.text()) {
            return;
        }
        self.given_up.push_back((RecordId(self.log.next), draft));
        if self.given_up.len() > GIVEN_UP {
            self.given_up.pop_front();
        }
    }

    /// Where on the shown branch the prompt is that is being edited.
    pub fn edited(&self) -> Option<usize> {
        let edit = self.edit.as_ref()?;
        self.turns.iter().position(|turn| turn.record == edit.turn)
    }

    /// Where on the shown branch the turn is that was put aside for another pane's answer and is shown again: one can go
    /// back to before it.
    pub fn back_to(&self) -> Option<usize> {
        let back = self.went_back?;
        (0..self.turns.len()).find(|at| super::tree::before(&self.turns, *at) == back)
    }

    /// The running turn.
    pub fn running(&self) -> Option<&Turn> {
        self.turns.last().filter(|turn| turn.is_running())
    }

    /// The running turn's request, once the engine has named it.
    pub fn request(&self) -> Option<RequestId> {
        match self.running()?.status {
            Status::Streaming { request, .. } => Some(request),
            _ => None,
        }
    }

    /// What was written here as it was typed, newest first: the prompts, and among them the drafts and edits that were given
    /// up.
    pub fn history(&self) -> impl Iterator<Item = Draft> {
        let mut given_up = self.given_up.iter().rev().peekable();
        let mut turns = self.turns.iter().rev().peekable();
        std::iter::from_fn(move || {
            let turn = turns.peek().map(|turn| turn.record);
            match given_up.next_if(|(next, _)| turn.is_none_or(|turn| turn < *next)) {
                Some((_, draft)) => Some(draft.clone()),
                None => turns.next().map(Turn::draft),
            }
        })
    }

    /// The model that answered here last, or is to answer first: `loaded`, where none has.
    pub(super) fn model_named<'a>(&'a self, loaded: &'a str) -> &'a str {
        if self.log.model.is_empty() {
            loaded
        } else {
            &self.log.model
        }
    }

    /// The conversation as it is now, as the store would load it: for an export. The model is the one that answered last, or, where
    /// there is no log, the one that is loaded; a log that names none comes from elsewhere, and no model of here has answered.
    pub fn conversation(&self, loaded: &str) -> Conversation {
        let model = match self.log.next {
            0 => self.model_named(loaded),
            _ => &self.log.model,
        };
        Conversation {
            session: self.session,
            model: model.to_owned(),
            title: self.title.clone(),
            settings: self.settings.clone(),
            marks: self.marks,
            turns: self.turns.clone(),
            tree: self.tree.clone(),
            draft: self.draft.clone(),
            edit: self.edit.clone(),
            queued: self.queued.clone(),
            next_record: self.log.next,
            head: self.log.head,
            created: self.turns.first().map(|turn| turn.at),
            updated: self.turns.last().map(|turn| turn.at),
            notes: Vec::new(),
        }
    }

    /// The conversation as the model is to see it, a running turn's prompt included and its answer not.
    pub fn messages(&self) -> Vec<Message> {
        let system = self.settings.system.iter().filter(|text| !text.is_empty());
        let mut messages: Vec<Message> = system.map(|text| Message::new(Role::System, text)).collect();
        for turn in self.turns.iter().filter(|turn| turn.in_history()) {
            messages.push(Message::new(Role::User, &turn.prompt));
            if !turn.is_running() {
                messages.push(Message::answer(&turn.answer));
            }
        }
        messages
    }

    /// The request for the running turn, whose answer has `begun` where it goes on.
    pub(super) fn make_request(&self, begun: Option<Begun>) -> Request {
        let mut sampling = self.settings.sampling;
        sampling.seed = sampling.seed.or(self.turns.last().and_then(|turn| turn.seed));
        Request {
            sampling,
            stop: self.settings.stop.clone(),
            chat: Box::new(ChatOptions {
                thinking: self.settings.thinking,
                ..ChatOptions::default()
            }),
            session: (!self.private).then(|| self.session.to_string()),
            cache: !self.private,
            begun: begun.map(Box::new),
            ..Request::up_to(
                Prompt::Messages(self.messages()),
                self.settings.max_tokens,
                Settings::MAX_TOKENS,
            )
        }
    }

    /// What the random draws of an answer are to begin with, where there are any: told, so that they can be had again.
    pub(super) fn seed_for(&self, record: RecordId, at: Timestamp) -> Option<u64> {
        let sampling = self.settings.sampling;
        let drawn = || {
            // A splitmix step over what no two answers have in common; 32 bits are enough, and can be read out.
            let name = self.session.bits();
            let mut mixed = (name >> 64) as u64 ^ name as u64 ^ record.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^= (at.as_nanosecond() as u64).rotate_left(17);
            mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ mixed >> 31) >> 32
        };
        (!sampling.is_greedy()).then(|| sampling.seed.unwrap_or_else(drawn))
    }

    /// The next record. Those that a later prompt follows also move the head.
    pub(super) fn record(&mut self, at: Timestamp, parent: Option<RecordId>, kind: Kind) -> Record {
        let id = RecordId(self.log.next);
        self.log.next += 1;
        Record { id, parent, at, kind }
    }

    /// Asks for its running answer to end, once.
    pub(super) fn stop(&mut self, out: &mut Vec<Effect>) {
        match self.turns.last_mut().map(|turn| &mut turn.status) {
            Some(Status::Submitting { stopping, .. }) => *stopping = true,
            Some(Status::Streaming {
                request, stopping, ..
            }) if !*stopping => {
                *stopping = true;
                out.push(Effect::Cancel(*request));
            }
            _ => {}
        }
    }

    /// Records of a piece of an answer to the prompt `parent`.
    pub(super) fn deltas(&mut self, at: Timestamp, parent: RecordId, text: &Spanned) -> Vec<Record> {
        let delta = |run: Run<'_>| {
            let kind = Kind::Delta {
                text: run.text.to_owned(),
                span: run.span,
                marker: run.marker,
            };
            self.record(at, Some(parent), kind)
        };
        text.runs().map(delta).collect()
    }

    /// Whether the log knows of the draft as it is.
    pub(super) fn is_logged(&self) -> bool {
        self.log.draft == self.draft && self.log.queued == self.queued && self.log.edit == self.edit
    }

    /// A record that tells the log of the draft, where it has changed. A log that isn't ours knows the draft that was read.
    pub(super) fn draft_record(&mut self, at: Timestamp) -> Option<Record> {
        if self.is_logged() || self.access != Access::Write {
            return None;
        }
        self.log.edit = self.edit.clone();
        self.log.draft = self.draft.clone();
        self.log.queued = self.queued.clone();
        let Draft { text, cursor, pastes } = self.draft.clone();
        let kind = Kind::Draft {
            text,
            cursor,
            pastes,
            queued: self.queued.as_ref().map(|queued| queued.text.clone()),
            queued_typed: self.queued.as_ref().and_then(|queued| queued.typed.clone()),
            edit: self.edit.clone(),
        };
        let parent = self.log.head;
        Some(self.record(at, parent, kind))
    }
}
