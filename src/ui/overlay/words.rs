//! Words by which actions and commands are looked for and that are not in their names, and how well a query's words match.

use crate::ui::keymap::{Action, Motion};

/// Other words for an action.
pub(super) fn of_action(action: Action) -> &'static str {
    match action {
        Action::LeaveOrDelete => "exit leave close program bye",
        Action::NewPane => "new chat conversation tab window split",
        Action::ClosePane => "close chat tab window",
        Action::ReopenPane => "undo close restore pane tab",
        Action::RestoreSession => "undo delete restore undelete conversation chat",
        Action::Sessions => "history chats open load unpin unarchive rename past",
        Action::Dashboard => "stats statistics speed tokens performance memory telemetry tok/s",
        Action::Settings => "parameters options sampling tune",
        Action::Presets => "roles personas profiles unsave",
        Action::Config => {
            "settings file configuration preferences options config.toml keys keybindings shortcuts"
        }
        Action::Help => "shortcuts keybindings keyboard manual",
        Action::Palette => "menu",
        Action::Models => "switch llm download load",
        Action::Themes => "theme dark light color",
        Action::Messages => "notifications warnings errors log",
        Action::Regenerate => "again redo another answer",
        Action::EditPrompt => "change correct",
        Action::Stop => "cancel abort halt",
        Action::Continue => "more resume longer",
        Action::Compare => "diff side by side",
        Action::Broadcast => "everyone all panes",
        Action::NewPrivatePane => "incognito secret temporary",
        Action::ForkPane => "branch duplicate clone copy",
        Action::Zoom => "fullscreen maximize",
        Action::Copy => "clipboard yank",
        Action::Search => "find",
        Action::Thoughts => "thinking reasoning",
        Action::Raw => "source markdown",
        Action::ScreenReader => "accessibility",
        Action::KeepSwitches => "save remember settings wheel",
        Action::ExternalEditor => "vim emacs nano",
        Action::Suspend => "shell background",
        Action::Repaint => "redraw refresh",
        Action::Delete(Motion::LineStart | Motion::LineEnd) => "clear",
        _ => "",
    }
}

/// Other words for a command.
pub(super) fn of_command(name: &str) -> &'static str {
    match name {
        "system" => "prompt instructions role persona language",
        "max-tokens" => "length limit",
        "temperature" => "creativity random",
        "seed" => "random",
        "title" => "rename name",
        "export" | "export-comparison" => "save write",
        "import" => "load chatgpt",
        "quit" => "exit leave",
        "stop-at" => "stop sequence",
        "model" => "llm",
        _ => "",
    }
}

/// How well words are found in a name, in what is said of it and in other words for it: whole ones before beginnings, the
/// name before the others. None where one of them is in none of these.
pub(super) fn rank(query: &str, name: &str, what: &str, others: &str) -> Option<u32> {
    let words = |text: &str| -> Vec<String> {
        let apart = text.split(|c: char| !c.is_alphanumeric() && c != '/');
        apart
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let places = [(words(name), 3), (words(others), 2), (words(what), 1)];
    let mut all = 0;
    let mut wanted = query.split_whitespace().map(str::to_lowercase).peekable();
    wanted.peek()?;
    for wanted in wanted {
        let best = places.iter().filter_map(|(words, worth)| {
            if words.contains(&wanted) {
                Some(10 + worth)
            } else {
                words
                    .iter()
                    .any(|word| word.starts_with(&wanted))
                    .then_some(*worth)
            }
        });
        all += best.max()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_words_come_before_beginnings_and_names_before_what_is_said() {
        let found = |query| rank(query, "close pane", "close this pane", "tab window");
        assert!(found("close") > found("clo") && found("clo").is_some());
        assert!(found("close") > found("tab") && found("tab") > found("this"));
        assert_eq!(found("close bread"), None);
        assert_eq!(found(""), None);
        assert!(found("PANE close") > found("pane"));
    }
}
