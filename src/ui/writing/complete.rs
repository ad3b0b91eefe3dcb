//! The list above the composer while a slash command or a path is written: what it can become.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::chat::Draft;
use crate::ui::cells;
use crate::ui::keymap::{Action, Motion};
use crate::ui::overlay::fuzzy::{Fuzzy, Query};
use crate::ui::overlay::select::{self, Selection};
use crate::ui::paint::{self, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::slash::{self, COMMANDS};
use crate::ui::styles::Styles;
use crate::ui::writing::attach::{self, Attached, Entry, Written};
use crate::ui::writing::editor::Editor;

/// The most lines that are shown.
const LINES: u16 = 8;

/// Something that a draft's word can become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// As it is listed.
    pub name: String,
    /// What it is.
    pub what: String,
    /// What takes the word's place.
    pub text: String,
    /// The bytes of the word in the draft.
    pub word: std::ops::Range<usize>,
    /// Whether it is a whole line then, ready to be carried out.
    pub whole: bool,
}

/// The list's state between keys.
#[derive(Debug, Clone, Default)]
pub struct Menu {
    selection: Selection,
    /// The draft for which it was put away, or for which the selection was made.
    closed: Option<String>,
    seen: String,
}

impl Menu {
    /// What the word at the caret can become, while the list isn't put away.
    pub fn offers(&mut self, draft: &Draft, files: &Attached) -> Vec<Offer> {
        let written = attach::written(draft);
        if written.is_none() && !draft.text().starts_with('/') {
            return Vec::new();
        }
        if self.closed.as_deref() == Some(draft.text()) {
            return Vec::new();
        }
        self.closed = None;
        if self.seen != draft.text() {
            self.seen = draft.text().to_owned();
            self.selection = Selection::default();
        }
        let offers = match written {
            Some(written) => paths(&written, files),
            None => commands(draft, files),
        };
        self.selection.keep(offers.len());
        offers
    }

    /// The selected one.
    pub fn selected(&self) -> usize {
        self.selection.at()
    }

    /// Moves the selection among so many; whether the action is one that does.
    pub fn moves(&mut self, action: Action, count: usize) -> bool {
        matches!(action, Action::Move(Motion::Up | Motion::Down)) && self.selection.key(Some(action), count)
    }

    /// Puts the list away until the draft changes.
    pub fn close(&mut self, draft: &Draft) {
        self.closed = Some(draft.text().to_owned());
    }

    /// Draws the list over the rows that end where the composer begins.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        composer: Rect,
        offers: &[Offer],
        styles: &Styles,
    ) {
        let names = offers
            .iter()
            .map(|offer| cells::width(&offer.name))
            .max()
            .unwrap_or(0)
            .min(24);
        let whats = offers
            .iter()
            .map(|offer| cells::width(&offer.what))
            .max()
            .unwrap_or(0);
        let width = u16::try_from(names + whats + 6).unwrap_or(u16::MAX);
        let width = select::width_of(width.min(composer.width), composer);
        let rows = u16::try_from(offers.len()).unwrap_or(LINES).min(LINES);
        let height = (rows + 2).min(composer.y.saturating_sub(buffer.area.y));
        if height < 3 {
            return;
        }
        let window = Rect {
            y: composer.y - height,
            width,
            height,
            ..composer
        };
        paint::clear(buffer, window, styles);
        let title = [piece(" Tab takes ", styles.quiet())];
        let inner = paint::boxed(buffer, window, &title, styles, false);
        let top = self.selection.top(usize::from(inner.height));
        let shown = offers.iter().skip(top).take(usize::from(inner.height));
        for (y, offer) in shown.enumerate() {
            let room = usize::from(inner.width).saturating_sub(names + 3);
            let line = [
                plain(format!(" {} ", cells::pad(&offer.name, names, styles.cut()))),
                piece(cells::pad(&offer.what, room, styles.cut()), styles.quiet()),
            ];
            let selected = top + y == self.selection.at();
            select::line(buffer, paint::row(inner, y as u16), &line, selected, styles);
        }
    }
}

/// Slash commands that a draft can become, or words that one takes.
fn commands(draft: &Draft, files: &Attached) -> Vec<Offer> {
    let (text, caret) = (draft.text(), draft.cursor());
    let Some(rest) = text.strip_prefix('/').filter(|rest| !rest.contains(['/', '\n'])) else {
        return Vec::new();
    };
    let end = rest.find(char::is_whitespace).map_or(text.len(), |at| at + 1);
    if caret <= end {
        let word = text.get(1..caret.max(1)).unwrap_or_default();
        let command = |name: &str, takes: &str, what: &str| {
            let offer = Offer {
                name: format!("/{name} {takes}").trim_end().to_owned(),
                what: what.to_owned(),
                text: format!("/{name}{}", if takes.is_empty() { "" } else { " " }),
                word: 0..end,
                whole: takes.is_empty(),
            };
            name.starts_with(word).then_some(offer)
        };
        let named = COMMANDS.iter().filter_map(|c| command(c.name, c.takes, c.help));
        let actions = slash::actions();
        let actions = actions.filter_map(|(_, name, what)| command(&name, "", what));
        return named.chain(actions).collect();
    }
    let Some(command) = slash::named(text.get(1..end).unwrap_or_default()) else {
        return Vec::new();
    };
    let word = text.get(end..).unwrap_or_default();
    let start = text.len() - word.trim_start().len();
    if text.starts_with(attach::PRESET) {
        return presets(word.trim(), start..text.len(), files);
    }
    let fits = |known: &&&str| known.starts_with(word.trim()) && **known != word.trim();
    let offer = |known: &&str| Offer {
        name: (*known).to_owned(),
        what: String::new(),
        text: (*known).to_owned(),
        word: start..text.len(),
        whole: true,
    };
    command.words.iter().filter(fits).map(offer).collect()
}

/// Presets whose names begin so; none where one is written out.
fn presets(written: &str, word: std::ops::Range<usize>, files: &Attached) -> Vec<Offer> {
    if files.presets().iter().any(|preset| preset.name == written) {
        return Vec::new();
    }
    let named = files
        .presets()
        .iter()
        .filter(|preset| preset.name.starts_with(written));
    named
        .map(|preset| Offer {
            name: one_line(&preset.name),
            what: one_line(&preset.about),
            text: preset.name.clone(),
            word: word.clone(),
            whole: true,
        })
        .collect()
}

/// The most names that are offered.
const NAMES: usize = 100;

/// Names in a folder that a path can go on with; hidden ones where their dot is written.
fn paths(written: &Written, files: &Attached) -> Vec<Offer> {
    let Written {
        word,
        folder,
        name,
        argument,
    } = written;
    let entries: Vec<&Entry> = files
        .entries(folder)
        .iter()
        .filter(|entry| name.starts_with('.') || !entry.name.starts_with('.'))
        .collect();
    let names = entries.iter().map(|entry| entry.name.as_str());
    let found = Fuzzy::default().rank(&Query::new(name), names);
    let offer = |at: &usize| {
        let entry = entries.get(*at)?;
        let path = format!("{folder}{}", entry.name);
        let mention = |path: &str| match argument {
            true => attach::mention(path).trim_start_matches('@').to_owned(),
            false => attach::mention(path),
        };
        let text = match (entry.folder, mention(&format!("{path}/"))) {
            // What is in it comes next: an opened quote stays open.
            (true, text) => text.strip_suffix('"').map(str::to_owned).unwrap_or(text),
            (false, _) if *argument => mention(&path),
            (false, _) => format!("{} ", mention(&path)),
        };
        Some(Offer {
            name: format!("{}{}", one_line(&entry.name), if entry.folder { "/" } else { "" }),
            what: if entry.folder { "folder" } else { "" }.to_owned(),
            text,
            word: word.clone(),
            whole: false,
        })
    };
    found.iter().take(NAMES).filter_map(offer).collect()
}

/// The draft with an offer in its word's place.
pub fn take(draft: &Draft, offer: &Offer) -> Draft {
    let behind = draft.text().get(offer.word.end..).unwrap_or_default();
    let spaces = match offer.text.ends_with(' ') {
        true => behind.len() - behind.trim_start_matches(' ').len(),
        false => 0,
    };
    let mut editor = Editor::of(draft);
    editor.replace(offer.word.start..offer.word.end + spaces, &offer.text);
    editor.into_draft()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let draft = Draft::at_end(text);
        Menu::default()
            .offers(&draft, &Attached::default())
            .into_iter()
            .map(|offer| offer.name)
            .collect()
    }

    #[test]
    fn commands_are_offered_by_their_beginning() {
        assert_eq!(names("/te"), ["/temperature N"]);
        assert!(names("/").len() > COMMANDS.len(), "actions are offered, too");
        assert_eq!(names("/thinking o"), ["on", "off"]);
        assert_eq!(names("/thinking on"), [""; 0]);
        for text in ["", "text", "//te", "/etc/ho", "/xyzzy", "/temperature 0", "/te\n"] {
            assert_eq!(names(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_is_taken_stands_in_the_words_place() {
        let draft = Draft::new("/te 0.7", 3);
        let offers = Menu::default().offers(&draft, &Attached::default());
        assert_eq!(take(&draft, &offers[0]), Draft::new("/temperature 0.7", 13));
        let draft = Draft::at_end("/thinking  of");
        let offers = Menu::default().offers(&draft, &Attached::default());
        assert_eq!(take(&draft, &offers[0]).text(), "/thinking  off");
    }

    #[test]
    fn a_list_that_was_put_away_comes_back_with_the_next_change() {
        let mut menu = Menu::default();
        let draft = Draft::at_end("/te");
        menu.close(&draft);
        assert!(menu.offers(&draft, &Attached::default()).is_empty());
        assert!(!menu.offers(&Draft::at_end("/t"), &Attached::default()).is_empty());
        assert!(!menu.offers(&draft, &Attached::default()).is_empty());
    }
}
