//! The picker of models: on this machine, and to be downloaded; which fit; where they are deleted; and the question what
//! becomes of answers before another one comes.
//!
//! It holds no file: the [worker](crate::ui::worker) lists, reads and deletes, and the loop changes models and downloads.

mod draw;
mod going;

use std::collections::BTreeMap;

use crossterm::event::{KeyCode, KeyEvent};

use crate::chat::{NoticeKind, State};
use crate::ui::command::refuse;
use crate::ui::input::Reaction;
use crate::ui::keymap::Action;
use crate::ui::models::{Answer, Ask, Facts, Inventory, Listed, Place, Wish};
use crate::ui::overlay::field::Field;
use crate::ui::overlay::fuzzy::{Fuzzy, Query};
use crate::ui::overlay::select::{self, Selection};
use crate::ui::overlay::{Overlay, streaming};
use crate::ui::view::View;
use crate::ui::worker::Job;

pub(in crate::ui) use draw::{draw_change, keys};
pub use going::{Escape, Fetch, Going};

/// A line of the picker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// A model, by its place in the inventory.
    Model(usize),
    /// The prompt cache's files.
    Prompts,
}

/// What is asked before it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Question {
    /// Whether a model is to be deleted.
    Delete(Listed),
    /// Whether the prompt cache's files, of so many bytes, are to be deleted.
    Clear(u64),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Work(Ask),
    Wish(Wish),
    /// Change to a model.
    Choose(String),
    Close,
}

/// The picker, while it lies on top.
#[derive(Debug, Default)]
pub struct ModelPicker {
    field: Field,
    /// None while it is being read.
    inventory: Option<Inventory>,
    /// What was read of models' files; none of those that can't be.
    facts: BTreeMap<String, Option<Facts>>,
    /// What matches.
    lines: Vec<Line>,
    selection: Selection,
    question: Option<Question>,
    /// What was refused, or can't be read.
    word: Option<String>,
    /// A name that isn't listed and is being looked for.
    sought: Option<String>,
    /// The model that was downloaded last.
    arrived: Option<String>,
    /// The model to be selected as soon as it is listed, unless the person goes elsewhere first.
    wanted: Option<String>,
    fuzzy: Fuzzy,
}

impl ModelPicker {
    /// A picker that selects a model as soon as it is listed.
    fn wanting(name: &str) -> Self {
        Self {
            wanted: Some(name.to_owned()),
            ..Self::default()
        }
    }

    /// The names of the models that are shown, in order.
    pub fn shown(&self) -> Vec<&str> {
        let name = |line: &Line| Some(self.model(*line)?.name.as_str());
        self.lines.iter().filter_map(name).collect()
    }

    /// Whether it waits for a yes or a no.
    pub fn asks(&self) -> bool {
        self.question.is_some()
    }

    /// What it tells: a refusal, or a model that came.
    pub(in crate::ui) fn told(&self) -> Option<(NoticeKind, String)> {
        let word = self.word.clone().map(|word| (NoticeKind::Warning, word));
        let arrived = || Some((NoticeKind::Info, format!("{} is here", self.arrived.as_ref()?)));
        word.or_else(arrived)
    }

    /// Whether it looks for this name.
    pub(in crate::ui) fn seeks(&self, name: &str) -> bool {
        self.sought.as_deref() == Some(name)
    }

    /// What was typed, where nothing is listed by that name, and it may be a repository's or a path.
    fn unlisted(&self) -> Option<&str> {
        let name = self.field.text().trim();
        let may_be = name.contains('/') || name.ends_with(".gguf");
        (self.inventory.is_some() && self.lines.is_empty() && may_be).then_some(name)
    }

    fn model(&self, line: Line) -> Option<&Listed> {
        match line {
            Line::Model(at) => self.inventory.as_ref()?.models.get(at),
            Line::Prompts => None,
        }
    }

    fn selected(&self) -> Option<Line> {
        self.lines.get(self.selection.at()).copied()
    }

    /// What a model's files say, as far as it is known.
    fn facts_of<'a>(&'a self, model: &'a Listed) -> Option<&'a Facts> {
        let read = || self.facts.get(&model.name)?.as_ref();
        model.facts.as_ref().or_else(read)
    }

    /// The name of the selected line.
    fn selected_name(&self) -> Option<&str> {
        let line = self.selected()?;
        Some(self.model(line).map_or(draw::PROMPTS, |model| &model.name))
    }

    /// Takes the list; what is to be read of its models. The selection stays with its model.
    fn take_list(&mut self, inventory: Result<Inventory, String>) -> Vec<Step> {
        let before = self.selected_name().map(str::to_owned);
        let first = self.inventory.is_none();
        match inventory {
            Ok(inventory) => self.inventory = Some(inventory),
            Err(why) => {
                self.inventory.get_or_insert_default();
                self.word = Some(why);
            }
        }
        self.find();
        let named = |wanted: Option<&str>| {
            let of = |line: &Line| self.model(*line).map_or(draw::PROMPTS, |model| &model.name);
            let wanted = wanted?;
            self.lines.iter().position(|line| of(line) == wanted)
        };
        let in_use = |line: &Line| self.model(*line).is_some_and(|model| model.in_use);
        let at = named(self.wanted.as_deref())
            .or_else(|| named(before.as_deref()))
            .or_else(|| self.lines.iter().position(in_use).filter(|_| first));
        if let Some(at) = at {
            self.selection.go_to(at);
        }
        // What was read before is shown until it is read again: files may be others, and memory more or less.
        let models = self.inventory.iter().flat_map(|inventory| &inventory.models);
        let read: Vec<String> = models
            .filter(|model| is_read(model))
            .map(|m| m.name.clone())
            .collect();
        self.facts.retain(|name, _| read.contains(name));
        read.into_iter()
            .map(|name| Step::Work(Ask::Inspect(name)))
            .collect()
    }

    /// Takes what a model's files say, where it is still listed.
    fn take_facts(&mut self, name: String, facts: Option<Facts>) {
        let mut models = self.inventory.iter().flat_map(|inventory| &inventory.models);
        if models.any(|model| model.name == name && is_read(model)) {
            self.facts.insert(name, facts);
        }
    }

    fn key(&mut self, key: &KeyEvent, action: Option<Action>, going: &Going) -> Vec<Step> {
        if let Some(question) = self.question.clone() {
            return self.answer(&question, key, action);
        }
        if self
            .selection
            .key(select::ends(action, self.field.text()), self.lines.len())
        {
            (self.word, self.wanted) = (None, None);
            return Vec::new();
        }
        match action {
            Some(Action::Stop | Action::Interrupt) if going.fetch.is_some() => {
                return vec![Step::Wish(Wish::StopFetch)];
            }
            Some(Action::Stop | Action::Interrupt | Action::Models) => return vec![Step::Close],
            Some(Action::DeleteModel) => self.ask_to_delete(going),
            action => {
                if self.field.key(key, action) {
                    self.changed();
                }
            }
        }
        Vec::new()
    }

    /// Takes a yes or a no. Deleting wants a letter: Enter may have been meant for the list.
    fn answer(&mut self, question: &Question, key: &KeyEvent, action: Option<Action>) -> Vec<Step> {
        let yes = matches!(key.code, KeyCode::Char('y' | 'Y')) && action.is_none();
        let no = matches!(key.code, KeyCode::Char('n' | 'N')) && action.is_none();
        if yes || no || matches!(action, Some(Action::Stop | Action::Interrupt)) {
            self.question = None;
        }
        match question {
            _ if !yes => Vec::new(),
            Question::Delete(model) => {
                self.arrived.take_if(|arrived| *arrived == model.name);
                vec![Step::Work(Ask::Remove(model.name.clone()))]
            }
            Question::Clear(_) => vec![Step::Work(Ask::ClearPrompts)],
        }
    }

    /// Puts text into the line.
    pub fn insert(&mut self, text: &str) {
        if self.question.is_none() {
            self.field.insert(text);
            self.changed();
        }
    }

    /// Changes to the selected model, or downloads it.
    fn accept(&mut self, going: &Going) -> Vec<Step> {
        let Some(model) = self.selected().and_then(|line| self.model(line)) else {
            if self.selected() == Some(Line::Prompts) {
                self.word = Some("these are the prompt cache's files: they can only be deleted".into());
            }
            self.sought = self.unlisted().map(str::to_owned);
            let name = self.field.text().trim();
            if self.lines.is_empty() && self.sought.is_none() && !name.is_empty() {
                let why = "a repository is called owner/name";
                self.word = Some(format!("none of these is called {name}: {why}"));
            }
            let asks = self.sought.iter().map(|name| Step::Work(Ask::Find(name.clone())));
            return asks.collect();
        };
        let name = model.name.clone();
        match model.place {
            Place::Remote if going.fetch.is_some() => {
                self.word = Some("a model is being downloaded already: stop that first".into());
                Vec::new()
            }
            Place::Remote => vec![Step::Wish(Wish::Fetch(name))],
            Place::Installed | Place::Cached | Place::Elsewhere => vec![Step::Choose(name)],
        }
    }

    fn ask_to_delete(&mut self, going: &Going) {
        self.word = None;
        let Some(line) = self.selected() else { return };
        let Some(model) = self.model(line).cloned() else {
            let bytes = self
                .inventory
                .as_ref()
                .map_or(0, |inventory| inventory.prompt_bytes);
            self.question = Some(Question::Clear(bytes));
            return;
        };
        let why = match model.place {
            _ if going.involves(&model.name) || model.in_use => "it is in use: change to another model first",
            _ if going.fetch.as_ref().is_some_and(|fetch| fetch.name == model.name) => {
                "it is being downloaded: stop that first"
            }
            Place::Elsewhere => "it is a file of your own: delete it where it is",
            Place::Remote if model.unfinished == 0 => "nothing of it is on this machine",
            _ => {
                self.question = Some(Question::Delete(model));
                return;
            }
        };
        self.word = Some(format!("{}: {why}", model.name));
    }

    fn changed(&mut self) {
        (self.selection, self.word, self.wanted, self.sought) = (Selection::default(), None, None, None);
        self.find();
    }

    /// Finds the lines that match what was typed; without that, all of them in their order.
    fn find(&mut self) {
        let Some(inventory) = &self.inventory else { return };
        let query = Query::new(self.field.text());
        let prompts = (inventory.prompt_files > 0).then_some((Line::Prompts, draw::PROMPTS));
        let models = inventory.models.iter().enumerate();
        let all: Vec<(Line, &str)> = models
            .map(|(at, model)| (Line::Model(at), model.name.as_str()))
            .chain(prompts)
            .collect();
        let found = self.fuzzy.rank(&query, all.iter().map(|(_, name)| *name));
        self.lines = found.into_iter().map(|at| all[at].0).collect();
        self.selection.keep(self.lines.len());
    }
}

/// Whether a model's files are to be read for what the list doesn't say.
fn is_read(model: &Listed) -> bool {
    model.facts.is_none() && model.place != Place::Remote
}

impl View {
    /// Opens the picker of models.
    pub(in crate::ui) fn pick_model(&mut self, out: &mut Vec<Reaction>) {
        self.overlay = Some(Overlay::Models(Box::default()));
        out.push(Reaction::Work(Job::Models(Ask::List)));
    }

    /// Has the list read again, where it is shown.
    pub(in crate::ui) fn list_models_again(&mut self) -> Vec<Reaction> {
        match &self.overlay {
            Some(Overlay::Models(_)) => vec![Reaction::Work(Job::Models(Ask::List))],
            _ => Vec::new(),
        }
    }

    /// A model was downloaded, which is told where models are picked, and elsewhere. Nothing is asked: keys that are
    /// pressed meanwhile were meant for something else.
    pub(in crate::ui) fn fetched(&mut self, name: &str) -> Vec<Reaction> {
        let mut out = self.list_models_again();
        match &mut self.overlay {
            Some(Overlay::Models(picker)) => {
                (picker.arrived, picker.word) = (Some(name.to_owned()), None);
            }
            _ => out.push(Reaction::Tell(format!(
                "{name} is downloaded: /model {name} goes on with it"
            ))),
        }
        out
    }

    /// A model was not downloaded: why is told where models are picked, else as a notice.
    pub(in crate::ui) fn not_fetched(&mut self, why: String) -> Vec<Reaction> {
        let mut out = self.list_models_again();
        match &mut self.overlay {
            Some(Overlay::Models(picker)) => picker.word = Some(why),
            _ => out.push(refuse(NoticeKind::Warning, why)),
        }
        out
    }

    pub(in crate::ui) fn key_for_models(
        &mut self,
        key: &KeyEvent,
        action: Option<Action>,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        if let Some(Overlay::Models(picker)) = &mut self.overlay {
            let steps = picker.key(key, action, &self.going);
            self.follow_models(steps, state, out);
        }
    }

    pub(in crate::ui) fn accept_model(&mut self, state: &State, out: &mut Vec<Reaction>) {
        if let Some(Overlay::Models(picker)) = &mut self.overlay {
            let steps = picker.accept(&self.going);
            self.follow_models(steps, state, out);
        }
    }

    fn follow_models(&mut self, steps: Vec<Step>, state: &State, out: &mut Vec<Reaction>) {
        for step in steps {
            match step {
                Step::Work(ask) => out.push(Reaction::Work(Job::Models(ask))),
                Step::Wish(wish) => out.push(Reaction::Model(wish)),
                Step::Choose(name) => {
                    self.overlay = None;
                    self.choose_model(name, state, out);
                }
                Step::Close => self.overlay = None,
            }
        }
    }

    /// Changes to a model; what becomes of answers that stream is asked first, once nothing else lies on top.
    fn choose_model(&mut self, name: String, state: &State, out: &mut Vec<Reaction>) {
        // The last choice counts.
        self.chosen = None;
        let stays = self.going.current.as_ref() == Some(&name);
        if streaming(state) == 0 || stays || self.going.waits {
            out.push(Reaction::Model(Wish::Use { name, stop: false }));
        } else if self.overlay.is_none() && self.help.is_none() {
            self.overlay = Some(Overlay::Change(name));
        } else {
            self.chosen = Some(name);
        }
    }

    /// Goes on with a model that was chosen while something else lay on top.
    pub(in crate::ui) fn go_on_choosing(&mut self, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        if self.overlay.is_none()
            && self.help.is_none()
            && let Some(name) = self.chosen.take()
        {
            self.choose_model(name, state, &mut out);
        }
        out
    }

    /// Takes a key for the question what becomes of answers that stream.
    pub(in crate::ui) fn key_for_change(
        &mut self,
        key: &KeyEvent,
        action: Option<Action>,
        name: String,
        out: &mut Vec<Reaction>,
    ) {
        let stop = match (action, key.code) {
            (Some(Action::Send), _) | (None, KeyCode::Char('f' | 'F')) => false,
            (None, KeyCode::Char('s' | 'S')) => true,
            (Some(Action::Stop | Action::Interrupt), _) | (None, KeyCode::Char('n' | 'N')) => {
                self.overlay = None;
                return;
            }
            _ => return,
        };
        (self.overlay, self.chosen) = (None, None);
        out.push(Reaction::Model(Wish::Use { name, stop }));
    }

    /// Takes what the worker found out or did.
    pub(in crate::ui) fn take_answer(&mut self, answer: Answer, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        match answer {
            Answer::Listed(inventory) => {
                if let Some(Overlay::Models(picker)) = &mut self.overlay {
                    let steps = picker.take_list(inventory);
                    self.follow_models(steps, state, &mut out);
                }
            }
            Answer::Inspected(name, facts) => {
                if let Some(Overlay::Models(picker)) = &mut self.overlay {
                    picker.take_facts(name, facts);
                }
            }
            Answer::Found(name, Ok(true)) => {
                self.overlay.take_if(|overlay| overlay.seeks(&name));
                self.choose_model(name, state, &mut out);
            }
            Answer::Found(name, Ok(false)) => {
                if let Some(Overlay::Models(picker)) = &mut self.overlay {
                    picker.sought.take_if(|sought| *sought == name);
                }
                // What was opened meanwhile stays: the first row tells of the download, too.
                if self.overlay.is_none() {
                    self.overlay = Some(Overlay::Models(Box::new(ModelPicker::wanting(&name))));
                    out.push(Reaction::Work(Job::Models(Ask::List)));
                }
                out.push(Reaction::Model(Wish::Fetch(name)));
            }
            Answer::Found(name, Err(why)) => match &mut self.overlay {
                Some(Overlay::Models(picker)) if picker.seeks(&name) => {
                    (picker.word, picker.sought) = (Some(why), None);
                }
                _ => out.push(refuse(NoticeKind::Warning, why)),
            },
            Answer::Removed(told) => {
                out = self.list_models_again();
                match (told, &mut self.overlay) {
                    (Err(why), Some(Overlay::Models(picker))) => picker.word = Some(why),
                    (Err(why), _) => out.push(refuse(NoticeKind::Error, why)),
                    (Ok(told), _) => out.push(Reaction::Tell(told)),
                }
            }
        }
        out
    }
}
