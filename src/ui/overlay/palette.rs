//! The command palette: every action and every slash command, found by a few letters of its name or of what it does.

use std::path::Path;

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::State;
use crate::ui::keymap::Action;
use crate::ui::keys::{self as keynames, Keymap};
use crate::ui::overlay::field::Field;
use crate::ui::overlay::fuzzy::{self, Fuzzy, Query};
use crate::ui::overlay::select::{self, Selection};
use crate::ui::overlay::words;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::slash::{self, Command};
use crate::ui::styles::Styles;
use crate::ui::{cells, pane, worker};

/// More than letters are ever worth.
const WORDS: u32 = 100_000;

/// Columns of the names.
const NAMES: usize = 20;

/// What a line of the palette does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// An action, as its key would ask for it.
    Act(Action),
    /// A slash command.
    Command(&'static Command),
}

/// A line of the palette.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    choice: Choice,
    name: String,
    what: String,
    key: String,
    /// Name and explanation, in which letters are looked for.
    whole: String,
    /// Other words for it.
    others: &'static str,
}

/// What is to be done with the palette.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// An action.
    Act(Action),
    /// A slash command with its arguments, as a line that begins with `/`.
    Line(String),
}

/// The palette, while it lies on top.
#[derive(Debug)]
pub struct Palette {
    field: Field,
    entries: Vec<Entry>,
    /// The entries that match, the best first.
    found: Vec<usize>,
    selection: Selection,
    fuzzy: Fuzzy,
    /// Why the last line could not be carried out.
    wrong: Option<String>,
}

impl Palette {
    /// All that can be asked for, each with the key that it has now; `file` holds the settings.
    pub fn new(keymap: &Keymap, state: &State, file: &Path) -> Self {
        let mut entries = Vec::new();
        let mut add = |choice, name: String, what: String, key: String| {
            let whole = format!("{name} {what}");
            let others = match choice {
                Choice::Act(action) => words::of_action(action),
                Choice::Command(command) => words::of_command(command.name),
            };
            entries.push(Entry {
                choice,
                name,
                what,
                key,
                whole,
                others,
            });
        };
        for bound in keymap.all().filter(|b| !b.binding.scope.is_on_top()) {
            if let Action::Pane(_) = bound.binding.action {
                for (id, pane) in state.panes() {
                    let what = match pane::one_line(&pane.title) {
                        title if title.is_empty() => "a new conversation".to_owned(),
                        title => title,
                    };
                    let key = format!("Alt-{id}");
                    add(
                        Choice::Act(Action::Pane(id.get())),
                        format!("pane {id}"),
                        what,
                        key,
                    );
                }
            } else {
                let name = keynames::name(bound.binding.action)
                    .unwrap_or_default()
                    .replace('_', " ");
                let mut what = bound.help.split(" (also").next().unwrap_or_default().to_owned();
                if bound.binding.action == Action::Config {
                    what = format!(
                        "{}: looks, keys and defaults, in your editor",
                        worker::shown(file)
                    );
                }
                let key = bound.name.to_string();
                add(Choice::Act(bound.binding.action), name, what, key);
            }
        }
        for command in slash::COMMANDS {
            let name = format!("/{}", command.name);
            add(
                Choice::Command(command),
                name,
                command.help.to_owned(),
                command.takes.to_owned(),
            );
        }
        let mut palette = Self {
            field: Field::default(),
            entries,
            found: Vec::new(),
            selection: Selection::default(),
            fuzzy: Fuzzy::default(),
            wrong: None,
        };
        palette.search();
        palette
    }

    /// The choices that match, the best first.
    pub fn found(&self) -> impl Iterator<Item = Choice> {
        self.found.iter().map(|at| self.entries[*at].choice)
    }

    /// Takes a key that moves the selection or edits the line.
    pub fn key(&mut self, key: &KeyEvent, action: Option<Action>) {
        if self
            .selection
            .key(select::ends(action, self.field.text()), self.found.len())
        {
            return;
        }
        if self.field.key(key, action) {
            self.search();
        }
    }

    /// Puts text into the line.
    pub fn insert(&mut self, text: &str) {
        self.field.insert(text);
        self.search();
    }

    /// What the selected line, or a slash command that was written out, asks for; none where there is nothing, or where
    /// it wants an argument first.
    pub fn accept(&mut self) -> Option<Chosen> {
        let text = self.field.text().trim();
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let written = word
            .strip_prefix('/')
            .is_some_and(|name| slash::named(name).is_some());
        if written || (!rest.trim().is_empty() && word.starts_with('/')) {
            return Some(Chosen::Line(text.to_owned()));
        }
        let chosen = self
            .found
            .get(self.selection.at())
            .map(|at| self.entries[*at].choice)?;
        match chosen {
            Choice::Act(action) => Some(Chosen::Act(action)),
            Choice::Command(command) if command.takes.is_empty() => {
                Some(Chosen::Line(format!("/{}", command.name)))
            }
            Choice::Command(command) => {
                self.field = Field::new(&format!("/{} ", command.name));
                self.search();
                None
            }
        }
    }

    /// Shows why a line could not be carried out.
    pub fn fail(&mut self, why: String) {
        self.wrong = Some(why);
    }

    fn search(&mut self) {
        self.wrong = None;
        self.selection = Selection::default();
        let text = self.field.text();
        if text.starts_with('/') {
            let word = text.split_whitespace().next().unwrap_or_default();
            let written = text.contains(char::is_whitespace);
            let is = |entry: &Entry| match written {
                true => entry.name == word,
                false => entry.name.starts_with(word),
            };
            self.found = (0..self.entries.len())
                .filter(|at| is(&self.entries[*at]))
                .collect();
            return;
        }
        let query = Query::new(text);
        let fuzzy = &mut self.fuzzy;
        let entries = self.entries.iter();
        self.found = fuzzy::best_first(entries.map(|entry| {
            let letters = fuzzy.named(&query, &entry.name, &entry.whole);
            match words::rank(text, &entry.name, &entry.what, entry.others) {
                // Words that were meant, before letters that happen to be there.
                Some(rank) => Some(rank * WORDS + letters.unwrap_or(0).min(WORDS - 1)),
                None => letters,
            }
        }));
    }

    /// Draws the palette over the screen and gives the caret's cell.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let title = [plain(" commands "), piece(keys(keymap), styles.quiet())];
        let rows = self.entries.len();
        let inner = select::window(buffer, area, rows + 1, &title, styles);
        let caret = self.field.draw(
            buffer,
            paint::row(inner, 0),
            "> ",
            "a few letters, or / and a command",
            styles,
        );
        if let Some(why) = &self.wrong {
            let lines = crate::ui::wrap::wrap_line(why, usize::from(inner.width.saturating_sub(1)));
            for (y, line) in lines.into_iter().enumerate().take(usize::from(inner.height)) {
                paint::text(
                    buffer,
                    paint::row(inner, y as u16 + 1),
                    1,
                    &why[line],
                    styles.error(),
                );
            }
            return caret;
        }
        let list = Rect {
            y: inner.y + 1,
            height: inner.height.saturating_sub(1),
            ..inner
        };
        if self.found.is_empty() {
            paint::text(buffer, paint::row(list, 0), 1, "nothing matches", styles.quiet());
        }
        let query = Query::new(self.field.text().trim_start_matches('/'));
        let top = self.selection.top(usize::from(list.height));
        for (y, at) in self
            .found
            .iter()
            .skip(top)
            .take(usize::from(list.height))
            .enumerate()
        {
            let entry = &self.entries[*at];
            let mut places = self.fuzzy.places(&query, &entry.name);
            if places.is_empty() {
                places = self.fuzzy.places(&query, &entry.whole);
            }
            let line = line(entry, &places, usize::from(list.width), styles);
            select::line(
                buffer,
                paint::row(list, y as u16),
                &line,
                top + y == self.selection.at(),
                styles,
            );
        }
        select::count(
            buffer,
            inner,
            list.height,
            (self.selection.at(), self.found.len()),
            styles,
        );
        caret
    }
}

/// The keys that count here.
pub(in crate::ui) fn keys(keymap: &Keymap) -> String {
    select::keys(keymap, &[(Action::Send, "runs"), (Action::Stop, "closes")])
}

/// Name, explanation and, at the right end, key.
fn line(entry: &Entry, places: &[usize], width: usize, styles: &Styles) -> Vec<Piece> {
    use unicode_segmentation::UnicodeSegmentation;
    let key = cells::width(&entry.key);
    // What is read out is not cut.
    let names = match width > usize::from(select::READ_OUT) / 2 {
        true => NAMES.max(cells::width(&entry.name) + 1),
        false => NAMES.min(width.saturating_sub(key + 3)),
    };
    let room = width.saturating_sub(names + key + 3);
    let what = cells::pad(&entry.what, room, styles.cut());
    let name = cells::shorten(&entry.name, names.saturating_sub(1), styles.cut());
    let in_name = entry.name.graphemes(true).count();
    let beyond: Vec<usize> = places
        .iter()
        .filter_map(|at| at.checked_sub(in_name + 1))
        .collect();
    let marked = |text: &str, places: &[usize], style| -> Vec<Piece> {
        let pieces = fuzzy::cut(text, places).into_iter();
        pieces
            .map(|(text, found)| piece(text, if found { styles.found() } else { style }))
            .collect()
    };
    let mut out = vec![plain(" ")];
    out.extend(marked(&name, places, ratatui::style::Style::new()));
    out.push(plain(" ".repeat(names.saturating_sub(cells::width(&name)))));
    out.extend(marked(&what, &beyond, styles.quiet()));
    out.push(plain(" "));
    out.push(piece(entry.key.clone(), styles.key()));
    out.push(plain(" "));
    out
}
