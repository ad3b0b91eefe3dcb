//! What a model's chat template can do, found out by rendering with it.

use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::codec::Codec;
use super::folder;
use super::message::{ChatOptions, Message, Role};
use super::template::Rendered;
use crate::gguf::Gguf;

/// A system message that no template writes by itself.
const PROBE: &str = "Answer as a lighthouse keeper.";
/// A tool that no template writes by itself.
const TOOL: &str = "light_the_lighthouse";

/// What a model's chat template can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Whether it has a template that renders a plain conversation; else another one is used in its place.
    pub own_template: bool,
    /// Whether that template takes system messages; else they are put before the user's first message.
    pub system_role: bool,
    /// Whether that template has a switch for thinking before an answer.
    pub thinking_switch: bool,
    /// Whether that template tells the model of tools.
    pub tools: bool,
}

impl Capabilities {
    /// Renders a few short conversations.
    pub fn of(codec: &Codec) -> Self {
        let render = |messages: &[Message], tools| {
            let options = ChatOptions {
                tools,
                ..ChatOptions::default()
            };
            codec.render(messages, &options)
        };
        let user = Message::new(Role::User, "Hello.");
        let own_template = !render(std::slice::from_ref(&user), Vec::new()).replaced;
        let shows = |rendered: Rendered, what| {
            own_template && rendered.note.is_none() && rendered.text.contains(what)
        };
        let tool = json!({"type": "function", "function": {"name": TOOL, "description": "Lights it.", "parameters": {
            "type": "object", "properties": {}, "required": []}}});
        Self {
            own_template,
            system_role: shows(
                render(&[Message::new(Role::System, PROBE), user.clone()], Vec::new()),
                PROBE,
            ),
            thinking_switch: own_template && codec.has_thinking_switch(),
            tools: shows(render(&[user], vec![tool]), TOOL),
        }
    }
}

/// Whether a model, a folder or a GGUF file, has a chat template of its own; none where that can't be read. Its tokenizer
/// isn't read for it.
pub fn has_template(model: &Path) -> Option<bool> {
    if model.is_dir() {
        return folder::has_template(model);
    }
    let file = Gguf::open(model).ok()?;
    let template = file.metadata().opt_str("tokenizer.chat_template").ok()?;
    Some(template.is_some_and(|template| !template.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tiny::write_two_letters;

    fn of(template: Option<&str>) -> Capabilities {
        let folder = tempfile::tempdir().unwrap();
        write_two_letters(folder.path());
        if let Some(template) = template {
            std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        }
        Capabilities::of(&Codec::from_folder(folder.path()).unwrap().unwrap())
    }

    #[test]
    fn a_template_is_tried_with_a_system_message_with_thinking_and_with_tools() {
        let all = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        let refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}";
        let silent = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        let broken = "{% for %}";
        let thinking =
            "{% for m in messages %}{{ m.content }}{% endfor %}{% if enable_thinking %}<think>{% endif %}";
        let tools = "{% if tools %}{{ tools[0].function.name }}{% endif %}{{ messages[-1].content }}";
        let capable = |own_template, system_role, thinking_switch, tools| Capabilities {
            own_template,
            system_role,
            thinking_switch,
            tools,
        };
        assert_eq!(of(Some(all)), capable(true, true, false, false));
        assert_eq!(of(Some(refusing)), capable(true, false, false, false));
        assert_eq!(
            of(Some(silent)),
            capable(true, false, false, false),
            "dropped without a word"
        );
        assert_eq!(of(Some(thinking)), capable(true, true, true, false));
        assert_eq!(of(Some(tools)), capable(true, false, false, true));
        assert_eq!(of(Some(broken)), capable(false, false, false, false));
        assert_eq!(of(None), capable(false, false, false, false));
    }

    #[test]
    fn a_template_is_known_without_the_tokenizer() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(has_template(folder.path()), Some(false));
        std::fs::write(
            folder.path().join("tokenizer_config.json"),
            r#"{"chat_template": "{{x}}"}"#,
        )
        .unwrap();
        assert_eq!(has_template(folder.path()), Some(true));
        std::fs::write(folder.path().join("tokenizer_config.json"), "{").unwrap();
        assert_eq!(has_template(folder.path()), None);
        assert_eq!(has_template(&folder.path().join("none.gguf")), None);
    }
}
