//! What lies over the screen and takes the keys: the command palette, the pickers of conversations and models, or a
//! question.

pub mod compare;
pub(in crate::ui) mod field;
pub(in crate::ui) mod fuzzy;
pub mod help;
pub(in crate::ui) mod keys;
pub mod messages;
pub mod models;
pub mod palette;
pub mod picker;
pub mod presets;
mod rename;
pub(in crate::ui) mod select;
pub mod settings;
pub mod themes;
mod words;

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Event, NoticeKind, Pane, State, Status};
use crate::ui::input::Reaction;
use crate::ui::keymap::{self, Action, Scope};
use crate::ui::overlay::compare::Compare;
use crate::ui::overlay::help::Help;
use crate::ui::overlay::messages::MessageList;
use crate::ui::overlay::models::ModelPicker;
use crate::ui::overlay::palette::{Chosen, Palette};
use crate::ui::overlay::picker::{Picker, Step};
use crate::ui::overlay::presets::PresetPicker;
use crate::ui::overlay::settings::Panel;
use crate::ui::overlay::themes::ThemeList;
use crate::ui::paint::{self, Piece, piece, plain};
use crate::ui::styles::Styles;
use crate::ui::view::{Screen, View};
use crate::ui::worker::Job;
use crate::ui::wrap;
use crate::ui::writing::burst::Enter;

/// The most columns of a question.
const QUESTION: u16 = 60;

/// What lies on top. The help can lie over each of them.
#[derive(Debug)]
pub enum Overlay {
    /// The command palette.
    Palette(Box<Palette>),
    /// The picker of stored conversations.
    Sessions(Box<Picker>),
    /// The list of themes.
    Themes(Box<ThemeList>),
    /// How answers are made in the focused pane.
    Settings(Box<Panel>),
    /// The picker of presets.
    Presets(Box<PresetPicker>),
    /// Answers to the same prompt side by side.
    Compare(Box<Compare>),
    /// What was told lately.
    Messages(Box<MessageList>),
    /// Whether to leave although answers stream.
    Leave,
    /// The picker of models.
    Models(Box<ModelPicker>),
    /// What becomes of the answers that stream before this model takes the place of the one that is there.
    Change(String),
}

impl Overlay {
    /// What it tells in its own window: a refusal, or what came of something.
    pub(in crate::ui) fn word(&self) -> Option<(NoticeKind, String)> {
        let refusal = |word: Option<&str>| word.map(|word| (NoticeKind::Warning, word.to_owned()));
        match self {
            Self::Models(picker) => picker.told(),
            Self::Sessions(picker) => refusal(picker.word()),
            Self::Presets(picker) => refusal(picker.word()),
            Self::Palette(_) | Self::Settings(_) | Self::Themes(_) | Self::Compare(_) => None,
            Self::Messages(_) | Self::Leave | Self::Change(_) => None,
        }
    }

    /// Whether it looks for a model of this name.
    fn seeks(&self, name: &str) -> bool {
        matches!(self, Self::Models(picker) if picker.seeks(name))
    }

    /// Whether it has a line to write in at present.
    fn writes(&self) -> bool {
        match self {
            Self::Palette(_) | Self::Sessions(_) => true,
            Self::Presets(picker) => !picker.asks(),
            Self::Models(picker) => !picker.asks(),
            Self::Settings(panel) => panel.writes(),
            Self::Compare(_) | Self::Leave | Self::Change(_) | Self::Themes(_) | Self::Messages(_) => false,
        }
    }
}

impl View {
    /// The action that a key asks for while something lies on top: there, one writes and moves as in a draft.
    fn action_on_top(&self, key: &KeyEvent) -> Option<Action> {
        let own = match self.overlay {
            Some(Overlay::Sessions(_)) => self.keymap.action(key, Scope::Sessions),
            Some(Overlay::Models(_)) => self.keymap.action(key, Scope::Models),
            Some(Overlay::Presets(_)) => self.keymap.action(key, Scope::Presets),
            Some(Overlay::Settings(ref panel)) if !panel.writes() => self.keymap.action(key, Scope::Settings),
            _ => None,
        };
        own.or_else(|| self.keymap.action(key, Scope::Chat))
    }

    /// Whether a key may belong to a burst: typed text, or the Enter after it.
    pub(in crate::ui) fn types_on_top(&self, key: &KeyEvent) -> bool {
        let action = self.action_on_top(key);
        action.is_none() && keymap::typed(key).is_some() || action == Some(Action::Send)
    }

    /// The keys of what lies on top, as its title names them.
    pub(in crate::ui) fn keys_on_top(&self) -> Option<String> {
        let keymap = &self.keymap;
        Some(match self.overlay.as_ref()? {
            Overlay::Palette(_) => palette::keys(keymap),
            Overlay::Sessions(picker) => picker.keys(keymap),
            Overlay::Themes(_) => themes::keys(keymap),
            Overlay::Settings(panel) => panel.keys(keymap),
            Overlay::Presets(_) => presets::keys(keymap),
            Overlay::Models(_) => models::keys(keymap, &self.going),
            Overlay::Messages(_) | Overlay::Compare(_) | Overlay::Leave | Overlay::Change(_) => return None,
        })
    }

    /// Takes a key for what lies on top.
    pub(in crate::ui) fn key_on_top(
        &mut self,
        key: &KeyEvent,
        now: Duration,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        let action = self.action_on_top(key);
        match action {
            Some(Action::Help) => return self.help = Some(Help::default()),
            Some(action @ (Action::Repaint | Action::Suspend)) => return self.act(action, state, out),
            _ => {}
        }
        let begun = self.overlay.as_ref().is_some_and(Overlay::writes);
        if begun && action == Some(Action::Send) {
            return match self.burst.enter(now) {
                Enter::Send => self.accept(state, out),
                Enter::Newlines(_) => self.insert_on_top(" ", out),
                Enter::Wait => {}
            };
        }
        if begun && action.is_none() && keymap::typed(key).is_some() && self.burst.character(now) {
            self.insert_on_top(" ", out);
        }
        match &mut self.overlay {
            None => {}
            Some(Overlay::Themes(_)) => self.theme_key(Self::theme_action(key, action), out),
            Some(Overlay::Sessions(picker)) => {
                let steps = picker.key(key, action, state);
                self.follow(steps, out);
            }
            Some(Overlay::Models(_)) => self.key_for_models(key, action, state, out),
            Some(Overlay::Change(name)) => {
                let name = name.clone();
                self.key_for_change(key, action, name, out);
            }
            Some(Overlay::Settings(panel)) => {
                let steps = match action {
                    Some(Action::Send) => panel.accept(state),
                    action => panel.key(key, action, state),
                };
                self.follow(steps, out);
            }
            Some(Overlay::Presets(picker)) => {
                let steps = picker.key(key, action, &self.presets);
                self.follow(steps, out);
            }
            Some(Overlay::Compare(compare)) => {
                let steps = compare.key(key, action, state);
                self.follow(steps, out);
            }
            Some(Overlay::Messages(list)) => {
                let steps = list.key(action);
                self.follow(steps, out);
            }
            Some(Overlay::Leave) => match (action, key.code) {
                // Nothing but what is offered: a key that was pressed twice by mistake doesn't leave.
                (Some(Action::Interrupt), _) | (None, KeyCode::Char('y' | 'Y')) => {
                    out.push(Reaction::Chat(Event::Quit));
                }
                (Some(Action::Stop), _) | (_, KeyCode::Char('n' | 'N')) => self.overlay = None,
                _ => {}
            },
            Some(Overlay::Palette(palette)) => match action {
                Some(Action::Stop | Action::Interrupt | Action::Palette) => self.overlay = None,
                action => palette.key(key, action),
            },
        }
    }

    /// Puts text into the line of what lies on top.
    pub(in crate::ui) fn insert_on_top(&mut self, text: &str, out: &mut Vec<Reaction>) {
        match &mut self.overlay {
            None
            | Some(
                Overlay::Leave
                | Overlay::Change(_)
                | Overlay::Themes(_)
                | Overlay::Compare(_)
                | Overlay::Messages(_),
            ) => {}
            Some(Overlay::Models(picker)) => picker.insert(text),
            Some(Overlay::Palette(palette)) => palette.insert(text),
            Some(Overlay::Settings(panel)) => panel.insert(text),
            Some(Overlay::Presets(picker)) => picker.insert(text),
            Some(Overlay::Sessions(picker)) => {
                let steps = picker.insert(text);
                self.follow(steps, out);
            }
        }
    }

    /// Opens the picker.
    pub(in crate::ui) fn pick_session(&mut self, out: &mut Vec<Reaction>) {
        let (picker, job) = Picker::new();
        self.overlay = Some(Overlay::Sessions(Box::new(picker)));
        out.push(Reaction::Work(job));
        out.push(Reaction::Work(Job::PrepareSearch));
    }

    /// Has the conversations listed anew, where a list lies on top.
    pub(in crate::ui) fn list_again(&self) -> Vec<Reaction> {
        match self.overlay {
            Some(Overlay::Sessions(_)) => vec![Reaction::Work(Job::List)],
            _ => Vec::new(),
        }
    }

    /// Opens the picker of presets.
    pub(in crate::ui) fn pick_preset(&mut self, out: &mut Vec<Reaction>) {
        self.overlay = Some(Overlay::Presets(Box::default()));
        let folder = self.presets.clone();
        out.push(Reaction::Work(Job::Presets { folder, wanted: None }));
    }

    /// Shows the answers to the focused pane's last prompt side by side.
    pub(in crate::ui) fn compare(&mut self, state: &State, out: &mut Vec<Reaction>) {
        match Compare::new(state, &self.keymap) {
            Ok(compare) => self.overlay = Some(Overlay::Compare(Box::new(compare))),
            Err(text) => out.push(Reaction::Chat(Event::Notice {
                kind: NoticeKind::Warning,
                text,
            })),
        }
    }

    fn follow(&mut self, steps: Vec<Step>, out: &mut Vec<Reaction>) {
        for step in steps {
            match step {
                Step::Tell(event) => out.push(Reaction::Chat(event)),
                Step::Work(job) => out.push(Reaction::Work(job)),
                Step::Close => self.overlay = None,
            }
        }
    }

    /// Does what the selected line on top says.
    pub(in crate::ui) fn accept(&mut self, state: &State, out: &mut Vec<Reaction>) {
        let palette = match &mut self.overlay {
            None
            | Some(
                Overlay::Leave
                | Overlay::Change(_)
                | Overlay::Themes(_)
                | Overlay::Compare(_)
                | Overlay::Messages(_),
            ) => {
                return;
            }
            Some(Overlay::Models(_)) => return self.accept_model(state, out),
            Some(Overlay::Palette(palette)) => palette,
            Some(Overlay::Settings(panel)) => {
                let steps = panel.accept(state);
                return self.follow(steps, out);
            }
            Some(Overlay::Presets(picker)) => {
                let steps = picker.accept(&self.presets);
                return self.follow(steps, out);
            }
            Some(Overlay::Sessions(picker)) => {
                let steps = picker.accept();
                return self.follow(steps, out);
            }
        };
        match palette.accept() {
            None => {}
            Some(Chosen::Act(action)) => {
                self.overlay = None;
                self.act_where_it_counts(action, state, out);
            }
            Some(Chosen::Line(line)) => {
                let palette = self.overlay.take();
                if let Err(why) = self.run_line(&line, state, out) {
                    self.overlay = palette;
                    if let Some(Overlay::Palette(palette)) = &mut self.overlay {
                        palette.fail(why);
                    }
                }
            }
        }
    }

    /// Does what an action says, on the screen on which it has a meaning.
    pub(in crate::ui) fn act_where_it_counts(
        &mut self,
        action: Action,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        let bound = keymap::BINDINGS.iter().find(|b| b.action == action);
        match (bound.map(|b| b.scope), self.screen) {
            (Some(Scope::Dashboard), Screen::Chat) => self.screen = Screen::Dashboard,
            (Some(Scope::Chat | Scope::Reading), Screen::Dashboard) => self.leave_dashboard(),
            _ => {}
        }
        if let Action::Reading(_) = action {
            self.read(true);
        }
        self.act(action, state, out);
    }

    /// Leaves, after a question where answers stream.
    pub(in crate::ui) fn leave(&mut self, state: &State, out: &mut Vec<Reaction>) {
        if streaming(state) == 0 && !loses_private(state) && state.unsaved().is_none() {
            out.push(Reaction::Chat(Event::Quit));
        } else {
            self.help = None;
            self.overlay = Some(Overlay::Leave);
        }
    }

    /// Draws what lies on top and gives the cell of the cursor, if one is to be shown there.
    pub(in crate::ui) fn draw_on_top(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
    ) -> Option<Position> {
        let styles = self.styles;
        match &mut self.overlay {
            None => None,
            Some(Overlay::Palette(palette)) => palette.draw(buffer, area, &self.keymap, &styles),
            Some(Overlay::Sessions(picker)) => picker.draw(buffer, area, state, &self.keymap, &styles),
            Some(Overlay::Themes(list)) => {
                list.draw(buffer, area, &self.keymap, &styles);
                None
            }
            Some(Overlay::Settings(panel)) => panel.draw(buffer, area, state, &self.keymap, &styles),
            Some(Overlay::Presets(picker)) => picker.draw(buffer, area, &self.keymap, &styles),
            Some(Overlay::Compare(compare)) => {
                compare.follow(state);
                compare.draw(buffer, area, &mut self.highlights, &self.keymap, &styles);
                None
            }
            Some(Overlay::Messages(list)) => {
                list.draw(buffer, area, state, &self.keymap, &styles);
                None
            }
            Some(Overlay::Leave) => {
                let quit = self.keymap.written(Action::Interrupt).unwrap_or("^C");
                let stay = self.keymap.written(Action::Stop).unwrap_or("n");
                draw_question(buffer, area, &before_leaving(state), (quit, stay), &styles);
                None
            }
            Some(Overlay::Models(picker)) => picker.draw(buffer, area, &self.going, &self.keymap, &styles),
            Some(Overlay::Change(name)) => {
                models::draw_change(buffer, area, name, streaming(state), &self.keymap, &styles);
                None
            }
        }
    }
}

/// Whether there is an answer that has not been asked to stop yet.
pub(in crate::ui) fn stoppable(pane: &Pane) -> bool {
    match pane.running().map(|turn| &turn.status) {
        Some(Status::Submitting { stopping, .. } | Status::Streaming { stopping, .. }) => !stopping,
        _ => false,
    }
}

/// How many panes answer, and were not asked to stop.
pub(in crate::ui) fn streaming(state: &State) -> usize {
    state.panes().values().filter(|pane| stoppable(pane)).count()
}

/// Whether there is something in a private pane, of which nothing is kept.
fn loses_private(state: &State) -> bool {
    let something = |pane: &Pane| pane.private && !(pane.turns.is_empty() && pane.draft.is_blank());
    state.panes().values().any(something)
}

/// What one should know before leaving.
fn before_leaving(state: &State) -> String {
    let (count, private) = (streaming(state), loses_private(state));
    let mut said: Vec<String> = Vec::new();
    match count {
        0 if !private && state.unsaved().is_none() => said.push("No answer streams any more.".into()),
        0 => {}
        1 => said.push("An answer still streams.".into()),
        count => said.push(format!("{count} answers still stream.")),
    }
    if private {
        said.push("Nothing of a private pane is kept.".into());
    }
    if let Some(why) = state.unsaved() {
        said.push(format!("Not all could be saved: {why}."));
    }
    said.push("Leave now?".into());
    let kept = match state.unsaved() {
        Some(_) => ".",
        None => ", and what came so far is kept.",
    };
    match count {
        0 => {}
        1 => said.push(format!("It ends here{kept}")),
        _ => said.push(format!("They end here{kept}")),
    }
    said.join(" ")
}

fn draw_question(buffer: &mut Buffer, area: Rect, text: &str, (quit, stay): (&str, &str), styles: &Styles) {
    let keys = [
        plain(" "),
        piece(quit.to_owned(), styles.key()),
        plain(" or "),
        piece("y", styles.key()),
        plain(" leaves  "),
        piece(stay.to_owned(), styles.key()),
        plain(" or "),
        piece("n", styles.key()),
        plain(" stays"),
    ];
    question(buffer, area, " leave? ", text, &[keys.to_vec()], styles);
}

/// Asks something in a window of its own, with lines of keys below the text.
pub(in crate::ui) fn question(
    buffer: &mut Buffer,
    area: Rect,
    title: &str,
    text: &str,
    keys: &[Vec<Piece>],
    styles: &Styles,
) {
    let width = select::width_of(QUESTION, area);
    let rows = wrap::wrap_line(text, usize::from(width.saturating_sub(4)));
    let height = ((rows.len() + keys.len()) as u16 + 3).min(area.height);
    let window = select::placed(area, width, height);
    paint::clear(buffer, window, styles);
    let inner = paint::boxed(buffer, window, &[piece(title, styles.warning())], styles, true);
    let count = rows.len();
    for (y, row) in rows.into_iter().enumerate() {
        let place = paint::row(inner, y as u16);
        paint::text(buffer, place, 1, &text[row], ratatui::style::Style::new());
    }
    for (y, line) in keys.iter().enumerate() {
        paint::pieces(buffer, paint::row(inner, (count + 1 + y) as u16), line);
    }
}
