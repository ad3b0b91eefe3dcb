//! The picker of presets: the program's own and the person's, found by a few letters, applied to the focused pane.

use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Event, Preset};
use crate::ui::cells;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::overlay::field::Field;
use crate::ui::overlay::fuzzy::{self, Fuzzy, Query};
use crate::ui::overlay::picker::Step;
use crate::ui::overlay::rename::Rename;
use crate::ui::overlay::select::{self, Selection};
use crate::ui::paint::{self, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::presets::Library;
use crate::ui::styles::Styles;
use crate::ui::worker::Job;

/// Columns of the names.
const NAMES: usize = 18;

/// The presets, while they lie on top.
#[derive(Debug, Default)]
pub struct PresetPicker {
    field: Field,
    /// None while they are being read.
    library: Option<Library>,
    /// Those that match, the best first.
    found: Vec<usize>,
    selection: Selection,
    fuzzy: Fuzzy,
    /// The preset of which is asked whether it goes.
    asked: Option<String>,
    /// The preset that gets another name, and that name.
    rename: Option<Rename<String>>,
    /// Why something could not be done.
    word: Option<String>,
}

impl PresetPicker {
    /// Whether it asks something.
    pub(in crate::ui) fn asks(&self) -> bool {
        self.asked.is_some()
    }

    /// Takes the presets.
    pub(in crate::ui) fn take(&mut self, library: Library) {
        self.library = Some(library);
        self.search();
    }

    /// What was refused.
    pub(in crate::ui) fn word(&self) -> Option<&str> {
        self.word.as_deref()
    }

    fn presets(&self) -> &[Preset] {
        self.library.as_ref().map_or(&[], |library| &library.presets)
    }

    /// The names of those that match, the best first.
    pub fn shown(&self) -> Vec<&str> {
        let found = self.found.iter().filter_map(|at| self.presets().get(*at));
        found.map(|preset| preset.name.as_str()).collect()
    }

    /// Takes a key: what it asks for here, or what it types.
    pub(in crate::ui) fn key(&mut self, key: &KeyEvent, action: Option<Action>, folder: &Path) -> Vec<Step> {
        self.word = None;
        if let Some(name) = self.asked.clone() {
            return self.answer(name, key, action, folder);
        }
        if Rename::key(&mut self.rename, key, action) {
            return Vec::new();
        }
        if self
            .selection
            .key(select::ends(action, self.field.text()), self.found.len())
        {
            return Vec::new();
        }
        match action {
            Some(Action::Stop | Action::Interrupt | Action::Presets) => return vec![Step::Close],
            Some(Action::DeletePreset) => self.asked = self.selected_own(),
            Some(Action::RenamePreset) => {
                self.rename = self.selected_own().map(|name| Rename::new(name.clone(), &name));
            }
            action => {
                if self.field.key(key, action) {
                    self.search();
                }
            }
        }
        Vec::new()
    }

    fn selected(&self) -> Option<&Preset> {
        let at = self.found.get(self.selection.at())?;
        self.presets().get(*at)
    }

    /// The name of the selected one, if it can be changed; those of the program stay, and it is told.
    fn selected_own(&mut self) -> Option<String> {
        let preset = self.selected()?;
        let name = preset.name.clone();
        if preset.file.is_none() {
            self.word = Some(format!("{} comes with the program, and stays", one_line(&name)));
            return None;
        }
        Some(name)
    }

    /// Takes a yes or a no. Deleting wants a letter: Enter may have been meant for the list.
    fn answer(&mut self, name: String, key: &KeyEvent, action: Option<Action>, folder: &Path) -> Vec<Step> {
        let yes = matches!(key.code, KeyCode::Char('y' | 'Y')) && action.is_none();
        let no = matches!(key.code, KeyCode::Char('n' | 'N')) && action.is_none();
        if yes || no || matches!(action, Some(Action::Stop | Action::Interrupt)) {
            self.asked = None;
        }
        let folder = folder.to_owned();
        let job = yes.then_some(Step::Work(Job::DeletePreset { folder, name }));
        job.into_iter().collect()
    }

    /// Puts text into the line.
    pub(in crate::ui) fn insert(&mut self, text: &str) {
        if self.asked.is_some() {
            return;
        }
        if let Some(rename) = &mut self.rename {
            return rename.insert(text);
        }
        self.field.insert(text);
        self.search();
    }

    /// Applies what is selected, or gives it the name that was written.
    pub(in crate::ui) fn accept(&mut self, folder: &Path) -> Vec<Step> {
        match Rename::accept(&mut self.rename) {
            None => {}
            Some(Err(why)) => {
                self.word = Some(why);
                return Vec::new();
            }
            Some(Ok((name, to))) => {
                let folder = folder.to_owned();
                let job = (to != name).then_some(Step::Work(Job::RenamePreset { folder, name, to }));
                return job.into_iter().collect();
            }
        }
        let Some(preset) = self.selected() else {
            return Vec::new();
        };
        let preset = Box::new(preset.clone());
        vec![Step::Close, Step::Tell(Event::Preset(preset))]
    }

    fn search(&mut self) {
        self.selection = Selection::default();
        let query = Query::new(self.field.text());
        let presets = self.library.as_ref().map_or(&[][..], |library| &library.presets);
        let fuzzy = &mut self.fuzzy;
        self.found = fuzzy::best_first(presets.iter().map(|preset| {
            let whole = format!("{} {}", preset.name, preset.about);
            fuzzy.named(&query, &preset.name, &whole)
        }));
    }

    /// Draws the presets over the screen and gives the caret's cell.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let title = [plain(" presets "), piece(keys(keymap), styles.quiet())];
        let inner = select::window(buffer, area, self.presets().len() + 2, &title, styles);
        let hint = "letters of a name";
        let row = paint::row(inner, 0);
        let caret = match &self.rename {
            Some(rename) => rename.field().draw(buffer, row, "new name> ", "", styles),
            None => self.field.draw(buffer, row, "preset> ", hint, styles),
        };
        let messages = keymap.written(Action::Messages);
        let messages = messages.map_or(String::new(), |key| format!(": {key} lists all"));
        let (text, style) = match (&self.asked, &self.word, &self.library) {
            (Some(name), ..) => (
                format!("Delete preset {}? y deletes, n keeps it", one_line(name)),
                styles.warning(),
            ),
            (None, Some(word), _) => (word.clone(), styles.error()),
            (None, None, None) => ("reading".to_owned(), styles.quiet()),
            (None, None, Some(library)) => match library.problems.as_slice() {
                [] => (
                    "/save-preset NAME keeps this pane's settings as one".into(),
                    styles.quiet(),
                ),
                [only] => (one_line(only), styles.error()),
                [first, more @ ..] => {
                    let text = format!("{} (and {} more{messages})", one_line(first), more.len());
                    (text, styles.error())
                }
            },
        };
        let list = Rect {
            y: inner.y + 1,
            height: inner.height.saturating_sub(1 + select::foot_rows(inner, &text)),
            ..inner
        };
        if self.found.is_empty() && self.library.is_some() {
            paint::text(buffer, paint::row(list, 0), 1, "nothing matches", styles.quiet());
        }
        let top = self.selection.top(usize::from(list.height));
        let width = usize::from(list.width);
        for (y, at) in self
            .found
            .iter()
            .skip(top)
            .take(usize::from(list.height))
            .enumerate()
        {
            let Some(preset) = self.presets().get(*at) else {
                continue;
            };
            let mark = match &preset.file {
                Some(file) => format!(" {} ", one_line(file)),
                None => String::new(),
            };
            let mark = cells::shorten(&mark, width / 3, styles.cut());
            let about = match preset.about.as_str() {
                "" => preset.settings(&crate::chat::Settings::default()).0.system,
                about => Some(about.to_owned()),
            };
            let names = NAMES.min(width / 2);
            let room = width.saturating_sub(names + 2 + cells::width(&mark));
            let line = [
                plain(format!(
                    " {} ",
                    cells::pad(&one_line(&preset.name), names, styles.cut())
                )),
                piece(
                    cells::pad(&one_line(&about.unwrap_or_default()), room, styles.cut()),
                    styles.quiet(),
                ),
                piece(mark, styles.user()),
            ];
            let selected = top + y == self.selection.at();
            select::line(buffer, paint::row(list, y as u16), &line, selected, styles);
        }
        select::foot(buffer, inner, &text, style, styles);
        select::count(
            buffer,
            inner,
            list.height,
            (self.selection.at(), self.found.len()),
            styles,
        );
        caret.filter(|_| self.asked.is_none())
    }
}

/// The keys that count here.
pub(in crate::ui) fn keys(keymap: &Keymap) -> String {
    select::keys(
        keymap,
        &[
            (Action::Send, "applies it"),
            (Action::RenamePreset, "renames"),
            (Action::DeletePreset, "deletes"),
            (Action::Stop, "closes"),
        ],
    )
}
