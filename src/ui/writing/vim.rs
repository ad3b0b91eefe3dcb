//! Vim's keys in the draft: one writes, or one gives commands. Pure: a key and a draft in, the next draft out.
//!
//! Esc first closes what lies on top and the list above the composer, then leaves writing for commands, then forgets a
//! command that is half given, and only then stops the answer, as it does without these keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::ui::keymap::Motion;
use crate::ui::writing::editor::Editor;

/// The most that a command is repeated.
const MOST: usize = 999;

/// What is done with the text that a motion passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Delete,
    Change,
    Yank,
}

/// What a key did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// It isn't vim's.
    Nothing,
    /// Something: the draft may be another one.
    Something,
    /// The caret is to go over rows, so often.
    Go(Motion, usize),
    /// So many changes are to be taken back.
    Undo(usize),
    /// So many changes are to be made again.
    Redo(usize),
}

/// Vim's keys: what was given so far, and what was taken out last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vim {
    commands: bool,
    count: Option<usize>,
    operator: Option<(Operator, usize)>,
    /// The first of two keys: `g`, or `r`.
    first: Option<char>,
    register: String,
    /// Whether the register holds whole lines.
    lines: bool,
}

/// Where a motion goes, and what an operator takes along on the way.
struct Way {
    to: usize,
    kind: Takes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Up to where it goes.
    UpTo,
    /// The character there, too.
    With,
    /// Whole lines.
    Lines,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Blank,
    Word,
    Other,
}

impl Vim {
    /// Whether keys are commands.
    pub fn commands(&self) -> bool {
        self.commands
    }

    /// Keys are written from now on.
    pub fn write(&mut self) {
        self.commands = false;
        self.forget();
    }

    /// What is shown of it: the mode, and the command so far.
    pub fn shown(&self) -> String {
        if !self.commands {
            return "INSERT".to_owned();
        }
        let mut out = "NORMAL".to_owned();
        if let Some((operator, count)) = self.operator {
            let count = if count > 1 {
                count.to_string()
            } else {
                String::new()
            };
            let key = match operator {
                Operator::Delete => 'd',
                Operator::Change => 'c',
                Operator::Yank => 'y',
            };
            out.push_str(&format!(" {count}{key}"));
        } else if self.count.is_some() || self.first.is_some() {
            out.push(' ');
        }
        out.extend(self.count.map(|count| count.to_string()));
        out.extend(self.first);
        out
    }

    fn forget(&mut self) {
        (self.count, self.operator, self.first) = (None, None, None);
    }

    /// Takes a key that is not asked for by anything on top. `esc`: it is the key that closes and stops.
    pub fn key(&mut self, key: &KeyEvent, esc: bool, editor: &mut Editor) -> Did {
        if !self.commands {
            if !esc {
                return Did::Nothing;
            }
            self.commands = true;
            self.forget();
            if editor.caret() > editor.reach(editor.caret(), Motion::LineStart) {
                editor.place(editor.previous(editor.caret()));
            }
            return Did::Something;
        }
        if esc {
            let half = self.count.is_some() || self.operator.is_some() || self.first.is_some();
            self.forget();
            return if half { Did::Something } else { Did::Nothing };
        }
        match key.code {
            KeyCode::Char('r') if key.modifiers == KeyModifiers::CONTROL => {
                let count = self.take_count();
                self.forget();
                Did::Redo(count)
            }
            KeyCode::Char(c)
                if !key
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                let did = self.command(c, editor);
                if self.commands {
                    rest(editor);
                }
                did
            }
            _ => Did::Nothing,
        }
    }

    /// How often, and nothing is given any more.
    fn take_count(&mut self) -> usize {
        let before = self.operator.map_or(1, |(_, count)| count);
        (self.count.take().unwrap_or(1).saturating_mul(before)).clamp(1, MOST)
    }

    fn command(&mut self, c: char, editor: &mut Editor) -> Did {
        if self.first == Some('r') {
            self.replace(c, editor);
            return Did::Something;
        }
        match (self.first.take(), c) {
            (None, 'g') => {
                self.first = Some('g');
                return Did::Something;
            }
            (Some(_), c) if c != 'g' => {
                self.forget();
                return Did::Something;
            }
            _ => {}
        }
        if let Some(digit) = c.to_digit(10).filter(|digit| *digit > 0 || self.count.is_some()) {
            let count = self
                .count
                .unwrap_or(0)
                .saturating_mul(10)
                .saturating_add(digit as usize);
            self.count = Some(count.min(MOST));
            return Did::Something;
        }
        let operator = match c {
            'd' => Some(Operator::Delete),
            'c' => Some(Operator::Change),
            'y' => Some(Operator::Yank),
            _ => None,
        };
        if let Some(operator) = operator {
            match self.operator {
                None => self.operator = Some((operator, self.count.take().unwrap_or(1))),
                Some((same, _)) if same == operator => {
                    let more = self.take_count() - 1;
                    let last = (0..more).fold(editor.caret(), |at, _| below(editor, at).unwrap_or(at));
                    let (at, kind) = (editor.caret(), Takes::Lines);
                    self.operate(operator, at, Way { to: last, kind }, editor);
                }
                Some(_) => self.forget(),
            }
            return Did::Something;
        }
        if self.operator.is_none() {
            let count = self.count.unwrap_or(1).clamp(1, MOST);
            match c {
                'j' | 'k' => {
                    self.forget();
                    let motion = if c == 'j' { Motion::Down } else { Motion::Up };
                    return Did::Go(motion, count);
                }
                'u' => {
                    self.forget();
                    return Did::Undo(count);
                }
                _ => {}
            }
            if self.simple(c, count, editor) {
                return Did::Something;
            }
        }
        match self.way(c, editor) {
            Some(way) => match self.operator {
                Some((operator, _)) => self.operate(operator, editor.caret(), way, editor),
                None => {
                    self.forget();
                    let to = match way.kind {
                        Takes::Lines => first_word(editor, way.to),
                        _ => way.to,
                    };
                    editor.place(to);
                }
            },
            None => self.forget(),
        }
        Did::Something
    }

    /// Commands of one key that are no motions; whether it was one.
    fn simple(&mut self, c: char, count: usize, editor: &mut Editor) -> bool {
        let at = editor.caret();
        let (start, end) = (
            editor.reach(at, Motion::LineStart),
            editor.reach(at, Motion::LineEnd),
        );
        let forward =
            |from: usize| (0..count).fold(from, |at, _| if at < end { editor.next(at) } else { at });
        match c {
            'i' => {}
            'a' => editor.place(if at < end { editor.next(at) } else { at }),
            'I' => editor.place(first_word(editor, at)),
            'A' => editor.place(end),
            'o' => {
                editor.place(end);
                editor.insert("\n");
            }
            'O' => {
                editor.place(start);
                editor.insert("\n");
                editor.place(start);
            }
            'x' => self.cut(at, forward(at), false, editor),
            'D' | 'C' => self.cut(at, end, false, editor),
            'p' | 'P' => self.put(c == 'p', count, editor),
            'r' => {
                self.first = Some('r');
                return true;
            }
            _ => return false,
        }
        self.forget();
        self.commands = matches!(c, 'x' | 'D' | 'p' | 'P');
        true
    }

    fn replace(&mut self, c: char, editor: &mut Editor) {
        let count = self.take_count();
        self.forget();
        let at = editor.caret();
        let end = editor.reach(at, Motion::LineEnd);
        let mut to = at;
        for _ in 0..count {
            if to >= end {
                return;
            }
            to = editor.next(to);
        }
        editor.take_out(at..to);
        editor.insert(&c.to_string().repeat(count));
        editor.place(editor.previous(editor.caret()));
    }

    /// Where a motion's key goes; none for another key.
    fn way(&mut self, c: char, editor: &Editor) -> Option<Way> {
        let given = self.count.is_some() || self.operator.is_some_and(|(_, count)| count > 1);
        let operated = self.operator.map(|(operator, _)| operator);
        let at = editor.caret();
        let count = self.take_count();
        let (start, end) = (
            editor.reach(at, Motion::LineStart),
            editor.reach(at, Motion::LineEnd),
        );
        let times = |step: &dyn Fn(&Editor, usize) -> usize| (0..count).fold(at, |at, _| step(editor, at));
        let way = |to, kind| Some(Way { to, kind });
        match c {
            'h' => way(
                times(&|e, at| if at > start { e.previous(at) } else { at }),
                Takes::UpTo,
            ),
            'l' | ' ' => way(
                times(&|e, at| if at < end { e.next(at) } else { at }),
                Takes::UpTo,
            ),
            '0' => way(start, Takes::UpTo),
            '^' => way(first_word(editor, at), Takes::UpTo),
            '$' => way(end, Takes::UpTo),
            // A word that is changed keeps the space behind it.
            'w' if operated == Some(Operator::Change) && class(editor, at) != Class::Blank => {
                let to = (1..count).fold(at, |at, _| next_word(editor, at));
                way(word_end(editor, to, true), Takes::With)
            }
            'w' => {
                let to = times(&next_word);
                let line = editor.text().get(at..to).and_then(|passed| passed.rfind('\n'));
                // The last word of a line ends with it.
                match line.filter(|_| operated.is_some()) {
                    Some(line) if line > 0 => way(at + line, Takes::UpTo),
                    _ => way(to, Takes::UpTo),
                }
            }
            'b' => way(times(&word_before), Takes::UpTo),
            'e' => way(times(&|e, at| word_end(e, at, false)), Takes::With),
            'j' => way(times(&|e, at| below(e, at).unwrap_or(at)), Takes::Lines),
            'k' => way(times(&|e, at| above(e, at).unwrap_or(at)), Takes::Lines),
            'g' | 'G' => {
                let first = (c == 'g' || given).then_some(0);
                let to = match first {
                    Some(first) => (1..count).fold(first, |at, _| below(editor, at).unwrap_or(at)),
                    None => editor.text().len(),
                };
                way(to, Takes::Lines)
            }
            _ => None,
        }
    }

    fn operate(&mut self, operator: Operator, at: usize, way: Way, editor: &mut Editor) {
        self.forget();
        let (mut from, mut to) = (at.min(way.to), at.max(way.to));
        let lines = way.kind == Takes::Lines;
        if lines {
            (from, to) = (
                editor.reach(from, Motion::LineStart),
                editor.reach(to, Motion::LineEnd),
            );
        } else if way.kind == Takes::With && to < editor.text().len() {
            to = editor.next(to);
        }
        match operator {
            Operator::Yank => {
                self.keep(from, to, lines, editor);
                editor.place(if lines { at } else { from });
            }
            Operator::Change => {
                self.cut(from, to, lines, editor);
                self.commands = false;
            }
            Operator::Delete if lines => {
                self.keep(from, to, true, editor);
                // With the line end behind them, or before them where they are the last.
                if to < editor.text().len() {
                    editor.take_out(from..to + 1);
                } else {
                    editor.take_out(from.saturating_sub(1)..to);
                }
                let caret = first_word(editor, editor.caret());
                editor.place(caret);
            }
            Operator::Delete => self.cut(from, to, false, editor),
        }
    }

    fn keep(&mut self, from: usize, to: usize, lines: bool, editor: &Editor) {
        self.register = editor.text().get(from..to).unwrap_or_default().to_owned();
        self.lines = lines;
    }

    fn cut(&mut self, from: usize, to: usize, lines: bool, editor: &mut Editor) {
        if from < to {
            self.keep(from, to, lines, editor);
            editor.take_out(from..to);
        }
    }

    fn put(&mut self, behind: bool, count: usize, editor: &mut Editor) {
        if self.register.is_empty() && !self.lines {
            return;
        }
        let at = editor.caret();
        if self.lines {
            let text = vec![self.register.as_str(); count].join("\n");
            let begin = if behind {
                let end = editor.reach(at, Motion::LineEnd);
                editor.place(end);
                editor.insert_paste(&format!("\n{text}"));
                end + 1
            } else {
                let start = editor.reach(at, Motion::LineStart);
                editor.place(start);
                editor.insert_paste(&format!("{text}\n"));
                start
            };
            editor.place(begin);
            let caret = first_word(editor, editor.caret());
            editor.place(caret);
            return;
        }
        let end = editor.reach(at, Motion::LineEnd);
        if behind && at < end {
            editor.place(editor.next(at));
        }
        editor.insert_paste(&self.register.repeat(count));
        editor.place(editor.previous(editor.caret()));
    }
}

/// While commands are given, the caret stands on a character and not behind the last one of a line.
fn rest(editor: &mut Editor) {
    let at = editor.caret();
    let start = editor.reach(at, Motion::LineStart);
    if at == editor.reach(at, Motion::LineEnd) && at > start {
        editor.place(editor.previous(at));
    }
}

fn class(editor: &Editor, at: usize) -> Class {
    match editor.text().get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) if c.is_alphanumeric() || c == '_' => Class::Word,
        Some(c) if !c.is_whitespace() => Class::Other,
        _ => Class::Blank,
    }
}

fn next_word(editor: &Editor, at: usize) -> usize {
    let (here, end) = (class(editor, at), editor.text().len());
    let mut to = at;
    while here != Class::Blank && to < end && class(editor, to) == here {
        to = editor.next(to);
    }
    while to < end && class(editor, to) == Class::Blank {
        let empty = to > at && editor.text()[to..].starts_with('\n') && editor.text()[..to].ends_with('\n');
        if empty {
            break;
        }
        to = editor.next(to);
    }
    to
}

fn word_before(editor: &Editor, at: usize) -> usize {
    let mut to = at;
    while to > 0 && class(editor, editor.previous(to)) == Class::Blank {
        to = editor.previous(to);
    }
    let here = class(editor, editor.previous(to));
    while to > 0 && class(editor, editor.previous(to)) == here {
        to = editor.previous(to);
    }
    to
}

/// The last character of a word: of this one, if `this`, else of the next one where this one's is here already.
fn word_end(editor: &Editor, at: usize, this: bool) -> usize {
    let end = editor.text().len();
    let mut to = if this || at >= end { at } else { editor.next(at) };
    while to < end && class(editor, to) == Class::Blank {
        to = editor.next(to);
    }
    let here = class(editor, to);
    while to < end && editor.next(to) < end && class(editor, editor.next(to)) == here {
        to = editor.next(to);
    }
    to.min(end)
}

/// The first character of a line that is no space.
fn first_word(editor: &Editor, at: usize) -> usize {
    let start = editor.reach(at, Motion::LineStart);
    let line = &editor.text()[start..editor.reach(at, Motion::LineEnd)];
    start + line.len() - line.trim_start_matches([' ', '\t']).len()
}

fn below(editor: &Editor, at: usize) -> Option<usize> {
    let end = editor.reach(at, Motion::LineEnd);
    (end < editor.text().len()).then_some(end + 1)
}

fn above(editor: &Editor, at: usize) -> Option<usize> {
    let start = editor.reach(at, Motion::LineStart);
    let before = start.checked_sub(1)?;
    Some(editor.reach(before, Motion::LineStart))
}

#[cfg(test)]
mod tests;
