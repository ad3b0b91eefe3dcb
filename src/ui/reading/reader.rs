//! Reading: single keys scroll, search, select and copy while nothing is typed into the draft; and the line in which
//! one says what to look for, or which block of code to copy.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use crate::chat::{State, Turn};
use crate::text::spans::Span;
use crate::ui::cells;
use crate::ui::input::Reaction;
use crate::ui::keymap::{self, Action, Motion, Reading};
use crate::ui::paint::{self, piece};
use crate::ui::pane::one_line;
use crate::ui::reading::transcript::Message;
use crate::ui::sanitize::sanitize;
use crate::ui::view::View;

/// What one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A text to look for.
    Search,
    /// The number of a block of code.
    Copy,
}

impl Asked {
    /// The keys that end it.
    pub(in crate::ui) fn keys(self) -> &'static str {
        match self {
            Self::Search => "Enter keeps, Esc gives up",
            Self::Copy => "Enter copies, Esc gives up",
        }
    }
}

/// A line that is being written in place of the draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What for.
    pub asked: Asked,
    /// What was written so far.
    pub text: String,
}

impl View {
    /// Begins to read, or ends it: what was found and selected is forgotten then.
    pub(in crate::ui) fn read(&mut self, reading: bool) {
        self.reading = reading;
        self.ask = None;
        if !reading {
            for pane in self.panes.values_mut() {
                pane.transcript.end_search(false);
                pane.transcript.deselect();
            }
        }
    }

    /// Closes what lies on top of the draft, the line, the search, reading itself; whether there was anything.
    pub(in crate::ui) fn close_reading(&mut self, state: &State) -> bool {
        let (ask, reading) = (self.ask.take(), self.reading);
        let transcript = &mut self.pane(state.focused()).transcript;
        match ask.map(|ask| ask.asked) {
            Some(Asked::Search) => transcript.end_search(true),
            Some(Asked::Copy) => {}
            None if !reading => return false,
            None if transcript.search().is_some() => transcript.end_search(false),
            None => self.read(false),
        }
        true
    }

    /// Does what single keys do while one reads.
    pub(in crate::ui) fn read_on(&mut self, reading: Reading, state: &State, out: &mut Vec<Reaction>) {
        let transcript = &mut self.pane(state.focused()).transcript;
        match reading {
            Reading::Write => self.read(false),
            Reading::Up => transcript.scroll(Action::LineUp),
            Reading::Down => transcript.scroll(Action::LineDown),
            Reading::PageUp => transcript.scroll(Action::PageUp),
            Reading::PageDown => transcript.scroll(Action::PageDown),
            Reading::Top => transcript.scroll(Action::Top),
            Reading::Bottom => transcript.scroll(Action::Bottom),
            Reading::NextHit => transcript.step(true),
            Reading::PreviousHit => transcript.step(false),
            Reading::PreviousMessage => transcript.select(false),
            Reading::NextMessage => transcript.select(true),
            Reading::Search => self.ask(Asked::Search, state),
            Reading::Copy => self.ask(Asked::Copy, state),
            Reading::CopyMessage => {
                let selected = transcript.selected();
                self.copy_message(selected, state, out);
            }
        }
    }

    /// Asks what to look for or to copy: that without code, too, so that the same keys copy the last answer everywhere.
    pub(in crate::ui) fn ask(&mut self, asked: Asked, state: &State) {
        if asked == Asked::Search {
            self.pane(state.focused()).transcript.end_search(false);
        }
        let text = String::new();
        self.ask = Some(Ask { asked, text });
    }

    /// Takes a key for the line.
    pub(in crate::ui) fn ask_key(
        &mut self,
        key: &KeyEvent,
        action: Option<Action>,
        state: &State,
        out: &mut Vec<Reaction>,
    ) {
        let Some(Ask { asked, mut text }) = self.ask.clone() else {
            return;
        };
        match (action, keymap::typed(key)) {
            (Some(Action::Stop | Action::Interrupt), _) => {
                self.close_reading(state);
                return;
            }
            (Some(Action::Send), _) => {
                self.ask = None;
                match asked {
                    Asked::Search => self.reading = true,
                    Asked::Copy => self.copy_code(&text, state, out),
                }
                return;
            }
            (Some(Action::Delete(Motion::Left)), _) => {
                let shorter = cells::without_last(&text).to_owned();
                text = shorter;
            }
            (Some(Action::Delete(_)), _) => text.clear(),
            (Some(Action::Move(Motion::Down)), _) if asked == Asked::Search => {
                self.pane(state.focused()).transcript.step(true);
                return;
            }
            (Some(Action::Move(Motion::Up)), _) if asked == Asked::Search => {
                self.pane(state.focused()).transcript.step(false);
                return;
            }
            (Some(action @ (Action::Repaint | Action::Suspend | Action::Raw | Action::Thoughts)), _) => {
                self.act(action, state, out);
                return;
            }
            (None, Some(c)) => text.push(c),
            _ => return,
        }
        self.write_line(asked, text, state, out);
    }

    /// Takes pasted text for the line: its first line.
    pub(in crate::ui) fn paste_into_line(&mut self, pasted: &str, state: &State, out: &mut Vec<Reaction>) {
        if let Some(Ask { asked, mut text }) = self.ask.clone() {
            text.push_str(pasted.lines().next().unwrap_or_default());
            self.write_line(asked, text, state, out);
        }
    }

    fn write_line(&mut self, asked: Asked, text: String, state: &State, out: &mut Vec<Reaction>) {
        let transcript = &mut self.pane(state.focused()).transcript;
        match asked {
            Asked::Search => transcript.find(&text),
            Asked::Copy if text == "y" => {
                self.ask = None;
                return self.copy_message(None, state, out);
            }
            Asked::Copy => {
                let digits: String = text.chars().filter(char::is_ascii_digit).take(6).collect();
                let number = digits.parse::<usize>().unwrap_or(0);
                // Nothing that could be added would be a number of a block.
                if number > 0 && number.saturating_mul(10) > transcript.code_len() {
                    self.ask = None;
                    return self.copy_code(&digits, state, out);
                }
                self.ask = Some(Ask { asked, text: digits });
                return;
            }
        }
        self.ask = Some(Ask { asked, text });
    }

    /// Copies a block of code, or the last answer where no number was given.
    fn copy_code(&mut self, number: &str, state: &State, out: &mut Vec<Reaction>) {
        let Ok(number) = number.parse::<usize>() else {
            return self.copy_message(None, state, out);
        };
        let transcript = &self.pane(state.focused()).transcript;
        out.push(match transcript.code(number) {
            Some(code) => Reaction::Copy {
                what: format!("code {number}"),
                text: code.source.clone(),
            },
            None => Reaction::Tell(format!("there is no code {number} in this pane")),
        });
    }

    /// Copies a message as it was written, else the last answer.
    fn copy_message(&mut self, message: Option<Message>, state: &State, out: &mut Vec<Reaction>) {
        let turns = &state.focused_pane().turns;
        let (what, text) = match message.and_then(|message| Some((message, message.among(turns)?))) {
            Some((message, (turn, what))) => (what, said(message, turn)),
            None => {
                let last = turns.iter().rev().map(answer).find(|text| !text.is_empty());
                ("the last answer".to_owned(), last.unwrap_or_default())
            }
        };
        out.push(if text.is_empty() {
            Reaction::Tell(format!("{what} is empty: nothing was copied"))
        } else {
            Reaction::Copy { what, text }
        });
    }

    /// Draws the line in the composer's room, or what one may do while reading around the draft; gives the cursor's cell.
    pub(in crate::ui) fn draw_reading(
        &mut self,
        buffer: &mut Buffer,
        area: Rect,
        state: &State,
    ) -> Option<Position> {
        let styles = self.styles;
        let name = format!("{} {}", state.focused(), one_line(&state.focused_pane().title));
        let transcript = &self.pane(state.focused()).transcript;
        let found = transcript.search().map(|(query, at, count)| match (at, count) {
            (_, 0) => (query.to_owned(), "not found".to_owned()),
            (0, count) => (query.to_owned(), format!("{count} found")),
            (at, count) => (query.to_owned(), format!("{at} of {count}")),
        });
        let room = usize::from(area.width.saturating_sub(2));
        let code = transcript.code_len();
        let (what, how) = match (&self.ask, &found) {
            (
                Some(Ask {
                    asked: Asked::Search, ..
                }),
                Some((_, found)),
            ) => (format!("search: {found}"), "Up, Down: others"),
            (
                Some(Ask {
                    asked: Asked::Search, ..
                }),
                None,
            ) => (format!("search in {name}"), Asked::Search.keys()),
            (
                Some(Ask {
                    asked: Asked::Copy, ..
                }),
                _,
            ) => match code {
                0 => ("copy".to_owned(), "y: the last answer"),
                code => (format!("copy code 1 to {code}"), "y: the last answer"),
            },
            (None, Some((query, found))) => (
                format!("reads {name}: {} {found}", sanitize(query)),
                "n, N; Esc ends search",
            ),
            (None, None) => (format!("reads {name}"), "y copies, / searches, Esc writes"),
        };
        let how = if how.len() + 12 < room {
            format!("({how}) ")
        } else {
            String::new()
        };
        let what = cells::shorten(
            &format!(" {what}"),
            room.saturating_sub(how.len() + 1),
            styles.cut(),
        );
        let title = [
            piece(format!("{what} "), styles.strong()),
            piece(how, styles.quiet()),
        ];
        let Some(ask) = &self.ask else {
            paint::boxed(buffer, area, &title, &styles, false);
            return None;
        };
        paint::clear(buffer, area, &styles);
        let inner = paint::boxed(buffer, area, &title, &styles, true);
        if inner.is_empty() {
            return None;
        }
        let text = sanitize(&ask.text);
        // Its end is seen, where the cursor is.
        let room = usize::from(inner.width).saturating_sub(1);
        let mut shown = &*text;
        while cells::width(shown) > room {
            let mut rest = shown.chars();
            rest.next();
            shown = rest.as_str();
        }
        let column = paint::text(
            buffer,
            paint::row(inner, 0),
            0,
            shown,
            ratatui::style::Style::new(),
        );
        Some(Position {
            x: inner.x + column.min(inner.width - 1),
            y: inner.y,
        })
    }
}

/// What a message of a turn says, as it was written.
pub(in crate::ui) fn said(message: Message, turn: &Turn) -> String {
    match message.answer {
        true => answer(turn),
        false => turn.prompt.clone(),
    }
}

/// What a turn's answer says, as the model wrote it.
fn answer(turn: &Turn) -> String {
    let text = turn.answer.of(Span::Answer);
    let text = text.trim_start_matches(['\n', '\r']).trim_end();
    text.to_owned()
}
