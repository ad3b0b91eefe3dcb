//! The list of themes: each shows itself while it is selected.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::chat::Event;
use crate::ui::cells;
use crate::ui::input::Reaction;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::overlay::Overlay;
use crate::ui::overlay::select::{self, Selection};
use crate::ui::paint::{self, piece, plain};
use crate::ui::settings_file::Kept;
use crate::ui::styles::Styles;
use crate::ui::styles::theme::{AUTO, TERMINAL};
use crate::ui::view::View;
use crate::ui::worker::Job;
use crate::ui::wrap::wrap_line;

/// Columns of the names.
const NAMES: usize = 18;

/// What stands below the list where themes are of no use.
const UNSEEN: &str = "This terminal shows its own colors alone (color = \"truecolor\" asks for all).";

/// The list, while it lies on top.
#[derive(Debug)]
pub struct ThemeList {
    names: Vec<String>,
    selection: Selection,
    /// Whether the terminal shows themes.
    seen: bool,
}

impl ThemeList {
    /// The name of the selected theme.
    fn selected(&self) -> &str {
        self.names.get(self.selection.at()).map_or(TERMINAL, |name| name)
    }

    /// Draws the list over the screen.
    pub(in crate::ui) fn draw(&mut self, buffer: &mut Buffer, area: Rect, keymap: &Keymap, styles: &Styles) {
        let title = [plain(" colors "), piece(keys(keymap), styles.quiet())];
        let room = usize::from(select::width(area).saturating_sub(4));
        let note = match self.seen {
            true => Vec::new(),
            false => wrap_line(UNSEEN, room),
        };
        let inner = select::window(buffer, area, self.names.len() + note.len(), &title, styles);
        let height = inner.height.saturating_sub(note.len() as u16);
        let top = self.selection.top(usize::from(height));
        let shown = self.names.iter().enumerate().skip(top).take(usize::from(height));
        for (y, (at, name)) in shown.enumerate() {
            let what = match name.as_str() {
                TERMINAL => "the terminal's own colors",
                AUTO => "dark or light, as the terminal is",
                _ => "",
            };
            let what = cells::shorten(what, room.saturating_sub(NAMES), styles.cut());
            let line = [plain(format!(" {name:<NAMES$}")), piece(what, styles.quiet())];
            let row = paint::row(inner, y as u16);
            select::line(buffer, row, &line, at == self.selection.at(), styles);
        }
        select::count(
            buffer,
            inner,
            height,
            (self.selection.at(), self.names.len()),
            styles,
        );
        for (y, line) in (height..).zip(note) {
            paint::text(buffer, paint::row(inner, y), 1, &UNSEEN[line], Style::new());
        }
    }
}

/// The keys that count here.
pub(in crate::ui) fn keys(keymap: &Keymap) -> String {
    select::keys(keymap, &[(Action::Send, "keeps it"), (Action::Stop, "goes back")])
}

impl View {
    /// Opens the list of themes.
    pub(in crate::ui) fn choose_theme(&mut self) {
        let names: Vec<String> = self.looks.themes.names().map(str::to_owned).collect();
        let at = names.iter().position(|name| name == self.looks.theme.now());
        let mut selection = Selection::default();
        for _ in 0..at.unwrap_or(0) {
            selection.key(Some(Action::Move(crate::ui::keymap::Motion::Down)), names.len());
        }
        let seen = self.looks.shows_themes();
        self.overlay = Some(Overlay::Themes(Box::new(ThemeList {
            names,
            selection,
            seen,
        })));
    }

    /// Takes a key for the list of themes.
    pub(in crate::ui) fn theme_key(&mut self, action: Option<Action>, out: &mut Vec<Reaction>) {
        let Some(Overlay::Themes(list)) = &mut self.overlay else {
            return;
        };
        match action {
            Some(Action::Stop | Action::Interrupt | Action::Themes) => {
                self.overlay = None;
                self.show_theme(None);
            }
            Some(Action::Send) => {
                let name = list.selected().to_owned();
                self.overlay = None;
                self.looks.theme.turn(name.clone());
                self.show_theme(None);
                out.push(Reaction::Chat(Event::Acted));
                if !self.looks.shows_themes() {
                    let text = format!("theme {name}: this terminal shows its own colors alone");
                    out.push(Reaction::Tell(text));
                }
                out.push(Reaction::Work(Job::Keep {
                    file: self.config_file.clone(),
                    settings: vec![("theme", Kept::Text(name))],
                    but: self.looks.decided(&["theme"]),
                }));
            }
            action => {
                let count = list.names.len();
                if list.selection.key(select::ends(action, ""), count) {
                    let name = list.selected().to_owned();
                    self.show_theme(Some(&name));
                }
            }
        }
    }

    /// The action that a key asks for in the list of themes: j and k move, too.
    pub(in crate::ui) fn theme_action(key: &KeyEvent, action: Option<Action>) -> Option<Action> {
        use crossterm::event::KeyCode::Char;
        match (action, key.code) {
            (None, Char('j')) => Some(Action::Move(crate::ui::keymap::Motion::Down)),
            (None, Char('k')) => Some(Action::Move(crate::ui::keymap::Motion::Up)),
            (action, _) => action,
        }
    }
}
