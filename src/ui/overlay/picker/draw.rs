//! How the picker looks.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::{By, Picker};
use crate::chat::store::{Place, Summary};
use crate::chat::{Marks, SessionId, State};
use crate::text::message::Role;
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::overlay::fuzzy::{self, Query};
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;
use crate::ui::{cells, format, overlay::select};

/// Columns of a title beside a hit.
const TITLES: usize = 22;

impl Picker {
    /// Draws the picker over the screen and gives the caret's cell.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let title = [
            plain(" conversations "),
            piece(keys(keymap, self.by), styles.quiet()),
        ];
        let inner = select::window(buffer, area, usize::from(area.height), &title, styles);
        let row = paint::row(inner, 0);
        let caret = match (&self.rename, self.by) {
            (Some(rename), _) => rename.field().draw(buffer, row, "new title> ", "", styles),
            (None, By::Title) => self
                .field
                .draw(buffer, row, "title> ", "letters of a title", styles),
            (None, By::Text) => self
                .field
                .draw(buffer, row, "text> ", "words that were said", styles),
        };
        let (text, style) = match &self.word {
            Some(word) => (one_line(word), styles.error()),
            None => (self.status(keymap), styles.quiet()),
        };
        let list = Rect {
            y: inner.y + 1,
            height: inner.height.saturating_sub(1 + select::foot_rows(inner, &text)),
            ..inner
        };
        let (top, height) = (
            self.selection.top(usize::from(list.height)),
            usize::from(list.height),
        );
        let lines: Vec<Vec<Piece>> = match self.by {
            By::Title => self.title_lines(top, height, usize::from(list.width), state, styles),
            By::Text => self.hit_lines(top, height, usize::from(list.width), state, styles),
        };
        for (y, line) in lines.iter().enumerate() {
            let selected = top + y == self.selection.at();
            select::line(buffer, paint::row(list, y as u16), line, selected, styles);
        }
        if inner.height > 2 {
            select::foot(buffer, inner, &text, style, styles);
        }
        let all = match self.by {
            By::Title => self.titles.len(),
            By::Text => self.hits.len(),
        };
        select::count(buffer, inner, list.height, (self.selection.at(), all), styles);
        caret
    }

    fn title_lines(
        &mut self,
        top: usize,
        height: usize,
        width: usize,
        state: &State,
        styles: &Styles,
    ) -> Vec<Vec<Piece>> {
        let query = Query::new(self.field.text());
        let sessions = self.sessions.as_deref().unwrap_or_default();
        let mut lines = Vec::new();
        for at in self.titles.iter().skip(top).take(height) {
            let Some(summary) = sessions.get(*at) else {
                continue;
            };
            let turns = if summary.turns == 1 { "turn " } else { "turns" };
            let date = summary.updated.strftime("%Y-%m-%d %H:%M");
            let facts = match width {
                ..50 => String::new(),
                _ => format!("{:>5} {turns}  {date} ", summary.turns),
            };
            let mark = mark(summary.session, summary.marks, &self.struck, state);
            let room = width.saturating_sub(cells::width(&facts) + cells::width(&mark) + 2);
            // What tells it from others of its title, which is never more than half of the line then.
            let apart = (summary.prompt != summary.title && self.shared.contains(&summary.title))
                .then(|| format!("  {}", one_line(&summary.prompt)))
                .filter(|prompt| !prompt.trim().is_empty());
            let (titled, whole) = (titled(&summary.title), room);
            let room = match apart {
                Some(_) => cells::width(&titled).min(room / 2),
                None => room,
            };
            let title = cells::pad(&titled, room, styles.cut());
            let places = self.fuzzy.places(&query, &titled);
            let mut line = vec![plain(" ")];
            line.extend(
                fuzzy::cut(&title, &places)
                    .into_iter()
                    .map(|(text, found)| match found {
                        true => piece(text, styles.found()),
                        false => plain(text),
                    }),
            );
            if let Some(prompt) = apart {
                let rest = cells::pad(&prompt, whole - room, styles.cut());
                line.push(piece(rest, styles.quiet()));
            }
            line.extend([
                piece(mark, styles.warning()),
                plain(" "),
                piece(facts, styles.quiet()),
            ]);
            lines.push(line);
        }
        lines
    }

    fn hit_lines(
        &self,
        top: usize,
        height: usize,
        width: usize,
        state: &State,
        styles: &Styles,
    ) -> Vec<Vec<Piece>> {
        let line = |hit: &crate::chat::store::Hit| {
            let mark = mark(hit.session, hit.marks, &self.struck, state);
            let names = TITLES.min(width / 3);
            let place = match hit.place {
                Place::Title => String::new(),
                Place::Draft => "draft: ".into(),
                Place::Message { turn, role } => match role {
                    Role::Assistant => format!("answer {turn}: "),
                    _ => format!("prompt {turn}: "),
                },
            };
            let date = match width {
                ..50 => String::new(),
                50..70 => hit.at.strftime(" %m-%d ").to_string(),
                _ => hit.at.strftime(" %Y-%m-%d ").to_string(),
            };
            let said = cells::width(&place) + cells::width(&mark) + cells::width(&date) + names + 3;
            vec![
                plain(format!(
                    " {} ",
                    cells::pad(&titled(&hit.title), names, styles.cut())
                )),
                piece(mark, styles.warning()),
                piece(place, styles.quiet()),
                plain(cells::pad(
                    &one_line(&hit.line),
                    width.saturating_sub(said),
                    styles.cut(),
                )),
                piece(date, styles.quiet()),
            ]
        };
        self.hits.iter().skip(top).take(height).map(line).collect()
    }

    fn status(&self, keymap: &Keymap) -> String {
        if !self.struck.is_empty() {
            let back = keymap
                .written(Action::Undo)
                .map_or(String::new(), |key| format!("; {key} takes the last one back"));
            let later = keymap.written(Action::RestoreSession);
            let later = later.map_or(String::new(), |key| format!(", later {key}"));
            return format!("{} deleted when this closes{back}{later}", self.struck.len());
        }
        match (self.by, &self.sessions) {
            (By::Title, None) => "reading".into(),
            (By::Title, Some(all)) if all.is_empty() => "there are no stored conversations yet".into(),
            (By::Title, Some(all)) => {
                let hidden = |s: &&Summary| s.marks.archived && !self.lately.contains(&s.session);
                let away = all.iter().filter(hidden).count();
                let (found, all) = (format::grouped(self.titles.len()), format::grouped(all.len()));
                let key = keymap.written(Action::ListArchived).unwrap_or("-");
                match (away, self.archived) {
                    (0, _) => {
                        let known = [(Action::PinSession, "pins"), (Action::ArchiveSession, "archives")];
                        let words = known.map(|(action, word)| {
                            let key = keymap.written(action);
                            key.map_or(String::new(), |key| format!("; {key} {word}"))
                        });
                        format!("{found} of {all}{}", words.concat())
                    }
                    (_, true) => format!("{found} of {all}, archived ones among them"),
                    (away, false) => format!("{found} of {all}; {key} lists {away} archived, too"),
                }
            }
            (By::Text, _) if self.asked.1 => "searching".into(),
            (By::Text, _) if self.field.text().trim().is_empty() => "all words have to be there".into(),
            (By::Text, _) if self.hits.len() >= super::HITS => {
                format!("the first {} hits", format::grouped(self.hits.len()))
            }
            (By::Text, _) if self.hits.len() == 1 => "1 hit".into(),
            (By::Text, _) => format!("{} hits", self.hits.len()),
        }
    }
}

/// The keys that count here.
pub(super) fn keys(keymap: &Keymap, by: By) -> String {
    let other = match by {
        By::Title => "text",
        By::Text => "titles",
    };
    let known = [
        (Action::Send, "opens"),
        (Action::SearchText, other),
        (Action::RenameSession, "renames"),
        (Action::DeleteSession, "deletes"),
        (Action::Stop, "closes"),
    ];
    select::keys(keymap, &known)
}

pub(super) fn titled(title: &str) -> String {
    match one_line(title) {
        title if title.is_empty() => "(no title)".into(),
        title => title,
    }
}

/// That a conversation goes; else where it is open, and how it is listed.
fn mark(session: SessionId, marks: Marks, struck: &[SessionId], state: &State) -> String {
    if struck.contains(&session) {
        return " deleted ".into();
    }
    let pane = state.pane_with(session).map(|pane| format!("pane {pane}"));
    let pinned = marks.pinned.then(|| "pinned".to_owned());
    let archived = marks.archived.then(|| "archived".to_owned());
    let words: Vec<String> = pane.into_iter().chain(pinned).chain(archived).collect();
    if words.is_empty() {
        String::new()
    } else {
        format!(" {} ", words.join(", "))
    }
}
