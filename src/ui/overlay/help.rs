//! The keys, drawn from their table.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::State;
use crate::ui::cells::width as width_of;
use crate::ui::input::Reaction;
use crate::ui::keymap::{Action, Group, Motion, typed};
use crate::ui::keys::{Bound, Keymap};
use crate::ui::overlay::field::Field;
use crate::ui::overlay::{select, words};
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::slash::COMMANDS;
use crate::ui::styles::Styles;
use crate::ui::view::View;
use crate::ui::wrap::wrap_line;

/// Columns of the keys' names.
const NAMES: usize = 12;
/// Columns of slash commands with what they take.
const COMMAND_NAMES: usize = 24;

/// The help, while it lies on top.
#[derive(Debug, Clone, Default)]
pub struct Help {
    /// Its first line that is shown.
    pub top: usize,
    /// What is looked for; then it is all that is shown.
    sought: Option<Field>,
}

impl Help {
    /// The help from one of its lines on.
    pub fn at(top: usize) -> Self {
        Self { top, sought: None }
    }

    /// Puts text into the line of what is looked for, where that is open.
    pub(in crate::ui) fn insert(&mut self, text: &str) {
        if let Some(field) = &mut self.sought {
            field.insert(text);
            self.top = 0;
        }
    }

    /// The words that are looked for, in small letters.
    fn words(&self) -> Vec<String> {
        let text = self.sought.as_ref().map_or("", Field::text).to_lowercase();
        text.split_whitespace().map(str::to_owned).collect()
    }
}

/// A name in a part of the help that is no list of bindings.
enum Name {
    /// The keys of these actions.
    Keys(&'static [Action]),
    /// What is written.
    Text(&'static str),
}

/// Parts of the help beyond bindings and commands: what is written in a draft, what the keys of writing do elsewhere.
const MORE: &[(&str, &[(Name, &str)])] = &[
    (
        "In a draft",
        &[
            (
                Name::Text("@path"),
                "a file's text goes along; @\"a path\" where it holds spaces",
            ),
            (
                Name::Text("/name"),
                "a command, see below; Tab completes it, and what it takes",
            ),
            (Name::Text("//"), "a prompt that begins with one slash"),
        ],
    ),
    (
        "In the list of settings",
        &[
            (
                Name::Keys(&[Action::Send]),
                "change the selected one; again: take the value",
            ),
            (
                Name::Keys(&[Action::Stop]),
                "give the value up, or close the list",
            ),
            (
                Name::Keys(&[Action::Undo]),
                "take back what was changed since it opened",
            ),
            (
                Name::Text("set here"),
                "changed in this pane since it was opened; this conversation: it had it before",
            ),
        ],
    ),
    (
        "Comparing answers",
        &[
            (
                Name::Keys(&[Action::Move(Motion::Left), Action::Move(Motion::Right)]),
                "select the answer before, after",
            ),
            (
                Name::Keys(&[Action::Move(Motion::Up), Action::Move(Motion::Down)]),
                "scroll it",
            ),
            (
                Name::Keys(&[Action::Send]),
                "keep it; the other panes go back, theirs stays as a branch",
            ),
            (Name::Keys(&[Action::Stop]), "close; nothing changes"),
        ],
    ),
    (
        "Vim's commands, where its keys are on",
        &[
            (Name::Text("h j k l"), "left, down, up, right"),
            (Name::Text("w b e"), "a word on, back, to its end"),
            (
                Name::Text("0 ^ $ gg G"),
                "the line's beginning, first letter, end; the first, last line",
            ),
            (
                Name::Text("x D C"),
                "delete a character, to the line's end, and write",
            ),
            (
                Name::Text("d c y"),
                "delete, change, take, with a motion or doubled: dw, cc",
            ),
            (Name::Text("p P r"), "put behind, before; replace a character"),
            (Name::Text("u ^R"), "take a change back, make it again"),
            (
                Name::Text("i a I A o O"),
                "write here, behind, at the line's ends, in a new line",
            ),
            (Name::Text("3w"), "a number says how many times"),
        ],
    ),
];

/// A part of the help: its title, and the entries that hold all of some words, or all of them where the title does.
struct Part<'a> {
    title: Vec<Piece>,
    entries: Vec<Vec<Piece>>,
    /// Columns of the names.
    names: usize,
    /// Columns of all.
    width: usize,
    styles: &'a Styles,
    words: &'a [String],
}

impl Part<'_> {
    /// Adds a name and what it is for, which begins at the column of the names, or behind a name that reaches further;
    /// it is found by other words, too.
    fn entry(&mut self, name: &str, what: &str, others: &str) {
        let title: String = self.title.iter().map(|piece| &*piece.text).collect();
        let whole = format!("{title} {name} {what} {others}").to_lowercase();
        if !self.words.iter().all(|word| whole.contains(&**word)) {
            return;
        }
        let column = self.names.max(width_of(name) + 1);
        for (at, row) in wrap_line(what, self.width.saturating_sub(column))
            .into_iter()
            .enumerate()
        {
            let name = if at == 0 { name } else { "" };
            let fill = " ".repeat(column - width_of(name));
            self.entries.push(vec![
                piece(format!("{name}{fill}"), self.styles.key()),
                plain(what[row].to_owned()),
            ]);
        }
    }

    /// Puts the part behind others, unless nothing of it is wanted.
    fn close(self, lines: &mut Vec<Vec<Piece>>) {
        if self.entries.is_empty() {
            return;
        }
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(self.title);
        lines.extend(self.entries);
    }
}

/// The lines of the help that hold all of `words`, in `width` cells.
fn lines(width: usize, words: &[String], keymap: &Keymap, styles: &Styles) -> Vec<Vec<Piece>> {
    let part = |title: &'static str, names| Part {
        title: vec![piece(title, styles.strong())],
        entries: Vec::new(),
        names,
        width,
        styles,
        words,
    };
    let mut lines = Vec::new();
    for group in Group::ALL {
        let mut part = part(group.title(), NAMES);
        let own = |bound: &&Bound| {
            bound.binding.group == group && (!bound.name.is_empty() || bound.binding.keys.is_empty())
        };
        for bound in keymap.all().filter(own) {
            // What no key is for by itself is there as a command.
            let name = match &*bound.name {
                "" => keymap.way(bound.binding.action),
                name => name.to_owned(),
            };
            part.entry(&name, &bound.help, words::of_action(bound.binding.action));
        }
        part.close(&mut lines);
    }
    for (title, entries) in MORE {
        let mut part = part(title, NAMES);
        for (name, what) in *entries {
            let name = match name {
                Name::Text(text) => (*text).to_owned(),
                Name::Keys(actions) => {
                    let keys: Vec<&str> = actions
                        .iter()
                        .filter_map(|action| keymap.written(*action))
                        .collect();
                    if keys.is_empty() {
                        continue;
                    }
                    keys.join(", ")
                }
            };
            part.entry(&name, what, "");
        }
        part.close(&mut lines);
    }
    let mut part = part("Commands", COMMAND_NAMES);
    part.title.push(piece(
        "  in a prompt's place; without a value, a setting tells it",
        styles.quiet(),
    ));
    for command in COMMANDS {
        let name = format!("/{} {}", command.name, command.takes);
        part.entry(&name, command.help, words::of_command(command.name));
    }
    part.close(&mut lines);
    lines
}

/// The most lines that are read out of what was found.
const TOLD: usize = 5;

/// The help for who hears it: a line for each key and command, however long; or one line of what was found.
pub(in crate::ui) fn told(help: &Help, keymap: &Keymap, styles: &Styles) -> Vec<String> {
    let words = help.words();
    let lines = lines(usize::MAX, &words, keymap, styles).into_iter();
    let texts = lines.map(|line| line.into_iter().map(|piece| piece.text).collect::<String>());
    let spaced = texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut lines: Vec<String> = spaced.filter(|line| !line.is_empty()).collect();
    let keys = keys(help, keymap);
    match &help.sought {
        None => lines.insert(0, format!("keys; {keys}")),
        Some(_) if words.is_empty() => lines = vec![format!("write what you look for; {keys}")],
        Some(field) if lines.is_empty() => lines = vec![format!("{}: {NOTHING}", field.text())],
        Some(field) => {
            let count = lines.len();
            lines.truncate(TOLD);
            let more = count.saturating_sub(TOLD);
            let more = if more == 0 {
                String::new()
            } else {
                format!("; {more} more lines")
            };
            lines = vec![format!("{}: {}{more}", field.text(), lines.join("; "))];
        }
    }
    lines
}

/// What is told where no line holds what is looked for.
const NOTHING: &str = "nothing matches";

/// The keys that count here.
fn keys(help: &Help, keymap: &Keymap) -> String {
    let stop = keymap.written(Action::Stop).unwrap_or("q");
    match help.sought {
        Some(_) => format!("{stop} shows all"),
        None => format!("/ searches, {stop} closes"),
    }
}

/// Draws the help over the screen, from its first line on, which becomes the last one that makes sense; gives the cell of
/// the caret where something is looked for.
pub(in crate::ui) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    help: &mut Help,
    keymap: &Keymap,
    styles: &Styles,
) -> Option<Position> {
    let width = select::width(area);
    let lines = lines(
        usize::from(width.saturating_sub(4)),
        &help.words(),
        keymap,
        styles,
    );
    // While one looks for something, the window keeps its place.
    let rows = if help.sought.is_some() {
        area.height
    } else {
        u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2)
    };
    let height = area.height.min(rows);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let window = Rect { x, y, width, height };
    paint::clear(buffer, window, styles);
    let title = [
        plain(" keys "),
        piece(
            format!("Up and Down scroll, {} ", keys(help, keymap)),
            styles.quiet(),
        ),
    ];
    let title = select::fitted(&title, usize::from(width).saturating_sub(2));
    let mut inner = paint::boxed(buffer, window, &title, styles, true);
    let caret = help.sought.as_ref().and_then(|field| {
        field.draw(
            buffer,
            paint::row(inner, 0),
            "/ ",
            "words of what you look for",
            styles,
        )
    });
    if help.sought.is_some() {
        inner.y += 1;
        inner.height = inner.height.saturating_sub(1);
        if lines.is_empty() {
            paint::text(buffer, paint::row(inner, 0), 1, NOTHING, styles.quiet());
        }
    }
    let height = usize::from(inner.height);
    help.top = help.top.min(lines.len().saturating_sub(height));
    let end = (help.top + height).min(lines.len());
    select::count(
        buffer,
        inner,
        inner.height,
        (end.saturating_sub(1), lines.len()),
        styles,
    );
    for (y, line) in lines.iter().skip(help.top).take(height).enumerate() {
        paint::pieces(
            buffer,
            Rect {
                x: inner.x + 1,
                width: inner.width.saturating_sub(1),
                ..paint::row(inner, y as u16)
            },
            line,
        );
    }
    caret
}

impl View {
    /// Takes a key for the help.
    pub(in crate::ui) fn help_key(
        &mut self,
        key: &KeyEvent,
        action: Option<Action>,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        let Some(help) = &mut self.help else { return };
        // A screen within its border, less a line that stays in sight.
        let page = usize::from(self.size.1).saturating_sub(3).max(1);
        match (action, key.code) {
            (Some(Action::Stop), _) if help.sought.is_some() => *help = Help::default(),
            (Some(Action::Stop | Action::Help | Action::Interrupt), _) => self.help = None,
            (Some(action @ (Action::Repaint | Action::Suspend)), _) => self.act(action, state, out),
            (_, KeyCode::Up) => help.top = help.top.saturating_sub(1),
            (_, KeyCode::Down) => help.top += 1,
            (_, KeyCode::PageUp) => help.top = help.top.saturating_sub(page),
            (_, KeyCode::PageDown) => help.top += page,
            _ if help.sought.is_some() => {
                // In the transcript, letters are keys of their own.
                let action = action.filter(|_| typed(key).is_none());
                if help.sought.as_mut().is_some_and(|field| field.key(key, action)) {
                    help.top = 0;
                }
            }
            (_, KeyCode::Home) => help.top = 0,
            (_, KeyCode::End) => help.top = usize::MAX / 2,
            (_, KeyCode::Char('/')) => {
                *help = Help {
                    top: 0,
                    sought: Some(Field::default()),
                }
            }
            (_, KeyCode::Char('q')) => self.help = None,
            _ => {}
        }
    }
}
