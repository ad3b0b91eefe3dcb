//! How answers are made in the focused pane: each setting with its value and where that comes from, to be changed.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Event, Pane, Parameter, Settings, Source, Sources, State};
use crate::ui::cells;
use crate::ui::keymap::{Action, Motion};
use crate::ui::keys::Keymap;
use crate::ui::overlay::field::Field;
use crate::ui::overlay::picker::Step;
use crate::ui::overlay::select::{self, Selection};
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::pane::one_line;
use crate::ui::styles::Styles;
use crate::ui::wrap::wrap_line;

/// Columns of the names.
const NAMES: usize = 13;
/// Columns of where values come from.
const SOURCES: usize = 24;

/// Columns below which explanations are short.
const NARROW: usize = 60;

/// The settings, while they lie on top.
#[derive(Debug, Default)]
pub struct Panel {
    selection: Selection,
    edit: Option<(Parameter, Field)>,
    wrong: Option<String>,
    /// What there is to say of the last key.
    word: Option<&'static str>,
    /// What they were before each change here, and where each came from, the last one last.
    before: Vec<(Settings, Sources)>,
}

impl Panel {
    /// Whether text is written in it.
    pub(in crate::ui) fn writes(&self) -> bool {
        self.edit.is_some()
    }

    fn selected(&self) -> Parameter {
        let at = self.selection.at().min(Parameter::ALL.len() - 1);
        Parameter::ALL[at]
    }

    /// Takes a key: what it asks for here, or what it types.
    pub(in crate::ui) fn key(&mut self, key: &KeyEvent, action: Option<Action>, state: &State) -> Vec<Step> {
        if let Some((_, field)) = &mut self.edit {
            match action {
                Some(Action::Stop | Action::Interrupt) => (self.edit, self.wrong) = (None, None),
                action => {
                    field.key(key, action);
                }
            }
            return Vec::new();
        }
        (self.wrong, self.word) = (None, None);
        if self.selection.key(action, Parameter::ALL.len()) {
            return Vec::new();
        }
        let pane = state.focused_pane();
        match action {
            Some(Action::Stop | Action::Interrupt | Action::Settings) => vec![Step::Close],
            Some(Action::ResetSetting) => self.reset(&[self.selected()], state),
            Some(Action::ResetSettings) => self.reset(&Parameter::ALL, state),
            Some(Action::Undo) => match self.before.pop() {
                Some((settings, sources)) => vec![Step::Tell(Event::ConfigureAs { settings, sources })],
                None => {
                    self.word = Some("no change that was made since this opened is left to take back");
                    Vec::new()
                }
            },
            Some(Action::Move(Motion::Left | Motion::Right)) if self.selected() == Parameter::Thinking => {
                self.turn(pane)
            }
            _ => Vec::new(),
        }
    }

    /// Makes settings as new panes have them.
    fn reset(&mut self, which: &[Parameter], state: &State) -> Vec<Step> {
        let pane = state.focused_pane();
        let (mut settings, mut sources) = (pane.settings.clone(), pane.sources.clone());
        for parameter in which {
            parameter.copy(state.defaults(), &mut settings);
            sources.put(*parameter, Source::Start);
        }
        if settings == pane.settings && sources == pane.sources {
            self.word = Some(match which {
                [_] => "it is as in new panes already",
                _ => "all of them are as in new panes already",
            });
            return Vec::new();
        }
        self.before.push((pane.settings.clone(), pane.sources.clone()));
        vec![Step::Tell(Event::ConfigureAs { settings, sources })]
    }

    /// Puts text into the value that is being written.
    pub(in crate::ui) fn insert(&mut self, text: &str) {
        if let Some((parameter, field)) = &mut self.edit {
            match parameter {
                Parameter::System => field.insert(&escaped(text)),
                _ => field.insert(text),
            }
        }
    }

    /// Begins to change what is selected, or takes the value that was written.
    pub(in crate::ui) fn accept(&mut self, state: &State) -> Vec<Step> {
        let pane = state.focused_pane();
        let settings = &pane.settings;
        self.word = None;
        let Some((parameter, field)) = &self.edit else {
            let parameter = self.selected();
            if parameter == Parameter::Thinking {
                return self.turn(pane);
            }
            let text = match is_set(parameter, settings) {
                true => shown(parameter, settings),
                false => String::new(),
            };
            self.edit = Some((parameter, Field::new(&text)));
            return Vec::new();
        };
        let mut new = settings.clone();
        let text = field.text().trim();
        let set = match parameter {
            Parameter::System => parameter.set(&mut new, &unescaped(text)),
            _ => parameter.set(&mut new, text),
        };
        let set = set.and_then(|()| state.objection(&new).map_or(Ok(()), Err));
        match set {
            Ok(()) => {
                self.edit = None;
                self.change(new, pane)
            }
            Err(why) => {
                self.wrong = Some(why);
                Vec::new()
            }
        }
    }

    /// Thinking: on, off, as the template says.
    fn turn(&mut self, pane: &Pane) -> Vec<Step> {
        let mut new = pane.settings.clone();
        new.thinking = match new.thinking {
            None => Some(true),
            Some(true) => Some(false),
            Some(false) => None,
        };
        self.change(new, pane)
    }

    fn change(&mut self, new: Settings, pane: &Pane) -> Vec<Step> {
        self.wrong = None;
        if new == pane.settings {
            return Vec::new();
        }
        self.before.push((pane.settings.clone(), pane.sources.clone()));
        vec![Step::Tell(Event::Configure(new))]
    }

    /// The keys that count here.
    pub(in crate::ui) fn keys(&self, keymap: &Keymap) -> String {
        let known = [
            (Action::Send, "edits"),
            (Action::ResetSetting, "resets one"),
            (Action::ResetSettings, "all"),
            (Action::Stop, "closes"),
        ];
        let written = [(Action::Send, "takes it"), (Action::Stop, "gives it up")];
        select::keys(keymap, if self.writes() { &written } else { &known })
    }

    /// Draws the settings over the screen and gives the caret's cell.
    pub(in crate::ui) fn draw(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
        keymap: &Keymap,
        styles: &Styles,
    ) -> Option<Position> {
        let pane = state.focused_pane();
        let title = [
            plain(format!(" settings of pane {} ", state.focused())),
            piece(self.keys(keymap), styles.quiet()),
        ];
        let inner = select::window(buffer, area, Parameter::ALL.len() + 3, &title, styles);
        let back = keymap.written(Action::Undo);
        let back = back.map_or(String::new(), |key| format!("; {key} takes a change back"));
        let room = usize::from(inner.width).saturating_sub(2);
        let hint = match room {
            ..NARROW => "from the next prompt on".to_owned(),
            _ => format!(
                "from the next prompt on; kept with the conversation; /save-preset NAME keeps all of it{back}"
            ),
        };
        let hint_rows = wrap_line(&hint, room).len().min(2) as u16;
        // The settings themselves come first.
        let roomy = usize::from(inner.height) >= Parameter::ALL.len() + 3;
        let below = if roomy && self.edit.is_none() {
            hint_rows
        } else {
            1
        };
        let body = Rect {
            height: inner.height.saturating_sub(below),
            ..inner
        };
        let (about, style) = match &self.wrong {
            Some(why) => (one_line(why), styles.error()),
            None => match self.word {
                Some(word) => (word.to_owned(), styles.warning()),
                None => (about(self.selected(), pane, room), styles.quiet()),
            },
        };
        let list = Rect {
            height: body.height.saturating_sub(select::foot_rows(body, &about)),
            ..body
        };
        let top = self.selection.top(usize::from(list.height));
        let shown = Parameter::ALL
            .iter()
            .skip(top)
            .take(usize::from(list.height))
            .enumerate();
        for (y, parameter) in shown {
            let line = line(*parameter, pane, state, usize::from(list.width), styles);
            let selected = top + y == self.selection.at();
            select::line(buffer, paint::row(list, y as u16), &line, selected, styles);
        }
        select::foot(buffer, body, &about, style, styles);
        let all = Parameter::ALL.len();
        select::count(buffer, inner, list.height, (self.selection.at(), all), styles);
        if let Some((parameter, field)) = &self.edit {
            let mark = format!(" {}> ", parameter.name());
            let row = paint::row(inner, inner.height.saturating_sub(1));
            let word = match is_set(*parameter, &pane.settings) {
                true => String::new(),
                false => parameter.value(&pane.settings),
            };
            return field.draw(buffer, row, &mark, &word, styles);
        }
        let below = Rect {
            y: body.bottom(),
            height: below,
            ..inner
        };
        let lines = wrap_line(&hint, room);
        for (y, line) in lines.into_iter().enumerate() {
            let last = y + 1 == usize::from(below.height);
            let text = if last { &hint[line.start..] } else { &hint[line] };
            let text = cells::shorten(text, room, styles.cut());
            paint::text(buffer, paint::row(below, y as u16), 1, &text, styles.quiet());
        }
        None
    }
}

/// What a setting does and, where there is room, where its value comes from.
fn about(parameter: Parameter, pane: &Pane, room: usize) -> String {
    let help = parameter.help();
    let from = match pane.sources.of(parameter) {
        Source::Set => "set here: in this pane, since it was opened",
        Source::Stored => "this conversation: it had it when it was opened",
        Source::Start | Source::Preset(_) => return help.to_owned(),
    };
    match room {
        ..NARROW => help.to_owned(),
        _ => format!("{help} ({from})"),
    }
}

/// Name, value, and where that comes from.
fn line(parameter: Parameter, pane: &Pane, state: &State, width: usize, styles: &Styles) -> Vec<Piece> {
    let source = match pane.sources.of(parameter) {
        Source::Start => state.origins().of(parameter).to_owned(),
        Source::Set => "set here".into(),
        Source::Preset(name) => format!("preset {name}"),
        Source::Stored => "this conversation".into(),
    };
    let source = cells::pad(&one_line(&source), SOURCES.min(width / 3), styles.cut());
    let mut value = shown(parameter, &pane.settings);
    let drawn = pane.turns.iter().rev().find_map(|turn| turn.seed);
    match (parameter, &pane.settings) {
        (Parameter::Seed, settings) if settings.sampling.seed.is_none() => {
            value += &drawn.map_or(String::new(), |seed| format!(" (last: {seed})"));
        }
        (Parameter::MaxTokens, settings) if settings.max_tokens.is_none() => {
            value += &format!(" ({})", Settings::MAX_TOKENS);
        }
        (Parameter::Temperature, settings) if settings.sampling.is_greedy() => value += " (greedy)",
        _ => {}
    }
    let room = width.saturating_sub(NAMES + 3 + cells::width(&source));
    vec![
        plain(format!(" {:<NAMES$}", parameter.name())),
        piece(cells::pad(&one_line(&value), room, styles.cut()), styles.strong()),
        plain(" "),
        piece(source, styles.quiet()),
        plain(" "),
    ]
}

/// Whether a setting's value is more than a word for none, which nobody means to write after.
fn is_set(parameter: Parameter, settings: &Settings) -> bool {
    match parameter {
        Parameter::System => settings.system.as_deref().is_some_and(|text| !text.is_empty()),
        Parameter::Seed => settings.sampling.seed.is_some(),
        Parameter::MaxTokens => settings.max_tokens.is_some(),
        Parameter::StopAt => !settings.stop.is_empty(),
        Parameter::Temperature | Parameter::TopP | Parameter::TopK | Parameter::MinP => true,
        Parameter::Thinking => settings.thinking.is_some(),
    }
}

/// A setting's value on a line, as it is edited.
fn shown(parameter: Parameter, settings: &Settings) -> String {
    match (parameter, parameter.value(settings)) {
        (Parameter::System, text) => escaped(&text),
        (_, text) => text,
    }
}

/// A text on a line: its line ends are written out.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

/// The text that a line stands for.
fn unescaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some('n') => text.push('\n'),
                Some('\\') | None => text.push('\\'),
                Some(other) => text.extend(['\\', other]),
            },
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_several_lines_is_written_on_one_and_read_again() {
        for text in ["a\nb", "a\\nb", "\\", "\\\n\\", "plain", "a\\tb"] {
            assert_eq!(unescaped(&escaped(text)), text);
            assert!(!escaped(text).contains('\n'));
        }
        assert_eq!(unescaped("a\\tb\\"), "a\\tb\\");
    }
}
