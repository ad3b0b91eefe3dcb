//! The mouse: the terminal's own, its wheel here, or all of it here.
//!
//! A program that takes the mouse takes the terminal's own selection of text away (most give it back while Shift is held),
//! so it is off unless it is asked for.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{Draft, Event, PaneId, State};
use crate::ui::input::Reaction;
use crate::ui::keymap::Action;
use crate::ui::paint;
use crate::ui::reading::transcript::{Point, Target};
use crate::ui::view::{Screen, View};
use crate::ui::writing::editor::Editor;
use crate::ui::writing::undo::Change;

/// Rows that a notch of the wheel scrolls by.
const NOTCH: usize = 3;

/// What the mouse does here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MouseMode {
    /// Nothing: it is the terminal's.
    #[default]
    Off,
    /// Its wheel scrolls.
    Wheel,
    /// It scrolls, chooses panes, sets the caret, unfolds, copies and selects.
    Full,
}

impl MouseMode {
    /// The next one.
    pub fn next(self) -> Self {
        match self {
            Self::Off => Self::Wheel,
            Self::Wheel => Self::Full,
            Self::Full => Self::Off,
        }
    }

    /// What the terminal is told: presses, or motion with a button held, too; places as decimal numbers.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            Self::Off => OFF,
            Self::Wheel => b"\x1b[?1002l\x1b[?1000h\x1b[?1006h",
            Self::Full => b"\x1b[?1000h\x1b[?1002h\x1b[?1006h",
        }
    }

    /// Its name in the settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Wheel => "wheel",
            Self::Full => "full",
        }
    }

    /// What to say when it was chosen.
    pub fn told(self) -> &'static str {
        match self {
            Self::Off => "mouse: the terminal's own",
            Self::Wheel => "mouse: the wheel scrolls; Shift selects as the terminal does",
            Self::Full => "mouse: click, drag and wheel count here; Shift selects as the terminal does",
        }
    }
}

/// What gives the mouse back to the terminal.
pub const OFF: &[u8] = b"\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// What lay where on the last screen.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The panes' rooms, without their borders.
    pub panes: Vec<(PaneId, Rect)>,
    /// The composer, with its border.
    pub composer: Rect,
}

/// Text of a pane that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marked {
    /// Whose.
    pub pane: PaneId,
    /// Where the button went down.
    from: Point,
    /// Where it is, or went up.
    to: Point,
    /// Whether it is still held.
    held: bool,
}

impl Marked {
    /// Its ends, in order.
    fn ends(&self) -> (Point, Point) {
        (self.from.min(self.to), self.from.max(self.to))
    }
}

impl View {
    /// Takes an event of the mouse, after [`View::settle`].
    pub fn mouse(&mut self, event: &MouseEvent, state: &State) -> Vec<Reaction> {
        let mut out = Vec::new();
        if *self.looks.mouse.now() == MouseMode::Off {
            return out;
        }
        let at = Position::new(event.column, event.row);
        match event.kind {
            MouseEventKind::ScrollUp => self.wheel(at, true, state, &mut out),
            MouseEventKind::ScrollDown => self.wheel(at, false, state, &mut out),
            _ if *self.looks.mouse.now() != MouseMode::Full || self.covered() => {}
            MouseEventKind::Down(MouseButton::Left) => self.press(at, state, &mut out),
            MouseEventKind::Drag(MouseButton::Left) => self.drag(at),
            MouseEventKind::Up(MouseButton::Left) => self.release(state, &mut out),
            _ => {}
        }
        out
    }

    /// Whether something lies over the conversations.
    fn covered(&self) -> bool {
        self.help.is_some() || self.overlay.is_some() || self.screen != Screen::Chat
    }

    fn wheel(&mut self, at: Position, up: bool, state: &State, out: &mut Vec<Reaction>) {
        if let Some(help) = &mut self.help {
            help.top = match up {
                true => help.top.saturating_sub(NOTCH),
                false => help.top + NOTCH,
            };
        } else if self.overlay.is_some() {
            let key = KeyEvent::new(if up { KeyCode::Up } else { KeyCode::Down }, KeyModifiers::NONE);
            self.key_on_top(&key, self.pressed, state, out);
        } else if self.screen == Screen::Chat
            && let Some(id) = self.pane_at(at).map(|(id, _)| id)
        {
            let action = if up { Action::LineUp } else { Action::LineDown };
            for _ in 0..NOTCH {
                self.pane(id).transcript.scroll(action);
            }
        }
    }

    /// The pane at a place, its border included, and its room.
    fn pane_at(&self, at: Position) -> Option<(PaneId, Rect)> {
        let around = |room: Rect| Rect {
            x: room.x.saturating_sub(1),
            y: room.y.saturating_sub(1),
            width: room.width + 2,
            height: room.height + 2,
        };
        let mut panes = self.places.panes.iter();
        panes.find(|(_, room)| around(*room).contains(at)).copied()
    }

    fn press(&mut self, at: Position, state: &State, out: &mut Vec<Reaction>) {
        self.marked = None;
        if self.places.composer.contains(at) {
            self.put_caret(at, state, out);
            return;
        }
        let Some((pane, room)) = self.pane_at(at) else {
            return;
        };
        if pane != state.focused() {
            out.push(Reaction::Chat(Event::Focus(pane)));
        }
        if room.contains(at) {
            let from = self.point(pane, room, at);
            self.marked = Some(Marked {
                pane,
                from,
                to: from,
                held: true,
            });
        }
    }

    /// Where in a pane's text a place is; beside its room, the nearest one.
    fn point(&self, pane: PaneId, room: Rect, at: Position) -> Point {
        let top = self.panes.get(&pane).map_or(0, |view| view.transcript.top());
        let y = at.y.clamp(room.y, room.bottom().saturating_sub(1).max(room.y)) - room.y;
        let x = at.x.clamp(room.x, room.right()) - room.x;
        Point {
            row: top + usize::from(y),
            column: usize::from(x),
        }
    }

    fn drag(&mut self, at: Position) {
        let Some(marked) = self.marked.filter(|marked| marked.held) else {
            return;
        };
        let Some((pane, room)) = self
            .places
            .panes
            .iter()
            .find(|(id, _)| *id == marked.pane)
            .copied()
        else {
            return;
        };
        let beyond = match at.y {
            y if y < room.y => Some(Action::LineUp),
            y if y >= room.bottom() => Some(Action::LineDown),
            _ => None,
        };
        if let Some(action) = beyond {
            self.pane(pane).transcript.scroll(action);
        }
        let to = self.point(pane, room, at);
        self.marked = Some(Marked { to, ..marked });
    }

    fn release(&mut self, state: &State, out: &mut Vec<Reaction>) {
        let Some(marked) = self.marked.filter(|marked| marked.held) else {
            return;
        };
        if marked.from == marked.to {
            self.marked = None;
            self.click(marked.pane, marked.from.row, out);
            return;
        }
        self.marked = Some(Marked {
            held: false,
            ..marked
        });
        if self.looks.copy_on_select {
            out.extend(self.copy_marked(state));
        } else if let Some(key) = self.keymap.written(Action::Interrupt) {
            out.push(Reaction::Tell(format!("{key} copies what is marked")));
        }
    }

    /// What a click on a row does: a thought's headline folds and unfolds, the line above a block of code copies it.
    fn click(&mut self, pane: PaneId, row: usize, out: &mut Vec<Reaction>) {
        let transcript = &mut self.pane(pane).transcript;
        match transcript.target(row) {
            Some(Target::Thought) => transcript.toggle_thoughts(),
            Some(Target::Code(number)) => out.extend(transcript.code(number).map(|code| Reaction::Copy {
                what: format!("code {number}"),
                text: code.source.clone(),
            })),
            None => {}
        }
    }

    /// Copies what is marked, without what only the screen needs.
    pub(super) fn copy_marked(&mut self, state: &State) -> Option<Reaction> {
        let marked = self.marked.filter(|marked| state.pane(marked.pane).is_some())?;
        let (from, to) = marked.ends();
        let text = self.pane(marked.pane).transcript.text_between(from, to);
        (!text.trim().is_empty()).then(|| Reaction::Copy {
            what: "the selection".into(),
            text,
        })
    }

    /// Lets go of what is marked; whether there was anything. What was not copied yet is, if `copies`.
    pub(super) fn unmark(&mut self, copies: bool, state: &State, out: &mut Vec<Reaction>) -> bool {
        let any = self.marked.is_some();
        if any && copies && !self.looks.copy_on_select {
            out.extend(self.copy_marked(state));
        }
        self.marked = None;
        any
    }

    fn put_caret(&mut self, at: Position, state: &State, out: &mut Vec<Reaction>) {
        if self.reading || self.ask.is_some() {
            self.read(false);
            return;
        }
        let draft = &state.focused_pane().draft;
        let to = self.composer.position(draft, self.places.composer, at);
        let moved = Draft::new(draft.text(), to).with_pastes(draft.pastes().to_vec());
        let moved = Editor::of(&moved).into_draft();
        if moved.cursor() != draft.cursor() {
            let pane = self.pane(state.focused());
            pane.goal = None;
            pane.undo.note(draft, &moved, Change::Other);
            out.push(Reaction::Chat(Event::Draft(moved)));
        }
    }

    /// Marks the cells of what is marked.
    pub(super) fn draw_marked(&self, buffer: &mut Buffer) {
        let Some(marked) = self.marked.filter(|marked| marked.from != marked.to) else {
            return;
        };
        let Some((_, room)) = self.places.panes.iter().find(|(id, _)| *id == marked.pane) else {
            return;
        };
        let top = self
            .panes
            .get(&marked.pane)
            .map_or(0, |view| view.transcript.top());
        let (from, to) = marked.ends();
        for y in 0..room.height {
            let row = top + usize::from(y);
            if !(from.row..=to.row).contains(&row) {
                continue;
            }
            let start = if row == from.row { from.column as u16 } else { 0 };
            let end = if row == to.row {
                (to.column as u16).saturating_add(1)
            } else {
                room.width
            };
            let cells = paint::row(*room, y);
            let cells = Rect {
                x: cells.x + start.min(cells.width),
                width: end.min(cells.width).saturating_sub(start),
                ..cells
            };
            buffer.set_style(cells.intersection(buffer.area), self.styles.chip());
        }
    }
}
