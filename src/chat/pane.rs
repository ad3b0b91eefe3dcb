//! One pane: its conversation, its composer and what runs in it.

use std::ops::Range;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::{End, Kind, Record, RecordId};
use super::replay::Conversation;
use super::tree::Tree;
use super::{SessionId, TurnId};
use crate::engine::{Finish, FinishReason, Prompt, Request, RequestId, StopReason};
use crate::sampling::Sampling;
use crate::text::message::{ChatOptions, Message, Role};
use crate::text::spans::{Run, Span, Spanned};

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

/// Whether this process may write to a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is ours.
    Write,
    /// It is open in another process: it can be read, and takes no prompt.
    ReadOnly,
}

/// A composer's content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    text: String,
    cursor: usize,
    pastes: Vec<Range<usize>>,
}

impl Draft {
    /// A draft with the caret at a byte offset; past the end or inside a character, it moves back.
    pub fn new(text: impl Into<String>, cursor: usize) -> Self {
        let text = text.into();
        let cursor = text.floor_char_boundary(cursor);
        let pastes = Vec::new();
        Self { text, cursor, pastes }
    }

    /// A draft with the caret at its end.
    pub fn at_end(text: impl Into<String>) -> Self {
        Self::new(text, usize::MAX)
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The caret: a byte offset on a character's boundary.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// The same with large pastes in it, by their bytes, which a view may show as a word each. Those that can't be are
    /// left out, and the caret goes behind the one in which it would stand.
    pub fn with_pastes(mut self, pastes: impl IntoIterator<Item = Range<usize>>) -> Self {
        self.pastes.clear();
        for paste in pastes {
            let free = self.pastes.last().is_none_or(|last| last.end <= paste.start);
            if free && !paste.is_empty() && self.text.get(paste.clone()).is_some() {
                self.pastes.push(paste);
            }
        }
        let around = |paste: &&Range<usize>| paste.start < self.cursor && self.cursor < paste.end;
        self.cursor = self
            .pastes
            .iter()
            .find(around)
            .map_or(self.cursor, |paste| paste.end);
        self
    }

    /// Large pastes in the text, by their bytes, in order.
    pub fn pastes(&self) -> &[Range<usize>] {
        &self.pastes
    }

    /// Whether there is nothing to send.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Puts a text before what is there; a text that is there already isn't doubled.
    pub fn put_back(&mut self, text: &str) {
        if self.text == text || text.is_empty() {
            return;
        }
        if self.is_blank() {
            *self = Self::at_end(text);
        } else {
            let more = text.len() + 1;
            self.cursor += more;
            for paste in &mut self.pastes {
                *paste = paste.start + more..paste.end + more;
            }
            self.text = format!("{text}\n{}", self.text);
        }
    }
}

/// A prompt that is being edited: its text is in the draft, and sending that makes a sibling of its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The turn, by its prompt's record; it is on the shown branch.
    pub turn: RecordId,
    /// The draft that was there before, and comes back afterwards.
    #[serde(default)]
    pub stashed: String,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, served by the prompt cache.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub generated_tokens: usize,
    /// Milliseconds from submission to admission.
    pub queued_ms: f64,
    /// Milliseconds from admission to the first token.
    pub prefill_ms: f64,
    /// Milliseconds from the first token to the end.
    pub decode_ms: f64,
    /// Milliseconds from submission to the first token, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<f64>,
}

impl From<&Finish> for Stats {
    fn from(finish: &Finish) -> Self {
        Self {
            prompt_tokens: finish.prompt_tokens,
            cached_tokens: finish.cached_tokens,
            generated_tokens: finish.generated_tokens,
            queued_ms: finish.queued_ms,
            prefill_ms: finish.prefill_ms,
            decode_ms: finish.decode_ms,
            ttft_ms: finish.ttft_ms,
        }
    }
}

/// What one of the model's thoughts took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Thought {
    /// Milliseconds from its first token to its last.
    pub ms: u64,
    /// Its tokens.
    pub tokens: usize,
}

/// Where a running request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In the engine's queue.
    Queued,
    /// Its prompt is being processed: `done` of `total` tokens.
    Prefill {
        /// Prompt tokens held so far, cached ones included.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// It answers.
    Decode,
}

/// Where a turn is.
#[derive(Debug, Clone, PartialEq)]
pub enum Status {
    /// On its way to the engine.
    Submitting {
        /// Under this name.
        turn: TurnId,
        /// Whether it is to be cancelled as soon as the engine has named it.
        stopping: bool,
    },
    /// The engine has it.
    Streaming {
        /// Under this name.
        request: RequestId,
        /// Where it is.
        phase: Phase,
        /// Whether it was asked to stop.
        stopping: bool,
    },
    /// The answer came to its end.
    Done {
        /// What cut it off, in words; none where it wasn't.
        truncated: Option<String>,
        /// What it took.
        stats: Stats,
    },
    /// It was stopped, or the program ended in the middle: the answer is what came until then.
    Stopped {
        /// What it took, where the engine said.
        stats: Option<Stats>,
    },
    /// It failed.
    Failed {
        /// Why, and what to do.
        message: String,
        /// Whether the request never ran: refused by the queue, or rejected.
        refused: bool,
    },
}

/// A prompt and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The prompt's record in the log.
    pub record: RecordId,
    /// When it was sent.
    pub at: Timestamp,
    /// What the person said.
    pub prompt: String,
    /// What the model said (so far), raw: a view must sanitize it. Its thinking and its calls of tools are told apart.
    pub answer: Spanned,
    /// What its thoughts took, in their order in the answer. A log that ends in the middle doesn't tell.
    pub thoughts: Vec<Thought>,
    /// Where it is.
    pub status: Status,
}

impl Turn {
    /// Takes a token's text, `elapsed` milliseconds after the one before it, and counts it where it belongs to a thought.
    pub(super) fn take(&mut self, text: &Spanned, elapsed: u64) {
        self.answer.append(text);
        let thought = |run: &Run<'_>| run.span == Span::Thinking;
        let thinks = if text.is_empty() {
            self.answer
                .runs()
                .next_back()
                .is_some_and(|run| thought(&run) && !run.marker)
        } else {
            text.runs().any(|run| thought(&run))
        };
        let shown = |run: &Run<'_>| thought(run) && !run.marker && !run.text.trim().is_empty();
        let count = self.answer.runs().filter(shown).count();
        if !thinks || count == 0 {
            return;
        }
        let begins = self.thoughts.len() < count;
        self.thoughts.resize(count, Thought::default());
        if let Some(thought) = self.thoughts.last_mut() {
            thought.tokens += 1;
            thought.ms += if begins { 0 } else { elapsed };
        }
    }

    /// Whether a request runs for it.
    pub fn is_running(&self) -> bool {
        matches!(self.status, Status::Submitting { .. } | Status::Streaming { .. })
    }

    /// Whether the model sees it in later prompts. One that failed without an answer went back to the draft instead.
    pub fn in_history(&self) -> bool {
        match self.status {
            Status::Failed { refused, .. } => !refused && !self.answer.is_empty(),
            _ => true,
        }
    }
}

/// The end of a log in the making: what the next record is called, and what it follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogCursor {
    /// The next record's name.
    pub next: u64,
    /// The record that the next prompt follows; none before the first record.
    pub head: Option<RecordId>,
    /// The draft that the log knows of.
    pub draft: Draft,
    /// The queued prompt that the log knows of.
    pub queued: Option<String>,
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
    /// The turns of the branch that is shown, oldest first; only the last one can be running.
    pub turns: Vec<Turn>,
    /// How these and those of other branches follow each other.
    pub tree: Tree,
    /// Its composer.
    pub draft: Draft,
    /// The prompt that the draft is to take the place of.
    pub edit: Option<Edit>,
    /// A prompt that waits until the pane is free, or the model loaded.
    pub queued: Option<String>,
    /// Whether an answer ended here while another pane was focused.
    pub unread: bool,
    /// Whether prompts can be sent.
    pub access: Access,
    /// The draft that was last cleared.
    pub(super) cleared: Option<String>,
    /// What the engine last noted about a prompt, so that it is told once.
    pub(super) noted: Option<String>,
    /// When the running answer's last token came.
    pub(super) heard: Option<Timestamp>,
    pub(super) log: LogCursor,
}

impl Pane {
    /// A pane with a conversation that has not begun.
    pub fn new(session: SessionId, settings: Settings) -> Self {
        Self {
            session,
            title: String::new(),
            settings,
            turns: Vec::new(),
            tree: Tree::default(),
            draft: Draft::default(),
            edit: None,
            queued: None,
            unread: false,
            access: Access::Write,
            cleared: None,
            noted: None,
            heard: None,
            log: LogCursor::default(),
        }
    }

    /// A pane with a conversation from the store. A queued prompt of then comes back as draft.
    pub fn restore(conversation: Conversation, access: Access) -> Self {
        let log = LogCursor {
            next: conversation.next_record,
            head: conversation.head,
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
            turns: conversation.turns,
            tree: conversation.tree,
            draft: conversation.draft,
            edit,
            queued: None,
            unread: false,
            access,
            cleared: None,
            noted: None,
            heard: None,
            log,
        };
        for text in lost
            .map(|edit| edit.stashed)
            .into_iter()
            .chain(conversation.queued)
        {
            pane.give_back(&text);
        }
        pane
    }

    /// Puts a text that was not sent before what is in the draft, or before what comes back after an edit.
    pub(super) fn give_back(&mut self, text: &str) {
        match &mut self.edit {
            Some(edit) => {
                let mut stashed = Draft::at_end(std::mem::take(&mut edit.stashed));
                stashed.put_back(text);
                edit.stashed = stashed.text;
            }
            None => self.draft.put_back(text),
        }
    }

    /// Where on the shown branch the prompt is that is being edited.
    pub fn edited(&self) -> Option<usize> {
        let edit = self.edit.as_ref()?;
        self.turns.iter().position(|turn| turn.record == edit.turn)
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

    /// What was written here, newest first: the draft or edit that was given up last, then the prompts.
    pub fn history(&self) -> impl Iterator<Item = &str> {
        let prompts = self.turns.iter().rev().map(|turn| turn.prompt.as_str());
        self.cleared.as_deref().into_iter().chain(prompts)
    }

    /// The conversation as it is now, as the store would load it: for an export. The model is the one that is loaded.
    pub fn conversation(&self, model: &str) -> Conversation {
        Conversation {
            session: self.session,
            model: model.to_owned(),
            title: self.title.clone(),
            settings: self.settings.clone(),
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

    /// The request for the running turn.
    pub(super) fn make_request(&self) -> Request {
        Request {
            sampling: self.settings.sampling,
            stop: self.settings.stop.clone(),
            chat: Box::new(ChatOptions {
                thinking: self.settings.thinking,
                ..ChatOptions::default()
            }),
            session: Some(self.session.to_string()),
            ..Request::up_to(
                Prompt::Messages(self.messages()),
                self.settings.max_tokens,
                Settings::MAX_TOKENS,
            )
        }
    }

    /// The next record. Those that a later prompt follows also move the head.
    pub(super) fn record(&mut self, at: Timestamp, parent: Option<RecordId>, kind: Kind) -> Record {
        let id = RecordId(self.log.next);
        self.log.next += 1;
        Record { id, parent, at, kind }
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

    /// A record that tells the log of the draft, where it has changed.
    pub(super) fn draft_record(&mut self, at: Timestamp) -> Option<Record> {
        if self.is_logged() {
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
            queued: self.queued.clone(),
            edit: self.edit.clone(),
        };
        let parent = self.log.head;
        Some(self.record(at, parent, kind))
    }
}

/// How a turn ended, for the log.
pub(super) fn end_of(reason: FinishReason, stop: Option<StopReason>) -> (End, Option<String>) {
    let end = match reason {
        FinishReason::Stop => End::Stop,
        FinishReason::Length => End::Length,
        FinishReason::Cancelled => End::Cancelled,
        FinishReason::Rejected => End::Rejected,
        FinishReason::Error => End::Error,
    };
    (end, stop.map(|reason| reason.as_str().to_owned()))
}

/// A turn's status after it ended, as the engine or the log tells it.
pub(super) fn ended(end: End, message: Option<String>, stats: Option<Stats>) -> Status {
    let failed = |refused, otherwise: &str| Status::Failed {
        message: message.clone().unwrap_or_else(|| otherwise.to_owned()),
        refused,
    };
    match end {
        End::Stop => Status::Done {
            truncated: None,
            stats: stats.unwrap_or_default(),
        },
        End::Length => Status::Done {
            truncated: Some(message.unwrap_or_else(|| "the answer reached max_tokens".to_owned())),
            stats: stats.unwrap_or_default(),
        },
        End::Cancelled | End::Unknown => Status::Stopped { stats },
        End::Rejected => failed(true, "the engine rejected the request"),
        End::Error => failed(false, "the engine failed"),
    }
}
