//! Templates render as Python's Jinja renders them (jinja.json, made by jinja.py), conversations with tools among them.

use mlx_chat::text::message::{ChatOptions, Message, Role};
use mlx_chat::text::template::{ChatTemplate, Fallback, Specials};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{assistant, user};

#[derive(Deserialize)]
struct Case {
    source: String,
    messages: Vec<Message>,
    tools: Vec<Value>,
    expected: String,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("jinja.json")).unwrap()
}

impl Case {
    fn render(&self, messages: &[Message]) -> String {
        let specials = Specials {
            bos: "<s>".into(),
            eos: "</s>".into(),
            wants_bos: false,
        };
        let clock = || jiff::civil::date(2031, 2, 3).at(4, 5, 6, 0).in_tz("UTC").unwrap();
        let template = ChatTemplate::new(Some(&self.source), specials, Fallback::ChatMl, Arc::new(clock));
        let options = ChatOptions {
            tools: self.tools.clone(),
            ..ChatOptions::default()
        };
        let rendered = template.render(messages, &options);
        assert_eq!(rendered.note, None, "{}", self.source);
        rendered.text
    }
}

#[test]
fn templates_render_as_pythons_jinja_does() {
    for case in cases() {
        assert_eq!(case.render(&case.messages), case.expected, "{}", case.source);
    }
}

#[test]
fn arguments_of_a_call_may_be_given_as_their_json() {
    let mut calls = 0;
    for case in cases() {
        let mut messages = case.messages.clone();
        for call in messages.iter_mut().flat_map(|message| &mut message.tool_calls) {
            let arguments = &mut call["function"]["arguments"];
            *arguments = arguments.to_string().into();
            calls += 1;
        }
        assert_eq!(case.render(&messages), case.expected);
    }
    assert!(calls > 3);
}

/// A call as models write it into their answer.
fn written(call: &Value) -> String {
    let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
    format!("<tool_call>\n{{\"name\":{name},\"arguments\":{arguments}}}\n</tool_call>")
}

#[test]
fn calls_that_were_answered_are_given_to_templates_that_read_them_and_others_stay_as_written() {
    let case = cases().remove(1);
    let mut messages = case.messages.clone();
    let calls = std::mem::take(&mut messages[1].tool_calls);
    assert_eq!(calls.len(), 2);
    let texts: Vec<String> = calls.iter().map(written).collect();
    messages[1].content = format!("Let me see.\n{}", texts.join("\n"));
    assert_eq!(case.render(&messages), case.expected);
    // No result follows: what the caches hold is kept.
    let unanswered = [user("q"), messages[1].clone(), user("never mind")];
    assert!(case.render(&unanswered).contains(&messages[1].content));
    // One that can't be read.
    messages[1] = assistant("<tool_call>\n{\"name\":\n</tool_call>");
    assert!(
        case.render(&messages)
            .contains("assistant\n<tool_call>\n{\"name\":\n</tool_call>")
    );
}

#[test]
fn messages_of_tools_are_read_from_json_and_written_to_it() {
    let result = json!({"role": "tool", "content": "12", "name": "add", "tool_call_id": "c1"});
    let message: Message = serde_json::from_value(result.clone()).unwrap();
    assert_eq!((message.role, message.name.as_deref()), (Role::Tool, Some("add")));
    assert_eq!(serde_json::to_value(&message).unwrap(), result);
}

#[test]
fn what_python_refuses_is_refused() {
    for source in [
        "{{ [1].index(2) }}",
        "{{ 'a'.center(3, 'xy') }}",
        "{{ 'a'.ljust(1000000000000) }}",
    ] {
        let template = ChatTemplate::new(
            Some(source),
            Specials::default(),
            Fallback::ChatMl,
            Arc::new(jiff::ZonedDateTime::now),
        );
        let rendered = template.render(&[], &ChatOptions::default());
        assert!(rendered.replaced, "{source}: {}", rendered.text);
    }
}
