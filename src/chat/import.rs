//! Conversations from elsewhere: ChatGPT's `conversations.json`, and lists of messages as the OpenAI protocol writes them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::SessionId;
use super::answer::{Stats, Status, Turn};
use super::new_log::NewLog;
use super::pane::Settings;
use super::record::{Record, RecordId};
use super::turn::{one_line, title_from};
use crate::text::spans::{Span, Spanned};

/// Why a text holds no conversations.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is no JSON.
    #[error("it is neither JSON nor a line of JSON for each conversation: {0}")]
    NotJson(serde_json::Error),
    /// It is JSON of another kind: none of it can be read.
    #[error("{}{}", .first, match .more { 0 => String::new(), more => format!("; nor can the {more} others be read") })]
    Unknown {
        /// The first of them.
        first: Unread,
        /// How many more there are.
        more: usize,
    },
    /// There is none.
    #[error("there is no conversation in it{}", if .roles.is_empty() { String::new() } else {
        format!(": no message is a `user`'s or an `assistant`'s; there are those of {}", quoted(.roles)) })]
    Empty {
        /// The roles of messages that were left out.
        roles: Vec<String>,
    },
}

/// What a file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Import {
    /// Conversations, in their order; at least one.
    pub conversations: Vec<Imported>,
    /// What can't be read.
    pub unread: Vec<Unread>,
    /// How many conversations say nothing, and are left out.
    pub empty: usize,
}

impl Import {
    /// What is left out, if anything is: a line for each.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        let empty = (self.empty > 0).then(|| match self.empty {
            1 => "left out, since it says nothing: 1 conversation".to_owned(),
            empty => format!("left out, since they say nothing: {empty} conversations"),
        });
        self.unread.iter().map(ToString::to_string).chain(empty)
    }
}

/// A conversation that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("conversation {number}{} can't be read: {why}", if .title.is_empty() { String::new() } else { format!(", {:?},", .title) })]
pub struct Unread {
    /// Which one of the file's, from 1.
    pub number: usize,
    /// Its title, where it has one.
    pub title: String,
    /// What doesn't fit.
    pub why: String,
}

/// A turn of a conversation from elsewhere.
#[derive(Debug, Clone, PartialEq)]
struct Said {
    /// The turn that it follows, by its index.
    before: Option<usize>,
    prompt: String,
    answer: Spanned,
    at: Option<Timestamp>,
}

/// A conversation from elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    title: String,
    model: String,
    /// The model that answered last, where a file tells it of messages. No part of the name: it came later.
    slug: String,
    system: Option<String>,
    created: Option<Timestamp>,
    updated: Option<Timestamp>,
    /// Each after the one that it follows.
    turns: Vec<Said>,
    /// The last turn of the branch to show; by default the last one of all.
    head: Option<usize>,
    /// The roles of messages that say nothing here.
    left_out: BTreeSet<String>,
}

impl Imported {
    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What it is called here: by all that it holds, so that the same one is known when it comes again.
    pub fn name(&self) -> SessionId {
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        let time = |at: Option<Timestamp>| at.map_or(String::new(), |at| at.to_string());
        let place = |index: Option<usize>| index.map_or(String::new(), |index| index.to_string());
        for part in [
            &self.title,
            &self.model,
            self.system.as_ref().unwrap_or(&String::new()),
        ] {
            add(part);
        }
        for part in [time(self.created), time(self.updated), place(self.head)] {
            add(&part);
        }
        for turn in &self.turns {
            for part in [&place(turn.before), &turn.prompt, &time(turn.at)] {
                add(part);
            }
            for run in turn.answer.runs() {
                add(&format!("{:?}", run.span));
                add(run.text);
            }
        }
        SessionId::from_hash(&hash.finalize())
    }

    /// How many turns it has, in all branches.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// A log of it. What has no time of its own happened `now`.
    pub fn into_records(self, session: SessionId, now: Timestamp) -> Vec<Record> {
        let created = self.created.unwrap_or(now);
        let settings = Settings {
            system: self.system,
            ..Settings::default()
        };
        let model = if self.model.is_empty() {
            &self.slug
        } else {
            &self.model
        };
        let mut log = NewLog::begin(created, session, model, settings, &self.title);
        let mut names: Vec<(RecordId, usize)> = Vec::new();
        for said in self.turns {
            let before = said.before.and_then(|before| names.get(before)).copied();
            let status = if said.answer.is_empty() {
                Status::Stopped { stats: None }
            } else {
                Status::Done {
                    truncated: None,
                    stats: Stats::default(),
                }
            };
            let at = said.at.unwrap_or(created);
            let mut turn = Turn::new(RecordId::BEGINNING, at, said.prompt, status);
            turn.answer = said.answer;
            let number = before.map_or(1, |(_, number)| number + 1);
            let name = log.turn(before.map(|(name, _)| name), &turn, number);
            names.push((name, number));
        }
        let head = self.head.and_then(|head| names.get(head)).or(names.last());
        if let Some((name, number)) = head {
            log.head(self.updated.unwrap_or(created), *name, *number);
        }
        log.into_records()
    }
}

/// Reads all conversations of a file; of some that can't be read, the others.
pub fn import(text: &str) -> Result<Import, ImportError> {
    let values = match serde_json::from_str(text) {
        Ok(Value::Array(items)) if items.first().is_some_and(|first| first.get("role").is_some()) => {
            vec![Value::Array(items)]
        }
        Ok(Value::Array(items)) => items,
        Ok(value) => vec![value],
        Err(error) => lines(text).ok_or(ImportError::NotJson(error))?,
    };
    let mut read = Import::default();
    let mut empty = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let title = value.get("title").and_then(Value::as_str).map(one_line);
        match conversation(value) {
            Ok(conversation) if conversation.turns.is_empty() => empty.push(conversation),
            Ok(conversation) => read.conversations.push(conversation),
            Err(why) => read.unread.push(Unread {
                number: index + 1,
                title: title.unwrap_or_default(),
                why,
            }),
        }
    }
    read.empty = empty.len();
    if !read.conversations.is_empty() {
        return Ok(read);
    }
    let more = read.unread.len().saturating_sub(1);
    if let Some(first) = read.unread.into_iter().next() {
        return Err(ImportError::Unknown { first, more });
    }
    let roles: BTreeSet<String> = empty.into_iter().flat_map(|none| none.left_out).collect();
    Err(ImportError::Empty {
        roles: roles.into_iter().collect(),
    })
}

/// Words in quotes, of many the first ones.
fn quoted(words: &[String]) -> String {
    let shown = words.iter().take(5).map(|word| format!("{word:?}"));
    let more = if words.len() > 5 { ", …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

/// A value a line; none if a line is something else.
fn lines(text: &str) -> Option<Vec<Value>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).ok()).collect()
}

fn conversation(mut value: Value) -> Result<Imported, String> {
    if value.get("mapping").is_some() {
        let exported = serde_json::from_value::<Exported>(value);
        let read = exported.map(Exported::read);
        return read.map_err(|error| format!("it has a `mapping`, but not as ChatGPT exports it: {error}"));
    }
    let messages = match &mut value {
        Value::Array(_) => value.take(),
        Value::Object(fields) => match fields.get_mut("messages") {
            Some(messages) => messages.take(),
            None => return Err("it has neither a `mapping`, as ChatGPT exports it, nor `messages`".into()),
        },
        _ => return Err("it is neither a list of messages nor an object that has one".into()),
    };
    let Value::Array(messages) = messages else {
        return Err("its `messages` are no list".into());
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = |(at, message): (usize, Value)| {
        let wrong = |why: String| format!("message {}: {why}", at + 1);
        if message.get("role").is_none() {
            return Err(wrong("it has no `role`, like \"user\" or \"assistant\"".into()));
        }
        serde_json::from_value(message).map_err(|error| wrong(error.to_string()))
    };
    let list = List {
        messages: messages
            .into_iter()
            .enumerate()
            .map(message)
            .collect::<Result<_, _>>()?,
        title: text("title"),
        model: text("model"),
    };
    Ok(list.read())
}

/// A list of messages, alone or within what a request would be.
#[derive(Debug)]
struct List {
    messages: Vec<ListMessage>,
    title: Option<String>,
    model: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ListMessage {
    role: String,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    reasoning_content: Option<String>,
}

impl List {
    fn read(self) -> Imported {
        let mut path = Path::default();
        let mut imported = Imported::default();
        for message in self.messages {
            let thought = message.reasoning_content.unwrap_or_default();
            path.take(
                &mut imported,
                None,
                &message.role,
                &text_of(&message.content),
                &thought,
                None,
            );
        }
        path.end(&mut imported, None);
        imported.model = self.model.unwrap_or_default();
        imported.titled(self.title)
    }
}

/// A conversation of ChatGPT's export.
#[derive(Debug, Deserialize)]
struct Exported {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    create_time: Option<f64>,
    #[serde(default)]
    update_time: Option<f64>,
    mapping: BTreeMap<String, Node>,
    #[serde(default)]
    current_node: Option<String>,
    #[serde(default)]
    default_model_slug: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Node {
    #[serde(default)]
    message: Option<NodeMessage>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    children: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct NodeMessage {
    author: Author,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    create_time: Option<f64>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Debug, Deserialize)]
struct Author {
    role: String,
}

impl Exported {
    fn read(self) -> Imported {
        let mut imported = Imported {
            created: self.create_time.and_then(time),
            updated: self.update_time.and_then(time),
            slug: self.default_model_slug.unwrap_or_default(),
            ..Imported::default()
        };
        let is_root = |node: &Node| {
            node.parent
                .as_ref()
                .is_none_or(|parent| !self.mapping.contains_key(parent))
        };
        let roots = self.mapping.iter().filter(|(_, node)| is_root(node));
        let mut waiting: Vec<(&str, Path)> = roots.map(|(id, _)| (id.as_str(), Path::default())).collect();
        let (mut seen, mut turns) = (HashSet::new(), HashMap::new());
        while let Some((id, mut path)) = waiting.pop() {
            let Some(node) = self.mapping.get(id).filter(|_| seen.insert(id)) else {
                continue;
            };
            let hidden = |message: &NodeMessage| {
                message.metadata.get("is_visually_hidden_from_conversation") == Some(&Value::Bool(true))
            };
            if let Some(message) = node.message.as_ref().filter(|message| !hidden(message)) {
                if let Some(Value::String(slug)) = message.metadata.get("model_slug") {
                    imported.slug.clone_from(slug);
                }
                let (thought, text) = match message.content.get("thoughts") {
                    Some(thoughts) => (thoughts_of(thoughts), String::new()),
                    None => (String::new(), text_of(&message.content)),
                };
                let at = message.create_time.and_then(time);
                path.take(
                    &mut imported,
                    Some(&mut turns),
                    &message.author.role,
                    &text,
                    &thought,
                    at,
                );
            }
            path.node = id.to_owned();
            let known: Vec<&String> = node
                .children
                .iter()
                .filter(|child| self.mapping.contains_key(*child))
                .collect();
            let is_current = self.current_node.as_deref() == Some(id);
            if known.is_empty() || is_current {
                let last = path.clone().end(&mut imported, Some(&mut turns));
                if is_current {
                    imported.head = last;
                }
            }
            // The oldest child is to be read first.
            waiting.extend(
                known
                    .into_iter()
                    .rev()
                    .map(|child| (child.as_str(), path.clone())),
            );
        }
        imported.titled(self.title)
    }
}

/// The way down to a message: what was said since the last whole turn.
#[derive(Debug, Clone, Default)]
struct Path {
    before: Option<usize>,
    prompt: Option<(String, Option<Timestamp>)>,
    answer: Spanned,
    /// The last message's node.
    node: String,
}

impl Path {
    /// Goes on with a message. `turns` has, for the nodes of a tree, the turns that end with them.
    fn take(
        &mut self,
        imported: &mut Imported,
        turns: Option<&mut HashMap<String, usize>>,
        role: &str,
        text: &str,
        thought: &str,
        at: Option<Timestamp>,
    ) {
        match role {
            "user" => {
                self.before = self.clone().end(imported, turns);
                self.prompt = Some((text.to_owned(), at));
                self.answer = Spanned::default();
            }
            "assistant" => {
                for (span, text) in [(Span::Thinking, thought), (Span::Answer, text)] {
                    if text.trim().is_empty() {
                        continue;
                    }
                    // Another message of the same answer, for example after a tool's.
                    if span == Span::Answer && !self.answer.of(span).is_empty() {
                        self.answer.push(span, false, "\n\n");
                    }
                    self.answer.push(span, false, text);
                }
            }
            "system" | "developer" if !text.trim().is_empty() => {
                imported.system.get_or_insert_with(|| text.to_owned());
            }
            // What tools said is in the answer that follows.
            role => {
                imported.left_out.insert(role.to_owned());
            }
        }
    }

    /// Ends the turn that has begun, if one has; gives the last turn of this path.
    fn end(self, imported: &mut Imported, turns: Option<&mut HashMap<String, usize>>) -> Option<usize> {
        if self.prompt.is_none() && self.answer.is_empty() {
            return self.before;
        }
        if let Some(known) = turns.as_ref().and_then(|turns| turns.get(&self.node)) {
            return Some(*known);
        }
        let (prompt, at) = self.prompt.unwrap_or_default();
        imported.turns.push(Said {
            before: self.before,
            prompt,
            answer: self.answer,
            at,
        });
        let turn = imported.turns.len() - 1;
        if let Some(turns) = turns {
            turns.insert(self.node, turn);
        }
        Some(turn)
    }
}

impl Imported {
    /// The same with a title, or one made from its first prompt.
    fn titled(mut self, title: Option<String>) -> Self {
        let title = one_line(&title.unwrap_or_default());
        self.title = match self.turns.first() {
            Some(first) if title.is_empty() => title_from(&first.prompt),
            _ => title,
        };
        self
    }
}

/// The text of a message's content: itself, or its parts; of an image only that there was one.
fn text_of(content: &Value) -> String {
    let part = |part: &Value| match part {
        Value::String(text) => text.clone(),
        Value::Object(fields) => match fields.get("text") {
            Some(Value::String(text)) => text.clone(),
            _ => {
                let kind = fields.get("content_type").or(fields.get("type"));
                let kind = kind.and_then(Value::as_str).unwrap_or("attachment");
                format!("[{}]", kind.split('_').next().unwrap_or(kind))
            }
        },
        _ => String::new(),
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => join(parts.iter().map(part)),
        Value::Object(fields) => match (fields.get("parts"), fields.get("text")) {
            (Some(Value::Array(parts)), _) => join(parts.iter().map(part)),
            (_, Some(Value::String(text))) => text.clone(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn thoughts_of(thoughts: &Value) -> String {
    let text = |thought: &Value| text_of(thought.get("content").unwrap_or(&Value::Null));
    join(thoughts.as_array().into_iter().flatten().map(text))
}

fn join(parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// A time from seconds since 1970.
fn time(seconds: f64) -> Option<Timestamp> {
    Timestamp::from_millisecond((seconds * 1000.0) as i64).ok()
}
