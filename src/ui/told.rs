//! What is told, with the key for what can be done about it.

use crate::chat::{Notice, Way};
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::pane::one_line;

/// A notice on one line.
pub(super) fn text(notice: &Notice, keymap: &Keymap) -> String {
    let way = notice.way.map_or(String::new(), |way| words(way, keymap));
    format!("{}{way}", one_line(&notice.text))
}

/// What can be done, behind what was told.
fn words(way: Way, keymap: &Keymap) -> String {
    let key = |action| keymap.way(action);
    match way {
        Way::BringBack => format!(": {} brings it back", key(Action::RestoreSession)),
        Way::Send => format!(": {} sends the draft", key(Action::Send)),
        Way::Temperature => format!("; {} gives it a temperature", key(Action::Settings)),
        Way::Another => format!(
            ": {} edits a prompt, {} has it answered once more",
            key(Action::EditPrompt),
            key(Action::Regenerate)
        ),
        Way::Full => format!("; {}", when_full(keymap)),
        Way::Reopen => format!(": {} reopens it", key(Action::ReopenPane)),
    }
}

/// What helps where a conversation is as long as the model takes.
pub(super) fn when_full(keymap: &Keymap) -> String {
    let new = keymap.written(Action::NewConversation).unwrap_or("/new");
    format!(
        "{new} begins another, {} edits an earlier prompt",
        keymap.way(Action::EditPrompt)
    )
}
