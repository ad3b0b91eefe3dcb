//! Carries out slash commands, from the composer or the palette.

use super::input::Reaction;
use super::slash::{self, Asked};
use super::view::View;
use super::worker::{Done, Job};
use crate::chat::{Event, NoticeKind, State};

impl View {
    /// Does what a command line asks for; or says what is wrong with it.
    pub(super) fn run_line(
        &mut self,
        line: &str,
        state: &State,
        out: &mut Vec<Reaction>,
    ) -> Result<(), String> {
        let pane = state.focused_pane();
        match slash::parse(line, &pane.settings)? {
            Asked::Settings(settings, told) => {
                out.push(Reaction::Chat(Event::Configure(settings)));
                out.push(tell(format!("pane {}: {told}", state.focused())));
            }
            Asked::Tell(told) => out.push(tell(format!("pane {}: {told}", state.focused()))),
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
            Asked::Quit => self.leave(state, out),
            Asked::Act(action) => self.act_where_it_counts(action, state, out),
        }
        Ok(())
    }

    /// Carries out a command that is in the draft, which is emptied; where something is wrong, it stays.
    pub(super) fn run_draft(&mut self, line: &str, state: &State, out: &mut Vec<Reaction>) {
        let mut then = Vec::new();
        match self.run_line(line, state, &mut then) {
            Ok(()) => {
                let pane = self.pane(state.focused());
                (pane.recall, pane.goal) = (None, None);
                out.push(Reaction::Chat(Event::ClearDraft));
                out.append(&mut then);
            }
            Err(text) => out.push(Reaction::Chat(Event::Notice {
                kind: NoticeKind::Warning,
                text,
            })),
        }
    }
}

impl View {
    /// Takes what the worker has done.
    pub fn take_done(&mut self, done: Done, _: &State) -> Vec<Reaction> {
        match done {
            Done::Told(Ok(text)) => vec![tell(text)],
            Done::Told(Err(text)) => vec![Reaction::Chat(Event::Notice {
                kind: NoticeKind::Error,
                text,
            })],
        }
    }
}

/// Something good to know.
pub(super) fn tell(text: String) -> Reaction {
    Reaction::Chat(Event::Notice {
        kind: NoticeKind::Info,
        text,
    })
}
