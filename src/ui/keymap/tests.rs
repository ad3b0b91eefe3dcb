//! What the table of keys holds to.

use super::*;
use crate::ui::keys::Keymap;

fn action(key: &KeyEvent, scope: Scope) -> Option<Action> {
    Keymap::default().action(key, scope)
}

fn key(modifiers: KeyModifiers, code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, modifiers)
}

#[test]
fn no_key_has_two_meanings_in_a_scope() {
    let scopes = [
        Scope::Chat,
        Scope::Dashboard,
        Scope::Sessions,
        Scope::Models,
        Scope::Settings,
        Scope::Presets,
        Scope::Reading,
    ];
    for scope in scopes {
        let mut seen = std::collections::HashMap::new();
        let here = BINDINGS
            .iter()
            .filter(|b| b.scope == scope || b.scope == Scope::Everywhere);
        for (binding, key) in here.flat_map(|b| b.keys.iter().map(move |key| (b, key))) {
            assert!(seen.insert(*key, binding.action).is_none(), "{key:?} twice");
        }
    }
}

#[test]
fn every_binding_is_found_by_each_of_its_keys() {
    for binding in BINDINGS {
        let scope = if binding.scope == Scope::Everywhere {
            Scope::Chat
        } else {
            binding.scope
        };
        for (modifiers, code) in binding.keys {
            assert_eq!(
                action(&key(*modifiers, *code), scope),
                Some(binding.action),
                "{}",
                binding.name
            );
        }
    }
}

#[test]
fn new_lines_have_a_key_in_every_terminal() {
    for (modifiers, code) in [(CTRL, K::Char('j')), (ALT, K::Enter), (SHIFT, K::Enter)] {
        assert_eq!(action(&key(modifiers, code), Scope::Chat), Some(A::Newline));
    }
    assert_eq!(action(&key(NO, K::Enter), Scope::Chat), Some(A::Send));
}

#[test]
fn control_keys_work_with_caps_lock() {
    assert_eq!(
        action(&key(CTRL | SHIFT, K::Char('C')), Scope::Chat),
        Some(A::Interrupt)
    );
    assert_eq!(action(&key(ALT, K::Char('7')), Scope::Chat), Some(A::Pane(7)));
    assert_eq!(action(&key(ALT, K::Char('7')), Scope::Dashboard), None);
}

#[test]
fn letters_and_altgr_type_and_control_keys_do_not() {
    assert_eq!(typed(&key(NO, K::Char('a'))), Some('a'));
    assert_eq!(typed(&key(SHIFT, K::Char('A'))), Some('A'));
    assert_eq!(typed(&key(CTRL | ALT, K::Char('@'))), Some('@'));
    assert_eq!(typed(&key(CTRL, K::Char('a'))), None);
    assert_eq!(typed(&key(ALT, K::Char('z'))), None);
}
