//! What a terminal answers when it is asked for its background. The answer comes among the keys, whenever the terminal
//! likes, so nothing waits for it and nothing that is typed meanwhile gets lost.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::ui::styles::theme::Background;

/// Asks for the background's color (OSC 11).
pub(super) const ASK: &[u8] = b"\x1b]11;?\x1b\\";
/// The most keys that an answer takes.
const LONGEST: usize = 48;

/// Listens for the answer among the keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Listening {
    on: bool,
    held: Vec<KeyEvent>,
    /// Whether the answer was heard up to the first half of its end.
    closing: bool,
}

/// What a key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// These keys were pressed: it, and those that were taken for an answer.
    Keys(Vec<KeyEvent>),
    /// Part of an answer.
    Part,
    /// An answer's end; what it said, if that is known.
    Answer(Option<Background>),
}

impl Listening {
    /// From now on, an answer may come.
    pub fn begin(&mut self) {
        *self = Self {
            on: true,
            ..Self::default()
        };
    }

    /// Takes a key.
    pub fn key(&mut self, key: &KeyEvent) -> Heard {
        if std::mem::take(&mut self.closing) && key.code == KeyCode::Char('\\') {
            return Heard::Part;
        }
        if !self.on {
            return Heard::Keys(vec![*key]);
        }
        let (alt, plain) = (key.modifiers == KeyModifiers::ALT, key.modifiers.is_empty());
        let begun = !self.held.is_empty();
        match key.code {
            // A terminal's sequences come in as Alt with their second character.
            KeyCode::Char(']') if alt && !begun => {}
            KeyCode::Char('0'..='9' | 'a'..='f' | 'A'..='F' | ';' | ':' | '/' | 'r' | 'g')
                if begun && !alt && !key.modifiers.contains(KeyModifiers::CONTROL) => {}
            KeyCode::Char('\\') if begun && alt => return self.answer(),
            KeyCode::Char('g') if begun && key.modifiers == KeyModifiers::CONTROL => return self.answer(),
            KeyCode::Esc if begun && plain => {
                let answer = self.answer();
                self.closing = matches!(answer, Heard::Answer(_));
                return answer;
            }
            _ => {
                // Until an answer begins, all keys are keys.
                self.on = !begun;
                let mut keys = std::mem::take(&mut self.held);
                keys.push(*key);
                return Heard::Keys(keys);
            }
        }
        self.held.push(*key);
        if self.held.len() > LONGEST {
            self.on = false;
            return Heard::Keys(std::mem::take(&mut self.held));
        }
        Heard::Part
    }

    fn answer(&mut self) -> Heard {
        self.on = false;
        let held = std::mem::take(&mut self.held);
        let characters = held.iter().skip(1).filter_map(|key| match key.code {
            KeyCode::Char(c) => Some(c),
            _ => None,
        });
        let text: String = characters.collect();
        match text.strip_prefix("11;") {
            Some(color) => Heard::Answer(Background::from_answer(color)),
            None => Heard::Keys(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    /// An answer as it comes in among the keys.
    fn answer(text: &str) -> Vec<KeyEvent> {
        let mut keys = vec![key(KeyCode::Char(']'), KeyModifiers::ALT)];
        keys.extend(text.chars().map(|c| key(KeyCode::Char(c), KeyModifiers::NONE)));
        keys
    }

    fn heard(keys: &[KeyEvent]) -> (Vec<KeyEvent>, Option<Background>) {
        let mut listening = Listening::default();
        listening.begin();
        let (mut typed, mut said) = (Vec::new(), None);
        for key in keys {
            match listening.key(key) {
                Heard::Keys(keys) => typed.extend(keys),
                Heard::Part => {}
                Heard::Answer(background) => said = background,
            }
        }
        (typed, said)
    }

    #[test]
    fn an_answer_is_heard_however_it_ends() {
        let ends = [
            vec![key(KeyCode::Char('\\'), KeyModifiers::ALT)],
            vec![key(KeyCode::Char('g'), KeyModifiers::CONTROL)],
            vec![
                key(KeyCode::Esc, KeyModifiers::NONE),
                key(KeyCode::Char('\\'), KeyModifiers::NONE),
            ],
        ];
        for end in ends {
            let mut keys = answer("11;rgb:ffff/FFFF/fafa");
            keys.extend(end);
            assert_eq!(heard(&keys), (vec![], Some(Background::Light)));
        }
    }

    #[test]
    fn what_is_typed_before_and_after_an_answer_is_kept() {
        let mut keys = answer("11;rgb:0000/0000/0000");
        keys.push(key(KeyCode::Char('\\'), KeyModifiers::ALT));
        let typed = [
            key(KeyCode::Char('a'), KeyModifiers::NONE),
            key(KeyCode::Esc, KeyModifiers::NONE),
        ];
        keys.splice(0..0, typed);
        keys.extend(typed);
        let kept = [typed, typed].concat();
        assert_eq!(heard(&keys), (kept, Some(Background::Dark)));
    }

    #[test]
    fn what_is_no_answer_is_given_back_in_order() {
        for text in ["x", "1", "11;r!", "12;rgb:0/0/0", &"1".repeat(60)] {
            let mut keys = answer(text);
            keys.push(key(KeyCode::Char('\\'), KeyModifiers::ALT));
            let (typed, said) = heard(&keys);
            assert_eq!(said, None, "{text}");
            let shown = |keys: &[KeyEvent]| keys.iter().filter(|key| key.code != KeyCode::Char('\\')).count();
            assert_eq!(shown(&typed), shown(&keys), "{text}");
        }
    }

    #[test]
    fn who_does_not_listen_hears_keys_alone() {
        let keys = answer("11;rgb:0/0/0");
        let mut listening = Listening::default();
        for key in &keys {
            assert_eq!(listening.key(key), Heard::Keys(vec![*key]));
        }
    }
}
