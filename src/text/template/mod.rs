//! From messages to the text that a model was trained on.

use std::sync::Arc;

use minijinja::value::Serde;
use minijinja::{Environment, Error, Value, context};
use serde_json::Map;

use super::message::{ChatOptions, Message, Role};
use super::spans::Markup;
use python::{NAME, environment};

mod bounds;
mod python;
mod source;

/// Instructions that a template may run, besides what messages cost; also bounds its memory, to about 64
/// bytes each.
const FUEL: u64 = 1_000_000;
/// Further instructions for each message.
const FUEL_PER_MESSAGE: u64 = 2_000;
/// Under which names templates read what the model thought.
const REASONING: &[&str] = &["reasoning_content", "reasoning", "thinking", "thought"];

/// Tells the time for `strftime_now`.
pub type Clock = Arc<dyn Fn() -> jiff::ZonedDateTime + Send + Sync>;

/// A rendered conversation, open for the assistant's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text to be tokenized.
    pub text: String,
    /// What the user should know, where the model's own template wasn't used as it is.
    pub note: Option<String>,
    /// Whether something else than the model's template rendered it.
    pub replaced: bool,
    /// What ends an answer to it: where no token does, the model goes on to write the next turn itself.
    pub stop: &'static [&'static str],
}

/// What begins the next turn of a conversation in plain text; with the empty line before it, where there is one.
const NEXT_TURN: &[&str] = &[
    "\n\nuser:",
    "\n\nassistant:",
    "\n\nsystem:",
    "\nuser:",
    "\nassistant:",
    "\nsystem:",
];
/// A message that no template writes by itself.
const PROBE: &str = "quillwort";

/// What stands in where the model's template is missing or fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// ChatML: the vocabulary has `<|im_start|>` and `<|im_end|>`.
    ChatMl,
    /// `role: content` lines.
    Plain,
}

/// Texts that templates refer to.
#[derive(Debug, Clone, Default)]
pub struct Specials {
    /// The token that begins a text; empty where there is none.
    pub bos: String,
    /// The token that ends a text; empty where there is none.
    pub eos: String,
    /// Whether a text should begin with `bos` even where no template says so.
    pub wants_bos: bool,
}

/// What becomes of a past answer's thinking: what the template's authors count on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum History {
    /// The template reads it from fields of these names.
    Fields(Vec<&'static str>),
    /// The template finds it in the content, between these markers, and keeps or drops it.
    Inline(&'static str, &'static str),
    /// The template knows nothing of it: it is dropped.
    Dropped,
}

/// A model's chat template.
pub struct ChatTemplate {
    environment: Result<Environment<'static>, String>,
    specials: Specials,
    fallback: Fallback,
    history: History,
    /// The markers that its source speaks of; `None` without a source.
    markup: Option<Markup>,
    /// Whether it has a switch for thinking.
    switch: bool,
    /// Whether it reads calls of tools as data.
    calls: bool,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles `source`, in Jinja. Without one, or where it doesn't compile, conversations are rendered by
    /// `fallback`.
    pub fn new(source: Option<&str>, specials: Specials, fallback: Fallback, clock: Clock) -> Self {
        let environment = match source {
            None => Err("the model has no chat template".to_owned()),
            Some(source) => bounds::deep(|| environment(source, clock))
                .map_err(|error| format!("the model's chat template cannot be read ({error})")),
        };
        let markup = source.map(Markup::of_template);
        let switch = environment.as_ref().is_ok_and(|environment| {
            let known = bounds::deep(|| Ok(environment.get_template(NAME)?.undeclared_variables(false)));
            known.is_ok_and(|known| known.contains("enable_thinking") || known.contains("thinking"))
        });
        Self {
            history: History::of(source.unwrap_or_default(), markup.as_ref()),
            calls: source.is_some_and(|source| reads(source, "tool_calls")),
            environment,
            specials,
            fallback,
            markup,
            switch,
        }
    }

    /// The markers that the template's source speaks of; `None` without a source.
    pub fn markup(&self) -> Option<&Markup> {
        self.markup.as_ref()
    }

    /// Whether [`ChatOptions::thinking`] makes a difference to it.
    pub fn has_thinking_switch(&self) -> bool {
        self.switch
    }

    /// Renders `messages` with the opening of the assistant's turn. Where the template refuses, system
    /// messages are tried inside the user's, then the fallback is used; the note says so.
    pub fn render(&self, messages: &[Message], options: &ChatOptions) -> Rendered {
        let environment = match &self.environment {
            Ok(environment) => environment,
            Err(reason) => return self.render_fallback(messages, reason),
        };
        let error = match self.render_with(environment, messages, options) {
            Ok(text) => {
                let unseen = self.unseen(environment, &text, messages, options);
                return Rendered {
                    text,
                    note: unseen.map(|whose| {
                        format!("the model's chat template leaves out {whose}: the model doesn't see it")
                    }),
                    replaced: false,
                    stop: &[],
                };
            }
            Err(error) => error,
        };
        if let Some(merged) = without_system(messages)
            && let Ok(text) = self.render_with(environment, &merged, options)
        {
            let note =
                "the model's chat template takes no system message; it was put before the first user message";
            return Rendered {
                text,
                note: Some(note.to_owned()),
                replaced: false,
                stop: &[],
            };
        }
        self.render_fallback(messages, &format!("the model's chat template failed ({error})"))
    }

    /// Which message a rendering doesn't show: the last one, or the system's. One that a template changes on the way
    /// is looked for by another in its place.
    fn unseen(
        &self,
        environment: &Environment<'static>,
        text: &str,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Option<&'static str> {
        let hidden = |at: usize| {
            let content = messages.get(at).map_or("", |message| message.content.trim());
            if content.is_empty() || text.contains(content) {
                return false;
            }
            let mut probed = messages.to_vec();
            if let Some(message) = probed.get_mut(at) {
                message.content = PROBE.to_owned();
            }
            self.render_with(environment, &probed, options)
                .is_ok_and(|text| !text.to_lowercase().contains(PROBE))
        };
        let system = |message: &Message| message.role == Role::System;
        if hidden(messages.len().saturating_sub(1)) {
            Some("the last message")
        } else if messages.first().is_some_and(system) && hidden(0) {
            Some("the system message")
        } else {
            None
        }
    }

    /// The rendering of `messages` without the opening of the assistant's turn; `None` where the template refuses.
    pub(super) fn render_closed(&self, messages: &[Message], options: &ChatOptions) -> Option<String> {
        let environment = self.environment.as_ref().ok()?;
        self.render_as(environment, messages, options, false).ok()
    }

    fn render_with(
        &self,
        environment: &Environment<'static>,
        messages: &[Message],
        options: &ChatOptions,
    ) -> Result<String, Error> {
        self.render_as(environment, messages, options, true)
    }

    fn render_as(
        &self,
        environment: &Environment<'static>,
        messages: &[Message],
        options: &ChatOptions,
        open: bool,
    ) -> Result<String, Error> {
        let size = |message: &Message| {
            let thought = message.reasoning_content.as_ref().map_or(0, String::len);
            let calls: usize = message.tool_calls.iter().map(|call| call.to_string().len()).sum();
            (message.content.len() + thought + calls) as u64 + FUEL_PER_MESSAGE
        };
        let tools = options.tools.iter().map(|tool| tool.to_string().len() as u64);
        let input = messages
            .iter()
            .map(size)
            .chain(tools)
            .fold(0, u64::saturating_add);
        let next = messages.iter().skip(1).map(Some).chain([None]);
        let turns: Vec<Value> = messages
            .iter()
            .zip(next)
            .map(|(message, next)| match self.calls_apart(message, next) {
                Some(apart) => self.turn(&apart),
                None => self.turn(message),
            })
            .collect();
        let tools = match options.tools.as_slice() {
            [] => Value::from(()),
            tools => Value::from(Serde(tools)),
        };
        let mut arguments = options.arguments.clone();
        arguments.entry("documents").or_insert(().into());
        if let Some(thinking) = options.thinking {
            for name in ["enable_thinking", "thinking"] {
                arguments.entry(name).or_insert(thinking.into());
            }
        }
        let mut environment = environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(input)));
        bounds::bind(&mut environment, input);
        let variables = context! {
            messages => turns,
            add_generation_prompt => open,
            bos_token => self.specials.bos.as_str(),
            eos_token => self.specials.eos.as_str(),
            tools => tools,
            ..Value::from(Serde(&arguments))
        };
        bounds::deep(|| environment.get_template(NAME)?.render(variables))
    }

    /// An answer whose calls a tool has answered, as templates want it that read calls as data. Others stay as they were
    /// written: that is what the caches hold.
    fn calls_apart(&self, message: &Message, next: Option<&Message>) -> Option<Message> {
        let answered = next.is_some_and(|next| next.role == Role::Tool);
        let inline = message.role == Role::Assistant && message.tool_calls.is_empty();
        let markup = self
            .markup
            .as_ref()
            .filter(|_| answered && inline && self.calls)?;
        message.with_calls_apart(markup)
    }

    /// A message as the template takes it.
    fn turn(&self, message: &Message) -> Value {
        let mut fields = Map::new();
        fields.insert("role".to_owned(), message.role.as_str().into());
        let thought = message.reasoning_content.as_deref();
        let content = match (&self.history, thought) {
            (_, None) => message.content.clone(),
            (History::Inline(open, close), Some(thought)) => {
                format!("{open}{thought}{close}{}", message.content)
            }
            // What stood between the thought and the answer belonged to the markers.
            (History::Fields(_) | History::Dropped, Some(_)) => {
                message.content.trim_start_matches(['\n', '\r']).to_owned()
            }
        };
        fields.insert("content".to_owned(), content.into());
        if let (History::Fields(names), Some(thought)) = (&self.history, thought) {
            let thought = thought.trim_matches(['\n', '\r']);
            fields.extend(names.iter().map(|name| ((*name).to_owned(), thought.into())));
        }
        if !message.tool_calls.is_empty() {
            let calls: Vec<_> = message.tool_calls.iter().map(with_arguments_read).collect();
            fields.insert("tool_calls".to_owned(), calls.into());
        }
        for (name, text) in [("name", &message.name), ("tool_call_id", &message.tool_call_id)] {
            if let Some(text) = text {
                fields.insert(name.to_owned(), text.as_str().into());
            }
        }
        Value::from(Serde(fields))
    }

    fn render_fallback(&self, messages: &[Message], reason: &str) -> Rendered {
        let mut text = String::new();
        if self.specials.wants_bos {
            text.push_str(&self.specials.bos);
        }
        let (start, middle, end) = match self.fallback {
            Fallback::ChatMl => ("<|im_start|>", "\n", "<|im_end|>\n"),
            Fallback::Plain => ("", ": ", "\n\n"),
        };
        for message in messages {
            let content = match message.reasoning_content {
                Some(_) => message.content.trim_start(),
                None => &message.content,
            };
            text.extend([start, message.role.as_str(), middle, content]);
            for call in &message.tool_calls {
                text.extend(["\n", &call.to_string()]);
            }
            text.push_str(end);
        }
        text.extend([start, Role::Assistant.as_str(), middle.trim_end_matches(' ')]);
        let (used, worse, stop) = match self.fallback {
            Fallback::ChatMl => ("ChatML", "may be worse", &[][..]),
            Fallback::Plain => (
                "plain `role: content` text",
                "may be worse, and end where the model writes the next `user:` itself",
                NEXT_TURN,
            ),
        };
        Rendered {
            text,
            note: Some(format!("{reason}: {used} is used instead, answers {worse}")),
            replaced: true,
            stop,
        }
    }
}

impl History {
    fn of(source: &str, markup: Option<&Markup>) -> Self {
        let fields: Vec<&str> = REASONING
            .iter()
            .copied()
            .filter(|name| reads(source, name))
            .collect();
        let pair = markup.and_then(Markup::thinking);
        match pair {
            _ if !fields.is_empty() => Self::Fields(fields),
            Some((open, close)) if source.contains(close) => Self::Inline(open, close),
            _ => Self::Dropped,
        }
    }
}

/// A call whose arguments are an object, where they are one or its JSON: templates want them so.
fn with_arguments_read(call: &serde_json::Value) -> serde_json::Value {
    let mut call = call.clone();
    let arguments = call.pointer_mut("/function/arguments").and_then(|arguments| {
        Some((
            serde_json::from_str::<Map<_, _>>(arguments.as_str()?).ok()?,
            arguments,
        ))
    });
    if let Some((read, arguments)) = arguments {
        *arguments = read.into();
    }
    call
}

/// Whether a template reads a message's field.
fn reads(source: &str, field: &str) -> bool {
    let ways = ["message", "msg", "m", "turn"].map(|message| {
        [
            format!("{message}.{field}"),
            format!("{message}['{field}']"),
            format!("{message}[\"{field}\"]"),
        ]
    });
    let gets = ["get('", "get(\""].map(|get| format!("{get}{field}"));
    let outside = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    let alone = |at: usize, way: &str| {
        let after = source.get(at + way.len()..).and_then(|rest| rest.chars().next());
        outside(after) && outside(source.get(..at).and_then(|before| before.chars().next_back()))
    };
    ways.as_flattened()
        .iter()
        .chain(&gets)
        .any(|way| source.match_indices(way.as_str()).any(|(at, way)| alone(at, way)))
}

/// The messages with system messages put before the user message that follows; `None` when there is none to
/// move.
fn without_system(messages: &[Message]) -> Option<Vec<Message>> {
    let mut merged: Vec<Message> = Vec::new();
    let mut waiting = String::new();
    for message in messages {
        match message.role {
            Role::System => waiting.extend([message.content.as_str(), "\n\n"]),
            Role::User if !waiting.is_empty() => {
                let content = std::mem::take(&mut waiting) + &message.content;
                merged.push(Message::new(Role::User, content));
            }
            Role::User | Role::Assistant | Role::Tool => merged.push(message.clone()),
        }
    }
    (waiting.is_empty() && merged.len() < messages.len()).then_some(merged)
}
