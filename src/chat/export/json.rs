//! A conversation as JSON.

use serde_json::{Value, json};

use super::ended;
use crate::chat::record::RecordId;
use crate::chat::replay::Conversation;
use crate::text::message::{Message, Role};

/// The branch that was shown last as `messages` in the OpenAI protocol's form, which `import` reads again; and all branches
/// as `turns`, each with the `id` of the one `before` it and whether it is `shown`.
pub fn to_json(conversation: &Conversation) -> Value {
    let mut messages: Vec<Message> = Vec::new();
    messages.extend(super::system(conversation).map(|system| Message::new(Role::System, system)));
    for turn in &conversation.turns {
        messages.push(Message::new(Role::User, &turn.prompt));
        messages.push(Message::answer(&turn.answer));
    }
    let shown = |record: RecordId| conversation.turns.iter().any(|turn| turn.record == record);
    let turns: Vec<Value> = conversation
        .tree
        .walk(&conversation.turns)
        .into_iter()
        .map(|(before, turn)| {
            let answer = Message::answer(&turn.answer);
            json!({"id": turn.record, "before": before, "shown": shown(turn.record), "at": turn.at.to_string(),
                "prompt": turn.prompt, "answer": answer.content, "thinking": answer.reasoning_content,
                "note": ended(turn)})
        })
        .collect();
    json!({"session": conversation.session, "title": conversation.title, "model": conversation.model,
        "created": conversation.created.map(|at| at.to_string()), "updated": conversation.updated.map(|at| at.to_string()),
        "messages": messages, "turns": turns})
}
