//! Carries out slash commands, from the composer or the palette.

use crate::chat::{Event, NoticeKind, State};
use crate::ui::format;
use crate::ui::input::Reaction;
use crate::ui::keymap::Action;
use crate::ui::models::Ask;
use crate::ui::overlay::Overlay;
use crate::ui::slash::{self, Asked};
use crate::ui::view::View;
use crate::ui::worker::{Done, Job};
use crate::ui::writing::editor::Editor;
use crate::ui::writing::undo::Change;

impl View {
    /// Does what a command line asks for; or says what is wrong with it.
    pub(super) fn run_line(
        &mut self,
        line: &str,
        state: &State,
        out: &mut Vec<Reaction>,
    ) -> Result<(), String> {
        let pane = state.focused_pane();
        let asked = slash::parse(line, &pane.settings)?;
        out.push(Reaction::Chat(Event::Acted));
        match asked {
            Asked::Settings(settings, told) => {
                if let Some(why) = state.objection(&settings) {
                    return Err(why);
                }
                out.push(Reaction::Chat(Event::Configure(settings)));
                out.push(Reaction::Tell(format!("pane {}: {told}", state.focused())));
            }
            Asked::Reset(parameter) => {
                let mut settings = pane.settings.clone();
                parameter.copy(state.defaults(), &mut settings);
                let (name, value) = (parameter.name(), parameter.value(&settings));
                out.push(Reaction::Chat(Event::Configure(settings)));
                out.push(Reaction::Tell(format!(
                    "pane {}: {name} {value} as in new panes, from the next prompt on",
                    state.focused()
                )));
            }
            Asked::Tell(told) => out.push(Reaction::Tell(format!("pane {}: {told}", state.focused()))),
            Asked::TellTitle => {
                let title = match crate::ui::pane::one_line(&pane.title) {
                    title if title.is_empty() => "no title yet".to_owned(),
                    title => format!("title: {title}"),
                };
                out.push(Reaction::Tell(format!("pane {}: {title}", state.focused())));
            }
            Asked::Title(title) => out.push(Reaction::Chat(Event::Rename { title })),
            Asked::Export(path, format) => {
                if pane.turns.is_empty() {
                    return Err("there is nothing to export yet".into());
                }
                let conversation = Box::new(pane.conversation(&state.snapshot().info.model));
                out.push(Reaction::Work(Job::Export {
                    conversation,
                    path,
                    format,
                }));
            }
            Asked::ExportComparison(path, format) => {
                let comparison = state.comparison();
                if comparison.answers.is_empty() {
                    return Err("there is no answer yet to compare".into());
                }
                out.push(Reaction::Work(Job::ExportComparison {
                    comparison: Box::new(comparison),
                    path,
                    format,
                }));
            }
            Asked::Import(path) => {
                out.push(progress(format!("reading {}", path.display())));
                out.push(Reaction::Work(Job::Import(path)));
            }
            Asked::Preset(name) => out.push(Reaction::Work(Job::Presets {
                folder: self.presets.clone(),
                wanted: Some(name),
            })),
            Asked::SavePreset(name) => out.push(Reaction::Work(Job::SavePreset {
                folder: self.presets.clone(),
                name,
                settings: Box::new(pane.settings.clone()),
            })),
            Asked::Quit => self.leave(state, out),
            Asked::Model(name) => out.push(Reaction::Work(Job::Models(Ask::Find(name)))),
            Asked::Act(action) => self.act_where_it_counts(action, state, out),
        }
        Ok(())
    }

    /// Carries out a command that is in the draft, which is emptied; where something is wrong, it stays.
    pub(super) fn run_draft(&mut self, line: &str, state: &State, out: &mut Vec<Reaction>) {
        let mut then = Vec::new();
        match self.run_line(line, state, &mut then) {
            Ok(()) => {
                out.extend(self.stay(state));
                out.push(Reaction::Chat(Event::ClearDraft));
                out.append(&mut then);
            }
            Err(text) => out.push(refuse(NoticeKind::Warning, text)),
        }
    }
}

impl View {
    /// Takes what the worker has done.
    pub fn take_done(&mut self, done: Done, state: &State) -> Vec<Reaction> {
        match done {
            Done::Looked(seen) => {
                self.attached.take_seen(seen);
                Vec::new()
            }
            Done::Names { folder, entries } => {
                self.attached.take_entries(&folder, entries);
                Vec::new()
            }
            Done::Prompt { number, text } => self.send_with_files(number, text, state),
            Done::Listed(listing) => {
                if let Some(Overlay::Sessions(picker)) = &mut self.overlay {
                    picker.take_list(listing);
                }
                Vec::new()
            }
            Done::Found { number, found } => {
                if let Some(Overlay::Sessions(picker)) = &mut self.overlay {
                    picker.take_found(number, found);
                }
                Vec::new()
            }
            Done::Held { session, elsewhere } => {
                if let Some(Overlay::Sessions(picker)) = &mut self.overlay {
                    picker.take_held(session, elsewhere);
                }
                Vec::new()
            }
            Done::Models(answer) => self.take_answer(answer, state),
            Done::Nothing => Vec::new(),
            Done::PresetChanged(told, library) => {
                if let Some(Overlay::Presets(picker)) = &mut self.overlay {
                    picker.take(library);
                }
                vec![match told {
                    Ok(text) => outcome(NoticeKind::Info, text),
                    Err(text) => outcome(NoticeKind::Error, text),
                }]
            }
            Done::Presets {
                library,
                wanted: None,
            } => {
                let Some(Overlay::Presets(picker)) = &mut self.overlay else {
                    self.attached.take_presets(library.presets);
                    return Vec::new();
                };
                // All that is wrong is told: the picker has room for one.
                let told = library.problems.iter().cloned().map(Reaction::Tell).collect();
                picker.take(library);
                told
            }
            Done::Presets {
                library,
                wanted: Some(name),
            } => match library.named(&name) {
                Some(preset) => {
                    let applied = Reaction::Chat(Event::Preset(Box::new(preset.clone())));
                    // What could not be read of it isn't applied, nor what could not be read at all: that may be of it.
                    let of_it = format!(" preset {name:?}: ");
                    let counts = |why: &&String| why.contains(&of_it) || !why.contains(" preset \"");
                    let bad = library.problems.iter().filter(counts);
                    let told = bad.map(|why| refuse(NoticeKind::Warning, why.clone()));
                    std::iter::once(applied).chain(told).collect()
                }
                None => {
                    let bad = library.problems.first();
                    let bad = bad.map_or(String::new(), |why| format!(" ({why})"));
                    let names: Vec<&str> = library.presets.iter().map(|p| p.name.as_str()).collect();
                    let text = format!("there is no preset {name:?}{bad}: there are {}", names.join(", "));
                    vec![refuse(NoticeKind::Warning, text)]
                }
            },
            Done::Imported(importing) if importing.left.is_empty() => {
                let key = self.keymap.written(Action::Sessions);
                let pick = key.map_or(String::new(), |key| format!("; {key} lists them"));
                let text = match (importing.total - importing.known, importing.known) {
                    (0, 1) => "it was imported before: nothing is new".into(),
                    (0, known) => format!(
                        "all {} were imported before: nothing is new",
                        format::grouped(known)
                    ),
                    (new, 0) => format!("imported {}{pick}", conversations(new)),
                    (new, known) => {
                        let known = format::grouped(known);
                        let new = conversations(new);
                        format!("imported {new}; imported before, and left as they are: {known}{pick}")
                    }
                };
                let (kind, left_out) = match importing.left_out.as_slice() {
                    [] => (NoticeKind::Info, String::new()),
                    [one] => (NoticeKind::Warning, format!("; {one}")),
                    [first, others @ ..] => (
                        NoticeKind::Warning,
                        format!("; {first}; and {} more of the file", others.len()),
                    ),
                };
                let text = text + &left_out;
                // A list that lies on top shows them.
                let list = matches!(self.overlay, Some(Overlay::Sessions(_))).then_some(Job::List);
                let list = list.map(Reaction::Work);
                std::iter::once(outcome(kind, text)).chain(list).collect()
            }
            Done::Imported(importing) => {
                let done = importing.total - importing.left.len();
                let (done, all) = (format::grouped(done), format::grouped(importing.total));
                let text = format!("importing: {done} of {all} conversations");
                vec![progress(text), Reaction::Work(Job::ImportMore(importing))]
            }
            Done::Told(Ok(text)) => vec![outcome(NoticeKind::Info, text)],
            Done::Told(Err(text)) => vec![outcome(NoticeKind::Error, text)],
        }
    }

    /// Sends a prompt whose files were read, if it is still the one that is in the composer.
    fn send_with_files(&mut self, number: u64, text: Result<String, String>, state: &State) -> Vec<Reaction> {
        let pane = state.focused_pane();
        let mut out = Vec::new();
        let Some(wanted) = self.attached.take_prompt(number, pane.session, &pane.draft) else {
            return out;
        };
        match text {
            Ok(text) if wanted => self.send(Event::SubmitText { text }, state, &mut out),
            Ok(_) => {
                let why = "nothing was sent: the draft changed while its files were read";
                out.push(refuse(NoticeKind::Warning, why.into()));
            }
            Err(why) => out.push(refuse(NoticeKind::Warning, why)),
        }
        out
    }
}

impl View {
    /// Takes the draft as it came back from another program, or why it didn't.
    pub fn take_edited(&mut self, edited: Result<String, String>, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        match edited {
            Ok(text) => {
                let mut editor = Editor::default();
                editor.insert(&text);
                let draft = &state.focused_pane().draft;
                self.set_draft(draft, editor.into_draft(), Change::Other, &mut out, state);
            }
            Err(text) => out.push(refuse(NoticeKind::Error, text)),
        }
        out
    }
}

/// Something that was refused, or failed.
pub(super) fn refuse(kind: NoticeKind, text: String) -> Reaction {
    Reaction::Chat(Event::Notice { kind, text })
}

/// What came of something that took a while.
fn outcome(kind: NoticeKind, text: String) -> Reaction {
    Reaction::Chat(Event::Outcome { kind, text })
}

/// How far something is that takes a while.
fn progress(text: String) -> Reaction {
    Reaction::Chat(Event::Progress { text })
}

/// So many conversations, in words.
fn conversations(count: usize) -> String {
    let what = if count == 1 {
        "conversation"
    } else {
        "conversations"
    };
    format!("{} {what}", format::grouped(count))
}
