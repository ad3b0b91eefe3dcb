//! Which key asks for what, as it applies: the table of [`crate::ui::keymap`] with the changes of the settings.

use std::borrow::Cow;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::ui::keymap::{Action, BINDINGS, Binding, Scope};

/// A key with its modifiers.
type Key = (KeyModifiers, KeyCode);

const NO: KeyModifiers = KeyModifiers::NONE;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const ALT: KeyModifiers = KeyModifiers::ALT;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

/// A binding with the keys that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// As it is in the table.
    pub binding: &'static Binding,
    /// Its first key as it is written; empty where it has none.
    pub name: Cow<'static, str>,
    /// What it does, with its other keys.
    pub help: Cow<'static, str>,
    keys: Cow<'static, [Key]>,
}

/// All bindings, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keymap(Vec<Bound>);

/// Keys that an action is to have instead of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The action's name, as in `new_pane`.
    pub action: String,
    /// Its keys, as in `ctrl-j`; none: it has no key any more.
    pub keys: Vec<String>,
}

/// What is wrong with a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Which change, from 0.
    pub change: usize,
    /// What is wrong.
    pub message: String,
}

impl Default for Keymap {
    fn default() -> Self {
        let own = |binding: &'static Binding| Bound {
            binding,
            name: binding.name.into(),
            help: binding.help.into(),
            keys: binding.keys.into(),
        };
        Self(BINDINGS.iter().map(own).collect())
    }
}

impl Keymap {
    /// The table with changes. A key that can't be had is left out, and told; where two want one, the earlier has it: what
    /// isn't changed is earlier than what is.
    pub fn with(changes: &[Change]) -> (Self, Vec<Trouble>) {
        let (mut keymap, mut troubles) = (Self::default(), Vec::new());
        let place = |change: &Change| {
            BINDINGS
                .iter()
                .position(|b| name(b.action).as_ref() == Some(&change.action))
        };
        // Keys of actions that get others are free for any.
        for at in changes.iter().filter_map(place) {
            keymap.0[at].keys = Cow::Borrowed(&[]);
        }
        for (number, change) in changes.iter().enumerate() {
            let mut tell = |message: String| {
                troubles.push(Trouble {
                    change: number,
                    message,
                })
            };
            let Some(at) = place(change) else {
                tell(format!("there is no action {:?}", change.action));
                continue;
            };
            let (mut keys, mut wrong) = (Vec::new(), Vec::new());
            for text in &change.keys {
                match keymap.key_for(at, text) {
                    Ok(found) => keys.extend(
                        found
                            .into_iter()
                            .filter(|key| !keys.contains(key))
                            .collect::<Vec<_>>(),
                    ),
                    Err(message) => wrong.push(message),
                }
            }
            let needed = BINDINGS[at].action == Action::Interrupt;
            if keys.is_empty() && (!change.keys.is_empty() || needed) {
                if change.keys.is_empty() {
                    wrong.push("it needs a key".to_owned());
                }
                let own = BINDINGS[at].keys.iter().copied();
                keys = own.filter(|key| keymap.holder(at, *key).is_none()).collect();
            }
            for message in wrong {
                tell(format!("{message}; {}", counting(&keys)));
            }
            keymap.0[at].give(keys);
        }
        (keymap, troubles)
    }

    /// The keys that a text names, if the binding at a place can have them.
    fn key_for(&self, at: usize, text: &str) -> Result<Vec<Key>, String> {
        let keys = parse(text)?;
        for (modifiers, code) in &keys {
            if let KeyCode::Char(_) = code
                && modifiers.is_empty()
                && matches!(BINDINGS[at].scope, Scope::Chat | Scope::Everywhere)
            {
                return Err(format!("{text:?} is typed into prompts: it can't be a key here"));
            }
            if let Some(holder) = self.holder(at, (*modifiers, *code)) {
                return Err(format!(
                    "{text:?} is the key for {holder} already, which keeps it"
                ));
            }
        }
        Ok(keys)
    }

    /// Which other action has a key where the binding at a place counts.
    fn holder(&self, at: usize, key: Key) -> Option<String> {
        let scope = BINDINGS[at].scope;
        let meets = |other: Scope| scope == other || scope == Scope::Everywhere || other == Scope::Everywhere;
        if matches!(key, (ALT, KeyCode::Char('1'..='9'))) && scope != Scope::Dashboard {
            return Some("panes by number".into());
        }
        let others = self.0.iter().enumerate().filter(|(other, _)| *other != at);
        others
            .map(|(_, bound)| bound)
            .find(|bound| meets(bound.binding.scope) && bound.keys.contains(&key))
            .map(|bound| name(bound.binding.action).unwrap_or_else(|| bound.binding.name.to_owned()))
    }

    /// All bindings, with or without a key.
    pub fn all(&self) -> impl Iterator<Item = &Bound> {
        self.0.iter()
    }

    /// All bindings that have a key.
    pub fn bound(&self) -> impl Iterator<Item = &Bound> {
        self.0.iter().filter(|bound| !bound.keys.is_empty())
    }

    /// The key for an action as it is written, if it has one.
    pub fn written(&self, action: Action) -> Option<&str> {
        let bound = self.bound().find(|bound| bound.binding.action == action)?;
        Some(&bound.name)
    }

    /// How an action can be asked for: by its key, or as a command where it has none.
    pub fn way(&self, action: Action) -> String {
        let command = || format!("/{}", name(action).unwrap_or_default().replace('_', "-"));
        self.written(action).map_or_else(command, str::to_owned)
    }

    /// Every action that can be given keys, with those that it has, as the settings name them.
    pub fn listed(&self) -> impl Iterator<Item = (String, Vec<String>)> {
        self.0.iter().filter_map(|bound| {
            let mut keys: Vec<String> = bound.keys.iter().map(|key| spelled(*key)).collect();
            keys.dedup();
            Some((name(bound.binding.action)?, keys))
        })
    }

    /// The action that a key asks for in a scope.
    pub fn action(&self, key: &KeyEvent, scope: Scope) -> Option<Action> {
        let mut modifiers = key.modifiers & (CTRL | ALT | SHIFT);
        let code = match key.code {
            // Letters come in capitals where shift or caps lock is on; a control key is the same key then.
            KeyCode::Char(c) => {
                modifiers -= SHIFT;
                if modifiers.is_empty() {
                    KeyCode::Char(c)
                } else {
                    KeyCode::Char(c.to_ascii_lowercase())
                }
            }
            code => code,
        };
        if let (Scope::Chat | Scope::Reading, ALT, KeyCode::Char(digit @ '1'..='9')) =
            (scope, modifiers, code)
        {
            return Some(Action::Pane(digit as u8 - b'0'));
        }
        let within = |scope: Scope| {
            let here =
                |bound: &&Bound| bound.binding.scope == Scope::Everywhere || bound.binding.scope == scope;
            let mut bound = self.0.iter().filter(here);
            bound.find(|bound| bound.keys.contains(&(modifiers, code)))
        };
        let found = match scope {
            Scope::Reading => within(scope).or_else(|| within(Scope::Chat)),
            scope => within(scope),
        };
        found.map(|bound| bound.binding.action)
    }
}

impl Bound {
    /// Takes keys, and words that name them.
    fn give(&mut self, keys: Vec<Key>) {
        if keys == self.binding.keys {
            self.keys = self.binding.keys.into();
            return;
        }
        let mut written: Vec<String> = keys.iter().map(|key| written(*key)).collect();
        written.dedup();
        let what = self.binding.help.split(" (also").next().unwrap_or_default();
        self.help = match written.get(1..) {
            None | Some([]) => what.to_owned().into(),
            Some(more) => format!("{what} (also {})", more.join(", ")).into(),
        };
        self.name = written.into_iter().next().unwrap_or_default().into();
        self.keys = keys.into();
    }
}

/// An action's name in the settings, `move_word_left`; panes by number keep their keys.
pub(super) fn name(action: Action) -> Option<String> {
    if let Action::Pane(_) = action {
        return None;
    }
    let mut name = String::new();
    for c in format!("{action:?}").chars() {
        match c {
            '(' | ')' => {}
            c if c.is_ascii_uppercase() => {
                name.push_str(if name.is_empty() { "" } else { "_" });
                name.push(c.to_ascii_lowercase());
            }
            c => name.push(c),
        }
    }
    Some(name)
}

/// The names of all actions that can be given keys.
pub fn actions() -> Vec<String> {
    BINDINGS
        .iter()
        .filter_map(|binding| name(binding.action))
        .collect()
}

/// Keys without a character of their own: as the settings name them, and as they are written on the screen.
const NAMED: [(&str, &str, KeyCode); 15] = [
    ("enter", "Enter", KeyCode::Enter),
    ("esc", "Esc", KeyCode::Esc),
    ("tab", "Tab", KeyCode::Tab),
    ("space", "Space", KeyCode::Char(' ')),
    ("backspace", "Backspace", KeyCode::Backspace),
    ("delete", "Delete", KeyCode::Delete),
    ("insert", "Insert", KeyCode::Insert),
    ("up", "Up", KeyCode::Up),
    ("down", "Down", KeyCode::Down),
    ("left", "Left", KeyCode::Left),
    ("right", "Right", KeyCode::Right),
    ("home", "Home", KeyCode::Home),
    ("end", "End", KeyCode::End),
    ("pgup", "PgUp", KeyCode::PageUp),
    ("pgdn", "PgDn", KeyCode::PageDown),
];

/// The keys that a text like `ctrl-j` stands for: Shift-Tab reaches programs in several ways.
fn parse(text: &str) -> Result<Vec<Key>, String> {
    let wrong =
        |why: &str| format!("{text:?} is no key{why}: expected one like \"ctrl-j\", \"alt-enter\", \"f4\"");
    // A capital alone is a key of its own.
    let whole = match text.chars().count() {
        1 => text.to_owned(),
        _ => text.to_lowercase(),
    };
    let (mut rest, mut modifiers) = (whole.as_str(), NO);
    while let Some((modifier, behind)) = [("ctrl-", CTRL), ("alt-", ALT), ("shift-", SHIFT)]
        .into_iter()
        .find_map(|(prefix, modifier)| Some((modifier, rest.strip_prefix(prefix)?)))
    {
        if modifiers.contains(modifier) {
            return Err(wrong(""));
        }
        (modifiers, rest) = (modifiers | modifier, behind);
    }
    let mut characters = rest.chars();
    let function = rest
        .strip_prefix('f')
        .and_then(|number| number.parse::<u8>().ok());
    let code = match (NAMED.iter().find(|(name, ..)| *name == rest), function) {
        (Some((.., code)), _) => *code,
        (None, Some(number @ 1..=24)) => KeyCode::F(number),
        _ => match (characters.next(), characters.next()) {
            (Some(c), None) if !c.is_control() => KeyCode::Char(c),
            _ => return Err(wrong("")),
        },
    };
    match code {
        KeyCode::Char(_) if modifiers.contains(SHIFT) => {
            Err(wrong(", since terminals don't tell shift with characters"))
        }
        KeyCode::Char(_) if modifiers.contains(CTRL | ALT) => Err(wrong(
            ", since ctrl and alt together type characters on some keyboards",
        )),
        KeyCode::Tab if modifiers == SHIFT => Ok(vec![
            (SHIFT, KeyCode::BackTab),
            (NO, KeyCode::BackTab),
            (SHIFT, KeyCode::Tab),
        ]),
        code => Ok(vec![(modifiers, code)]),
    }
}

/// The modifiers and the key of what may have come as Shift-Tab.
fn parts((modifiers, code): Key) -> Key {
    match code {
        KeyCode::BackTab => (modifiers | SHIFT, KeyCode::Tab),
        code => (modifiers, code),
    }
}

/// Which keys count in place of one that can't be had.
fn counting(keys: &[Key]) -> String {
    let mut names: Vec<String> = keys.iter().map(|key| format!("{:?}", spelled(*key))).collect();
    names.dedup();
    match names.len() {
        0 => "no key counts instead".to_owned(),
        1 => format!("{} counts instead", names[0]),
        _ => format!("{} count instead", names.join(", ")),
    }
}

/// A key as the settings name it.
fn spelled(key: Key) -> String {
    let (modifiers, code) = parts(key);
    let mut out = String::new();
    for (modifier, prefix) in [(CTRL, "ctrl-"), (ALT, "alt-"), (SHIFT, "shift-")] {
        out.push_str(if modifiers.contains(modifier) { prefix } else { "" });
    }
    match (NAMED.iter().find(|(.., named)| *named == code), code) {
        (Some((name, ..)), _) => out.push_str(name),
        (None, KeyCode::F(number)) => out.push_str(&format!("f{number}")),
        (None, KeyCode::Char(c)) => out.push(c),
        (None, _) => {}
    }
    out
}

/// A key as it is written on the screen: `^J`, `Alt-Enter`, `F4`.
fn written(key: Key) -> String {
    let (modifiers, code) = parts(key);
    let mut out = String::new();
    for (modifier, prefix) in [(CTRL, "^"), (ALT, "Alt-"), (SHIFT, "Shift-")] {
        out.push_str(if modifiers.contains(modifier) { prefix } else { "" });
    }
    match (NAMED.iter().find(|(.., named)| *named == code), code) {
        (Some((_, shown, _)), _) => out.push_str(shown),
        (None, KeyCode::F(number)) => out.push_str(&format!("F{number}")),
        (None, KeyCode::Char(c)) if modifiers.contains(CTRL) => out.push(c.to_ascii_uppercase()),
        (None, KeyCode::Char(c)) => out.push(c),
        (None, _) => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(action: &str, keys: &[&str]) -> Change {
        Change {
            action: action.into(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    fn pressed(keymap: &Keymap, modifiers: KeyModifiers, code: KeyCode) -> Option<Action> {
        keymap.action(&KeyEvent::new(code, modifiers), Scope::Chat)
    }

    fn messages(changes: &[Change]) -> Vec<(usize, String)> {
        let (_, troubles) = Keymap::with(changes);
        troubles
            .into_iter()
            .map(|trouble| (trouble.change, trouble.message))
            .collect()
    }

    #[test]
    fn every_key_of_the_table_is_spelled_so_that_it_is_read_back() {
        for binding in BINDINGS {
            for key in binding.keys {
                assert!(parse(&spelled(*key)).unwrap().contains(key), "{}", spelled(*key));
            }
        }
    }

    #[test]
    fn the_table_given_as_changes_is_the_table() {
        let changes: Vec<Change> = Keymap::default()
            .listed()
            .map(|(action, keys)| Change { action, keys })
            .collect();
        let (keymap, troubles) = Keymap::with(&changes);
        assert_eq!(troubles, []);
        assert_eq!(keymap, Keymap::default());
    }

    #[test]
    fn an_action_has_its_new_keys_and_not_its_own() {
        let (keymap, troubles) = Keymap::with(&[change("new_pane", &["ctrl-n", "F12"])]);
        assert_eq!(troubles, []);
        assert_eq!(pressed(&keymap, CTRL, KeyCode::Char('n')), Some(Action::NewPane));
        assert_eq!(pressed(&keymap, NO, KeyCode::F(12)), Some(Action::NewPane));
        assert_eq!(pressed(&keymap, NO, KeyCode::F(4)), None);
        assert_eq!(keymap.written(Action::NewPane), Some("^N"));
        let bound = keymap
            .bound()
            .find(|bound| bound.binding.action == Action::NewPane);
        assert_eq!(bound.unwrap().help, "open a pane (also F12)");
    }

    #[test]
    fn actions_can_swap_keys() {
        let swap = [change("send", &["ctrl-j"]), change("newline", &["enter"])];
        let (keymap, troubles) = Keymap::with(&swap);
        assert_eq!(troubles, []);
        assert_eq!(pressed(&keymap, NO, KeyCode::Enter), Some(Action::Newline));
        assert_eq!(pressed(&keymap, CTRL, KeyCode::Char('j')), Some(Action::Send));
    }

    #[test]
    fn where_two_want_a_key_the_earlier_has_it_and_that_is_told() {
        let told = messages(&[change("zoom", &["f8"])]);
        assert_eq!(
            told,
            [(
                0,
                "\"f8\" is the key for close_pane already, which keeps it; \"f7\" counts instead".into()
            )]
        );
        let both = [change("zoom", &["ctrl-n"]), change("help", &["ctrl-n", "f1"])];
        let (keymap, troubles) = Keymap::with(&both);
        assert_eq!(troubles.len(), 1);
        assert_eq!(pressed(&keymap, CTRL, KeyCode::Char('n')), Some(Action::Zoom));
        assert_eq!(pressed(&keymap, NO, KeyCode::F(1)), Some(Action::Help));
        let (keymap, _) = Keymap::with(&[change("zoom", &["f8"])]);
        assert_eq!(
            pressed(&keymap, NO, KeyCode::F(7)),
            Some(Action::Zoom),
            "it keeps its own"
        );
        assert!(
            messages(&[change("zoom", &["alt-3"])])[0]
                .1
                .contains("panes by number")
        );
    }

    #[test]
    fn what_is_no_key_or_is_typed_is_told() {
        for text in [
            "",
            "hyper-x",
            "f99",
            "ctrl-",
            "ctrl-alt-q",
            "alt-shift-x",
            "x",
            "space",
        ] {
            assert_eq!(messages(&[change("zoom", &[text])]).len(), 1, "{text}");
        }
        assert_eq!(
            messages(&[change("freeze", &["f"])]),
            [],
            "nothing is typed there"
        );
        assert_eq!(messages(&[change("zoom", &["ctrl--"])]), []);
    }

    #[test]
    fn an_action_can_lose_its_keys_but_not_the_way_out() {
        let (keymap, troubles) = Keymap::with(&[change("suspend", &[])]);
        assert_eq!(troubles, []);
        assert_eq!(pressed(&keymap, CTRL, KeyCode::Char('z')), None);
        assert!(
            keymap
                .bound()
                .all(|bound| bound.binding.action != Action::Suspend)
        );
        let (keymap, troubles) = Keymap::with(&[change("interrupt", &[])]);
        assert_eq!(troubles.len(), 1);
        assert_eq!(
            pressed(&keymap, CTRL, KeyCode::Char('c')),
            Some(Action::Interrupt)
        );
    }
}
