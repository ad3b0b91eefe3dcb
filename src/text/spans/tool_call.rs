//! Calls of tools, made readable.

use serde_json::{Map, Value};

/// A call of a tool, as the model wrote it. Nothing is ever called.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// What it is given: mostly an object; a text where the model wrote no JSON.
    pub arguments: Value,
}

impl std::fmt::Display for ToolCall {
    /// `name {"key": "value"}`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.arguments {
            Value::String(text) => write!(f, "{} {text}", self.name),
            other => write!(f, "{} {other}", self.name),
        }
    }
}

/// Reads the calls in a tool-call span, markers included: JSON (one, several, or a list), `name{…}` behind a bracketed or
/// channel marker, and `<function=name><parameter=key>…`. `None` where it is none of these: then the text is to be shown
/// as it is.
pub fn tool_calls(raw: &str) -> Option<Vec<ToolCall>> {
    let calls = addressed(raw)
        .or_else(|| tagged(raw))
        .or_else(|| named(raw))
        .or_else(|| json(raw))?;
    (!calls.is_empty()).then_some(calls)
}

/// `… to=functions.name …<|message|>{…}<|call|>`.
fn addressed(raw: &str) -> Option<Vec<ToolCall>> {
    let (header, body) = raw.split_once("<|message|>")?;
    let (_, to) = header.split_once("to=")?;
    let name = to.split(|c: char| c.is_whitespace() || c == '<').next()?;
    let body = body.split("<|").next().unwrap_or_default().trim();
    Some(vec![ToolCall {
        name: name.trim_start_matches("functions.").to_owned(),
        arguments: serde_json::from_str(body).unwrap_or_else(|_| Value::from(body)),
    }])
}

/// `<function=name><parameter=key>value</parameter>…</function>`, several of them.
fn tagged(raw: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    for part in raw.split("<function=").skip(1) {
        let (name, rest) = part.split_once('>')?;
        let mut arguments = Map::new();
        for parameter in rest.split("<parameter=").skip(1) {
            let (key, value) = parameter.split_once('>')?;
            let (value, _) = value.split_once("</parameter>")?;
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            arguments.insert(key.to_owned(), value);
        }
        calls.push(ToolCall {
            name: name.to_owned(),
            arguments: Value::Object(arguments),
        });
    }
    Some(calls).filter(|calls| !calls.is_empty())
}

/// `[TOOL_CALLS]name[ARGS]{…}`, or `name{…}`, several of them.
fn named(raw: &str) -> Option<Vec<ToolCall>> {
    if !raw.starts_with("[TOOL_CALLS]") {
        return None;
    }
    let mut calls = Vec::new();
    for part in raw.split("[TOOL_CALLS]").filter(|part| !part.trim().is_empty()) {
        let at = part.find('{')?;
        let (name, body) = part.split_at_checked(at)?;
        let name = name.split("[ARGS]").next().unwrap_or_default();
        let name = name.split("[CALL_ID]").next().unwrap_or_default().trim();
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(plain) {
            return None;
        }
        calls.push(ToolCall {
            name: name.to_owned(),
            arguments: serde_json::from_str(body.trim()).ok()?,
        });
    }
    Some(calls)
}

/// JSON between whatever markers there are.
fn json(raw: &str) -> Option<Vec<ToolCall>> {
    let start = raw.find("{\"").or_else(|| raw.find('{'))?;
    let list = raw.get(..start)?.trim_end().ends_with('[')
        && !raw.get(..start)?.trim_end().ends_with("[TOOL_CALLS]");
    let start = if list {
        raw.get(..start)?.rfind('[')?
    } else {
        start
    };
    let mut calls = Vec::new();
    let mut values = serde_json::Deserializer::from_str(raw.get(start..)?).into_iter::<Value>();
    // What follows the last value is a marker.
    while let Some(Ok(value)) = values.next() {
        match value {
            Value::Array(several) => {
                for one in several {
                    calls.push(call(one)?);
                }
            }
            one => calls.push(call(one)?),
        }
    }
    Some(calls)
}

fn call(value: Value) -> Option<ToolCall> {
    let Value::Object(mut object) = value else {
        return None;
    };
    if let Some(Value::Object(function)) = object.remove("function") {
        object = function;
    }
    let name = object.remove("name").or_else(|| object.remove("tool_name"))?;
    let arguments = object.remove("arguments").or_else(|| object.remove("parameters"));
    let arguments = match arguments.unwrap_or_else(|| Value::Object(Map::new())) {
        // Some models write the arguments' JSON into a string.
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    Some(ToolCall {
        name: name.as_str()?.to_owned(),
        arguments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: &str) -> Option<Vec<String>> {
        Some(tool_calls(raw)?.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn calls_are_read_in_the_forms_that_models_write() {
        let expected = Some(vec![r#"weather {"city":"Bern"}"#.to_owned()]);
        for raw in [
            r#"<tool_call>
{"name": "weather", "arguments": {"city": "Bern"}}
</tool_call>"#,
            r#"<tool_call>{"name": "weather", "arguments": "{\"city\": \"Bern\"}"}</tool_call>"#,
            r#"[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Bern"}}]"#,
            r#"[TOOL_CALLS]weather[ARGS]{"city": "Bern"}"#,
            r#"<|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "Bern"}}"#,
            "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>",
            r#"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "Bern"}<|call|>"#,
            r#"<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Bern"}}]<|END_ACTION|>"#,
        ] {
            assert_eq!(shown(raw), expected, "{raw}");
        }
        assert_eq!(
            shown(r#"<TOOLCALL>[{"name": "a"}, {"name": "b", "arguments": {}}]</TOOLCALL>"#),
            Some(vec!["a {}".to_owned(), "b {}".to_owned()])
        );
    }

    #[test]
    fn what_is_no_call_is_left_to_be_shown_as_it_is() {
        for raw in [
            "",
            "<tool_call>",
            "<tool_call>{\"name\": \"weather\", </tool_call>",
            "<tool_call>{\"city\": 1}</tool_call>",
            "<tool_call>[1, 2]</tool_call>",
            "[TOOL_CALLS]two words{}",
            "<function=",
            "<|message|>",
        ] {
            assert_eq!(shown(raw), None, "{raw}");
        }
    }
}
