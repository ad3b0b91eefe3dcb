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
