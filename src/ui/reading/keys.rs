//! The single keys that count while one reads.

use crossterm::event::{KeyCode as K, KeyModifiers};

use crate::ui::keymap::{Action, Binding, Group, Reading as R, Scope};

const NO: KeyModifiers = KeyModifiers::NONE;

const fn key(
    action: R,
    keys: &'static [(KeyModifiers, K)],
    name: &'static str,
    help: &'static str,
    footer: Option<&'static str>,
) -> Binding {
    Binding {
        action: Action::Reading(action),
        scope: Scope::Reading,
        keys,
        name,
        help,
        group: Group::Reading,
        footer,
    }
}

/// These keys, in the order of footer and help.
pub(in crate::ui) const READING: &[Binding] = &[
    key(
        R::Copy,
        &[(NO, K::Char('y'))],
        "y",
        "copy a block of code by its number; again: the last answer",
        Some("copy"),
    ),
    key(
        R::CopyMessage,
        &[(NO, K::Char('Y'))],
        "Y",
        "copy the selected message, else the last answer",
        Some("message"),
    ),
    key(R::Search, &[(NO, K::Char('/'))], "/", "search", Some("search")),
    key(
        R::NextHit,
        &[(NO, K::Char('n'))],
        "n",
        "the next place that was found",
        Some("next"),
    ),
    key(
        R::PreviousHit,
        &[(NO, K::Char('N'))],
        "N",
        "the place before",
        None,
    ),
    key(R::Down, &[(NO, K::Char('j'))], "j", "scroll down by a line", None),
    key(R::Up, &[(NO, K::Char('k'))], "k", "scroll up by a line", None),
    key(
        R::PageDown,
        &[(NO, K::Char(' ')), (NO, K::Char('f'))],
        "Space",
        "scroll down (also f)",
        None,
    ),
    key(R::PageUp, &[(NO, K::Char('b'))], "b", "scroll up", None),
    key(R::Top, &[(NO, K::Char('g'))], "g", "to the beginning", None),
    key(
        R::Bottom,
        &[(NO, K::Char('G'))],
        "G",
        "to the end, and follow it",
        None,
    ),
    key(
        R::PreviousMessage,
        &[(NO, K::Char('['))],
        "[",
        "select the message before, at first the last one",
        Some("select"),
    ),
    key(
        R::NextMessage,
        &[(NO, K::Char(']'))],
        "]",
        "select the message after",
        None,
    ),
    key(
        R::Write,
        &[(NO, K::Char('i')), (NO, K::Char('q'))],
        "i",
        "write again (also q, Esc)",
        None,
    ),
];
