//! From messages to the text that a model was trained on.

use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde::Serialize;

use super::message::{Message, Role};

/// Instructions that a template may run, besides what long messages cost; also bounds its memory, to about 64
/// bytes each.
const FUEL: u64 = 1_000_000;
/// How deeply macros and blocks may call each other.
const RECURSION: usize = 100;
/// The template's name in error messages.
const NAME: &str = "chat_template";

/// Tells the time for `strftime_now`.
pub type Clock = Arc<dyn Fn() -> jiff::ZonedDateTime + Send + Sync>;

/// A rendered conversation, open for the assistant's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text to be tokenized.
    pub text: String,
    /// What the user should know, where the model's own template wasn't used as it is.
    pub note: Option<String>,
}

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

/// A model's chat template.
pub struct ChatTemplate {
    environment: Result<Environment<'static>, String>,
    specials: Specials,
    fallback: Fallback,
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
            Some(source) => environment(source, clock)
                .map_err(|error| format!("the model's chat template cannot be read ({error})")),
        };
        Self {
            environment,
            specials,
            fallback,
        }
    }

    /// Renders `messages` with the opening of the assistant's turn. Where the template refuses, system
    /// messages are tried inside the user's, then the fallback is used; the note says so.
    pub fn render(&self, messages: &[Message]) -> Rendered {
        let environment = match &self.environment {
            Ok(environment) => environment,
            Err(reason) => return self.render_fallback(messages, reason),
        };
        let error = match self.render_with(environment, messages) {
            Ok(text) => return Rendered { text, note: None },
            Err(error) => error,
        };
        if let Some(merged) = without_system(messages)
            && let Ok(text) = self.render_with(environment, &merged)
        {
            let note =
                "the model's chat template takes no system message; it was put before the first user message";
            return Rendered {
                text,
                note: Some(note.to_owned()),
            };
        }
        self.render_fallback(messages, &format!("the model's chat template failed ({error})"))
    }

    fn render_with(&self, environment: &Environment<'static>, messages: &[Message]) -> Result<String, Error> {
        let size: usize = messages.iter().map(|message| message.content.len() + 100).sum();
        let turn =
            |message: &Message| context! { role => name(message.role), content => message.content.as_str() };
        let turns: Vec<Value> = messages.iter().map(turn).collect();
        let mut environment = environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(size as u64)));
        environment.get_template(NAME)?.render(context! {
            messages => turns,
            add_generation_prompt => true,
            bos_token => self.specials.bos.as_str(),
            eos_token => self.specials.eos.as_str(),
            tools => (),
        })
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
            text.extend([start, name(message.role), middle, &message.content, end]);
        }
        text.extend([start, name(Role::Assistant), middle.trim_end_matches(' ')]);
        let used = match self.fallback {
            Fallback::ChatMl => "ChatML",
            Fallback::Plain => "plain `role: content` text",
        };
        Rendered {
            text,
            note: Some(format!("{reason}: {used} is used instead, answers may be worse")),
        }
    }
}

fn name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
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
                merged.push(Message {
                    role: Role::User,
                    content,
                });
            }
            Role::User | Role::Assistant => merged.push(message.clone()),
        }
    }
    (waiting.is_empty() && merged.len() < messages.len()).then_some(merged)
}

fn environment(source: &str, clock: Clock) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: String| {
        jiff::fmt::strtime::format(&format, &clock()).map_err(|error| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!("time format `{format}`: {error}"),
            )
        })
    });
    environment.add_filter("tojson", to_json);
    environment.add_template_owned(NAME, neutral_generation_tags(source))?;
    Ok(environment)
}

/// JSON as Python's `json.dumps` writes it, which templates are written for: `", "` and `": "`, nothing
/// escaped for HTML.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut json = Vec::new();
    match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
            value
                .serialize(&mut serde_json::Serializer::with_formatter(&mut json, formatter))
                .map_err(failed)?;
        }
        None => {
            value
                .serialize(&mut serde_json::Serializer::with_formatter(&mut json, Spaced))
                .map_err(failed)?;
        }
    }
    let mut json = String::from_utf8_lossy(&json).into_owned();
    if ascii == Some(true) {
        json = escape_non_ascii(&json);
    }
    Ok(Value::from_safe_string(json))
}

fn escape_non_ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_ascii() {
            escaped.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

/// JSON on one line, with a space behind commas and colons.
struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// `{% generation %}` … `{% endgeneration %}` mark the assistant's text for training; here they become a
/// condition that holds, which keeps what they do to the white space around them.
fn neutral_generation_tags(source: &str) -> String {
    let mut neutral = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        neutral.push_str(before);
        let Some(end) = tag.find("%}") else {
            rest = tag;
            break;
        };
        let (inner, after) = tag.split_at(end);
        match inner.trim_matches(['-', '+', ' ', '\t', '\n', '\r']) {
            "generation" => neutral.push_str(&inner.replace("generation", "if true")),
            "endgeneration" => neutral.push_str(&inner.replace("endgeneration", "endif")),
            _ => neutral.push_str(inner),
        }
        rest = after;
    }
    neutral + rest
}
