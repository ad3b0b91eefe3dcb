//! The screen as it was last drawn. A frame is the difference to it, between marks that let the terminal show it at
//! once, and written in one piece.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect, Size};

/// What frames are written to.
pub trait Target {
    /// Columns and rows, at present.
    fn size(&self) -> io::Result<(u16, u16)>;
    /// Writes a frame.
    fn write(&mut self, frame: &[u8]) -> io::Result<()>;
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
        })
    }

    /// Draws a frame at the target's present size; `paint` gives the cursor's cell.
    pub fn draw(&mut self, paint: impl FnOnce(&mut Buffer) -> Option<Position>) -> io::Result<()> {
        queue!(self.gathered, BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            if let Some(cursor) = paint(frame.buffer_mut()) {
                frame.set_cursor_position(cursor);
            }
        })?;
        queue!(self.gathered, EndSynchronizedUpdate)?;
        self.draws += 1;
        self.present()
    }

    /// Forgets what is on the screen: the next frame paints all of it.
    pub fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        queue!(self.gathered, BeginSynchronizedUpdate)?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Rings the bell.
    pub fn ring(&mut self) -> io::Result<()> {
        self.gathered.write_all(b"\x07")?;
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
