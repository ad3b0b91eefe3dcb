//! Every key that does something, as data; [`crate::ui::keys`] looks them up, with the changes of the settings.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

pub use crate::ui::action::{Action, Motion, Reading};
use crate::ui::looks::LOOKS;
use crate::ui::overlay::keys::ON_TOP;
use crate::ui::reading::keys::READING;
use crate::ui::writing::keys::WRITING;

/// Where keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Wherever one is.
    Everywhere,
    /// While a draft is written.
    Chat,
    /// While the engine fills the screen.
    Dashboard,
    /// While a conversation is picked.
    Sessions,
    /// While a model is picked.
    Models,
    /// While settings are shown.
    Settings,
    /// While a preset is picked.
    Presets,
    /// While one reads; keys of the chat that type nothing count, too.
    Reading,
}

/// The help's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Prompts.
    Prompt,
    /// Panes.
    Panes,
    /// What was said.
    Transcript,
    /// Screens and the program.
    Screen,
    /// Writing of prompts.
    Editing,
    /// Picking a conversation.
    Sessions,
    /// Single keys while one reads.
    Reading,
    /// Picking a model.
    Models,
    /// Settings and presets.
    Settings,
}

impl Scope {
    /// Whether it is of something that lies on top and takes all keys.
    pub(super) fn is_on_top(self) -> bool {
        matches!(
            self,
            Self::Sessions | Self::Models | Self::Settings | Self::Presets
        )
    }
}

impl Group {
    /// All of them, in the help's order.
    pub const ALL: [Self; 9] = [
        Self::Prompt,
        Self::Panes,
        Self::Transcript,
        Self::Reading,
        Self::Screen,
        Self::Editing,
        Self::Sessions,
        Self::Models,
        Self::Settings,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Prompt => "Prompt",
            Self::Panes => "Panes",
            Self::Transcript => "Transcript",
            Self::Screen => "Screen",
            Self::Editing => "Editing",
            Self::Sessions => "Picking a conversation",
            Self::Reading => "While reading",
            Self::Models => "Picking a model",
            Self::Settings => "Settings and presets",
        }
    }
}

/// One way to ask for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// What it asks for; for `Alt-1..9`, pane 1 stands for all nine.
    pub action: Action,
    /// Where it counts.
    pub scope: Scope,
    /// The keys, each with its modifiers.
    pub keys: &'static [(KeyModifiers, KeyCode)],
    /// The keys as they are written.
    pub name: &'static str,
    /// What it does, in the help.
    pub help: &'static str,
    /// Its part of the help.
    pub group: Group,
    /// Its word in the footer, where it is there; the footer drops from the end.
    pub footer: Option<&'static str>,
}

const NO: KeyModifiers = KeyModifiers::NONE;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const ALT: KeyModifiers = KeyModifiers::ALT;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

macro_rules! bind {
    ($scope:ident, $group:ident, $action:expr, [$($key:expr),+], $name:literal, $help:literal $(, $footer:literal)?) => {
        Binding {
            action: $action,
            scope: Scope::$scope,
            keys: &[$($key),+],
            name: $name,
            help: $help,
            group: Group::$group,
            footer: bind!(@footer $($footer)?),
        }
    };
    (@footer) => { None };
    (@footer $footer:literal) => { Some($footer) };
}

use Action as A;
use KeyCode as K;
use Motion as M;

/// The lists of bindings.
const PARTS: [&[Binding]; 5] = [CHAT, WRITING, READING, LOOKS, ON_TOP];

/// All bindings; the order is that of footer and help.
pub const BINDINGS: &[Binding] = &{
    let mut all = [CHAT[0]; CHAT.len() + WRITING.len() + READING.len() + LOOKS.len() + ON_TOP.len()];
    let (mut part, mut to) = (0, 0);
    while part < PARTS.len() {
        let mut at = 0;
        while at < PARTS[part].len() {
            all[to] = PARTS[part][at];
            (at, to) = (at + 1, to + 1);
        }
        part += 1;
    }
    all
};

/// Those that are in no list of their own.
const CHAT: &[Binding] = &[
    bind!(
        Chat,
        Prompt,
        A::Send,
        [(NO, K::Enter)],
        "Enter",
        "send the prompt",
        "send"
    ),
    bind!(
        Chat,
        Prompt,
        A::Newline,
        [(CTRL, K::Char('j')), (ALT, K::Enter), (SHIFT, K::Enter)],
        "^J",
        "new line (also Alt-Enter, Shift-Enter)",
        "line"
    ),
    bind!(
        Everywhere,
        Prompt,
        A::Stop,
        [(NO, K::Esc)],
        "Esc",
        "close what lies on top, give up an edit, or stop the answer",
        "stop"
    ),
    bind!(
        Everywhere,
        Prompt,
        A::Interrupt,
        [(CTRL, K::Char('c'))],
        "^C",
        "clear the draft (Up returns it), else stop, else twice: quit"
    ),
    bind!(
        Chat,
        Panes,
        A::NextPane,
        [(NO, K::Tab)],
        "Tab",
        "next pane",
        "pane"
    ),
    bind!(
        Chat,
        Panes,
        A::PreviousPane,
        [(SHIFT, K::BackTab), (NO, K::BackTab), (SHIFT, K::Tab)],
        "Shift-Tab",
        "pane before"
    ),
    bind!(
        Chat,
        Panes,
        A::Pane(1),
        [(ALT, K::Char('1'))],
        "Alt-1..9",
        "pane by number"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Help,
        [(NO, K::F(1))],
        "F1",
        "all keys and commands",
        "help"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Palette,
        [(CTRL, K::Char('p'))],
        "^P",
        "find actions and commands by a few letters",
        "menu"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Dashboard,
        [(NO, K::F(2))],
        "F2",
        "the engine on the full screen: steps, memory, cache",
        "engine"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Messages,
        [(NO, K::F(9))],
        "F9",
        "all that was told lately, in full"
    ),
    bind!(
        Everywhere,
        Screen,
        A::LeaveOrDelete,
        [(CTRL, K::Char('d'))],
        "^D",
        "quit (exit), if the draft is empty",
        "quit"
    ),
    bind!(
        Chat,
        Panes,
        A::Broadcast,
        [(NO, K::F(3))],
        "F3",
        "send prompts to all panes, or to one again",
        "to all"
    ),
    bind!(
        Chat,
        Panes,
        A::NewPane,
        [(NO, K::F(4))],
        "F4",
        "open a pane",
        "new"
    ),
    bind!(
        Chat,
        Panes,
        A::Zoom,
        [(NO, K::F(7))],
        "F7",
        "this pane alone, or all again",
        "zoom"
    ),
    bind!(
        Chat,
        Panes,
        A::ClosePane,
        [(NO, K::F(8)), (ALT, K::Char('x'))],
        "F8",
        "close this pane (also Alt-x)",
        "close"
    ),
    bind!(
        Chat,
        Transcript,
        A::PageUp,
        [(NO, K::PageUp)],
        "PgUp",
        "scroll up; new text doesn't move what you read"
    ),
    bind!(
        Chat,
        Transcript,
        A::PageDown,
        [(NO, K::PageDown)],
        "PgDn",
        "scroll down"
    ),
    bind!(
        Chat,
        Transcript,
        A::LineUp,
        [(CTRL, K::Up)],
        "^Up",
        "scroll up by a line"
    ),
    bind!(
        Chat,
        Transcript,
        A::LineDown,
        [(CTRL, K::Down)],
        "^Down",
        "scroll down by a line"
    ),
    bind!(
        Chat,
        Transcript,
        A::Top,
        [(CTRL, K::Home)],
        "^Home",
        "to the beginning (Home alone with an empty draft)"
    ),
    bind!(
        Chat,
        Transcript,
        A::Bottom,
        [(CTRL, K::End)],
        "^End",
        "to the end, and follow it (End alone with an empty draft)"
    ),
    bind!(
        Chat,
        Transcript,
        A::Thoughts,
        [(CTRL, K::Char('t'))],
        "^T",
        "the model's thoughts in full, or a line of each"
    ),
    bind!(
        Dashboard,
        Screen,
        A::Freeze,
        [(NO, K::Char(' '))],
        "Space",
        "hold the engine's view still",
        "freeze"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Repaint,
        [(CTRL, K::Char('l'))],
        "^L",
        "paint the screen anew"
    ),
    bind!(
        Everywhere,
        Screen,
        A::Suspend,
        [(CTRL, K::Char('z'))],
        "^Z",
        "to the background; answers are kept"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::Up),
        [(NO, K::Up)],
        "Up",
        "a row up; from the first, the prompt before"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::Down),
        [(NO, K::Down)],
        "Down",
        "a row down; from the last, the prompt after"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::Left),
        [(NO, K::Left)],
        "Left",
        "a character to the left"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::Right),
        [(NO, K::Right)],
        "Right",
        "a character to the right"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::WordLeft),
        [(ALT, K::Left), (CTRL, K::Left), (ALT, K::Char('b'))],
        "^Left",
        "a word to the left (also Alt-Left)"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::WordRight),
        [(ALT, K::Right), (CTRL, K::Right), (ALT, K::Char('f'))],
        "^Right",
        "a word to the right (also Alt-Right)"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::LineStart),
        [(NO, K::Home), (CTRL, K::Char('a'))],
        "Home",
        "to the line's beginning (also ^A)"
    ),
    bind!(
        Chat,
        Editing,
        A::Move(M::LineEnd),
        [(NO, K::End), (CTRL, K::Char('e'))],
        "End",
        "to the line's end (also ^E)"
    ),
    bind!(
        Chat,
        Editing,
        A::Delete(M::Left),
        [(NO, K::Backspace), (SHIFT, K::Backspace), (CTRL, K::Char('h'))],
        "Backspace",
        "delete to the left"
    ),
    bind!(
        Chat,
        Editing,
        A::Delete(M::Right),
        [(NO, K::Delete)],
        "Delete",
        "delete to the right"
    ),
    bind!(
        Chat,
        Editing,
        A::Delete(M::WordLeft),
        [(CTRL, K::Char('w')), (ALT, K::Backspace), (CTRL, K::Backspace)],
        "^W",
        "delete a word to the left (also Alt-Backspace)"
    ),
    bind!(
        Chat,
        Editing,
        A::Delete(M::LineStart),
        [(CTRL, K::Char('u'))],
        "^U",
        "delete to the line's beginning"
    ),
    bind!(
        Chat,
        Editing,
        A::Delete(M::LineEnd),
        [(CTRL, K::Char('k'))],
        "^K",
        "delete to the line's end"
    ),
    bind!(
        Chat,
        Prompt,
        A::Regenerate,
        [(NO, K::F(5))],
        "F5",
        "retry: another answer to the last prompt; both are kept"
    ),
    bind!(
        Chat,
        Prompt,
        A::EditPrompt,
        [(ALT, K::Char('e'))],
        "Alt-e",
        "edit the last prompt, again: the one before; Esc gives up"
    ),
    bind!(
        Chat,
        Transcript,
        A::PreviousSibling,
        [(ALT, K::Up)],
        "Alt-Up",
        "the branch before (of the edited prompt, where one is)"
    ),
    bind!(
        Chat,
        Transcript,
        A::NextSibling,
        [(ALT, K::Down)],
        "Alt-Down",
        "the branch after"
    ),
    bind!(
        Chat,
        Panes,
        A::ForkPane,
        [(NO, K::F(6))],
        "F6",
        "fork in a new pane, up to what is selected"
    ),
    bind!(
        Chat,
        Panes,
        A::ReopenPane,
        [(ALT, K::Char('u'))],
        "Alt-u",
        "reopen the pane that was closed last"
    ),
    bind!(
        Chat,
        Panes,
        A::MovePaneBack,
        [(ALT.union(SHIFT), K::Left)],
        "Alt-S-Left",
        "move this pane to the left (Alt-Shift-Left)"
    ),
    bind!(
        Chat,
        Panes,
        A::MovePaneOn,
        [(ALT.union(SHIFT), K::Right)],
        "Alt-S-Right",
        "move this pane to the right (Alt-Shift-Right)"
    ),
    bind!(
        Chat,
        Transcript,
        A::Raw,
        [(ALT, K::Char('r'))],
        "Alt-r",
        "answers as they were written, or as Markdown again"
    ),
    bind!(
        Chat,
        Transcript,
        A::Read,
        [(ALT, K::Char('v'))],
        "Alt-v",
        "read: single keys scroll, search and copy",
        "read"
    ),
    bind!(
        Chat,
        Transcript,
        A::Search,
        [(CTRL, K::Char('f'))],
        "^F",
        "search in this pane"
    ),
    bind!(
        Chat,
        Transcript,
        A::Copy,
        [(ALT, K::Char('y'))],
        "Alt-y",
        "copy the last answer (y), or a block of code by its number"
    ),
];

/// The character that a key types, if it types one.
pub fn typed(key: &KeyEvent) -> Option<char> {
    match key.code {
        // Ctrl and Alt together are how AltGr comes in.
        K::Char(c) if !key.modifiers.intersects(CTRL | ALT) || key.modifiers.contains(CTRL | ALT) => Some(c),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
