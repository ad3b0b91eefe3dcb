//! The keys of what is done while one writes and picks: conversations, undo, the person's own editor.

use crossterm::event::{KeyCode as K, KeyModifiers};

use crate::ui::keymap::{Action as A, Binding, Group, Motion, Scope};

const NO: KeyModifiers = KeyModifiers::NONE;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const ALT: KeyModifiers = KeyModifiers::ALT;

pub(in crate::ui) const fn key(
    (scope, group): (Scope, Group),
    action: A,
    keys: &'static [(KeyModifiers, K)],
    name: &'static str,
    help: &'static str,
) -> Binding {
    Binding {
        action,
        scope,
        keys,
        name,
        help,
        group,
        footer: None,
    }
}

const EDITING: (Scope, Group) = (Scope::Chat, Group::Editing);
const PICKING: (Scope, Group) = (Scope::Sessions, Group::Sessions);

/// These keys, in the help's order.
pub(in crate::ui) const WRITING: &[Binding] = &[
    key(
        (Scope::Everywhere, Group::Panes),
        A::Sessions,
        &[(ALT, K::Char('o')), (CTRL, K::Char('o'))],
        "Alt-o",
        "conversations: open, rename, pin, archive, delete (also ^O)",
    ),
    key(
        (Scope::Everywhere, Group::Screen),
        A::Models,
        &[(ALT, K::Char('m'))],
        "Alt-m",
        "models: pick, download, delete; delete the prompt cache",
    ),
    key(
        (Scope::Models, Group::Models),
        A::DeleteModel,
        &[(CTRL, K::Char('x'))],
        "^X",
        "delete the model from disk, or the prompt cache's files",
    ),
    key(
        PICKING,
        A::SearchText,
        &[(NO, K::Tab)],
        "Tab",
        "by what was said, or by titles again",
    ),
    key(
        PICKING,
        A::RenameSession,
        &[(CTRL, K::Char('r'))],
        "^R",
        "another title",
    ),
    key(
        PICKING,
        A::DeleteSession,
        &[(CTRL, K::Char('x'))],
        "^X",
        "delete, once the list closes; until then, undo takes it back",
    ),
    key(
        EDITING,
        A::Undo,
        &[(CTRL, K::Char('_')), (CTRL, K::Char('7')), (CTRL, K::Char('/'))],
        "^_",
        "take the last change back (also ^7, ^/)",
    ),
    key(
        EDITING,
        A::Redo,
        &[(ALT, K::Char('_')), (ALT, K::Char('z'))],
        "Alt-_",
        "make it again (also Alt-z)",
    ),
    key(
        EDITING,
        A::Delete(Motion::WordRight),
        &[(ALT, K::Char('d')), (CTRL, K::Delete), (ALT, K::Delete)],
        "Alt-d",
        "delete a word to the right (also ^Delete, Alt-Delete)",
    ),
    key(
        EDITING,
        A::ExternalEditor,
        &[(ALT, K::Char('g')), (CTRL, K::Char('g'))],
        "Alt-g",
        "edit it in $VISUAL or $EDITOR (also ^G)",
    ),
];
