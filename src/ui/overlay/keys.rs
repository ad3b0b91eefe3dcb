//! The keys of what concerns several panes and how answers are made, and of what is done with picked conversations.

use crossterm::event::{KeyCode as K, KeyModifiers};

use crate::ui::keymap::{Action as A, Binding, Group, Scope};
use crate::ui::writing::keys::key;

const ALT: KeyModifiers = KeyModifiers::ALT;

const PANES: (Scope, Group) = (Scope::Chat, Group::Panes);
const PICKING: (Scope, Group) = (Scope::Sessions, Group::Sessions);

/// The same with a word for the footer.
const fn with_footer(binding: Binding, word: &'static str) -> Binding {
    Binding {
        footer: Some(word),
        ..binding
    }
}

/// These keys, in the help's order.
pub(in crate::ui) const ON_TOP: &[Binding] = &[
    key(
        PANES,
        A::Settings,
        &[(ALT, K::Char('s'))],
        "Alt-s",
        "how answers are made in this pane: show and change it",
    ),
    key(
        PANES,
        A::Presets,
        &[(ALT, K::Char('p'))],
        "Alt-p",
        "make this pane as a preset has it",
    ),
    key(
        PANES,
        A::TakePart,
        &[(ALT, K::Char('j'))],
        "Alt-j",
        "whether this pane takes part when a prompt goes to several",
    ),
    key(
        (Scope::Chat, Group::Prompt),
        A::Continue,
        &[(ALT, K::Char('n'))],
        "Alt-n",
        "have the answer go on that was cut off",
    ),
    key(
        PANES,
        A::Compare,
        &[(ALT, K::Char('c'))],
        "Alt-c",
        "answers to the last prompt side by side; keep one",
    ),
    key(
        PANES,
        A::NewConversation,
        &[],
        "",
        "clear this pane for a new chat; the old is kept",
    ),
    key(
        PANES,
        A::NewPrivatePane,
        &[(ALT, K::Char('q'))],
        "Alt-q",
        "open a private pane: nothing of it is kept",
    ),
    key(
        PANES,
        A::RestoreSession,
        &[(ALT, K::Char('k'))],
        "Alt-k",
        "bring back the conversation that was deleted last",
    ),
    with_footer(
        key(
            PICKING,
            A::PinSession,
            &[(ALT, K::Char('p'))],
            "Alt-p",
            "pin it before all others, or no more",
        ),
        "pin",
    ),
    with_footer(
        key(
            PICKING,
            A::ArchiveSession,
            &[(ALT, K::Char('h'))],
            "Alt-h",
            "archive it: out of the list, or back",
        ),
        "archive",
    ),
    with_footer(
        key(
            PICKING,
            A::ListArchived,
            &[(ALT, K::Char('l'))],
            "Alt-l",
            "list archived ones, too, or no more",
        ),
        "archived, too",
    ),
    key(
        (Scope::Settings, Group::Settings),
        A::ResetSetting,
        &[(KeyModifiers::NONE, K::Delete)],
        "Delete",
        "reset the selected setting to what new panes have",
    ),
    key(
        (Scope::Settings, Group::Settings),
        A::ResetSettings,
        &[(ALT, K::Char('r'))],
        "Alt-r",
        "reset all settings of the pane; undo takes it back",
    ),
    key(
        (Scope::Presets, Group::Settings),
        A::DeletePreset,
        &[
            (KeyModifiers::NONE, K::Delete),
            (KeyModifiers::CONTROL, K::Char('x')),
        ],
        "Delete",
        "delete the selected preset, if it is one of yours (also ^X)",
    ),
    key(
        (Scope::Presets, Group::Settings),
        A::RenamePreset,
        &[(KeyModifiers::CONTROL, K::Char('r'))],
        "^R",
        "another name for the selected preset, if it is one of yours",
    ),
    key(
        (Scope::Everywhere, Group::Screen),
        A::Config,
        &[],
        "",
        "edit the settings file in $VISUAL or $EDITOR",
    ),
];
