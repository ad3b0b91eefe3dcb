//! The keys, drawn from their table.

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::State;
use crate::ui::cells::width as width_of;
use crate::ui::input::Reaction;
use crate::ui::keymap::{Action, Group, Motion};
use crate::ui::keys::{Bound, Keymap};
use crate::ui::overlay::select;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::slash::COMMANDS;
use crate::ui::styles::Styles;
use crate::ui::view::View;
use crate::ui::wrap::wrap_line;

/// Columns of the keys' names.
const NAMES: usize = 12;
/// Columns of slash commands with what they take.
const COMMAND_NAMES: usize = 24;

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

/// Adds a name and what it is for, which begins at column `names`, or behind a name that reaches further.
fn entry(lines: &mut Vec<Vec<Piece>>, name: &str, names: usize, what: &str, width: usize, styles: &Styles) {
    let column = names.max(width_of(name) + 1);
    for (at, row) in wrap_line(what, width.saturating_sub(column))
        .into_iter()
        .enumerate()
    {
        let name = if at == 0 { name } else { "" };
        let fill = " ".repeat(column - width_of(name));
        lines.push(vec![
            piece(format!("{name}{fill}"), styles.key()),
            plain(what[row].to_owned()),
        ]);
    }
}

/// The lines of the help, in `width` cells.
fn lines(width: usize, keymap: &Keymap, styles: &Styles) -> Vec<Vec<Piece>> {
    let mut lines = Vec::new();
    for group in Group::ALL {
        if !lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.push(vec![piece(group.title(), styles.strong())]);
        let own = |bound: &&Bound| {
            bound.binding.group == group && (!bound.name.is_empty() || bound.binding.keys.is_empty())
        };
        for bound in keymap.all().filter(own) {
            // What no key is for by itself is there as a command.
            let name = match &*bound.name {
                "" => keymap.way(bound.binding.action),
                name => name.to_owned(),
            };
            entry(&mut lines, &name, NAMES, &bound.help, width, styles);
        }
    }
    for (title, entries) in MORE {
        lines.push(Vec::new());
        lines.push(vec![piece(*title, styles.strong())]);
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
            entry(&mut lines, &name, NAMES, what, width, styles);
        }
    }
    lines.push(Vec::new());
    lines.push(vec![
        piece("Commands", styles.strong()),
        piece(
            "  in a prompt's place; without a value, a setting tells it",
            styles.quiet(),
        ),
    ]);
    for command in COMMANDS {
        let name = format!("/{} {}", command.name, command.takes);
        entry(&mut lines, &name, COMMAND_NAMES, command.help, width, styles);
    }
    lines
}

/// The help for who hears it: a line for each key and command, however long.
pub(in crate::ui) fn told(keymap: &Keymap, styles: &Styles) -> Vec<String> {
    let lines = lines(usize::MAX, keymap, styles).into_iter();
    let texts = lines.map(|line| line.into_iter().map(|piece| piece.text).collect::<String>());
    let words = texts.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut lines: Vec<String> = words.filter(|line| !line.is_empty()).collect();
    lines.insert(0, "keys; Esc closes".to_owned());
    lines
}

/// Draws the help over the screen, from its line `top` on; gives the greatest `top` that makes sense.
pub(in crate::ui) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    top: usize,
    keymap: &Keymap,
    styles: &Styles,
) -> usize {
    let width = select::width(area);
    let lines = lines(usize::from(width.saturating_sub(4)), keymap, styles);
    let height = area.height.min(lines.len() as u16 + 2);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let window = Rect { x, y, width, height };
    paint::clear(buffer, window, styles);
    let title = [
        plain(" keys "),
        piece("Esc closes, Up and Down scroll ", styles.quiet()),
    ];
    let inner = paint::boxed(buffer, window, &title, styles, true);
    let end = (top + usize::from(inner.height)).min(lines.len());
    select::count(
        buffer,
        inner,
        inner.height,
        (end.saturating_sub(1), lines.len()),
        styles,
    );
    let last = lines.len().saturating_sub(usize::from(inner.height));
    let top = top.min(last);
    for (y, line) in lines.iter().skip(top).take(usize::from(inner.height)).enumerate() {
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
    last
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
        let top = self.help.unwrap_or(0);
        // A screen within its border, less a line that stays in sight.
        let page = usize::from(self.size.1).saturating_sub(3).max(1);
        match (action, key.code) {
            (Some(Action::Stop | Action::Help), _) | (_, KeyCode::Char('q')) => self.help = None,
            (Some(Action::Repaint | Action::Suspend), _) => {
                if let Some(action) = action {
                    self.act(action, state, out);
                }
            }
            (Some(Action::Interrupt), _) => self.help = None,
            (_, KeyCode::Up) => self.help = Some(top.saturating_sub(1)),
            (_, KeyCode::Down) => self.help = Some(top + 1),
            (_, KeyCode::PageUp) => self.help = Some(top.saturating_sub(page)),
            (_, KeyCode::PageDown) => self.help = Some(top + page),
            (_, KeyCode::Home) => self.help = Some(0),
            (_, KeyCode::End) => self.help = Some(usize::MAX / 2),
            _ => {}
        }
    }
}
