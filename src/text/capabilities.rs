//! What a model's chat template can do, found out by rendering with it.

use serde::Serialize;

use super::codec::Codec;
use super::message::{Message, Role};

/// A system message that no template writes by itself.
const PROBE: &str = "Answer as a lighthouse keeper.";

/// What a model's chat template can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Whether it has a template that renders a plain conversation; else another one is used in its place.
    pub own_template: bool,
    /// Whether that template takes system messages; else they are put before the user's first message.
    pub system_role: bool,
}

impl Capabilities {
    /// Renders a few short conversations.
    pub fn of(codec: &Codec) -> Self {
        let message = |role, content: &str| Message {
            role,
            content: content.to_owned(),
        };
        let user = message(Role::User, "Hello.");
        let own_template = codec.render(std::slice::from_ref(&user)).note.is_none();
        let told = codec.render(&[message(Role::System, PROBE), user]);
        Self {
            own_template,
            system_role: own_template && told.note.is_none() && told.text.contains(PROBE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(template: Option<&str>) -> Capabilities {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "added_tokens": [],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                      "vocab": {"a": 0, "b": 1}, "merges": []}
        });
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        if let Some(template) = template {
            std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        }
        Capabilities::of(&Codec::from_folder(folder.path()).unwrap().unwrap())
    }

    #[test]
    fn a_template_is_tried_with_and_without_a_system_message() {
        let all = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
        let refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].content }}";
        let silent = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}";
        let broken = "{% for %}";
        let capable = |own_template, system_role| Capabilities {
            own_template,
            system_role,
        };
        assert_eq!(of(Some(all)), capable(true, true));
        assert_eq!(of(Some(refusing)), capable(true, false));
        assert_eq!(of(Some(silent)), capable(true, false), "dropped without a word");
        assert_eq!(of(Some(broken)), capable(false, false));
        assert_eq!(of(None), capable(false, false));
    }
}
