//! A conversation as chat templates take it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::spans::{Markup, Span, Spanned, ToolCall, tool_calls};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation.
    #[serde(alias = "developer")]
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool that the model has called.
    Tool,
}

impl Role {
    /// The word that templates know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written")]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
    /// What the model thought before it, for [`Role::Assistant`]; the template decides what becomes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of tools, for [`Role::Assistant`], as the OpenAI protocol writes them: `{"id"?, "type"?, "function": {"name",
    /// "arguments"}}`, the arguments an object or its JSON.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// Which tool answers, for [`Role::Tool`], where the template wants to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which call is answered, for [`Role::Tool`]: its `id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A message as the OpenAI protocol writes it: what isn't there may be null, a text may come in parts, and a message that calls
/// tools need not say anything.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    role: Role,
    content: Option<Content>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<Value>>,
    name: Option<String>,
    tool_call_id: Option<String>,
    /// Why the model didn't answer: read by nobody, and only accepted where it is null.
    refusal: Option<()>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "content has to be a text, or a list of parts {\"type\": \"text\", \"text\": …}"
)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Part {
    Text { text: String },
}

impl TryFrom<Written> for Message {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written {
            role,
            content,
            reasoning_content,
            tool_calls,
            name,
            tool_call_id,
            refusal: None | Some(()),
        } = written;
        let tool_calls = tool_calls.unwrap_or_default();
        let content = match content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => parts.into_iter().map(|Part::Text { text }| text).collect(),
            None if !tool_calls.is_empty() => String::new(),
            None => {
                let role = role.as_str();
                return Err(format!(
                    "a message of the {role} has no content: only one with tool_calls can do without"
                ));
            }
        };
        Ok(Self {
            role,
            content,
            reasoning_content,
            tool_calls,
            name,
            tool_call_id,
        })
    }
}

impl Message {
    /// A message that says `content` and no more.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            name: None,
            tool_call_id: None,
        }
    }

    /// An answer of the model, its thinking apart. Calls of tools stay in its content as they were written.
    pub fn answer(answer: &Spanned) -> Self {
        let said = |text: &mut String, run: super::spans::Run<'_>| match run.span {
            Span::Answer if !run.marker => text.push_str(run.text),
            Span::ToolCall => text.push_str(run.text),
            Span::Answer | Span::Thinking => {}
        };
        let mut content = String::new();
        answer.runs().for_each(|run| said(&mut content, run));
        let thought = answer.of(Span::Thinking);
        Self {
            reasoning_content: (!thought.trim().is_empty()).then_some(thought),
            ..Self::new(Role::Assistant, content)
        }
    }
}

impl Message {
    /// The same with the calls in its content apart, as `markup` tells them; `None` where there are none, or one that can't be
    /// read.
    pub(super) fn with_calls_apart(&self, markup: &Markup) -> Option<Self> {
        let mut scanner = markup.scanner("");
        let mut spanned = scanner.push(&self.content);
        spanned.append(&scanner.finish());
        let (mut content, mut spans) = (String::new(), Vec::<String>::new());
        let mut within = false;
        for run in spanned.runs() {
            let is_call = run.span == Span::ToolCall;
            match spans.last_mut() {
                Some(span) if is_call && within => span.push_str(run.text),
                _ if is_call => spans.push(run.text.to_owned()),
                _ => content.push_str(run.text),
            }
            within = is_call;
        }
        let calls: Option<Vec<Vec<ToolCall>>> = spans.iter().map(|span| tool_calls(span)).collect();
        let calls = calls?.into_iter().flatten();
        let tool_calls: Vec<Value> = calls
            .map(|call| json!({"type": "function", "function": {"name": call.name, "arguments": call.arguments}}))
            .collect();
        (!tool_calls.is_empty()).then(|| Self {
            content: content.trim_end().to_owned(),
            tool_calls,
            ..self.clone()
        })
    }
}

/// What a chat template is told besides the messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether the model is to think before it answers; by default what the template does.
    pub thinking: Option<bool>,
    /// The tools that the model may call, as the OpenAI protocol describes them.
    pub tools: Vec<Value>,
    /// Further variables of the template.
    pub arguments: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: Value) -> Result<Message, String> {
        serde_json::from_value(message).map_err(|error| error.to_string())
    }

    #[test]
    fn messages_are_read_as_programs_of_the_openai_protocol_write_them() {
        let call = json!({"function": {"name": "f", "arguments": "{}"}});
        let calls = |content: Option<Value>| {
            let mut message = json!({"role": "assistant", "tool_calls": [call], "refusal": null});
            if let Some(content) = content {
                message["content"] = content;
            }
            read(message).unwrap()
        };
        for message in [calls(None), calls(Some(Value::Null)), calls(Some("".into()))] {
            assert_eq!((message.content.as_str(), message.tool_calls.len()), ("", 1));
        }
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let message =
            read(json!({"role": "user", "content": parts, "tool_calls": null, "name": null})).unwrap();
        assert_eq!(message, Message::new(Role::User, "ab"));
        let message = read(json!({"role": "developer", "content": "x"})).unwrap();
        assert_eq!(message, Message::new(Role::System, "x"));
    }

    #[test]
    fn what_a_message_cannot_be_is_told() {
        for (message, told) in [
            (json!({"role": "user"}), "a message of the user has no content"),
            (
                json!({"role": "assistant", "content": null, "tool_calls": []}),
                "has no content",
            ),
            (
                json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
                "list of parts",
            ),
            (
                json!({"role": "user", "content": "x", "contents": 1}),
                "unknown field `contents`",
            ),
        ] {
            let error = read(message).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn a_message_that_was_written_is_read_back() {
        let message = Message {
            tool_call_id: Some("1".into()),
            ..Message::new(Role::Tool, "42")
        };
        assert_eq!(read(serde_json::to_value(&message).unwrap()).unwrap(), message);
    }
}
