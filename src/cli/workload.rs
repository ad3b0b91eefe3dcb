//! The lines of a replay's workload.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::engine::{Prompt, Request};
use crate::sampling::Sampling;
use crate::text::message::{ChatOptions, Message};

/// The most tokens of an answer where a line doesn't say.
const MAX_TOKENS: usize = 256;

/// One request of a workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Names the request in the output.
    pub id: serde_json::Value,
    /// Token ids or raw text.
    #[serde(default)]
    pub prompt: Option<PromptField>,
    /// A conversation.
    #[serde(default)]
    pub messages: Option<Vec<Message>>,
    /// Whether the model is to think, where its chat template has a switch.
    #[serde(default)]
    pub thinking: Option<bool>,
    /// Tools that the chat template is told of.
    #[serde(default)]
    pub tools: Vec<Value>,
    /// Further variables of the chat template.
    #[serde(default)]
    pub chat_template_kwargs: Map<String, Value>,
    /// Raw text; the same as a text prompt.
    #[serde(default)]
    pub text: Option<String>,
    /// Decode forwards before it is submitted.
    #[serde(default)]
    pub at_step: u64,
    /// The most tokens of the answer; 256, or as many of them as there is room for, where it isn't said.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    #[serde(default)]
    pub sampling: Sampling,
    /// Texts that end the answer.
    #[serde(default)]
    pub stop: Vec<String>,
    /// The session's name.
    #[serde(default)]
    pub session: Option<String>,
    /// Whether the prompt cache may be used.
    #[serde(default = "yes")]
    pub cache: bool,
    /// Whether EOS is a token like any other.
    #[serde(default)]
    pub ignore_eos: bool,
    /// Cancel after so many tokens.
    #[serde(default)]
    pub cancel_after_tokens: Option<usize>,
    /// Report log-probabilities of the tokens.
    #[serde(default)]
    pub logprobs: Option<usize>,
}

/// `prompt` of a line.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub enum PromptField {
    /// Token ids.
    Tokens(Vec<u32>),
    /// Raw text.
    Text(String),
    /// A conversation.
    Messages(Vec<Message>),
}

impl TryFrom<Value> for PromptField {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let items = match value {
            Value::String(text) => return Ok(Self::Text(text)),
            Value::Array(items) => items,
            other => {
                return Err(format!(
                    "\"prompt\" is {other}, but must be token ids, a text, or a list of messages"
                ));
            }
        };
        if items.first().is_some_and(Value::is_object) {
            return serde_json::from_value(Value::Array(items))
                .map(Self::Messages)
                .map_err(|error| format!("\"prompt\": {error}"));
        }
        let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
        items
            .iter()
            .map(|item| id(item).ok_or_else(|| format!("\"prompt\" has {item}, which is no token id")))
            .collect::<Result<_, _>>()
            .map(Self::Tokens)
    }
}

fn yes() -> bool {
    true
}

impl Line {
    /// How many token ids its prompt gives; 0 for text, which only a tokenizer can count.
    pub fn prompt_ids(&self) -> usize {
        match &self.prompt {
            Some(PromptField::Tokens(tokens)) => tokens.len(),
            _ => 0,
        }
    }

    /// The request of this line; what is wrong with it otherwise.
    pub fn request(&self) -> Result<Request, String> {
        let text = self.text.clone().map(PromptField::Text);
        let messages = self.messages.clone().map(PromptField::Messages);
        let mut given = [self.prompt.clone(), text, messages].into_iter().flatten();
        let prompt = match (given.next(), given.next()) {
            (Some(prompt), None) => prompt,
            (None, _) => return Err("it needs a prompt: \"prompt\" (ids or text) or \"messages\"".into()),
            (Some(_), Some(_)) => {
                return Err("\"prompt\", \"text\" and \"messages\" exclude each other".into());
            }
        };
        if self.logprobs.is_some_and(|count| count > 1) {
            return Err("\"logprobs\" may be 0 or 1: the chosen token's log-probability is reported".into());
        }
        let prompt = match prompt {
            PromptField::Tokens(tokens) => Prompt::Tokens(tokens),
            PromptField::Text(text) => Prompt::Text(text),
            PromptField::Messages(messages) => Prompt::Messages(messages),
        };
        Ok(Request {
            chat: Box::new(ChatOptions {
                thinking: self.thinking,
                tools: self.tools.clone(),
                arguments: self.chat_template_kwargs.clone(),
            }),
            sampling: self.sampling,
            stop: self.stop.clone(),
            session: self.session.clone(),
            cache: self.cache,
            ignore_eos: self.ignore_eos,
            cancel_after_tokens: self.cancel_after_tokens,
            logprobs: self.logprobs.is_some(),
            ..Request::up_to(prompt, self.max_tokens, MAX_TOKENS)
        })
    }
}

/// Reads a workload: a JSON object a line; empty lines are passed over. Errors name the line.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    // By the id as it is written out: numbers and texts are told apart.
    let mut seen: HashMap<String, usize> = HashMap::new();
    let read = |line: &str| {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        // Checked here, where the line's number is known and no model is loaded yet.
        line.request().map(|_| line)
    };
    let mut parsed = Vec::new();
    for (line, number) in lines {
        let line = read(line).map_err(|message| format!("line {number}: {message}"))?;
        if let Some(first) = seen.insert(line.id.to_string(), number) {
            let id = &line.id;
            return Err(format!(
                "line {number}: the id {id} is that of line {first} already; events are told apart by it"
            ));
        }
        parsed.push(line);
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_text_and_messages_are_told_apart() {
        let text = concat!(
            "{\"id\": 1, \"prompt\": [1, 2], \"at_step\": 3, \"max_tokens\": 4}\n\n",
            "{\"id\": \"b\", \"prompt\": \"hello\", \"session\": \"s\", \"cache\": false}\n",
            "{\"id\": \"c\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"logprobs\": 1}\n",
        );
        let lines = parse(text).unwrap();
        let first = lines[0].request().unwrap();
        assert_eq!(
            (first.prompt, lines[0].at_step, first.max_tokens),
            (Prompt::Tokens(vec![1, 2]), 3, 4)
        );
        let second = lines[1].request().unwrap();
        assert_eq!(
            (second.prompt, second.cache),
            (Prompt::Text("hello".into()), false)
        );
        assert!(lines[2].request().unwrap().logprobs);
    }

    #[test]
    fn what_is_not_built_yet_is_an_error_with_its_line() {
        let text = "{\"id\": 1, \"prompt\": [1]}\n{\"id\": 2, \"prompt\": [1], \"grammar\": {}}";
        let message = parse(text).unwrap_err();
        assert!(
            message.starts_with("line 2: unknown field `grammar`"),
            "{message}"
        );
    }

    #[test]
    fn an_id_names_one_line() {
        let line = |id: &str| format!("{{\"id\": {id}, \"prompt\": [1]}}\n");
        let twice = format!("{}\n{}{}", line("1"), line("\"a\""), line("1"));
        let message = parse(&twice).unwrap_err();
        assert!(
            message.starts_with("line 4: the id 1 is that of line 1"),
            "{message}"
        );
        assert_eq!(
            parse(&format!("{}{}", line("1"), line("\"1\""))).unwrap().len(),
            2
        );
    }

    #[test]
    fn a_limit_that_is_not_said_shrinks_where_one_that_is_said_stays() {
        let text = "{\"id\": 1, \"prompt\": [1]}\n{\"id\": 2, \"prompt\": [1], \"max_tokens\": 256}";
        let requests = parse(text)
            .unwrap()
            .into_iter()
            .map(|line| line.request().unwrap());
        let limits: Vec<(usize, bool)> = requests
            .map(|request| (request.max_tokens, request.shrinks))
            .collect();
        assert_eq!(limits, [(256, true), (256, false)]);
    }

    #[test]
    fn what_is_no_prompt_is_told_with_its_value() {
        for (prompt, told) in [
            ("[-1]", "\"prompt\" has -1, which is no token id"),
            ("[1, 1.5]", "\"prompt\" has 1.5, which is no token id"),
            (
                "[1, 4294967296]",
                "\"prompt\" has 4294967296, which is no token id",
            ),
            ("[1, \"a\"]", "\"prompt\" has \"a\", which is no token id"),
            (
                "7",
                "\"prompt\" is 7, but must be token ids, a text, or a list of messages",
            ),
            ("{\"a\": 1}", "\"prompt\" is {\"a\":1}, but must be"),
            (
                "[{\"role\": \"user\"}]",
                "\"prompt\": a message of the user has no content",
            ),
        ] {
            let message = parse(&format!("{{\"id\": 1, \"prompt\": {prompt}}}")).unwrap_err();
            assert!(message.starts_with(&format!("line 1: {told}")), "{message}");
        }
        let empty = parse("{\"id\": 1, \"prompt\": []}").unwrap();
        assert_eq!(empty[0].prompt, Some(PromptField::Tokens(Vec::new())));
    }

    #[test]
    fn a_line_has_exactly_one_prompt() {
        assert!(
            parse("{\"id\": 1}")
                .unwrap_err()
                .starts_with("line 1: it needs a prompt")
        );
        assert!(
            parse("{\"id\": 1, \"prompt\": \"a\", \"text\": \"b\"}")
                .unwrap_err()
                .contains("exclude")
        );
        assert!(
            parse("{\"id\": 1, \"prompt\": \"a\", \"logprobs\": 5}")
                .unwrap_err()
                .contains("logprobs")
        );
    }
}
