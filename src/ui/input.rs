//! What keys and pastes do: changes of the view at once, all else as reactions for the loop.

use std::time::Duration;

use crossterm::event::{KeyEvent, KeyEventKind};

use crate::chat::{Event, ForkAt, NoticeKind, State};
use crate::ui::command::refuse;
use crate::ui::keymap::{self, Action, Motion};
use crate::ui::models::Wish;
use crate::ui::overlay::Overlay;
use crate::ui::overlay::help::Help;
use crate::ui::overlay::palette::Palette;
use crate::ui::reading::reader::Asked;
use crate::ui::slash::{self, Line};
use crate::ui::view::{Screen, View};
use crate::ui::worker::Job;
use crate::ui::writing::attach;
use crate::ui::writing::burst::Enter;
use crate::ui::writing::complete;
use crate::ui::writing::composer;
use crate::ui::writing::undo::Change;

/// What the loop is to do.
#[derive(Debug, Clone)]
pub enum Reaction {
    /// Tell the conversations.
    Chat(Event),
    /// Begin a new conversation in the focused pane.
    NewConversation,
    /// Open a pane with a new conversation.
    NewPane,
    /// Open a pane with a new conversation of which nothing is kept.
    NewPrivatePane,
    /// Open a pane with a copy of the focused one's conversation, up to there.
    ForkPane(ForkAt),
    /// Paint everything anew.
    Repaint,
    /// Go to the background.
    Suspend,
    /// Have the draft edited in another program.
    EditOutside,
    /// Have the settings file edited there.
    EditConfig,
    /// Have something done that takes time.
    Work(Job),
    /// Put a text on the clipboard.
    Copy {
        /// What it is, for the message.
        what: String,
        /// The text.
        text: String,
    },
    /// Say something.
    Tell(String),
    /// Do something with the engine or its models.
    Model(Wish),
}

impl View {
    /// What is still to be done before a key or a paste: typed characters go to the draft, an Enter that waited sends.
    /// Its reactions come before [`View::key`] looks at the draft. Nothing, while a burst may go on.
    pub fn before(&mut self, key: &KeyEvent, state: &State) -> Vec<Reaction> {
        let action = self.keymap.action(key, self.scope());
        let types = action.is_none() && keymap::typed(key).is_some() || action == Some(Action::Send);
        let types = match self.overlay {
            Some(_) if self.help.is_none() => self.types_on_top(key),
            _ => types && self.writes() && !self.gives_commands(),
        };
        if key.kind == KeyEventKind::Release || types {
            return Vec::new();
        }
        self.settle(state)
    }

    /// Whether what is typed goes to the draft.
    pub(super) fn writes(&self) -> bool {
        let on_top = self.help.is_some() || self.overlay.is_some() || self.ask.is_some();
        self.screen == Screen::Chat && !on_top && !self.reading
    }

    /// Takes a key at `now`, after [`View::before`].
    pub fn key(&mut self, key: &KeyEvent, state: &State, now: Duration) -> Vec<Reaction> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.pressed = now;
        let action = self.keymap.action(key, self.scope());
        let mut out = Vec::new();
        if self.help.is_none() && self.overlay.is_some() {
            self.armed = None;
            self.key_on_top(key, now, state, &mut out);
            return out;
        }
        if self.writes() && self.vim_key(key, action, state, &mut out) {
            return out;
        }
        if self.writes() {
            if let Some(c) = keymap::typed(key).filter(|_| action.is_none()) {
                self.armed = None;
                if self.burst.character(now) {
                    self.typed.push('\n');
                    self.burst.grew(1);
                }
                self.typed.push(c);
                self.marked = None;
                self.burst.grew(c.len_utf8());
                return out;
            }
            if action == Some(Action::Send) {
                self.armed = None;
                match self.burst.enter(now) {
                    Enter::Send => self.enter(state, &mut out),
                    Enter::Newlines(count) => {
                        self.typed.extend(std::iter::repeat_n('\n', count));
                        self.burst.grew(count);
                    }
                    Enter::Wait => {}
                }
                return out;
            }
        }
        if action != Some(Action::Interrupt) {
            self.armed = None;
        }
        if self.help.is_some() {
            self.help_key(key, action, state, &mut out);
        } else if self.ask.is_some() && self.screen == Screen::Chat {
            self.ask_key(key, action, state, &mut out);
        } else if let Some(action) = action
            && !self.menu_key(action, state, &mut out)
        {
            self.act(action, state, &mut out);
        }
        out
    }

    /// Takes pasted text, after [`View::settle`]: it never sends.
    pub fn paste(&mut self, text: &str, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        self.armed = None;
        if self.help.is_none() && self.overlay.is_some() {
            self.insert_on_top(text, &mut out);
            return out;
        }
        if self.writes() {
            self.edit(state, Change::Other, &mut out, |editor| editor.insert_paste(text));
        } else if let Some(help) = &mut self.help {
            help.insert(text);
        } else if self.screen == Screen::Chat {
            self.paste_into_line(text, state, &mut out);
        }
        out
    }

    /// Puts characters that were typed into the draft.
    pub fn flush_typed(&mut self, state: &State) -> Vec<Reaction> {
        if self.typed.is_empty() {
            return Vec::new();
        }
        let typed = std::mem::take(&mut self.typed);
        let mut out = Vec::new();
        let draft = &state.focused_pane().draft;
        let before = draft.text().get(..draft.cursor()).unwrap_or_default();
        let word = before.ends_with(char::is_whitespace) && !typed.starts_with(char::is_whitespace);
        let change = Change::Typing { word };
        let burst = self.burst.bytes();
        self.edit(state, change, &mut out, |editor| {
            editor.insert(&typed);
            editor.gather(burst);
        });
        out
    }

    /// Ends a burst of keys: what was typed goes to the draft, and an Enter that waited sends it.
    pub fn settle(&mut self, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        if self.burst.end() {
            match self.overlay {
                Some(_) => self.accept(state, &mut out),
                None => self.enter(state, &mut out),
            }
        } else {
            out.extend(self.flush_typed(state));
        }
        out
    }

    /// The key that sends: a prompt goes, a command is carried out, one that is half written is completed.
    fn enter(&mut self, state: &State, out: &mut Vec<Reaction>) {
        let typed = self.flush_typed(state);
        let mut drafts = typed.iter().filter_map(|reaction| match reaction {
            Reaction::Chat(Event::Draft(draft)) => Some(draft),
            _ => None,
        });
        let draft = drafts.next_back().unwrap_or(&state.focused_pane().draft).clone();
        out.extend(typed);
        match slash::read(draft.text()) {
            Line::Text(text) if !attach::mentions(&draft).is_empty() => {
                let context = state.snapshot().info.context_length;
                let session = state.focused_pane().session;
                out.push(Reaction::Work(self.attached.send(session, &draft, text, context)));
            }
            Line::Text(text) if text.len() == draft.text().len() => self.send(Event::Submit, state, out),
            Line::Text(text) => {
                let text = text.to_owned();
                self.send(Event::SubmitText { text }, state, out);
            }
            Line::Command(line) => {
                let offers = self.offers(&draft);
                let written = offers
                    .iter()
                    .any(|offer| offer.text.trim_end() == line.trim_end());
                match offers.get(self.menu.selected()).filter(|_| !written) {
                    Some(offer) if !line.contains(char::is_whitespace) || offer.whole => {
                        let taken = complete::take(&draft, offer);
                        if offer.whole {
                            return self.run_draft(taken.text(), state, out);
                        }
                        self.set_draft(&draft, taken, Change::Other, out, state);
                    }
                    _ => self.run_draft(line, state, out),
                }
            }
        }
    }

    pub(super) fn send(&mut self, event: Event, state: &State, out: &mut Vec<Reaction>) {
        out.extend(self.stay(state));
        let pane = self.pane(state.focused());
        pane.undo.forget();
        pane.transcript.follow();
        self.vim.write();
        out.push(Reaction::Chat(event));
    }

    /// Takes an action for the list above the composer, while there is one; whether it was for that.
    fn menu_key(&mut self, action: Action, state: &State, out: &mut Vec<Reaction>) -> bool {
        let draft = &state.focused_pane().draft;
        let offers = self.offers(draft);
        let Some(offer) = offers.get(self.menu.selected()) else {
            return false;
        };
        match action {
            Action::NextPane => {
                let taken = complete::take(draft, offer);
                self.set_draft(draft, taken, Change::Other, out, state);
            }
            Action::Stop => self.menu.close(draft),
            action => return self.menu.moves(action, offers.len()),
        }
        true
    }

    pub(super) fn act(&mut self, action: Action, state: &State, out: &mut Vec<Reaction>) {
        let chat = |event| Reaction::Chat(event);
        let draft = &state.focused_pane().draft;
        if action.goes_on() {
            out.push(chat(Event::Acted));
        }
        match action {
            Action::Settings => self.overlay = Some(Overlay::Settings(Box::default())),
            Action::Presets => self.pick_preset(out),
            Action::TakePart => out.push(chat(Event::ToggleReceives)),
            Action::Continue => {
                self.pane(state.focused()).transcript.follow();
                out.push(chat(Event::Continue));
            }
            Action::Compare => self.compare(state, out),
            Action::NewPrivatePane => out.push(Reaction::NewPrivatePane),
            Action::RestoreSession => out.push(chat(Event::RestoreRemoved)),
            Action::Read => self.read(!self.reading),
            Action::Reading(reading) => self.read_on(reading, state, out),
            Action::Raw => {
                self.marked = None;
                self.pane(state.focused()).transcript.toggle_raw();
            }
            Action::Search => self.ask(Asked::Search, state),
            Action::Copy => self.ask(Asked::Copy, state),
            Action::Stop if self.unmark(false, state, out) => {}
            Action::Interrupt if self.unmark(true, state, out) => {}
            Action::Stop | Action::Interrupt if self.screen == Screen::Chat && self.close_reading(state) => {
                out.push(chat(Event::Acted));
            }
            // While one reads, arrows scroll, and the draft stays as it is.
            Action::Move(Motion::Up) if self.reading => self.scroll(Action::LineUp, state),
            Action::Move(Motion::Down) if self.reading => self.scroll(Action::LineDown, state),
            Action::Move(Motion::LineStart) if self.reading => self.scroll(Action::Top, state),
            Action::Move(Motion::LineEnd) if self.reading => self.scroll(Action::Bottom, state),
            Action::Move(_) | Action::Delete(_) | Action::Newline if self.reading => {}
            Action::Undo | Action::Redo | Action::ExternalEditor if self.reading => {}
            Action::LeaveOrDelete if self.reading && !composer::is_empty(draft) => {
                out.push(self.stays_for_a_draft(Action::Stop, "goes back to it"));
            }
            Action::Send if self.reading => {
                self.read(false);
                out.push(chat(Event::Acted));
            }
            Action::Send => self.enter(state, out),
            Action::Newline => {
                let change = Change::Typing { word: false };
                self.edit(state, change, out, |editor| editor.insert("\n"));
            }
            Action::Stop => match self.screen {
                Screen::Dashboard => {
                    self.leave_dashboard();
                    out.push(chat(Event::Acted));
                }
                Screen::Chat if self.going.escape_in(state.focused_pane()).is_some() => {
                    out.push(Reaction::Model(Wish::TurnBack));
                }
                Screen::Chat => out.extend([chat(Event::DismissNotices), chat(Event::Stop)]),
            },
            Action::Interrupt => self.interrupt(state, out),
            Action::LeaveOrDelete if composer::is_empty(draft) => self.leave(state, out),
            Action::LeaveOrDelete if self.screen == Screen::Chat && draft.cursor() == draft.text().len() => {
                out.push(self.stays_for_a_draft(Action::Interrupt, "clears it"));
            }
            Action::LeaveOrDelete if self.screen == Screen::Chat => {
                self.edit(state, Change::Deleting, out, |editor| {
                    editor.delete(Motion::Right)
                });
            }
            Action::LeaveOrDelete => out.push(self.stays_for_a_draft(Action::Stop, "goes back to it")),
            Action::NextPane => out.push(chat(Event::NextPane)),
            Action::PreviousPane => out.push(chat(Event::PrevPane)),
            Action::Pane(number) => {
                match crate::chat::PaneId::new(number).filter(|id| state.pane(*id).is_some()) {
                    Some(id) => out.push(chat(Event::Focus(id))),
                    None => out.push(Reaction::Tell(format!("there is no pane {number}"))),
                }
            }
            Action::NewConversation => {
                self.read(false);
                out.push(Reaction::NewConversation);
            }
            Action::NewPane => out.push(Reaction::NewPane),
            Action::ClosePane => {
                out.push(chat(Event::ClosePane));
                if state.panes().len() > 1 {
                    let answers = state.focused_pane().running().is_some();
                    let stopped = if answers { ", its answer is stopped" } else { "" };
                    let back = self.keymap.way(Action::ReopenPane);
                    let text = format!("pane {} is closed{stopped}: {back} reopens it", state.focused());
                    out.push(Reaction::Tell(text));
                }
            }
            Action::Zoom => out.push(chat(Event::ToggleZoom)),
            Action::Broadcast => out.push(chat(Event::ToggleBroadcast)),
            Action::Help => self.help = Some(Help::default()),
            Action::Messages => self.overlay = Some(Overlay::Messages(Box::default())),
            Action::Dashboard => match self.screen {
                Screen::Chat => self.screen = Screen::Dashboard,
                Screen::Dashboard => self.leave_dashboard(),
            },
            Action::Freeze => self.toggle_freeze(state),
            Action::Repaint => out.push(Reaction::Repaint),
            Action::Suspend => out.push(Reaction::Suspend),
            Action::Move(Motion::LineStart) if composer::is_empty(draft) => self.scroll(Action::Top, state),
            Action::Move(Motion::LineEnd) if composer::is_empty(draft) => self.scroll(Action::Bottom, state),
            Action::Move(motion) => self.go(motion, state, out),
            Action::Delete(motion) => self.edit(state, Change::Deleting, out, |editor| editor.delete(motion)),
            Action::Undo => self.take_back(false, 1, state, out),
            Action::Redo => self.take_back(true, 1, state, out),
            Action::ExternalEditor if state.focused_pane().private => {
                let why = "a private pane's draft goes to no file, and so to no other editor";
                out.push(refuse(NoticeKind::Warning, why.into()));
            }
            Action::ExternalEditor => out.push(Reaction::EditOutside),
            Action::Thoughts => {
                self.marked = None;
                self.pane(state.focused()).transcript.toggle_thoughts();
            }
            Action::Regenerate => {
                self.pane(state.focused()).transcript.follow();
                out.push(chat(Event::Regenerate));
            }
            Action::EditPrompt => {
                self.read(false);
                self.replace_draft(state, Event::EditPrompt, out);
            }
            Action::PreviousSibling => {
                self.replace_draft(state, Event::Sibling { forward: false }, out);
            }
            Action::NextSibling => self.replace_draft(state, Event::Sibling { forward: true }, out),
            Action::ForkPane => {
                let selected = self.pane(state.focused()).transcript.selected();
                let at = selected
                    .filter(|_| self.reading)
                    .map(|message| match message.answer {
                        true => ForkAt::After(message.turn),
                        false => ForkAt::Before(message.turn),
                    });
                if at.is_some() {
                    self.read(false);
                }
                out.push(Reaction::ForkPane(at.unwrap_or(ForkAt::End)));
            }
            Action::ReopenPane => out.push(chat(Event::ReopenPane)),
            Action::MovePaneBack => out.push(chat(Event::MovePane { forward: false })),
            Action::MovePaneOn => out.push(chat(Event::MovePane { forward: true })),
            Action::Sessions => self.pick_session(out),
            Action::Themes => self.choose_theme(),
            Action::Mouse | Action::Vim | Action::ScreenReader => self.switch(action, out),
            Action::KeepSwitches => out.push(self.keep_switches()),
            Action::Models => self.pick_model(out),
            // The pickers take these themselves.
            Action::SearchText | Action::RenameSession | Action::DeleteSession | Action::DeleteModel => {}
            Action::PinSession | Action::ArchiveSession | Action::ListArchived => {}
            Action::DeletePreset | Action::RenamePreset => {}
            Action::ResetSetting | Action::ResetSettings => {}
            Action::Config => out.push(Reaction::EditConfig),
            Action::Palette => {
                let palette = Palette::new(&self.keymap, state, &self.config_file);
                self.overlay = Some(Overlay::Palette(Box::new(palette)));
            }
            Action::PageUp
            | Action::PageDown
            | Action::LineUp
            | Action::LineDown
            | Action::Top
            | Action::Bottom => self.scroll(action, state),
        }
    }

    /// Tells an event after which the draft may be another one.
    fn replace_draft(&mut self, state: &State, event: Event, out: &mut Vec<Reaction>) {
        out.extend(self.stay(state));
        self.pane(state.focused()).undo.forget();
        out.push(Reaction::Chat(event));
    }

    pub(super) fn leave_dashboard(&mut self) {
        self.screen = Screen::Chat;
        self.frozen = None;
    }

    fn scroll(&mut self, action: Action, state: &State) {
        self.pane(state.focused()).transcript.scroll(action);
    }
}
