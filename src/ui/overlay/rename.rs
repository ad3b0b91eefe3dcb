//! Another name for what is selected in a list: the line in which it is written, and its keys.

use crossterm::event::KeyEvent;

use crate::ui::keymap::Action;
use crate::ui::overlay::field::Field;

/// A name that is being written, and what it is for. Lists have at most one.
#[derive(Debug)]
pub struct Rename<T> {
    of: T,
    field: Field,
}

impl<T> Rename<T> {
    /// Begins with the name that it has.
    pub fn new(of: T, name: &str) -> Self {
        Self {
            of,
            field: Field::new(name),
        }
    }

    /// Takes a key, if a name is being written; whether one is. The keys that close things give it up.
    pub fn key(writing: &mut Option<Self>, key: &KeyEvent, action: Option<Action>) -> bool {
        let Some(rename) = writing else { return false };
        match action {
            Some(Action::Stop | Action::Interrupt) => *writing = None,
            action => {
                rename.field.key(key, action);
            }
        }
        true
    }

    /// Puts text into the line.
    pub fn insert(&mut self, text: &str) {
        self.field.insert(text);
    }

    /// Ends the writing, where there is one: what gets which name, or why it gets none.
    pub fn accept(writing: &mut Option<Self>) -> Option<Result<(T, String), String>> {
        let Self { of, field } = writing.take()?;
        Some(match field.text().trim() {
            "" => Err("a name needs a letter".into()),
            name => Ok((of, name.to_owned())),
        })
    }

    /// The line.
    pub fn field(&self) -> &Field {
        &self.field
    }
}
