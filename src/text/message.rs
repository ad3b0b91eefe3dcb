//! A conversation as chat templates take it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::spans::{Markup, Span, Spanned, ToolCall, tool_calls};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation.
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
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
    /// What the model thought before it, for [`Role::Assistant`]; the template decides what becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of tools, for [`Role::Assistant`], as the OpenAI protocol writes them: `{"id"?, "type"?, "function": {"name",
    /// "arguments"}}`, the arguments an object or its JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Value>,
    /// Which tool answers, for [`Role::Tool`], where the template wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which call is answered, for [`Role::Tool`]: its `id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
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
