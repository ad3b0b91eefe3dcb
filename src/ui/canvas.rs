//! The screen as it was last drawn. A frame is the difference to it, between marks that let the terminal show it at
//! once, and written in one piece.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell, CellDiffOption};
use ratatui::layout::{Position, Rect, Size};

use crate::ui::cells;

/// What frames are written to.
pub trait Target {
    /// Columns and rows, at present.
    fn size(&self) -> io::Result<(u16, u16)>;
    /// Writes a frame.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;
    /// Shows the screen of lines that stay, where there are two, or the one for frames again.
    fn show_lines(&mut self, lines: bool) -> io::Result<()> {
        let _ = lines;
        Ok(())
    }
}

/// Bytes that wait until their frame is whole.
#[derive(Debug, Clone, Default)]
struct Gathered(Rc<RefCell<Vec<u8>>>);

impl Write for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The library's backend, over gathered bytes and with the target's size.
#[derive(Debug)]
struct Gathering<T> {
    inner: CrosstermBackend<Gathered>,
    target: T,
}

impl<T: Target> Backend for Gathering<T> {
    type Error = io::Error;

    fn draw<'a, I: Iterator<Item = (u16, u16, &'a Cell)>>(&mut self, content: I) -> io::Result<()> {
        self.inner.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Err(io::Error::other("the terminal isn't asked where its cursor is"))
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.inner.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        let (width, height) = self.target.size()?;
        Ok(Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize {
            columns_rows: self.size()?,
            pixels: Size::default(),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The screen as it was last drawn.
#[derive(Debug)]
pub struct Canvas<T: Target> {
    terminal: Terminal<Gathering<T>>,
    gathered: Gathered,
    draws: u64,
    /// Whether the mark that begins a frame is written already.
    begun: bool,
    /// Cells that the last frame covered with the right half of a wide character.
    halves: Vec<Position>,
}

impl<T: Target> Canvas<T> {
    /// An empty screen.
    pub fn new(target: T) -> io::Result<Self> {
        let gathered = Gathered::default();
        let inner = CrosstermBackend::new(gathered.clone());
        Ok(Self {
            terminal: Terminal::new(Gathering { inner, target })?,
            gathered,
            draws: 0,
            begun: false,
            halves: Vec::new(),
        })
    }

    /// Draws a frame at the target's present size; `paint` gives the cursor's cell.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer) -> Option<Position>) -> io::Result<()> {
        self.begin()?;
        let halves = &mut self.halves;
        self.terminal.draw(|frame| {
            let cursor = paint(frame.buffer_mut());
            uncover(frame.buffer_mut(), halves);
            if let Some(cursor) = cursor {
                frame.set_cursor_position(cursor);
            }
        })?;
        queue!(self.gathered, EndSynchronizedUpdate)?;
        self.begun = false;
        self.draws += 1;
        self.present()
    }

    /// Forgets what is on the screen: the next frame paints all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.begin()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        queue!(self.gathered, BeginSynchronizedUpdate)
    }

    /// Writes something that isn't shown, like the bell, between two frames.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.gathered.write_all(bytes)?;
        self.present()
    }

    fn present(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut *self.gathered.0.borrow_mut());
        self.terminal.backend_mut().target.write(&frame)
    }

    /// How many frames were drawn.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// What frames are written to.
    pub fn target(&self) -> &T {
        &self.terminal.backend().target
    }

    /// What frames are written to.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.terminal.backend_mut().target
    }
}

/// Has cells written anew that a wide character covered in the last frame, since terminals differ in what they leave
/// there when its left half is overwritten; notes those that are covered now.
fn uncover(buffer: &mut Buffer, halves: &mut Vec<Position>) {
    let wide = |buffer: &Buffer, at: Position| {
        let cell = buffer.cell(at);
        cell.is_some_and(|cell| cell.symbol().len() > 1 && cells::width(cell.symbol()) > 1)
    };
    for &at in halves.iter() {
        let left = Position {
            x: at.x.saturating_sub(1),
            ..at
        };
        if !wide(buffer, left)
            && let Some(cell) = buffer.cell_mut(at)
        {
            cell.set_diff_option(CellDiffOption::AlwaysUpdate);
        }
    }
    let area = buffer.area;
    let places = area
        .rows()
        .flat_map(|row| (area.left()..area.right()).map(move |x| Position { x, y: row.y }));
    *halves = places
        .filter(|&at| wide(buffer, at))
        .map(|at| Position {
            x: at.x.saturating_add(1),
            ..at
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::*;

    #[derive(Debug)]
    struct Paper(Vec<u8>);

    impl Target for Paper {
        fn size(&self) -> io::Result<(u16, u16)> {
            Ok((10, 1))
        }

        fn write(&mut self, frame: &[u8]) -> io::Result<()> {
            self.0 = frame.to_vec();
            Ok(())
        }
    }

    fn frame(canvas: &mut Canvas<Paper>, text: &str) -> String {
        let drawn = canvas.draw(|buffer| {
            buffer.set_string(0, 0, text, Style::new());
            None
        });
        drawn.unwrap();
        String::from_utf8(canvas.target().0.clone()).unwrap()
    }

    #[test]
    fn both_halves_of_a_wide_character_are_written_when_it_goes() {
        let mut canvas = Canvas::new(Paper(Vec::new())).unwrap();
        frame(&mut canvas, "a漢");
        let gone = frame(&mut canvas, "a");
        assert!(gone.contains("  "), "two blanks: {gone:?}");
        frame(&mut canvas, "a漢b");
        let stays = frame(&mut canvas, "a漢c");
        assert!(
            stays.contains('c') && !stays.contains(' ') && !stays.contains('漢'),
            "{stays:?}"
        );
    }
}
