//! How the picker of models looks, and the question before a change.

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;

use super::{Going, Line, ModelPicker, Question};
use crate::ui::keymap::Action;
use crate::ui::keys::Keymap;
use crate::ui::models::{Facts, Fit, Listed, Place};
use crate::ui::overlay::fuzzy::{self, Query};
use crate::ui::overlay::{question, select};
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;
use crate::ui::{cells, format, wrap};

/// What the line of the prompt cache is called.
pub(super) const PROMPTS: &str = "prompt cache";
/// Columns of how weights are stored.
const STORED: usize = 12;
/// From so many columns on, it is shown.
const ROOMY: usize = 60;
/// Columns of whether it fits.
const FITS: usize = 14;
/// Up to so many columns, where a model is stands below the list alone.
const NARROW: usize = 50;
/// Columns of whether it fits there.
const NARROW_FITS: usize = 11;
/// Columns of a size there.
const NARROW_SIZE: usize = 5;
/// Rows of a screen from which on what is said of the selected model may take several.
const TALL: u16 = 16;
/// What is said of a model that was made to go on with text, not to talk.
const NO_TEMPLATE: &str = "no chat template";
/// The most rows of what was refused, or is said of a model.
const MOST: usize = 4;

impl ModelPicker {
    /// Draws the picker over the screen and gives the caret's cell.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        going: &Going,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let title = [plain(" models "), piece(keys(keymap, going), styles.quiet())];
        let inner = select::window(buffer, area, usize::from(area.height), &title, styles);
        let hint = "letters of a name";
        let caret = self
            .field
            .draw(buffer, paint::row(inner, 0), "model> ", hint, styles);
        let room = usize::from(inner.width).saturating_sub(2);
        let below = self.below(going, (room, area.height), keymap, styles);
        let list = Rect {
            y: inner.y + 1,
            height: inner.height.saturating_sub(1 + below.len() as u16),
            ..inner
        };
        let height = usize::from(list.height);
        let top = self.selection.top(height);
        for (y, line) in self.lines.clone().into_iter().skip(top).take(height).enumerate() {
            let pieces = self.line(line, usize::from(list.width), going, styles);
            let selected = top + y == self.selection.at();
            select::line(buffer, paint::row(list, y as u16), &pieces, selected, styles);
        }
        select::count(
            buffer,
            inner,
            list.height,
            (self.selection.at(), self.lines.len()),
            styles,
        );
        let first = (list.y + list.height).saturating_sub(inner.y);
        for (y, (text, style)) in (first..inner.height).zip(&below) {
            paint::text(buffer, paint::row(inner, y), 1, text, *style);
        }
        caret.filter(|_| self.question.is_none())
    }

    /// The lines below the list: the download, the selected model, and a question, a refusal or how many there are.
    fn below(
        &self,
        going: &Going,
        (room, height): (usize, u16),
        keymap: &Keymap,
        styles: &Styles,
    ) -> Vec<(String, Style)> {
        let mut lines = Vec::new();
        if let Some(fetch) = &going.fetch {
            let name = format!("{}: ", one_line(&fetch.name));
            let left = room.saturating_sub(cells::width(&name));
            lines.push((
                format!("{name}{}", fetch.progress(left, styles)),
                styles.warning(),
            ));
        }
        let about = self.about(going, room + 2);
        if height < TALL {
            lines.push((about, styles.quiet()));
        } else {
            let rows = wrap::wrap_line(&about, room).into_iter().take(MOST);
            lines.extend(rows.map(|row| (about[row].to_owned(), styles.quiet())));
        }
        let (last, style) = match (&self.question, &self.word) {
            (Some(asked), _) => (asked.text(), styles.warning()),
            (None, Some(word)) => (one_line(word), styles.error()),
            (None, None) => match self.arrival(keymap) {
                Some(arrival) => (arrival, styles.warning()),
                None if going
                    .fetch
                    .as_ref()
                    .is_some_and(|fetch| self.unlisted() == Some(&fetch.name)) =>
                {
                    (String::new(), styles.quiet())
                }
                None => (self.status(keymap), styles.quiet()),
            },
        };
        for line in wrap::wrap_line(&last, room).into_iter().take(MOST) {
            lines.push((last[line].to_owned(), style));
        }
        let cut =
            |(text, style): (String, Style)| (cells::shorten(&one_line(&text), room, styles.cut()), style);
        lines.into_iter().map(cut).collect()
    }

    fn line(&mut self, line: Line, width: usize, going: &Going, styles: &Styles) -> Vec<Piece> {
        let query = Query::new(self.field.text());
        let Some(model) = self.model(line).cloned() else {
            let inventory = self.inventory.clone().unwrap_or_default();
            let size = format::bytes(inventory.prompt_bytes);
            let files = match inventory.prompt_files {
                1 => "1 file".to_owned(),
                count => format!("{} files", format::grouped(count)),
            };
            let name = cells::pad(PROMPTS, names(width), styles.cut());
            let facts = match width <= NARROW {
                true => format!(" {} {files}", cells::pad_left(&size, NARROW_SIZE, "")),
                false => format!(" {:9} {}  {files}", "on disk", cells::pad_left(&size, 6, "")),
            };
            return vec![plain(format!("   {name}")), piece(facts, styles.quiet())];
        };
        let is_current = model.in_use || going.current.as_ref() == Some(&model.name);
        let mark = match () {
            () if is_current => "*",
            () if going.to.as_ref() == Some(&model.name) => ">",
            () => " ",
        };
        let written = one_line(&model.name);
        let name = cells::pad(&written, names(width), styles.cut());
        let places = self.fuzzy.places(&query, &written);
        let mut pieces = vec![piece(format!(" {mark} "), styles.strong())];
        pieces.extend(
            fuzzy::cut(&name, &places)
                .into_iter()
                .map(|(text, found)| match found {
                    true => piece(text, styles.found()),
                    false if is_current => piece(text, styles.strong()),
                    false => plain(text),
                }),
        );
        let size = model.bytes.map_or_else(|| format::NONE.into(), format::bytes);
        let size = match width <= NARROW {
            // Where there is no room for a word: whether it is to be downloaded.
            true => {
                let away = model.place == Place::Remote;
                let mark = if away { styles.pick("↓", "v") } else { " " };
                format!(" {mark}{}", cells::pad_left(&size, NARROW_SIZE - 1, ""))
            }
            false => format!(" {:9} {}", place(&model), cells::pad_left(&size, 6, "")),
        };
        pieces.push(piece(size, styles.quiet()));
        let facts = self.facts_of(&model);
        if width >= ROOMY {
            let stored = match (facts, model.place) {
                (Some(facts), _) => facts.quantization.clone(),
                (None, Place::Remote) => String::new(),
                (None, _) if self.facts.contains_key(&model.name) => "not readable".into(),
                (None, _) => "reading".into(),
            };
            pieces.push(piece(
                format!("  {}", cells::pad(&one_line(&stored), STORED, styles.cut())),
                styles.quiet(),
            ));
        }
        if let Some(facts) = facts {
            let (text, style) = fit(facts, width, styles);
            pieces.push(piece(format!(" {text}"), style));
        }
        pieces
    }

    /// What the selected model takes of memory; first what its line, of so many columns, has no room for.
    fn about(&self, going: &Going, width: usize) -> String {
        let Some(model) = self.selected().and_then(|line| self.model(line)) else {
            return String::new();
        };
        let text = match self.facts_of(model) {
            Some(Facts {
                fit: Fit::Unsupported(why),
                ..
            }) => format!("it can't be run: {why}"),
            Some(facts) if facts.template == Some(false) => format!("{NO_TEMPLATE}; {}", needs(facts)),
            Some(facts) => needs(facts),
            None => String::new(),
        };
        let mut said = Vec::new();
        let missed = going.missed.get(&model.name);
        let told = |why: &&String| self.word.as_ref() == Some(why);
        if let Some(why) = missed.filter(|why| !told(why)) {
            said.push(format!("not downloaded: {}", one_line(why)));
        }
        let name = one_line(&model.name);
        if cells::width(&name) > names(width) {
            said.push(name);
        }
        if width <= NARROW {
            said.push(place(model).to_owned());
        }
        if model.unfinished > 0 {
            said.push(format!("{} of it are here", format::bytes(model.unfinished)));
        }
        if model.default {
            said.push("the default model".to_owned());
        }
        said.extend(Some(text).filter(|text| !text.is_empty()));
        said.join("; ")
    }

    /// What to do with the model that was downloaded.
    fn arrival(&self, keymap: &Keymap) -> Option<String> {
        let name = self.arrived.as_deref()?;
        let key = keymap.written(Action::Send).unwrap_or("Enter");
        let facts = self.facts.get(name).and_then(Option::as_ref);
        if facts.is_some_and(|facts| matches!(facts.fit, Fit::Unsupported(_))) {
            return None;
        }
        let how = match self.selected_name() {
            Some(selected) if selected == name => "goes on with it",
            _ => "on its line goes on with it",
        };
        Some(format!("{} is here: {key} {how}", one_line(name)))
    }

    fn status(&self, keymap: &Keymap) -> String {
        if let Some(name) = &self.sought {
            return format!("looking for {}", one_line(name));
        }
        if let Some(name) = self.unlisted() {
            let key = keymap.written(Action::Send).unwrap_or("Enter");
            let name = one_line(name);
            return format!(
                "none is called so: {key} looks for {name}, and downloads it where it isn't here"
            );
        }
        match &self.inventory {
            None => "reading".into(),
            Some(inventory) => {
                let here = |model: &&Listed| model.place != Place::Remote;
                let on_disk = inventory.models.iter().filter(here);
                let bytes = on_disk.clone().filter_map(|model| model.bytes).sum();
                let count = format::grouped(on_disk.count());
                let size = match bytes {
                    0 => String::new(),
                    bytes => format!(", {}", format::bytes(bytes)),
                };
                format!("{count} on this machine{size}; * is in use")
            }
        }
    }
}

impl Question {
    fn text(&self) -> String {
        match self {
            Self::Delete(model) if model.link => {
                format!(
                    "Delete the link {}? What it leads to stays. y deletes, n keeps it",
                    model.name
                )
            }
            Self::Delete(model) => {
                let bytes = model.bytes.filter(|_| model.place != Place::Remote).unwrap_or(0);
                let size = format::bytes(bytes + model.unfinished);
                format!("Delete {}, {size}? y deletes, n keeps it", model.name)
            }
            Self::Clear(bytes) => {
                let size = format::bytes(*bytes);
                format!("Delete the prompt cache's files, {size}? y deletes, n keeps them")
            }
        }
    }
}

/// Where a model is, in a word or two.
fn place(model: &Listed) -> &'static str {
    match model.place {
        Place::Installed => "installed",
        Place::Cached => "hub cache",
        Place::Elsewhere => "your file",
        Place::Remote if model.unfinished > 0 => "begun",
        Place::Remote => "to get",
    }
}

/// Columns of the names.
fn names(width: usize) -> usize {
    if width <= NARROW {
        // Its mark stands before a name, a blank before each of the others.
        return width.saturating_sub(3 + 2 + NARROW_SIZE + NARROW_FITS).max(8);
    }
    let facts = 20 + FITS + if width >= ROOMY { STORED + 2 } else { 0 };
    width.saturating_sub(facts + 2).max(8)
}

/// Whether a model fits, in a few words.
fn fit(facts: &Facts, width: usize, styles: &Styles) -> (String, Style) {
    let narrow = width <= NARROW;
    match &facts.fit {
        Fit::Unknown | Fit::Whole if facts.template == Some(false) => {
            ("no template".into(), styles.warning())
        }
        Fit::Unknown => (String::new(), styles.quiet()),
        Fit::Whole => ("fits".into(), styles.good()),
        Fit::UpTo(tokens) => {
            let tokens = match narrow {
                true => format::count(*tokens as u64),
                false => format::grouped(*tokens),
            };
            (format!("to {tokens} tok"), styles.warning())
        }
        Fit::No => ("too large".into(), styles.error()),
        Fit::Unsupported(_) if narrow => ("unsupported".into(), styles.error()),
        Fit::Unsupported(_) => ("not supported".into(), styles.error()),
    }
}

/// What a model takes of memory, and how much there is.
fn needs(facts: &Facts) -> String {
    if facts.weights == 0 {
        // Of a scripted engine, and of weights that nobody has drawn yet.
        return match facts.context {
            0 => facts.quantization.clone(),
            context => format!(
                "{}, up to {} tokens",
                facts.quantization,
                format::grouped(context)
            ),
        };
    }
    let kv = match (facts.kv, facts.context) {
        (0, _) => String::new(),
        (kv, 0) => format!(" + {} KV", format::bytes(kv)),
        (kv, context) => format!(
            " + {} KV for {} tokens",
            format::bytes(kv),
            format::grouped(context)
        ),
    };
    let weights = format::bytes(facts.weights);
    format!("{weights} weights{kv}, {} free", format::bytes(facts.free))
}

/// The keys that count here.
pub(in crate::ui) fn keys(keymap: &Keymap, going: &Going) -> String {
    let closes = match going.fetch {
        Some(_) => "stops the download",
        None => "closes",
    };
    let known = [
        (Action::Send, "takes it"),
        (Action::DeleteModel, "deletes"),
        (Action::Stop, closes),
    ];
    select::keys(keymap, &known)
}

/// Asks what becomes of answers that stream before a model comes.
pub(in crate::ui) fn draw_change(
    buffer: &mut Buffer,
    area: Rect,
    name: &str,
    count: usize,
    keymap: &Keymap,
    styles: &Styles,
) {
    let answers = match count {
        0 => "No answer streams any more.".to_owned(),
        1 => "An answer still streams.".to_owned(),
        count => format!("{count} answers still stream."),
    };
    let text = format!(
        "{answers} {} takes the model's place, and all panes go on with it.",
        one_line(name)
    );
    let stay = keymap.written(Action::Stop).unwrap_or("n");
    let line = |keys: &[&str], word: &str| {
        let mut pieces = vec![plain(" ")];
        for (at, key) in keys.iter().enumerate() {
            if at > 0 {
                pieces.push(plain(" or "));
            }
            pieces.push(piece(*key, styles.key()));
        }
        pieces.push(plain(format!(" {word}")));
        pieces
    };
    let send = keymap.written(Action::Send).unwrap_or("f");
    let stays = line(&[stay, "n"], "stays with the model");
    let keys = match count {
        0 => vec![line(&["f", send], "changes it"), stays],
        _ => vec![
            line(&["f", send], "lets them finish first"),
            line(&["s"], "stops them, what came is kept"),
            stays,
        ],
    };
    question(buffer, area, " change the model? ", &text, &keys, styles);
}
