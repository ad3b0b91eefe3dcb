//! What keys do to the draft: changes of its text and of its caret, the ways through what was written before, and back.

use crossterm::event::KeyEvent;

use crate::chat::{Draft, Event, State};
use crate::ui::input::Reaction;
use crate::ui::keymap::{Action, Motion};
use crate::ui::view::View;
use crate::ui::writing::editor::Editor;
use crate::ui::writing::undo::Change;
use crate::ui::writing::vim::Did;

impl View {
    /// Whether single keys are vim's commands now.
    pub(in crate::ui) fn gives_commands(&self) -> bool {
        *self.looks.vim.now() && self.vim.commands()
    }

    /// Takes a key for vim's ways in the draft, where they are wanted; whether it was for that.
    pub(in crate::ui) fn vim_key(
        &mut self,
        key: &KeyEvent,
        action: Option<Action>,
        state: &State,
        out: &mut Vec<Reaction>,
    ) -> bool {
        let draft = &state.focused_pane().draft;
        let esc = action == Some(Action::Stop);
        // The list above the composer, and what is marked, go first.
        if !*self.looks.vim.now() || esc && (self.marked.is_some() || !self.offers(draft).is_empty()) {
            return false;
        }
        let mut editor = Editor::of(draft);
        let wrote = !self.vim.commands();
        let depth = self.pane(state.focused()).undo.depth();
        match self.vim.key(key, esc, &mut editor) {
            Did::Nothing => return false,
            Did::Something => self.set_draft(draft, editor.into_draft(), Change::Other, out, state),
            Did::Go(motion, count) => {
                // Each goes from where the one before led.
                let width = self.composer_width();
                let mut goal = self.pane(state.focused()).goal;
                for _ in 1..count {
                    editor.go(motion, width, &mut goal);
                }
                if count > 1 {
                    editor.go(motion, width, &mut goal);
                    self.set_draft(draft, editor.into_draft(), Change::Other, out, state);
                    self.pane(state.focused()).goal = goal;
                } else {
                    self.go(motion, state, out);
                }
            }
            Did::Undo(count) => self.take_back(false, count, state, out),
            Did::Redo(count) => self.take_back(true, count, state, out),
        }
        // What is written in one go is one change, with what made room for it.
        let writes = !self.vim.commands();
        let undo = &mut self.pane(state.focused()).undo;
        match (wrote, writes) {
            (false, true) => undo.begin(depth),
            (true, false) => undo.join(),
            _ => {}
        }
        true
    }

    /// Motion of the caret; over the first and last row, through what was written before.
    pub(in crate::ui) fn go(&mut self, motion: Motion, state: &State, out: &mut Vec<Reaction>) {
        let width = self.composer_width();
        let pane = self.pane(state.focused());
        let draft = &state.focused_pane().draft;
        let mut editor = Editor::of(draft);
        let moved = editor.go(motion, width, &mut pane.goal);
        if moved {
            let moved = editor.into_draft();
            pane.undo.note(draft, &moved, Change::Other);
            out.push(Reaction::Chat(Event::Draft(moved)));
            return;
        }
        pane.goal = None;
        let back = pane.recall.as_ref().map_or(0, |(back, _)| *back);
        let found = match motion {
            Motion::Up => {
                // What is in the composer already isn't brought back once more.
                let mut older = state.focused_pane().history().enumerate().skip(back);
                older
                    .find(|(_, older)| older.text() != draft.text())
                    .map(|(at, older)| (at + 1, older))
            }
            _ if back > 1 => state
                .focused_pane()
                .history()
                .nth(back - 2)
                .map(|newer| (back - 1, newer)),
            _ => {
                if let Some((_, stashed)) = pane.recall.take() {
                    pane.undo.note(draft, &stashed, Change::Other);
                    out.push(Reaction::Chat(Event::Draft(stashed)));
                }
                return;
            }
        };
        let Some((back, recalled)) = found else { return };
        let stashed = pane
            .recall
            .take()
            .map_or_else(|| draft.clone(), |(_, stashed)| stashed);
        pane.recall = Some((back, stashed));
        pane.undo.note(draft, &recalled, Change::Other);
        out.push(Reaction::Chat(Event::Draft(recalled)));
    }

    /// Ends the walk through what was written before: the draft from which it began goes to the history.
    pub(in crate::ui) fn stay(&mut self, state: &State) -> Option<Reaction> {
        let pane = self.pane(state.focused());
        pane.goal = None;
        let (_, stashed) = pane.recall.take()?;
        (!stashed.is_blank()).then_some(Reaction::Chat(Event::GiveUp(stashed)))
    }

    pub(in crate::ui) fn edit(
        &mut self,
        state: &State,
        change: Change,
        out: &mut Vec<Reaction>,
        edit: impl FnOnce(&mut Editor),
    ) {
        let draft = &state.focused_pane().draft;
        let mut editor = Editor::of(draft);
        edit(&mut editor);
        self.set_draft(draft, editor.into_draft(), change, out, state);
    }

    /// Puts another draft in the focused pane's composer.
    pub(in crate::ui) fn set_draft(
        &mut self,
        before: &Draft,
        after: Draft,
        change: Change,
        out: &mut Vec<Reaction>,
        state: &State,
    ) {
        out.extend(self.stay(state));
        let pane = self.pane(state.focused());
        if after != *before {
            pane.undo.note(before, &after, change);
            out.push(Reaction::Chat(Event::Draft(after)));
        }
    }

    /// Takes the last changes of the draft back, or makes them again.
    pub(in crate::ui) fn take_back(
        &mut self,
        again: bool,
        count: usize,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        let before = &state.focused_pane().draft;
        out.extend(self.stay(state));
        let pane = self.pane(state.focused());
        let mut now = before.clone();
        for _ in 0..count {
            let found = if again {
                pane.undo.redo(&now)
            } else {
                pane.undo.undo(&now)
            };
            let Some(found) = found else { break };
            now = found;
        }
        if now != *before {
            out.push(Reaction::Chat(Event::Draft(now)));
        }
    }
}
